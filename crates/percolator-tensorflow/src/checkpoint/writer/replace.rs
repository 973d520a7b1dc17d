//! How a checkpoint takes the place of an earlier one with its prefix.
//!
//! Invariant: at every moment, the prefix or the prefix with `.percolator-previous` behind it is that
//! of a whole checkpoint, if one of them was before; and each is that of a whole checkpoint or of none. A
//! checkpoint is there if its index is: of the earlier one, the index is linked last and removed first.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use percolator::folder_turn::FolderTurn;
use percolator::whole_file::{self, Existing};

use super::data_file::{data_path, index_path};
use super::error::WriteError;
use crate::paths::{folder_of, with_suffix};

/// What follows the prefix of an earlier checkpoint. The ending is reserved: no caller's checkpoint has it.
pub(crate) const PREVIOUS: &str = ".percolator-previous";

/// A checkpoint that is about to be named, and the earlier one with its prefix. Nobody else names files in
/// its folder meanwhile.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    prefix: &'a Path,
    /// The data files of the new checkpoint.
    shards: usize,
    /// The prefix of the earlier checkpoint, while the new one is not there.
    previous: Option<PathBuf>,
    _turn: FolderTurn,
}

impl<'a> Replacement<'a> {
    /// Keeps the earlier checkpoint, if there is one, under another prefix.
    pub(super) fn begin(prefix: &'a Path, shards: usize, existing: Existing) -> Result<Self, WriteError> {
        let turn = FolderTurn::take(folder_of(prefix));
        check_free(prefix, existing)?;
        let previous = previous_prefix(prefix);
        let is_there = exists(&index_path(prefix))?;
        if is_there {
            // If there are both, a writer was killed before it removed one, and both are whole.
            remove(&previous)?;
            for (path, ending) in data_files(prefix)? {
                keep(&path, &with_suffix(&previous, &ending))?;
            }
            sync_folder(prefix);
            keep(&index_path(prefix), &index_path(&previous))?;
            sync_folder(prefix);
        }
        let is_kept = is_there || exists(&index_path(&previous))?;
        Ok(Replacement { prefix, shards, previous: is_kept.then_some(previous), _turn: turn })
    }

    /// The prefix of the earlier checkpoint.
    pub(super) fn previous(&self) -> Option<&Path> {
        self.previous.as_deref()
    }

    /// Makes the prefix that of no checkpoint. A link at the index's path stays: the new index goes to where
    /// it leads.
    pub(super) fn remove_index(&self) -> Result<(), WriteError> {
        let path = index_path(self.prefix);
        whole_file::remove(&path).map_err(WriteError::io(&path, "remove the file"))?;
        if self.previous.is_some() {
            sync_folder(self.prefix);
        }
        Ok(())
    }

    /// Checks that the new index is at its path. Until then, the earlier checkpoint must stay.
    pub(super) fn check_index(&self) -> Result<(), WriteError> {
        let path = index_path(self.prefix);
        let found = fs::metadata(&path).map(drop);
        found.map_err(WriteError::io(&path, "find the file that was just named"))
    }

    /// Removes what the new checkpoint, which is there, has replaced. What cannot be removed stays, and harms
    /// nothing.
    pub(super) fn end(self) {
        if let Some(previous) = &self.previous {
            let _ = remove(previous);
        }
        let new: Vec<_> = (0..self.shards).map(|shard| data_path(self.prefix, shard, self.shards)).collect();
        for (path, _) in data_files(self.prefix).unwrap_or_default() {
            if !new.contains(&path) {
                let _ = remove_file(&path);
            }
        }
    }
}

/// Checks that there are no files of a checkpoint with this prefix, be it whole or not, or that they are to
/// be replaced.
pub(super) fn check_free(prefix: &Path, existing: Existing) -> Result<(), WriteError> {
    let has_files = || {
        let has_index = exists(&index_path(prefix))? || exists(&index_path(&previous_prefix(prefix)))?;
        Ok::<_, WriteError>(has_index || !data_files(prefix)?.is_empty())
    };
    match existing {
        Existing::Refuse if has_files()? => Err(WriteError::Exists { prefix: prefix.to_owned() }),
        _ => Ok(()),
    }
}

