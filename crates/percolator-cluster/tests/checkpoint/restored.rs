//! Which checkpoint is restored when files are gone, cut or changed, or the record is not understood; and
//! that nothing is lost by that.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{
    Archive, Checkpoint, CheckpointError, CheckpointRecord, Checkpoints, CleanOptions, Entry, Fault, Origin,
    RecordError,
};
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _, Outcome, Transaction};
use percolator_cluster::store::{FolderStore, Id};

use crate::faults::{Operation, Verdict, faulty};
use crate::memory_store::MemoryStore;
use crate::process::sample::some_with;

const ID: &str = "shard";
const KEY: &str = "/checkpoints/shard";

struct Place {
    folder: tempfile::TempDir,
    metadata: MemoryMetadata,
}

impl Place {
    fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap(), metadata: MemoryMetadata::new() }
    }

    fn begin(&self, keep: usize) -> Checkpoints<Vec<u8>> {
        let store = FolderStore::open(self.folder.path()).unwrap();
        let how = Checkpointer::new(Arc::new(store), Arc::new(self.metadata.clone()), ID).unwrap();
        how.keep(keep).restore(|| b"initial".to_vec()).unwrap()
    }

    /// Saves states, and ends.
    fn save(&self, keep: usize, states: &[&[u8]]) -> Vec<Entry> {
        let checkpoints = self.begin(keep);
        let save = |state: &&[u8]| {
            *checkpoints.state().write() = state.to_vec();
            checkpoints.save_now().unwrap()
        };
        states.iter().map(save).collect()
    }

    fn path(&self, entry: &Entry) -> std::path::PathBuf {
        self.folder.path().join(ID).join(entry.uuid.to_string())
    }

    fn record(&self) -> Vec<u8> {
        self.metadata.read(KEY).unwrap().get(KEY).unwrap().value.clone()
    }

    fn put_record(&self, value: &[u8]) {
        let put = Transaction::new().put(KEY, value);
        assert!(matches!(self.metadata.transact(&put), Ok(Outcome::Committed(_))));
    }

    fn files(&self) -> usize {
        fs::read_dir(self.folder.path().join(ID)).unwrap().count()
    }
}

fn state(checkpoints: &Checkpoints<Vec<u8>>) -> Vec<u8> {
    checkpoints.state().read().clone()
}

