//! The data sets of the scenarios: the same records in every kind of store, made once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use percolator::example::ExampleWriter;
use percolator::source::{Access, FnSource, ImageList, Joined, LevelDb, Lmdb, TfRecord};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator_chaos::{Chaos, ChaosSource, Faults};
use tempfile::TempDir;

use crate::common;
use crate::common::source::MemorySource;

/// Where records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Memory,
    Function,
    Lmdb,
    LevelDb,
    TfRecord,
    Gzip,
    Zlib,
    Images,
    Joined,
}

/// What a record's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// Caffe's image record. Its label is its position.
    Datum,
    /// Its position, a checksum, and bytes that follow from the position: read by a closure of the test.
    Checked,
    /// A `tf.train.Example` with the same bytes.
    Example,
}

/// Those that are drawn. What is drawn as `Gzip` may become `Zlib`.
pub(crate) const KINDS: [Kind; 8] = [
    Kind::Memory,
    Kind::Function,
    Kind::Lmdb,
    Kind::LevelDb,
    Kind::TfRecord,
    Kind::Gzip,
    Kind::Images,
    Kind::Joined,
];

/// The side of an image, and the bytes behind the checksum.
pub(crate) const SIDE: usize = 6;
pub(crate) const BYTES: usize = SIDE * SIDE;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The stores that were made so far.
pub(crate) struct Stores {
    folder: TempDir,
    made: Mutex<HashSet<PathBuf>>,
}

impl Stores {
    pub(crate) fn new() -> Self {
        Stores { folder: tempfile::tempdir().unwrap(), made: Mutex::default() }
    }

    /// Opens a store of this many records, for these faults.
    pub(crate) fn open(
        &self,
        kind: Kind,
        coding: Coding,
        records: usize,
        access: Access,
        chaos: &Chaos,
    ) -> ChaosSource {
        self.open_part(kind, coding, 0..records, access, chaos)
    }

    fn open_part(
        &self,
        kind: Kind,
        coding: Coding,
        positions: Range<usize>,
        access: Access,
        chaos: &Chaos,
    ) -> ChaosSource {
        let path = self.path(kind, coding, positions.clone());
        let first = positions.start;
        match kind {
            Kind::Memory => chaos.source(MemorySource::new("scenario", records_of(coding, positions))),
            Kind::Function => {
                chaos.source(FnSource::new("scenario", positions.len() as u64, move |at, value| {
                    value.extend(self::value(coding, first + usize::try_from(at).unwrap()));
                    Ok(())
                }))
            }
            Kind::Lmdb => chaos.source(Lmdb::options().access(access).open(&path).unwrap()),
            Kind::LevelDb => chaos.source(LevelDb::options().access(access).open(&path).unwrap()),
            Kind::TfRecord | Kind::Gzip | Kind::Zlib => {
                chaos.source(TfRecord::options().access(access).open(&path).unwrap())
            }
            Kind::Images => chaos.source(ImageList::open(path.join("list")).unwrap().relative_to(path)),
            Kind::Joined => {
                let part = |kind, positions| {
                    self.open_part(kind, coding, positions, access, &Chaos::new(Faults::none()))
                };
                let [one, two, three] = thirds(positions);
                let joined = Joined::new(part(Kind::LevelDb, one)).and(part(Kind::TfRecord, two));
                chaos.source(joined.and(part(Kind::Lmdb, three)))
            }
        }
    }

    /// The file that names the bad records of a scenario.
    pub(crate) fn quarantine(&self, seed: u64) -> PathBuf {
        self.folder.path().join(format!("bad-{seed}.tfrecord"))
    }

    fn path(&self, kind: Kind, coding: Coding, positions: Range<usize>) -> PathBuf {
        let mut made = self.made.lock().unwrap();
        let path =
            self.folder.path().join(format!("{kind:?}-{coding:?}-{}-{}", positions.start, positions.end));
        if made.insert(path.clone()) {
            let records = || records_of(coding, positions.clone());
            match kind {
                Kind::Memory | Kind::Function | Kind::Joined => {}
                Kind::Lmdb => common::write_lmdb(&path, records()),
                Kind::LevelDb => common::leveldb::write(&path, rusty_leveldb::Options::default(), records()),
                Kind::TfRecord => write_tfrecord(&path, Compression::Plain, records()),
                Kind::Gzip => write_tfrecord(&path, Compression::Gzip, records()),
                Kind::Zlib => write_tfrecord(&path, Compression::Zlib, records()),
                Kind::Images => write_files(&path, positions),
            }
        }
        path
    }
}

/// The positions of each file of a joined data set.
pub(crate) fn thirds(Range { start, end }: Range<usize>) -> [Range<usize>; 3] {
    let third = (end - start) / 3;
    let (one, two) = (start + third, start + 2 * third);
    [start..one, one..two, two..end]
}

fn records_of(coding: Coding, positions: Range<usize>) -> Records {
    positions.map(|position| (common::key(position), value(coding, position))).collect()
}

/// Whether a value is what a fault leaves of another one that it cuts or damages.
pub(crate) fn is_what_is_left_of(whole: &[u8], value: &[u8]) -> bool {
    let is_cut = value.len() < whole.len() && whole.starts_with(value);
    let is_damaged = value.len() <= whole.len() && value.first() == Some(&0xff) && !whole.starts_with(value);
    is_cut || is_damaged
}

/// The value of the record at a position.
pub(crate) fn value(coding: Coding, position: usize) -> Vec<u8> {
    match coding {
        Coding::Datum => common::image(position, 1, SIDE, SIDE).1,
        Coding::Checked => {
            let content = content(position);
            let mut value = (position as u64).to_le_bytes().to_vec();
            value.extend(checksum(position as u64, &content).to_le_bytes());
            value.extend(content);
            value
        }
        Coding::Example => ExampleWriter::new().bytes("content", [content(position)]).to_bytes(),
    }
}

/// The bytes that a batch has of a record.
pub(crate) fn content(position: usize) -> Vec<u8> {
    (0..BYTES).map(|at| common::pixel(position, at)).collect()
}

/// Every bit of the bytes counts.
pub(crate) fn checksum(position: u64, content: &[u8]) -> u64 {
    content.iter().fold(position ^ 0x9e37_79b9_7f4a_7c15, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5)
    })
}

fn write_tfrecord(path: &Path, compression: Compression, records: Records) {
    let mut file = TfRecordWriter::create(path, compression).unwrap();
    records.into_iter().for_each(|(_, value)| file.write(&value).unwrap());
    file.finish().unwrap();
}

/// Grey PNG files, and the list of them. Their label is their position.
fn write_files(folder: &Path, positions: Range<usize>) {
    std::fs::create_dir_all(folder).unwrap();
    let mut list = String::new();
    for position in positions {
        let name = format!("{position}.png");
        let side = u32::try_from(SIDE).unwrap();
        let mut encoder = png::Encoder::new(File::create(folder.join(&name)).unwrap(), side, side);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&content(position)).unwrap();
        writeln!(list, "{name} {position}").unwrap();
    }
    std::fs::write(folder.join("list"), list).unwrap();
}
