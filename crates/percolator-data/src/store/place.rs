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
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use percolator::input_file;
use percolator::whole_file::{self, Existing};

use super::StoreError;
use super::partial::{self, STATE, WHOLE, store_name};
use super::replace::{self, Kind};

/// The end of the name of a folder with a partial output.
const CONVERTING: &str = ".percolator-converting";

/// The end of the name of a folder that is being removed.
const DONE: &str = ".percolator-done";

/// A name in the folder, and the path that it gets.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
}

impl Output {
    /// The store of this number.
    pub(crate) fn store(number: usize, path: PathBuf) -> Self {
        Output { name: store_name(number), path, kind: Kind::Store }
    }

    /// A file beside the stores.
    pub(crate) fn file(name: &str, path: PathBuf) -> Self {
        Output { name: name.to_owned(), path, kind: Kind::File }
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
    /// Locked until the place is dropped.
    _lock: File,
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
        let place = Place { outputs, existing, partial, done, is_resumed, _lock: lock };
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
            if entry.file_name() != "lock" {
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
    /// that is not in the folder is not one of this run; what has its name from an earlier run goes.
    ///
    /// If that is interrupted, a run that goes on with the place ends it.
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

    /// Gives those outputs their names that do not have them yet. Of the others, what an earlier run wrote
    /// goes with the store that this one replaces; beside a new store, it may be anybody's.
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
        for output in self.outputs.iter().filter(|output| output.kind == Kind::Store) {
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
        let outputs = self.outputs.iter().filter(|output| output.kind == Kind::Store).count();
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
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io(&path, "read the file")(error)),
        };
        let names = serde_json::from_slice(&text);
        names
            .map(Some)
            .map_err(|error| StoreError::Changed { path, found: format!("it is damaged: {error}") })
    }

    /// Says that all outputs in the folder are whole, and returns their names.
    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::with_capacity(self.outputs.len());
        for Output { name, kind, .. } in &self.outputs {
            let path = self.partial.join(name);
            match (exists(&path)?, kind) {
                (true, _) => names.push(name.clone()),
                // A run has a file beside the stores or has none, and has every store.
                (false, Kind::File) => {}
                (false, Kind::Store) => return Err(gone(path)),
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
        // Under another name first: a folder with a part of its files must not be gone on with.
        replace::remove(&self.done).map_err(failed(&self.done))?;
        fs::rename(&self.partial, &self.done).map_err(failed(&self.partial))?;
        replace::remove(&self.done).map_err(failed(&self.done))
    }
}

/// Whether something is there, if that can be told.
fn exists(path: &Path) -> Result<bool, StoreError> {
    input_file::is_there(path).map_err(StoreError::io(path, "look at it"))
}

/// The error of an output that somebody else has removed.
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
mod tests {
    use super::super::replace::REPLACED;
    use super::super::{Backend, Existing, StoreError};
    use super::*;

    /// A LevelDB with this record.
    fn write(path: &Path, value: &str) {
        let mut writer = Backend::LevelDb.create(path).unwrap();
        writer.put(b"key", value.as_bytes()).unwrap();
        writer.finish().unwrap();
    }

    fn read(path: &Path) -> String {
        use percolator::source::Source as _;

        let database = percolator::leveldb::LevelDb::open(path).unwrap();
        let mut cursor = database.cursor().unwrap();
        let entry = cursor.advance().unwrap().unwrap();
        String::from_utf8(entry.value().to_vec()).unwrap()
    }

