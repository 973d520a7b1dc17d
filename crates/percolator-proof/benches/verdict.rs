//! The cost of verifying a receipt.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::Shuffle;
use percolator::bench_support::ReceiptBench;
use percolator::order::{BatchSize, Job, World};
use percolator::record::{RecordId, StepEnd};
use percolator_proof::Verdict;

/// As many records as ImageNet has.
const RECORDS: u64 = 1_281_167;

fn verdicts(criterion: &mut Criterion) {
    let job = Job::new([RECORDS], BatchSize::PerReplica(256), World::ALONE).shuffle(Shuffle::Global).seed(1);
    let plan = job.plan().expect("a job that can be divided");
    let steps = plan.steps(0).expect("an epoch that is counted");
    let mut receipt = ReceiptBench::new(&plan, 0);
    for step in 0..steps {
        let records: Vec<RecordId> = plan.share(0, step, 0).expect("there is such a step").collect();
        receipt.fold(Some(StepEnd { epoch: 0, step, is_last: step + 1 == steps }), &records);
    }
    let receipt = receipt.receipt();
    let mut group = criterion.benchmark_group("a receipt");
    group.measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(RECORDS)).sample_size(10);
    group.bench_function("that is verified, a shuffled epoch", |bencher| {
        bencher.iter(|| assert!(Verdict::of([("bench", &receipt)]).is_ok_and(|verdict| verdict.is_sound())));
    });
    group.finish();
}

criterion_group!(benches, verdicts);
criterion_main!(benches);