#[test]
fn first_start_restart_and_another_node_are_one_path() {
    let place = Place::new();
    let first = place.begin(1);
    assert_eq!((&first.restored().origin, state(&first)), (&Origin::Initial, b"initial".to_vec()));
    assert_eq!(first.restored().to_string(), "begun: there is no checkpoint");
    drop(first);
    let saved = place.save(1, &[b"one", b"two"]);
    let again = place.begin(1);
    assert_eq!(
        (&again.restored().origin, state(&again)),
        (&Origin::Newest(saved[1].clone()), b"two".to_vec())
    );
    assert_eq!(saved[1].md5, "b8a9f715dbb64fd5c56e7783c6820a61");
    assert_eq!(saved[1].bytes, Some(3));
    assert_eq!((again.restored().rejected.len(), place.files()), (0, 1));
    let record = CheckpointRecord::parse(&place.record()).unwrap();
    assert_eq!((&record.newest, record.kept.len()), (&saved[1], 0));
    let text = String::from_utf8(place.record()).unwrap();
    assert!(text.starts_with(&format!(r#"{{"uuid":"{}","md5":"b8a9"#, saved[1].uuid)), "{text}");
}

#[test]
fn the_newest_that_is_whole_is_restored() {
    type Damage = fn(&Path);
    let cut: Damage = |path| fs::write(path, "thre").unwrap();
    let longer: Damage = |path| fs::write(path, "three!").unwrap();
    let changed: Damage = |path| fs::write(path, "Three").unwrap();
    let gone: Damage = |path| fs::remove_file(path).unwrap();
    let folder: Damage = |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    for (damage, due) in [
        (cut, "its file has 4 bytes, and had 5"),
        (longer, "its file has 6 bytes, and had 5"),
        (changed, "the MD5 of its file is"),
        (gone, "there is no file"),
        (folder, "found a folder, but only regular files are read"),
    ] {
        let place = Place::new();
        let saved = place.save(3, &[b"zero", b"one", b"two", b"three"]);
        assert_eq!(place.files(), 3);
        damage(&place.path(&saved[3]));
        let checkpoints = place.begin(3);
        assert_eq!(checkpoints.restored().origin, Origin::Older(saved[2].clone()), "{due}");
        assert_eq!(state(&checkpoints), b"two");
        let message = checkpoints.restored().to_string();
        assert!(message.contains(due) && message.contains(&saved[3].uuid.to_string()), "{message}");
        drop(checkpoints);
        // The one after it too, and then all of them.
        damage(&place.path(&saved[2]));
        let checkpoints = place.begin(3);
        assert_eq!((checkpoints.restored().rejected.len(), state(&checkpoints)), (2, b"one".to_vec()));
        drop(checkpoints);
        damage(&place.path(&saved[1]));
        let checkpoints = place.begin(3);
        assert_eq!(
            (&checkpoints.restored().origin, state(&checkpoints)),
            (&Origin::Initial, b"initial".to_vec())
        );
        assert_eq!(checkpoints.restored().rejected.len(), 3);
        checkpoints.save_now().unwrap();
        drop(checkpoints);
        assert_eq!(state(&place.begin(3)), b"initial");
    }
}

#[test]
fn a_damaged_sha_256_is_noticed_although_the_md5_is_right() {
    let place = Place::new();
    let saved = place.save(1, &[b"one"]);
    let sum = saved[0].sha256.clone().unwrap();
    let text = String::from_utf8(place.record()).unwrap().replace(&sum, &"0".repeat(64));
    place.put_record(text.as_bytes());
    let checkpoints = place.begin(1);
    assert!(checkpoints.restored().to_string().contains("the SHA-256 of its file is"));
    // The three fields of the design alone are enough.
    drop(checkpoints);
    let (uuid, md5) = (saved[0].uuid, &saved[0].md5);
    place.put_record(format!(r#"{{"uuid": "{uuid}", "md5": "{md5}", "timestamp": 1}}"#).as_bytes());
    assert_eq!(state(&place.begin(1)), b"one");
}

#[test]
fn a_record_that_is_not_understood_is_kept_and_no_file_of_its_is_removed() {
    for text in ["not JSON", r#"{"version": 2}"#, r#"{"uuid": 1}"#, ""] {
        let place = Place::new();
        let saved = place.save(2, &[b"one", b"two"]);
        let good = place.record();
        place.put_record(text.as_bytes());
        let checkpoints = place.begin(2);
        let rejected = &checkpoints.restored().rejected;
        assert_eq!((&checkpoints.restored().origin, rejected.len()), (&Origin::Initial, 1));
        assert!(matches!(&rejected[0].fault, Fault::Record(error) if error.to_string().contains("record")));
        let is_newer = matches!(&rejected[0].fault, Fault::Record(RecordError::Version { .. }));
        assert_eq!(is_newer, text.contains("version"));
        assert_eq!(place.record(), text.as_bytes(), "nothing has changed yet");
        (0..4).for_each(|_| drop(checkpoints.save_now().unwrap()));
        drop(checkpoints);
        let aside = place.metadata.read("/checkpoints-unreadable/shard/").unwrap();
        assert_eq!((aside.records.len(), &aside.records[0].value[..]), (1, text.as_bytes()));
        assert!(saved.iter().all(|entry| place.path(entry).exists()));
        // Its own do not gather, now or later.
        assert_eq!(place.files(), 4);
        let checkpoints = place.begin(2);
        (0..3).for_each(|_| drop(checkpoints.save_now().unwrap()));
        drop(checkpoints);
        assert_eq!(place.files(), 4);
        // Whoever repairs it loses nothing; and once it is gone, somebody has to say that the files may go.
        let own = place.record();
        place.put_record(&good);
        assert_eq!(state(&place.begin(2)), b"two");
        place.put_record(&own);
        let remove = Transaction::new().remove(aside.records[0].key.clone());
        assert!(matches!(place.metadata.transact(&remove), Ok(Outcome::Committed(_))));
        drop(place.begin(2));
        assert_eq!(place.files(), 4);
        let store = Arc::new(FolderStore::open(place.folder.path()).unwrap());
        let archive = Archive::new(store, Arc::new(place.metadata.clone()));
        let options = CleanOptions { without_record: true, ..CleanOptions::default() };
        assert_eq!(archive.clean(&Id::new(ID).unwrap(), &options).unwrap().removed.len(), 2);
        assert_eq!(place.files(), 2);
    }
}

/// A state that may not take what it finds.
struct Picky(Vec<u8>, Arc<AtomicBool>);

impl Checkpoint for Picky {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.0)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the layer \"fc7\" is new"));
        }
        self.0.clear();
        self.0.resize(3, 0);
        from.read_exact(&mut self.0)
    }
}

