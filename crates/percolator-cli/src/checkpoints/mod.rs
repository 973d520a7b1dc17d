//! `percolator checkpoints`: the states of processes, in a store, and their records.

mod gc;
mod list;
mod restore;
mod verify;

use std::io::{Write as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use percolator_cluster::checkpoint::Archive;
use percolator_cluster::store::{FolderStore, Id};
use percolator_files::shown;

use crate::metadata::MetadataArgs;

#[derive(Debug, Args)]
pub(crate) struct Checkpoints {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List each id with its checkpoints, and the files that no record names.
    List(list::List),
    /// Read every checkpoint, and compare its length, MD5 and SHA-256 with its record.
    ///
    /// The exit code is 1 if one is not what was written; each is named, with the reason.
    Verify(verify::Verify),
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

impl Checkpoints {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.what {
            What::List(list) => list.run(),
            What::Verify(verify) => verify.run(),
            What::Restore(restore) => restore.run(),
            What::Gc(gc) => gc.run(),
        }
    }
}

/// An id, as it is on the command line.
fn id(text: &str) -> Result<Id, String> {
    Id::new(text).map_err(|error| error.to_string())
}

/// The ids that were named, or all there are. Keys that belong to none are said.
fn ids(archive: &Archive, named: &[Id]) -> anyhow::Result<Vec<Id>> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let found = archive.ids()?;
    for key in found.other_keys {
        let key = printable(&key);
        let _ = writeln!(stderr(), "percolator: the record {key} is not that of an id, and is left alone");
    }
    Ok(found.ids.into_iter().collect())
}

/// Says what is wrong with an id; the others go on.
fn complain(id: &Id, error: impl Into<anyhow::Error>) {
    let error = format!("{:#}", error.into());
    let _ = writeln!(stderr(), "percolator: the id {}: {}", printable(id.as_str()), printable(&error));
}

/// An id or a key, for a terminal.
fn printable(name: &str) -> String {
    shown::message(name).to_string()
}
