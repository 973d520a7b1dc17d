//! Stochastic gradient descent with momentum, which can be saved.
//!
//! candle-nn's optimizers do not fit a run that resumes exactly: its SGD has no momentum, and its AdamW has
//! no way to read or set its moments, nor the number of its step.

use std::collections::HashMap;
use std::path::Path;

use candle_core::backprop::GradStore;
use candle_core::{Context as _, Device, Result, Tensor, Var, safetensors};

pub(crate) struct Momentum {
    learning_rate: f64,
    momentum: f64,
    /// Of each variable, the last step, and its name in files.
    steps: Vec<(String, Var, Tensor)>,
}

impl Momentum {
    pub(crate) fn new(vars: Vec<(String, Var)>, learning_rate: f64, momentum: f64) -> Result<Self> {
        let with_step = |(name, var): (String, Var)| {
            let step = var.zeros_like()?;
            Ok((name, var, step))
        };
        let steps = vars.into_iter().map(with_step).collect::<Result<_>>()?;
        Ok(Momentum { learning_rate, momentum, steps })
    }

    /// Descends: the last step, shortened, plus the gradient.
    pub(crate) fn step(&mut self, gradients: &GradStore) -> Result<()> {
        for (_, var, step) in &mut self.steps {
            if let Some(gradient) = gradients.get(var) {
                *step = ((&*step * self.momentum)? + gradient)?.detach();
                var.set(&(var.as_tensor() - (&*step * self.learning_rate)?)?)?;
            }
        }
        Ok(())
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let steps: HashMap<_, _> = self.steps.iter().map(|(name, _, step)| (&**name, step.clone())).collect();
        safetensors::save(&steps, path)
    }

    pub(crate) fn load(&mut self, path: &Path, device: &Device) -> Result<()> {
        let mut saved = safetensors::load(path, device)?;
        for (name, _, step) in &mut self.steps {
            *step = saved.remove(name).with_context(|| format!("no {name} in {}", path.display()))?;
        }
        Ok(())
    }
}
