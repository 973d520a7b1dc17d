//! Learns to read digits with tch, from percolator's batches.
//!
//! ```text
//! LIBTORCH_USE_PYTORCH=1 cargo run --release -p percolator-tch --example digits_tch
//! ```
//!
//! It makes two databases of the digits that ship with Percolator, trains a small convolutional net on one,
//! and tests it on the other. Then it trains again, stops in the middle of an epoch, saves everything, and
//! goes on with new objects: each loss must be the same, bit for bit. The lines to copy into a loop of your
//! own are those of [`Run::train`](run::Run::train).

mod adam;
#[path = "../../../../examples/lmdb_feed/digits.rs"]
mod digits;
mod net;
#[path = "../../../../examples/lmdb_feed/program.rs"]
mod program;
mod run;

use std::fmt;
use std::io::{Write as _, stdout};
use std::iter::zip;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;

use digits::Digits;
use run::Run;

/// Below this, something is wrong with the feed or the net.
const ACCURACY_MIN: f64 = 0.95;

/// Learns digits with tch, and shows that a stopped run goes on exactly.
#[derive(Clone, Copy, Debug, Parser)]
pub(crate) struct Options {
    /// Passes over the training digits.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(2..))]
    epochs: u64,
    /// Records in a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=512))]
    batch_size: u64,
    /// The seed of the weights and of the order of the records.
    #[arg(long, default_value_t = 7)]
    seed: u64,
}

fn main() -> ExitCode {
    program::show_warnings();
    program::end("digits_tch", learn(Options::parse()))
}

fn learn(options: Options) -> anyhow::Result<()> {
    // On several threads torch may add in another order, which changes the last bits.
    tch::set_num_threads(1);
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let [train, test] = ["train_lmdb", "test_lmdb"].map(|name| folder.path().join(name));
    Digits::train()?.write_lmdb(&train).context("cannot write the training database")?;
    Digits::test()?.write_lmdb(&test).context("cannot write the test database")?;

    let mut whole = Run::new(&train, options)?;
    let losses = whole.train(u64::MAX)?;
    let (right, of) = whole.test(&test)?;
    #[expect(clippy::cast_precision_loss, reason = "there are a few hundred images")]
    let accuracy = right as f64 / of as f64;
    say(format_args!("test accuracy {:.1} %: {right} of {of} digits read right", 100.0 * accuracy))?;
    ensure!(accuracy > ACCURACY_MIN, "more than {:.0} % are expected", 100.0 * ACCURACY_MIN);

    let checkpoint = folder.path().join("checkpoint");
    compare(&losses, &stopped(&train, &checkpoint, options)?)?;
    folder.close().context("cannot remove the temporary folder")
}

/// The same training, stopped in the middle of an epoch.
fn stopped(train: &Path, checkpoint: &Path, options: Options) -> anyhow::Result<Vec<f32>> {
    let mut first = Run::new(train, options)?;
    let an_epoch = first.steps_of_an_epoch()?;
    ensure!(an_epoch > 1, "an epoch of one step has no middle: choose a smaller --batch-size");
    let mut losses = first.train(options.epochs / 2 * an_epoch + an_epoch / 2)?;
    first.save(checkpoint).context("cannot save the run")?;
    say(format_args!("stopped after {} steps, and saved", losses.len()))?;
    drop(first);

    let mut second = Run::load(checkpoint, train, options).context("cannot load the run")?;
    losses.extend(second.train(u64::MAX)?);
    Ok(losses)
}

/// Checks that the run that was stopped had the same losses, to the last bit.
fn compare(whole: &[f32], stopped: &[f32]) -> anyhow::Result<()> {
    ensure!(whole.len() == stopped.len(), "{} steps became {}", whole.len(), stopped.len());
    for (step, (one, other)) in zip(whole, stopped).enumerate() {
        ensure!(one.to_bits() == other.to_bits(), "the loss of step {step} was {one}, and is now {other}");
    }
    say(format_args!("the run that was stopped had the same {} losses, bit for bit", whole.len()))
}

/// Prints a line. A closed output is an error here; `println!` would panic.
pub(crate) fn say(line: fmt::Arguments<'_>) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{line}")?)
}
