//! An allocation for each record or each batch is slow in a way that no profile of one run shows. These tests
//! count: two lanes over real databases with every step of the transform, and several hundred batches after
//! the rings were used a few times. The count must be 0, on all threads of the process. `ALLOCATION_TRACE=1`
//! prints where the first allocations come from.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test of small numbers")]

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use percolator::batch::ImageShape;
use percolator::example::{ExampleFields, ExampleImage, ExampleWriter, Examples, ImageShapeFrom};
use percolator::feed::{ConfigError, LaneStats, Receipts};
use percolator::order::{AutoShardPolicy, JobWorker, World};
use percolator::proto::Datum;
use percolator::record::RecordId;
use percolator::source::{
    Access, Cursor, Entry, IndexPlace, Joined, LevelDb, Lmdb, Matching, Run, Source, SourceError, TfRecord,
    VerifiesLater,
};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::transform::CaffeEra;
use percolator::transform::{MeanImage, Mixing, Operation};
use percolator::{
    ColorMode, Device, Dtype, Feed, FeedBuilder, FeedError, Lane, LastBatch, Layout, RawBytes, Seed, Shuffle,
    Stats, Target, Transform,
};
use prost::Message as _;
use rusty_leveldb::compressor::{NoneCompressor, SnappyCompressor};
use rusty_leveldb::{CompressorId, Options};

use crate::allocator::{count, one_at_a_time};
use crate::common;
use crate::common::process::{is_alone, must_end, this_test};
use crate::common::sample::times;
#[cfg(feature = "cuda")]
use crate::standin;

/// Records that went to their run together with their buffer.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// A source that stalls before the records at these positions, counted from the first one it gives.
#[derive(Debug)]
struct Stalling {
    source: Box<dyn Source>,
    stalls: Vec<(usize, Receiver<()>)>,
}

impl Source for Stalling {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn records(&self) -> Option<u64> {
        self.source.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        let cursor = self.source.cursor()?;
        // If the source can seek, a feed looks at some records before it reads them in order.
        Ok(if self.is_seekable() { cursor } else { self.stall(cursor) })
    }

    fn is_seekable(&self) -> bool {
        self.source.is_seekable()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.source.index(place)
    }

    fn has_several_lenders(&self) -> bool {
        self.source.has_several_lenders()
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(self.stall(self.source.deferring_cursor(promise)?))
    }
}

impl Stalling {
    fn stall(&self, cursor: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(StallingCursor { cursor, stalls: self.stalls.clone(), position: 0 })
    }
}

struct StallingCursor {
    cursor: Box<dyn Cursor>,
    stalls: Vec<(usize, Receiver<()>)>,
    position: usize,
}

impl Cursor for StallingCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        for (position, released) in &self.stalls {
            if *position == self.position {
                let _ = released.recv();
            }
        }
        self.position += 1;
        self.cursor.advance()
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        self.cursor.skip()
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.cursor.rewind()
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.cursor.seek(position)
    }

    fn foresee(&mut self, position: u64) {
        self.cursor.foresee(position);
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        let is_given = self.cursor.give(id, run);
        GIVEN.fetch_add(usize::from(is_given), Ordering::Relaxed);
        is_given
    }
}

/// Long enough for a waiting thread to have gone to sleep.
const ASLEEP: Duration = Duration::from_millis(20);

fn wait_until(feed: &Feed, reached: impl Fn(&Stats) -> bool) {
    while !reached(&feed.stats()) {
        std::thread::yield_now();
    }
}

