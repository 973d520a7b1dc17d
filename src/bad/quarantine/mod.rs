//! The file that names bad records, with their bytes: a TFRecord file of Examples, to which records are
//! added.
//!
//! Several processes may add to one file. Each does so under a lock, and first reads what others have added
//! since, so that no record is named twice: a record is the bytes that one data set has under one number,
//! wherever the process that finds it runs. A writer that is killed may leave a part of a record at the end,
//! which the next one cuts off.

mod entry;

use std::collections::HashSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::entry::Quarantined;
use self::entry::{Name, facts, feature, read_entries};
use super::BadRecord;
use crate::base::sync::Mutex;
use crate::source::Record;
use percolator_files::whole_file::{self, kind_of};
use percolator_files::{IoCause, file_lock, shown};
use percolator_messages::example::{features_head, string_head};
use percolator_tfrecord::frame_around;

/// How long a writer waits while no other one adds anything. Each holds the file's lock while it reads what
/// was added and adds one entry; a stopped process holds it for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many times the file is opened again when others move it away before it is locked.
const OPENED_MAX: usize = 100;

/// A quarantine file that cannot be read or written.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuarantineError {
    /// The operating system refuses.
    #[error("the quarantine file {}: cannot {action}", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        action: &'static str,
        /// The operating system's error, or one of that kind.
        source: IoCause,
    },
    /// Another writer holds its lock, and makes no progress.
    #[error(
        "the quarantine file {}: another writer has held its lock for {waited:?} and adds nothing: end that \
         process, or name another file",
        shown::path(path)
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// For how long the lock was waited for while the file stayed as it was.
        waited: Duration,
    },
    /// It holds something else.
    #[error(
        "the quarantine file {}: the entry at byte {offset} {found}; it is damaged, or no quarantine file: \
         move it away, or name another",
        shown::path(path)
    )]
    NotOne {
        /// The file.
        path: PathBuf,
        /// Where the entry starts.
        offset: u64,
        /// What is wrong with it.
        found: String,
    },
}

impl QuarantineError {
    fn io(path: &Path, action: &'static str, error: io::Error) -> Self {
        QuarantineError::Io { path: path.to_owned(), action, source: error.into() }
    }
}

/// How the file is opened to add records.
fn to_add() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).truncate(false).custom_flags(libc::O_NONBLOCK);
    options
}

/// A quarantine file to which records are added. It is created, and read, when there is something to add.
#[derive(Debug)]
pub(crate) struct Quarantine {
    path: PathBuf,
    /// The folder that relative paths are in: the process's own when the feed was built, unless it was gone.
    folder: Option<PathBuf>,
    /// For how long the file's lock is waited for.
    patience: Duration,
    known: Mutex<KnownEntries>,
}

/// What is known to be in the file.
#[derive(Debug, Default)]
struct KnownEntries {
    file: Option<Arc<File>>,
    named: HashSet<Name>,
    /// The end of what was read.
    end: u64,
    /// Why nothing can be added any more. Other workers wait for the same file, and should not repeat the
    /// wait one after the other.
    failed: Option<QuarantineError>,
}

