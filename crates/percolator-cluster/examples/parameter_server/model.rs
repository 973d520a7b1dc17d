//! The model: a convolution of 3x3, and a dense layer, which read digits of 8x8.
//!
//! All its weights are one row of numbers, which the servers cut into shards: the filters, a bias for each,
//! the dense layer class by class, and a bias for each class.

#![deny(clippy::arithmetic_side_effects)]

use std::iter::zip;

use crate::random::Random;

pub(crate) const CLASSES: usize = 10;
/// The height and width of an image.
pub(crate) const SIDE: usize = 8;
pub(crate) const IMAGE: usize = SIDE * SIDE;
const FILTERS: usize = 32;
/// The height and width of a filter, and how many numbers it has.
const REACH: usize = 3;
const FILTER: usize = REACH * REACH;
/// The height and width of what a filter makes of an image.
const MAP: usize = SIDE - REACH + 1;
const FEATURES: usize = FILTERS * MAP * MAP;

/// How many numbers the model has.
pub(crate) const WEIGHTS: usize = FILTERS * FILTER + FILTERS + CLASSES * FEATURES + CLASSES;

/// The weights of each layer.
struct Layers<'a> {
    filters: &'a [f32],
    filter_biases: &'a [f32],
    dense: &'a [f32],
    dense_biases: &'a [f32],
}

impl<'a> Layers<'a> {
    fn of(weights: &'a [f32]) -> Self {
        let (filters, rest) = weights.split_at(FILTERS * FILTER);
        let (filter_biases, rest) = rest.split_at(FILTERS);
        let (dense, dense_biases) = rest.split_at(CLASSES * FEATURES);
        Layers { filters, filter_biases, dense, dense_biases }
    }
}

/// The weights at the beginning: the same in every process. The biases are 0.
pub(crate) fn initial(seed: u64) -> Vec<f32> {
    let mut weights = vec![0.0; WEIGHTS];
    let mut random = Random::new(seed);
    let (filters, rest) = weights.split_at_mut(FILTERS * FILTER);
    let (_, rest) = rest.split_at_mut(FILTERS);
    let (dense, _) = rest.split_at_mut(CLASSES * FEATURES);
    // He's and LeCun's bounds: what a layer makes of numbers is about as large as they are.
    for (layer, bound) in [(filters, (6.0 / 9.0_f32).sqrt()), (dense, (3.0 / 1152.0_f32).sqrt())] {
        layer.iter_mut().for_each(|weight| *weight = bound * random.between_minus_one_and_one());
    }
    weights
}

/// The pixels that a filter sees at a place of its map.
fn window(image: &[f32], row: usize, column: usize) -> [f32; FILTER] {
    std::array::from_fn(|at| {
        let (down, right) = (at / REACH, at % REACH);
        // `row` and `column` are less than MAP.
        image[row.wrapping_add(down).wrapping_mul(SIDE).wrapping_add(column).wrapping_add(right)]
    })
}

/// What the filters make of an image: a map each, and nothing below 0.
fn features(layers: &Layers<'_>, image: &[f32]) -> Vec<f32> {
    let windows: [[f32; FILTER]; MAP * MAP] =
        std::array::from_fn(|place| window(image, place / MAP, place % MAP));
    let filters = zip(layers.filters.chunks_exact(FILTER), layers.filter_biases);
    filters
        .flat_map(|(filter, bias)| windows.iter().map(move |window| (dot(filter, window) + bias).max(0.0)))
        .collect()
}

fn scores(layers: &Layers<'_>, features: &[f32]) -> [f32; CLASSES] {
    let mut rows = zip(layers.dense.chunks_exact(FEATURES), layers.dense_biases);
    std::array::from_fn(|_| {
        let (row, bias) = rows.next().expect("there is one row a class");
        dot(row, features) + bias
    })
}

/// Eight sums side by side: additions of floats keep their order, so each would wait for the one before it.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let (mut sums, (ones, others)) = ([0.0_f32; 8], (one.chunks_exact(8), other.chunks_exact(8)));
    let rest: f32 = zip(ones.remainder(), others.remainder()).map(|(one, other)| one * other).sum();
    for (ones, others) in zip(ones, others) {
        zip(&mut sums, zip(ones, others)).for_each(|(sum, (one, other))| *sum += one * other);
    }
    sums.iter().sum::<f32>() + rest
}

/// `exp(score) / sum of exp(scores)`. The greatest score is subtracted first, so that no `exp` overflows.
fn softmax(scores: [f32; CLASSES]) -> [f32; CLASSES] {
    let greatest = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let exps = scores.map(|score| (score - greatest).exp());
    let sum: f32 = exps.iter().sum();
    exps.map(|exp| exp / sum)
}

/// The number of images that these weights classify as labelled.
pub(crate) fn count_correct(weights: &[f32], images: &[f32], labels: &[i32]) -> usize {
    let layers = Layers::of(weights);
    let classify = |image| {
        let scores = (0..).zip(scores(&layers, &features(&layers, image)));
        scores.max_by(|one: &(i32, f32), other| one.1.total_cmp(&other.1)).map_or(-1, |(class, _)| class)
    };
    zip(images.chunks_exact(IMAGE), labels).filter(|&(image, &label)| classify(image) == label).count()
}

