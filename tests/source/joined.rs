//! Several databases, one after the other, are one data set: a feed of them gives what a feed of one database
//! with all their records gives, under any policy. An error names the database that it is in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::feed::ConfigError;
use percolator::order::{AutoShardPolicy, JobWorker, OrderError, Ranks, World};
use percolator::reader::{ReaderError, Registry};
use percolator::record::RecordId;
use percolator::source::{Cursor, IndexPlace, Joined, LevelDb, Lmdb, Matching, Source, SourceError};
use percolator::{Batch, Device, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Shuffle, Target};
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::indexed::{Records, check_source, leveldb_options, rest, walked};
use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// Large enough for the workers to verify the blocks of an uncompressed LevelDB.
const SIDE: usize = 80;

const SNAPPY: u8 = 1;

/// Images whose labels are their positions in the whole data set. Those of the compressed database compress.
fn images(range: Range<usize>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let flat = |index: usize| {
        let (side, pixel) = (i32::try_from(SIDE).unwrap(), u8::try_from(index).unwrap());
        let data = vec![pixel; 3 * SIDE * SIDE];
        (common::key(index), common::datum(3, side, side, i32::from(pixel), data))
    };
    range.map(move |index| if index / 22 == 1 { flat(index) } else { common::image(index, 3, SIDE, SIDE) })
}

/// The number of records in each database of [`Shards`].
const SHARDS: [u64; 5] = [13, 0, 9, 17, 5];
const RECORDS: usize = 44;

/// Databases of all kinds, the second one empty.
struct Shards(TempDir);

impl Shards {
    fn write() -> Self {
        let folder = tempdir().unwrap();
        let path = |number: usize| folder.path().join(number.to_string());
        common::write_lmdb(&path(0), images(0..13));
        common::leveldb::write(&path(1), leveldb_options(0), []);
        common::leveldb::write(&path(2), leveldb_options(0), images(13..22));
        common::leveldb::write(&path(3), leveldb_options(SNAPPY), images(22..39));
        common::write_lmdb(&path(4), images(39..44));
        Shards(folder)
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(number.to_string())
    }

    fn open(&self) -> Joined {
        let joined = Joined::new(Lmdb::open(self.path(0)).unwrap());
        let leveldb = |number| LevelDb::open(self.path(number)).unwrap();
        joined.and(leveldb(1)).and(leveldb(2)).and(leveldb(3)).and(Lmdb::open(self.path(4)).unwrap())
    }

    fn feed(&self) -> FeedBuilder {
        let feed = Feed::builder().lmdb(self.path(0)).leveldb(self.path(1)).leveldb(self.path(2));
        quiet(feed.leveldb(self.path(3)).source(Lmdb::open(self.path(4)).unwrap()))
    }
}

fn quiet(feed: FeedBuilder) -> FeedBuilder {
    feed.threads(2).index(IndexPlace::Memory)
}

/// The naive twin: all records in memory, and the number of records in each file.
#[derive(Debug)]
struct Twin {
    source: MemorySource,
    files: Vec<u64>,
}

impl Twin {
    fn new(files: &[u64]) -> Self {
        let records = files.iter().sum::<u64>();
        let source = MemorySource::new("twin", images(0..usize::try_from(records).unwrap()));
        Twin { source, files: files.to_vec() }
    }
}

impl Source for Twin {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn records(&self) -> Option<u64> {
        self.source.records()
    }

    fn file_records(&self) -> Option<Vec<u64>> {
        Some(self.files.clone())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.source.cursor()
    }
}

