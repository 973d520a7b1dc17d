//! `percolator checkpoints gc`

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use percolator_cluster::checkpoint::{CleanOptions, Cleaned, KEPT_MAX, Left};
use percolator_cluster::store::Id;
use serde_json::{Value, json};

use super::{Place, complain, id, ids, printable};
use crate::exit;
use crate::out::Out;

#[derive(Debug, Args)]
pub(super) struct Gc {
    #[command(flatten)]
    place: Place,
    /// Only these ids.
    #[arg(value_name = "ID", value_parser = id)]
    ids: Vec<Id>,
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
    /// Print a JSON array, with an object for each id.
    #[arg(long)]
    json: bool,
}

impl Gc {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let archive = self.place.open()?;
        let Gc { keep, spared, without_record, dry_run, .. } = *self;
        let options = CleanOptions { keep, spared, without_record, dry_run };
        let ids = ids(&archive, &self.ids)?;
        let mut out = Out::new(std::io::stdout().lock());
        let (mut all, mut could_look, mut is_clean) = (Vec::new(), true, true);
        for id in &ids {
            let cleaned = match archive.clean(id, &options) {
                Ok(cleaned) => cleaned,
                Err(error) => {
                    complain(id, error);
                    could_look = false;
                    continue;
                }
            };
            is_clean &= match &cleaned.left {
                None => true,
                Some(Left::Held(_) | Left::NoRecord { .. } | Left::Unknown { .. }) => self.ids.is_empty(),
                Some(_) => false,
            };
            match self.json {
                true => all.push(as_json(&cleaned)),
                false => say(&mut out, &cleaned, dry_run)?,
            }
        }
        match self.json {
            true => writeln!(out, "{:#}", Value::Array(all))?,
            false if ids.is_empty() => writeln!(out, "there are no checkpoints")?,
            false => {}
        }
        out.finish()?;
        Ok(if could_look { exit::found(is_clean) } else { exit::failed() })
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

fn say(out: &mut impl Write, cleaned: &Cleaned, is_dry: bool) -> std::io::Result<()> {
    let id = printable(cleaned.id.as_str());
    if let Some(left) = &cleaned.left {
        writeln!(out, "{id}: {}", printable(&reason(left)))?;
    }
    for uuid in &cleaned.removed {
        let was = if cleaned.taken_out.iter().any(|entry| entry.uuid == *uuid) {
            "was kept"
        } else {
            "no record names it"
        };
        writeln!(out, "{id}: {} {uuid}: {was}", if is_dry { "would remove" } else { "removed" })?;
    }
    if cleaned.unfinished > 0 {
        let verb = if is_dry { "would remove" } else { "removed" };
        writeln!(out, "{id}: {verb} {} unfinished file(s)", cleaned.unfinished)?;
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
