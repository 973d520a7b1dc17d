//! The cost of keeping a receipt.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::Shuffle;
use percolator::bench_support::ReceiptBench;
use percolator::order::{BatchSize, Job, World};
use percolator::record::{RecordId, StepEnd};

/// As many records as ImageNet has.
const RECORDS: u64 = 1_281_167;
const BATCH: u64 = 256;

/// An epoch's batches, each with its step.
type Epoch = Vec<(StepEnd, Vec<RecordId>)>;

fn receipts(criterion: &mut Criterion) {
    let job =
        Job::new([RECORDS], BatchSize::PerReplica(BATCH), World::ALONE).shuffle(Shuffle::Global).seed(1);
    let plan = job.plan().expect("a job that can be divided");
    let steps = plan.steps(0).expect("an epoch that is counted");
    let batch = |step| {
        let share = plan.share(0, step, 0).expect("there is such a step");
        (StepEnd { epoch: 0, step, is_last: step + 1 == steps }, share.collect())
    };
    let epoch: Epoch = (0..steps).map(batch).collect();
    let mut group = criterion.benchmark_group("a receipt");
    group.measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(BATCH * 100));
    group.bench_function("of what is delivered, shuffled", |bencher| {
        let mut receipt = ReceiptBench::new(&plan, 0);
        let mut batches = epoch[..epoch.len() - 1].chunks_exact(100).cycle();
        bencher.iter(|| {
            for (step, records) in batches.next().into_iter().flatten() {
                receipt.fold(Some(*step), black_box(records));
            }
        });
    });
    group.bench_function("of what is delivered, and of what it holds", |bencher| {
        let mut receipt = ReceiptBench::new(&plan, 0);
        let mut batches = epoch[..epoch.len() - 1].chunks_exact(100).cycle();
        bencher.iter(|| {
            for (step, records) in batches.next().into_iter().flatten() {
                receipt.fold_contents(*step, black_box(records), |_| 1 << 77 | 1);
            }
        });
    });
    group.finish();
}

/// The worker's part, for a record that it has just read.
fn contents(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("the hash of a record");
    for bytes in [300, 3_085, 150_000, 196_622] {
        let byte = |at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[0];
        let value: Vec<u8> = (0..bytes).map(byte).collect();
        group.throughput(Throughput::Bytes(value.len() as u64));
        group.bench_function(format!("of {bytes} bytes"), |bencher| {
            bencher.iter(|| {
                ReceiptBench::content(black_box(b"00000117_n01440764_1234.JPEG"), black_box(&value))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, receipts, contents);
criterion_main!(benches);
