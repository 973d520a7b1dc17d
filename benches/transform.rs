//! How fast one thread transforms records, beside how fast it copies the same number of bytes.
//!
//! Every output goes to the next buffer of a ring larger than the caches, as the records of a batch do.
//! `memcpy` also reads from such a ring; `memcpy_hot` reads one buffer over and over, as when a record was
//! just decoded.

use std::hint::black_box;
use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use percolator::batch::ImageShape;
use percolator::bench_support::TransformBench;
use percolator::transform::MeanImage;
use percolator::{Dtype, Layout, Transform};

/// Bytes of a ring: more than the last-level cache of the machines this runs on.
const RING_BYTES: usize = 40 << 20;

/// Buffers of equal length, used in turn.
struct Ring {
    bytes: Vec<f32>,
    buffer_bytes: usize,
    next: usize,
}

impl Ring {
    fn new(buffer_bytes: usize) -> Self {
        let buffers = RING_BYTES.div_ceil(buffer_bytes);
        // Floats, so that every buffer is aligned for them; ones, so that every page exists.
        let floats = (buffers * buffer_bytes).div_ceil(4);
        Self { bytes: vec![1.0; floats], buffer_bytes, next: 0 }
    }

    fn next(&mut self) -> &mut [u8] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.bytes);
        if (self.next + 1) * self.buffer_bytes > bytes.len() {
            self.next = 0;
        }
        let start = self.next * self.buffer_bytes;
        self.next += 1;
        &mut bytes[start..start + self.buffer_bytes]
    }
}

fn ramp(shape: ImageShape) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(shape.channels * shape.height * shape.width).collect()
}

fn mean_image(shape: ImageShape) -> MeanImage {
    let pixels: Vec<f32> = ramp(shape).iter().map(|&pixel| f32::from(pixel) * 0.9).collect();
    MeanImage::new(shape, pixels).expect("the ramp fills the shape")
}

fn copies(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let (mut from, mut to) = (Ring::new(bytes), Ring::new(bytes));
    group.bench_function("memcpy", |b| {
        b.iter(|| to.next().copy_from_slice(black_box(from.next())));
    });
    let hot = vec![1_u8; bytes];
    group.bench_function("memcpy_hot", |b| {
        b.iter(|| to.next().copy_from_slice(black_box(&hot)));
    });
}

/// The slow version: one pixel at a time, with every index computed.
fn scalar(shape: ImageShape, crop: usize, pixels: &[u8], mean: &[f32], out: &mut [f32]) {
    for c in 0..shape.channels {
        for y in 0..crop {
            for x in 0..crop {
                let from = (c * shape.height + y) * shape.width + x;
                let to = (c * crop + y) * crop + crop - 1 - x;
                out[to] = (f32::from(pixels[from]) - mean[from]) * 0.017;
            }
        }
    }
}

/// One shape and crop: every kind of transform to f32, and the richest in each type and layout.
fn record(criterion: &mut Criterion, name: &str, side: usize, crop: u32) {
    let shape = ImageShape { channels: 3, height: side, width: side };
    let elements = 3 * crop as usize * crop as usize;
    let pixels = ramp(shape);
    let image = mean_image(shape);

    let cropped = Transform::new().crop(crop).scale(0.017);
    let values = cropped.clone().mean_values([104.0, 117.0, 123.0]);
    let imaged = cropped.clone().mean_image(image.clone());
    let mirrored = imaged.clone().mirror(true);
    let bytes = Transform::new().crop(crop).mirror(true);
    let cases = [
        ("f32/straight", &imaged, Dtype::F32, Layout::Nchw),
        ("f32/mirror", &mirrored, Dtype::F32, Layout::Nchw),
        ("f32/values", &values, Dtype::F32, Layout::Nchw),
        ("f32/nhwc", &mirrored, Dtype::F32, Layout::Nhwc),
        ("f16/mirror", &mirrored, Dtype::F16, Layout::Nchw),
        ("bf16/mirror", &mirrored, Dtype::Bf16, Layout::Nchw),
        ("u8/mirror", &bytes, Dtype::U8, Layout::Nchw),
        ("u8/nhwc", &bytes, Dtype::U8, Layout::Nhwc),
    ];

    let mut group = criterion.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(20);
    group.throughput(Throughput::Bytes(4 * elements as u64));
    copies(&mut group, 4 * elements);
    let mut ring = Ring::new(4 * elements);
    group.bench_function("f32/scalar", |b| {
        b.iter(|| {
            let out = bytemuck::cast_slice_mut(ring.next());
            scalar(shape, crop as usize, black_box(&pixels), image.pixels(), out);
        });
    });
    for (name, transform, dtype, layout) in cases {
        let mut bench = TransformBench::new(transform, dtype, layout).expect("a valid transform");
        let mut ring = Ring::new(elements * dtype.size());
        let mut index = 0;
        group.throughput(Throughput::Bytes((elements * dtype.size()) as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                index += 1;
                bench.apply(shape, black_box(&pixels), index, ring.next()).expect("a valid record");
            });
        });
    }
    group.finish();
}

fn raw256(criterion: &mut Criterion) {
    record(criterion, "raw256", 256, 227);
}

fn small(criterion: &mut Criterion) {
    record(criterion, "small", 32, 28);
}

criterion_group!(benches, raw256, small);
criterion_main!(benches);
