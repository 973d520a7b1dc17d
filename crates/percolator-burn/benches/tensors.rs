//! A batch's array as a burn tensor: the batch's own memory, a copy of it, and what the copy alone takes.
//!
//! ```console
//! $ cargo bench -p percolator-burn --bench tensors
//! ```

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench that cannot run has failed")]

use std::hint::black_box;

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use percolator::source::FnSource;
use percolator::{Dtype, Epochs, Feed, Field};
use percolator_burn::{BurnBatch as _, Tensors};

/// A batch of images of floats.
fn batch(records: usize, side: usize) -> Tensors {
    let source = FnSource::new("made", records as u64, |_, to| {
        to.push(1);
        Ok(())
    });
    let feed = Feed::builder().source(source).decode(
        [Field::new("data", Dtype::F32, [3, side, side])],
        move |_, row| {
            row.write("data", &vec![0.5_f32; 3 * side * side])?;
            Ok(())
        },
    );
    let mut feed = feed.batch_size(records).prefetch(1).epochs(Epochs::OnePass).build().unwrap();
    let batch = feed.steps().next().unwrap().unwrap().remove(0);
    batch.into_tensors(&Device::flex()).unwrap()
}

fn tensors(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tensors");
    for (records, side) in [(64, 32), (64, 224)] {
        let (batch, device) = (batch(records, side), Device::flex());
        let values = batch.batch().get::<f32>("data").unwrap();
        let shape = [records, 3, side, side];
        group.throughput(Throughput::Bytes(size_of_val(&*values) as u64));
        let of = format!("{records} of 3x{side}x{side}");
        group.bench_function(BenchmarkId::new("get", &of), |bencher| {
            bencher.iter(|| black_box(batch.get::<4>("data").unwrap()));
        });
        group.bench_function(BenchmarkId::new("copied", &of), |bencher| {
            bencher.iter(|| {
                let data = TensorData::new(values.to_vec(), shape);
                black_box(Tensor::<4>::from_data(data, &device))
            });
        });
        let mut to = vec![0.0_f32; values.len()];
        group.bench_function(BenchmarkId::new("memcpy", &of), |bencher| {
            bencher.iter(|| black_box(&mut to).copy_from_slice(&values));
        });
    }
    group.finish();
}

criterion_group!(benches, tensors);
criterion_main!(benches);
