//! The records of another store.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::source::RecordParts;

use super::{Input, InputError, Item, ItemReader};
use crate::open::{DataSet, Kind};
use crate::scan::{Chunk, Feeder, Held, OnDamage, Selection, Unreadable};

/// How many records are read at once.
const READ_AT_ONCE: u64 = 64;
/// How many records are skipped at once before it is checked whether to end.
const PASSED_AT_ONCE: u64 = 1 << 12;

/// The records of a store, with its keys, or numbered. A record that cannot be read is skipped.
///
/// Data of another library are numbered, because its shards may use a key again: `00000003`, or with the
/// record's name `00000003_cat`.
#[derive(Debug)]
pub struct Records {
    data: DataSet,
}

impl Records {
    /// Opens a store of any kind: the folder of an LMDB, or its data.mdb; the folder of a LevelDB; TFRecord
    /// files: one, a folder of them, or a pattern. Records of TFRecord files have no keys, and are numbered.
    ///
    /// # Errors
    ///
    /// [`InputError`] if it cannot be opened, or has no records.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        Self::of(DataSet::open(path)?)
    }

    /// The records of a data set that is open. Those of TFRecord files are numbered.
    ///
    /// # Errors
    ///
    /// [`InputError::Format`] if it is a list of images, which [`ListedImages`](super::ListedImages) reads.
    pub fn of(data: DataSet) -> Result<Self, InputError> {
        match data.kind() {
            Kind::ImageList => {
                let found = "a list of images, which has no records: convert it as a list".to_owned();
                Err(InputError::Format { path: data.path().to_owned(), found })
            }
            _ => Ok(Records { data }),
        }
    }

    /// A record's key, if it has its number, with at least eight digits. `name` is what the source calls it.
    fn key(&self, number: u64, name: &[u8]) -> Option<Vec<u8>> {
        let mut key = format!("{number:08}").into_bytes();
        match self.data.kind() {
            Kind::TfRecord => Some(key),
            Kind::Files => {
                if !name.iter().all(u8::is_ascii_digit) {
                    key.push(b'_');
                    key.extend_from_slice(name);
                }
                Some(key)
            }
            Kind::Lmdb | Kind::LevelDb | Kind::ImageList => None,
        }
    }

    /// The item of a record that cannot be read. An error if it is more than one: then the numbers of those
    /// after it are unknown, or there are none after it.
    fn skipped(&self, unreadable: &Unreadable) -> Result<Item, InputError> {
        let Unreadable { first, records, error, .. } = unreadable;
        if *records != Some(1) {
            let path = self.data.path().to_owned();
            return Err(InputError::Lost { path, first: *first, error: Box::new(error.clone()) });
        }
        let (key, place) = match self.key(*first, b"") {
            Some(key) => (key, String::new()),
            None => (Vec::new(), unreadable.place()),
        };
        Ok(Item::Unreadable { key, reason: format!("it cannot be read{place}: {error}") })
    }
}

impl Input for Records {
    fn path(&self) -> &Path {
        self.data.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.data.sources().iter().map(|source| source.path().to_owned()).collect()
    }

    fn identity(&self) -> String {
        let identities: Vec<String> =
            self.data.sources().iter().map(|source| format!("{:?}", source.identity())).collect();
        identities.join(", ")
    }

    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        self.data.record_parts()
    }

    fn items(&self) -> Option<u64> {
        self.data.records()
    }

    fn count(&self, is_stopped: &dyn Fn() -> bool) -> Result<u64, InputError> {
        if let Some(items) = self.items() {
            return Ok(items);
        }
        let mut reader = RecordReader::new(self);
        reader.pass_to(u64::MAX, is_stopped)?;
        Ok(reader.feeder.passed())
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        self.reader_unless_stopped(from, &|| false)
    }

    fn reader_unless_stopped(
        &self,
        from: u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<ItemReader<'_>, InputError> {
        let mut reader = RecordReader::new(self);
        reader.pass_to(from, is_stopped)?;
        Ok(Box::new(reader))
    }
}

struct RecordReader<'a> {
    records: &'a Records,
    feeder: Feeder<'a>,
    chunk: Chunk,
    /// Items of the chunk that were not taken yet.
    waiting: VecDeque<Item>,
    /// Why nothing more can be read after those.
    failed: Option<InputError>,
}

impl<'a> RecordReader<'a> {
    fn new(records: &'a Records) -> Self {
        let feeder = Feeder::new(&records.data, Selection::All, OnDamage::GoOn);
        let chunk = Chunk::with_records(READ_AT_ONCE);
        RecordReader { records, feeder, chunk, waiting: VecDeque::new(), failed: None }
    }

    /// Skips the records before this number, as far as there are any. Unreadable ones among them were skipped
    /// by the run that reached them.
    fn pass_to(&mut self, number: u64, is_stopped: &dyn Fn() -> bool) -> Result<(), InputError> {
        while self.feeder.passed() < number {
            if is_stopped() {
                return Err(InputError::Stopped);
            }
            let next = number.min(self.feeder.passed() + PASSED_AT_ONCE);
            self.feeder.pass_to(next, &mut self.chunk)?;
            for held in self.chunk.held() {
                if let Held::Unreadable(unreadable) = held {
                    self.records.skipped(unreadable)?;
                }
            }
            if self.feeder.passed() < next {
                break;
            }
        }
        Ok(())
    }

    /// Takes the items out of a chunk, up to the first record after which nothing can be converted.
    fn take_items(&mut self) {
        for held in self.chunk.held() {
            let item = match held {
                Held::Record(seen) => {
                    let key = self.records.key(seen.number, seen.key).unwrap_or_else(|| seen.key.to_vec());
                    Ok(Item::Record { key, value: seen.value.to_vec() })
                }
                Held::Unreadable(unreadable) => self.records.skipped(unreadable),
            };
            match item {
                Ok(item) => self.waiting.push_back(item),
                Err(error) => {
                    self.failed = Some(error);
                    return;
                }
            }
        }
    }
}

impl Iterator for RecordReader<'_> {
    type Item = Result<Item, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.waiting.is_empty() && self.failed.is_none() {
            match self.feeder.fill(&mut self.chunk) {
                Ok(()) => self.take_items(),
                Err(error) => return Some(Err(error.into())),
            }
        }
        self.waiting.pop_front().map(Ok).or_else(|| self.failed.take().map(Err))
    }
}
