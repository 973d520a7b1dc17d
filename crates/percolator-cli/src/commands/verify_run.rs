//! `percolator verify-run`: verifies a run by its receipts.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use percolator::Receipt;
use percolator::receipt::DataDigest;
use percolator_cluster::leases::{EpochUnderWay, Job, JobAccount};
use percolator_files::shown;
use percolator_files::shown::count;
use percolator_proof::{
    ContentsDeviation, ContentsVerdict, EpochState, EpochVerdict, GivenSteps, Positions, Verdict,
};
use serde_json::{Value, json};

use crate::args::metadata::MetadataArgs;
use crate::run::exit;
use crate::terminal::out::{Out, json_line, tell};

/// What `--json` prints.
const SCHEMA: &str = "percolator.verify-run/1";

#[derive(Debug, Args)]
pub(crate) struct VerifyRun {
    /// All receipts of the run: of every rank, and from before and after it was resumed.
    #[arg(value_name = "RECEIPT", required_unless_present = "job",
        conflicts_with_all = ["job", "etcd", "metadata_folder"])]
    receipts: Vec<PathBuf>,
    /// The receipts of this job, whose workers lease blocks: they are where its records are. Only
    /// epochs are judged that are finished, from the first on.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    #[command(flatten)]
    metadata: MetadataArgs,
    /// Require the first N epochs to be covered [default: every epoch that another one follows].
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Also prove that the delivered bytes are those of the data set of this digest, from percolator digest.
    /// The receipts must be written with feed --receipt-contents.
    #[arg(long, value_name = "FILE")]
    digest: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl VerifyRun {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        // The exit code reports the result even if nobody reads the output.
        let mut out = Out::new(std::io::stdout().lock());
        let Found { names, receipts, done, under_way } = match self.receipts()? {
            Ok(found) => found,
            Err(NothingProven { why, under_way }) => {
                if self.json {
                    let none = Verdict { epochs: vec![], absent_epochs: vec![], absent_replicas: vec![] };
                    writeln!(out, "{}", json_line(SCHEMA, &as_json(&none, Some(&why), &under_way))?)?;
                }
                out.finish()?;
                return Ok(unproven(&why));
            }
        };
        let named = names.iter().map(String::as_str).zip(&receipts);
        let verdict = match &self.digest {
            None => Verdict::of(named)?,
            Some(path) => {
                let name = shown::path(path).to_string();
                Verdict::with_digest((&name, &DataDigest::load(path)?), named)?
            }
        };
        let required = self.epochs.unwrap_or(0).max(done);
        let why = why_not(&verdict, required, done);
        match self.json {
            true => writeln!(out, "{}", json_line(SCHEMA, &as_json(&verdict, why.as_deref(), &under_way))?)?,
            false => say(&mut out, &receipts, &verdict, &under_way)?,
        }
        if why.is_none() && !self.json {
            writeln!(out, "{}", summary(&verdict))?;
        }
        out.finish()?;
        Ok(why.map_or_else(|| exit::found(true), |why| unproven(&why)))
    }

    /// The receipts, or why there are none that prove anything.
    fn receipts(&self) -> anyhow::Result<Result<Found, NothingProven>> {
        if let Some(job) = &self.job {
            let JobAccount { done, receipts, under_way, was_set_back, .. } =
                Job::open(self.metadata.open()?, job)?.account()?;
            let why = if was_set_back {
                format!(
                    "the records of the job {job:?} were set back to a copy while it ran: what was done \
                     after the copy was made was done again, and counts once; nothing is proven"
                )
            } else if done == 0 {
                format!("no epoch of the job {job:?} is done yet: nothing is proven{}", far(&under_way))
            } else if receipts.is_empty() {
                format!("the job {job:?} has done {}, of which there are no receipts", count(done, "epoch"))
            } else {
                let (names, receipts) = receipts.into_iter().unzip();
                return Ok(Ok(Found { names, receipts, done, under_way }));
            };
            return Ok(Err(NothingProven { why, under_way }));
        }
        let receipts = self.receipts.iter().map(Receipt::load).collect::<Result<Vec<_>, _>>()?;
        let names = self.receipts.iter().map(|path| shown::path(path).to_string()).collect();
        Ok(Ok(Found { names, receipts, done: 0, under_way: Vec::new() }))
    }
}

