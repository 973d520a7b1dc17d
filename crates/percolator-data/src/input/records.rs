//! The records of another store.

use std::path::{Path, PathBuf};

use percolator::leveldb::LevelDb;
use percolator::source::{Cursor, Lmdb, Source, TfRecord};
use percolator::tfrecord;

use super::{Input, InputError, Item, ItemReader};

/// The records of a [source](Source), with its keys, or numbered.
#[derive(Debug)]
pub struct Records {
    source: Box<dyn Source>,
    /// Where it is stored.
    files: Vec<PathBuf>,
    /// Whether the keys are the records' numbers, with at least eight digits.
    is_numbered: bool,
}

impl Records {
    /// The records of a source, with its keys.
    #[must_use]
    pub fn new(source: impl Source + 'static) -> Self {
        let files = vec![source.path().to_owned()];
        Records { source: Box::new(source), files, is_numbered: false }
    }

    /// Opens a store of any kind: the folder of an LMDB, or its data.mdb; the folder of a LevelDB; TFRecord
    /// files: one, a folder of them, or a pattern. Records of TFRecord files have no keys, and are numbered.
    ///
    /// # Errors
    ///
    /// [`InputError::Source`] if it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let is_lmdb =
            path.join("data.mdb").exists() || path.extension().is_some_and(|ending| ending == "mdb");
        if is_lmdb {
            return Ok(Self::new(Lmdb::open(path)?));
        }
        if path.join("CURRENT").exists() {
            return Ok(Self::new(LevelDb::open(path)?));
        }
        let files: Vec<PathBuf> = match path.is_file() {
            true => vec![path.to_owned()],
            false => tfrecord::files(path)?,
        };
        let source: Box<dyn Source> = match &files[..] {
            [file] => Box::new(TfRecord::open(file)?),
            files => Box::new(TfRecord::options().open_all(files)?),
        };
        Ok(Records { source, files, is_numbered: true })
    }
}

impl Input for Records {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn identity(&self) -> String {
        format!("{:?}", self.source.identity())
    }

    fn items(&self) -> Option<u64> {
        self.source.records()
    }

    fn count(&self) -> Result<u64, InputError> {
        if let Some(items) = self.items() {
            return Ok(items);
        }
        let (mut cursor, mut items) = (self.source.cursor()?, 0);
        while cursor.skip()? {
            items += 1;
        }
        Ok(items)
    }

    fn reader(&self, from: u64) -> Result<Box<dyn ItemReader + '_>, InputError> {
        let mut cursor = self.source.cursor()?;
        if self.source.is_seekable() {
            cursor.seek(from)?;
        } else {
            let mut passed = 0;
            while passed < from && cursor.skip()? {
                passed += 1;
            }
        }
        Ok(Box::new(RecordReader { cursor, number: self.is_numbered.then_some(from) }))
    }
}

struct RecordReader {
    cursor: Box<dyn Cursor>,
    /// The number of the next record, if that is its key.
    number: Option<u64>,
}

impl ItemReader for RecordReader {
    fn next(&mut self) -> Result<Option<Item>, InputError> {
        let Some(entry) = self.cursor.advance()? else { return Ok(None) };
        let key = match &mut self.number {
            None => entry.key().to_vec(),
            Some(number) => {
                *number += 1;
                format!("{:08}", *number - 1).into_bytes()
            }
        };
        Ok(Some(Item::Record { key, value: entry.value().to_vec() }))
    }
}
