//! `percolator verify-run`: what the receipts of a run prove.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use percolator::receipt::{
    ContentsDeviation, ContentsVerdict, DataDigest, EpochState, EpochVerdict, Positions, Verdict,
};
use percolator::{Receipt, shown};
use serde_json::{Value, json};

use super::out::Out;

#[derive(Debug, Args)]
pub(crate) struct VerifyRun {
    /// The receipts of all ranks of the run, and of all its sessions.
    #[arg(value_name = "RECEIPT", required = true)]
    receipts: Vec<PathBuf>,
    /// So many epochs must have been covered, from the first on [default: those that were followed by another].
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Prove as well that the right bytes were delivered: those that this digest of the data set, as
    /// percolator digest wrote it, is of. It takes receipts that were written with --receipt-contents.
    #[arg(long, value_name = "FILE")]
    digest: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl VerifyRun {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let receipts = self.receipts.iter().map(Receipt::load).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = self.receipts.iter().map(|path| shown::path(path).to_string()).collect();
        let named = names.iter().map(String::as_str).zip(&receipts);
        let verdict = match &self.digest {
            None => Verdict::of(named)?,
            Some(path) => {
                let name = shown::path(path).to_string();
                Verdict::with_digest((&name, &DataDigest::load(path)?), named)?
            }
        };
        // Whether anybody reads it or not, the exit code says what was proven.
        let mut out = Out::new(std::io::stdout().lock());
        match self.json {
            true => writeln!(out, "{}", self.as_json(&verdict))?,
            false => say(&mut out, &receipts, &verdict)?,
        }
        out.flush()?;
        if !verdict.is_sound() {
            let has_all = verdict.absent_epochs.is_empty() && verdict.absent_replicas.is_empty();
            let is_covered = has_all && verdict.epochs.iter().all(|epoch| epoch.state != EpochState::Broken);
            match verdict.epochs.iter().filter(|_| is_covered).find_map(why_unproven) {
                Some(why) => bail!("{why}"),
                None => bail!("the receipts do not prove that each epoch was covered exactly once"),
            }
        }
        if verdict.epochs.is_empty() {
            bail!("the receipts have no step of any epoch: nothing is proven");
        }
        let asked = self.epochs.unwrap_or(0);
        if let Some(epoch) = verdict.first_not_covered(asked) {
            bail!("epoch {epoch} was not covered, and --epochs {asked} asks for it");
        }
        if !self.json {
            writeln!(out, "{}", summary(&verdict))?;
        }
        out.finish()
    }

    fn as_json(&self, verdict: &Verdict) -> Value {
        let asked = verdict.first_not_covered(self.epochs.unwrap_or(0));
        let absent = verdict.absent_replicas.iter();
        json!({
            "is_sound": verdict.is_sound() && asked.is_none(),
            "epochs": verdict.epochs.iter().map(epoch).collect::<Vec<_>>(),
            "absent_epochs": verdict.absent_epochs.iter().map(|epochs| [epochs.start, epochs.end]).collect::<Vec<_>>(),
            "absent_replicas": absent.map(|absent| [absent.replicas.start, absent.replicas.end]).collect::<Vec<_>>(),
        })
    }
}

fn say(out: &mut impl Write, receipts: &[Receipt], verdict: &Verdict) -> std::io::Result<()> {
    if let Some(first) = receipts.first() {
        let (plan, count) = (first.plan(), receipts.len());
        let world = plan.world();
        writeln!(
            out,
            "{count} receipt(s) of {}: {} records",
            shown::message(first.source()),
            plan.job().records()
        )?;
        writeln!(out, "{} replica(s) of {} worker(s)", world.replicas(), world.workers())?;
    }
    for absent in &verdict.absent_replicas {
        writeln!(out, "{absent}")?;
    }
    for absent in &verdict.absent_epochs {
        writeln!(
            out,
            "epochs {}..{}: in no receipt, and in some are epochs before and after",
            absent.start, absent.end
        )?;
    }
    if let Some(EpochVerdict { epoch: first @ 1.., .. }) = verdict.epochs.first() {
        writeln!(out, "epochs 0..{first}: in no receipt, and not judged")?;
    }
    verdict.epochs.iter().try_for_each(|epoch| writeln!(out, "{epoch}"))
}

/// What is said of an epoch that was covered, or is under way, and whose bytes are not proven.
fn why_unproven(epoch: &EpochVerdict) -> Option<String> {
    let number = epoch.epoch;
    match &epoch.contents {
        Some(ContentsVerdict::Differ(_)) => {
            Some(format!("other bytes than the data set has were delivered in epoch {number}"))
        }
        Some(ContentsVerdict::NotSaid { .. }) => Some(format!(
            "the receipts do not say which bytes were delivered in epoch {number}: they are written with --receipt-contents"
        )),
        Some(ContentsVerdict::NotKnown) if epoch.state == EpochState::Covered => Some(format!(
            "the digest does not prove which bytes were delivered in epoch {number}, which had not all records: make it with \
             --each-record"
        )),
        _ => None,
    }
}

fn summary(verdict: &Verdict) -> String {
    let covered = verdict.epochs.iter().filter(|epoch| epoch.state == EpochState::Covered).count();
    match verdict.epochs.len() - covered {
        0 => format!("all {covered} epoch(s) were covered exactly once"),
        under_way => format!("{covered} epoch(s) were covered exactly once, {under_way} under way"),
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
    let steps = epoch.steps;
    json!({
        "epoch": epoch.epoch,
        "state": state,
        "times": epoch.times,
        "due": epoch.due,
        "delivered": epoch.delivered,
        "dropped": epoch.dropped,
        "pending": epoch.pending,
        "missing": positions(&epoch.missing),
        "doubled": positions(&epoch.doubled),
        "steps": steps.map(|steps| json!({ "of": steps.of, "by_all": steps.by_all, "by_some": steps.by_some })),
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
            let deviation = |of: &ContentsDeviation| json!({ "receipts": of.receipts, "found": of.found.to_string(), "due": of.due.to_string() });
            json!({ "state": "differ", "deviations": deviations.iter().map(deviation).collect::<Vec<_>>() })
        }
        // Also what a later release may say.
        _ => state("not known"),
    }
}

/// Ranges without their ends, as everywhere in the JSON.
fn positions(positions: &Positions) -> Value {
    let ranges: Vec<_> = positions.ranges.iter().map(|range| [range.start, range.end]).collect();
    json!({ "count": positions.count, "ranges": ranges, "has_more": positions.has_more })
}
