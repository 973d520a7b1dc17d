//! A small convolutional net.

use tch::nn::{self, ConvConfig, Module as _, VarStore};
use tch::{Device, Kind, Tensor};

const CLASSES: i64 = 10;

/// Two convolutions and a linear layer, for images of 1x8x8.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) variables: VarStore,
    layers: nn::Sequential,
}

impl Net {
    /// The first weights depend on torch's seed.
    pub(crate) fn new(device: Device) -> Self {
        let variables = VarStore::new(device);
        let root = variables.root();
        let same_size = ConvConfig { padding: 1, ..ConvConfig::default() };
        let layers = nn::seq()
            .add(nn::conv2d(&root / "first", 1, 16, 3, same_size))
            .add_fn(Tensor::relu)
            .add(nn::conv2d(&root / "second", 16, 32, 3, same_size))
            .add_fn(|images| images.relu().max_pool2d_default(2).flat_view())
            .add(nn::linear(&root / "scores", 32 * 4 * 4, CLASSES, nn::LinearConfig::default()));
        Net { variables, layers }
    }

    /// The mean loss of a batch: `images` are f32, `labels` i64.
    pub(crate) fn loss(&self, images: &Tensor, labels: &Tensor) -> Tensor {
        self.layers.forward(images).cross_entropy_for_logits(labels)
    }

    /// How many images are classified as labelled.
    pub(crate) fn count_right(&self, images: &Tensor, labels: &Tensor) -> i64 {
        let classes = tch::no_grad(|| self.layers.forward(images)).argmax(-1, false);
        classes.eq_tensor(labels).sum(Kind::Int64).int64_value(&[])
    }
}
