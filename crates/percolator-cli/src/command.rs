//! The subcommands, one file each.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{bench, devices, digest, dump, feed, plan, verify_run};

/// Keeps every accelerator fed: Caffe databases in, device-ready batches out.
#[derive(Debug, Parser)]
#[command(name = "percolator", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the pipeline against consumers that only count, and say what waited for what.
    ///
    /// SIGINT and SIGTERM stop it at its next batch, with snapshot and receipt written; the exit codes are
    /// then 130 and 143.
    Feed(feed::Feed),
    // What it says of itself stands at the arguments.
    Bench(bench::Bench),
    /// Write what a net would see as NumPy arrays.
    Dump(dump::Dump),
    /// Print which records each replica of a job gets at each step, without reading them.
    Plan(plan::Plan),
    /// Prove by its receipts that each epoch of a run was covered exactly once, or name what is missing or came twice.
    ///
    /// The exit code is 1 where anything is missing or came twice in an epoch that has ended: another one has begun, or its last
    /// step was given. An epoch under way is no error.
    VerifyRun(verify_run::VerifyRun),
    /// Say what the records of a data set hold, for verify-run and feed, which take it by --digest.
    ///
    /// It reads the whole data set, once.
    Digest(digest::Digest),
    /// List what batches can be fed to here, and how fast.
    Devices(devices::Devices),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Feed(feed) => return feed.run(),
            Command::Bench(bench) => bench.run(),
            Command::Dump(dump) => dump.run(),
            Command::Plan(plan) => plan.run(),
            Command::VerifyRun(verify_run) => verify_run.run(),
            Command::Digest(digest) => digest.run(),
            Command::Devices(devices) => devices.run(),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}
