//! Runs feeds in every way, for as long as it is told, and watches what the process uses: lanes, epochs,
//! resumes, changes of world, faults, readers that register again, bad records and mixtures. Every batch is
//! checked. Receipts prove each run by a plan, but for a mixture, whose records are counted.
//!
//! It ends with 1 if a batch or a receipt is wrong, if anything hangs, or if memory, threads or open files
//! grow.
//!
//! `cargo run --release --example soak -- --minutes 60 --svg soak.svg`

mod data;
mod gauges;
mod plot;
mod rounds;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;

use crate::data::DataSet;
use crate::gauges::{GAUGES, Sample, Usage};
use crate::rounds::{Counts, Draws, KINDS};

/// Feeds that run for a long time, checked and watched.
#[derive(Parser)]
struct Options {
    /// For how long.
    #[arg(long, default_value_t = 0.33, value_parser = minutes)]
    minutes: f64,
    /// What is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A picture of what was used.
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if minutes > 0.0 && minutes <= 1e6 => Ok(minutes),
        _ => Err("it must be a number above 0, and at most 1000000".to_owned()),
    }
}

/// The longest that a round may take: far longer than any does.
const HUNG_AFTER: Duration = Duration::from_secs(120);
/// How often the most that is used is looked for.
const LOOK: Duration = Duration::from_millis(2);
/// The most samples that are kept.
const SAMPLES: u32 = 600;

/// Threads between two rounds: this one, and the one that runs them.
const THREADS: f64 = 2.0;

/// A round that is over.
struct Done {
    kind: &'static str,
    at_rest: Usage,
    counts: Counts,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    silence_faults();
    let start = Instant::now();
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    let (done, rounds) = channel();
    let worker = std::thread::spawn(move || run(start, time, options.seed, &done));
    let (samples, counts) = watch(start, time, &rounds)?;
    match worker.join() {
        Ok(outcome) => outcome?,
        Err(_) => bail!("a round panicked"),
    }
    report(&options, &samples, counts)
}

/// Panics that are faults are wanted, and need no line on the terminal.
fn silence_faults() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_fault = said(panic.payload()).is_some_and(|text| text.ends_with("as a fault says"));
        if !is_fault {
            usual(panic);
        }
    }));
}

/// What a panic says.
fn said(payload: &dyn std::any::Any) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Runs one round after the other until the time is over.
fn run(start: Instant, time: Duration, seed: u64, done: &Sender<Done>) -> anyhow::Result<()> {
    let data = DataSet::write()?;
    let mut counts = Counts::default();
    while start.elapsed() < time {
        for (kind, round) in KINDS {
            let mut draws = Draws(seed.wrapping_add(counts.rounds.wrapping_mul(0x1000_0001)));
            round(&data, &mut draws, &mut counts)
                .with_context(|| format!("round {} ({kind}) of seed {seed}", counts.rounds))?;
            counts.rounds += 1;
            // If nobody watches any more, that has an error of its own.
            let _ = done.send(Done { kind, at_rest: Usage::at_rest(THREADS)?, counts });
        }
    }
    Ok(())
}

/// Collects samples of several rounds each, and prints a line from time to time.
fn watch(start: Instant, time: Duration, rounds: &Receiver<Done>) -> anyhow::Result<(Vec<Sample>, Counts)> {
    let (line_every, sample_every) = ((time / 60).max(Duration::from_secs(2)), time / SAMPLES);
    let (mut samples, mut counts) = (Vec::new(), Counts::default());
    let (mut at_rest, mut peak, mut last) =
        (Usage::default(), Usage::default(), ("the data set", Instant::now()));
    let (mut sampled, mut said) = (Instant::now(), Instant::now());
    println!(
        "{:>8} {:>7} {:>10} {:>16} {:>12} {:>12}",
        "minutes", "rounds", "records", "memory, MiB", "threads", "files"
    );
    loop {
        peak = peak.max(Usage::now()?);
        match rounds.recv_timeout(LOOK) {
            Ok(done) => {
                (at_rest, peak) = (at_rest.max(done.at_rest), peak.max(done.at_rest));
                (counts, last) = (done.counts, (done.kind, Instant::now()));
            }
            Err(RecvTimeoutError::Timeout) => {
                let (rounds, kind) = (counts.rounds, last.0);
                ensure!(
                    last.1.elapsed() < HUNG_AFTER,
                    "a round hangs: the one after {kind}, which was round {rounds}"
                );
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok((samples, counts)),
        }
        if sampled.elapsed() >= sample_every {
            let sample = Sample { minutes: start.elapsed().as_secs_f64() / 60.0, at_rest, peak };
            samples.push(sample);
            (at_rest, peak, sampled) = (Usage::default(), Usage::default(), Instant::now());
            if said.elapsed() >= line_every {
                said = Instant::now();
                say(&sample, counts);
            }
        }
    }
}

fn say(Sample { minutes, at_rest, peak }: &Sample, counts: Counts) {
    println!(
        "{minutes:>8.2} {:>7} {:>10} {:>8.1} / {:>5.1} {:>5} / {:>4} {:>5} / {:>4}",
        counts.rounds,
        counts.records,
        at_rest.memory_mib,
        peak.memory_mib,
        at_rest.threads,
        peak.threads,
        at_rest.files,
        peak.files
    );
}

/// Says what was done, draws the picture, and fails if anything grows.
fn report(options: &Options, samples: &[Sample], counts: Counts) -> anyhow::Result<()> {
    let Counts { rounds, records, receipts, resumes, faults, worlds, registrations, bad } = counts;
    println!(
        "{rounds} rounds: {records} records, each checked; {receipts} receipts, all right; {resumes} \
         resumes, {faults} faults, {worlds} worlds, {registrations} registrations, {bad} bad records"
    );
    if let Some(path) = &options.svg {
        let title = format!("{} minutes, {rounds} rounds, {records} records", options.minutes);
        std::fs::write(path, plot::draw(samples, &title))
            .with_context(|| format!("{}: cannot write the picture", path.display()))?;
    }
    let mut grows = Vec::new();
    for gauge in &GAUGES {
        let (growth, allowed) = gauge.growth(samples);
        let mut values: Vec<f64> = samples.iter().map(|sample| (gauge.of)(&sample.at_rest)).collect();
        let median = gauges::median(&mut values);
        println!("{}: {median:.1} {} at rest, {growth:+.2} in the second half", gauge.name, gauge.unit);
        if growth > allowed {
            grows.push(format!("{} grew by {growth:.2}, and {allowed:.2} is allowed", gauge.name));
        }
    }
    ensure!(grows.is_empty(), "{}", grows.join("; "));
    Ok(())
}
