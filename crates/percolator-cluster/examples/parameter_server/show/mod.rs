//! The whole show on one machine: servers, trainers, and one server that is killed in the middle.
//!
//! What it does to the others it does by signals alone. What it knows of them, their records say.

mod processes;
mod stage;

use std::fmt;
use std::net::TcpListener;
use std::time::Duration;

use percolator_cluster::leases::{JobStatus, JobVerdict};

#[cfg(test)]
pub(crate) use self::processes::Process;
pub(crate) use self::processes::{Spawn, end_with};
use self::stage::Stage;
use crate::address::Address;
use crate::options::AllOptions;
use crate::report::percent;

/// After this part of the blocks, a server is killed; after that one, a trainer.
const SERVER_DIES_AFTER: f64 = 1.0 / 12.0;
const TRAINER_DIES_AFTER: f64 = 0.5;
/// How long it is waited for any one thing.
const LIMIT: Duration = Duration::from_secs(60);

/// What the show has shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The server that was killed, and the one in its place.
    pub(crate) killed: Address,
    pub(crate) back: Address,
    /// How many updates it had taken when it was last asked.
    pub(crate) updates_seen: u64,
    /// The share of the test digits that was read right: when nothing was learned, before the kill, with the
    /// restored shard, and at the end.
    pub(crate) at_first: f64,
    pub(crate) before: f64,
    pub(crate) restored: f64,
    pub(crate) at_last: f64,
    /// What the receipts prove, and how the job stands.
    pub(crate) verdict: JobVerdict,
    pub(crate) status: JobStatus,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { killed, back, updates_seen, at_first, before, restored, at_last, .. } = self;
        write!(
            f,
            "a server was killed at {}, and came back at {} with {} of {updates_seen} updates or a few more; \
             accuracy {} at first, {} before, {} restored, {} at the end",
            killed.address,
            back.address,
            back.updates,
            percent(*at_first),
            percent(*before),
            percent(*restored),
            percent(*at_last)
        )
    }
}

/// Plays it.
pub(crate) fn run(options: &AllOptions, spawn: &Spawn<'_>) -> anyhow::Result<Shown> {
    let mut stage = Stage::set(options, spawn)?;
    let shown = play(&mut stage, options);
    // Whatever came of it, nothing of it stays in an etcd that others use.
    let cleared = stage.clear();
    let shown = shown?;
    cleared?;
    Ok(shown)
}

fn play(stage: &mut Stage<'_>, options: &AllOptions) -> anyhow::Result<Shown> {
    for number in 0..options.servers {
        stage.start_server(number)?;
    }
    for number in 0..options.servers {
        stage.wait_for_server(number, None)?;
    }
    let (at_first, _) = stage.accuracy()?;
    stage.say(&format!("the weights are new: accuracy {} on the test digits", percent(at_first)))?;
    for _ in 0..options.trainers {
        stage.start_trainer()?;
    }
    stage.wait_for_blocks(SERVER_DIES_AFTER)?;
    let number = options.servers / 2;
    stage.wait_for_checkpoint(number)?;
    let (before, updates) = stage.accuracy()?;
    let updates_seen = updates[usize::try_from(number)?];
    let killed = stage.kill_server(number)?;
    stage.say(&format!(
        "the server of shard {number} is killed (process {}, at {}), after {updates_seen} updates or a few \
         more; accuracy was {}",
        killed.pid,
        killed.address,
        percent(before)
    ))?;
    let back = bring_back(stage, number, &killed)?;
    let (restored, _) = stage.accuracy()?;
    stage.say(&format!(
        "the server of shard {number} is back: process {}, at {}, with the {} updates of checkpoint {}; \
         accuracy {}",
        back.pid,
        back.address,
        back.updates,
        back.restored.map_or_else(|| "none".to_owned(), |uuid| uuid.to_string()),
        percent(restored)
    ))?;
    if options.kill_trainer {
        stage.wait_for_blocks(TRAINER_DIES_AFTER)?;
        stage.replace_trainer()?;
    }
    let status = stage.wait_for_end()?;
    let (at_last, _) = stage.accuracy()?;
    stage.say(&format!("all {} blocks are done: accuracy {}", status.done, percent(at_last)))?;
    let verdict = stage.verdict()?;
    stage.end_servers()?;
    Ok(Shown { killed, back, updates_seen, at_first, before, restored, at_last, verdict, status })
}

/// Starts a server in place of one that was killed. It waits for the lease of that one, and goes on with its
/// checkpoint.
fn bring_back(stage: &mut Stage<'_>, number: u32, killed: &Address) -> anyhow::Result<Address> {
    // Somebody else has the port meanwhile, as on another machine: so the server comes back on another one,
    // and whoever still looks for it here gets no answer. If it cannot be had, it is taken.
    let taken = TcpListener::bind(killed.address);
    stage.start_server(number)?;
    let back = stage.wait_for_server(number, Some(killed))?;
    drop(taken);
    Ok(back)
}
