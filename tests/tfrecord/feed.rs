//! Feeds of TFRecord files: what holds of every source holds of them, and files are shuffled as wholes.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use percolator::feed::Receipts;
use percolator::order::{AutoShardPolicy, Block, Blocks, JobWorker, Plan, World};
use percolator::receipt::DigestDetail;
use percolator::record::StepId;
use percolator::source::{Access, IndexPlace, Source as _, TfRecord};
use percolator::tfrecord::Compression;
use percolator::{Epochs, Feed, FeedBuilder, LastBatch, RawBytes, Receipt, Shuffle, Snapshot};
use percolator_proof::Verdict;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::files::{COMPRESSIONS, write};

/// The records of each file; a record's bytes are its position in the data set.
const FILES: [usize; 6] = [7, 0, 13, 5, 20, 4];
const RECORDS: usize = 49;

struct Shards(TempDir);

impl Shards {
    fn write(compression: Compression) -> Self {
        Self::write_some(compression, false)
    }

    /// All files are compressed, or every second one.
    fn write_some(compression: Compression, is_mixed: bool) -> Self {
        let folder = tempdir().unwrap();
        let mut position = 0_u64;
        for (number, &count) in FILES.iter().enumerate() {
            let records = (0..count).map(|_| {
                position += 1;
                (Vec::new(), (position - 1).to_le_bytes().to_vec())
            });
            let is_plain = is_mixed && number % 2 == 1;
            let compression = if is_plain { Compression::Plain } else { compression };
            write(&folder.path().join(format!("part-{number}")), &records.collect(), compression, 1);
        }
        Shards(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("part-?")
    }

    fn indexes(&self) -> PathBuf {
        self.0.path().join("indexes")
    }

    fn feed(&self) -> FeedBuilder {
        let feed = Feed::builder().tfrecord(self.path()).index(IndexPlace::Folder(self.indexes()));
        feed.decoder(RawBytes::fixed()).threads(2)
    }
}

/// Has no blocks: a feed that is refused asks for none.
#[derive(Debug)]
struct NoBlocks;

impl Blocks for NoBlocks {
    fn next(
        &mut self,
        _plan: &Plan,
        _is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        Ok(None)
    }
}

/// The positions that a feed delivers, by the bytes of its records.
fn delivered(feed: FeedBuilder) -> Vec<u64> {
    let mut found = Vec::new();
    for batch in feed.build().unwrap() {
        let batch = batch.unwrap();
        let bytes = batch.get::<u8>(0).unwrap().into_slice();
        let (positions, _) = bytes.as_chunks::<8>();
        let positions = positions.iter().map(|bytes| u64::from_le_bytes(*bytes)).take(batch.len());
        let ids: Vec<u64> = batch.records().iter().map(|id| id.index).collect();
        found.extend(positions);
        assert!(found.ends_with(&ids), "each record is the one that its id names");
    }
    found
}

/// The files of these positions, in order, each as often as it is come to.
fn files(positions: &[u64]) -> Vec<usize> {
    let mut bounds = vec![0];
    FILES.iter().for_each(|&count| bounds.push(bounds.last().unwrap() + count as u64));
    let file = |position: u64| bounds.partition_point(|&bound| bound <= position) - 1;
    let mut files: Vec<usize> = positions.iter().map(|&position| file(position)).collect();
    files.dedup();
    files
}

#[test]
fn every_order_of_a_lmdb_is_there_for_files() {
    for compression in COMPRESSIONS {
        let shards = Shards::write(compression);
        for access in [Access::Mapped, Access::Read] {
            let feed = || shards.feed().access(access).batch_size(4);
            let all: Vec<u64> = (0..RECORDS as u64).collect();
            assert_eq!(delivered(feed().epochs(Epochs::OnePass)), all);
            assert_eq!(delivered(feed().epochs(2)), [&all[..], &all[..]].concat());
            if compression != Compression::Plain {
                continue;
            }
            for shuffle in [Shuffle::Global, Shuffle::Window { records: 10.try_into().unwrap() }] {
                let mut shuffled = delivered(feed().epochs(1).shuffle(shuffle));
                assert_ne!(shuffled, all);
                shuffled.sort_unstable();
                assert_eq!(shuffled, all, "{compression:?} {access:?} {shuffle:?}");
            }
        }
    }
}

/// A compressed file is unpacked from its front. So what needs records by position is refused before anything
/// is read, with what to do instead; and nothing is written.
#[test]
fn records_of_compressed_files_are_refused_by_position() {
    for compression in [Compression::Gzip, Compression::Zlib] {
        let shards = Shards::write(compression);
        let window = Shuffle::Window { records: 10.try_into().unwrap() };
        let global = |feed: FeedBuilder| feed.shuffle(Shuffle::Global);
        let first = shards.0.path().join("part-0");
        let source = TfRecord::open(&first).unwrap();
        let places = [IndexPlace::Beside, IndexPlace::Memory, IndexPlace::Folder(shards.indexes())];
        let feed = || shards.feed().batch_size(4).epochs(1);
        let refused = [
            global(feed()).build().map(drop).unwrap_err().to_string(),
            global(feed())
                .share(JobWorker { world: World::new(2, 2).unwrap(), number: 1 })
                .build()
                .map(drop)
                .unwrap_err()
                .to_string(),
            feed().shuffle(window).build().map(drop).unwrap_err().to_string(),
            feed().tfrecord(&first).mix([3, 1]).build().map(drop).unwrap_err().to_string(),
            feed().blocks(NoBlocks).build().map(drop).unwrap_err().to_string(),
        ];
        let indexed = places.map(|place| source.index(&place).unwrap_err().to_string());
        for error in refused.into_iter().chain(indexed) {
            let is_said = ["part-0: it is compressed", "its records cannot be shuffled or mixed"];
            assert!(is_said.iter().all(|said| error.contains(said)), "{error}");
            assert!(error.contains("percolator convert records IN OUT --backend tfrecord"), "{error}");
        }
        assert!(!source.is_seekable());
        assert_eq!(std::fs::read_dir(shards.0.path()).unwrap().count(), FILES.len());
    }
}

#[test]
fn shuffled_files_come_whole_in_an_order_of_each_epoch() {
    for compression in COMPRESSIONS {
        let shards = Shards::write(compression);
        let feed = || shards.feed().batch_size(6).shuffle(Shuffle::Files).seed(3);
        let found = delivered(feed().epochs(20));
        let mut orders = BTreeSet::new();
        for epoch in found.chunks(RECORDS) {
            let order = files(epoch);
            let mut positions = epoch.to_vec();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..RECORDS as u64));
            let each: BTreeSet<usize> = order.iter().copied().collect();
            assert_eq!((each.len(), order.len()), (5, 5), "each file comes once: {order:?}");
            let follows = |pair: &[u64]| pair[1] == pair[0] + 1 || files(pair).len() == 2;
            assert!(epoch.windows(2).all(follows), "{epoch:?}");
            orders.insert(order);
        }
        assert!(orders.len() > 10, "{orders:?}");
        assert_eq!(delivered(feed().epochs(20)), found, "the same again");
        assert_ne!(delivered(feed().epochs(20).seed(4)), found);
        let indexes = std::fs::read_dir(shards.indexes()).unwrap().count();
        assert_eq!(indexes, FILES.len(), "the counts of all files are kept, and nothing else is");
    }
}