/// Makes every end of every queue wait once. The first thread that waits at an end allocates the list of
/// waiters: once a queue and not once a batch, but perhaps late.
fn wait_everywhere(feed: &Feed, lanes: &mut [Lane], mut releases: Vec<Sender<()>>) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until(feed, |stats| {
                let lanes = &stats.lanes;
                let all_wait = lanes.iter().all(|lane| lane.waits_for_records.time >= ASLEEP);
                all_wait
                    && lanes[0].waits_for_batch.time >= ASLEEP
                    && stats.workers.waits_for_records.time >= ASLEEP * 4
            });
            releases.remove(0);
            wait_until(feed, |stats| stats.lanes[1].waits_for_batch.time >= ASLEEP);
            releases.remove(0);
        });
        // The first stall is before any batch, the second in each lane's second batch.
        drop(lanes[0].next());
        drop(lanes[1].next());
        drop(lanes[1].next());
    });
    wait_until(feed, |stats| {
        // A lane that is a step ahead of the other waits for that one, at the same queues.
        let for_slots = |lane: &LaneStats| lane.waits_for_free.time + lane.waits_for_lanes.time;
        stats.lanes.iter().all(|lane| for_slots(lane) >= ASLEEP) && stats.reader.waits_for_free.time >= ASLEEP
    });
    // One lane is drained alone until the reader waits for the other.
    for lane in lanes {
        let before = feed.stats().reader.waits_for_free;
        loop {
            let taken = lane.try_next().unwrap().batch().is_some();
            let now = feed.stats().reader.waits_for_free;
            if !taken && now.count > before.count && now.time >= before.time + 4 * ASLEEP {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// Makes more threads wait at once than a feed has: the table of waiting threads, which all locks of the
/// process share, grows with their number, and never shrinks.
fn park_many() {
    let shared = (parking_lot::Mutex::new(0), parking_lot::Condvar::new());
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut waiting = shared.0.lock();
                *waiting += 1;
                shared.1.notify_all();
                shared.1.wait_while(&mut waiting, |waiting| *waiting < 32);
            });
        }
    });
}

/// Operations, a function of the program, several crops of an image, mixed batches.
#[test]
fn what_is_done_to_images_today_allocates_nothing() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose allocations are counted", || {
        park_many();
        let folder = tempfile::tempdir().unwrap();
        common::write_images(folder.path(), 300, 3, 32, 32);
        let open = || Box::new(Lmdb::open(folder.path()).unwrap());
        let today = |feed: FeedBuilder| {
            let crops = || {
                Transform::new()
                    .color(ColorMode::Rgb)
                    .operations([Operation::random_resized_crop(24), Operation::rand_augment()])
            };
            let feed = feed
                .index(IndexPlace::Memory)
                .epochs(0)
                .last_batch(LastBatch::Wrap)
                .transform(crops().normalize([0.5; 3], [0.5; 3]).operation(Operation::horizontal_flip()));
            feed.after_decode(
                |shape| shape,
                |image, _, made| {
                    made.copy_from_slice(image.bytes);
                    Ok(())
                },
            )
        };
        let viewed = |feed: FeedBuilder| {
            let view = Transform::new().color(ColorMode::Rgb).operation(Operation::random_resized_crop(9));
            today(feed).views("local", 3, view)
        };
        let mixed = |feed: FeedBuilder| {
            let mixing = Mixing::new().mixup(0.4).cutmix(1.0);
            today(feed).mixing(mixing).soft_labels(1000).labels_i64(true)
        };
        assert_eq!(calls_of_a_feed(open(), viewed), 0, "several crops of one image");
        assert_eq!(calls_of_a_feed(open(), mixed), 0, "mixed, with soft labels");
    });
}

