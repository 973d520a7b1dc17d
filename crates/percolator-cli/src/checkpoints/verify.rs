//! `percolator checkpoints verify`

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use percolator_cluster::checkpoint::Verified;
use percolator_cluster::store::Id;
use percolator_files::shown;
use serde_json::{Value, json};

use super::{Place, complain, id, ids, printable};
use crate::exit;
use crate::out::Out;

#[derive(Debug, Args)]
pub(super) struct Verify {
    #[command(flatten)]
    place: Place,
    /// Only these ids. One that has no record is an error then.
    #[arg(value_name = "ID", value_parser = id)]
    ids: Vec<Id>,
    /// Print a JSON array, with an object for each id.
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let archive = self.place.open()?;
        let ids = ids(&archive, &self.ids)?;
        let mut out = Out::new(std::io::stdout().lock());
        let (mut all, mut could_look, mut is_whole) = (Vec::new(), true, true);
        for id in &ids {
            let verified = match archive.verify(id) {
                Ok(verified) => verified,
                Err(error) => {
                    complain(id, error);
                    could_look = false;
                    continue;
                }
            };
            // A user who names an id expects a checkpoint.
            let is_fine = verified.is_whole() && (self.ids.is_empty() || verified.kept.record.is_some());
            is_whole &= is_fine;
            match self.json {
                true => all.push(as_json(&verified, is_fine)),
                false => say(&mut out, &verified)?,
            }
        }
        match self.json {
            true => writeln!(out, "{:#}", Value::Array(all))?,
            false if ids.is_empty() => writeln!(out, "there are no checkpoints")?,
            false => {}
        }
        out.finish()?;
        Ok(if could_look { exit::found(is_whole) } else { exit::failed() })
    }
}

/// What is wrong, with its causes.
fn fault(error: &percolator_cluster::checkpoint::Fault) -> String {
    shown::with_sources(error)
}

fn say(out: &mut impl Write, verified: &Verified) -> std::io::Result<()> {
    let (kept, id) = (&verified.kept, printable(verified.kept.id.as_str()));
    match &kept.record {
        None => writeln!(out, "{id}: there is no record")?,
        Some(Err(error)) => writeln!(out, "{id}: {}", printable(&error.to_string()))?,
        Some(Ok(_)) => {}
    }
    for (entry, found) in &verified.checked {
        match found {
            Ok(bytes) => writeln!(out, "{id}: {} is whole, {bytes} bytes", entry.uuid)?,
            Err(error) => writeln!(out, "{id}: {}: {}", entry.uuid, printable(&fault(error)))?,
        }
    }
    match kept.unnamed().count() {
        0 => Ok(()),
        files => writeln!(out, "{id}: no record names {files} file(s): nothing to compare them with"),
    }
}

fn as_json(verified: &Verified, is_fine: bool) -> Value {
    let kept = &verified.kept;
    let checked = verified.checked.iter().map(|(entry, found)| {
        json!({
            "uuid": entry.uuid.to_string(),
            "bytes": found.as_ref().ok(),
            "fault": found.as_ref().err().map(fault),
        })
    });
    let record = kept.record.as_ref().and_then(|record| record.as_ref().err());
    json!({
        "id": kept.id.as_str(),
        "is_whole": is_fine,
        "has_record": kept.record.is_some(),
        "fault": record.map(ToString::to_string),
        "checkpoints": checked.collect::<Vec<_>>(),
        "unnamed": kept.unnamed().map(|file| file.uuid.to_string()).collect::<Vec<_>>(),
    })
}
