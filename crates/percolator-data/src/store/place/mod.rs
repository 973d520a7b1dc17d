//! Where outputs will be, and where they are while they are being written.
//!
//! ```text
//! NAME                               an output, once it is whole
//! NAME.percolator-converting/        while it is being written, or after its writer was ended
//!     lock                           locked by the process that writes
//!     store-00000, store-00001, ...  what will be the stores, and the files beside them
//!     state.json                     how far they are, if a run can go on with them
//!     whole                          there once all of them are whole: the names of what is moved
//! NAME.percolator-replaced           what had an output's name, until the new one has it
//! NAME.percolator-done/              the folder, while it is being removed
//! ```

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use percolator_files::input_file;
use percolator_files::whole_file::{self, Existing};

use super::StoreError;
use super::partial::{self, LOCK, STATE, WHOLE, store_name};
use super::replace::{self, OutputKind};

/// The end of the name of a folder with a partial output.
const CONVERTING: &str = ".percolator-converting";

/// The end of the name of a folder that is being removed.
const DONE: &str = ".percolator-done";

/// The most bytes of the list of names that is read: those of some four million stores.
const NAMES_BYTES_MAX: u64 = 64 << 20;

/// A name in the folder, and the path that it gets.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: OutputKind,
}

impl Output {
    /// The store of this number.
    pub(crate) fn store(number: usize, path: PathBuf) -> Self {
        Output { name: store_name(number), path, kind: OutputKind::Store }
    }

    /// A file beside the stores.
    pub(crate) fn file(name: &str, path: PathBuf) -> Self {
        Output { name: name.to_owned(), path, kind: OutputKind::File }
    }
}

/// What is done with what an earlier run left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// It is refused if a run could go on with it, and otherwise removed.
    Refuse,
    /// It is removed.
    Remove,
    /// The run goes on with it.
    Resume,
}

/// The outputs of a run, and the folder in which they are being written. A process has it for itself.
///
/// Dropping it leaves what was written, for a run that goes on with it.
#[derive(Debug)]
pub(crate) struct Place {
    outputs: Vec<Output>,
    existing: Existing,
    partial: PathBuf,
    done: PathBuf,
    /// Whether an earlier run has left its partial output there, and this one is to go on with it.
    is_resumed: bool,
    /// Locked until the place is dropped, or the folder removed.
    lock: Mutex<Option<File>>,
}

impl Place {
    /// Takes a place for these outputs, whose partial folder is beside `name`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] if an output exists that is not to be replaced, and [`StoreError::NotAStore`]
    /// if it is not one that ever is. [`StoreError::Partial`] if an earlier run left what is refused.
    /// [`StoreError::NotPartial`] if something else has the partial folder's name, or is in it.
    /// [`StoreError::InUse`] if another process has the place. [`StoreError::Io`] if the folder cannot be
    /// made.
    pub(crate) fn take(
        name: &Path,
        outputs: Vec<Output>,
        existing: Existing,
        earlier: Earlier,
    ) -> Result<Self, StoreError> {
        let partial = with_ending(name, CONVERTING);
        let (lock, was_there) = partial::lock(&partial)?;
        let is_resumed = was_there && earlier == Earlier::Resume;
        let done = with_ending(name, DONE);
        let place = Place { outputs, existing, partial, done, is_resumed, lock: Mutex::new(Some(lock)) };
        match place.prepare(name, earlier) {
            Ok(()) => Ok(place),
            Err(error) if was_there => Err(error),
            Err(error) => {
                let _ = place.discard();
                Err(error)
            }
        }
    }

    /// Mends what a killed run left in disorder, and checks that each output may have its name.
    fn prepare(&self, name: &Path, earlier: Earlier) -> Result<(), StoreError> {
        self.outputs.iter().try_for_each(|output| replace::restore(&output.path))?;
        if earlier == Earlier::Remove {
            self.end_naming()?;
        }
        let moved = if self.is_resumed { self.listed()? } else { None }.unwrap_or_default();
        for output in &self.outputs {
            if !self.is_moved(output, &moved)? {
                replace::check(&output.path, output.kind, self.existing)?;
            }
        }
        let can_go_on = exists(&self.partial.join(STATE))?;
        match earlier {
            Earlier::Resume => Ok(()),
            Earlier::Refuse if can_go_on => {
                Err(StoreError::Partial { path: name.to_owned(), partial: self.partial.clone() })
            }
            Earlier::Refuse | Earlier::Remove => self.clear(),
        }
    }

