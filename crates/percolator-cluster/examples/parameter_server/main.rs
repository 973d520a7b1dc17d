//! Parameter servers that may die: a small model whose weights are spread over servers, each of which writes
//! checkpoints of its shard, and trainers that lease blocks of digits.
//!
//! ```text
//! cargo run --release -p percolator-cluster --example parameter_server                # all of it
//! cargo run --release -p percolator-cluster --example parameter_server -- --kill-trainer
//! cargo run --release -p percolator-cluster --example parameter_server -- --etcd http://127.0.0.1:2379
//! ```
//!
//! Each of its processes has the role `server` or `trainer`; examples/kubernetes runs them on a cluster. The
//! way of a gradient:
//!
//! ```text
//! digits      a feed of digits, whose blocks a trainer leases
//!   v
//! trainer     weights and digits into a gradient: model
//!   v
//! client      its parts to the servers of all shards, which are found by their address, and found again
//!   v
//! wire        messages with checked lengths
//!   v
//! server/     each part changes its shard, which goes into checkpoints
//! ```
//!
//! `show/` starts the processes on one machine, kills one, and watches.

mod address;
mod client;
mod digits;
#[allow(dead_code, reason = "it is shared with other examples, which write databases")]
#[path = "../../../../examples/lmdb_feed/digits.rs"]
mod files;
mod model;
mod options;
mod place;
#[path = "../../../../examples/lmdb_feed/program.rs"]
mod program;
mod random;
mod report;
mod server;
mod shards;
mod show;
mod stop;
#[cfg(test)]
mod tests;
mod trainer;
mod wire;

use std::process::{Command, ExitCode};

use clap::Parser as _;

use options::{AllOptions, Options, ProbeOptions, Role};
use trainer::Ended;

/// The exit status of a trainer that was asked to end before all blocks are done, as if SIGTERM had ended it:
/// Kubernetes starts another one.
const ASKED_TO_END: u8 = 143;

fn main() -> ExitCode {
    program::show_warnings();
    match run(Options::parse()) {
        Ok(Ended::Done) => ExitCode::SUCCESS,
        Ok(Ended::Asked) => ExitCode::from(ASKED_TO_END),
        Err(error) => program::end("parameter_server", Err(error)),
    }
}

fn run(options: Options) -> anyhow::Result<Ended> {
    if let Some(parent) = options.end_with {
        show::end_with(parent)?;
    }
    match options.role.unwrap_or(Role::All(options.all)) {
        Role::Trainer(options) => return trainer::run(&options),
        Role::All(options) => show_all(&options)?,
        Role::Server(options) => server::run(&options)?,
        Role::Probe(options) => probe(&options)?,
        Role::Report(options) => report::run(&options)?,
    }
    Ok(Ended::Done)
}

fn show_all(options: &AllOptions) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let shown = show::run(options, &|words| {
        let mut command = Command::new(&program);
        command.args(words);
        command
    })?;
    report::say_verdict(&shown.verdict, &shown.status)?;
    report::say(&shown.to_string())?;
    Ok(())
}

fn probe(options: &ProbeOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(client::probe(options.address));
    report::say(&found.map_err(|error| anyhow::Error::new(error).context(options.address.to_string()))?)?;
    Ok(())
}
