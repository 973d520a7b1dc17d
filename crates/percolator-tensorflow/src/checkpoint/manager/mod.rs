//! Keeps a folder of checkpoints: names the latest, removes old ones.

mod listed;
mod options;
mod saved;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use self::listed::Listed;
pub use self::options::{ManagerOptions, ManagerRules};
pub use self::saved::{NotRemoved, Saved};
use super::state::{StateError, StateFile};
use super::writer::{CheckpointWriter, new_prefix, previous_prefix, remove, remove_unfinished};
use crate::paths::{folder_of, index_path, with_suffix};
use crate::proto::CheckpointState;

const SECONDS_PER_HOUR: f64 = 3600.0;

/// Writes checkpoints into a folder, one after the other, as TensorFlow's own managers do: the file
/// `checkpoint` names them, old ones are removed. It and TensorFlow can take turns in one folder; one at a
/// time.
///
/// The order of what is written makes a kill harmless: first the data files, then the index, then the list of
/// checkpoints; then old ones are removed. At every moment the list names a whole checkpoint as the latest,
/// also while a step is written for a second time (see [`CheckpointWriter`]).
///
/// It removes the checkpoints that it has saved, and those that the list names in the folder itself.
/// Checkpoints of other folders that the list names stay: the folder may be a copy whose list has the paths
/// of the first one.
///
/// ```
/// use percolator_tensorflow::checkpoint::ManagerOptions;
/// use percolator_tensorflow::{CheckpointManager, CheckpointWriter, DataType, Tensor, latest_checkpoint};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let mut manager = CheckpointManager::open(folder, ManagerOptions::checkpoint_manager(Some(2)))?;
/// for step in [10_u64, 20, 30] {
///     let mut writer = CheckpointWriter::create(manager.prefix(step))?;
///     writer.add("step", &Tensor::new(DataType::Int64, [], step.to_le_bytes().to_vec())?)?;
///     manager.save(writer)?;
/// }
/// assert_eq!(latest_checkpoint(folder)?, Some(folder.join("ckpt-30")));
/// assert_eq!(manager.checkpoints().len(), 2);
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug)]
pub struct CheckpointManager {
    folder: PathBuf,
    options: ManagerOptions,
    state: StateFile,
    latest: Option<PathBuf>,
    /// Those that may be removed, the oldest first.
    kept: Vec<Kept>,
    /// Those that could not be removed, by the saver's rules, whose list does not have them any longer.
    unremoved: Vec<PathBuf>,
    /// Seconds since the epoch. With the manager's rules, when the last checkpoint that is kept for good was
    /// written; with the saver's, after when the next one is.
    preserved: f64,
    /// Whether the list names an earlier checkpoint by the path at which it is kept while it is replaced. It
    /// must not when the next writer begins, which may remove it there.
    lists_previous: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Kept {
    prefix: PathBuf,
    /// Seconds since the epoch.
    written: f64,
}

impl CheckpointManager {
    /// Opens a folder, which need not be there, and resumes from what its list says.
    ///
    /// # Errors
    ///
    /// [`StateError`] if an option is not allowed, or the list cannot be read.
    pub fn open(folder: impl AsRef<Path>, options: ManagerOptions) -> Result<Self, StateError> {
        Self::open_at(folder, options, SystemTime::now())
    }

    /// Like [`open`](Self::open), with the caller's clock.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_at(
        folder: impl AsRef<Path>,
        options: ManagerOptions,
        now: SystemTime,
    ) -> Result<Self, StateError> {
        options.check()?;
        let folder = folder.as_ref().to_owned();
        let state = StateFile::named(&folder, &options.state_name);
        let listed = Listed::read(&state, &folder)?;
        let lists_previous = listed.as_ref().is_some_and(|listed| listed.has_previous);
        let (latest, kept, unremoved, preserved) = (None, Vec::new(), Vec::new(), 0.0);
        let mut manager =
            CheckpointManager { folder, options, state, latest, kept, unremoved, preserved, lists_previous };
        match manager.options.rules {
            ManagerRules::CheckpointManager => manager.resume_manager(listed, seconds(now)),
            ManagerRules::Saver => manager.resume_saver(listed, seconds(now)),
        }
        manager.settle();
        Ok(manager)
    }

