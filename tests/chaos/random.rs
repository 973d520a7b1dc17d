//! Random scenarios: every kind of store, order, consumer and world, with faults at random places. Whatever
//! happens, nothing hangs, no record is lost or comes twice, the error is the fault's own and comes once,
//! memory stays within what was announced, and nothing is left: no thread, no file, no buffer.
//!
//! `PERCOLATOR_CHAOS_SEEDS=0..100000 cargo test --test chaos -- random` runs other seeds than the usual ones.
//! What fails prints its seed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;
use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use crate::allocator;
use crate::common::process::{hung_after, is_alone, open_files, settles, this_test, threads};
use crate::common::sample::times;
use crate::drive;
use crate::scenario::Scenario;
use crate::stores::Stores;

/// The seeds that every run in CI has, and what others have.
const SEEDS: Range<u64> = 0..600;
const SOME_SEEDS: Range<u64> = 0..250;

/// The heap of a scenario beyond what its feeds announce: the test's own, and queues.
const SLACK_BYTES: usize = 1 << 20;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("PERCOLATOR_CHAOS_SEEDS") else { return times(SEEDS, SOME_SEEDS) };
    let (first, end) = text.split_once("..").expect("PERCOLATOR_CHAOS_SEEDS is FIRST..END");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Panics that faults ask for are no news.
fn silence_faults() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let said = panic.payload();
        let said = said.downcast_ref::<&str>().copied().or(said.downcast_ref::<String>().map(String::as_str));
        if !said.is_some_and(|text| text.ends_with("as a fault says")) {
            usual(panic);
        }
    }));
}

#[test]
fn random_scenarios_lose_nothing_double_nothing_hide_nothing_and_leave_nothing() {
    if !is_alone(this_test!()) {
        return;
    }
    silence_faults();
    let stores = Arc::new(Stores::new());
    let (files, other_threads) = (open_files(), threads());
    let mut left = None;
    for seed in seeds() {
        let scenario = Scenario::drawn(seed);
        run_watched(&scenario, &stores);
        settles(threads, &other_threads, &format!("threads after {scenario}"));
        settles(open_files, &files, &format!("open files after {scenario}"));
        // The first ones make stores, and whatever else is made once.
        if seed == seeds().start + 200 {
            left = Some(allocator::held());
        }
    }
    if let Some(before) = left {
        let grown = allocator::held().saturating_sub(before);
        assert!(grown < SLACK_BYTES, "{grown} bytes more are held than after the first 200 scenarios");
    }
    println!("{} scenarios", seeds().count());
}

fn run_watched(scenario: &Scenario, stores: &Arc<Stores>) {
    let (done, outcome) = channel();
    let thread = {
        let (scenario, stores) = (scenario.clone(), stores.clone());
        thread::spawn(move || {
            // A store is made when it is first opened.
            drive::open_stores(&scenario, &stores);
            let (budget, peak) = allocator::peak(|| drive::run(&scenario, &stores));
            let _ = done.send(());
            assert!(
                peak <= budget + SLACK_BYTES,
                "{peak} bytes are held at a time, and {budget} are announced"
            );
        })
    };
    match outcome.recv_timeout(hung_after()) {
        Err(RecvTimeoutError::Timeout) => panic!("hangs: {scenario}"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|_| panic!("fails: {scenario}"));
        }
    }
}
