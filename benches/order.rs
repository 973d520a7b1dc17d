//! The cost of finding out which record comes next.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::Shuffle;
use percolator::order::{BatchSize, Job, World};

/// As many records as ImageNet has.
const RECORDS: u64 = 1_281_167;
const BATCH: u64 = 256;

fn positions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("positions of an epoch");
    group.measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(BATCH * 100));
    let window = Shuffle::Window { records: NonZeroU64::MIN.saturating_add(9_999) };
    for (name, shuffle) in [("in order", Shuffle::No), ("shuffled", Shuffle::Global), ("in windows", window)]
    {
        let job = Job::new([RECORDS], BatchSize::PerReplica(BATCH), World::ALONE).shuffle(shuffle).seed(1);
        let plan = job.plan().expect("a job that can be divided");
        group.bench_function(name, |bencher| {
            let mut step = 0;
            bencher.iter(|| {
                for _ in 0..100 {
                    let share = plan.share(3, step, 0).expect("there is such a step");
                    black_box(share.map(|record| record.index).sum::<u64>());
                    step = (step + 1) % 5000;
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, positions);
criterion_main!(benches);
