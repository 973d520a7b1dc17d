//! Checkpoints are looked after beside a training that goes on: what reads sees whole ones, and what removes
//! takes nothing that is needed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{
    Archive, ArchiveError, Checkpoint as _, CheckpointError, Checkpoints, CleanOptions, Existing, Left,
    Origin, Parts, Writer,
};
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _, Transaction};
use percolator_cluster::store::{Id, Store as _};
use uuid::Uuid;

use crate::faults::{Operation, Verdict, faulty};
use crate::memory_store::MemoryStore;
use crate::process::must_end;

const LONG: Duration = Duration::from_secs(600);
const ALL: CleanOptions = CleanOptions { keep: None, spared: false, without_record: false, dry_run: false };

#[derive(Clone, Default)]
struct Place {
    store: MemoryStore,
    metadata: MemoryMetadata,
}

impl Place {
    fn begin(&self, keep: usize) -> Checkpoints<Vec<u8>> {
        let how = Checkpointer::new(Arc::new(self.store.clone()), Arc::new(self.metadata.clone()), "shard");
        let how = how.unwrap().every(LONG).ttl(LONG).wait(Duration::ZERO).keep(keep);
        how.restore(|| b"initial".to_vec()).unwrap()
    }

    fn archive(&self) -> Archive {
        Archive::new(Arc::new(self.store.clone()), Arc::new(self.metadata.clone()))
    }

    /// As a process does that is killed before it puts its record.
    fn leave_a_file(&self, id: &Id) -> Uuid {
        let name = Uuid::new_v4();
        let key = format!("/checkpoints-begun/{}", id.as_str());
        let before = self.metadata.read(&key).unwrap().records.first().map(|record| record.value.clone());
        let names = [before.unwrap_or_default(), format!("{name}\n").into_bytes()].concat();
        self.metadata.transact(&Transaction::new().put(key, names)).unwrap();
        self.store.files.lock().insert((id.clone(), name), b"left over".to_vec());
        name
    }

    fn end_hold(&self) {
        let held = self.metadata.read("/checkpoints-held/").unwrap();
        self.metadata.revoke(held.records[0].lease.unwrap()).unwrap();
    }
}

fn id() -> Id {
    Id::new("shard").unwrap()
}

fn save(checkpoints: &Checkpoints<Vec<u8>>, state: &[u8]) -> Result<Uuid, CheckpointError> {
    *checkpoints.state().write() = state.to_vec();
    checkpoints.save_now().map(|entry| entry.uuid)
}

#[test]
fn what_reads_sees_whole_checkpoints_while_one_is_written_after_the_other() {
    must_end("looking beside a training", || {
        let (place, folder) = (Place::default(), tempfile::tempdir().unwrap());
        let checkpoints = place.begin(2);
        save(&checkpoints, &[1; 1000]).unwrap();
        let (archive, target) = (place.archive(), folder.path().join("state"));
        std::thread::scope(|scope| {
            // A few are written while it is looked once, so that each look comes to an end.
            let (begin, begun) = bounded::<u16>(0);
            let writer = scope.spawn(move || {
                for number in begun.iter().flat_map(|round| [round, round + 1, round + 2]) {
                    save(&checkpoints, &number.to_le_bytes().repeat(500)).unwrap();
                }
            });
            for round in 0..300 {
                begin.send(round).unwrap();
                if round % 2 == 0 {
                    let verified = archive.verify(&id()).unwrap();
                    assert!(verified.is_whole() && !verified.checked.is_empty(), "{verified:?}");
                    continue;
                }
                let extracted = archive.extract(&id(), None, &target, Existing::Replace).unwrap();
                assert!(matches!(extracted.restored.origin, Origin::Newest(_)), "{extracted:?}");
                let bytes = std::fs::read(&target).unwrap();
                assert!(bytes.len() == 1000 && bytes.chunks(2).all(|pair| pair == &bytes[..2]));
                assert!(matches!(archive.clean(&id(), &ALL).unwrap().left, Some(Left::Held(_))));
            }
            drop(begin);
            writer.join().unwrap();
        });
        assert_eq!(place.store.names("shard").len(), 2);
    });
}