/// The mean gradient of the loss `-ln(probability of the label)` over some images, weight by weight.
pub(crate) fn gradient(weights: &[f32], images: &[f32], labels: &[i32]) -> Vec<f32> {
    let layers = Layers::of(weights);
    let mut slopes = vec![0.0; WEIGHTS];
    for (image, &label) in zip(images.chunks_exact(IMAGE), labels) {
        add_gradient(&layers, image, label, &mut slopes);
    }
    #[expect(clippy::cast_precision_loss, reason = "a batch has few records")]
    let records = labels.len().max(1) as f32;
    slopes.iter_mut().for_each(|slope| *slope /= records);
    slopes
}

fn add_gradient(layers: &Layers<'_>, image: &[f32], label: i32, slopes: &mut [f32]) {
    let features = features(layers, image);
    let mut errors = softmax(scores(layers, &features));
    for (class, error) in (0..).zip(&mut errors) {
        *error -= if class == label { 1.0 } else { 0.0 };
    }
    let (filter_slopes, rest) = slopes.split_at_mut(FILTERS * FILTER);
    let (filter_bias_slopes, rest) = rest.split_at_mut(FILTERS);
    let (dense_slopes, dense_bias_slopes) = rest.split_at_mut(CLASSES * FEATURES);
    let mut upstream = vec![0.0_f32; FEATURES];
    let rows = zip(layers.dense.chunks_exact(FEATURES), dense_slopes.chunks_exact_mut(FEATURES));
    for ((row, row_slopes), (error, bias_slope)) in zip(rows, zip(&errors, dense_bias_slopes)) {
        *bias_slope += error;
        for ((slope, feature), (upstream, weight)) in zip(zip(row_slopes, &features), zip(&mut upstream, row))
        {
            *slope += error * feature;
            *upstream += error * weight;
        }
    }
    // Where a feature is 0, nothing that a filter does changes it.
    zip(&mut upstream, &features).for_each(|(upstream, &feature)| {
        *upstream = if feature > 0.0 { *upstream } else { 0.0 };
    });
    let filters = zip(filter_slopes.chunks_exact_mut(FILTER), filter_bias_slopes);
    for ((filter, bias), map) in zip(filters, upstream.chunks_exact(MAP * MAP)) {
        for (place, &error) in map.iter().enumerate().filter(|(_, error)| **error != 0.0) {
            *bias += error;
            zip(&mut *filter, window(image, place / MAP, place % MAP)).for_each(|(slope, pixel)| {
                *slope += error * pixel;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(weights: &[f32], images: &[f32], labels: &[i32]) -> f64 {
        let layers = Layers::of(weights);
        let losses = zip(images.chunks_exact(IMAGE), labels).map(|(image, &label)| {
            let chances = softmax(scores(&layers, &features(&layers, image)));
            -f64::from(chances[usize::try_from(label).unwrap()]).ln()
        });
        losses.sum::<f64>() / f64::from(u16::try_from(labels.len()).unwrap())
    }

    /// The naive twin of a gradient: how the loss changes with each weight.
    #[test]
    fn a_gradient_is_the_slope_of_the_loss() {
        let weights = initial(5);
        let mut random = Random::new(6);
        let images: Vec<_> = (0..3 * IMAGE).map(|_| random.between_minus_one_and_one().abs()).collect();
        let labels = [3, 0, 9];
        let slopes = gradient(&weights, &images, &labels);
        assert_eq!(slopes.len(), WEIGHTS);
        for at in (0..WEIGHTS).step_by(97).chain([0, 288, 319, 320, WEIGHTS - 10, WEIGHTS - 1]) {
            // A longer one would cross the edges of features, which are 0 below one.
            const STEP: f32 = 1e-3;
            let moved = |by: f32| {
                let mut weights = weights.clone();
                weights[at] += by;
                loss(&weights, &images, &labels)
            };
            let measured = (moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP);
            let found = f64::from(slopes[at]);
            assert!((found - measured).abs() < 2e-3, "weight {at}: {found}, measured {measured}");
        }
    }

    #[test]
    fn all_begin_with_the_same_weights() {
        assert_eq!(initial(1), initial(1));
        assert_ne!(initial(1), initial(2));
        assert_eq!(initial(1).len(), WEIGHTS);
        assert!(initial(1)[..FILTERS * FILTER].iter().all(|weight| *weight != 0.0));
    }

    #[test]
    fn a_descent_along_gradients_learns_its_images() {
        let mut weights = initial(7);
        let mut random = Random::new(8);
        let images: Vec<_> = (0..10 * IMAGE).map(|_| random.between_minus_one_and_one().abs()).collect();
        let labels: Vec<i32> = (0..10).collect();
        for _ in 0..300 {
            let slopes = gradient(&weights, &images, &labels);
            zip(&mut weights, slopes).for_each(|(weight, slope)| *weight -= 0.2 * slope);
        }
        assert_eq!(count_correct(&weights, &images, &labels), 10);
    }
}
