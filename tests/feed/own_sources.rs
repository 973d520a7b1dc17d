//! Sources of a caller's own, which have nothing but the two traits: one that wraps a source of the crate's,
//! and one that cannot go back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;

use percolator::reader::Registry;
use percolator::source::{Access, Cursor, Entry, Joined, Lmdb, Source, SourceError, TfRecord};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Feed, FeedBuilder, LastBatch, RawBytes};

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
    Feed::builder().source(source).registry(&Registry::new()).decoder(RawBytes::fixed()).once()
}

/// The crate's own sources hand large values over together with their buffers. A wrapper cannot.
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

#[test]
fn a_source_may_state_fewer_records_than_its_cursors_have() {
    for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Wrap] {
        let source = First(7, MemorySource::numbered("all", 20, 8));
        let feed = Feed::builder().source(source).registry(&Registry::new()).decoder(RawBytes::fixed());
        let feed = feed.batch_size(3).last_batch(last).epochs(2).build().unwrap();
        let records: usize = feed.into_iter().map(|batch| batch.unwrap().len()).sum();
        let due = if last == LastBatch::Drop { 12 } else { 14 };
        assert!((due..=15).contains(&records), "{last:?}: {records}");
    }
}
