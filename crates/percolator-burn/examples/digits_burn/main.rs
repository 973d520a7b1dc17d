//! Trains burn to read digits, fed by percolator: with burn's `Learner`, and in a loop by hand. Both are
//! stopped, resumed, and compared with a run that was not.
//!
//! ```console
//! $ cargo run --release -p percolator-burn --example digits_burn
//! ```

mod by_hand;
mod learning;
mod lines;
mod net;

#[path = "../../../../examples/lmdb_feed/digits.rs"]
mod digits;
#[path = "../../../../examples/lmdb_feed/program.rs"]
mod program;

use std::fmt;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Parser;
use percolator::{Epochs, Feed, FeedBuilder, Shuffle, Transform};

use crate::digits::Digits;

/// Trains burn to read digits, fed by percolator.
#[derive(Debug, Parser)]
struct Options {
    /// How often the training sees each of its 1,437 digits
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..))]
    epochs: u64,
    /// The number of digits in a batch
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=512))]
    batch_size: u64,
    /// What the first weights and the order of the digits are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The share of the test digits that a net must read to have learned something, in percent.
const ACCURACY_MIN: f64 = 95.0;

fn main() -> ExitCode {
    program::show_warnings();
    program::end("digits_burn", run(&Options::parse()))
}

fn run(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (train, test) = (folder.path().join("train_lmdb"), folder.path().join("test_lmdb"));
    Digits::train()?.write_lmdb(&train)?;
    Digits::test()?.write_lmdb(&test)?;
    let data = Data {
        train: feed(&train, options).shuffle(Shuffle::Global),
        test: feed(&test, options).epochs(Epochs::OnePass),
    };

    say(format_args!("With burn's Learner:"))?;
    let (whole, resumed) = (folder.path().join("whole"), folder.path().join("resumed"));
    let learned = learning::train(&data, &whole, options, 0, options.epochs)?;
    let accuracy = net::accuracy(&learned.net, &data)?;
    say(format_args!("  It reads {accuracy:.1} % of the test digits."))?;

    let half = options.epochs / 2;
    say(format_args!("Stopped after epoch {half}, and resumed from burn's checkpoint:"))?;
    let before = learning::train(&data, &resumed, options, 0, half)?;
    let after = learning::train(&data, &resumed, options, half, options.epochs)?;
    compare(&before.losses, &after.losses, &learned.losses)?;

    say(format_args!("In a loop by hand, stopped within an epoch, and resumed from percolator's snapshot:"))?;
    let all = by_hand::train(&data, options)?;
    let (before, after) = by_hand::train_stopped(&data, options, folder.path())?;
    compare(&before, &after, &all)?;

    ensure!(accuracy > ACCURACY_MIN, "more than {ACCURACY_MIN} % of the test digits should be read");
    Ok(())
}

/// Where the digits come from.
struct Data {
    train: FeedBuilder,
    test: FeedBuilder,
}

fn feed(lmdb: &Path, options: &Options) -> FeedBuilder {
    let batch_size = usize::try_from(options.batch_size).expect("at most 512");
    let scaled = Transform::new().scale(1.0 / 16.0);
    Feed::builder().lmdb(lmdb).batch_size(batch_size).seed(options.seed).transform(scaled)
}

/// Compares the losses before a stop and after the resume with those of a run that was not stopped, bit for
/// bit.
fn compare(before: &[f64], after: &[f64], whole: &[f64]) -> anyhow::Result<()> {
    let (done, left, all) = (before.len(), after.len(), whole.len());
    ensure!(done > 0 && left > 0, "{done} steps before the stop and {left} after it show nothing");
    ensure!(
        done + left == all,
        "{done} steps before the stop and {left} after it are not the {all} of the run"
    );
    let differ = |some: &[f64], due: &[f64]| {
        some.iter().zip(due).filter(|(one, other)| one.to_bits() != other.to_bits()).count()
    };
    let (earlier, later) = (differ(before, &whole[..done]), differ(after, &whole[done..]));
    ensure!(earlier == 0, "{earlier} of the {done} losses before the stop differ");
    ensure!(later == 0, "{later} of the {left} losses after the resume differ");
    say(format_args!("  All {left} losses are those of the run that was not stopped, bit for bit."))
}

/// Prints a line. A closed output is an error here; `println!` would panic.
fn say(line: fmt::Arguments<'_>) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{line}")?)
}
