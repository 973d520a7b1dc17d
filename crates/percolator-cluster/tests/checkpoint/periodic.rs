//! When checkpoints are written, what they cost, and what is said of them.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Checkpoint, CheckpointError, Mode};
use percolator_cluster::metadata::MemoryMetadata;

use crate::faults::{Operation, Verdict, faulty};
use crate::memory_store::MemoryStore;
use crate::process::{must_end, settles};

const ID: &str = "shard";

fn how(store: &MemoryStore) -> Checkpointer {
    Checkpointer::new(Arc::new(store.clone()), Arc::new(MemoryMetadata::new()), ID).unwrap()
}

/// A store whose files are finished when the test says so, after it was told that one waits for that.
fn gated() -> (Checkpointer, Receiver<()>, Sender<()>) {
    let (waits, is_waiting) = channel();
    let (go, may_go) = channel();
    let both = Mutex::new((waits, may_go));
    let judge = move |operation| {
        if operation == Operation::Finish {
            let both = both.lock();
            let _ = both.0.send(());
            // When the test has ended, nothing waits.
            let _ = both.1.recv();
        }
        Verdict::Go
    };
    let (store, metadata) = faulty(MemoryStore::default(), MemoryMetadata::new(), judge);
    (Checkpointer::new(store, metadata, ID).unwrap(), is_waiting, go)
}

#[test]
fn one_is_written_every_so_many_steps() {
    must_end("checkpoints by steps", || {
        let store = MemoryStore::default();
        let checkpoints = how(&store).every_steps(10).restore(Vec::new).unwrap();
        let mut last = 0;
        for step in 1..=35 {
            let before = checkpoints.stats().written;
            *checkpoints.state().write() = vec![step; 10];
            checkpoints.step().unwrap();
            let due = u64::from(step / 10);
            // One that is due while the files of the one before are still removed is left out, and counted.
            let counted = || checkpoints.stats().written + checkpoints.stats().left_out;
            settles(counted, &due, "checkpoints");
            if checkpoints.stats().written > before {
                assert_eq!(step % 10, 0, "it was due");
                last = step;
            }
        }
        assert_eq!(checkpoints.steps(), 35);
        assert!(last >= 10);
        let newest = checkpoints.save_now();
        drop(checkpoints);
        assert_eq!(newest.unwrap().step, Some(35));
        let files = store.files.lock();
        assert_eq!(files.values().collect::<Vec<_>>(), [&vec![35; 10]], "the older ones are removed");
    });
}

#[test]
fn steps_go_on_where_they_were() {
    let (store, metadata) = (Arc::new(MemoryStore::default()), Arc::new(MemoryMetadata::new()));
    for due in [3, 6, 9] {
        let how = Checkpointer::new(store.clone(), metadata.clone(), ID).unwrap();
        let checkpoints = how.restore(Vec::new).unwrap();
        (0..3).for_each(|_| checkpoints.step().unwrap());
        assert_eq!(checkpoints.save_now().unwrap().step, Some(due));
    }
}

#[test]
fn one_is_written_every_so_often() {
    must_end("checkpoints by time", || {
        let store = MemoryStore::default();
        let checkpoints = how(&store).every(Duration::from_millis(1)).restore(|| vec![1; 10]).unwrap();
        settles(|| checkpoints.stats().written > 5, &true, "checkpoints");
        assert!(store.names(ID).len() <= 2, "older ones are removed");
    });
}

#[test]
fn what_is_due_while_another_is_written_is_left_out_and_counted() {
    must_end("left out", || {
        let (how, is_waiting, go) = gated();
        let checkpoints = how.every_steps(1).restore(|| vec![1; 10]).unwrap();
        checkpoints.step().unwrap();
        is_waiting.recv().unwrap();
        // Training goes on, and the state can be changed: it was copied.
        for step in 2..=6 {
            *checkpoints.state().write() = vec![step; 10];
            checkpoints.step().unwrap();
        }
        assert_eq!((checkpoints.stats().left_out, checkpoints.stats().written), (5, 0));
        go.send(()).unwrap();
        settles(|| checkpoints.stats().written, &1, "checkpoints");
        // Who asks while one is being written gets one that is begun later.
        settles(
            || {
                checkpoints.step().unwrap();
                is_waiting.try_recv().is_ok()
            },
            &true,
            "the next one",
        );
        std::thread::scope(|scope| {
            let saved = scope.spawn(|| checkpoints.save_now().unwrap());
            *checkpoints.state().write() = vec![9; 10];
            go.send(()).unwrap();
            is_waiting.recv().unwrap();
            go.send(()).unwrap();
            assert_eq!(saved.join().unwrap().bytes, Some(10));
        });
    });
}

#[test]
fn asking_ends_after_the_time_that_was_chosen() {
    let (how, is_waiting, go) = gated();
    let checkpoints = how.save_within(Duration::from_millis(20)).restore(|| vec![1; 10]).unwrap();
    let error = checkpoints.save_now().unwrap_err();
    assert!(matches!(error, CheckpointError::TooLong { .. }), "{error}");
    is_waiting.recv().unwrap();
    go.send(()).unwrap();
    settles(|| checkpoints.stats().written, &1, "checkpoints");
}