/// Who cleans up holds the id for that moment.
#[test]
fn a_process_that_was_cut_off_goes_on_after_its_files_were_cleaned_up() {
    let place = Place::default();
    let checkpoints = place.begin(3);
    let names = [1_u8, 2, 3].map(|number| save(&checkpoints, &[number]).unwrap());
    let left_over = place.leave_a_file(&id());
    let cleaned = place.archive().clean(&id(), &ALL).unwrap();
    assert_eq!((cleaned.left, cleaned.removed.len()), (Some(Left::Held(Writer::this())), 0));
    place.end_hold();
    let cleaned =
        place.archive().clean(&id(), &CleanOptions { dry_run: true, keep: Some(1), ..ALL }).unwrap();
    let due: BTreeSet<_> = [left_over, names[0], names[1]].into();
    assert_eq!(cleaned.removed.iter().copied().collect::<BTreeSet<_>>(), due);
    assert_eq!(place.store.names("shard").len(), 4);
    let cleaned = place.archive().clean(&id(), &ALL).unwrap();
    assert_eq!((cleaned.left, cleaned.removed), (None, vec![left_over]));
    // Its record is what it was.
    save(&checkpoints, &[4]).unwrap();
    assert_eq!(checkpoints.stats().holds_lost, 1);
    place.end_hold();
    let cleaned = place.archive().clean(&id(), &CleanOptions { keep: Some(1), ..ALL }).unwrap();
    assert_eq!((cleaned.taken_out.len(), cleaned.removed.len()), (2, 2));
    assert!(matches!(save(&checkpoints, &[5]), Err(CheckpointError::Superseded { .. })));
    drop(checkpoints);
    assert_eq!(*place.begin(1).state().read(), [4]);
    for keep in [0, 65] {
        let error = place.archive().clean(&id(), &CleanOptions { keep: Some(keep), ..ALL }).unwrap_err();
        assert!(matches!(error, ArchiveError::Keep { found } if found == keep), "{error}");
    }
}

/// Its answer was lost, and then checkpoints were taken out of the record that it had put.
#[test]
fn a_process_does_not_name_again_what_was_taken_out_of_its_record() {
    let place = Place::default();
    let is_heard = Arc::new(AtomicBool::new(true));
    let asked = is_heard.clone();
    let judge = move |operation| match operation {
        Operation::Put if !asked.load(Ordering::Relaxed) => Verdict::Lost,
        _ => Verdict::Go,
    };
    let (store, metadata) = faulty(place.store.clone(), place.metadata.clone(), judge);
    let how = Checkpointer::new(store, metadata, "shard").unwrap().keep(3).every(LONG).ttl(LONG);
    let checkpoints = how.pauses(LONG, LONG).restore(|| b"initial".to_vec()).unwrap();
    (0..3_u8).for_each(|number| _ = save(&checkpoints, &[number]).unwrap());
    is_heard.store(false, Ordering::Relaxed);
    assert!(matches!(save(&checkpoints, &[3]), Err(CheckpointError::NotRecorded { .. })));
    is_heard.store(true, Ordering::Relaxed);
    place.end_hold();
    let cleaned = place.archive().clean(&id(), &CleanOptions { keep: Some(1), ..ALL }).unwrap();
    assert_eq!((cleaned.left, cleaned.taken_out.len()), (None, 2));
    assert!(matches!(save(&checkpoints, &[4]), Err(CheckpointError::Superseded { .. })));
    drop(checkpoints);
    assert!(place.archive().verify(&id()).unwrap().is_whole());
    assert_eq!(*place.begin(3).state().read(), [3]);
}

/// A damaged checkpoint takes no place of a whole one: what a restore would find stays.
#[test]
fn the_last_whole_checkpoint_is_kept() {
    for is_missing in [false, true] {
        let place = Place::default();
        let checkpoints = place.begin(4);
        let names = [1_u8, 2, 3, 4].map(|number| save(&checkpoints, &[number]).unwrap());
        drop(checkpoints);
        for name in &names[2..] {
            let key = (id(), *name);
            let mut files = place.store.files.lock();
            match is_missing {
                true => drop(files.remove(&key)),
                false => files.get_mut(&key).unwrap().push(0),
            }
        }
        let cleaned = place.archive().clean(&id(), &CleanOptions { keep: Some(1), ..ALL }).unwrap();
        assert_eq!(cleaned.removed, [names[0]]);
        assert_eq!(*place.begin(4).state().read(), [2]);
    }
}