/// Why the receipts do not prove what is required of them; `None` if they do.
fn why_not(verdict: &Verdict, required: u64, done: u64) -> Option<String> {
    if !verdict.is_sound() {
        let has_all = verdict.absent_epochs.is_empty() && verdict.absent_replicas.is_empty();
        let is_covered = has_all && verdict.epochs.iter().all(|epoch| epoch.state != EpochState::Broken);
        let unproven = verdict.epochs.iter().filter(|_| is_covered).find_map(why_unproven);
        let broken = || "the receipts do not prove that each epoch was covered exactly once".to_owned();
        return Some(unproven.unwrap_or_else(broken));
    }
    if verdict.epochs.is_empty() {
        return Some("the receipts have no step of any epoch: nothing is proven".to_owned());
    }
    let epoch = verdict.first_not_covered(required)?;
    Some(match epoch < done {
        true => format!("all blocks of epoch {epoch} are done, and their receipts do not cover it"),
        false => format!("epoch {epoch} was not covered, and --epochs {required} requires it"),
    })
}

/// Says why nothing is proven, which the exit code reports, too.
fn unproven(why: &str) -> ExitCode {
    tell(why);
    exit::found(false)
}

/// What is to be verified.
struct Found {
    /// A name for each receipt.
    names: Vec<String>,
    receipts: Vec<Receipt>,
    /// How many epochs are known to be done.
    done: u64,
    /// The epochs after them, which are not judged.
    under_way: Vec<EpochUnderWay>,
}

/// There are no receipts that prove anything.
struct NothingProven {
    why: String,
    under_way: Vec<EpochUnderWay>,
}

/// How far the first epoch is.
fn far(under_way: &[EpochUnderWay]) -> String {
    under_way.first().map_or_else(String::new, |EpochUnderWay { epoch, done, blocks, .. }| {
        format!(" ({done} of {blocks} blocks of epoch {epoch})")
    })
}

fn as_json(verdict: &Verdict, why_not: Option<&str>, under_way: &[EpochUnderWay]) -> Value {
    let epochs = verdict.absent_epochs.iter().map(|epochs| [epochs.start, epochs.end]);
    let under_way = under_way.iter().map(|EpochUnderWay { epoch, done, blocks, .. }| {
            json!({ "epoch": epoch, "blocks_done": done, "blocks": blocks })
        });
    let replicas = verdict.absent_replicas.iter().map(|absent| [absent.replicas.start, absent.replicas.end]);
    json!({
        "is_sound": why_not.is_none(),
        "why_not": why_not,
        "epochs": verdict.epochs.iter().map(epoch).collect::<Vec<_>>(),
        "absent_epochs": epochs.collect::<Vec<_>>(),
        "absent_replicas": replicas.collect::<Vec<_>>(),
        "under_way": under_way.collect::<Vec<_>>(),
    })
}

fn say(
    out: &mut impl Write,
    receipts: &[Receipt],
    verdict: &Verdict,
    under_way: &[EpochUnderWay],
) -> std::io::Result<()> {
    if let Some(first) = receipts.first() {
        let plan = first.plan();
        let world = plan.world();
        writeln!(
            out,
            "{} of {}: {}",
            count(receipts.len(), "receipt"),
            shown::message(first.source()),
            count(plan.job().records(), "record")
        )?;
        writeln!(out, "{} of {}", count(world.replicas(), "replica"), count(world.workers(), "worker"))?;
    }
    for absent in &verdict.absent_replicas {
        writeln!(out, "{absent}")?;
    }
    for absent in &verdict.absent_epochs {
        writeln!(
            out,
            "epochs {}..{}: in no receipt, although epochs before and after them are",
            absent.start, absent.end
        )?;
    }
    if let Some(EpochVerdict { epoch: first @ 1.., .. }) = verdict.epochs.first() {
        writeln!(out, "epochs 0..{first}: in no receipt, and not verified")?;
    }
    verdict.epochs.iter().try_for_each(|epoch| writeln!(out, "{epoch}"))?;
    under_way.iter().try_for_each(|EpochUnderWay { epoch, done, blocks, .. }| {
        writeln!(out, "epoch {epoch} is under way, and not judged: {done} of {blocks} blocks are done")
    })
}