#[test]
fn a_checkpoint_that_the_program_does_not_take_stays_for_one_that_does() {
    let place = Place::new();
    let saved = place.save(1, &[b"one"]);
    let refuses = Arc::new(AtomicBool::new(true));
    let begin = || {
        let store = Arc::new(FolderStore::open(place.folder.path()).unwrap());
        let how = Checkpointer::new(store, Arc::new(place.metadata.clone()), ID).unwrap();
        how.restore(|| Picky(b"new".to_vec(), refuses.clone())).unwrap()
    };
    let checkpoints = begin();
    assert_eq!(checkpoints.restored().origin, Origin::Initial);
    assert!(checkpoints.restored().to_string().contains("the layer \"fc7\" is new"));
    (0..3).for_each(|_| drop(checkpoints.save_now().unwrap()));
    assert!(place.path(&saved[0]).exists());
    let record = CheckpointRecord::parse(&place.record()).unwrap();
    assert_eq!((record.kept.len(), &record.spared), (0, &saved));
    drop(checkpoints);
    // The program that takes it finds it, if the newer one is gone.
    refuses.store(false, Ordering::Relaxed);
    fs::remove_file(place.path(&record.newest)).unwrap();
    let checkpoints = begin();
    assert_eq!(checkpoints.restored().origin, Origin::Older(saved[0].clone()));
    assert_eq!(checkpoints.state().read().0, b"one");
    drop(checkpoints);
    // One that leaves bytes unread does not take it either.
    let longer = place.save(1, &[b"four"]);
    let checkpoints = begin();
    let message = checkpoints.restored().to_string();
    assert!(message.contains("took 3 bytes of it, and there are 4"), "{message}");
    assert!(place.path(&longer[0]).exists());
}