impl Quarantine {
    /// Checks that the file can be written or created: hours later, at the first bad record, would be too
    /// late.
    pub(crate) fn at(path: &Path) -> Result<Self, QuarantineError> {
        let error = |error: io::Error| QuarantineError::io(path, "use it", error);
        let refused = |kind, message: String| Err(error(io::Error::new(kind, message)));
        match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                let message = format!("found {}: name a regular file", kind_of(found.file_type()));
                return refused(io::ErrorKind::InvalidInput, message);
            }
            Ok(_) => drop(to_add().open(path).map_err(error)?),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                    let message = format!("there is no folder {}", shown::path(folder));
                    return refused(io::ErrorKind::NotFound, message);
                }
                whole_file::check(path).map_err(error)?;
            }
            Err(other) => return Err(error(other)),
        }
        // It is opened again by its name, perhaps after the process has changed its working directory.
        let path = std::path::absolute(path).map_err(error)?;
        let folder = std::env::current_dir().ok();
        Ok(Quarantine { path, folder, patience: PATIENCE, known: Mutex::default() })
    }

    /// Names a record, unless the file does so already. `number` is its number in the data set.
    pub(crate) fn note(
        &self,
        bad: &BadRecord,
        number: u64,
        record: &Record<'_>,
    ) -> Result<(), QuarantineError> {
        let name = Name::new(self.place_of(&bad.path), number, &bad.key.0, record.value, record.companion);
        let mut known = self.known.lock();
        // Without the file's lock: a bad record comes again in each epoch.
        if known.named.contains(&name) {
            return Ok(());
        }
        if let Some(failed) = &known.failed {
            return Err(failed.clone());
        }
        let noted = self.write(&mut known, name, bad, record);
        known.failed = noted.clone().err();
        noted
    }

    /// Where a source is: other processes use other relative paths and links for it, and may use the same
    /// ones for other sources. A source that is not a file keeps its name.
    fn place_of(&self, source: &Path) -> PathBuf {
        let whole = match &self.folder {
            Some(folder) => folder.join(source).canonicalize().ok(),
            None if source.is_absolute() => source.canonicalize().ok(),
            None => None,
        };
        whole.unwrap_or_else(|| source.to_owned())
    }

    /// Names a record under the file's lock.
    fn write(
        &self,
        known: &mut KnownEntries,
        name: Name,
        bad: &BadRecord,
        record: &Record<'_>,
    ) -> Result<(), QuarantineError> {
        let file = self.open_locked(known)?;
        let written = self.learn(known, &file).and_then(|()| {
            if !known.named.contains(&name) {
                self.add(known, &file, &facts(&name, bad), record)?;
                known.named.insert(name);
            }
            Ok(())
        });
        // Fails only if the lock is not held.
        let _ = file.unlock();
        written
    }

    /// The file under its name, with its lock. If another file has that name by now, or none has, what was
    /// known belongs to a file that was moved away.
    fn open_locked(&self, known: &mut KnownEntries) -> Result<Arc<File>, QuarantineError> {
        let id = |found: Metadata| (found.dev(), found.ino());
        for _ in 0..OPENED_MAX {
            let file = self.open(known)?;
            self.lock(&file)?;
            let cannot_look = |error| QuarantineError::io(&self.path, "look at it", error);
            let named = match std::fs::metadata(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                found => Some(id(found.map_err(cannot_look)?)),
            };
            if named == Some(id(file.metadata().map_err(cannot_look)?)) {
                return Ok(file);
            }
            *known = KnownEntries::default();
        }
        let error = io::Error::other("each time that it is opened, another file has its name");
        Err(QuarantineError::io(&self.path, "add a record to it", error))
    }

    /// Waits for the file's lock, which others hold while they add a record.
    fn lock(&self, file: &File) -> Result<(), QuarantineError> {
        let bytes = || file.metadata().map_or(0, |found| found.len());
        match file_lock::lock(file, self.patience, bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(QuarantineError::Locked { path: self.path.clone(), waited: self.patience }),
            Err(error) => Err(QuarantineError::io(&self.path, "lock it", error)),
        }
    }

    /// The file, which is made if it is not there.
    fn open(&self, known: &mut KnownEntries) -> Result<Arc<File>, QuarantineError> {
        if let Some(file) = &known.file {
            return Ok(file.clone());
        }
        let file = to_add().create(true).open(&self.path);
        let file = file.map_err(|error| QuarantineError::io(&self.path, "open it", error))?;
        Ok(known.file.insert(Arc::new(file)).clone())
    }

    /// Reads what was added since the last time, and cuts off an incomplete record.
    fn learn(&self, known: &mut KnownEntries, file: &File) -> Result<(), QuarantineError> {
        let io = |error| QuarantineError::io(&self.path, "read it", error);
        let bytes = file.metadata().map_err(io)?.len();
        if bytes < known.end {
            // It was emptied.
            (known.end, known.named) = (0, HashSet::new());
        }
        let named = &mut known.named;
        let end = read_entries(&self.path, file, known.end..bytes, |entry| {
            named.insert(entry.name());
            Ok(())
        })?;
        known.end = end;
        if end < bytes {
            file.set_len(end).map_err(|error| QuarantineError::io(&self.path, "shorten it", error))?;
        }
        Ok(())
    }

    /// Adds an entry. The record's bytes are written from where they are, because there may be no memory for
    /// a copy of them.
    fn add(
        &self,
        known: &mut KnownEntries,
        file: &File,
        facts: &[u8],
        record: &Record<'_>,
    ) -> Result<(), QuarantineError> {
        let before_value = [facts, &string_head(feature::VALUE, record.value.len())].concat();
        let before_companion =
            record.companion.map_or_else(Vec::new, |bytes| string_head(feature::COMPANION, bytes.len()));
        let (value, companion) = (record.value, record.companion.unwrap_or_default());
        let bytes = before_value.len() + value.len() + before_companion.len() + companion.len();
        let front = [features_head(bytes), before_value].concat();
        let pieces = [&*front, value, &before_companion, companion];
        let mut end = known.end;
        let written = frame_around(&pieces).and_then(|(head, foot)| {
            // Both in one write, so that a killed writer leaves nothing, or enough to recognise an entry.
            let front = [&head, pieces[0]].concat();
            for piece in [&*front, pieces[1], pieces[2], pieces[3], &foot] {
                file.write_all_at(piece, end)?;
                end += piece.len() as u64;
            }
            Ok(())
        });
        if let Err(error) = written {
            // The part that was written is not a record.
            let _ = file.set_len(known.end);
            return Err(QuarantineError::io(&self.path, "add a record to it", error));
        }
        known.end = end;
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::error::Error as _;
    use std::thread;

    use super::*;
    use crate::record::{Key, RecordId};
    use percolator_messages::example::ExampleWriter;
    use percolator_tfrecord::{HEAD_BYTES, write_record};

    fn note(quarantine: &Quarantine, index: u64) -> Result<(), QuarantineError> {
        let id = RecordId { epoch: 0, index };
        let (path, key) = (PathBuf::from("data"), Key(Vec::new()));
        let bad = BadRecord { path, id, key, reason: "torn".to_owned(), replaced_by: None, row: 0 };
        quarantine.note(&bad, index, &Record { id, key: b"", value: b"torn", companion: None })
    }

    fn numbers(file: &Path) -> Vec<u64> {
        let entries = Quarantined::read(file).expect("a quarantine file that was just written");
        entries.iter().map(|entry| entry.number).collect()
    }

    /// Here nobody can make a file, whatever they may do elsewhere.
    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn a_file_that_cannot_be_written_is_an_error_before_there_is_a_bad_record() {
        let error = Quarantine::at(Path::new("/proc/bad.tfrecord")).unwrap_err();
        assert_eq!(error.to_string(), "the quarantine file /proc/bad.tfrecord: cannot use it");
        assert!(error.source().is_some_and(|cause| cause.is::<io::Error>()), "{error:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, away] = ["bad.tfrecord", "away"].map(|name| folder.path().join(name));
        let quarantine = Quarantine::at(&path).unwrap();
        note(&quarantine, 3).unwrap();
        std::fs::rename(&path, &away).unwrap();
        note(&quarantine, 4).unwrap();
        note(&Quarantine::at(&path).unwrap(), 5).unwrap();
        note(&quarantine, 6).unwrap();
        assert_eq!(numbers(&path), [4, 5, 6]);
        std::fs::remove_file(&path).unwrap();
        note(&quarantine, 7).unwrap();
        assert_eq!((numbers(&away), numbers(&path)), (vec![3], vec![7]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn an_entry_is_the_record_that_a_writer_of_examples_makes() {
        let folder = tempfile::tempdir().unwrap();
        for (number, bytes) in [0, 1, 100, 127, 128, 20_000].into_iter().enumerate() {
            for companion in [None, Some(&[7; 300][..])] {
                let path = folder.path().join(format!("{number} {}.tfrecord", companion.is_some()));
                let (id, value) = (RecordId { epoch: 2, index: 9 }, vec![1; bytes]);
                let (source, key) = (PathBuf::from("data"), Key(b"key".to_vec()));
                let reason = "torn".to_owned();
                let bad = BadRecord { path: source, id, key, reason, replaced_by: None, row: 0 };
                let record = Record { id, key: b"key", value: &value, companion };
                Quarantine::at(&path).unwrap().note(&bad, 9, &record).unwrap();
                let mut writer = ExampleWriter::new();
                writer.bytes("source", [b"data"]).bytes("key", [b"key"]).ints("number", [9]);
                writer.ints("epoch", [2]).bytes("reason", [b"torn"]).bytes("value", [&value]);
                if let Some(companion) = companion {
                    writer.bytes("companion", [companion]);
                }
                let mut due = Vec::new();
                write_record(&mut due, &writer.to_bytes()).unwrap();
                assert!(std::fs::read(&path).unwrap() == due, "{bytes} bytes");
            }
        }
    }

    /// Jobs that run in folders of their own call different files by one name.
    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn records_of_different_bytes_or_files_are_named_although_they_have_one_name_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.tfrecord");
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        for folder in [&one, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("data"), "").unwrap();
        }
        std::os::unix::fs::symlink(other.join("data"), one.join("link")).unwrap();
        let of =
            |folder: &Path| Quarantine { folder: Some(folder.to_owned()), ..Quarantine::at(&path).unwrap() };
        let note = |quarantine: &Quarantine, source: &Path, value: &[u8]| {
            let id = RecordId { epoch: 0, index: 5 };
            let (key, reason) = (Key(Vec::new()), "torn".to_owned());
            let bad = BadRecord { path: source.to_owned(), id, key, reason, replaced_by: None, row: 0 };
            quarantine.note(&bad, 5, &Record { id, key: b"", value, companion: None }).unwrap();
        };
        for _again in 0..2 {
            let relative = Path::new("data");
            note(&of(&one), relative, b"torn");
            note(&of(&other), relative, b"torn");
            note(&of(&other), Path::new("./data"), b"torn");
            note(&of(&other), &other.join("data"), b"torn");
            note(&of(&other), relative, b"built again");
            note(&of(&other), Path::new("made"), b"torn");
            // By other ways, and where the process's folder is gone.
            note(&of(&one), Path::new("../other/data"), b"torn");
            note(&of(&one), Path::new("link"), b"torn");
            note(&of(&one), &one.join("../other/data"), b"torn");
            let nowhere = Quarantine { folder: None, ..Quarantine::at(&path).unwrap() };
            note(&nowhere, &one.join("link"), b"torn");
            note(&nowhere, Path::new("made"), b"torn");
        }
        let named = Quarantined::read(&path).unwrap();
        let named: Vec<_> = named.iter().map(|entry| (&*entry.source, &*entry.value)).collect();
        let [one, other] = [one, other].map(|folder| folder.canonicalize().unwrap());
        let due: [(&Path, &[u8]); 4] = [
            (&one.join("data"), b"torn"),
            (&other.join("data"), b"torn"),
            (&other.join("data"), b"built again"),
            (Path::new("made"), b"torn"),
        ];
        assert_eq!(named, due);
    }

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn a_cut_record_of_somebody_else_is_left_and_a_cut_entry_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.tfrecord");
        note(&Quarantine::at(&path).unwrap(), 3).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // A frame's head, three keys with their lengths, and the name.
        let seen_after = HEAD_BYTES + 3 * 2 + feature::SOURCE.len();
        for cut in 1..seen_after {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let error = note(&Quarantine::at(&path).unwrap(), 3).unwrap_err();
            assert!(matches!(error, QuarantineError::NotOne { offset: 0, .. }), "cut at {cut}: {error}");
            assert_eq!(std::fs::read(&path).unwrap(), whole[..cut]);
        }
        for cut in seen_after..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(numbers(&path), []);
            note(&Quarantine::at(&path).unwrap(), 3).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole, "cut at {cut}");
        }
        let mut example = ExampleWriter::new();
        example.bytes("image", [[7; 300]]);
        for data in [vec![7; 300], b"\x0a".repeat(300), vec![0xff; 300], example.to_bytes()] {
            let mut other = Vec::new();
            write_record(&mut other, &data).unwrap();
            for cut in [1, 11, 12, 14, 18, 60, 200, other.len() - 1] {
                std::fs::write(&path, &other[..cut]).unwrap();
                let error = note(&Quarantine::at(&path).unwrap(), 3).unwrap_err();
                assert!(matches!(error, QuarantineError::NotOne { offset: 0, .. }), "{error}");
                assert_eq!(std::fs::read(&path).unwrap(), other[..cut]);
                assert!(Quarantined::read(&path).is_err());
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn a_writer_that_is_stopped_with_the_lock_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.tfrecord");
        let patient = |patience| Quarantine { patience, ..Quarantine::at(&path).unwrap() };
        let impatient = patient(Duration::from_millis(2));
        note(&impatient, 3).unwrap();
        // A lock belongs to an open file, so this one is another writer's.
        let other = File::open(&path).unwrap();
        other.lock().unwrap();
        let error = note(&impatient, 4).unwrap_err();
        assert!(
            matches!(&error, QuarantineError::Locked { waited, .. } if waited.as_millis() >= 2),
            "{error}"
        );
        // With the same wait, so nobody has waited again.
        assert_eq!(note(&impatient, 4), Err(error));
        note(&impatient, 3).expect("what is in the file needs no lock");
        let patient = patient(Duration::from_secs(3600));
        thread::scope(|scope| {
            let noted = scope.spawn(|| note(&patient, 4));
            drop(other);
            noted.join().unwrap().unwrap();
        });
        assert_eq!(numbers(&path), [3, 4]);
    }
}
