//! What erased parts become, in each type and layout.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use half::{bf16, f16};
use percolator::transform::{ErasedValue, Operation};
use percolator::{ColorMode, Dtype, FeedBuilder, Layout, Transform};

use crate::common::{datum, key};
use crate::operations::feed;

const SIDE: usize = 48;

/// What erases a part of every image.
fn erasing(erased: ErasedValue) -> Transform {
    let mut operation = Operation::random_erasing(1.0);
    if let Operation::RandomErasing { value, .. } = &mut operation {
        *value = erased;
    }
    Transform::new().color(ColorMode::Rgb).operation(operation)
}

fn white(transform: &Transform) -> FeedBuilder {
    let side = i32::try_from(SIDE).unwrap();
    let image = datum(3, side, side, 0, vec![255; 3 * SIDE * SIDE]);
    feed((0..40).map(|index| (key(index), image.clone())).collect(), transform)
}

/// All elements of two epochs, channel by channel, as f32. What is not erased is 7.
fn elements(value: &ErasedValue, dtype: Dtype, layout: Layout, threads: usize) -> Vec<f32> {
    let transform = erasing(value.clone()).normalize([0.0], [1.0 / 7.0]);
    let feed = white(&transform).dtype(dtype).layout(layout).epochs(2).seed(11).threads(threads);
    let lane = feed.build().unwrap().take_lanes().unwrap().remove(0);
    let batches = lane.map(|batch| {
        let batch = batch.unwrap();
        let elements: Vec<f32> = match dtype {
            Dtype::F16 => batch.pixels::<f16>().unwrap().iter().map(|element| element.to_f32()).collect(),
            Dtype::Bf16 => batch.pixels::<bf16>().unwrap().iter().map(|element| element.to_f32()).collect(),
            _ => batch.pixels::<f32>().unwrap().to_vec(),
        };
        if layout == Layout::Nchw {
            return elements;
        }
        (0..3)
            .flat_map(|channel| elements.iter().skip(channel).step_by(3).copied().collect::<Vec<_>>())
            .collect()
    });
    batches.collect::<Vec<_>>().concat()
}

/// What is not as it was.
fn changed(elements: &[f32]) -> Vec<f32> {
    elements.iter().copied().filter(|element| (element - 7.0).abs() > 1e-5).collect()
}

/// The share of the standard normal distribution below some places.
const NORMAL: [(f32, f64); 9] = [
    (-3.0, 0.001_349_898),
    (-2.0, 0.022_750_132),
    (-1.0, 0.158_655_254),
    (-0.5, 0.308_537_539),
    (0.0, 0.5),
    (0.5, 0.691_462_461),
    (1.0, 0.841_344_746),
    (2.0, 0.977_249_868),
    (3.0, 0.998_650_102),
];

#[test]
fn noise_is_normal_and_depends_on_the_record_alone() {
    let noise = |dtype, layout, threads| elements(&ErasedValue::Random, dtype, layout, threads);
    let one = noise(Dtype::F32, Layout::Nchw, 1);
    assert!(one == noise(Dtype::F32, Layout::Nchw, 4), "by other threads");
    assert!(one == noise(Dtype::F32, Layout::Nhwc, 3), "in another layout");
    let rounded = one.iter().map(|element| f16::from_f32(*element).to_f32());
    assert!(noise(Dtype::F16, Layout::Nhwc, 2) == rounded.collect::<Vec<_>>());
    let rounded = one.iter().map(|element| bf16::from_f32(*element).to_f32());
    assert!(noise(Dtype::Bf16, Layout::Nchw, 2) == rounded.collect::<Vec<_>>());

    let mut numbers = changed(&one);
    let count = numbers.len() as f64;
    assert!(count > 50_000.0, "{count}");
    let share = |numbers: &[f32], place: f32| {
        numbers.iter().filter(|number| **number <= place).count() as f64 / numbers.len() as f64
    };
    // One good sequence in a thousand exceeds this.
    let allowed = 1.95 / count.sqrt();
    for (place, wanted) in NORMAL {
        let found = share(&numbers, place);
        assert!((found - wanted).abs() < allowed, "up to {place}: {found} and {wanted}");
    }
    let products: f64 = numbers.windows(2).map(|pair| f64::from(pair[0] * pair[1])).sum();
    assert!((products / count).abs() < 3.3 / count.sqrt(), "neighbours: {}", products / count);
    // Each is drawn once: not twice in a record, in another record, or in another epoch. Of 32 bits, some
    // come again by chance.
    numbers.sort_unstable_by(f32::total_cmp);
    let again = numbers.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!((again as f64) < 0.02 * count, "{again} of {count}");
    let off: Vec<f32> = numbers.iter().map(|number| number * 1.05).collect();
    assert!((share(&off, 1.0) - NORMAL[6].1).abs() > allowed, "a little off is found out");
}

#[test]
fn colours_are_one_for_a_channel_of_a_part() {
    let colours = elements(&ErasedValue::RandomColor, Dtype::F32, Layout::Nhwc, 3);
    assert!(colours == elements(&ErasedValue::RandomColor, Dtype::F32, Layout::Nchw, 1));
    let mut found = Vec::new();
    for plane in colours.chunks_exact(SIDE * SIDE) {
        let mut levels = changed(plane);
        levels.dedup();
        assert_eq!(levels.len(), 1, "{levels:?}");
        found.extend(levels);
    }
    assert_eq!(found.len(), 2 * 40 * 3);
    let mean = f64::from(found.iter().sum::<f32>()) / found.len() as f64;
    let square = f64::from(found.iter().map(|level| level * level).sum::<f32>()) / found.len() as f64;
    assert!(mean.abs() < 0.22 && (0.7..1.35).contains(&square), "{mean} {square}");
    found.sort_unstable_by(f32::total_cmp);
    found.dedup();
    assert_eq!(found.len(), 2 * 40 * 3, "all differ");
}

#[test]
fn constants_are_one_for_all_channels_or_one_for_each() {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let levels = elements(&ErasedValue::Constant(vec![-1.0, 2.5, 3.0]), Dtype::F32, layout, 1);
        for (plane, wanted) in levels.chunks_exact(SIDE * SIDE).zip([-1.0, 2.5, 3.0].into_iter().cycle()) {
            let changed = changed(plane);
            assert!(!changed.is_empty() && changed.iter().all(|level| *level == wanted));
        }
        let levels = changed(&elements(&ErasedValue::Constant(vec![0.25]), Dtype::Bf16, layout, 1));
        assert!(!levels.is_empty() && levels.iter().all(|level| *level == 0.25));
    }
}

#[test]
fn bytes_are_erased_to_zeros_alone() {
    let refused = |value: ErasedValue, dtype| {
        let feed = white(&erasing(value)).dtype(dtype);
        feed.build().map(drop).map_err(|error| error.to_string())
    };
    let words = "u8 output are erased only to 0, found random; f32, f16 and bf16 output take any";
    assert!(refused(ErasedValue::Random, Dtype::U8).unwrap_err().contains(words));
    assert!(refused(ErasedValue::Constant(vec![3.0]), Dtype::U8).is_err());
    assert_eq!(refused(ErasedValue::Constant(vec![0.0]), Dtype::U8), Ok(()));
    let message = refused(ErasedValue::Constant(vec![0.0, 1.0]), Dtype::F32).unwrap_err();
    assert!(message.contains("a value of 2 numbers: allowed are 1 or as many as channels: 3"), "{message}");
    let message = refused(ErasedValue::Constant(vec![f32::NAN]), Dtype::F32).unwrap_err();
    assert!(message.contains("a value of NaN: allowed are finite numbers"), "{message}");
}