#[test]
fn after_the_first_rounds_nothing_allocates() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose allocations are counted", || {
        park_many();
        let folder = tempfile::tempdir().unwrap();
        let lmdb = folder.path().join("lmdb");
        common::write_images(&lmdb, 300, 3, 32, 32);
        let plain = |feed: FeedBuilder| feed;
        let half = |feed: FeedBuilder| feed.dtype(Dtype::F16).layout(Layout::Nhwc);
        let paired = |feed: FeedBuilder| {
            let target = Target::paired(Lmdb::open(&lmdb).unwrap(), Matching::Keys);
            feed.seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today }).target(target)
        };
        let window = Shuffle::Window { records: NonZeroU64::new(100).unwrap() };
        let indexed =
            |feed: FeedBuilder| feed.index(IndexPlace::Memory).epochs(0).last_batch(LastBatch::Wrap);
        let planned = |feed: FeedBuilder| indexed(feed).shuffle(window);
        let shared = |feed: FeedBuilder| {
            let world = World::new(2, 4).unwrap();
            indexed(feed).policy(AutoShardPolicy::Data).share(JobWorker { world, number: 1 })
        };
        let open = || Box::new(Lmdb::open(&lmdb).unwrap());
        assert_eq!(calls_of_a_feed(open(), plain), 0, "f32");
        assert_eq!(calls_of_a_feed(open(), half), 0, "f16 NHWC");
        assert_eq!(calls_of_a_feed(open(), paired), 0, "with targets, in Caffe's sequence");
        assert_eq!(calls_of_a_feed(open(), planned), 0, "by a plan, shuffled");
        assert_eq!(calls_of_a_feed(open(), shared), 0, "as one worker of two");
        // A receipt has a page for each epoch and lane, which is a few allocations, but none for a record or
        // a batch.
        let receipts = |feed: FeedBuilder| planned(feed).receipts(true);
        let (epochs, calls) = (rounds_counted() * 32 / 300 + 2, calls_of_a_feed(open(), receipts));
        assert!(calls <= epochs * 2 * 5, "{calls} allocations in {epochs} epochs with receipts");
        // Contents are hashed on the workers' stacks; the hashes are kept with the batch's record
        // identifiers.
        let contents = |feed: FeedBuilder| receipts(feed).receipts(Receipts::Contents);
        let calls = calls_of_a_feed(open(), contents);
        assert!(calls <= epochs * 2 * 5, "{calls} allocations in {epochs} epochs with receipts of contents");
        for is_compressed in [false, true] {
            let path = folder.path().join(format!("leveldb {is_compressed}"));
            write_leveldb(&path, is_compressed, 300, 32);
            let calls = calls_of_a_feed(Box::new(LevelDb::open(&path).unwrap()), plain);
            assert_eq!(calls, 0, "LevelDB, compressed: {is_compressed}");
            let calls = calls_of_a_feed(Box::new(LevelDb::open(&path).unwrap()), planned);
            assert_eq!(calls, 0, "LevelDB, shuffled, compressed: {is_compressed}");
        }
        let joined = || {
            let leveldb = |path: &str| LevelDb::open(folder.path().join(path)).unwrap();
            let joined = Joined::new(Lmdb::open(&lmdb).unwrap()).and(leveldb("leveldb true"));
            Box::new(joined.and(leveldb("leveldb false")).and(Lmdb::open(&lmdb).unwrap()))
        };
        assert_eq!(calls_of_a_feed(joined(), plain), 0, "four databases in turn");
        let global = |feed: FeedBuilder| indexed(feed).shuffle(Shuffle::Global);
        // All stored alike: otherwise runs that happen to hold more copies than any before would grow for a
        // long time.
        let alike = || Box::new(Joined::new(Lmdb::open(&lmdb).unwrap()).and(Lmdb::open(&lmdb).unwrap()));
        assert_eq!(calls_of_a_feed(alike(), global), 0, "two databases shuffled together");
        // Each record is a block, and a run: its buffer travels from the cursor to the run and back.
        let path = folder.path().join("large");
        write_leveldb(&path, true, 100, 224);
        let large = |feed: FeedBuilder| feed.transform(Transform::new().crop(28).mirror(true));
        GIVEN.store(0, Ordering::Relaxed);
        assert_eq!(
            calls_of_a_feed(Box::new(LevelDb::open(&path).unwrap()), large),
            0,
            "LevelDB, large records"
        );
        assert!(GIVEN.load(Ordering::Relaxed) > 1000, "{GIVEN:?} records went on with their buffers");
    });
}

