//! A training loop by hand, which can stop and resume within an epoch.

use std::path::Path;
use std::time::Instant;

use burn::module::Module as _;
use burn::optim::{AdamConfig, ModuleOptimizer};
use burn::store::ModuleRecord;
use burn::tensor::Device;
use burn::train::TrainStep as _;
use percolator::{Feed, Snapshot};
use percolator_burn::BurnFeed as _;

use crate::learning::LEARNING_RATE;
use crate::net::{DigitBatch, Net};
use crate::{Data, Options, say};

/// How often the loop sees each digit.
const EPOCHS: u64 = 3;

/// Trains without a stop. Returns the loss of each batch.
pub(crate) fn train(data: &Data, options: &Options) -> anyhow::Result<Vec<f64>> {
    let mut run = Run::new(options);
    run.steps(&mut data.train.clone().epochs(EPOCHS).build()?, usize::MAX)?;
    Ok(run.losses)
}

/// Trains up to the middle of the second epoch, saves everything, and goes on with what was saved. Returns
/// the losses before and after that.
pub(crate) fn train_stopped(
    data: &Data,
    options: &Options,
    folder: &Path,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let file = |name| folder.join(name);
    let feed = data.train.clone().epochs(EPOCHS);

    let mut stopped = Run::new(options);
    let mut running = feed.clone().build()?;
    let in_epoch = usize::try_from(running.plan().map_or(Ok(0), |plan| plan.steps(0))?)?;
    stopped.steps(&mut running, in_epoch + in_epoch / 2)?;
    running.snapshot()?.save(file("feed.snapshot"))?;
    stopped.net.into_record().save(file("net.bpk"))?;
    stopped.optimiser.save(file("optimiser.bpk"))?;

    // Only the losses of the first run are still used. The weights are drawn otherwise, to be loaded.
    let mut resumed = Run::new(&Options { seed: options.seed.wrapping_add(1), ..*options });
    resumed.net = resumed.net.load_record(ModuleRecord::load(file("net.bpk"))?);
    resumed.optimiser = resumed.optimiser.load(file("optimiser.bpk"))?;
    let snapshot = Snapshot::load(file("feed.snapshot"))?;
    resumed.steps(&mut feed.resume(&snapshot).build()?, usize::MAX)?;
    Ok((stopped.losses, resumed.losses))
}

/// A training under way.
struct Run {
    net: Net,
    optimiser: ModuleOptimizer,
    losses: Vec<f64>,
}

impl Run {
    fn new(options: &Options) -> Self {
        Run { net: Net::new(options.seed), optimiser: AdamConfig::new().init(), losses: Vec::new() }
    }

    /// Trains on the next steps of a feed, `count` at most.
    fn steps(&mut self, feed: &mut Feed, count: usize) -> anyhow::Result<()> {
        let device = Device::flex().autodiff();
        let (mut begin, mut records, mut first) = (Instant::now(), 0, self.losses.len());
        // A run that was stopped within an epoch has only the rest of it.
        let mut what = "the rest of epoch";
        for step in feed.tensors(&device)?.take(count) {
            let step = step?;
            let trained = self.net.step(DigitBatch::of(&step)?);
            self.net = self.optimiser.step(LEARNING_RATE, self.net.clone(), trained.grads);
            self.losses.push(trained.item.loss.into_scalar::<f32>().into());
            records += step.len();
            if step.step().is_some_and(|end| end.step == 0) {
                what = "epoch";
            }
            if let Some(end) = step.step().filter(|end| end.is_last) {
                let losses = &self.losses[first..];
                let loss = losses.iter().sum::<f64>() / losses.len() as f64;
                let rate = records as f64 / begin.elapsed().as_secs_f64();
                say(format_args!("  {what} {}: loss {loss:.4}, {rate:.0} records/s", end.epoch + 1))?;
                (begin, records, first) = (Instant::now(), 0, self.losses.len());
            }
        }
        Ok(())
    }
}
