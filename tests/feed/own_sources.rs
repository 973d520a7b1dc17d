//! Sources of a caller's own: some that wrap a source of the crate's, and one that cannot go back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator::record::RecordId;
use percolator::source::{
    Access, Cursor, Entry, Joined, Lmdb, Run, Source, SourceError, TfRecord, VerifiesLater,
};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Device, Epochs, Feed, FeedBuilder, LastBatch, RawBytes, Shuffle};

use crate::common;
use crate::common::source::MemorySource;

/// Passes on what another source has.
#[derive(Debug)]
struct Forwarding {
    inner: Arc<dyn Source>,
    /// Whether its cursors can go back to the first record.
    rewinds: bool,
}

struct ForwardingCursor {
    inner: Box<dyn Cursor>,
    rewinds: bool,
}

impl Source for Forwarding {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn records(&self) -> Option<u64> {
        self.inner.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(ForwardingCursor { inner: self.inner.cursor()?, rewinds: self.rewinds }))
    }
}

impl Cursor for ForwardingCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        self.inner.advance()
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        if self.rewinds {
            self.inner.rewind()
        } else {
            Err(SourceError::other("a pipe", "it cannot go back"))
        }
    }
}

fn feed(source: impl Source + 'static) -> FeedBuilder {
    Feed::builder().source(source).decoder(RawBytes::fixed()).epochs(Epochs::OnePass)
}

/// Cursors may hand large values over together with their buffers. This wrapper does not.
#[test]
fn large_values_of_a_wrapped_source_are_copied() {
    const BYTES: usize = 200_000;

    let folder = tempfile::tempdir().unwrap();
    let value = |index: u8| (0_u8..=250).cycle().map(|at| at ^ index).take(BYTES).collect::<Vec<u8>>();
    let database = folder.path().join("lmdb");
    common::write_lmdb(&database, (0..5).map(|index| (common::key(index.into()), value(index))));
    let file = |compression| {
        let path = folder.path().join(format!("records-{compression:?}"));
        let mut writer = TfRecordWriter::create(&path, compression).unwrap();
        (0..5).for_each(|index| writer.write(&value(index)).unwrap());
        writer.finish().unwrap();
        path
    };
    let [plain, packed] = [Compression::Plain, Compression::Gzip].map(file);
    let read = |path: &Path| TfRecord::options().access(Access::Read).open(path).unwrap();
    let wrapped = || -> [Forwarding; 3] {
        let lmdb = Lmdb::options().access(Access::Read).open(&database).unwrap();
        let sources: [Arc<dyn Source>; 3] = [Arc::new(lmdb), Arc::new(read(&plain)), Arc::new(read(&packed))];
        sources.map(|inner| Forwarding { inner, rewinds: true })
    };
    let due: Vec<_> = (0..5).flat_map(value).collect();
    for batch_size in [1, 64] {
        let seen = |feed: FeedBuilder| -> Vec<u8> {
            let batches = feed.batch_size(batch_size).build().unwrap();
            batches.into_iter().flat_map(|batch| batch.unwrap().get::<u8>("data").unwrap().to_vec()).collect()
        };
        assert!(wrapped().into_iter().all(|source| seen(feed(source)) == due), "{batch_size}");
        let [lmdb, plain, packed] = wrapped();
        assert!(seen(feed(Joined::new(lmdb).and(plain).and(packed))) == due.repeat(3), "{batch_size}");
    }
}

#[test]
fn a_source_that_cannot_go_back_is_read_once() {
    let inner = Arc::new(MemorySource::numbered("pipe", 10, 8));
    let batches = feed(Forwarding { inner, rewinds: false }).batch_size(4).build().unwrap();
    let records: Vec<_> = batches.into_iter().map(|batch| batch.unwrap().len()).collect();
    assert_eq!(records, [4, 4, 2]);
}

/// Passes on what nobody has verified yet, and values that fill a buffer.
#[derive(Debug)]
struct PassingOn {
    inner: TfRecord,
    gives: Gives,
    /// How many values its cursors gave.
    given: Arc<AtomicUsize>,
}

/// How a wrapper has `give`.
#[derive(Clone, Copy, Debug)]
enum Gives {
    On,
    Nothing,
    /// Says that it gave, and did not.
    InWords,
}

struct PassingOnCursor {
    inner: Box<dyn Cursor>,
    gives: Gives,
    given: Arc<AtomicUsize>,
}

impl Source for PassingOn {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn records(&self) -> Option<u64> {
        self.inner.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.inner.cursor()
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        let (inner, given) = (self.inner.deferring_cursor(promise)?, self.given.clone());
        Ok(Box::new(PassingOnCursor { inner, gives: self.gives, given }))
    }
}

