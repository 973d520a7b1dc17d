//! Gradient descent with momentum, whose state can be saved.
//!
//! tch's own optimisers keep theirs inside libtorch, and have no call that saves or loads it. A run that goes
//! on with a new one has lost its momentum, and takes other steps than the run that was not stopped.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use tch::Tensor;
use tch::nn::VarStore;

const LEARNING_RATE: f64 = 0.05;
const MOMENTUM: f64 = 0.9;

/// For each weight: `velocity = momentum * velocity + gradient`, then `weight -= rate * velocity`.
#[derive(Debug)]
pub(crate) struct Sgd {
    weights: BTreeMap<String, Tensor>,
    velocities: BTreeMap<String, Tensor>,
}

impl Sgd {
    /// At rest.
    pub(crate) fn new(variables: &VarStore) -> Self {
        let weights: BTreeMap<_, _> = variables.variables().into_iter().collect();
        let velocities = weights.iter().map(|(name, weight)| (name.clone(), weight.zeros_like())).collect();
        Sgd { weights, velocities }
    }

    /// One step along the gradient of the loss.
    pub(crate) fn step(&mut self, loss: &Tensor) {
        self.weights.values_mut().for_each(Tensor::zero_grad);
        loss.backward();
        tch::no_grad(|| {
            for (weight, velocity) in self.weights.values_mut().zip(self.velocities.values_mut()) {
                *velocity = &*velocity * MOMENTUM + weight.grad();
                *weight -= &*velocity * LEARNING_RATE;
            }
        });
    }

    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let velocities: Vec<_> = self.velocities.iter().collect();
        Ok(Tensor::save_multi(&velocities, path)?)
    }

    pub(crate) fn load(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut saved: BTreeMap<_, _> = Tensor::load_multi(path)?.into_iter().collect();
        for (name, velocity) in &mut self.velocities {
            *velocity = saved.remove(name).with_context(|| format!("no velocity of {name} was saved"))?;
        }
        Ok(())
    }
}
