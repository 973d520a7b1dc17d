//! Where an output will be, and where it is while it is being written.
//!
//! ```text
//! NAME                               the output, once it is whole
//! NAME.percolator-converting/        while it is being written, or after its writer was ended
//!     lock                           locked by the process that writes
//!     store-00000, store-00001, ...  what will be the outputs
//!     whole                          there once all of them are whole: they are being moved to their names
//!     replaced-00000, ...            what was there before
//! ```

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use percolator::whole_file;

use super::{Backend, StoreError};

/// The end of the name of a folder with a partial output.
const ENDING: &str = ".percolator-converting";

/// Says that all outputs are whole.
const WHOLE: &str = "whole";

/// The outputs of a run, and the folder in which they are being written. A process has it for itself.
///
/// Dropping it leaves what was written, for a run that goes on with it.
#[derive(Debug)]
pub struct Place {
    outputs: Vec<PathBuf>,
    partial: PathBuf,
    /// Locked until the place is dropped.
    _lock: File,
}

/// A place, and what was there.
#[derive(Debug)]
pub struct Taken {
    /// The place.
    pub place: Place,
    /// Whether an earlier run has left its partial output there, and this one is to go on with it.
    pub is_resumed: bool,
}

impl Place {
    /// Takes a place for outputs of this kind, whose partial folder is beside `name`.
    ///
    /// An output that exists is refused, or with `is_forced` replaced once the new ones are whole. What an
    /// earlier run left is refused, too, unless this one goes on with it (`is_resuming`) or, with
    /// `is_forced`, removes it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`], [`StoreError::Partial`], or [`StoreError::NotAStore`] if something else is
    /// there. [`StoreError::InUse`] if another process has the place. [`StoreError::Io`] if the folder cannot
    /// be made.
    pub fn take(
        name: &Path,
        outputs: Vec<PathBuf>,
        backend: Backend,
        is_forced: bool,
        is_resuming: bool,
    ) -> Result<Taken, StoreError> {
        let outputs: Vec<_> = outputs.iter().map(|path| followed(path)).collect();
        let partial = with_ending(&followed(name), ENDING);
        // An output that has its name already is the earlier run's own.
        let is_whole = is_resuming && partial.join(WHOLE).exists();
        for (number, output) in outputs.iter().enumerate() {
            let is_moved = is_whole && !partial.join(store_name(number)).exists();
            match fs::symlink_metadata(output) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io(output, "look at the output")(error)),
                Ok(_) if is_moved => {}
                Ok(_) if is_forced => check_replaceable(output, backend)?,
                Ok(_) => return Err(StoreError::Exists { path: output.clone() }),
            }
        }
        let was_there = match fs::create_dir(&partial) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            Err(error) => return Err(StoreError::io(&partial, "create the folder for the output")(error)),
        };
        let lock = lock(&partial)?;
        let place = Place { outputs, partial, _lock: lock };
        if was_there && !is_resuming {
            if !is_forced {
                return Err(StoreError::Partial { path: name.to_owned(), partial: place.partial });
            }
            place.clear()?;
        }
        Ok(Taken { place, is_resumed: was_there && is_resuming })
    }

    /// The folder in which the outputs are being written.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.partial
    }

    /// Where an output is being written.
    #[must_use]
    pub fn store(&self, number: usize) -> PathBuf {
        self.partial.join(store_name(number))
    }

    /// Removes what is in the folder.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if something cannot be removed.
    pub fn clear(&self) -> Result<(), StoreError> {
        let failed = |path: &Path| StoreError::io(path, "remove what an earlier run left");
        for entry in fs::read_dir(&self.partial).map_err(failed(&self.partial))? {
            let entry = entry.map_err(failed(&self.partial))?;
            let path = entry.path();
            let removed = match entry.file_type().map_err(failed(&path))? {
                _ if entry.file_name() == "lock" => Ok(()),
                kind if kind.is_dir() => fs::remove_dir_all(&path),
                _ => fs::remove_file(&path),
            };
            removed.map_err(failed(&path))?;
        }
        Ok(())
    }

    /// Whether all outputs are whole, and only have to be moved to their names.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.partial.join(WHOLE).exists()
    }

    /// Gives the outputs their names, all of which must be whole, and removes the folder. `more` are files
    /// of the folder and the paths that they get.
    ///
    /// If that is interrupted, a run that goes on with the place ends it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if an output cannot be moved.
    pub fn finish(self, more: &[(&str, PathBuf)]) -> Result<(), StoreError> {
        let mark = self.partial.join(WHOLE);
        whole_file::write(&mark, &[]).map_err(StoreError::io(&mark, "write the file"))?;
        let outputs = self.outputs.iter().enumerate().map(|(number, output)| (self.store(number), output));
        let more = more.iter().map(|(name, path)| (self.partial.join(name), path));
        for (number, (from, to)) in outputs.chain(more).enumerate() {
            if fs::symlink_metadata(&from).is_err() {
                continue;
            }
            if fs::symlink_metadata(to).is_ok() {
                let before = self.partial.join(format!("replaced-{number:05}"));
                fs::rename(to, before).map_err(StoreError::io(to, "replace the output"))?;
            }
            fs::rename(&from, to).map_err(StoreError::io(to, "give the output its name"))?;
        }
        let parent = self.partial.parent().filter(|parent| !parent.as_os_str().is_empty());
        // A failure is not worth an error: at worst the folder is there again after a loss of power.
        drop(File::open(parent.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()));
        self.discard()
    }

    /// Removes the folder if nothing was written.
    pub(crate) fn discard_if_empty(self) {
        let is_empty = fs::read_dir(&self.partial).is_ok_and(|entries| entries.count() <= 1);
        if is_empty {
            let _ = self.discard();
        }
    }

    /// Removes the folder, and what was written.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if it cannot be removed.
    pub fn discard(self) -> Result<(), StoreError> {
        fs::remove_dir_all(&self.partial).map_err(StoreError::io(&self.partial, "remove the folder"))
    }
}