#[test]
fn files_that_are_decoded_smaller_and_resized_allocate_nothing() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose allocations are counted", || {
        park_many();
        let folder = tempfile::tempdir().unwrap();
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/images");
        let names = ["420.jpg", "444_restart_progressive.jpg", "exif_6.jpg", "422.jpg"];
        let records = (0..300).map(|index| {
            let data = Some(std::fs::read(images.join(names[index % names.len()])).unwrap());
            let datum = Datum { data, encoded: Some(true), ..Datum::default() };
            (common::key(index), datum.encode_to_vec())
        });
        common::write_lmdb(folder.path(), records);
        // For these files: a half, a quarter and an eighth.
        for side in [12, 7, 3] {
            let transform = Transform::new().color(ColorMode::Color).resize(side, side).scaled_decode(true);
            let source = Box::new(Lmdb::open(folder.path()).unwrap());
            let calls = calls_of_a_feed(source, |feed| feed.transform(transform.clone()));
            assert_eq!(calls, 0, "to {side}x{side}");
        }
    });
}

#[test]
fn examples_are_parsed_without_an_allocation() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose allocations are counted", || {
        park_many();
        let folder = tempfile::tempdir().unwrap();
        let pixels = [7_u8; 3 * 32 * 32];
        let record = |index: usize| {
            let mut writer = ExampleWriter::new();
            // In an order that changes, with features that nobody asks for.
            let one = |to: &mut ExampleWriter| {
                to.ints("a", (0..40).map(|each| each << (index % 50)));
            };
            if index.is_multiple_of(3) {
                one(&mut writer);
            }
            writer.bytes("image", [pixels]).floats("f", [0.5; 3]).ints("other", [1]).ints("label", [3]);
            if index % 3 == 1 {
                one(&mut writer);
            }
            (common::key(index), writer.bytes("s", ["text"]).to_bytes())
        };
        common::write_lmdb(folder.path(), (0..300).map(record));
        let source = || Box::new(Lmdb::open(folder.path()).unwrap());
        let fields = "a:i64[<=40]=0,a as again:i64[<=60],f:bf16[3],s:bytes,absent:f64[2]=1";
        let plain = |feed: FeedBuilder| {
            feed.transform(Transform::new()).example(fields.parse::<ExampleFields>().unwrap())
        };
        assert_eq!(calls_of_a_feed(source(), plain), 0, "fields");
        let shape = ImageShapeFrom::Fixed(ImageShape { channels: 3, height: 32, width: 32 });
        let image = ExampleImage::raw("image", shape).label("label");
        let images = |feed: FeedBuilder| {
            feed.example(Examples { fields: fields.parse().unwrap(), image: Some(image.clone()) })
        };
        assert_eq!(calls_of_a_feed(source(), images), 0, "an image and fields");
    });
}

/// Shards of records that are lent, copied in windows, or passed on with their buffer: in order, and
/// shuffled.
#[test]
fn tfrecord_files_are_read_without_an_allocation() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose allocations are counted", || {
        park_many();
        for (files, records, bytes) in [(4, 80, 3000), (3, 60, 100_000)] {
            for compression in [Compression::Plain, Compression::Gzip] {
                let folder = tempfile::tempdir().unwrap();
                for file in 0..files {
                    let path = folder.path().join(format!("{file:03}"));
                    let mut writer = TfRecordWriter::create(path, compression).unwrap();
                    (0..records).for_each(|record| writer.write(&vec![record as u8; bytes]).unwrap());
                    writer.finish().unwrap();
                }
                for access in [Access::Mapped, Access::Read] {
                    let what =
                        format!("{files} files of {bytes} bytes a record, {compression:?}, {access:?}");
                    let source =
                        || Box::new(TfRecord::options().access(access).open_all([folder.path()]).unwrap());
                    let raw = |feed: FeedBuilder| feed.transform(Transform::new()).decoder(RawBytes::fixed());
                    let shuffled = |feed: FeedBuilder| {
                        raw(feed).epochs(0).last_batch(LastBatch::Wrap).shuffle(Shuffle::Global)
                    };
                    // In order, a file is opened once a pass: for its read-ahead, or to unpack it.
                    let visits = (rounds_counted() * 32 / (files * records) + 2) * files;
                    let is_read = compression == Compression::Plain && access == Access::Read;
                    let opened = if is_read { 0 } else { visits * 20 };
                    // Shuffled, a mapped file's first records may be taken for the start of a pass.
                    let shuffled_opened = if access == Access::Read { 0 } else { visits * 20 };
                    let calls = calls_of_a_feed(source(), raw);
                    assert!(calls <= opened, "{what}: {calls}");
                    // A compressed file is read in order alone.
                    if compression != Compression::Plain {
                        continue;
                    }
                    let calls = calls_of_a_feed(source(), shuffled);
                    assert!(calls <= shuffled_opened, "{what}, shuffled: {calls}");
                }
            }
        }
    });
}