/// Why the bytes are not proven of an epoch that was covered or is under way.
fn why_unproven(epoch: &EpochVerdict) -> Option<String> {
    let number = epoch.epoch;
    match &epoch.contents {
        Some(ContentsVerdict::Differ(_)) => {
            Some(format!("the bytes delivered in epoch {number} differ from the data set's"))
        }
        Some(ContentsVerdict::NotSaid { .. }) => Some(format!(
            "the receipts lack content hashes of epoch {number}: run feed with --receipt-contents"
        )),
        Some(ContentsVerdict::NotKnown) if epoch.state == EpochState::Covered => Some(format!(
            "the digest cannot prove the bytes of epoch {number}, which did not deliver all records: make \
             the digest with --each-record"
        )),
        _ => None,
    }
}

fn epochs_were(covered: usize) -> String {
    format!("{} {}", count(covered, "epoch"), if covered == 1 { "was" } else { "were" })
}

fn summary(verdict: &Verdict) -> String {
    let covered = verdict.epochs.iter().filter(|epoch| epoch.state == EpochState::Covered).count();
    let bad: u64 = verdict.epochs.iter().map(|epoch| epoch.bad.count).sum();
    let but = if bad == 0 { String::new() } else { format!(", but for {}", count(bad, "bad record")) };
    match verdict.epochs.len() - covered {
        0 => format!("all {} covered exactly once{but}", epochs_were(covered)),
        under_way => format!("{} covered exactly once{but}, {under_way} under way", epochs_were(covered)),
    }
}

fn epoch(epoch: &EpochVerdict) -> Value {
    let state = match epoch.state {
        EpochState::Covered => "covered",
        EpochState::UnderWay => "under way",
        _ => "broken",
    };
    let missing_steps = epoch.missing_steps.iter().map(|missing| {
        json!({
            "replicas": [missing.replicas.start, missing.replicas.end],
            "steps": [missing.steps.start, missing.steps.end],
        })
    });
    let doubled_steps = epoch.doubled_steps.iter().map(|doubled| {
        json!({
            "replica": doubled.replica,
            "steps": [doubled.steps.start, doubled.steps.end],
            "receipts": doubled.receipts,
        })
    });
    let deviations = epoch
        .deviations
        .iter()
        .map(|deviation| json!({ "receipt": deviation.receipt, "records": deviation.records }));
    let steps = epoch
        .steps
        .map(|GivenSteps { of, by_all, by_some }| json!({ "of": of, "by_all": by_all, "by_some": by_some }));
    json!({
        "epoch": epoch.epoch,
        "state": state,
        "times": epoch.times,
        "due": epoch.due,
        "delivered": epoch.delivered,
        "dropped": epoch.dropped,
        "pending": epoch.pending,
        "bad": positions(&epoch.bad),
        "missing": positions(&epoch.missing),
        "doubled": positions(&epoch.doubled),
        "steps": steps,
        "missing_steps": missing_steps.collect::<Vec<_>>(),
        "doubled_steps": doubled_steps.collect::<Vec<_>>(),
        "deviations": deviations.collect::<Vec<_>>(),
        "contents": epoch.contents.as_ref().map(contents),
    })
}

fn contents(contents: &ContentsVerdict) -> Value {
    let state = |state: &str| json!({ "state": state });
    match contents {
        ContentsVerdict::Proven => state("proven"),
        ContentsVerdict::NotSaid { receipts } => json!({ "state": "not said", "receipts": receipts }),
        ContentsVerdict::Differ(deviations) => {
            let deviation = |of: &ContentsDeviation| {
                let (found, due) = (of.found.to_string(), of.due.to_string());
                json!({ "receipts": of.receipts, "found": found, "due": due })
            };
            json!({ "state": "differ", "deviations": deviations.iter().map(deviation).collect::<Vec<_>>() })
        }
        // Also for states that a later release may add.
        _ => state("not known"),
    }
}

/// Ranges exclude their ends, as everywhere in the JSON.
fn positions(positions: &Positions) -> Value {
    let ranges: Vec<_> = positions.ranges.iter().map(|range| [range.start, range.end]).collect();
    json!({ "count": positions.count, "ranges": ranges, "has_more": positions.has_more })
}
