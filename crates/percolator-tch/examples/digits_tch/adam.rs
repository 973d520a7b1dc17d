//! Adam, whose state can be saved.
//!
//! tch's own optimizers keep theirs inside libtorch, and have no call that saves or loads it. A run that goes
//! on with a new one has lost its moments, and takes other steps than the run that was not stopped.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context as _;
use tch::Tensor;
use tch::nn::VarStore;

const LEARNING_RATE: f64 = 2e-3;
const MEAN_DECAY: f64 = 0.9;
const SQUARE_DECAY: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// Adam as PyTorch has it, with PyTorch's defaults but for the learning rate.
#[derive(Debug)]
pub(crate) struct Adam {
    /// How many steps were taken.
    steps: i32,
    weights: Vec<Weight>,
}

#[derive(Debug)]
struct Weight {
    name: String,
    value: Tensor,
    /// The moving average of its gradient.
    mean: Tensor,
    /// The moving average of its gradient's square.
    square: Tensor,
}

impl Adam {
    /// For the variables that are trained. The others are the averages of the batch normalizations.
    pub(crate) fn new(variables: &VarStore) -> Self {
        let trained = variables.variables().into_iter().filter(|(_, value)| value.requires_grad());
        let at_rest = |(name, value): (String, Tensor)| {
            let (mean, square) = (value.zeros_like(), value.zeros_like());
            Weight { name, value, mean, square }
        };
        Adam { steps: 0, weights: trained.map(at_rest).collect() }
    }

    /// One step down the gradient of the loss.
    pub(crate) fn step(&mut self, loss: &Tensor) {
        self.weights.iter_mut().for_each(|weight| weight.value.zero_grad());
        loss.backward();
        self.steps += 1;
        // The averages start at zero, and have come this part of the way to what they average.
        let part = |decay: f64| 1.0 - decay.powi(self.steps);
        let (mean_part, square_part) = (part(MEAN_DECAY), part(SQUARE_DECAY));
        tch::no_grad(|| {
            for Weight { value, mean, square, .. } in &mut self.weights {
                let gradient = value.grad();
                *mean = &*mean * MEAN_DECAY + &gradient * (1.0 - MEAN_DECAY);
                *square = &*square * SQUARE_DECAY + gradient.square() * (1.0 - SQUARE_DECAY);
                let scale = (&*square / square_part).sqrt() + EPSILON;
                *value -= &*mean / mean_part / scale * LEARNING_RATE;
            }
        });
    }

    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut tensors = vec![("steps".to_owned(), Tensor::from(self.steps))];
        for Weight { name, mean, square, .. } in &self.weights {
            tensors.push((format!("{name}.mean"), mean.shallow_clone()));
            tensors.push((format!("{name}.square"), square.shallow_clone()));
        }
        Ok(Tensor::save_multi(&tensors, path)?)
    }

    pub(crate) fn load(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut saved: HashMap<_, _> = Tensor::load_multi(path)?.into_iter().collect();
        let mut take = |name: &str| saved.remove(name).with_context(|| format!("no {name} was saved"));
        self.steps = i32::try_from(take("steps")?)?;
        for Weight { name, mean, square, .. } in &mut self.weights {
            *mean = take(&format!("{name}.mean"))?;
            *square = take(&format!("{name}.square"))?;
        }
        Ok(())
    }
}
