//! A small convolutional net.
//!
//! Its first weights are spread as PyTorch spreads them in Python. tch starts its layers otherwise, and they
//! learn less from so few digits.

use tch::nn::{self, BatchNormConfig, ConvConfig, Init, LinearConfig, ModuleT as _, Path, VarStore};
use tch::{Device, Kind, Tensor};

const CLASSES: i64 = 10;

/// Two convolutions, each with a batch normalization, and a linear layer, for images of 1x8x8.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) variables: VarStore,
    layers: nn::SequentialT,
}

impl Net {
    /// The first weights depend on torch's seed.
    pub(crate) fn new(device: Device) -> Self {
        let variables = VarStore::new(device);
        let root = variables.root();
        let layers = nn::seq_t()
            .add(convolution(&root / "first", 1, 32))
            .add(normalization(&root / "first_norm", 32))
            .add_fn(Tensor::relu)
            .add(convolution(&root / "second", 32, 64))
            .add(normalization(&root / "second_norm", 64))
            .add_fn(|images| images.relu().max_pool2d_default(2).flat_view())
            .add(linear(&root / "scores", 64 * 4 * 4, CLASSES));
        Net { variables, layers }
    }

    /// The mean loss of a batch that is trained on: `images` are f32, `labels` i64.
    pub(crate) fn loss(&self, images: &Tensor, labels: &Tensor) -> Tensor {
        self.layers.forward_t(images, true).cross_entropy_for_logits(labels)
    }

    /// How many images are classified as labelled.
    pub(crate) fn count_right(&self, images: &Tensor, labels: &Tensor) -> i64 {
        let classes = tch::no_grad(|| self.layers.forward_t(images, false)).argmax(-1, false);
        classes.eq_tensor(labels).sum(Kind::Int64).int64_value(&[])
    }
}

/// It looks at 3x3 pixels, and leaves the size of the image.
fn convolution(path: Path<'_>, inputs: i32, outputs: i64) -> nn::Conv2D {
    let init = spread(inputs * 3 * 3);
    let config = ConvConfig { padding: 1, ws_init: init, bs_init: init, ..ConvConfig::default() };
    nn::conv2d(path, inputs.into(), outputs, 3, config)
}

fn normalization(path: Path<'_>, channels: i64) -> nn::BatchNorm {
    let config = BatchNormConfig { ws_init: Init::Const(1.0), ..BatchNormConfig::default() };
    nn::batch_norm2d(path, channels, config)
}

fn linear(path: Path<'_>, inputs: i32, outputs: i64) -> nn::Linear {
    let init = spread(inputs);
    let config = LinearConfig { ws_init: init, bs_init: Some(init), bias: true };
    nn::linear(path, inputs.into(), outputs, config)
}

/// How PyTorch spreads the first weights and biases of a layer whose outputs have this many inputs.
fn spread(inputs: i32) -> Init {
    let bound = f64::from(inputs).sqrt().recip();
    Init::Uniform { lo: -bound, up: bound }
}
