//! `percolator checkpoints verify`

use std::io::Write;
use std::process::ExitCode;

use percolator_cluster::checkpoint::{Archive, Verified};
use percolator_files::shown;
use serde_json::{Value, json};

use super::{Ids, printable};

pub(super) fn run(ids: &Ids) -> anyhow::Result<ExitCode> {
    // A user who names an id expects a checkpoint.
    let are_all = ids.named.is_empty();
    let is_fine = |verified: &Verified| verified.is_whole() && (are_all || verified.kept.record.is_some());
    let schema = "percolator.checkpoints.verify/1";
    ids.each(schema, Archive::verify, is_fine, say, |verified| as_json(verified, is_fine(verified)))
}

/// What is wrong, with its causes.
fn fault(error: &percolator_cluster::checkpoint::Fault) -> String {
    shown::with_sources(error)
}

fn say(out: &mut dyn Write, verified: &Verified) -> std::io::Result<()> {
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
