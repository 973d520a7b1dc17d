//! Feeds a training loop from a Caffe LMDB.
//!
//! ```text
//! cargo run --example lmdb_feed                      # trains on digits that ship with Percolator
//! cargo run --release --example lmdb_feed -- PATH    # feeds an LMDB of yours, and says what is in it
//! ```
//!
//! The lines to copy into a loop of your own are those of [`train`]: describe the feed, build it, step
//! through it. `survey.rs` has the other way to take batches, with a thread for each device.

mod classifier;
mod digits;
mod options;
mod program;
mod report;
mod survey;
mod tally;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use percolator::{Epochs, Feed, Phase, Stats};

use classifier::{Classifier, Gradient};
use digits::Digits;
use options::Options;
use survey::Enough;

/// The length of a step, as a factor of the mean gradient.
const LEARNING_RATE: f32 = 1.0;

fn main() -> ExitCode {
    program::show_warnings();
    let options = Options::parse();
    let done = match &options.path {
        Some(path) => survey(path, &options),
        None => learn_digits(&options),
    };
    program::end("lmdb_feed", done)
}

/// Looks at the records of a database, until enough of it was seen.
fn survey(path: &Path, options: &Options) -> anyhow::Result<()> {
    let feed = Feed::builder()
        .lmdb(path)
        .transform(options.transform())
        .devices(options.devices()?)
        .batch_size(options.batch_size)
        .seed(options.seed);
    let feed = options.extent(feed);
    let feed = if options.once { feed.epochs(Epochs::OnePass) } else { feed };
    survey::run(feed, path, &Enough { batches: options.batches, deadline: options.deadline()? })
}

/// Makes two databases, trains on one and tests on the other.
fn learn_digits(options: &Options) -> anyhow::Result<()> {
    let (train_digits, test_digits) = (Digits::train()?, Digits::test()?);
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (train_lmdb, test_lmdb) = (folder.path().join("train_lmdb"), folder.path().join("test_lmdb"));
    train_digits.write_lmdb(&train_lmdb).context("cannot write the training database")?;
    test_digits.write_lmdb(&test_lmdb).context("cannot write the test database")?;
    report::say(format_args!("{}: {} digits to learn from", train_lmdb.display(), train_digits.len()))?;
    report::say(format_args!("{}: {} others to test with", test_lmdb.display(), test_digits.len()))?;

    let (classifier, stats) = train(&train_lmdb, options, options.steps(train_digits.len()))?;
    let correct = test(&test_lmdb, options, &classifier)?;
    #[expect(clippy::cast_precision_loss, reason = "there are a few hundred images")]
    let accuracy = 100.0 * correct as f64 / test_digits.len() as f64;
    report::say(format_args!(
        "test accuracy {accuracy:.1} %: {correct} of {} digits read right",
        test_digits.len()
    ))?;

    report::print_table(&stats)?;
    folder.close().context("cannot remove the temporary folder")
}

/// The lines to copy. A step has the next batch of every device. The model learns from the mean over all of
/// them, as when Caffe's solver trains on several.
fn train(lmdb: &Path, options: &Options, steps: usize) -> anyhow::Result<(Classifier, Stats)> {
    let feed = Feed::builder()
        .lmdb(lmdb)
        .transform(options.transform())
        .devices(options.devices()?)
        .batch_size(options.batch_size)
        .seed(options.seed);
    let mut feed = options.extent(feed).build()?;
    report::say(format_args!("training on batches of {}, one per device", feed.layout()))?;

    let mut classifier = Classifier::new(feed.batch_shape().record_elements());
    let progress = report::progress(Some(steps as u64), "steps");
    for step in progress.wrap_iter(feed.steps().take(steps)) {
        let mut gradient = Gradient::zero(&classifier);
        for batch in step? {
            gradient.add(&classifier, batch.pixels()?, batch.labels()?);
        }
        classifier.descend(&gradient, LEARNING_RATE);
        progress.set_message(format!("loss {:.3}", gradient.mean_loss()));
    }
    Ok((classifier, feed.stats()))
}

/// Counts the images that the classifier reads right, in one exact pass: every record once.
fn test(lmdb: &Path, options: &Options, classifier: &Classifier) -> anyhow::Result<usize> {
    let feed = Feed::builder()
        .lmdb(lmdb)
        // Caffe mirrors at random in the test phase, too; only crops become central.
        .transform(options.transform().mirror(false))
        .phase(Phase::Test)
        .devices(options.devices()?)
        .batch_size(options.batch_size)
        .epochs(Epochs::OnePass);
    let mut feed = options.extent(feed).build()?;
    let mut correct = 0;
    for step in feed.steps() {
        for batch in step? {
            correct += classifier.count_correct(batch.pixels()?, batch.labels()?);
        }
    }
    Ok(correct)
}