    fn resume_manager(&mut self, listed: Option<Listed>, now: f64) {
        let Some(listed) = listed else {
            // As TensorFlow: a manager that opens the folder right away finds no clock that goes back.
            self.preserved = now - 1.0;
            return;
        };
        self.latest = Some(listed.latest);
        // If the clock was set back, nothing is older than now.
        self.preserved = listed.preserved.min(now);
        for (prefix, written) in listed.kept {
            // As TensorFlow: one without a time is kept for good.
            let written = written.map_or(self.preserved, |written| written.min(now));
            if written > self.preserved {
                self.enter(prefix, written);
            }
        }
    }

    fn resume_saver(&mut self, listed: Option<Listed>, now: f64) {
        let hours = self.options.keep_every_hours.unwrap_or(f64::INFINITY);
        self.preserved = now + hours * SECONDS_PER_HOUR;
        let Some(listed) = listed else { return };
        self.latest = Some(listed.latest);
        if self.options.limit().is_none() {
            return;
        }
        for (listed, _) in listed.kept {
            let prefix = settled(&listed).unwrap_or(listed);
            // As TensorFlow's recover_last_checkpoints: those that are not there are forgotten.
            if let Ok(written) = fs::metadata(index_path(&prefix)).and_then(|index| index.modified()) {
                self.enter(prefix, seconds(written));
            }
        }
    }

    /// Finds where the checkpoints are that a writer was replacing when it was killed, or failed.
    fn settle(&mut self) {
        let kept = self.kept.iter_mut().map(|kept| &mut kept.prefix);
        let mut is_changed = false;
        for prefix in self.latest.iter_mut().chain(kept) {
            if let Some(settled) = settled(prefix) {
                *prefix = settled;
                is_changed = true;
            }
        }
        if is_changed {
            // The list may have named both.
            for Kept { prefix, written } in std::mem::take(&mut self.kept) {
                self.enter(prefix, written);
            }
        }
    }

    /// Whether one of those that are to be listed is where it is kept while it is replaced.
    fn has_previous(&self) -> bool {
        let is_previous = |prefix: &Path| new_prefix(prefix).is_some();
        self.latest.as_deref().is_some_and(is_previous) || self.checkpoints().any(is_previous)
    }

    /// Puts a checkpoint after all others.
    fn enter(&mut self, prefix: PathBuf, written: f64) {
        let own = [&prefix, &previous_prefix(&prefix)];
        let is_other = |other: &Path| !own.iter().any(|own| is_same_checkpoint(own, other));
        self.unremoved.retain(|unremoved| is_other(unremoved));
        self.kept.retain(|kept| is_other(&kept.prefix));
        self.kept.push(Kept { prefix, written });
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path at which a step's checkpoint is written: `FOLDER/NAME-STEP`, without the step for `None`.
    pub fn prefix(&self, step: impl Into<Option<u64>>) -> PathBuf {
        let name = &self.options.name;
        self.folder.join(match step.into() {
            None => name.clone(),
            Some(step) if self.options.pad_steps => format!("{name}-{step:08}"),
            Some(step) => format!("{name}-{step}"),
        })
    }

    /// The prefix of the latest checkpoint, if there is one.
    #[must_use]
    pub fn latest(&self) -> Option<&Path> {
        self.latest.as_deref()
    }

    /// The prefixes of the checkpoints that it may remove one day, the oldest first.
    pub fn checkpoints(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.kept.iter().map(|kept| &*kept.prefix)
    }

    /// Finishes a checkpoint, lists it as the latest, and removes old ones. An old one that cannot be removed
    /// is in what is returned.
    ///
    /// # Errors
    ///
    /// [`StateError`] if a file cannot be written, or the path be listed: the latest checkpoint is the one
    /// before then.
    pub fn save(&mut self, writer: CheckpointWriter) -> Result<Saved, StateError> {
        self.save_at(writer, SystemTime::now())
    }

    /// Like [`save`](Self::save), with the caller's clock.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    pub fn save_at(&mut self, writer: CheckpointWriter, now: SystemTime) -> Result<Saved, StateError> {
        let prefix = writer.prefix().to_owned();
        self.state.check(&prefix)?;
        // A checkpoint that cannot be listed must not be written, because it would never be found or removed.
        self.state.listed(&prefix, self.options.relative_paths)?;
        if self.lists_previous {
            // What the list names may be removed when the writer begins to replace a checkpoint.
            self.settle();
            if let Some(latest) = &self.latest {
                self.list(latest, self.listed())?;
            }
            self.lists_previous = self.has_previous();
        }
        // Each callback runs at most once, `before_naming` first.
        let manager = std::cell::RefCell::new(&mut *self);
        writer.finish_with(
            |previous| manager.borrow_mut().list_previous(&prefix, previous),
            || manager.borrow_mut().list_new(&prefix, seconds(now)),
        )?;
        let mut saved = Saved { prefix, removed: Vec::new(), not_removed: Vec::new(), outdated_list: None };
        saved.outdated_list = self.sweep(&mut saved).err();
        saved.warn();
        Ok(saved)
    }

