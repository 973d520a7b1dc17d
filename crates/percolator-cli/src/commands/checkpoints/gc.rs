//! `percolator checkpoints gc`

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use percolator_cluster::checkpoint::{Archive, CleanOptions, Cleaned, KEPT_MAX, Left};
use percolator_cluster::store::Id;
use serde_json::{Value, json};

use super::{Ids, printable};

#[derive(Debug, Args)]
pub(super) struct Gc {
    #[command(flatten)]
    ids: Ids,
    /// Keep so many whole checkpoints of an id, the newest first [default: all that its record names]. Their
    /// files are read for that.
    #[arg(long, value_name = "N", value_parser = keep)]
    keep: Option<usize>,
    /// Remove also checkpoints that a restore could not read, although nothing shows that they are damaged.
    #[arg(long)]
    spared: bool,
    /// Remove also files that the metadata do not know, those of ids without a record, and, if a file that
    /// the record names is missing, those that it does not name. With the wrong --etcd-prefix, or another
    /// --metadata-folder, that is all of them.
    #[arg(long)]
    without_record: bool,
    /// Remove nothing: say what would be removed.
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let Gc { keep, spared, without_record, dry_run, .. } = *self;
        let options = CleanOptions { keep, spared, without_record, dry_run };
        let are_all = self.ids.named.is_empty();
        let is_clean = |cleaned: &Cleaned| match &cleaned.left {
            None => true,
            Some(Left::Held(_) | Left::NoRecord { .. } | Left::Unknown { .. }) => are_all,
            Some(_) => false,
        };
        let clean = |archive: &Archive, id: &Id| archive.clean(id, &options);
        let schema = "percolator.checkpoints.gc/1";
        self.ids.each(schema, clean, is_clean, |out, cleaned| say(out, cleaned, dry_run), as_json)
    }
}

/// How many checkpoints may be kept.
fn keep(text: &str) -> Result<usize, String> {
    let keep = text.parse().ok().filter(|keep| (1..=KEPT_MAX).contains(keep));
    keep.ok_or_else(|| format!("from 1 to {KEPT_MAX} checkpoints can be kept"))
}

/// Why files stay.
fn reason(left: &Left) -> String {
    match left {
        Left::Held(by) => format!("it is held by {by}: its files are left to that process"),
        Left::NoRecord { files } => {
            format!("there is no record of it, and its {files} file(s) stay: with --without-record they go")
        }
        Left::NotUnderstood(error) => format!("{error}; it may name any file, so all stay"),
        Left::Missing(missing) => format!(
            "files stay that the record does not name: the file of its checkpoint {missing} is missing, so \
             the record may be older than they are; with --without-record they go"
        ),
        Left::Unknown { files } => format!(
            "these metadata do not know {files} file(s) of it, which stay: with --without-record they go"
        ),
        Left::Unreadable(keys) => {
            format!("files stay that no record names; {} says why, until it is removed", keys.join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn say(out: &mut dyn Write, cleaned: &Cleaned, is_dry: bool) -> std::io::Result<()> {
    let id = printable(cleaned.id.as_str());
    if let Some(left) = &cleaned.left {
        writeln!(out, "{id}: {}", printable(&reason(left)))?;
    }
    let removed = if is_dry { "would remove" } else { "removed" };
    for uuid in &cleaned.removed {
        let was = if cleaned.taken_out.iter().any(|entry| entry.uuid == *uuid) {
            "was kept"
        } else {
            "no record names it"
        };
        writeln!(out, "{id}: {removed} {uuid}: {was}")?;
    }
    if cleaned.unfinished > 0 {
        writeln!(out, "{id}: {removed} {} unfinished file(s)", cleaned.unfinished)?;
    }
    for entry in cleaned.taken_out.iter().filter(|entry| !cleaned.removed.contains(&entry.uuid)) {
        let verb = if is_dry { "would take" } else { "took" };
        writeln!(out, "{id}: {verb} {} out of the record: its file was missing", entry.uuid)?;
    }
    let is_nothing = cleaned.removed.is_empty() && cleaned.taken_out.is_empty() && cleaned.unfinished == 0;
    if cleaned.left.is_none() && is_nothing {
        writeln!(out, "{id}: nothing to remove")?;
    }
    Ok(())
}

fn as_json(cleaned: &Cleaned) -> Value {
    let uuids = |uuids: &mut dyn Iterator<Item = String>| uuids.collect::<Vec<_>>();
    json!({
        "id": cleaned.id.as_str(),
        "removed": uuids(&mut cleaned.removed.iter().map(ToString::to_string)),
        "taken_out": uuids(&mut cleaned.taken_out.iter().map(|entry| entry.uuid.to_string())),
        "unfinished": cleaned.unfinished,
        "left": cleaned.left.as_ref().map(reason),
    })
}
