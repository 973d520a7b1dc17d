//! What people see: lines while it runs, and what is proven of a job.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::bail;
use percolator_cluster::leases::{Job, JobStatus, JobVerdict};

use crate::address;
use crate::client::{Patience, Servers};
use crate::digits::Test;
use crate::options::ReportOptions;
use crate::shards::Shard;

/// How long a report waits for a server.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints a line at once, also into a pipe, and whole, although other processes print beside this one. A
/// closed output is an error here; `println!` would panic.
pub(crate) fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

/// Says what a process does whose work it is not to say it: it goes on if nobody reads that.
pub(crate) fn note(line: &str) {
    let _ = say(line);
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Says what receipts prove. It is an error if they do not prove each epoch of the job that is done.
pub(crate) fn say_verdict(proven: &JobVerdict, status: &JobStatus) -> anyhow::Result<()> {
    let (done, epochs) = (proven.done, status.epochs.unwrap_or(0));
    if !proven.is_sound() {
        proven.verdict.epochs.iter().try_for_each(|epoch| say(&epoch.to_string()))?;
        bail!(
            "the receipts do not prove that each of the {done} epoch(s) that are done had every record once"
        );
    }
    let records = proven.verdict.epochs.first().map_or(0, |epoch| epoch.due);
    say(&format!("verdict: {done} of {epochs} epochs are proven: each had all {records} digits once"))?;
    Ok(())
}

/// The role `report`.
pub(crate) fn run(options: &ReportOptions) -> anyhow::Result<()> {
    let (metadata, job) = (options.place.open()?, &options.job);
    let mut servers = 0;
    for shard in Shard::all(&job.name, job.shards) {
        match address::find(&*metadata, &shard)? {
            Some(found) => {
                servers += 1;
                let how =
                    found.restored.map_or("begun anew".to_owned(), |uuid| format!("restored from {uuid}"));
                say(&format!(
                    "{shard}: at {}, process {} on {}, {how}",
                    found.address, found.pid, found.host
                ))?;
            }
            None => say(&format!("{shard}: no server"))?,
        }
    }
    if servers == job.shards {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let patience = Patience { who: "report", at_most: PATIENCE };
        let mut servers = Servers::new(&metadata, &job.name, job.shards);
        let (weights, updates) = runtime.block_on(servers.pull(patience))?;
        let accuracy = Test::new()?.accuracy(&weights)?;
        say(&format!("accuracy {} on the test digits, after {updates:?} updates", percent(accuracy)))?;
    }
    let found = Job::open(metadata, &job.name)?;
    let status = found.status()?;
    let blocks = status.blocks().unwrap_or(0);
    say(&format!("{} of {blocks} blocks are done, {} workers are there", status.done, status.workers.len()))?;
    let verdict = found.verdict(None)?;
    if verdict.done == 0 {
        return Ok(say("no epoch is done yet: nothing is proven")?);
    }
    say_verdict(&verdict, &status)
}
