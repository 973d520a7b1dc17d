//! How a checkpoint replaces an earlier one with its prefix.
//!
//! Invariant: at every moment, the prefix or the prefix with `.percolator-previous` after it is that of a
//! whole checkpoint, if one of them was before; and each is that of a whole checkpoint or of none. A
//! checkpoint exists if its index does: the earlier one's index is linked last and removed first.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use percolator_files::folder_turn::FolderTurn;
use percolator_files::whole_file::{self, Existing, WholeFile};

use super::data_file::DataFile;
use super::error::WriteError;
use crate::checkpoint::find::read_index;
use crate::checkpoint::index::read_header;
use crate::paths::{folder_of, index_path, with_suffix};

/// What follows the prefix of an earlier checkpoint. The ending is reserved: no caller's checkpoint has it.
pub(crate) const PREVIOUS: &str = ".percolator-previous";

/// A checkpoint that is about to be named, and the earlier one with its prefix. No other process names files
/// in its folder meanwhile.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    prefix: &'a Path,
    /// The data files of the new checkpoint.
    shards: usize,
    existing: Existing,
    /// The prefix of the earlier checkpoint, while the new one is not there.
    previous: Option<PathBuf>,
    /// The data files of the earlier checkpoint, if its index could be read.
    replaced_shards: Option<usize>,
    _turn: FolderTurn,
}

impl<'a> Replacement<'a> {
    /// Keeps the earlier checkpoint, if there is one, under another prefix.
    pub(super) fn begin(prefix: &'a Path, shards: usize, existing: Existing) -> Result<Self, WriteError> {
        let turn = FolderTurn::take(folder_of(prefix));
        check_free(prefix, existing)?;
        let previous = previous_prefix(prefix);
        let is_there = exists(&index_path(prefix))?;
        let replaced_shards = stated_shards(if is_there { prefix } else { &previous });
        if is_there {
            // If there are both, a writer was killed before it removed one, and both are whole.
            if let Some(shards) = replaced_shards {
                remove_replaced(prefix, stated_shards(&previous), shards);
            }
            remove(&previous)?;
            for (path, ending) in data_files(prefix)? {
                if replaced_shards.is_none_or(|shards| is_of(&ending, shards)) {
                    keep(&path, &with_suffix(&previous, &ending))?;
                }
            }
            sync_folder(prefix);
            keep(&index_path(prefix), &index_path(&previous))?;
            sync_folder(prefix);
        }
        let is_kept = is_there || exists(&index_path(&previous))?;
        let previous = is_kept.then_some(previous);
        Ok(Replacement { prefix, shards, existing, previous, replaced_shards, _turn: turn })
    }

    /// The prefix of the earlier checkpoint.
    pub(super) fn previous(&self) -> Option<&Path> {
        self.previous.as_deref()
    }

    /// Gives the new files their names, the index last. If what comes to one of them meanwhile is to stay, no
    /// new file does.
    pub(super) fn name(&self, files: Vec<DataFile>, index: WholeFile) -> Result<(), WriteError> {
        if self.existing == Existing::Replace {
            self.remove_index()?;
        }
        let mut named = Vec::with_capacity(files.len());
        let mut done = files.into_iter().try_for_each(|file| {
            let path = file.path.clone();
            file.finish_over(self.existing).map_err(|error| self.not_named(&path, error))?;
            named.push(path);
            Ok(())
        });
        if done.is_ok() {
            let path = index_path(self.prefix);
            done = index.finish_over(self.existing).map_err(|error| self.not_named(&path, error));
        }
        if done.is_err() && self.existing == Existing::Refuse {
            named.iter().for_each(|path| drop(whole_file::remove(path)));
        }
        done.and_then(|()| self.check_index())
    }

    fn not_named(&self, path: &Path, error: io::Error) -> WriteError {
        match error.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists { prefix: self.prefix.to_owned() },
            _ => WriteError::io(path, "finish the file")(error),
        }
    }

    /// Makes the prefix that of no checkpoint. A link at the index's path stays: the new index goes to where
    /// it leads.
    fn remove_index(&self) -> Result<(), WriteError> {
        let path = index_path(self.prefix);
        whole_file::remove(&path).map_err(WriteError::io(&path, "remove the file"))?;
        if self.previous.is_some() {
            sync_folder(self.prefix);
        }
        Ok(())
    }

    /// Checks that the new index is at its path. Until then, the earlier checkpoint must stay.
    fn check_index(&self) -> Result<(), WriteError> {
        let path = index_path(self.prefix);
        let found = fs::metadata(&path).map(drop);
        found.map_err(WriteError::io(&path, "find the file that was just named"))
    }

    /// Removes what the new checkpoint, which is there, has replaced. What cannot be removed stays, and harms
    /// nothing.
    pub(super) fn end(self) {
        remove_replaced(self.prefix, self.replaced_shards, self.shards);
        if let Some(previous) = &self.previous {
            let _ = remove(previous);
        }
    }
}

/// Removes the data files that an earlier checkpoint has at a prefix, unless the new one has as many. Those
/// of a number that the earlier index does not state are not the earlier checkpoint's: they may be a user's
/// records.
///
/// If the process is killed meanwhile, the earlier index is there still, and the next writer goes on.
fn remove_replaced(prefix: &Path, replaced: Option<usize>, new: usize) {
    let Some(replaced) = replaced.filter(|&replaced| replaced != new) else { return };
    for (path, ending) in data_files(prefix).unwrap_or_default() {
        if is_of(&ending, replaced) {
            let _ = remove_file(&path);
        }
    }
}