impl Cursor for PassingOnCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        self.inner.advance()
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.inner.rewind()
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        let is_given = matches!(self.gives, Gives::On) && self.inner.give(id, run);
        self.given.fetch_add(usize::from(is_given), Ordering::Relaxed);
        is_given || matches!(self.gives, Gives::InWords)
    }
}

#[test]
fn a_wrapper_gives_large_values_on_and_one_that_forgets_it_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    (0..5).for_each(|index| writer.write(&vec![index; 200_000]).unwrap());
    writer.finish().unwrap();
    let wrapped = |access, gives| {
        let inner = TfRecord::options().access(access).open(&path).unwrap();
        PassingOn { inner, gives, given: Arc::default() }
    };
    let all = wrapped(Access::Read, Gives::On);
    let given = all.given.clone();
    for (batch, index) in feed(all).batch_size(1).build().unwrap().into_iter().zip(0_u8..) {
        assert!(batch.unwrap().get::<u8>("data").unwrap().iter().all(|&byte| byte == index));
    }
    assert_eq!(given.load(Ordering::Relaxed), 5);
    let error = |source| {
        let batches = feed(source).batch_size(1).build().unwrap();
        batches.into_iter().find_map(Result::err).unwrap().to_string()
    };
    for gives in [Gives::Nothing, Gives::InWords] {
        let message = error(wrapped(Access::Read, gives));
        assert!(message.contains("record 0") && message.contains("must pass on `give`"), "{message}");
    }
    // What a wrapper passes on without a look is verified all the same.
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for access in [Access::Mapped, Access::Read] {
        let message = error(wrapped(access, Gives::On));
        assert!(message.contains("record 2") && message.contains("checksum"), "{message}");
    }
}

/// The first records of another source, whose cursors have all of them.
#[derive(Debug)]
struct First(u64, MemorySource);

impl Source for First {
    fn path(&self) -> &Path {
        self.1.path()
    }

    fn records(&self) -> Option<u64> {
        Some(self.0)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.1.cursor()
    }
}

/// The same, by position.
#[derive(Debug)]
struct FirstByPosition(First);

impl Source for FirstByPosition {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        self.0.records()
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

/// A plan is made for the records that the source states. Whoever trained on those alone would have a receipt
/// that misses nothing.
#[test]
fn a_source_that_states_another_number_of_records_than_it_has_is_an_error() {
    let run = |source: Box<dyn Fn() -> FeedBuilder>, last, shuffled, lanes: usize| {
        let feed = source().decoder(RawBytes::fixed()).batch_size(3);
        let feed = if shuffled { feed.shuffle(Shuffle::Global) } else { feed };
        let feed = feed.devices((0..lanes).map(Device::host)).last_batch(last).epochs(2).receipts(true);
        let mut feed = feed.build().unwrap();
        let (mut steps, mut error) = (0, None);
        for step in feed.steps() {
            match step {
                Ok(_) => steps += 1,
                Err(found) => error = Some(found),
            }
        }
        (steps, error.map(|error| error.to_string()))
    };
    for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Wrap, LastBatch::Pad] {
        for (shuffled, lanes) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
            let memory = || MemorySource::numbered("all", 20, 8);
            let of = |stated| -> [Box<dyn Fn() -> FeedBuilder>; 3] {
                [
                    Box::new(move || Feed::builder().source(First(stated, memory()))),
                    Box::new(move || Feed::builder().source(FirstByPosition(First(stated, memory())))),
                    Box::new(move || {
                        let joined = Joined::new(FirstByPosition(First(stated, memory())));
                        Feed::builder().source(joined.and(FirstByPosition(First(stated, memory()))))
                    }),
                ]
            };
            for (kind, source) in of(7).into_iter().enumerate() {
                let (steps, error) = run(source, last, shuffled, lanes);
                let error = error.expect("there are more");
                assert!(
                    error.contains("record 7: expected 7 records, but the database continues")
                        || kind == 2 && error.contains("expected 7 records, but the database continues"),
                    "{error}"
                );
                assert!(steps <= 5, "{last:?}, {shuffled}: {steps}, within the first epoch");
            }
            for source in of(21) {
                let (_, error) = run(source, last, shuffled, lanes);
                let error = error.expect("there are fewer");
                assert!(
                    error.contains("record 20: expected 21 records, but the database ends")
                        || error.contains("expected 42 records, but the database ends")
                        || error.contains("20 records"),
                    "{error}"
                );
            }
            for source in of(20) {
                assert_eq!(run(source, last, shuffled, lanes).1, None);
            }
        }
    }
}
