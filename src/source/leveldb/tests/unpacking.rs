//! Compares a cursor whose blocks helpers unpack with one that unpacks them itself. Whichever thread unpacks
//! first, and whatever byte of a table is damaged, the records are the same, and then the error.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;
use rusty_leveldb::compressor::SnappyCompressor;
use rusty_leveldb::{CompressorId, DB, Options};
use tempfile::{TempDir, tempdir};

use super::LevelDb;
use super::deferring::{DATABASES, checked, damage, data, verified};
use crate::base::offload::{Helpers, OFFLOADED_MAX, OffloadedTask};
use crate::record::RecordId;
use crate::source::{Cursor, IndexPlace, Run, Source, VerifiesLater};

/// When offloaded tasks are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// When they are sent.
    AtOnce,
    /// When the next is sent; often they are no longer needed by then.
    Late,
    Never,
    /// No task is accepted.
    Refused,
}

/// Helpers without threads.
struct Scripted {
    when: When,
    threads: usize,
    last: Mutex<Option<Arc<dyn OffloadedTask>>>,
    sent: AtomicUsize,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("when", &self.when).finish()
    }
}

impl Scripted {
    fn new(when: When, threads: usize) -> Arc<Self> {
        Arc::new(Scripted { when, threads, last: Mutex::new(None), sent: AtomicUsize::new(0) })
    }
}

impl Helpers for Scripted {
    fn threads(&self) -> usize {
        self.threads
    }

    fn offloaded_max(&self) -> usize {
        OFFLOADED_MAX
    }

    fn send(&self, task: Arc<dyn OffloadedTask>) -> bool {
        self.sent.fetch_add(1, Ordering::Relaxed);
        match self.when {
            When::AtOnce => _ = task.run(),
            When::Late => {
                let last = self.last.lock().replace(task);
                last.iter().for_each(|last| _ = last.run());
            }
            When::Never => {}
            When::Refused => return false,
        }
        true
    }
}

/// Helpers with threads, and room for every task. Every `dies_at`th task makes the thread that takes it exit
/// first.
#[derive(Debug)]
struct Threads {
    offloaded: Option<Sender<usize>>,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// The tasks sent, by number.
#[derive(Default)]
struct Queue {
    sent: Mutex<Vec<Option<Arc<dyn OffloadedTask>>>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl Threads {
    fn start(count: usize, dies_at: Option<usize>) -> Arc<Self> {
        let (offloaded, numbers) = bounded::<usize>(OFFLOADED_MAX);
        let queue = Arc::new(Queue::default());
        let help = || {
            let (numbers, queue) = (numbers.clone(), queue.clone());
            move || {
                for number in numbers {
                    let task = queue.sent.lock()[number].take().unwrap();
                    if dies_at.is_some_and(|dies_at| number % dies_at == dies_at - 1) {
                        return;
                    }
                    task.run();
                }
            }
        };
        let threads = (0..count).map(|_| std::thread::spawn(help())).collect();
        Arc::new(Threads { offloaded: Some(offloaded), queue, threads })
    }
}

impl Helpers for Threads {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn offloaded_max(&self) -> usize {
        OFFLOADED_MAX
    }