#[test]
fn a_store_that_fails_at_the_nth_call_costs_no_checkpoint() {
    let is_of_the_store = |operation| {
        use Operation::{Create, Finish, List, Open, Remove, RemoveAbandoned, Write};
        matches!(operation, Create | Finish | List | Open | Remove | RemoveAbandoned | Write)
    };
    for failing in some_with(0..30, 5, |failing| *failing < 6) {
        for verdict in [Verdict::Fail, Verdict::Lost, Verdict::Full] {
            let place = Place::new();
            let saved = place.save(2, &[b"one", b"two"]);
            let count = std::sync::atomic::AtomicUsize::new(0);
            let judge = move |operation| {
                let is_next = is_of_the_store(operation) && count.fetch_add(1, Ordering::Relaxed) == failing;
                if is_next { verdict } else { Verdict::Go }
            };
            let store = FolderStore::open(place.folder.path()).unwrap();
            let (store, metadata) = faulty(store, place.metadata.clone(), judge);
            let how = Checkpointer::new(store, metadata, ID).unwrap().keep(2);
            let checkpoints = how.restore(|| b"initial".to_vec()).unwrap();
            let restored = checkpoints.restored().entry().cloned();
            assert!(saved.contains(&restored.unwrap()), "{failing} {verdict:?}");
            let mut last = Vec::new();
            for number in 0..4_u8 {
                *checkpoints.state().write() = vec![number; 5];
                match checkpoints.save_now() {
                    Ok(_) => last = vec![number; 5],
                    Err(CheckpointError::Store(error)) => {
                        assert_eq!(error.to_string().contains("the store is full"), verdict == Verdict::Full);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            let stats = checkpoints.stats();
            assert!(stats.failed <= 1 && stats.written + stats.failed == 4, "{failing}: {stats:?}");
            drop(checkpoints);
            let again = place.begin(2);
            assert_eq!(state(&again), last);
            assert!(
                place.files() <= 3 && again.restored().rejected.is_empty(),
                "{failing}: {}",
                place.files()
            );
        }
    }
}

/// A file is read once: what tells whether it is whole is what a state has taken, and a state of one that is
/// not is discarded, though it has found nothing wrong.
#[test]
fn each_checkpoint_is_read_once_and_one_that_is_damaged_leaves_nothing() {
    let files = MemoryStore::default();
    let metadata = MemoryMetadata::new();
    let opened = Arc::new(AtomicUsize::new(0));
    let begin = || {
        let opened = opened.clone();
        let judge = move |operation| {
            if operation == Operation::Open {
                opened.fetch_add(1, Ordering::Relaxed);
            }
            Verdict::Go
        };
        let (store, metadata) = faulty(files.clone(), metadata.clone(), judge);
        Checkpointer::new(store, metadata, ID).unwrap().keep(2).restore(|| b"initial".to_vec()).unwrap()
    };
    let checkpoints = begin();
    for state in [b"one", b"two"] {
        *checkpoints.state().write() = state.to_vec();
        checkpoints.save_now().unwrap();
    }
    drop(checkpoints);
    assert_eq!(opened.swap(0, Ordering::Relaxed), 0);
    let restored = begin();
    assert_eq!(*restored.state().read(), b"two");
    drop(restored);
    assert_eq!(opened.swap(0, Ordering::Relaxed), 1);
    files.files.lock().values_mut().filter(|bytes| **bytes == b"two").for_each(|bytes| bytes[2] ^= 1);
    let restored = begin();
    let [rejected] = &restored.restored().rejected[..] else { panic!("{:?}", restored.restored()) };
    assert!(matches!(rejected.fault, Fault::Sum { .. }), "{rejected}");
    assert_eq!(*restored.state().read(), b"one");
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}

/// It believes what it reads.
struct Credulous(Vec<u8>);

impl Checkpoint for Credulous {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.0)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0.read(from)?;
        assert!(!self.0.contains(&b'!'), "no state has that");
        Ok(())
    }
}

#[test]
fn after_a_panic_of_a_state_an_older_checkpoint_is_looked_for() {
    for is_damaged in [true, false] {
        let files = MemoryStore::default();
        let metadata = MemoryMetadata::new();
        let begin = || {
            let (store, metadata) = faulty(files.clone(), metadata.clone(), |_| Verdict::Go);
            let checkpoints = Checkpointer::new(store, metadata, ID).unwrap().keep(2);
            checkpoints.restore(|| Credulous(b"initial".to_vec())).unwrap()
        };
        let checkpoints = begin();
        let last = if is_damaged { b"two" } else { b"tw!" };
        for state in [b"one", last] {
            checkpoints.state().write().0 = state.to_vec();
            checkpoints.save_now().unwrap();
        }
        drop(checkpoints);
        files.files.lock().values_mut().filter(|bytes| **bytes == b"two").for_each(|bytes| bytes[2] = b'!');
        let restored = begin();
        let [rejected] = &restored.restored().rejected[..] else { panic!("{:?}", restored.restored()) };
        match &rejected.fault {
            Fault::Sum { .. } => assert!(is_damaged, "{rejected}"),
            fault => assert!(!is_damaged && format!("{fault:?}").contains("no state has that"), "{rejected}"),
        }
        assert_eq!(restored.state().read().0, b"one");
    }
}