fn store_name(number: usize) -> String {
    format!("store-{number:05}")
}

/// The target of a symbolic link, if it has one; otherwise the path itself, without slashes at its end.
fn followed(path: &Path) -> PathBuf {
    let path: PathBuf = path.components().collect();
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(&path).unwrap_or(path),
        _ => path,
    }
}

/// A path with this at the end of its last name.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn lock(partial: &Path) -> Result<File, StoreError> {
    let path = partial.join("lock");
    let failed = |action| StoreError::io(&path, action);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(failed("create the file"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: partial.to_owned() }),
        // The file system has no locks.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// Fails if an output's path has something that is not a store of the kind: a mistyped path must not cost a
/// folder.
fn check_replaceable(path: &Path, backend: Backend) -> Result<(), StoreError> {
    let refused = |found: String| Err(StoreError::NotAStore { path: path.to_owned(), found });
    let failed = |action| StoreError::io(path, action);
    let kind = fs::symlink_metadata(path).map_err(failed("look at the output"))?.file_type();
    match backend {
        Backend::TfRecord if kind.is_file() => return Ok(()),
        Backend::TfRecord => return refused("a folder, or something else that is no file, is there".into()),
        _ if !kind.is_dir() => return refused("something is there that is no folder".into()),
        _ => {}
    }
    for entry in fs::read_dir(path).map_err(failed("list the folder"))? {
        let name = entry.map_err(failed("list the folder"))?.file_name();
        if !is_of_store(&name.to_string_lossy()) {
            return refused(format!("it has a file {name:?}, which is no part of a database"));
        }
    }
    Ok(())
}

/// Whether a file of this name may be part of an LMDB or a LevelDB, or lie beside them.
fn is_of_store(name: &str) -> bool {
    let names = ["data.mdb", "lock.mdb", "CURRENT", "LOCK", "LOG", "LOG.old"];
    let endings = [".ldb", ".sst", ".log", ".dbtmp"];
    names.contains(&name)
        || name.starts_with("MANIFEST-")
        || name.contains(".percolator-")
        || endings.iter().any(|ending| {
            name.strip_suffix(ending).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        })
}
