//! Runs the command as a user does: each test starts the program and checks its output and files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../../tests/common/mod.rs"]
mod common;
#[path = "../../../percolator-text/tests/example/mod.rs"]
mod examples;
#[cfg(feature = "cuda")]
#[path = "../../../../tests/common/standin.rs"]
mod standin;

#[path = "../../../../tests/common/pty.rs"]
mod pty;

/// Writes a program, in a process of its own. If this one wrote it, a child that another test starts would
/// have it open for a moment, and the system runs no program that is open for writing.
fn write_program(path: &std::path::Path, bytes: std::process::Stdio) {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(bytes);
    assert!(shell.status().unwrap().success(), "{}", path.display());
}

/// Copies the command.
fn copy_command(path: &std::path::Path) {
    write_program(path, std::fs::File::open(env!("CARGO_BIN_EXE_percolator")).unwrap().into());
}

/// For a command that runs out of memory. The standard library prints a backtrace under a lock. If there is
/// no memory to print it, the error of the allocator wants one as well, and waits for that lock for ever.
fn without_backtraces(command: &mut std::process::Command) {
    command.env("RUST_BACKTRACE", "0");
}

mod bad_input;
mod bad_records;
mod bench;
mod checkpoints;
mod checkpoints_refused;
mod compare;
mod convert;
mod data_tools;
mod descriptions;
mod doctor;
mod dump;
mod dump_files;
mod dump_refused;
mod dumps;
mod example;
mod exit_codes;
mod feed;
mod formats;
mod full_disk;
#[path = "../../../percolator-image/tests/image/giant.rs"]
mod giant;
#[cfg(feature = "cuda")]
mod gpu;
mod jobs;
mod json;
mod killed;
mod leases;
#[cfg(target_os = "linux")]
mod limits;
mod model;
mod model_refused;
mod observe;
mod operations;
mod plan;
mod prepare;
mod receipts;
mod serve;
mod snapshot;
mod suggested;
mod tfrecord;
mod what;
