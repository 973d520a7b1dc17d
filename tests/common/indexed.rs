//! Databases to index, and cursors that seek in them.

use std::fs;
use std::path::PathBuf;

use percolator::source::{Cursor, IndexPlace, Lmdb, Source, SourceError};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

pub type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Every record, in one plain pass.
pub fn walked(source: &dyn Source) -> Records {
    let mut cursor = source.cursor().unwrap();
    rest(&mut *cursor)
}

/// The records that a cursor has left.
pub fn rest(cursor: &mut dyn Cursor) -> Records {
    let mut records = Records::new();
    while let Some(entry) = cursor.advance().unwrap() {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    records
}

/// The records at all positions, in another order.
pub fn shuffled(source: &dyn Source, items: &mut Records) -> Result<(), SourceError> {
    source.index(&IndexPlace::Beside)?;
    let records = source.records().unwrap();
    let mut cursor = source.cursor()?;
    for number in 0..records {
        cursor.seek(number * 7919 % records)?;
        let entry = cursor.advance()?.expect("there is a record at each position");
        items.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    cursor.seek(records)?;
    assert!(cursor.advance()?.is_none(), "there are no more than {records} records");
    Ok(())
}

/// A database in a folder of its own, which also holds its sidecar.
pub struct Written {
    pub folder: TempDir,
}

impl Written {
    pub fn with(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let folder = tempdir().unwrap();
        super::write_lmdb(&folder.path().join("lmdb"), records);
        Written { folder }
    }

    pub fn of(records: usize) -> Self {
        Self::with((0..records).map(|index| super::image(index, 3, 4, 4)))
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("lmdb")
    }

    pub fn sidecar(&self) -> PathBuf {
        self.folder.path().join("lmdb.percolator-index")
    }

    pub fn open(&self) -> Lmdb {
        Lmdb::open(self.path()).unwrap()
    }

    pub fn indexed(&self) -> Lmdb {
        let source = self.open();
        source.index(&IndexPlace::Beside).unwrap();
        assert!(source.is_seekable());
        source
    }

    pub fn names(&self) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(self.folder.path()).unwrap().map(name).collect();
        names.sort();
        names
    }
}

/// Values that are stored in their leaf, on one page, and on many.
pub fn mixed(records: usize) -> Records {
    let value = |index: usize| {
        let bytes = [0, 1, 100, 1900, 3000, 4080, 20_000, 150_000][index * 7 % 8];
        (0..bytes).map(|at| super::pixel(index, at)).collect()
    };
    (0..records)
        .map(|index| (format!("{index:05}_{}", "k".repeat(index % 90)).into_bytes(), value(index)))
        .collect()
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Seek(u64),
    Advance(u8),
    Skip(u8),
    Rewind,
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..1000_u64).prop_map(Step::Seek),
        4 => (0..40_u8).prop_map(Step::Advance),
        2 => (0..40_u8).prop_map(Step::Skip),
        1 => Just(Step::Rewind),
        1 => Just(Step::Seek(u64::MAX)),
    ];
    prop::collection::vec(step, 1..40)
}

/// Checks that a cursor moves as a position in a list would.
pub fn check_steps(cursor: &mut dyn Cursor, records: &Records, steps: &[Step]) {
    let mut position = 0;
    for (number, &step) in steps.iter().enumerate() {
        match step {
            Step::Seek(to) => {
                // In 900ths of all records, so that some steps go past the end.
                let to = if to == u64::MAX { to } else { to * records.len() as u64 / 900 };
                position = usize::try_from(to).unwrap().min(records.len());
                cursor.seek(to).unwrap();
            }
            Step::Advance(times) => {
                for _ in 0..times {
                    let entry = cursor.advance().unwrap().map(|entry| (entry.key(), entry.value()));
                    let wanted = records.get(position).map(|(key, value)| (&key[..], &value[..]));
                    assert!(entry == wanted, "step {number} of {steps:?}, position {position}");
                    position += usize::from(wanted.is_some());
                }
            }
            Step::Skip(times) => {
                for _ in 0..times {
                    let is_there = position < records.len();
                    assert_eq!(
                        cursor.skip().unwrap(),
                        is_there,
                        "step {number} of {steps:?}, position {position}"
                    );
                    position += usize::from(is_there);
                }
            }
            Step::Rewind => {
                cursor.rewind().unwrap();
                position = 0;
            }
        }
    }
    assert_eq!(rest(cursor).len(), records.len() - position);
}

pub fn check_source(source: &dyn Source, cases: u32) {
    let records = walked(source);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    runner
        .run(&steps(), |steps| {
            check_steps(&mut *source.cursor().unwrap(), &records, &steps);
            Ok(())
        })
        .unwrap();
}

pub fn leveldb_options(compressor: u8) -> rusty_leveldb::Options {
    rusty_leveldb::Options { compressor, write_buffer_size: 64 << 10, ..rusty_leveldb::Options::default() }
}

/// Writes a LevelDB in a folder of its own.
pub fn written_leveldb(records: Records, compressor: u8) -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("leveldb");
    super::leveldb::write(&path, leveldb_options(compressor), records);
    (folder, path)
}

/// Opens the index as it is, or mends it, and looks up every record, the last one first.
pub fn check_every_record(database: &Written, records: &Records, what: &str) {
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    for (position, (key, value)) in records.iter().enumerate().rev() {
        cursor.seek(position as u64).unwrap();
        let entry = cursor.advance().unwrap().unwrap_or_else(|| panic!("{what}: no record {position}"));
        assert!((entry.key(), entry.value()) == (&key[..], &value[..]), "{what}: record {position}");
    }
    cursor.seek(records.len() as u64).unwrap();
    assert!(cursor.advance().unwrap().is_none());
}

/// The page size of an LMDB, from its first page.
pub fn page_bytes(data: &[u8]) -> usize {
    u32::from_le_bytes(*data[40..].first_chunk().unwrap()) as usize
}
