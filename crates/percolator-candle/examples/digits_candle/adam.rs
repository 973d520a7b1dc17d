//! Adam, which can be saved.
//!
//! candle-nn's AdamW does not fit a run that resumes exactly: there is no way to read or set its moments, nor
//! the number of its step.

use std::collections::HashMap;
use std::path::Path;

use candle_core::backprop::GradStore;
use candle_core::{Context as _, Device, Result, Tensor, Var, safetensors};

/// How much of the old moments goes into the new ones: of the mean, and of the mean of the squares.
const DECAY: [f64; 2] = [0.9, 0.999];

/// Added to what is divided by.
const EPSILON: f64 = 1e-8;

pub(crate) struct Adam {
    learning_rate: f64,
    /// How many steps were made.
    steps: u32,
    trained: Vec<Trained>,
}

/// A variable, its name in files, and the running means of its gradient and of the gradient's square.
struct Trained {
    name: String,
    var: Var,
    moments: [Tensor; 2],
}

impl Adam {
    pub(crate) fn new(vars: Vec<(String, Var)>, learning_rate: f64) -> Result<Self> {
        let begin = |(name, var): (String, Var)| {
            let moments = [var.zeros_like()?, var.zeros_like()?];
            Ok(Trained { name, var, moments })
        };
        Ok(Adam { learning_rate, steps: 0, trained: vars.into_iter().map(begin).collect::<Result<_>>()? })
    }

    /// Descends: by the mean of the gradients, divided by their root mean square.
    pub(crate) fn step(&mut self, gradients: &GradStore) -> Result<()> {
        self.steps += 1;
        // The moments begin at zero: they are only this share of the means.
        let [share, share_of_squares] = DECAY.map(|decay| 1.0 - decay.powf(self.steps.into()));
        for Trained { var, moments: [mean, square], .. } in &mut self.trained {
            let Some(gradient) = gradients.get(var) else { continue };
            *mean = follow(mean, gradient, DECAY[0])?;
            *square = follow(square, &gradient.sqr()?, DECAY[1])?;
            let root = ((&*square / share_of_squares)?.sqrt()? + EPSILON)?;
            let step = ((&*mean * (self.learning_rate / share))? / root)?;
            var.set(&(var.as_tensor() - step)?)?;
        }
        Ok(())
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let mut saved = HashMap::from([("steps".to_owned(), Tensor::new(self.steps, &Device::Cpu)?)]);
        for Trained { name, moments: [mean, square], .. } in &self.trained {
            saved.insert(format!("{name}.mean"), mean.clone());
            saved.insert(format!("{name}.square"), square.clone());
        }
        safetensors::save(&saved, path)
    }

    pub(crate) fn load(&mut self, path: &Path, device: &Device) -> Result<()> {
        let mut saved = safetensors::load(path, device)?;
        let mut take =
            |name: &str| saved.remove(name).with_context(|| format!("no {name} in {}", path.display()));
        self.steps = take("steps")?.to_scalar()?;
        for Trained { name, moments, .. } in &mut self.trained {
            *moments = [take(&format!("{name}.mean"))?, take(&format!("{name}.square"))?];
        }
        Ok(())
    }
}

/// Moves a running mean towards a new value.
fn follow(mean: &Tensor, new: &Tensor, decay: f64) -> Result<Tensor> {
    Ok(((mean * decay)? + (new * (1.0 - decay))?)?.detach())
}
