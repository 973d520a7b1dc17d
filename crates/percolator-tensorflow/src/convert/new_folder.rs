//! A folder that is whole or absent: it is filled under another name.
//!
//! A folder that is there, and empty, stays: it may be the working directory, or a file system may be mounted
//! on it, and no other folder can take its place then. It is filled in a folder inside it, whose entries are
//! moved out at the end, one by one. Only a kill between these moves leaves a part of them.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::ConvertError;
use crate::paths::folder_of;

/// Checks that a folder can be made at a path: nothing is there, or an empty folder.
pub(super) fn check(target: &Path) -> Result<(), ConvertError> {
    let refused =
        |found: String, remedy| Err(ConvertError::NoFolder { path: target.to_owned(), found, remedy });
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(ConvertError::NotEmpty { path: target.to_owned() }),
        },
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ConvertError::write(target)(error)),
        Err(_) => match link_to_nowhere(target) {
            Some((link, place)) => {
                let link = if link == target.components().as_path() { "it".to_owned() } else { shown(link) };
                refused(
                    format!("{link} is a link to {}, which is not there", shown(&place)),
                    "make that folder first, or give another path",
                )
            }
            None if target.file_name().is_none() => {
                refused("it ends in no name, and is not there".to_owned(), "give the path of a folder")
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
    percolator::shown::path(path).to_string()
}

/// A folder under construction. Dropping it before it is finished removes it.
pub(super) struct NewFolder {
    /// Where it is filled.
    path: PathBuf,
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
        for number in 0_u64.. {
            let mut partial = name.to_owned();
            partial.push(format!(".{}-{number}.partial", std::process::id()));
            let path = parent.join(partial);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(NewFolder { path, target: target.to_owned(), is_there }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ConvertError::write(target)(error)),
            }
        }
        Err(ConvertError::write(target)(ErrorKind::AlreadyExists.into()))
    }

    /// Where its files are written until it is finished.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it at its path.
    pub(super) fn finish(self) -> Result<(), ConvertError> {
        if !self.is_there {
            // A folder that has come to be there is replaced if it is empty, and only then.
            return fs::rename(&self.path, &self.target).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => {
                    ConvertError::NotEmpty { path: self.target.clone() }
                }
                _ => ConvertError::write(&self.target)(error),
            });
        }
        let ours = self.path.file_name();
        if entries(&self.target)?.iter().any(|entry| Some(&*entry.file_name()) != ours) {
            return Err(ConvertError::NotEmpty { path: self.target.clone() });
        }
        let mut moved = Vec::new();
        for entry in entries(&self.path)? {
            let place = self.target.join(entry.file_name());
            if let Err(error) = fs::rename(entry.path(), &place) {
                // What is not complete is not left: it goes back, and is removed with the rest.
                for entry in moved {
                    let _ = fs::rename(self.target.join(&entry), self.path.join(&entry));
                }
                return Err(ConvertError::write(&place)(error));
            }
            moved.push(entry.file_name());
        }
        Ok(())
    }
}

fn entries(folder: &Path) -> Result<Vec<DirEntry>, ConvertError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect);
    entries.map_err(ConvertError::read(folder))
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        // After it is renamed, there is nothing to remove.
        let _ = fs::remove_dir_all(&self.path);
    }
}
