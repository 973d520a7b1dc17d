//! Training with burn's `Learner`.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use burn::lr_scheduler::constant::ConstantLr;
use burn::optim::AdamConfig;
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Learner, SupervisedTraining};

use crate::lines::Lines;
use crate::net::{Net, loader};
use crate::{Data, Options};

pub(crate) const LEARNING_RATE: f64 = 0.003;

/// What came of a training.
pub(crate) struct Learned {
    pub(crate) net: Net,
    /// The loss of each batch.
    pub(crate) losses: Vec<f64>,
}

/// Trains until `epochs` are done. If the first of them are, goes on from the checkpoint in the folder.
pub(crate) fn train(
    data: &Data,
    folder: &Path,
    options: &Options,
    done: u64,
    epochs: u64,
) -> anyhow::Result<Learned> {
    let (done, epochs) = (usize::try_from(done)?, usize::try_from(epochs)?);
    // The loader begins where the learner does.
    let train = Arc::new(loader(&data.train)?.checkpoint(done));
    let test = Arc::new(loader(&data.test)?);
    let lines = Lines::default();
    let mut training = SupervisedTraining::new(folder, train, test)
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .renderer(Box::new(lines.clone()))
        .with_default_checkpointers()
        .with_checkpointing_strategy(KeepLastNCheckpoints::new(1))
        .num_epochs(epochs);
    if done > 0 {
        training = training.checkpoint(done);
    }
    let optimiser = AdamConfig::new().init();
    let result =
        training.launch(Learner::new(Net::new(options.seed), optimiser, ConstantLr::new(LEARNING_RATE)));
    if let Some(error) = result.error {
        bail!("{error}");
    }
    Ok(Learned { net: result.model, losses: lines.into_losses()? })
}
