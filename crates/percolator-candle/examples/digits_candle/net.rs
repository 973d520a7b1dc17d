//! A small convolutional net for images of 8x8.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, VarBuilder, VarMap, conv2d, linear};

/// How many different digits there are.
const CLASSES: usize = 10;

/// Two convolutions, each followed by a rectifier, a maximum over squares of 2x2, and a linear layer.
pub(crate) struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    linear: Linear,
}

impl Net {
    /// Makes a net, and its weights in `weights`, which the seed determines.
    pub(crate) fn new(weights: &VarMap, seed: u64, device: &Device) -> Result<Self> {
        let vars = VarBuilder::from_varmap(weights, DType::F32, device);
        let same_size = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        let net = Net {
            conv1: conv2d(1, 16, 3, same_size, vars.pp("conv1"))?,
            conv2: conv2d(16, 32, 3, same_size, vars.pp("conv2"))?,
            linear: linear(32 * 4 * 4, CLASSES, vars.pp("linear"))?,
        };
        initialize(weights, seed)?;
        Ok(net)
    }

    /// Counts the images that the net reads right.
    pub(crate) fn count_correct(&self, images: &Tensor, labels: &Tensor) -> Result<u32> {
        let read = self.forward(images)?.argmax(1)?.to_dtype(labels.dtype())?;
        read.eq(labels)?.to_dtype(DType::U32)?.sum_all()?.to_scalar()
    }
}

impl Module for Net {
    /// From images (records, 1, 8, 8) to a score for each digit (records, 10).
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let edges = self.conv1.forward(images)?.relu()?;
        let shapes = self.conv2.forward(&edges)?.relu()?.max_pool2d(2)?;
        self.linear.forward(&shapes.flatten_from(1)?)
    }
}

/// Returns the weights with their names, in the order of the names.
pub(crate) fn named(weights: &VarMap) -> Vec<(String, Var)> {
    let vars = weights.data().lock().expect("nobody panics while it holds the lock");
    let mut named: Vec<_> = vars.iter().map(|(name, var)| (name.clone(), var.clone())).collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    named
}

/// Draws the weights again, from a seed: on the CPU, candle's own numbers cannot be seeded.
fn initialize(weights: &VarMap, seed: u64) -> Result<()> {
    let mut state = seed;
    // SplitMix64, as a number between -1 and 1.
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = u32::try_from((mixed ^ (mixed >> 31)) >> 40).expect("24 bits are left");
        f64::from(bits) / f64::from(1 << 23) - 1.0
    };
    for (_, var) in named(weights) {
        // As He and others advise: each output then varies as much as the inputs. Biases begin at zero.
        let inputs: usize = var.dims().iter().skip(1).product();
        let bound = if var.rank() == 1 { 0.0 } else { (6.0 / inputs as f64).sqrt() };
        let drawn: Vec<f64> = (0..var.elem_count()).map(|_| bound * random()).collect();
        var.set(&Tensor::from_vec(drawn, var.shape(), var.device())?.to_dtype(var.dtype())?)?;
    }
    Ok(())
}