/// Joined LMDBs are files, too, and need no index for it.
#[test]
fn shuffled_lmdbs_come_whole() {
    let folder = tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..4).map(|number| folder.path().join(number.to_string())).collect();
    for (number, path) in paths.iter().enumerate() {
        common::write_lmdb(path, (0..5_usize).map(|index| common::image(5 * number + index, 1, 2, 2)));
    }
    let feed = paths.iter().fold(Feed::builder(), |feed, path| feed.lmdb(path));
    let feed = feed.batch_size(5).shuffle(Shuffle::Files).epochs(6).index(IndexPlace::Beside);
    let mut labels = Vec::new();
    for batch in feed.build().unwrap() {
        labels.extend_from_slice(batch.unwrap().labels().unwrap());
    }
    assert_eq!(labels.len(), 6 * 20);
    for file in labels.chunks(5) {
        assert!(file[0] % 5 == 0 && file.windows(2).all(|pair| pair[1] == pair[0] + 1), "{file:?}");
    }
    assert!(labels.chunks(20).collect::<BTreeSet<_>>().len() > 2);
    assert!(paths.iter().all(|path| !path.with_extension("percolator-index").exists()));
}

/// The orders of a plan, the last of which finds each record by its position.
const ORDERS: [Shuffle; 3] = [Shuffle::No, Shuffle::Files, Shuffle::Global];

