//! `percolator checkpoints`: the states of processes, in a store, and their records.

mod gc;
mod list;
mod restore;
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use percolator_cluster::checkpoint::Archive;
use percolator_cluster::store::{FolderStore, Id};
use serde_json::Value;

use crate::args::metadata::MetadataArgs;
use crate::run::exit;
use crate::terminal::out::{json_line, printable, stdout, tell};

#[derive(Debug, Args)]
pub(crate) struct Checkpoints {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List each id with its checkpoints, and the files that no record names.
    List(Ids),
    /// Read every checkpoint, and compare its length, MD5 and SHA-256 with its record.
    ///
    /// The exit code is 1 if one is not what was written, or an ID that is given has no record; each is
    /// named, with the reason.
    Verify(Ids),
    /// Write the newest checkpoint that is whole, or one part of it, to a file.
    ///
    /// It is found as a process finds it that begins: the newest first, then the older ones that are kept.
    /// Which one it was, and why not a newer one, is said. The training may go on meanwhile.
    Restore(restore::Restore),
    /// Remove files that no record names.
    ///
    /// An id that a process holds is left alone: its writer removes them itself. The exit code is 1 if an id
    /// that was named could not be cleaned up, or a record is not understood.
    Gc(gc::Gc),
}

/// Where the checkpoints are.
#[derive(Debug, Args)]
struct Place {
    /// The folder that has the files of checkpoints.
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    #[command(flatten)]
    metadata: MetadataArgs,
}

impl Place {
    fn open(&self) -> anyhow::Result<Archive> {
        let store = Arc::new(FolderStore::open(&self.store)?);
        Ok(Archive::new(store, self.metadata.open()?))
    }
}

// The ids that are looked at, and how that is reported. (The subcommands have the help texts.)
#[derive(Debug, Args)]
struct Ids {
    #[command(flatten)]
    place: Place,
    /// Only these ids.
    #[arg(value_name = "ID", value_parser = id)]
    named: Vec<Id>,
    /// Print a line of JSON for each id.
    #[arg(long)]
    json: bool,
}

impl Ids {
    /// Looks at each id that was named, or at all there are, and reports what was found: in JSON, by objects
    /// of this schema. The exit code says whether all of it is fine.
    fn each<T, E: Into<anyhow::Error>>(
        &self,
        schema: &str,
        look: impl Fn(&Archive, &Id) -> Result<T, E>,
        is_fine: impl Fn(&T) -> bool,
        say: impl Fn(&mut dyn Write, &T) -> io::Result<()>,
        as_json: impl Fn(&T) -> Value,
    ) -> anyhow::Result<ExitCode> {
        let archive = self.place.open()?;
        let ids = if self.named.is_empty() { all_ids(&archive)? } else { self.named.clone() };
        let mut out = stdout();
        let (mut could_look, mut are_fine) = (true, true);
        for id in &ids {
            match look(&archive, id) {
                Ok(found) => {
                    are_fine &= is_fine(&found);
                    match self.json {
                        true => writeln!(out, "{}", json_line(schema, &as_json(&found))?)?,
                        false => say(&mut out, &found)?,
                    }
                    // At once: the next id may take long.
                    out.flush()?;
                }
                // The others go on.
                Err(error) => {
                    let error: anyhow::Error = error.into();
                    tell(&format!("the id {}: {error:#}", id.as_str()));
                    could_look = false;
                }
            }
        }
        if ids.is_empty() && !self.json {
            writeln!(out, "there are no checkpoints")?;
        }
        out.finish()?;
        Ok(if could_look { exit::found(are_fine) } else { exit::failed() })
    }
}

impl Checkpoints {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.what {
            What::List(ids) => list::run(ids),
            What::Verify(ids) => verify::run(ids),
            What::Restore(restore) => restore.run(),
            What::Gc(gc) => gc.run(),
        }
    }
}

/// An id, as it is on the command line.
fn id(text: &str) -> Result<Id, String> {
    Id::new(text).map_err(|error| error.to_string())
}

/// All ids there are. Keys that belong to none are said.
fn all_ids(archive: &Archive) -> anyhow::Result<Vec<Id>> {
    let found = archive.ids()?;
    for key in found.other_keys {
        tell(&format!("the record {key} is not that of an id, and is left alone"));
    }
    Ok(found.ids.into_iter().collect())
}