    fn send(&self, task: Arc<dyn OffloadedTask>) -> bool {
        let mut sent = self.queue.sent.lock();
        sent.push(Some(task));
        let offloaded = self.offloaded.as_ref().unwrap();
        match offloaded.try_send(sent.len() - 1) {
            Ok(()) => true,
            Err(error) => {
                assert!(error.is_disconnected(), "there is room for every task");
                false
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(self.offloaded.take());
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn helped(path: &Path, helpers: Arc<dyn Helpers>) -> Box<dyn Cursor> {
    LevelDb::open(path).unwrap().deferring_cursor(VerifiesLater::promised(Some(helpers))).unwrap()
}

/// Returns all kinds of helpers.
fn all_helpers() -> Vec<Arc<dyn Helpers>> {
    let mut all: Vec<Arc<dyn Helpers>> = Vec::new();
    for threads in [1, 2, 8] {
        for when in [When::AtOnce, When::Late, When::Never, When::Refused] {
            all.push(Scripted::new(when, threads));
        }
        all.push(Threads::start(threads, None));
        all.push(Threads::start(threads, Some(3)));
    }
    all
}

#[test]
fn whoever_unpacks_the_records_are_the_same() {
    for name in DATABASES {
        let due = verified(LevelDb::open(data(name)).unwrap().cursor().unwrap(), 1);
        for helpers in all_helpers() {
            let mut cursor = helped(&data(name), helpers.clone());
            for run_records in [1, 7, 16] {
                assert!(checked(&mut *cursor, 1, run_records) == due, "{name}, {helpers:?}");
                cursor.rewind().unwrap();
            }
        }
    }
}

#[test]
fn whoever_unpacks_a_cursor_continues_from_where_it_was_sent() {
    for name in DATABASES {
        let (due, _) = verified(LevelDb::open(data(name)).unwrap().cursor().unwrap(), 1);
        let source = LevelDb::open(data(name)).unwrap();
        source.index(&IndexPlace::Memory).unwrap();
        for helpers in all_helpers() {
            let promise = VerifiesLater::promised(Some(helpers.clone()));
            let mut cursor = source.deferring_cursor(promise).unwrap();
            for (position, records) in
                [(due.len() / 2, 60), (due.len() / 3, due.len()), (5, 7), (0, due.len())]
            {
                let position = position.min(due.len());
                cursor.seek(position as u64).unwrap();
                for (key, value) in due.iter().skip(position).take(records) {
                    let entry = cursor.advance().unwrap().unwrap();
                    entry.check().unwrap();
                    assert!((entry.key(), entry.value()) == (&key[..], &value[..]), "{name}, {helpers:?}");
                }
            }
            assert!(cursor.advance().unwrap().is_none(), "{name}, {helpers:?}");
        }
    }
}

#[test]
fn what_is_compressed_is_offered_and_what_is_not_is_not() {
    for (name, is_compressed) in [("leveldb/snappy", true), ("leveldb/uncompressed", false)] {
        let helpers = Scripted::new(When::AtOnce, 2);
        let mut cursor = helped(&data(name), helpers.clone());
        cursor.advance().unwrap();
        assert_eq!(cursor.held_bytes(0).total() > 0, is_compressed, "{name}");
        while cursor.advance().unwrap().is_some() {}
        let sent = helpers.sent.load(Ordering::Relaxed);
        println!("{name}: {sent} tasks");
        assert_eq!(sent > 1, is_compressed, "{name}: {sent} tasks");
    }
}

#[test]
fn a_walk_that_is_left_in_the_middle_lets_go_of_its_database() {
    for when in [When::AtOnce, When::Late, When::Never] {
        let helpers = Scripted::new(when, 8);
        let database = LevelDb::open(data("leveldb/snappy")).unwrap();
        let promise = VerifiesLater::promised(Some(helpers.clone()));
        let mut cursor = database.deferring_cursor(promise).unwrap();
        for _record in 0..40 {
            assert!(cursor.advance().unwrap().is_some());
        }
        drop(cursor);
        let shared = Arc::downgrade(database.database());
        drop(database);
        assert_eq!(shared.strong_count(), 0, "{when:?}");
    }
}

#[test]
fn whatever_byte_is_damaged_the_error_is_the_same_whoever_unpacks() {
    for (name, bytes_apart) in [
        ("leveldb/snappy", 29),
        ("leveldb/noise_and_text", 211),
        ("leveldb/levels", 307),
        ("leveldb/compacted", 211),
    ] {
        for when in [When::AtOnce, When::Late, When::Never] {
            let found = damage(name, bytes_apart, |path| helped(path, Scripted::new(when, 2)));
            println!("{name}, {when:?}: {found}");
            assert!(found > 0, "{name}");
        }
        let found = damage(name, 7 * bytes_apart, |path| helped(path, Threads::start(2, None)));
        assert!(found > 0, "{name}");
    }
}

/// Writes a LevelDB with values of the given lengths, each a single byte repeated, in compressed blocks of
/// half a KiB or one value. Each of `sessions` writes a table of its own; the tables overlap.
fn write<'a>(sessions: impl IntoIterator<Item = &'a [(usize, usize)]>) -> TempDir {
    let folder = tempdir().unwrap();
    // What a session leaves in the log, the next one writes to a table of level 0.
    for session in sessions.into_iter().chain([&[][..]]) {
        let options = Options {
            write_buffer_size: 99 << 20,
            compressor: SnappyCompressor::ID,
            block_size: 512,
            reuse_logs: false,
            reuse_manifest: false,
            ..Options::default()
        };
        let mut database = DB::open(folder.path(), options).unwrap();
        for &(key, bytes) in session {
            database.put(format!("{key:08}").as_bytes(), &vec![key.to_le_bytes()[0]; bytes]).unwrap();
        }
        database.flush().unwrap();
        database.close().unwrap();
    }
    folder
}

/// Returns lengths of values: `long` for the keys for which `is_long` holds, `bytes` for the others.
fn lengths(count: usize, bytes: usize, long: usize, is_long: impl Fn(usize) -> bool) -> Vec<(usize, usize)> {
    (0..count).map(|key| (key, if is_long(key) { long } else { bytes })).collect()
}

#[test]
fn a_long_block_here_and_there_does_not_make_every_short_one_a_task() {
    let is_long: [fn(usize) -> bool; 3] = [|_| false, |key| key == 0, |key| key % 500 == 0];
    let sent = is_long.map(|is_long| {
        let folder = write([&lengths(6000, 150, 1 << 20, is_long)[..]]);
        let helpers = Scripted::new(When::AtOnce, 2);
        let mut cursor = helped(folder.path(), helpers.clone());
        while cursor.advance().unwrap().is_some() {}
        helpers.sent.load(Ordering::Relaxed)
    });
    println!("6000 records, {sent:?} tasks");
    assert!(sent.iter().all(|sent| (50..300).contains(sent)), "{sent:?}");
}

#[test]
fn values_go_on_with_their_buffers_though_a_long_one_came_before() {
    let folder = write([&lengths(300, 20_000, 1 << 20, |key| key == 0)[..]]);
    for when in [When::AtOnce, When::Late, When::Never] {
        let mut cursor = helped(folder.path(), Scripted::new(when, 2));
        let (mut whole, mut run) = (0, Run::with_capacity(1));
        while let Some(entry) = cursor.advance().unwrap() {
            if entry.is_whole() {
                run.clear();
                assert!(cursor.give(RecordId::default(), &mut run));
                whole += 1;
            }
        }
        println!("{when:?}: {whole} of 300");
        assert!(whole > 200, "{when:?}: {whole} of 300");
        assert!(
            cursor.held_bytes(0).total() < 1 << 20,
            "{} bytes for values of 20,000",
            cursor.held_bytes(0).total()
        );
    }
}

#[test]
fn what_is_held_of_long_blocks_is_the_window() {
    let folder = write([&lengths(12, 5 << 20, 0, |_| false)[..]]);
    let mut cursor = helped(folder.path(), Scripted::new(When::AtOnce, 8));
    while cursor.advance().unwrap().is_some() {
        assert!(
            (10 << 20..22 << 20).contains(&cursor.held_bytes(0).total()),
            "{} bytes",
            cursor.held_bytes(0).total()
        );
    }
}

#[test]
fn records_are_the_same_where_a_table_stands_still_for_long() {
    // All three tables in turn, then the first alone, then the second; the third has few records, early and
    // late.
    let key = |range: std::ops::Range<usize>, step: usize| range.step_by(step).map(|key| (key, 150));
    let first: Vec<_> = key(0..900, 3).chain(key(900..4000, 1)).collect();
    let second: Vec<_> = key(1..900, 3).chain(key(4000..6000, 1)).collect();
    let third: Vec<_> = key(2..900, 3).chain(key(6000..7000, 1)).collect();
    let folder = write([&first[..], &second, &third]);
    let database = LevelDb::open(folder.path()).unwrap();
    assert_eq!(database.database().range(&[], None).tables(), (3, 0), "tables that overlap");
    let due = verified(database.cursor().unwrap(), 1);
    assert_eq!(due.0.len(), 7000);
    for helpers in all_helpers() {
        let mut cursor = helped(folder.path(), helpers.clone());
        for _pass in 0..2 {
            assert!(checked(&mut *cursor, 1, 7) == due, "{helpers:?}");
            cursor.rewind().unwrap();
        }
    }
}