/// A state that reports whether it is locked while its file is written.
struct Watched {
    bytes: Vec<u8>,
    fails: Option<fn() -> io::Result<()>>,
}

impl Checkpoint for Watched {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        self.bytes.chunks(1000).try_for_each(|bytes| to.write_all(bytes))?;
        self.fails.map_or(Ok(()), |fails| fails())
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.bytes.read(from)
    }
}

#[test]
fn a_state_is_locked_while_it_is_copied_or_until_it_is_written() {
    for mode in [Mode::Copy, Mode::Hold] {
        must_end("modes", move || {
            let (waits, is_waiting) = channel();
            let (go, may_go) = channel::<()>();
            let both = Mutex::new((waits, may_go));
            let judge = move |operation| {
                if operation == Operation::Write {
                    let both = both.lock();
                    let _ = both.0.send(());
                    let _ = both.1.recv();
                }
                Verdict::Go
            };
            let store = MemoryStore::default();
            let (faulty_store, metadata) = faulty(store.clone(), MemoryMetadata::new(), judge);
            let how = Checkpointer::new(faulty_store, metadata, ID).unwrap().mode(mode);
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(5000).collect();
            let checkpoints = how.restore(|| Watched { bytes: bytes.clone(), fails: None }).unwrap();
            std::thread::scope(|scope| {
                let saved = scope.spawn(|| checkpoints.save_now().unwrap());
                is_waiting.recv().unwrap();
                // It is being written now.
                assert_eq!(checkpoints.state().try_write().is_none(), mode == Mode::Hold);
                drop(go);
                let entry = saved.join().unwrap();
                assert_eq!(store.files.lock().values().next().unwrap(), &bytes);
                let sum = md5_of(&bytes);
                assert_eq!((entry.md5, entry.bytes), (sum, Some(5000)));
            });
            assert!(checkpoints.state().try_write().is_some());
            let stats = checkpoints.stats();
            assert_eq!((stats.written, stats.last_bytes, stats.growths, stats.puts_tried), (1, 5000, 0, 1));
            assert!(stats.lock_held >= stats.lock_held_max && stats.lock_held_max == stats.lock_held_last);
        });
    }
}

fn md5_of(bytes: &[u8]) -> String {
    use md5::Digest as _;
    md5::Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_state_that_fails_or_panics_costs_one_checkpoint() {
    for mode in [Mode::Copy, Mode::Hold] {
        let store = MemoryStore::default();
        let how = how(&store).mode(mode);
        let checkpoints = how.restore(|| Watched { bytes: vec![1; 10], fails: None }).unwrap();
        checkpoints.save_now().unwrap();
        checkpoints.state().write().fails = Some(|| Err(io::Error::other("the GPU is gone")));
        let error = checkpoints.save_now().unwrap_err();
        assert!(
            matches!(&error, CheckpointError::State { source } if source.to_string() == "the GPU is gone")
        );
        checkpoints.state().write().fails = Some(|| panic!("a bug"));
        let error = checkpoints.save_now().unwrap_err();
        assert_eq!(error.to_string(), "the state panicked while it was written: a bug");
        assert_eq!(store.names(ID).len(), 1);
        checkpoints.state().write().fails = None;
        checkpoints.save_now().unwrap();
        let stats = checkpoints.stats();
        assert_eq!((stats.written, stats.failed, store.names(ID).len()), (2, 2, 1));
        assert!(stats.last_error.is_some());
    }
}

#[test]
fn a_state_may_grow() {
    let store = MemoryStore::default();
    let checkpoints = how(&store).restore(|| vec![1; 1000]).unwrap();
    for length in [1000, 1010, 1020, 5000, 0, 1 << 20] {
        *checkpoints.state().write() = vec![2; length];
        assert_eq!(checkpoints.save_now().unwrap().bytes, Some(length as u64));
    }
    assert_eq!(store.files.lock().values().next().unwrap().len(), 1 << 20);
    assert!(checkpoints.stats().growths >= 1);
}

#[test]
fn options_that_cannot_be_are_refused() {
    let refused = |how: Checkpointer, due: &str| {
        let message = how.restore(|| -> Vec<u8> { panic!("it must not begin") }).unwrap_err().to_string();
        assert!(message.contains(due), "{message}");
    };
    let store = MemoryStore::default();
    refused(how(&store).keep(0), "keep cannot be 0: from 1 to 64");
    refused(how(&store).keep(65), "keep cannot be 65");
    refused(how(&store).every(Duration::ZERO), "every cannot be 0ns");
    refused(how(&store).every_steps(0), "every_steps cannot be 0");
    refused(how(&store).ttl(Duration::ZERO), "ttl cannot be");
    refused(how(&store).pauses(Duration::ZERO, Duration::ZERO), "pauses cannot be");
    for id in ["", "..", "a/b", "a\0b", ".git"] {
        let error =
            Checkpointer::new(Arc::new(store.clone()), Arc::new(MemoryMetadata::new()), id).unwrap_err();
        assert!(
            matches!(&error, CheckpointError::Id(_)) && error.to_string().contains("1 to 200"),
            "{error}"
        );
    }
}