/// Checks that there are no files of a checkpoint with this prefix, be it whole or not, or that they are to
/// be replaced.
pub(super) fn check_free(prefix: &Path, existing: Existing) -> Result<(), WriteError> {
    let taken = || WriteError::Exists { prefix: prefix.to_owned() };
    for path in [index_path(prefix), index_path(&previous_prefix(prefix))] {
        existing.check(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => WriteError::io(&path, "look for the file")(error),
        })?;
    }
    if existing == Existing::Refuse && !data_files(prefix)?.is_empty() { Err(taken()) } else { Ok(()) }
}

/// Gives a new index the permissions of the one that it is to replace, which has no name any more when the
/// new one gets it. A file system without permissions refuses, which is fine.
pub(super) fn keep_permissions(prefix: &Path, index: &File) {
    let of_index = |prefix: &Path| fs::metadata(index_path(prefix));
    if let Ok(before) = of_index(prefix).or_else(|_| of_index(&previous_prefix(prefix))) {
        let _ = index.set_permissions(before.permissions());
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
    Err(WriteError::refused(prefix, "it has no name after the last `/`: add one, such as `model`"))
}

/// Checks that a caller's checkpoint can have this prefix.
pub(super) fn check_prefix(prefix: &Path) -> Result<(), WriteError> {
    let refused = |message: &str| Err(WriteError::refused(prefix, message));
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

/// The prefix of the new checkpoint, if this is that of an earlier one while it is replaced.
pub(crate) fn new_prefix(previous: &Path) -> Option<PathBuf> {
    let name = previous.file_name()?.as_encoded_bytes().strip_suffix(PREVIOUS.as_bytes())?;
    (!name.is_empty()).then(|| previous.with_file_name(OsStr::from_bytes(name)))
}

/// Removes a checkpoint's files, its index first.
pub(in crate::checkpoint) fn remove(prefix: &Path) -> Result<(), WriteError> {
    check_name(prefix)?;
    remove_file(&index_path(prefix))?;
    remove_data(prefix)
}

/// Removes the data files of a prefix that has no index: what a writer leaves that is killed before it names
/// the index. Returns whether there is none.
pub(in crate::checkpoint) fn remove_unfinished(prefix: &Path) -> Result<bool, WriteError> {
    let _turn = FolderTurn::take(folder_of(prefix));
    if exists(&index_path(prefix))? {
        return Ok(false);
    }
    remove_data(prefix).map(|()| true)
}

fn remove_data(prefix: &Path) -> Result<(), WriteError> {
    data_files(prefix)?.iter().try_for_each(|(path, _)| remove_file(path))
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

/// Gives a file a second name; a file system without links copies it. A link that leads nowhere has none to
/// keep.
fn keep(path: &Path, kept: &Path) -> Result<(), WriteError> {
    let target = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(WriteError::io(path, "find the file"))?,
    };
    remove_file(kept)?;
    if fs::hard_link(&target, kept).is_ok() {
        return Ok(());
    }
    let copied = fs::copy(&target, kept).and_then(|_| File::open(kept)?.sync_all());
    copied.map_err(WriteError::io(path, "keep the earlier checkpoint's file"))
}

/// The number of data files that a checkpoint's index states, if it is one that can be read.
fn stated_shards(prefix: &Path) -> Option<usize> {
    let index = index_path(prefix);
    let bytes = read_index(prefix, &index).ok()?;
    let (header, _) = read_header(&index, &bytes).ok()?;
    usize::try_from(header.shards).ok()
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

/// Whether this is the ending of one of so many data files.
fn is_of(ending: &str, shards: usize) -> bool {
    ending.ends_with(&format!("-of-{shards:05}"))
}

/// Syncs names to the disk. A failure matters only if the machine then loses its power.
fn sync_folder(prefix: &Path) {
    drop(File::open(folder_of(prefix)).and_then(|folder| folder.sync_all()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CheckpointWriter;
    use crate::paths::data_path;

    #[test]
    fn what_comes_between_the_check_and_the_names_stays() {
        for late in [".data-00000-of-00002", ".data-00001-of-00002", ".index"] {
            let folder = tempfile::tempdir().unwrap();
            let prefix = folder.path().join("model");
            let mut writer = CheckpointWriter::create_sharded(&prefix, 2).unwrap();
            let index = writer.write_all().unwrap();
            let replacement = Replacement::begin(&prefix, 2, Existing::Refuse).unwrap();
            let late = with_suffix(&prefix, late);
            fs::write(&late, "somebody's").unwrap();
            let error = replacement.name(writer.files, index).unwrap_err();
            assert!(matches!(error, WriteError::Exists { .. }), "{error}");
            assert_eq!(fs::read(&late).unwrap(), b"somebody's");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{}", late.display());
        }
    }

    #[test]
    fn the_ending_of_a_data_file_tells_how_many_there_are() {
        let [one, two] = [1, 2].map(|shards| data_path(Path::new("m"), 0, shards));
        let ending = |path: &Path| path.to_str().unwrap()[1..].to_owned();
        assert!(is_data_ending(&ending(&one)) && is_of(&ending(&one), 1) && !is_of(&ending(&two), 1));
        assert!(!is_of(&ending(&one), 100_001), "a name has five digits");
        assert_eq!(new_prefix(Path::new("a/b.percolator-previous")), Some("a/b".into()));
        assert!([".percolator-previous", "a/b", ""].iter().all(|path| new_prefix(Path::new(path)).is_none()));
    }
}
