//! What a test needs that not every machine has: another program, a GPU, a right. Where it is missing, the
//! test says on the standard error that it did not run. `PERCOLATOR_NEED_ALL=1` makes that a failure whatever
//! is missing, and `PERCOLATOR_NEED_<NAME>=1` where it is this need. `PERCOLATOR_NEED_<NAME>=0` allows one to
//! be missing all the same.
#![allow(dead_code, unreachable_pub, reason = "every test file has needs of its own")]

use std::fmt::Display;
use std::io::Write as _;
use std::process::Command;

/// Says that the test of this thread did not run, or fails it.
#[track_caller]
pub fn missing(need: &str, why: impl Display) {
    let stated = |name: &str| std::env::var(format!("PERCOLATOR_NEED_{name}")).ok().map(|value| value != "0");
    let is_needed = stated(need).or_else(|| stated("ALL")).unwrap_or(false);
    assert!(!is_needed, "did not run, and PERCOLATOR_NEED_{need} or PERCOLATOR_NEED_ALL is set: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not by `println!`, which nobody sees of a test that passes.
    let _ =
        writeln!(std::io::stderr(), "NOT RUN: {test}: {why}; PERCOLATOR_NEED_{need}=1 makes this a failure");
}

/// Whether a program is installed, which `--version` shows.
#[track_caller]
pub fn program(need: &str, program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let is_there = found.as_ref().is_ok_and(|output| output.status.success());
    if !is_there {
        missing(need, format_args!("there is no {program}, which {package} brings: {found:?}"));
    }
    is_there
}

/// Whether `python3` has these modules.
#[track_caller]
pub fn python(need: &str, modules: &str) -> bool {
    let found = Command::new("python3").args(["-c", &format!("import {modules}")]).output();
    let is_there = found.as_ref().is_ok_and(|output| output.status.success());
    if !is_there {
        missing(need, format_args!("python3 cannot import {modules}: {found:?}"));
    }
    is_there
}