/// Whether a path ends in a name. The path library takes `run/` for `run`, whose files are others.
pub(in crate::checkpoint) fn ends_in_name(prefix: &Path) -> bool {
    let name = prefix.file_name().unwrap_or_default().as_encoded_bytes();
    !name.is_empty() && prefix.as_os_str().as_encoded_bytes().ends_with(name)
}

fn check_name(prefix: &Path) -> Result<(), WriteError> {
    if ends_in_name(prefix) {
        return Ok(());
    }
    let message = "it has no name after the last `/`: add one, such as `model`";
    Err(WriteError::Prefix { prefix: prefix.to_owned(), message })
}

/// Checks that a caller's checkpoint can have this prefix.
pub(super) fn check_prefix(prefix: &Path) -> Result<(), WriteError> {
    let refused = |message| Err(WriteError::Prefix { prefix: prefix.to_owned(), message });
    check_name(prefix)?;
    let name = prefix.file_name().unwrap_or_default().as_encoded_bytes();
    if name.ends_with(PREVIOUS.as_bytes()) {
        return refused(
            "names that end in `.percolator-previous` are those of earlier checkpoints while they are \
             replaced, and are removed: give another name",
        );
    }
    if name.ends_with(b".index") {
        return refused("readers take it for the path of an index: give the name without `.index`");
    }
    Ok(())
}

/// The prefix that the earlier checkpoint has while the new one is not there.
pub(in crate::checkpoint) fn previous_prefix(prefix: &Path) -> PathBuf {
    with_suffix(prefix, PREVIOUS)
}

/// Removes a checkpoint's files, its index first.
pub(in crate::checkpoint) fn remove(prefix: &Path) -> Result<(), WriteError> {
    check_name(prefix)?;
    remove_file(&index_path(prefix))?;
    for (path, _) in data_files(prefix)? {
        remove_file(&path)?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), WriteError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(WriteError::io(path, "remove the file")),
    }
}

fn exists(path: &Path) -> Result<bool, WriteError> {
    path.try_exists().map_err(WriteError::io(path, "look for the file"))
}

/// Gives a file a second name; a file system without links copies it.
fn keep(path: &Path, kept: &Path) -> Result<(), WriteError> {
    let target = fs::canonicalize(path).map_err(WriteError::io(path, "find the file"))?;
    remove_file(kept)?;
    if fs::hard_link(&target, kept).is_ok() {
        return Ok(());
    }
    let copied = fs::copy(&target, kept).and_then(|_| File::open(kept)?.sync_all());
    copied.map_err(WriteError::io(kept, "keep the earlier checkpoint's file"))
}

/// The data files of a prefix, however many a checkpoint of it has, each with what follows the prefix.
fn data_files(prefix: &Path) -> Result<Vec<(PathBuf, String)>, WriteError> {
    let folder = folder_of(prefix);
    let name = prefix.file_name().unwrap_or_default().as_encoded_bytes();
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.map_err(WriteError::io(folder, "list the folder"))?,
    };
    for entry in entries {
        let entry = entry.map_err(WriteError::io(folder, "list the folder"))?;
        let file = entry.file_name();
        let ending =
            file.as_encoded_bytes().strip_prefix(name).and_then(|rest| std::str::from_utf8(rest).ok());
        if let Some(ending) = ending.filter(|ending| is_data_ending(ending)) {
            found.push((prefix.with_file_name(&file), ending.to_owned()));
        }
    }
    Ok(found)
}

/// Whether this is `.data-?????-of-?????`.
fn is_data_ending(ending: &str) -> bool {
    let numbers = ending.strip_prefix(".data-").and_then(|rest| rest.split_once("-of-"));
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(shard, shards)| is_number(shard) && is_number(shards))
}

/// Syncs names to the disk. A failure matters only if the machine then loses its power.
fn sync_folder(prefix: &Path) {
    drop(File::open(folder_of(prefix)).and_then(|folder| folder.sync_all()));
}
