//! What Caffe's solver does with a net, for the one model that is trained here: softmax regression.
//!
//! Two ranks train together, as two GPUs do under Caffe: each has a batch of its own every iteration, and the
//! step is the mean over both. The test net is one rank's, and it sees every record once.

use anyhow::ensure;
use percolator::batch::ImageShape;
use percolator::transform::CaffeEra;
use percolator::{Batch, Device, Epochs, FeedBuilder, Seed, Stats};

use crate::classifier::{CLASSES, Classifier, Gradient};
use crate::report;

/// About how often the test net runs.
const TESTS: u64 = 10;

/// The problem to solve.
pub(crate) struct Solver {
    /// The feed of the net's TRAIN layer.
    pub(crate) train: FeedBuilder,
    /// The feed of its TEST layer, if it has one.
    pub(crate) test: Option<FeedBuilder>,
    pub(crate) iterations: u32,
    pub(crate) base_lr: f32,
    pub(crate) seed: u32,
}

/// The data do not suit this model.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotForTheModel(pub(crate) String);

impl Solver {
    /// The feed of both ranks. Rank `i` draws its crops and mirroring from `seed + i`, as Caffe's does.
    pub(crate) fn train_feed(&self) -> FeedBuilder {
        let ranks = [Device::host(0), Device::host(1)];
        self.train.clone().devices(ranks).seed(Seed::Caffe { seed: self.seed, era: CaffeEra::Today })
    }

    /// Trains, and tests before the first iteration, after every few passes over the records, and at the end.
    pub(crate) fn solve(&self) -> anyhow::Result<Stats> {
        let mut feed = self.train_feed().build()?;
        let (shape, records) = (feed.batch_shape(), feed.records());
        let counted = records.map_or_else(String::new, |records| format!("{records} records, "));
        report::say(format_args!("TRAIN: {counted}batches of {shape}, one for each of 2 ranks"))?;
        // If the number of records is unknown, one iteration counts as a pass.
        let pass = records.map_or(1, |records| records.div_ceil(2 * shape.records as u64));
        let interval = pass * u64::from(self.iterations).div_ceil(pass * TESTS);

        let mut classifier = Classifier::new(shape.record_elements());
        let mut loss = None;
        let progress = report::progress(Some(self.iterations.into()), "iterations");
        for (iteration, step) in (0..self.iterations).zip(feed.steps()) {
            if u64::from(iteration).is_multiple_of(interval) {
                progress.suspend(|| self.report(iteration, loss, &classifier, shape.image))?;
            }
            let mut gradient = Gradient::zero(&classifier);
            for batch in step? {
                check(&batch, shape.image)?;
                gradient.add(&classifier, batch.pixels()?, batch.labels()?);
            }
            classifier.descend(&gradient, self.base_lr);
            loss = Some(gradient.mean_loss());
            ensure!(
                gradient.mean_loss().is_finite(),
                "the loss of iteration {iteration} is not a number: give a smaller --base-lr than {}, or \
                 scale the pixels in the net's transform_param",
                self.base_lr
            );
            progress.inc(1);
        }
        progress.finish();
        self.report(self.iterations, loss, &classifier, shape.image)?;
        Ok(feed.stats())
    }

    /// Prints the progress of training on one line, as Caffe's log does.
    fn report(
        &self,
        iteration: u32,
        loss: Option<f32>,
        classifier: &Classifier,
        image: ImageShape,
    ) -> anyhow::Result<()> {
        let loss = loss.map_or_else(String::new, |loss| format!(", loss = {loss:.4}"));
        let test = match &self.test {
            Some(test) => test_net(test, classifier, image)?,
            None => String::new(),
        };
        report::say(format_args!("Iteration {iteration}{loss}{test}"))?;
        Ok(())
    }
}

/// The outputs of the test net: the accuracy, and the mean loss.
fn test_net(test: &FeedBuilder, classifier: &Classifier, image: ImageShape) -> anyhow::Result<String> {
    let mut feed = test.clone().epochs(Epochs::OnePass).build()?;
    let (mut correct, mut records, mut sum) = (0, 0, Gradient::zero(classifier));
    for step in feed.steps() {
        for batch in step? {
            check(&batch, image)?;
            correct += classifier.count_correct(batch.pixels()?, batch.labels()?);
            records += batch.len();
            sum.add(classifier, batch.pixels()?, batch.labels()?);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let accuracy = correct as f64 / records as f64;
    Ok(format!("; test net: accuracy = {accuracy:.4}, loss = {:.4}", sum.mean_loss()))
}

/// A classifier is made for one shape of image, and for labels that are its classes.
fn check(batch: &Batch, image: ImageShape) -> Result<(), NotForTheModel> {
    let found = batch.shape().image;
    if found != image {
        return Err(NotForTheModel(format!("there are images of {image} and of {found}")));
    }
    let is_class = |label: &i32| usize::try_from(*label).is_ok_and(|label| label < CLASSES);
    let labels = batch.labels().map_err(|error| NotForTheModel(error.to_string()))?;
    match labels.iter().zip(batch.records()).find(|(label, _)| !is_class(label)) {
        Some((label, record)) => {
            let last = CLASSES - 1;
            Err(NotForTheModel(format!("the label of {record} is {label}, and the model's are 0 to {last}")))
        }
        None => Ok(()),
    }
}