    /// While a checkpoint is replaced, the list names the earlier one by the path at which it is kept.
    fn list_previous(&mut self, prefix: &Path, previous: &Path) -> Result<(), StateError> {
        let is_it = |kept: &Path| is_same_checkpoint(kept, prefix);
        if !self.latest.as_deref().is_some_and(is_it) && !self.checkpoints().any(is_it) {
            return Ok(());
        }
        self.lists_previous = true;
        let place = |kept: &Path| if is_it(kept) { previous.to_owned() } else { kept.to_owned() };
        let latest = self.latest.as_deref().map_or_else(|| previous.to_owned(), place);
        let kept = self.kept.iter().map(|kept| Kept { prefix: place(&kept.prefix), written: kept.written });
        self.list(&latest, &kept.collect::<Vec<_>>())
    }

    /// Lists a checkpoint that is there as the latest.
    fn list_new(&mut self, prefix: &Path, now: f64) -> Result<(), StateError> {
        let (latest, kept) = (self.latest.replace(prefix.to_owned()), self.kept.clone());
        match (self.options.rules, self.options.limit()) {
            // As TensorFlow: it lists the last one alone.
            (ManagerRules::Saver, None) => self.kept.clear(),
            _ => self.enter(prefix.to_owned(), now),
        }
        let listed = self.list(prefix, self.listed());
        match &listed {
            Ok(()) => self.lists_previous = self.has_previous(),
            Err(_) => (self.latest, self.kept) = (latest, kept),
        }
        listed
    }

    /// Those that the list names. The saver's does not have those that are about to be removed.
    fn listed(&self) -> &[Kept] {
        let (ManagerRules::Saver, Some(most)) = (self.options.rules, self.options.limit()) else {
            return &self.kept;
        };
        // One is removed at a time.
        let surplus = usize::from(self.kept.len() > most);
        self.kept.get(surplus..).unwrap_or_default()
    }

    fn list(&self, latest: &Path, kept: &[Kept]) -> Result<(), StateError> {
        let listed = |prefix: &Path| self.state.listed(prefix, self.options.relative_paths);
        let latest = listed(latest)?;
        let mut paths = kept.iter().map(|kept| listed(&kept.prefix)).collect::<Result<Vec<_>, _>>()?;
        let mut state =
            CheckpointState { model_checkpoint_path: latest.clone(), ..CheckpointState::default() };
        if self.options.rules == ManagerRules::CheckpointManager {
            state.all_model_checkpoint_timestamps = kept.iter().map(|kept| kept.written).collect();
            state.last_preserved_timestamp = self.preserved;
        }
        // TensorFlow lists the latest one at the end, if it is not there.
        if paths.last() != Some(&latest) {
            paths.push(latest);
        }
        state.all_model_checkpoint_paths = paths;
        self.state.write(&state)
    }

