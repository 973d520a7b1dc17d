//! Runs in which everything happens to workers, at moments that nobody has chosen.

use std::panic::catch_unwind;
use std::time::Duration;

use crate::process::sample::times;
use crate::process::{role, this_test};
use crate::random::Random;
use crate::role::{JobOptions, Place};
use crate::worker::work;
use crate::workers::Workers;

const RUNS: u64 = 2;
const WORKERS: usize = 8;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// A job in which this seed decides what happens.
fn run(test: &'static str, place: Place, seed: u64) {
    let mut random = Random::new(seed);
    let job = JobOptions::draw(&mut random, seed);
    let ttl = u64::try_from(job.ttl.as_millis()).unwrap();
    let mut workers = Workers::new(test, place, job);
    for _ in 0..random.within(1..WORKERS as u64 + 1) {
        let role = workers.draw(&mut random);
        workers.start(role);
    }
    for _ in 0..random.within(10..40) {
        workers.pass(Duration::from_millis(random.within(5..250)));
        let living = workers.living();
        let event = random.within(0..10);
        if living.is_empty() || (event < 4 && living.len() < WORKERS) {
            let role = workers.draw(&mut random);
            workers.start(role);
            continue;
        }
        let one = random.one_of(&living);
        match event {
            0..6 => workers.kill(one),
            // Its lease outlives it, or does not.
            6..8 => workers.stop(one, Duration::from_millis(random.within(1..ttl / 2))),
            _ => workers.stop(one, Duration::from_millis(random.within(ttl..3 * ttl))),
        }
    }
    workers.end(&mut random);
}

/// As many runs as are wanted, each at a place of its own. All of them are made, whichever fails.
fn all(test: &'static str, place: impl Fn(u64) -> Place + std::panic::RefUnwindSafe) {
    let runs = variable("PERCOLATOR_ELASTIC_RUNS").unwrap_or(times(RUNS, 1));
    let first = variable("PERCOLATOR_ELASTIC_SEED").unwrap_or(0);
    let mut failed = Vec::new();
    for seed in first..first + runs {
        println!("seed {seed}");
        if catch_unwind(|| run(test, place(seed), seed)).is_err() {
            println!("FAILED: PERCOLATOR_ELASTIC_RUNS=1 PERCOLATOR_ELASTIC_SEED={seed}, {test}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{} of {runs} runs failed, of these seeds: {failed:?}", failed.len());
}

#[test]
fn in_a_folder_each_record_counts_once() {
    if let Some(role) = role() {
        return work(&role);
    }
    let folder = tempfile::tempdir().unwrap();
    all(this_test!(), |seed| Place::Folder(folder.path().join(seed.to_string())));
}

#[cfg(feature = "etcd")]
#[test]
fn in_etcd_each_record_counts_once() {
    if let Some(role) = role() {
        return work(&role);
    }
    // Hundreds of runs would fill it with what is past.
    let compacts = ["--auto-compaction-mode=revision", "--auto-compaction-retention=1000"];
    let Some(etcd) = crate::server::Etcd::start(&compacts) else { return };
    let url = etcd.url.clone();
    all(this_test!(), |seed| Place::Etcd { urls: vec![url.clone()], prefix: format!("/{seed}/") });
}
