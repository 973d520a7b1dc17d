//! Parameter servers that may die: a model whose weights are spread over servers, each of which writes
//! checkpoints of its shard, and trainers that lease blocks of digits.
//!
//! ```text
//! cargo run --release -p percolator-cluster --example parameter_server                # all of it
//! cargo run --release -p percolator-cluster --example parameter_server -- --etcd http://127.0.0.1:2379
//! ```
//!
//! Each of its processes has the role `server` or `trainer`; examples/kubernetes runs them on a cluster. The
//! way of a gradient:
//!
//! ```text
//! data        a feed of digits, whose blocks a trainer leases
//!   v
//! trainer     weights and digits into a gradient: the classifier of the other examples
//!   v
//! client      its parts to the servers of all shards, which are found by their address, and found again
//!   v
//! wire        lines of JSON
//!   v
//! server      each part changes the server's shard, which goes into checkpoints
//! ```
//!
//! `show` starts the processes on one machine, kills a server and a trainer, and watches.

#[allow(dead_code, reason = "it is shared with other examples, which use the rest")]
#[path = "../../../../examples/lmdb_feed/classifier.rs"]
mod classifier;
mod client;
mod data;
#[allow(dead_code, reason = "it is shared with other examples, which write databases")]
#[path = "../../../../examples/lmdb_feed/digits.rs"]
mod digits;
mod options;
#[path = "../../../../examples/lmdb_feed/program.rs"]
mod program;
mod report;
mod server;
mod shards;
mod show;
#[cfg(test)]
mod tests;
mod trainer;
mod wire;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use options::{Options, Role};
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
    if options.end_with_input {
        thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            std::process::exit(1);
        });
    }
    match options.role {
        None => say(&show::run(&options.show, &show::this_program)?.to_string())?,
        Some(Role::Server(options)) => server::run(&options)?,
        Some(Role::Trainer(options)) => return trainer::run(&options),
        Some(Role::Report(job)) => say(&report::Report::of(&job.open()?, &job)?.to_string())?,
    }
    Ok(Ended::Done)
}

/// Prints a line at once, also into a pipe, and whole, although other processes print beside this one. A
/// closed output is an error here; `println!` would panic.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

/// Says what a process does whose work it is not to say it: it goes on if nobody reads that.
fn note(line: &str) {
    let _ = say(line);
}

/// Whether this process was asked to end: by SIGTERM, as Kubernetes does it, or SIGINT. It is best called
/// before anything that takes time: a container's first process gets no signal that it does not catch.
fn asked_to_end() -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals =
        async { io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)) };
    let (mut terminate, mut interrupt) = runtime.block_on(signals).context("cannot catch signals")?;
    let asked = Arc::new(AtomicBool::new(false));
    let set = asked.clone();
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        });
        set.store(true, Ordering::Relaxed);
    });
    Ok(asked)
}