#[test]
fn databases_are_mixed_in_exact_proportions_and_go_on_so() {
    must_end("a mixture", || {
        let shards = Shards::write();
        let describe = |shuffle| {
            let feed = Feed::builder().lmdb(shards.path(0)).leveldb(shards.path(3));
            quiet(feed).mix([3, 1]).batch_size(8).epochs(2).seed(3).shuffle(shuffle)
        };
        for shuffle in [Shuffle::No, Shuffle::Global] {
            let mut feed = describe(shuffle).build().unwrap();
            let plan = feed.plan().unwrap().clone();
            assert_eq!(
                plan.steps(0).unwrap(),
                (17 * 4_u64).div_ceil(8),
                "until the second database was passed over once"
            );
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let mut seen = Vec::new();
            for batch in &mut lane {
                let batch = batch.unwrap();
                let step = batch.step().unwrap();
                let due: Vec<RecordId> = plan.share(step.epoch, step.step, 0).unwrap().collect();
                assert_eq!(batch.records(), due);
                let of_first = batch.records().iter().filter(|id| id.index < 13).count();
                assert_eq!(4 * of_first, 3 * batch.len(), "{step:?}");
                // Labels are positions among all shards.
                let labels = due.iter().map(|id| if id.index < 13 { id.index } else { id.index + 9 });
                assert!(
                    batch.labels().unwrap().iter().map(|&label| u64::try_from(label).unwrap()).eq(labels)
                );
                seen.push((batch.step(), batch.bytes().to_vec()));
            }
            let mut first = describe(shuffle).build().unwrap();
            first.steps().take(5).for_each(|step| drop(step.unwrap()));
            let mut second = describe(shuffle).resume(&first.snapshot().unwrap()).build().unwrap();
            let rest = second.take_lanes().unwrap().remove(0).map(|batch| batch.unwrap());
            let rest: Vec<_> = rest.map(|batch| (batch.step(), batch.bytes().to_vec())).collect();
            assert!(rest == seen[5..], "{} and {}", rest.len(), seen.len());
        }
        let receipts = describe(Shuffle::No).receipts(true).build().unwrap_err();
        assert_eq!(receipts, FeedError::Config(ConfigError::ReceiptsOfMixture));
        let three = describe(Shuffle::No).mix([1, 2, 3]).build().unwrap_err();
        assert_eq!(three, FeedError::Config(ConfigError::Order(OrderError::Weights { found: 3, files: 2 })));
    });
}

/// A source with more records than it reports.
#[derive(Debug)]
struct Modest(MemorySource);

