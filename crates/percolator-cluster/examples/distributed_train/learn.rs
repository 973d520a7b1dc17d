//! What every process of the job does, however they agree, and the same in one process.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use percolator::source::IndexPlace;
use percolator::{Device, Epochs, Feed, FeedBuilder, Shuffle, Transform};
use percolator_distribute::{
    Collective, DistributedStep, HostValue, InputOptions, InputWorkers, Process, ReduceOp, distribute,
};

use crate::classifier::{Classifier, Gradient};
use crate::digits::Digits;

/// The processes of the job. Each feeds one device.
pub(crate) const PROCESSES: usize = 4;

/// The records of a step, of all processes together. 1437 digits are 12 steps of an epoch, and the last one
/// has 29 records: three processes get 8 of them, and one gets 5.
const GLOBAL_BATCH: usize = 128;

/// The length of a step, as a factor of the mean gradient.
const LEARNING_RATE: f32 = 1.0;

/// The numbers of a gradient, which processes that train together add.
impl HostValue for Gradient {
    fn numbers(&self) -> Vec<f64> {
        self.slopes.iter().chain(&[self.loss, self.records]).copied().map(f64::from).collect()
    }

    fn from_numbers(numbers: Vec<f64>) -> Self {
        let mut slopes = Vec::<f32>::from_numbers(numbers);
        let records = slopes.pop().unwrap_or_default();
        Gradient { loss: slopes.pop().unwrap_or_default(), slopes, records }
    }
}

/// What was learned.
pub(crate) struct Learned {
    classifier: Classifier,
    steps: u64,
    loss: f32,
    /// How many records each replica had in the last step.
    last_step: Vec<u64>,
}

/// Writes the digits to learn from and those to test with.
pub(crate) fn write_data(folder: &Path) -> anyhow::Result<()> {
    Digits::train()?.write_lmdb(&folder.join("train_lmdb")).context("cannot write the training database")?;
    Digits::test()?.write_lmdb(&folder.join("test_lmdb")).context("cannot write the test database")
}

/// One process of the job: learns together with the others, and checks that all have learned the same.
pub(crate) fn in_a_process(
    data: &Path,
    epochs: u64,
    collective: &Arc<dyn Collective>,
) -> anyhow::Result<Learned> {
    let (rank, processes) = (collective.rank(), collective.size());
    let process = Process { rank, processes, local_rank: None, local_processes: None };
    let workers = InputWorkers::of_process(&process, [Device::host(rank)])?.collective(collective.clone());
    let learned = learn(data, epochs, &workers)?;
    let mine = learned.bits();
    for (other, weights) in collective.all_gather(&mine)?.chunks(mine.len()).enumerate() {
        ensure!(weights == mine, "process {rank} and process {other} have learned different weights");
    }
    Ok(learned)
}

/// The same in one process, with a lane for each device.
pub(crate) fn in_one_process(data: &Path, epochs: u64) -> anyhow::Result<Learned> {
    learn(data, epochs, &InputWorkers::alone((0..PROCESSES).map(Device::host))?)
}

/// Compares what two have learned, bit for bit, and says how well that reads digits.
pub(crate) fn compare(data: &Path, together: &Learned, alone: &Learned) -> anyhow::Result<String> {
    let steps = (together.steps, alone.steps);
    ensure!(steps.0 == steps.1, "there were {} steps in many processes, and {} in one", steps.0, steps.1);
    let pairs = together.bits().into_iter().zip(alone.bits());
    let differing = pairs.filter(|(here, there)| here != there).count();
    let weights = together.bits().len();
    ensure!(differing == 0, "{differing} of {weights} weights differ from those of one process");
    let (correct, records) = test(data, &together.classifier)?;
    Ok(format!(
        "{} steps, the last one of {:?} records; loss {:.4}; {correct} of {records} digits read right\n\
         all {weights} weights of {PROCESSES} processes are, bit for bit, those of one process with \
         {PROCESSES} lanes",
        together.steps, together.last_step, together.loss
    ))
}

/// The lines to copy: a step has a batch of each device of this process. Gradients are added over the devices
/// of all processes, always in the same order, so all take the same step.
fn learn(data: &Path, epochs: u64, workers: &InputWorkers) -> anyhow::Result<Learned> {
    let records = feed(&data.join("train_lmdb")).shuffle(Shuffle::Global).seed(1701).epochs(epochs);
    let job = distribute(records, GLOBAL_BATCH, workers, InputOptions::new())?;
    let (_, first) = job.feeds().next().context("this process has no feed")?;
    let classifier = Classifier::new(first.batch_shape().record_elements());
    let mut learned = Learned { classifier, steps: 0, loss: f32::NAN, last_step: Vec::new() };
    for step in job {
        let DistributedStep { batches, weights, .. } = step?;
        let mut failed = None;
        let gradients = batches.map(|batch| {
            let mut gradient = Gradient::zero(&learned.classifier);
            match batch.pixels().and_then(|pixels| Ok((pixels, batch.labels()?))) {
                Ok((pixels, labels)) => gradient.add(&learned.classifier, pixels, labels),
                Err(error) => failed = Some(error),
            }
            gradient
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        let gradient = weights.reduce(ReduceOp::Sum, &gradients)?;
        learned.classifier.descend(&gradient, LEARNING_RATE);
        learned.steps += 1;
        learned.loss = gradient.mean_loss();
        learned.last_step = weights.counts().to_vec();
    }
    Ok(learned)
}

fn feed(lmdb: &Path) -> FeedBuilder {
    Feed::builder()
        .lmdb(lmdb)
        .index(IndexPlace::Memory)
        .transform(Transform::new().scale(1.0 / 256.0))
        .threads(1)
}

/// The number of digits that are read right, and of all.
fn test(data: &Path, classifier: &Classifier) -> anyhow::Result<(usize, usize)> {
    let mut feed = feed(&data.join("test_lmdb")).batch_size(64).epochs(Epochs::OnePass).build()?;
    let (mut correct, mut records) = (0, 0);
    for step in feed.steps() {
        for batch in step? {
            correct += classifier.count_correct(batch.pixels()?, batch.labels()?);
            records += batch.len();
        }
    }
    Ok((correct, records))
}

impl Learned {
    /// The bits of its weights, as a collective takes them.
    fn bits(&self) -> Vec<u64> {
        self.classifier.weights().iter().map(|weight| weight.to_bits().into()).collect()
    }
}