/// A part that the newest whole checkpoint has not is not taken from an older one.
#[test]
fn a_part_is_of_the_newest_checkpoint() {
    let place = Place::default();
    let checkpoints = place.begin(2);
    for (number, part) in [(1, "model"), (2, "other")] {
        let mut bytes = Vec::new();
        Parts::new().with(part, vec![number]).write(&mut bytes).unwrap();
        save(&checkpoints, &bytes).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("part");
    let extract = |part| place.archive().extract(&id(), Some(part), &target, Existing::Refuse);
    let error = extract("model").unwrap_err();
    assert!(matches!(error, ArchiveError::NoPart { .. }), "{error}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left");
    extract("other").unwrap();
}

/// A writer that begins between the look and the removal has the id: nothing of its own is removed.
#[test]
fn nothing_is_removed_once_somebody_else_has_the_id() {
    let place = Place::default();
    let first = save(&place.begin(1), &[1]).unwrap();
    let other = Id::new("other").unwrap();
    let of_other = place.leave_a_file(&other);
    let left_over = place.leave_a_file(&id());
    let (inner, taken) = (place.clone(), Arc::new(parking_lot::Mutex::new(None)));
    let begun = taken.clone();
    // Once the id is taken, the record is looked at when it begins, after the files were listed, and before
    // they are removed.
    let looks = AtomicUsize::new(0);
    let judge = move |operation| {
        let held = inner.metadata.read("/checkpoints-held/").unwrap();
        let is_look = operation == Operation::Look && !held.records.is_empty();
        if is_look && looks.fetch_add(1, Ordering::Relaxed) == 2 {
            inner.end_hold();
            let checkpoints = inner.begin(1);
            save(&checkpoints, &[2]).unwrap();
            *begun.lock() = Some(checkpoints);
        }
        Verdict::Go
    };
    let (store, metadata) = faulty(place.store.clone(), place.metadata.clone(), judge);
    let archive = Archive::new(store, metadata);
    let error = archive.clean(&id(), &ALL).unwrap_err();
    let is_superseded = matches!(error, ArchiveError::Checkpoint(CheckpointError::Superseded { .. }));
    assert!(is_superseded, "{error}");
    // The other writer removed what was there, and nobody removed anything of its own.
    let names = place.store.names("shard");
    assert!(names.len() == 1 && !names.contains(&first) && !names.contains(&left_over), "{names:?}");
    assert_eq!(place.store.names("other"), [of_other]);
    drop(taken.lock().take());
    assert_eq!(*place.begin(1).state().read(), [2]);
}

#[test]
fn a_failing_store_or_target_is_no_damage() {
    let (place, folder) = (Place::default(), tempfile::tempdir().unwrap());
    let checkpoints = place.begin(2);
    save(&checkpoints, &[1]).unwrap();
    let archive = place.archive();
    let target = folder.path().join("none/state");
    let error = archive.extract(&id(), None, &target, Existing::Refuse).unwrap_err();
    assert!(matches!(&error, ArchiveError::Target { path, .. } if *path == target), "{error}");
    let error = archive.extract(&id(), None, folder.path(), Existing::Refuse).unwrap_err();
    assert!(matches!(error, ArchiveError::Exists { .. }), "{error}");
    let none = Id::new("none").unwrap();
    let error = archive.extract(&none, None, &folder.path().join("state"), Existing::Refuse).unwrap_err();
    assert!(matches!(&error, ArchiveError::NoRecord { files: 0, .. }), "{error}");
    // A file that cannot be opened.
    let judge = |operation| if operation == Operation::Open { Verdict::Fail } else { Verdict::Go };
    let (store, metadata) = faulty(place.store.clone(), place.metadata.clone(), judge);
    let error =
        Archive::new(store, metadata).extract(&id(), None, &folder.path().join("state"), Existing::Refuse);
    assert!(matches!(error, Err(ArchiveError::Checkpoint(CheckpointError::Store(_)))), "{error:?}");
    assert!(archive.verify(&id()).unwrap().is_whole());
    // Parts of a state that has none.
    let error =
        archive.extract(&id(), Some("model"), &folder.path().join("state"), Existing::Refuse).unwrap_err();
    let ArchiveError::NoPart { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().contains("ends within its first line"), "{source}");
    assert!(!folder.path().join("state").exists());
    assert_eq!(archive.ids().unwrap().ids, [id()].into());
    assert_eq!(place.store.list(&id()).unwrap().len(), 1);
}
