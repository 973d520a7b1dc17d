//! Learns to read digits with candle, fed by Percolator, and resumes exactly.
//!
//! ```text
//! cargo run --release -p percolator-candle --example digits_candle
//! ```
//!
//! The lines to copy are those of [`Training::run`] and [`test`]. The rest is a net, an optimizer that can be
//! saved, and the proof: a training run that is stopped in the middle of an epoch, saved to files, loaded
//! into new objects and continued has the losses of one that was never stopped, bit for bit.

mod adam;
#[path = "../../../../examples/lmdb_feed/digits.rs"]
mod digits;
mod net;
mod options;
#[path = "../../../../examples/lmdb_feed/program.rs"]
mod program;

use std::fmt;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use candle_core::Device;
use candle_nn::{ModuleT as _, VarMap, loss};
use clap::Parser as _;
use percolator::{Epochs, FeedBuilder, Snapshot};
use percolator_candle::CandleFeed as _;

use adam::Adam;
use digits::Digits;
use net::Net;
use options::Options;

/// The fields that are trained on: pixels, and labels of a type that candle indexes with.
const FIELDS: [&str; 2] = ["data", "label_i64"];

fn main() -> ExitCode {
    program::show_warnings();
    program::end("digits_candle", learn_digits(&Options::parse()))
}

fn learn_digits(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (train_lmdb, test_lmdb) = (folder.path().join("train_lmdb"), folder.path().join("test_lmdb"));
    Digits::train()?.write_lmdb(&train_lmdb).context("cannot write the training database")?;
    Digits::test()?.write_lmdb(&test_lmdb).context("cannot write the test database")?;

    let mut whole = Training::new(options)?;
    let losses = whole.run(options.training_feed(&train_lmdb), Until::TheEnd)?;
    let (correct, of) = test(&whole.net, options.feed(&test_lmdb).epochs(Epochs::OnePass))?;
    let accuracy = 100.0 * f64::from(correct) / f64::from(of);
    say(format_args!("test accuracy {accuracy:.1} %: {correct} of {of} digits read right"))?;

    let stop = options.middle(&train_lmdb)?;
    let mut stopped = Training::new(options)?;
    let before = stopped.run(options.training_feed(&train_lmdb), Until::Step(stop, folder.path()))?;
    drop(stopped);
    let mut resumed = Training::load(options, folder.path())?;
    let snapshot = Snapshot::load(folder.path().join("feed.snapshot"))?;
    let next = snapshot.next(0).context("the snapshot is of this feed's one lane")?;
    say(format_args!("stopped after {stop} steps, and resumed from files; next is {next}"))?;
    let after = resumed.run(options.training_feed(&train_lmdb).resume(&snapshot), Until::TheEnd)?;

    let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    ensure!(bits(&losses[..stop]) == bits(&before), "the losses before the stop differ");
    ensure!(bits(&losses[stop..]) == bits(&after), "the losses after the stop differ");
    let read_again = test(&resumed.net, options.feed(&test_lmdb).epochs(Epochs::OnePass))?;
    ensure!(
        read_again == (correct, of),
        "the resumed net reads {} digits right, not {correct}",
        read_again.0
    );
    say(format_args!("all {} losses after the stop are those of the run that was not stopped", after.len()))?;
    ensure!(accuracy > 95.0, "the net reads only {accuracy:.1} % of the test digits");
    folder.close().context("cannot remove the temporary folder")
}

/// When a training stops.
#[derive(Clone, Copy)]
enum Until<'a> {
    TheEnd,
    /// After this many steps; then it is saved to files in this folder.
    Step(usize, &'a Path),
}

/// What a training consists of, apart from its data.
struct Training {
    device: Device,
    weights: VarMap,
    net: Net,
    optimizer: Adam,
}

impl Training {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let (device, weights) = (Device::Cpu, VarMap::new());
        let net = Net::new(&weights, options.seed, &device)?;
        let optimizer = Adam::new(net::trained(&weights), options.learning_rate)?;
        Ok(Training { device, weights, net, optimizer })
    }

    /// Trains on a feed, and returns the loss of each step.
    fn run(&mut self, feed: FeedBuilder, until: Until<'_>) -> anyhow::Result<Vec<f32>> {
        let mut feed = feed.build()?;
        let (mut losses, mut epoch) = (Vec::new(), Epoch::begin());
        let mut steps = feed.tensors(&self.device)?.only(FIELDS)?;
        while let Some(step) = steps.next() {
            let step = step?;
            let scores = self.net.forward_t(step.get("data")?, true)?;
            let loss = loss::cross_entropy(&scores, step.get("label_i64")?)?;
            self.optimizer.step(&loss.backward()?)?;

            losses.push(loss.to_scalar()?);
            epoch.add(losses[losses.len() - 1], step.len());
            if let Some(end) = step.step().filter(|end| end.is_last) {
                epoch.report(end.epoch)?;
                epoch = Epoch::begin();
            }
            if let Until::Step(stop, folder) = until
                && losses.len() == stop
            {
                self.save(folder, &steps.snapshot()?)?;
                break;
            }
        }
        Ok(losses)
    }

    /// Saves all that a resumed training needs.
    fn save(&self, folder: &Path, snapshot: &Snapshot) -> anyhow::Result<()> {
        self.weights.save(folder.join("weights.safetensors"))?;
        self.optimizer.save(&folder.join("optimizer.safetensors"))?;
        snapshot.save(folder.join("feed.snapshot"))?;
        Ok(())
    }

    /// Makes a training of what was saved.
    fn load(options: &Options, folder: &Path) -> anyhow::Result<Self> {
        let mut training = Training::new(options)?;
        training.weights.load(folder.join("weights.safetensors"))?;
        training.optimizer.load(&folder.join("optimizer.safetensors"), &training.device)?;
        Ok(training)
    }
}

/// Counts the digits that the net reads right, and all of them, in one exact pass: every record once.
fn test(net: &Net, feed: FeedBuilder) -> anyhow::Result<(u32, u32)> {
    let (mut correct, mut all) = (0, 0);
    for step in feed.build()?.tensors(&Device::Cpu)?.only(FIELDS)? {
        let step = step?;
        correct += net.count_correct(step.get("data")?, step.get("label_i64")?)?;
        all += u32::try_from(step.len())?;
    }
    Ok((correct, all))
}

/// What is reported of an epoch.
struct Epoch {
    began: Instant,
    loss: f64,
    steps: u32,
    records: usize,
}

impl Epoch {
    fn begin() -> Self {
        Epoch { began: Instant::now(), loss: 0.0, steps: 0, records: 0 }
    }

    fn add(&mut self, loss: f32, records: usize) {
        self.loss += f64::from(loss);
        self.steps += 1;
        self.records += records;
    }

    fn report(&self, epoch: u64) -> anyhow::Result<()> {
        let rate = self.records as f64 / self.began.elapsed().as_secs_f64();
        let loss = self.loss / f64::from(self.steps);
        say(format_args!("epoch {epoch:2}: loss {loss:.4}, {rate:.0} records/s"))
    }
}

/// Prints a line. A closed output is an error here; `println!` would panic.
fn say(line: fmt::Arguments<'_>) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{line}")?)
}
