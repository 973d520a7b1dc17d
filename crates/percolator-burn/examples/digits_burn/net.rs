//! The net: what it computes, and what it makes of a batch.

use burn::data::dataloader::DataLoader as _;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use percolator::FeedBuilder;
use percolator_burn::{BurnError, FeedLoader, Tensors};

use crate::Data;

/// Two convolutions, and a linear layer.
#[derive(Module, Debug)]
pub(crate) struct Net {
    first: Conv2d,
    second: Conv2d,
    pool: MaxPool2d,
    linear: Linear,
}

/// A batch, as the net takes it.
pub(crate) struct DigitBatch {
    images: Tensor<4>,
    labels: Tensor<1, Int>,
}

impl DigitBatch {
    pub(crate) fn of(batch: &Tensors) -> Result<Self, BurnError> {
        Ok(DigitBatch { images: batch.get("data")?, labels: batch.get_int("label")? })
    }
}

/// A feed of digits as burn's data loader.
pub(crate) fn loader(feed: &FeedBuilder) -> Result<FeedLoader<DigitBatch>, BurnError> {
    FeedLoader::new(feed.clone(), &Device::flex(), |batch| DigitBatch::of(&batch))
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        let device = Device::flex().autodiff();
        device.seed(seed);
        let convolution = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(&device)
        };
        Net {
            first: convolution([1, 16]),
            second: convolution([16, 32]),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            linear: LinearConfig::new(32 * 4 * 4, 10).init(&device),
        }
    }

    /// What the net makes of images of 8x8: a score for each of the ten digits.
    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        let hidden = relu(self.first.forward(images));
        let hidden = self.pool.forward(relu(self.second.forward(hidden)));
        self.linear.forward(hidden.flatten(1, 3))
    }

    pub(crate) fn forward(&self, batch: DigitBatch) -> ClassificationOutput {
        let scores = self.scores(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&scores.device());
        let loss = loss.forward(scores.clone(), batch.labels.clone());
        ClassificationOutput::new(loss, scores, batch.labels)
    }
}

impl TrainStep for Net {
    type Input = DigitBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: DigitBatch) -> TrainOutput<ClassificationOutput> {
        let output = self.forward(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Net {
    type Input = DigitBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: DigitBatch) -> ClassificationOutput {
        self.forward(batch)
    }
}

/// The share of the test digits that a net reads, in percent: each is asked for once.
pub(crate) fn accuracy(net: &Net, data: &Data) -> anyhow::Result<f64> {
    let (mut right, mut digits) = (0_i64, 0_usize);
    for batch in loader(&data.test)?.iter() {
        let DigitBatch { images, labels } = batch?;
        digits += labels.dims()[0];
        let read = net.scores(images).argmax(1).squeeze_dim::<1>(1);
        right += read.equal(labels).int().sum().into_scalar::<i64>();
    }
    Ok(100.0 * right as f64 / digits as f64)
}
