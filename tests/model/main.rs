//! Readers and their handles, and whole feeds, under a scheduler that tries many orders of their steps.
//!
//! Bugs here appear once in a million runs: a consumer that waits for ever, a thread that outlives its
//! handles, an error that nobody gets, a record dealt twice, a batch delivered half written. So each scenario
//! runs under thousands of schedules, by `.ci/checks model`; a schedule in which anything waits for ever
//! fails. The parts below the reader have their scenarios beside their code.

#[cfg(not(shuttle))]
#[test]
fn skipped() {
    println!("skipped: build with RUSTFLAGS=\"--cfg shuttle\" to check the model");
}

#[cfg(shuttle)]
#[path = "../common/explore.rs"]
mod explore;
#[cfg(shuttle)]
mod feed;
#[cfg(shuttle)]
mod memory;
#[cfg(shuttle)]
mod reader;
#[cfg(shuttle)]
mod supplied;
