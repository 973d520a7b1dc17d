//! Samples that tests judge.

use percolator::batch::ImageShape;

use super::Use;
use crate::doctor::sample::{Moments, Sample, Samples};

/// Pixels of about 104, 117 and 123, with deviations of 50.
const PIXELS: [[f64; 2]; 3] = [[54.0, 154.0], [67.0, 167.0], [73.0, 173.0]];

pub(super) fn sample(label: i32, shape: [usize; 3]) -> Sample {
    let [channels, height, width] = shape;
    Sample {
        label,
        shape: ImageShape { channels, height, width },
        is_bytes: true,
        channels: PIXELS[..channels].iter().map(|pixels| Moments::of(pixels.iter().copied())).collect(),
    }
}

/// Runs of 16, evenly spread over `records` photographs that have these labels.
pub(super) fn photos(records: usize, label: impl Fn(usize) -> i32) -> Samples {
    let runs = 32.min(records / 16);
    let start = |run: usize| run * (records - 16) / (runs - 1).max(1);
    let run = |run| (start(run)..start(run) + 16).map(|at| sample(label(at), [3, 60, 80])).collect();
    Samples { runs: (0..runs).map(run).collect(), is_spread: true, ..Samples::default() }
}

/// Looks random.
pub(super) fn mixed(at: usize) -> i32 {
    let number = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    i32::try_from((number >> 40) % 10).unwrap()
}

pub(super) fn class(at: usize, records_each: usize) -> i32 {
    i32::try_from(at / records_each).unwrap()
}

pub(super) fn training() -> Use {
    Use { has_labels: true, batch_size: 8, ..Use::default() }
}

pub(super) fn with_mean(mean: &[f32]) -> Use {
    Use { mean: mean.to_vec(), ..training() }
}
