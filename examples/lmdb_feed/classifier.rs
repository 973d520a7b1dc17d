//! Softmax regression: the smallest model that learns to read digits.

use std::iter::zip;

pub(crate) const CLASSES: usize = 10;

/// One row per class: a weight per pixel, and a bias.
pub(crate) struct Classifier {
    pixels: usize,
    weights: Vec<f32>,
}

impl Classifier {
    /// All weights are zero. The loss is convex, so no start is better than another.
    pub(crate) fn new(pixels: usize) -> Self {
        Classifier { pixels, weights: vec![0.0; CLASSES * (pixels + 1)] }
    }

    /// The model that has these weights, row by row.
    #[allow(dead_code, reason = "only some of the examples have weights from elsewhere")]
    pub(crate) fn with_weights(pixels: usize, weights: Vec<f32>) -> Self {
        Classifier { pixels, weights }
    }

    /// One step of gradient descent, along the mean gradient.
    pub(crate) fn descend(&mut self, gradient: &Gradient, learning_rate: f32) {
        let rate = learning_rate / gradient.records;
        for (weight, slope) in zip(&mut self.weights, &gradient.slopes) {
            *weight -= rate * slope;
        }
    }

    /// The number of images that it classifies as labelled.
    pub(crate) fn count_correct(&self, images: &[f32], labels: &[i32]) -> usize {
        let classes = images.chunks_exact(self.pixels).map(|image| self.classify(image));
        zip(classes, labels).filter(|(class, label)| class == *label).count()
    }

    /// Row by row, each with its bias at the end.
    #[allow(dead_code, reason = "only some of the examples compare models")]
    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    fn classify(&self, image: &[f32]) -> i32 {
        let scores = (0..).zip(self.scores(image));
        scores.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(class, _)| class)
    }

    /// `weights * image + bias`, class by class.
    fn scores(&self, image: &[f32]) -> [f32; CLASSES] {
        let mut rows = self.weights.chunks_exact(self.pixels + 1);
        std::array::from_fn(|_| {
            let row = rows.next().expect("there is one row a class");
            zip(row, with_bias(image)).map(|(weight, input)| weight * input).sum()
        })
    }
}

/// The gradient of the loss, weight by weight, summed over records.
pub(crate) struct Gradient {
    pub(crate) slopes: Vec<f32>,
    pub(crate) loss: f32,
    pub(crate) records: f32,
}

impl Gradient {
    pub(crate) fn zero(of: &Classifier) -> Self {
        Gradient { slopes: vec![0.0; of.weights.len()], loss: 0.0, records: 0.0 }
    }

    pub(crate) fn mean_loss(&self) -> f32 {
        self.loss / self.records
    }

    /// Adds a batch. A record's loss is `-ln(probability of its label)`, whose gradient is `(probabilities -
    /// one-hot label) * image`.
    pub(crate) fn add(&mut self, of: &Classifier, images: &[f32], labels: &[i32]) {
        for (image, &label) in zip(images.chunks_exact(of.pixels), labels) {
            let probabilities = softmax(of.scores(image));
            let rows = self.slopes.chunks_exact_mut(of.pixels + 1);
            for (class, (row, probability)) in (0..).zip(zip(rows, probabilities)) {
                let wanted = if class == label { 1.0 } else { 0.0 };
                for (slope, input) in zip(row, with_bias(image)) {
                    *slope += (probability - wanted) * input;
                }
                // The smallest positive number keeps the loss of a hopeless guess finite.
                self.loss -= wanted * probability.max(f32::MIN_POSITIVE).ln();
            }
            self.records += 1.0;
        }
    }
}

/// The bias is the weight of one more input, which is always 1.
fn with_bias(image: &[f32]) -> impl Iterator<Item = &f32> {
    image.iter().chain(&[1.0])
}

/// `exp(score) / sum of exp(scores)`. The greatest score is subtracted first: that changes no quotient, and
/// no `exp` overflows.
fn softmax(scores: [f32; CLASSES]) -> [f32; CLASSES] {
    let greatest = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let exps = scores.map(|score| (score - greatest).exp());
    let sum: f32 = exps.iter().sum();
    exps.map(|exp| exp / sum)
}