/// What a job's workers deliver, with their receipts.
fn job(
    shards: &Shards,
    world: World,
    configured: impl Fn(FeedBuilder) -> FeedBuilder,
) -> (Vec<u64>, Vec<Receipt>) {
    let (mut positions, mut receipts) = (Vec::new(), Vec::new());
    for worker in 0..world.workers() {
        let feed =
            configured(shards.feed()).share(JobWorker { world, number: worker }).receipts(Receipts::Contents);
        let mut feed = feed.build().unwrap();
        for step in feed.steps() {
            for batch in step.unwrap() {
                positions.extend(batch.records().iter().map(|id| id.index));
            }
        }
        receipts.push(feed.receipt().unwrap());
    }
    positions.sort_unstable();
    (positions, receipts)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn workers_share_files_and_their_receipts_cover_the_data_set(
        workers in 1_usize..5, size in 1_usize..8, kind in 0_usize..4, shuffle in 0_usize..3, seed: u64,
        compression in prop::sample::select(&COMPRESSIONS[..]), is_mixed: bool,
    ) {
        let shards = Shards::write_some(compression, is_mixed);
        let world = World::new(workers, workers).unwrap();
        let policy =
            [AutoShardPolicy::Auto, AutoShardPolicy::File, AutoShardPolicy::Data, AutoShardPolicy::Hint];
        let policy = policy[kind];
        let shuffle = ORDERS[shuffle % if compression == Compression::Plain { 3 } else { 2 }];
        let (positions, receipts) = job(&shards, world, |feed| {
            feed.batch_size(size).policy(policy).shuffle(shuffle).seed(seed).epochs(2)
        });
        let due = (0..RECORDS as u64).flat_map(|position| [position; 2]);
        prop_assert!(positions.into_iter().eq(due));
        let digest = percolator_proof::digest(&shards.feed(), DigestDetail::EachRecord).unwrap();
        let named = receipts.iter().map(|receipt| ("worker", receipt));
        let verdict = Verdict::with_digest(("digest", &digest), named).unwrap();
        prop_assert!(verdict.is_sound() && verdict.first_not_covered(2).is_none(), "{verdict:?}");
    }

    #[test]
    fn a_run_resumes_where_it_was(
        cut in 1_usize..40, shuffle in 0_usize..3, seed: u64,
        compression in prop::sample::select(&COMPRESSIONS[..]), is_mixed: bool,
    ) {
        let shards = Shards::write_some(compression, is_mixed);
        let shuffle = ORDERS[shuffle % if compression == Compression::Plain { 3 } else { 2 }];
        let feed = || shards.feed().batch_size(3).shuffle(shuffle).seed(seed).epochs(3);
        let whole = delivered(feed());
        let mut first = feed().build().unwrap();
        let mut before = Vec::new();
        for step in first.steps().take(cut) {
            step.unwrap().iter().for_each(|batch| before.extend(batch.records().iter().map(|id| id.index)));
        }
        let text = first.snapshot().unwrap().to_string();
        let snapshot: Snapshot = text.parse().unwrap();
        let after = delivered(feed().resume(&snapshot));
        prop_assert_eq!([&before[..], &after].concat(), &whole[..]);
        // A seek, forwards or back.
        let step = cut % 17;
        first.seek(StepId { epoch: 1, step: step as u64 }).unwrap();
        let batch = first.steps().next().unwrap().unwrap().remove(0);
        let ids: Vec<u64> = batch.records().iter().map(|id| id.index).collect();
        prop_assert!(whole[RECORDS + 3 * step..].starts_with(&ids));
    }
}

#[test]
fn a_snapshot_is_not_another_datas() {
    let [one, other] = [Compression::Plain, Compression::Gzip].map(Shards::write);
    let feed = |shards: &Shards| shards.feed().batch_size(3).shuffle(Shuffle::Files).epochs(3);
    let snapshot = feed(&one).build().unwrap().snapshot().unwrap();
    assert!(feed(&one).resume(&snapshot).build().is_ok());
    let refused = feed(&other).resume(&snapshot).build().unwrap_err().to_string();
    assert!(refused.contains("compression"), "{refused}");
    let order = feed(&one).shuffle(Shuffle::Global).resume(&snapshot).build().unwrap_err().to_string();
    assert!(order.contains("shuffle"), "{order}");
}

/// To a mixture, the files of a pattern are one database.
#[test]
fn patterns_are_mixed_as_wholes() {
    let shards = Shards::write(Compression::Plain);
    let folder = tempdir().unwrap();
    let other = folder.path().join("other");
    let records = (0..10).map(|_| (Vec::new(), 1000_u64.to_le_bytes().to_vec())).collect();
    write(&other, &records, Compression::Plain, 1);
    let feed = shards.feed().tfrecord(&other).mix([3, 1]).epochs(1).batch_size(4).last_batch(LastBatch::Drop);
    for batch in feed.build().unwrap() {
        let batch = batch.unwrap();
        let others = batch.records().iter().filter(|id| id.index >= RECORDS as u64).count();
        assert_eq!(others, 1);
    }
}

#[test]
fn a_budget_is_kept() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("large");
    let records: Vec<_> = (0..4).map(|index| (Vec::new(), vec![index as u8; 100_000])).collect();
    write(&path, &records, Compression::Plain, 1);
    let feed = Feed::builder().tfrecord(&path).decoder(RawBytes::fixed()).batch_size(4).threads(2);
    let refused = feed.memory_limit(100_000).build().unwrap_err().to_string();
    assert!(refused.contains("memory"), "{refused}");
}

#[test]
fn a_spec_names_the_files() {
    let feed = Feed::builder().tfrecord("train-*").tfrecord("more");
    let sources = &feed.spec().sources;
    assert_eq!(sources.len(), 2);
    let text = format!("{sources:?}");
    assert!(text.contains("train-*") && text.contains("compression: None"), "{text}");
    let missing = Feed::builder().root("/nowhere").tfrecord(Path::new("x*")).build().unwrap_err().to_string();
    assert!(missing.contains("x*"), "{missing}");
}