/// The stand-in driver's own allocations are not counted.
#[test]
#[cfg(feature = "cuda")]
fn nothing_allocates_on_the_way_to_a_gpu() {
    use percolator::transform::TransformPlace;

    let _one = one_at_a_time();
    let Some(_standin) = standin::alone(this_test!(), "devices=2") else { return };
    must_end("a feed whose allocations are counted", || {
        park_many();
        let folder = tempfile::tempdir().unwrap();
        common::write_images(folder.path(), 300, 3, 32, 32);
        for place in [TransformPlace::Host, TransformPlace::Device] {
            let gpus = |feed: FeedBuilder| {
                feed.transform_on(place).devices([0, 1].map(|ordinal| Device::cuda(ordinal).unwrap()))
            };
            let calls = calls_of_a_feed(Box::new(Lmdb::open(folder.path()).unwrap()), gpus);
            assert_eq!(calls, 0, "{place:?}");
        }
    });
}

/// A step of several devices is one vector; whatever else a training loop calls allocates nothing.
#[test]
fn a_step_allocates_its_vector_and_a_batch_nothing() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose allocations are counted", || {
        park_many();
        let folder = tempfile::tempdir().unwrap();
        common::write_images(folder.path(), 96, 3, 32, 32);
        let feed = |lanes: usize| {
            let feed = Feed::builder().lmdb(folder.path()).batch_size(16).threads(1).prefetch(4);
            let target = Target::paired(Lmdb::open(folder.path()).unwrap(), Matching::Keys);
            feed.target(target)
                .epochs(0)
                .last_batch(LastBatch::Wrap)
                .devices((0..lanes).map(Device::host))
                .build()
                .unwrap()
        };
        let mut two = feed(2);
        let mut steps = two.steps();
        let mut walk = |rounds: usize| {
            for _ in 0..rounds {
                let step = steps.next().unwrap().unwrap();
                step.iter().for_each(use_all);
            }
        };
        walk(100);
        let (calls, _) = least(|| walk(300));
        assert_eq!(calls, 300, "one for each step");
        let mut one = feed(1);
        let mut round = |rounds: usize| {
            for _ in 0..rounds {
                let mut batches = one.epoch().unwrap();
                for batch in &mut batches {
                    use_all(&batch.unwrap());
                }
            }
        };
        round(20);
        // An iterator over an epoch may make room once for its waits.
        let (calls, _) = least(|| round(50));
        assert!(calls <= 50, "{calls} allocations in 50 epochs of 6 batches");
    });
}

/// The least of several counts. A queue's list of waiting threads is allocated when a thread first waits at
/// it, which may be late.
fn least(mut rounds: impl FnMut()) -> (usize, usize) {
    (0..5).map(|_| count(&mut rounds)).min().expect("it was counted")
}

/// Calls everything that a training loop reads of a batch.
fn use_all(batch: &percolator::Batch) {
    let labels = batch.labels().unwrap().len() + batch.labels_f32().unwrap().len();
    assert_eq!(labels, 2 * batch.rows());
    assert_eq!(batch.pixels::<f32>().unwrap().len(), batch.target_pixels::<f32>().unwrap().len());
    assert_eq!(batch.mask().filter(|&is_record| is_record).count(), batch.len());
    assert_eq!(batch.arrays().len(), batch.fields().len());
    assert_eq!(batch.get::<i32>("label").unwrap().shape()[0], batch.records().len());
    assert!(batch.bad_records().is_empty() && batch.step().is_some() && !batch.is_empty());
    assert_eq!((batch.shape(), batch.target_shape()), (batch.host_shape(), Some(batch.shape())));
    batch.wait().unwrap();
}

