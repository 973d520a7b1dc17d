//! A folder that is whole or absent: it is filled under another name.
//!
//! An existing empty folder stays: it may be the working directory, or a file system may be mounted on it,
//! and then no other folder can replace it. It is filled through a folder inside it, whose entries are moved
//! out at the end, one by one. Only a kill between these moves leaves a part of them. What an earlier kill
//! has left unfinished is removed before the next conversion to the same path, or is an error.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use percolator_files::whole_file::{self, TemporaryFolder, temporary_of};

use super::ConvertError;
use crate::paths::folder_of;

/// Checks that a folder can be made at a path: nothing is there, or an empty folder.
pub(super) fn check(target: &Path) -> Result<(), ConvertError> {
    let refused = |found: String| {
        let fault = format!("no folder can be made here: {found}");
        Err(ConvertError::NoTarget { path: target.to_owned(), fault })
    };
    match fs::read_dir(target) {
        Ok(_) => check_empty(target),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ConvertError::write(target)(error)),
        Err(_) => match link_to_nowhere(target) {
            Some((link, place)) => {
                let link = if link == target.components().as_path() { "it".to_owned() } else { shown(link) };
                refused(format!(
                    "{link} is a link to {}, which is not there; make that folder first, or give another \
                     path",
                    shown(&place)
                ))
            }
            None if target.file_name().is_none() => {
                refused("it ends in no name, and is not there; give the path of a folder".to_owned())
            }
            None => Ok(()),
        },
    }
}

/// The link on the way to a path that leads nowhere, and where it leads.
fn link_to_nowhere(target: &Path) -> Option<(&Path, PathBuf)> {
    let mut folders = target.components().as_path().ancestors();
    let there = folders.find(|folder| folder.symlink_metadata().is_ok())?;
    if there.exists() { None } else { Some((there, fs::read_link(there).ok()?)) }
}

fn shown(path: &Path) -> String {
    percolator_files::shown::path(path).to_string()
}

/// Checks that nothing is in a folder. What killed conversions left in it is removed first.
fn check_empty(folder: &Path) -> Result<(), ConvertError> {
    let found = entries(folder)?;
    if !found.iter().all(|entry| temporary_of(&entry.file_name()).is_some_and(OsStr::is_empty)) {
        return Err(ConvertError::NotEmpty { path: folder.to_owned() });
    }
    if !found.is_empty() {
        whole_file::sweep(folder);
    }
    match entries(folder)?.first() {
        None => Ok(()),
        Some(left) => Err(ConvertError::Unfinished { path: left.path() }),
    }
}

/// Whether a conversion fills this folder, which is to get another name, or was killed. If the folder around
/// it is to get what is in it, that is a part of a model, and an error.
pub(super) fn is_unfinished(entry: &DirEntry) -> Result<bool, ConvertError> {
    match temporary_of(&entry.file_name()) {
        Some(name) if name.is_empty() => Err(ConvertError::Unfinished { path: entry.path() }),
        name => Ok(name.is_some()),
    }
}

/// A folder under construction. Dropping it before it is finished removes it.
pub(super) struct NewFolder {
    /// Where it is filled.
    folder: TemporaryFolder,
    target: PathBuf,
    /// Whether the target was there.
    is_there: bool,
}

impl NewFolder {
    /// Starts a folder at a path that was [checked](check).
    pub(super) fn create(target: &Path) -> Result<Self, ConvertError> {
        check(target)?;
        let is_there = target.is_dir();
        let (parent, name) = match is_there {
            true => (target, OsStr::new("")),
            false => (folder_of(target), target.file_name().unwrap_or_default()),
        };
        fs::create_dir_all(parent).map_err(ConvertError::write(parent))?;
        let folder = TemporaryFolder::create(parent, name).map_err(ConvertError::write(target))?;
        Ok(NewFolder { folder, target: target.to_owned(), is_there })
    }

    /// Where its files are written until it is finished.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts it at its path.
    pub(super) fn finish(self) -> Result<(), ConvertError> {
        sync(self.path());
        if self.is_there {
            let ours = self.path().file_name();
            if entries(&self.target)?.iter().any(|entry| Some(&*entry.file_name()) != ours) {
                return Err(ConvertError::NotEmpty { path: self.target });
            }
            self.move_out()?;
            sync(&self.target);
        } else {
            // A folder that has come to be there is replaced if it is empty, and only then.
            fs::rename(self.path(), &self.target).map_err(|error| self.not_placed(&self.target, error))?;
            sync(folder_of(&self.target));
        }
        Ok(())
    }

    /// Moves what is in it to the target, where nothing else is, or may have come to be just now.
    fn move_out(&self) -> Result<(), ConvertError> {
        let mut moved = Vec::new();
        for entry in entries(self.path())? {
            let place = self.target.join(entry.file_name());
            if let Err(error) = whole_file::rename_to_free(&entry.path(), &place) {
                // What is not complete is not left: it goes back, and is removed with the rest.
                for entry in moved {
                    let _ = fs::rename(self.target.join(&entry), self.path().join(&entry));
                }
                return Err(self.not_placed(&place, error));
            }
            moved.push(entry.file_name());
        }
        Ok(())
    }

    fn not_placed(&self, place: &Path, error: io::Error) -> ConvertError {
        match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => {
                ConvertError::NotEmpty { path: self.target.clone() }
            }
            _ => ConvertError::write(place)(error),
        }
    }
}

fn entries(folder: &Path) -> Result<Vec<DirEntry>, ConvertError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect);
    entries.map_err(ConvertError::read(folder))
}

/// Syncs a folder's names to the disk. A failure matters only if the machine then loses its power.
fn sync(folder: &Path) {
    drop(File::open(folder).and_then(|folder| folder.sync_all()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_a_place_at_the_last_moment_stays() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path();
        let new = NewFolder::create(target).unwrap();
        for name in ["a.npy", "b.npy"] {
            fs::write(new.path().join(name), "ours").unwrap();
        }
        fs::write(target.join("b.npy"), "theirs").unwrap();
        let error = new.move_out().unwrap_err();
        assert!(matches!(error, ConvertError::NotEmpty { .. }), "{error}");
        drop(new);
        assert_eq!(fs::read(target.join("b.npy")).unwrap(), b"theirs");
        assert_eq!(entries(target).unwrap().len(), 1);
    }
}
