//! `percolator leases`: a job whose workers lease blocks of its epochs.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use percolator_cluster::leases::{BlockId, EpochUnderWay, Holder, Job, JobStatus, LiveWorker, OpenBlock};
use percolator_files::shown;
use serde_json::{Value, json};

use crate::args::metadata::MetadataArgs;
use crate::terminal::out::{json_line, stdout};

#[derive(Debug, Args)]
pub(crate) struct Leases {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show how far a job is: blocks done, held (by whom, how long) and left, and its workers.
    Status {
        #[command(flatten)]
        job: JobArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Hand out no more blocks: the workers finish what they have, and end.
    Drain {
        #[command(flatten)]
        job: JobArgs,
        /// Hand out blocks again.
        #[arg(long)]
        undo: bool,
    },
    /// Remove all records of a job, its receipts too. The next worker begins it anew.
    Reset {
        #[command(flatten)]
        job: JobArgs,
        /// Also if workers live: what they have is lost to them.
        #[arg(short, long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
struct JobArgs {
    /// The job's name.
    #[arg(long = "job", value_name = "NAME")]
    name: String,
    #[command(flatten)]
    metadata: MetadataArgs,
}

impl JobArgs {
    fn open(&self) -> anyhow::Result<Job> {
        Ok(Job::open(self.metadata.open()?, &self.name)?)
    }
}

impl Leases {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.what {
            What::Status { job, json } => {
                let status = job.open()?.status()?;
                let mut out = stdout();
                match json {
                    true => writeln!(out, "{}", json_line("percolator.leases.status/1", &as_json(&status))?)?,
                    false => say(&mut out, &job.name, &status)?,
                }
                out.finish()
            }
            What::Drain { job, undo: false } => Ok(job.open()?.drain()?),
            What::Drain { job, undo: true } => Ok(job.open()?.undrain()?),
            What::Reset { job, force: false } => Ok(Job::reset(&job.metadata.open()?, &job.name)?),
            What::Reset { job, force: true } => Ok(Job::force_reset(&job.metadata.open()?, &job.name)?),
        }
    }
}

fn say(out: &mut impl Write, name: &str, status: &JobStatus) -> std::io::Result<()> {
    let JobStatus { source, steps_per_epoch, steps_per_block, blocks_per_epoch, done, open, workers, .. } =
        status;
    writeln!(out, "{}: {}", shown::message(name), shown::message(source))?;
    let epochs =
        status.epochs.map_or_else(|| "no end of epochs".to_owned(), |epochs| format!("{epochs} epochs"));
    writeln!(
        out,
        "{epochs}; an epoch has {steps_per_epoch} steps in {blocks_per_epoch} blocks of {steps_per_block}"
    )?;
    let held = open.iter().filter(|open| !open.holders.is_empty()).count() as u64;
    let waits = open.iter().filter(|open| open.holders.is_empty() && open.times > 0).count();
    let ended = if status.is_drained { "; drained: no more are handed out" } else { "" };
    match status.blocks() {
        Some(blocks) => {
            let (bar, left) = (bar(*done, blocks), blocks.saturating_sub(done + held));
            writeln!(out, "{bar} {done} of {blocks} blocks done, {held} held, {left} left{ended}")?;
        }
        None => writeln!(out, "{done} blocks done, {held} held, up to {}{ended}", status.next)?,
    }
    for EpochUnderWay { epoch, done, held, blocks, .. } in status.epochs_by_state().1 {
        let (bar, left) = (bar(done, blocks), blocks.saturating_sub(done + held));
        writeln!(out, "  epoch {epoch} {bar} {done} of {blocks} done, {held} held, {left} left")?;
    }
    if waits > 0 {
        writeln!(out, "{waits} block(s) of workers that have died wait for the next worker that asks")?;
    }
    if status.was_set_back {
        writeln!(out, "the records were set back to a copy: what was done since it was made is done again")?;
    }
    if status.is_removed {
        writeln!(out, "the job is being removed; if its reset was cut short, run it again")?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for OpenBlock { block, times, acknowledged, holders, .. } in open.iter().filter(|open| open.times > 0) {
        let holders: Vec<_> = holders.iter().map(|held| holder(held, now)).collect();
        let holders = if holders.is_empty() { "nobody".to_owned() } else { holders.join(" and ") };
        writeln!(out, "  {block}: {holders}; {acknowledged} steps acknowledged, handed out {times} time(s)")?;
    }
    for LiveWorker { worker, host, pid, steps_per_second, .. } in workers {
        write!(out, "worker {} (process {pid} on {})", shown::message(worker), shown::message(host))?;
        match steps_per_second {
            Some(rate) => writeln!(out, ", {rate:.3} steps/s")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// Who has a block, and how long it has had it by the clocks of both machines.
fn holder(Holder { worker, host, pid, since, .. }: &Holder, now: u64) -> String {
    let held = now.saturating_sub(*since);
    format!("{} (process {pid} on {}) for {held} s", shown::message(worker), shown::message(host))
}

fn bar(done: u64, of: u64) -> String {
    const WIDTH: usize = 20;
    let full = u128::from(done) * WIDTH as u128 / u128::from(of.max(1));
    let full = usize::try_from(full).unwrap_or(WIDTH).min(WIDTH);
    format!("[{}{}]", "#".repeat(full), ".".repeat(WIDTH - full))
}

fn as_json(status: &JobStatus) -> Value {
    let block = |BlockId { epoch, number }: BlockId| json!({ "epoch": epoch, "number": number });
    let holder = |holder: &Holder| {
        let Holder { worker, host, pid, since, .. } = holder;
        json!({ "worker": worker, "host": host, "pid": pid, "since": since })
    };
    let worker = |worker: &LiveWorker| {
        let LiveWorker { worker, host, pid, since, steps_per_second, .. } = worker;
        let rate = steps_per_second;
        json!({ "worker": worker, "host": host, "pid": pid, "since": since, "steps_per_second": rate })
    };
    let epoch = |one: &EpochUnderWay| {
        let EpochUnderWay { epoch, done, held, blocks, .. } = one;
        json!({ "epoch": epoch, "blocks_done": done, "blocks_held": held, "blocks": blocks })
    };
    let open = status.open.iter().map(|open| {
        json!({
            "block": block(open.block),
            "times": open.times,
            "acknowledged_steps": open.acknowledged,
            "holders": open.holders.iter().map(holder).collect::<Vec<_>>(),
        })
    });
    json!({
        "source": status.source,
        "epochs": status.epochs,
        "steps_per_epoch": status.steps_per_epoch,
        "steps_per_block": status.steps_per_block,
        "blocks_per_epoch": status.blocks_per_epoch,
        "blocks": status.blocks(),
        "done": status.done,
        "is_done": status.is_done(),
        "is_drained": status.is_drained,
        "is_removed": status.is_removed,
        "was_set_back": status.was_set_back,
        "duplicates_below": status.duplicates_below,
        "next": block(status.next),
        "epochs_under_way": status.epochs_by_state().1.iter().map(epoch).collect::<Vec<_>>(),
        "open": open.collect::<Vec<_>>(),
        "workers": status.workers.iter().map(worker).collect::<Vec<_>>(),
    })
}