    /// Whether an earlier run has left its partial output there, and this one is to go on with it.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// The folder in which the outputs are being written.
    pub(crate) fn folder(&self) -> &Path {
        &self.partial
    }

    /// Where a store is being written.
    pub(crate) fn store(&self, number: usize) -> PathBuf {
        self.partial.join(store_name(number))
    }

    /// Removes what is in the folder.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if something cannot be removed.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        let failed = |path: &Path| StoreError::io(path, "remove what an earlier run left");
        // What says how far the rest is goes first: this may be interrupted.
        for name in [WHOLE, STATE] {
            let path = self.partial.join(name);
            replace::remove(&path).map_err(failed(&path))?;
        }
        let unread = StoreError::io(&self.partial, "look for what an earlier run left");
        for entry in fs::read_dir(&self.partial).map_err(unread)? {
            let entry = entry.map_err(failed(&self.partial))?;
            if entry.file_name() != LOCK {
                replace::remove(&entry.path()).map_err(failed(&entry.path()))?;
            }
        }
        Ok(())
    }

    /// Whether all outputs are whole, and only have to be moved to their names.
    pub(crate) fn is_whole(&self) -> bool {
        self.partial.join(WHOLE).exists()
    }

    /// Gives the outputs in the folder, which must be whole, their names, and removes the folder. An output
    /// that is not in the folder is not one of this run; what has its name from an earlier run goes with the
    /// store that this one replaces.
    ///
    /// If it is killed meanwhile, a run that goes on with the place ends it. After an error, what had the
    /// names before has them again.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if an output cannot be moved, as when something has come to its path.
    pub(crate) fn finish(&self) -> Result<(), StoreError> {
        let moved = match self.listed()? {
            Some(names) => names,
            None => self.list()?,
        };
        if let Err(error) = self.give_names(&moved) {
            // Readers of several outputs would take some old and some new ones.
            self.take_back(&moved);
            return Err(error);
        }
        let parent = self.partial.parent().filter(|parent| !parent.as_os_str().is_empty());
        // A failure is not worth an error: at worst the folder is there again after a loss of power.
        drop(File::open(parent.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()));
        if let Err(error) = self.forget_replaced().and_then(|()| self.discard()) {
            tracing::warn!("{error}; the outputs are whole, and this can be removed");
        }
        Ok(())
    }

    /// Gives those outputs their names that do not have them yet. The other files that an earlier run wrote
    /// are removed with the store that this one replaces; beside a new store, they may be anybody's.
    fn give_names(&self, moved: &[String]) -> Result<(), StoreError> {
        for output in &self.outputs {
            let Output { name, path, kind } = output;
            if moved.contains(name) {
                if !self.is_moved(output, moved)? {
                    replace::put(&self.partial.join(name), path, *kind, self.existing)?;
                }
            } else if self.existing == Existing::Refuse || self.has_replaced()? {
                replace::put_away(path, *kind, self.existing)?;
            }
        }
        Ok(())
    }

    /// Whether a store that had one's name is put away. The stores come before the files beside them.
    fn has_replaced(&self) -> Result<bool, StoreError> {
        for output in self.outputs.iter().filter(|output| output.kind == OutputKind::Store) {
            if exists(&replace::replaced(&output.path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes what was put away: the stores last, since they decide what else is.
    fn forget_replaced(&self) -> Result<(), StoreError> {
        self.outputs.iter().rev().try_for_each(|output| replace::forget(&output.path))
    }

    /// Moves outputs that have got their names back into the folder, and what they replaced back to its
    /// name. What cannot be moved is moved by a run that goes on with the place.
    fn take_back(&self, moved: &[String]) {
        for Output { name, path, .. } in self.outputs.iter().rev() {
            let place = self.partial.join(name);
            let is_moved = moved.contains(name) && matches!(exists(&place), Ok(false));
            let back = match is_moved {
                true => {
                    whole_file::rename_to_free(path, &place).map_err(StoreError::io(path, "move it back"))
                }
                false => Ok(()),
            };
            if let Err(error) = back.and_then(|()| replace::restore(path)) {
                tracing::warn!("{error}; --resume gives all outputs their names");
            }
        }
    }

    /// Gives all stores of an earlier run their names if it was ended while it did: a run that starts over
    /// would leave old ones beside new ones until it is done.
    fn end_naming(&self) -> Result<(), StoreError> {
        let moved = match self.listed() {
            Ok(Some(moved)) => moved,
            Ok(None) | Err(StoreError::Changed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let stores: Vec<_> = moved.iter().filter(|name| partial::is_store(name)).collect();
        let mut left = 0;
        for name in &stores {
            left += usize::from(exists(&self.partial.join(name))?);
        }
        if left == 0 || left == stores.len() {
            return Ok(());
        }
        // Their number decides their paths.
        let outputs = self.outputs.iter().filter(|output| output.kind == OutputKind::Store).count();
        if outputs != stores.len() {
            let (partial, found) = (self.partial.clone(), stores.len());
            return Err(StoreError::HalfNamed { partial, found, outputs });
        }
        match self.give_names(&moved) {
            // One is gone: there is nothing whole to keep.
            Err(StoreError::Changed { .. }) => Ok(()),
            named => named.and_then(|()| self.forget_replaced()),
        }
    }

    /// The names of the outputs that are being moved; `None` if not all are whole.
    fn listed(&self) -> Result<Option<Vec<String>>, StoreError> {
        let path = self.partial.join(WHOLE);
        let damaged = |error: &dyn fmt::Display| StoreError::Changed {
            path: path.clone(),
            found: format!("it is damaged: {error}"),
        };
        let text = match input_file::read(&path, NAMES_BYTES_MAX) {
            Ok(text) => text,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => return Ok(None),
                io::ErrorKind::FileTooLarge => return Err(damaged(&error)),
                _ => return Err(StoreError::io(&path, "read the file")(error)),
            },
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| damaged(&error))
    }

    /// Says that all outputs in the folder are whole, and returns their names.
    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::with_capacity(self.outputs.len());
        for Output { name, kind, .. } in &self.outputs {
            let path = self.partial.join(name);
            match (exists(&path)?, kind) {
                (true, _) => names.push(name.clone()),
                // A run has a file beside the stores or has none, and has every store.
                (false, OutputKind::File) => {}
                (false, OutputKind::Store) => return Err(gone(path)),
            }
        }
        let path = self.partial.join(WHOLE);
        let text = serde_json::to_vec(&names).map_err(io::Error::other);
        let written = text.and_then(|text| whole_file::write(&path, &[&text]));
        written.map_err(StoreError::io(&path, "write the file"))?;
        Ok(names)
    }

    /// Whether an output has its name already. It is one of `moved` then, and no longer in the folder.
    fn is_moved(&self, output: &Output, moved: &[String]) -> Result<bool, StoreError> {
        if !moved.contains(&output.name) || exists(&self.partial.join(&output.name))? {
            return Ok(false);
        }
        if exists(&output.path)? { Ok(true) } else { Err(gone(output.path.clone())) }
    }

    /// Removes the folder, and what was written.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if it cannot be removed.
    pub(crate) fn discard(&self) -> Result<(), StoreError> {
        let failed = |path: &Path| StoreError::io(path, "remove the folder");
        // Under another name first: a folder with only a part of its files must not be resumed.
        replace::remove(&self.done).map_err(failed(&self.done))?;
        fs::rename(&self.partial, &self.done).map_err(failed(&self.partial))?;
        // No process looks for a lock there. On NFS and FUSE, a file that is open would only be hidden, and
        // keep its folder from being removed.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        replace::remove(&self.done).map_err(failed(&self.done))
    }
}

/// Whether something is there, if that can be told.
fn exists(path: &Path) -> Result<bool, StoreError> {
    input_file::is_there(path).map_err(StoreError::io(path, "look at it"))
}

/// The error of an output that another process has removed.
fn gone(path: PathBuf) -> StoreError {
    StoreError::Changed { path, found: "it was whole, and is gone".to_owned() }
}

/// The target of a symbolic link, if it has one; otherwise the path itself, without slashes at its end.
///
/// An output is written beside the target: a link may lead to another disk, and nothing is moved between
/// disks.
pub(crate) fn followed(path: &Path) -> PathBuf {
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

#[cfg(test)]
mod tests;