    /// Removes old checkpoints, or keeps them for good. One that cannot be removed is tried again the next
    /// time, and those after it are removed nevertheless.
    ///
    /// # Errors
    ///
    /// [`StateError`] if the list cannot be written once they are removed.
    fn sweep(&mut self, saved: &mut Saved) -> Result<(), StateError> {
        match (self.options.rules, self.options.limit()) {
            (ManagerRules::CheckpointManager, Some(most)) => self.sweep_manager(most, saved),
            (ManagerRules::Saver, Some(most)) => {
                self.sweep_saver(most, saved);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    fn sweep_manager(&mut self, most: usize, saved: &mut Saved) -> Result<(), StateError> {
        let surplus = self.kept.len().saturating_sub(most);
        let newer = self.kept.split_off(surplus);
        for oldest in std::mem::take(&mut self.kept) {
            let is_due = |hours: f64| oldest.written - hours * SECONDS_PER_HOUR >= self.preserved;
            if self.options.keep_every_hours.is_some_and(is_due) {
                self.preserved = oldest.written;
            } else if !self.remove_old(&oldest.prefix, saved) {
                self.kept.push(oldest);
            }
        }
        let is_changed = self.kept.len() < surplus;
        self.kept.extend(newer);
        // Until here the list names what is removed: if the process is killed, the next manager goes on.
        if is_changed {
            let latest = self.latest.clone().unwrap_or_default();
            self.list(&latest, &self.kept)?;
        }
        Ok(())
    }

    /// As TensorFlow, it removes one at a time; and those again that could not be removed before.
    fn sweep_saver(&mut self, most: usize, saved: &mut Saved) {
        let unremoved = std::mem::take(&mut self.unremoved);
        self.unremoved = unremoved.into_iter().filter(|prefix| !self.remove_old(prefix, saved)).collect();
        if self.kept.len() <= most {
            return;
        }
        let oldest = self.kept.remove(0);
        if let Some(hours) = self.options.keep_every_hours.filter(|_| oldest.written > self.preserved) {
            self.preserved += hours * SECONDS_PER_HOUR;
        } else if !self.remove_old(&oldest.prefix, saved) {
            self.unremoved.push(oldest.prefix);
        }
    }

    /// Removes a checkpoint, and what a killed writer has left of an earlier one, or of the one that was to
    /// replace it; never the latest. Returns whether it need not be tried again.
    fn remove_old(&self, prefix: &Path, saved: &mut Saved) -> bool {
        if self.latest.as_deref().is_some_and(|latest| is_same_checkpoint(latest, prefix)) {
            return true;
        }
        let new = new_prefix(prefix);
        let rest = match &new {
            None => remove(prefix).and_then(|()| remove(&previous_prefix(prefix)).map(|()| true)),
            Some(new) => remove(prefix).and_then(|()| remove_unfinished(new)),
        };
        let is_gone = match rest {
            Ok(is_gone) => is_gone,
            Err(error) => {
                saved.not_removed.push(NotRemoved { prefix: prefix.to_owned(), error });
                return false;
            }
        };
        if self.options.rules == ManagerRules::Saver && is_gone {
            // As TensorFlow: not every checkpoint has one.
            let _ = fs::remove_file(with_suffix(new.as_deref().unwrap_or(prefix), ".meta"));
        }
        saved.removed.push(prefix.to_owned());
        true
    }
}

/// Whether two prefixes are those of one checkpoint: the folder may be spelled in several ways.
fn is_same_checkpoint(one: &Path, other: &Path) -> bool {
    let folder = |prefix: &Path| fs::canonicalize(folder_of(prefix)).ok();
    one == other
        || one.file_name() == other.file_name()
            && folder(one).is_some_and(|found| folder(other) == Some(found))
}

/// Returns the prefix at which a listed checkpoint is now. If a writer was killed, or failed, after it named
/// a new checkpoint, and before it removed the earlier one, both are there, and the new one counts; before it
/// named the new one, the earlier one does.
fn settled(listed: &Path) -> Option<PathBuf> {
    let is_there = |prefix: &Path| index_path(prefix).is_file();
    match new_prefix(listed) {
        Some(new) => is_there(&new).then_some(new),
        None => Some(previous_prefix(listed)).filter(|previous| !is_there(listed) && is_there(previous)),
    }
}

/// Seconds since the epoch, as Python's `time.time()` has them.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds are rounded to the nearest number, as in Python")]
fn seconds(time: SystemTime) -> f64 {
    const NANOSECONDS: f64 = 1e9;

    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as f64 / NANOSECONDS,
        Err(before) => -(before.duration().as_nanos() as f64) / NANOSECONDS,
    }
}