    /// What a process that replaces `name` and its list leaves behind if it is killed after this many steps.
    fn killed_after(steps: usize, name: &Path) {
        write(name, "old");
        let list = with_ending(name, ".skipped.txt");
        fs::write(&list, "old").unwrap();
        let partial = with_ending(name, CONVERTING);
        let done = with_ending(name, DONE);
        fs::create_dir(&partial).unwrap();
        let all: [&dyn Fn(); 12] = [
            &|| fs::write(partial.join("lock"), "").unwrap(),
            &|| write(&partial.join("store-00000"), "new"),
            &|| fs::write(partial.join(STATE), "").unwrap(),
            &|| fs::write(partial.join(WHOLE), r#"["store-00000"]"#).unwrap(),
            &|| fs::rename(name, with_ending(name, REPLACED)).unwrap(),
            &|| fs::rename(partial.join("store-00000"), name).unwrap(),
            &|| fs::rename(&list, with_ending(&list, REPLACED)).unwrap(),
            &|| fs::remove_file(with_ending(&list, REPLACED)).unwrap(),
            &|| fs::remove_dir_all(with_ending(name, REPLACED)).unwrap(),
            &|| fs::rename(&partial, &done).unwrap(),
            &|| fs::remove_file(done.join(WHOLE)).unwrap(),
            &|| fs::remove_dir_all(&done).unwrap(),
        ];
        all.iter().take(steps).for_each(|step| step());
    }

    #[test]
    fn a_kill_at_any_step_loses_nothing() {
        use Earlier::{Refuse, Remove, Resume};

        for steps in 0..=12 {
            for (existing, earlier) in [
                (Existing::Refuse, Refuse),
                (Existing::Refuse, Resume),
                (Existing::Replace, Remove),
                (Existing::Replace, Resume),
            ] {
                let context = format!("after {steps} steps, {existing:?} and {earlier:?}");
                let folder = tempfile::tempdir().unwrap();
                let name = folder.path().join("name");
                killed_after(steps, &name);
                let wanted = if steps < 6 { "old" } else { "new" };
                let outputs = vec![
                    Output::store(0, name.clone()),
                    Output::file("skipped.txt", with_ending(&name, ".skipped.txt")),
                ];
                let taken = Place::take(&name, outputs, existing, earlier);
                assert_eq!(read(&name), wanted, "{context}");
                let place = match (taken, existing) {
                    (Ok(place), _) => place,
                    (Err(StoreError::Exists { .. }), Existing::Refuse) => continue,
                    (Err(error), _) => panic!("{context}: {error}"),
                };
                assert!(existing == Existing::Replace || (6..10).contains(&steps), "{context}");
                // What was whole has its names in the end; otherwise this run writes it.
                if !place.is_whole() {
                    place.clear().unwrap();
                    write(&place.store(0), "newer");
                }
                let wanted = match place.is_whole() {
                    true => "new",
                    false => "newer",
                };
                assert_eq!(place.is_whole(), earlier == Resume && (4..10).contains(&steps), "{context}");
                place.finish().unwrap();
                assert_eq!(read(&name), wanted, "{context}");
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{context}");
            }
        }
    }

    #[test]
    fn what_comes_to_an_output_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        let list = with_ending(&name, ".skipped.txt");
        let take = |existing, earlier| {
            let outputs = vec![Output::store(0, name.clone()), Output::file("skipped.txt", list.clone())];
            Place::take(&name, outputs, existing, earlier)
        };
        let place = take(Existing::Refuse, Earlier::Refuse).unwrap();
        write(&place.store(0), "new");
        fs::write(place.folder().join("skipped.txt"), "new").unwrap();
        write(&name, "another's");
        let error = place.finish().unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        assert_eq!(read(&name), "another's");
        drop(place);
        // An empty folder is not silently replaced either, nor is a list.
        fs::remove_dir_all(&name).unwrap();
        fs::write(&list, "another's").unwrap();
        let error = take(Existing::Refuse, Earlier::Resume).unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        let place = take(Existing::Replace, Earlier::Resume).unwrap();
        assert!(place.is_whole());
        fs::create_dir(&name).unwrap();
        fs::write(name.join("photo.jpg"), "a photograph").unwrap();
        let error = place.finish().unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        assert!(name.join("photo.jpg").exists());
        drop(place);
        fs::remove_dir_all(&name).unwrap();
        take(Existing::Replace, Earlier::Resume).unwrap().finish().unwrap();
        assert_eq!((read(&name), fs::read_to_string(&list).unwrap()), ("new".into(), "new".into()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    /// Three old stores, and a place with three new ones.
    fn three(folder: &Path) -> (Vec<PathBuf>, Place) {
        let paths: Vec<_> = ["one", "two", "three"].iter().map(|name| folder.join(name)).collect();
        paths.iter().for_each(|path| write(path, "old"));
        let place = take_all(folder, &paths, Earlier::Refuse).unwrap();
        (0..3).for_each(|number| write(&place.store(number), "new"));
        (paths, place)
    }

    fn take_all(folder: &Path, paths: &[PathBuf], earlier: Earlier) -> Result<Place, StoreError> {
        let outputs = paths.iter().enumerate().map(|(number, path)| Output::store(number, path.clone()));
        Place::take(&folder.join("name"), outputs.collect(), Existing::Replace, earlier)
    }

    #[test]
    fn outputs_that_cannot_all_have_their_names_leave_the_old_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (paths, place) = three(folder.path());
        fs::write(paths[2].join("photo.jpg"), "a photograph").unwrap();
        let error = place.finish().unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        assert!(paths.iter().all(|path| read(path) == "old"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is beside them");
        drop(place);
        fs::remove_file(paths[2].join("photo.jpg")).unwrap();
        let place = take_all(folder.path(), &paths, Earlier::Resume).unwrap();
        assert!(place.is_whole());
        place.finish().unwrap();
        assert!(paths.iter().all(|path| read(path) == "new"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_run_that_starts_over_leaves_no_old_outputs_beside_new_ones() {
        // Killed before, between and after the moves of the first output and the second.
        for moves in 0..=4 {
            let folder = tempfile::tempdir().unwrap();
            let (paths, place) = three(folder.path());
            place.list().unwrap();
            let aside = |path: &Path| fs::rename(path, with_ending(path, REPLACED)).unwrap();
            let all: [&dyn Fn(); 4] = [
                &|| aside(&paths[0]),
                &|| fs::rename(place.store(0), &paths[0]).unwrap(),
                &|| aside(&paths[1]),
                &|| fs::rename(place.store(1), &paths[1]).unwrap(),
            ];
            all.iter().take(moves).for_each(|step| step());
            drop(place);
            let wanted = if moves < 2 { "old" } else { "new" };
            // Of another number of outputs, the paths are not known.
            let other = take_all(folder.path(), &paths[..2], Earlier::Remove);
            if moves < 2 {
                drop(other.unwrap());
            } else {
                let error = other.unwrap_err();
                assert!(matches!(error, StoreError::HalfNamed { found: 3, outputs: 2, .. }), "{error}");
            }
            let place = take_all(folder.path(), &paths, Earlier::Remove).unwrap();
            assert!(paths.iter().all(|path| read(path) == wanted), "after {moves} moves");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "after {moves} moves");
            assert!(!place.is_whole() && !place.store(2).exists());
        }
    }

    #[test]
    fn a_run_starts_over_where_one_that_was_being_named_is_no_longer_whole() {
        for is_listed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (paths, place) = three(folder.path());
            place.list().unwrap();
            fs::rename(&paths[0], with_ending(&paths[0], REPLACED)).unwrap();
            fs::rename(place.store(0), &paths[0]).unwrap();
            if is_listed {
                fs::remove_dir_all(&paths[0]).unwrap();
                fs::remove_dir_all(with_ending(&paths[0], REPLACED)).unwrap();
            } else {
                fs::write(place.folder().join(WHOLE), "[").unwrap();
            }
            drop(place);
            let place = take_all(folder.path(), &paths, Earlier::Remove).unwrap();
            (0..3).for_each(|number| write(&place.store(number), "newer"));
            place.finish().unwrap();
            assert!(paths.iter().all(|path| read(path) == "newer"));
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        }
    }

    #[test]
    fn the_loss_of_a_store_is_noticed_before_the_old_one_goes() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        write(&name, "old");
        let outputs = vec![Output::store(0, name.clone())];
        let place = Place::take(&name, outputs, Existing::Replace, Earlier::Refuse).unwrap();
        write(&place.store(0), "new");
        fs::remove_dir_all(place.store(0)).unwrap();
        let error = place.finish().unwrap_err();
        assert!(matches!(error, StoreError::Changed { .. }), "{error}");
        assert_eq!(read(&name), "old");
    }

    #[test]
    fn what_cannot_be_removed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        let mut place = Place::take(&name, Vec::new(), Existing::Refuse, Earlier::Refuse).unwrap();
        // No file system has so long a name.
        place.done = folder.path().join("x".repeat(300));
        let error = place.discard().unwrap_err();
        assert!(matches!(&error, StoreError::Io { path, .. } if *path == place.done), "{error}");
        assert!(place.partial.exists());
    }

    #[test]
    fn only_what_a_run_can_go_on_with_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        let take =
            |earlier| Place::take(&name, vec![Output::store(0, name.clone())], Existing::Refuse, earlier);
        drop(take(Earlier::Refuse).unwrap());
        let place = take(Earlier::Refuse).unwrap();
        fs::write(place.folder().join(STATE), "").unwrap();
        let error = take(Earlier::Refuse).unwrap_err();
        assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        drop(place);
        let error = take(Earlier::Refuse).unwrap_err();
        assert!(matches!(error, StoreError::Partial { .. }), "{error}");
        assert!(take(Earlier::Resume).unwrap().folder().join(STATE).exists());
        assert!(!take(Earlier::Remove).unwrap().folder().join(STATE).exists());
    }

    #[test]
    fn an_output_that_was_whole_and_is_gone_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        killed_after(7, &name);
        fs::remove_dir_all(&name).unwrap();
        fs::remove_dir_all(with_ending(&name, REPLACED)).unwrap();
        let outputs = vec![Output::store(0, name.clone())];
        let error = Place::take(&name, outputs, Existing::Replace, Earlier::Resume).unwrap_err();
        assert!(error.to_string().contains("it was whole, and is gone"), "{error}");
    }
}