/// Writes images of one colour each, which compress, to a LevelDB with several tables.
fn write_leveldb(folder: &Path, is_compressed: bool, count: usize, sizing: i32) {
    let compressor = if is_compressed { SnappyCompressor::ID } else { NoneCompressor::ID };
    let bytes = (3 * sizing * sizing) as usize;
    let options = Options { write_buffer_size: bytes * count / 4, compressor, ..Options::default() };
    let value = |index: usize| common::datum(3, sizing, sizing, index as i32, vec![index as u8; bytes]);
    let records = (0..count).map(|index| (common::key(index), value(index)));
    common::leveldb::write(folder, options, records);
}

/// In how many rounds of two lanes allocations are counted.
fn rounds_counted() -> usize {
    times(400, 100)
}

/// The number of allocations in several hundred batches, once the feed has run for a while.
fn calls_of_a_feed(source: Box<dyn Source>, with: impl Fn(FeedBuilder) -> FeedBuilder) -> usize {
    let shape = ImageShape { channels: 3, height: 32, width: 32 };
    let mean = MeanImage::new(shape, vec![100.0; 3 * 32 * 32]).unwrap();
    let (releases, stalls): (Vec<_>, Vec<_>) = [1, 40]
        .map(|position| {
            let (release, released) = bounded(1);
            (release, (position, released))
        })
        .into_iter()
        .unzip();
    let feed = Feed::builder()
        .source(Stalling { source, stalls })
        .batch_size(16)
        .transform(Transform::new().crop(28).mirror(true).mean_image(mean).scale(0.01))
        .devices([0, 1].map(Device::host))
        .threads(2)
        .prefetch(4);
    let mut feed = with(feed).build().unwrap();
    let mut lanes = feed.take_lanes().unwrap();
    wait_everywhere(&feed, &mut lanes, releases);
    let mut rounds = |rounds: usize| {
        for _ in 0..rounds {
            for lane in &mut lanes {
                assert_eq!(lane.next().unwrap().unwrap().len(), 16);
            }
        }
    };
    rounds(100);
    assert!(feed.stats().reader.passes > 1, "the first pass is over");
    // What is allocated once may come late: on a busy machine a thread that waits has not always got to the
    // queue when its wait has lasted long enough. What is allocated again and again is in every count.
    let mut least = usize::MAX;
    let wanted = rounds_counted();
    for _ in 0..3 {
        let (calls, bytes) = count(|| rounds(wanted));
        println!("{calls} allocations of {bytes} bytes in {wanted} rounds of 2 batches");
        least = least.min(calls);
        if least == 0 {
            break;
        }
    }
    least
}

#[test]
fn the_count_counts() {
    let _one = one_at_a_time();
    let (calls, bytes) = count(|| {
        let other = std::thread::spawn(|| drop(std::hint::black_box(vec![0_u8; 12345])));
        other.join().unwrap();
    });
    assert!(calls >= 1 && bytes >= 12345, "{calls} allocations of {bytes} bytes");
}

#[test]
fn a_feed_over_its_limit_is_refused_before_it_takes_the_memory() {
    let _one = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 3, 1, 4, 4);
    let limit = 10 << 20;
    let feed = Feed::builder().lmdb(folder.path()).batch_size(1 << 20).threads(1).memory_limit(limit);
    let mut built = None;
    let (_, bytes) = count(|| built = Some(feed.build()));
    match built {
        Some(Err(FeedError::Config(ConfigError::OverBudget { needed, allowed, .. }))) => {
            println!("{needed} bytes needed, {allowed} allowed, {bytes} allocated to find out");
            assert!(needed > allowed && allowed == limit);
        }
        other => panic!("{other:?}"),
    }
    assert!(bytes < limit, "{bytes} bytes were allocated to refuse a feed that may have {limit}");
}
