//! A small convolutional net for images of 8x8.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{
    BatchNorm, Conv2d, Conv2dConfig, Linear, Module as _, ModuleT, VarBuilder, VarMap, batch_norm,
    conv2d_no_bias,
};

/// How many different digits there are.
const CLASSES: usize = 10;

/// Two convolutions, each normalized over the batch and followed by a rectifier, a maximum over squares of
/// 2x2, and a linear layer.
pub(crate) struct Net {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    linear: Linear,
}

impl Net {
    /// Makes a net, and its weights in `weights`, which the seed determines.
    pub(crate) fn new(weights: &VarMap, seed: u64, device: &Device) -> Result<Self> {
        let vars = VarBuilder::from_varmap(weights, DType::F32, device);
        let same_size = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        // A bias before a normalization would have no effect.
        let net = Net {
            conv1: conv2d_no_bias(1, 16, 3, same_size, vars.pp("conv1"))?,
            norm1: batch_norm(16, 1e-5, vars.pp("norm1"))?,
            conv2: conv2d_no_bias(16, 32, 3, same_size, vars.pp("conv2"))?,
            norm2: batch_norm(32, 1e-5, vars.pp("norm2"))?,
            linear: Linear::new(
                vars.get((CLASSES, 32 * 4 * 4), "linear.weight")?,
                Some(vars.get(CLASSES, "linear.bias")?),
            ),
        };
        initialize(weights, seed)?;
        Ok(net)
    }

    /// Counts the images that the net reads right.
    pub(crate) fn count_correct(&self, images: &Tensor, labels: &Tensor) -> Result<u32> {
        let read = self.forward_t(images, false)?.argmax(1)?.to_dtype(labels.dtype())?;
        read.eq(labels)?.to_dtype(DType::U32)?.sum_all()?.to_scalar()
    }
}

impl ModuleT for Net {
    /// From images (records, 1, 8, 8) to a score for each digit (records, 10).
    fn forward_t(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let edges = self.norm1.forward_t(&self.conv1.forward(images)?, train)?.relu()?;
        let shapes = self.norm2.forward_t(&self.conv2.forward(&edges)?, train)?.relu()?.max_pool2d(2)?;
        self.linear.forward(&shapes.flatten_from(1)?)
    }
}

/// Returns what is trained with its names, in the order of the names: not the running means and variances of
/// the normalizations.
pub(crate) fn trained(weights: &VarMap) -> Vec<(String, Var)> {
    let vars = weights.data().lock().expect("nobody panics while it holds the lock");
    let trained = vars.iter().filter(|(name, _)| !name.contains(".running_"));
    let mut trained: Vec<_> = trained.map(|(name, var)| (name.clone(), var.clone())).collect();
    trained.sort_by(|(one, _), (other, _)| one.cmp(other));
    trained
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
    for (_, var) in trained(weights).iter().filter(|(_, var)| var.rank() > 1) {
        // As PyTorch does. Biases begin at zero, and normalizations as they are.
        let inputs: usize = var.dims().iter().skip(1).product();
        let bound = 1.0 / (inputs as f64).sqrt();
        let drawn: Vec<f64> = (0..var.elem_count()).map(|_| bound * random()).collect();
        var.set(&Tensor::from_vec(drawn, var.shape(), var.device())?.to_dtype(var.dtype())?)?;
    }
    Ok(())
}