impl Source for Modest {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        Some(3)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

#[test]
fn a_database_that_goes_on_behind_the_records_that_it_said_is_an_error_and_not_cut() {
    let records = |range| MemorySource::new("modest", images(range));
    for joined in [
        Joined::new(Modest(records(0..5))).and(records(5..9)),
        Joined::new(records(0..2)).and(Modest(records(2..6))),
    ] {
        let mut cursor = joined.cursor().unwrap();
        let mut given = 0;
        let error = loop {
            match cursor.skip() {
                Ok(true) => given += 1,
                Ok(false) => panic!("{given} records, and the end"),
                Err(error) => break error,
            }
        };
        assert!(given == 3 || given == 5, "{given}");
        assert!(matches!(&error, SourceError::Broken { index: 3, .. }), "{error}");
        assert!(error.to_string().contains("expected 3 records, but the database"), "{error}");
    }
}

/// What a lane delivers: records, labels and pixels.
type Given = (Vec<RecordId>, Vec<i32>, Vec<u8>);

fn given(batch: &Batch) -> Given {
    (batch.records().to_vec(), batch.labels().unwrap().to_vec(), batch.bytes().to_vec())
}

/// Some steps of a feed, lane by lane.
fn steps(feed: FeedBuilder, steps: usize) -> Vec<Vec<Given>> {
    must_end("a feed of several databases", move || {
        let mut feed = feed.build().unwrap();
        feed.steps().take(steps).map(|step| step.unwrap().iter().map(given).collect()).collect()
    })
}

fn hosts(feed: FeedBuilder, lanes: usize) -> FeedBuilder {
    feed.devices((0..lanes).map(Device::host))
}

#[test]
fn round_robin_order_continues_through_all_databases() {
    let shards = Shards::write();
    let twin = || quiet(Feed::builder().source(Twin::new(&SHARDS)));
    for (lanes, batch_size) in [(1, 1), (2, 7), (3, 16), (1, 50)] {
        let with = |feed: FeedBuilder| hosts(feed.batch_size(batch_size), lanes);
        let due = steps(with(twin()).epochs(Epochs::OnePass), usize::MAX);
        assert!(
            steps(with(shards.feed()).epochs(Epochs::OnePass), usize::MAX) == due,
            "{lanes} lanes of {batch_size}"
        );
        assert_eq!(due.iter().flatten().map(|(ids, ..)| ids.len()).sum::<usize>(), RECORDS);
        // Two and a half passes.
        let count = (5 * RECORDS / 2).div_ceil(lanes * batch_size);
        assert!(steps(with(shards.feed()), count) == steps(with(twin()), count), "{lanes} of {batch_size}");
    }
    let ranks = |feed: FeedBuilder| feed.batch_size(4).share(Ranks { first: 1, of: 3 });
    assert!(steps(ranks(shards.feed()), 20) == steps(ranks(twin()), 20));
}

#[test]
fn each_worker_gets_what_its_plan_says_by_every_policy() {
    let shards = Shards::write();
    let window = Shuffle::Window { records: std::num::NonZeroU64::new(10).unwrap() };
    let policies = [
        AutoShardPolicy::Auto,
        AutoShardPolicy::File,
        AutoShardPolicy::Data,
        AutoShardPolicy::Off,
        AutoShardPolicy::Hint,
    ];
    for (workers, policy) in (1..=3).flat_map(|workers| policies.map(|policy| (workers, policy))) {
        for shuffle in [Shuffle::No, Shuffle::Global, window] {
            for worker in 0..workers {
                let with = |feed: FeedBuilder| {
                    let feed = quiet(feed).policy(policy).shuffle(shuffle).seed(9).batch_size(4).epochs(2);
                    let feed = feed.share(JobWorker {
                        world: World::new(workers, 2 * workers).unwrap(),
                        number: worker,
                    });
                    steps(hosts(feed.last_batch(LastBatch::Pad), 2), usize::MAX)
                };
                let due = with(Feed::builder().source(Twin::new(&SHARDS)));
                assert!(with(shards.feed()) == due, "{policy}, {shuffle:?}, worker {worker} of {workers}");
            }
        }
    }
}

/// The positions that one worker of several gets, in order.
fn positions(feed: FeedBuilder, workers: usize, worker: usize) -> Vec<u64> {
    let feed = feed
        .share(JobWorker { world: World::new(workers, workers).unwrap(), number: worker })
        .batch_size(6)
        .epochs(1);
    let steps = steps(feed, usize::MAX);
    steps.iter().flatten().flat_map(|(ids, ..)| ids.iter().map(|id| id.index)).collect()
}

#[test]
fn where_there_are_databases_for_all_workers_each_has_its_own() {
    let shards = Shards::write();
    assert_eq!(positions(shards.feed(), 2, 0), (0..22).chain(39..44).collect::<Vec<_>>());
    assert_eq!(positions(shards.feed(), 2, 1), (22..39).collect::<Vec<_>>());
    let by_file = |workers, worker| positions(shards.feed().policy(AutoShardPolicy::File), workers, worker);
    assert_eq!(by_file(3, 0), (0..13).chain(22..39).collect::<Vec<_>>());
    assert_eq!(by_file(3, 1), (39..44).collect::<Vec<_>>(), "the second database is empty");
    assert_eq!(by_file(3, 2), (13..22).collect::<Vec<_>>());
    let refused = quiet(shards.feed())
        .epochs(0)
        .policy(AutoShardPolicy::File)
        .share(JobWorker { world: World::new(6, 6).unwrap(), number: 0 });
    let error = FeedError::Config(ConfigError::Order(OrderError::TooFewFiles { files: 5, workers: 6 }));
    assert_eq!(refused.build().unwrap_err(), error);
}

#[test]
fn a_cursor_that_seeks_moves_as_a_position_in_a_list_would() {
    let shards = Shards::write();
    let all: Records = images(0..RECORDS).collect();
    let unindexed = shards.open();
    assert!(walked(&unindexed) == all);
    assert_eq!(unindexed.records(), Some(RECORDS as u64), "a walk has come to the end of each");
    check_source(&unindexed, 40);
    let indexed = shards.open();
    assert_eq!((indexed.records(), indexed.is_seekable()), (None, false), "nobody has counted the LevelDBs");
    indexed.index(&IndexPlace::Memory).unwrap();
    assert_eq!((indexed.file_records(), indexed.is_seekable()), (Some(SHARDS.to_vec()), true));
    check_source(&indexed, 150);
    // The first operation on databases that nobody has counted is a seek.
    for position in [0, 12, 13, 21, 22, 43, 44, u64::MAX] {
        let source = shards.open();
        let mut cursor = source.cursor().unwrap();
        cursor.seek(position).unwrap();
        let from = RECORDS.min(usize::try_from(position).unwrap());
        assert!(rest(&mut *cursor) == all[from..], "from {position}");
    }
}

#[test]
fn memory_is_known_before_and_the_databases_are_named_together() {
    let shards = Shards::write();
    let source = shards.open();
    let [first, last] = [0, 4].map(|number| shards.path(number).display().to_string());
    assert_eq!(source.path(), Path::new(&format!("{first} to {last} (5 databases)")));
    let sum = Lmdb::open(shards.path(0)).unwrap().held_bytes()
        + LevelDb::open(shards.path(3)).unwrap().held_bytes();
    assert!(source.held_bytes() > sum);
    let other = Joined::new(Lmdb::open(shards.path(0)).unwrap()).and(Lmdb::open(shards.path(4)).unwrap());
    assert_eq!(other.path(), Path::new(&format!("{first}, {last}")));
    // A reader of several that only differ in the middle is another reader.
    let key = |middle: usize| {
        let open = |number| LevelDb::open(shards.path(number)).unwrap();
        let joined = Joined::new(Lmdb::open(shards.path(0)).unwrap()).and(open(middle)).and(open(2));
        let joined = joined.and(Lmdb::open(shards.path(4)).unwrap());
        let reader = percolator::reader::DataReader::builder("data", joined);
        reader.open_in(&Registry::new()).unwrap().key().clone()
    };
    assert_eq!(key(1), key(1));
    assert_ne!(key(1), key(3));
}

#[test]
fn an_empty_database_does_no_harm_wherever_it_is_and_only_empty_ones_are_an_error() {
    let folder = tempdir().unwrap();
    let (empty, full) = (folder.path().join("empty"), folder.path().join("full"));
    common::write_lmdb(&empty, []);
    common::write_lmdb(&full, (0..5).map(|index| common::image(index, 1, 2, 2)));
    for order in [[&empty, &full, &full], [&full, &empty, &full], [&full, &full, &empty]] {
        for is_planned in [false, true] {
            let feed = order.iter().fold(Feed::builder(), |feed, path| feed.lmdb(path));
            let feed = quiet(feed).batch_size(4);
            let feed = if is_planned { feed.epochs(2).shuffle(Shuffle::Global) } else { feed };
            let steps = steps(if is_planned { feed } else { feed.epochs(Epochs::OnePass) }, usize::MAX);
            let records = steps.iter().flatten().map(|(ids, ..)| ids.len()).sum::<usize>();
            assert_eq!(records, if is_planned { 20 } else { 10 }, "{order:?}");
        }
    }
    for is_planned in [false, true] {
        let feed = quiet(Feed::builder().lmdb(&empty).lmdb(&empty));
        let error = if is_planned { feed.epochs(1) } else { feed }.build().unwrap_err();
        let path = format!("{}, {}", empty.display(), empty.display()).into();
        assert_eq!(error, SourceError::Empty { path }.into());
    }
}

/// The error that ends the first lane of a feed, or the one that keeps the feed from being built.
fn error_of(feed: FeedBuilder) -> FeedError {
    must_end("a feed that ends in an error", move || match feed.build() {
        Ok(mut feed) => feed.take_lanes().unwrap().remove(0).find_map(Result::err).unwrap(),
        Err(error) => error,
    })
}

#[test]
fn a_record_of_another_shape_is_named_with_its_own_database_and_its_key() {
    let folder = tempdir().unwrap();
    let (small, large) = (folder.path().join("small"), folder.path().join("large"));
    common::write_lmdb(&small, (0..6).map(|index| common::image(index, 3, 4, 4)));
    for (is_leveldb, shuffle) in [(false, Shuffle::No), (true, Shuffle::No), (false, Shuffle::Global)] {
        let _ = std::fs::remove_dir_all(&large);
        let records = (100..104).map(|index| common::image(index, 3, 5, 4));
        let feed = quiet(Feed::builder().lmdb(&small)).batch_size(10);
        let feed = match is_leveldb {
            true => {
                common::leveldb::write(&large, leveldb_options(0), records);
                feed.leveldb(&large)
            }
            false => {
                common::write_lmdb(&large, records);
                feed.lmdb(&large)
            }
        };
        let FeedError::Record(error) = error_of(feed.epochs(1).shuffle(shuffle).seed(4)) else { panic!() };
        let is_of_large = error.id.index >= 6;
        assert_eq!(&error.path, if is_of_large { &large } else { &small }, "{error}");
        let key = if is_of_large { 100 + error.id.index - 6 } else { error.id.index };
        assert_eq!(error.key.0, common::key(usize::try_from(key).unwrap()), "{error}");
        if shuffle == Shuffle::No {
            assert_eq!(error.id.index, 6, "{error}");
            let said = error.to_string();
            assert!(
                said.contains(
                    "the record is 3x5x4 after its transform, but the first record of its batch is 3x4x4"
                ),
                "{said}"
            );
        }
    }
}

/// In round-robin order nobody has counted the LevelDBs: the cursor finds where one ends.
#[test]
fn a_bad_record_is_named_with_its_own_database_where_nobody_has_counted_them() {
    let folder = tempdir().unwrap();
    let path = |number: usize| folder.path().join(number.to_string());
    for number in 0..3 {
        let records = (0..8).map(|index| {
            let (key, value) = common::image(index, 1, 2, 2);
            (key, if (number, index) == (1, 5) { b"no datum".to_vec() } else { value })
        });
        common::leveldb::write(&path(number), leveldb_options(0), records.collect::<Records>());
    }
    for batch_size in [1, 4, 5, 20] {
        let feed = Feed::builder().leveldb(path(0)).leveldb(path(1)).leveldb(path(2));
        let FeedError::Record(error) = error_of(quiet(feed).batch_size(batch_size)) else { panic!() };
        assert_eq!((&error.path, error.id.index, &error.key.0), (&path(1), 13, &common::key(5)), "{error}");
    }
}

#[test]
fn damage_in_one_database_is_said_of_its_file() {
    let shards = Shards::write();
    let files = std::fs::read_dir(shards.path(2)).unwrap().map(|file| file.unwrap().path());
    let table = files.filter(|file| file.extension().is_some_and(|ending| ending == "ldb")).min().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[30_000] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    for feed in [shards.feed(), shards.feed().shuffle(Shuffle::Global).epochs(1)] {
        for batch_size in [1, 16] {
            let error = error_of(feed.clone().batch_size(batch_size)).to_string();
            assert!(error.contains(table.to_str().unwrap()) && error.contains("is damaged"), "{error}");
        }
    }
}

/// A source that reports one record more than it has, or one fewer, or no count.
#[derive(Debug)]
struct Says(MemorySource, Option<u64>);

impl Source for Says {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        self.1
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

fn says(name: &str, records: Option<u64>) -> Says {
    Says(MemorySource::images(name, 5, 3, SIDE, SIDE), records)
}

#[test]
fn a_database_that_ends_before_it_said_is_an_error_that_names_it() {
    for is_planned in [false, true] {
        let feed = quiet(Feed::builder().source(says("a", Some(5))).source(says("b", Some(6))));
        let feed = feed.source(says("c", Some(5))).batch_size(3);
        match error_of(if is_planned { feed.epochs(1) } else { feed.epochs(Epochs::OnePass) }) {
            FeedError::Reader(ReaderError::Source(error)) => {
                let due = "memory/b: record 5: expected 6 records, but the database ends";
                assert_eq!(error.to_string(), due);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn databases_that_do_not_say_how_many_records_they_have_are_counted_one_by_one() {
    let feed = || quiet(Feed::builder().source(says("a", None)).source(says("b", None)));
    assert_eq!(positions(feed(), 2, 0), [0, 1, 2, 3, 4]);
    assert_eq!(positions(feed(), 2, 1), [5, 6, 7, 8, 9]);
}

#[test]
fn an_error_and_a_panic_of_the_second_source_end_the_feed_with_its_own_words() {
    let first = || MemorySource::images("a", 4, 3, 2, 2);
    let second = || MemorySource::images("b", 4, 3, 2, 2);
    let feed = |second: MemorySource| quiet(Feed::builder().source(first()).source(second)).batch_size(2);
    let error = error_of(feed(second().fail_at(2))).to_string();
    assert_eq!(error, "memory/b: record 2: a fault of the test");
    let error = error_of(feed(second().panic_at(3))).to_string();
    assert!(error.contains("a panic of the test at position 3"), "{error}");
}

#[test]
fn images_and_masks_may_both_be_of_several_databases() {
    let folder = tempdir().unwrap();
    let write = |name: &str, range: Range<usize>| {
        let path = folder.path().join(name);
        common::write_lmdb(&path, range.map(|index| common::image(index, 1, 2, 2)));
        path
    };
    let images = [write("images 0", 0..7), write("images 1", 7..10)];
    let masks = [write("masks 0", 0..4), write("masks 1", 4..10)];
    let open = |paths: &[PathBuf; 2]| {
        Joined::new(Lmdb::open(&paths[0]).unwrap()).and(Lmdb::open(&paths[1]).unwrap())
    };
    let feed = |masks: &[PathBuf; 2]| {
        let feed = quiet(Feed::builder().lmdb(&images[0]).lmdb(&images[1]));
        feed.target(Target::paired(open(masks), Matching::Keys)).batch_size(4)
    };
    for shuffle in [Shuffle::No, Shuffle::Global] {
        let mut feed = feed(&masks).epochs(1).shuffle(shuffle).build().unwrap();
        let batches = feed.take_lanes().unwrap().remove(0).map(Result::unwrap);
        let records = batches.map(|batch| {
            assert_eq!(batch.pixels::<f32>().unwrap(), batch.target_pixels::<f32>().unwrap());
            batch.len()
        });
        assert_eq!(records.sum::<usize>(), 10);
    }
    let others = [masks[0].clone(), write("others", 5..11)];
    match error_of(feed(&others).epochs(Epochs::OnePass)) {
        FeedError::Reader(ReaderError::Source(SourceError::KeysDiffer {
            path, companions, index, ..
        })) => {
            assert_eq!((path, companions, index), (images[0].clone(), others[1].clone(), 4));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_data_set_may_be_read_by_readers_of_ones_own() {
    let shards = Shards::write();
    let source: Arc<dyn Source> = Arc::new(shards.open());
    let reader = percolator::reader::DataReader::builder_shared("data", source).batch_size(16).passes(2);
    let reader = reader.open_in(&Registry::new()).unwrap();
    let (mut labels, due) = (Vec::new(), images(0..RECORDS).collect::<Records>());
    while let Some(run) = reader.full().pop().unwrap() {
        for record in run.iter() {
            let (key, value) = &due[usize::try_from(record.id.index).unwrap()];
            assert!((record.key, record.value) == (&key[..], &value[..]), "{}", record.id);
            labels.push(record.id);
        }
    }
    assert_eq!(labels.len(), 2 * RECORDS);
}
