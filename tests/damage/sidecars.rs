//! Record indexes: what is made from the records, and made anew when it is lost. So damage to an index makes
//! no difference, whatever it is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use percolator::source::{Access, IndexPlace, LevelDb, Lmdb, Source, SourceError, TfRecord};
use percolator::{Feed, FeedError, RawBytes, Shuffle};

use crate::common;
use crate::common::indexed::leveldb_options;
use crate::common::log::Log;
use crate::common::process::this_test;
use crate::harness::{self, CHANGED_AFTER, Case, Format, Guard, Number, Reading, Stated, Way};

const BY_POSITION: &str = "by position";
const BY_POSITION_READ: &str = "by position, read";
const FED: &str = "fed, shuffled";

const RECORDS: usize = 24;
/// The seed of records that are the same at both ends, and whose lengths are in another order between.
const REORDERED: usize = 200;
const DATABASE: &str = "database";
const INDEX: &str = "database.percolator-index";

/// What the index is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexed {
    Lmdb,
    LevelDb,
    TfRecord,
}

fn records(seed: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (seed, is_reordered) = if seed == REORDERED { (0, true) } else { (seed, false) };
    let value = |number: usize| {
        let is_moved = is_reordered && (4..RECORDS - 4).contains(&number);
        let length = 20 + if is_moved { RECORDS - 1 - number } else { number } * 70;
        (0..length).map(|at| common::pixel(seed + number, at)).collect()
    };
    (0..RECORDS).map(|number| (common::key(number), value(number))).collect()
}

impl Indexed {
    fn write(self, path: &Path, seed: usize) {
        let records = records(seed);
        match self {
            Indexed::Lmdb => {
                common::write_lmdb(path, records);
                fs::remove_file(path.join("lock.mdb")).unwrap();
            }
            Indexed::LevelDb => {
                common::leveldb::write(path, leveldb_options(0), records);
                fs::remove_file(path.join("LOCK")).unwrap();
            }
            Indexed::TfRecord => {
                let mut bytes = Vec::new();
                for (_, value) in &records {
                    percolator::tfrecord::write_record(&mut bytes, value).unwrap();
                }
                fs::write(path, bytes).unwrap();
            }
        }
    }

    fn open(self, path: &Path, access: Access) -> Result<Box<dyn Source>, SourceError> {
        Ok(match self {
            Indexed::Lmdb => Box::new(Lmdb::options().without_lock().access(access).open(path)?),
            Indexed::LevelDb => Box::new(LevelDb::options().access(access).open(path)?),
            Indexed::TfRecord => Box::new(TfRecord::options().access(access).open(path)?),
        })
    }

    fn stated(self, seed: usize) -> Vec<Stated> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DATABASE);
        self.write(&path, seed);
        let mut files: Vec<Stated> = files_of(&path)
            .into_iter()
            .map(|file| {
                let name = file.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
                set_time(&file);
                Stated::kept(name, fs::read(&file).unwrap())
            })
            .collect();
        self.open(&path, Access::Mapped).unwrap().index(&IndexPlace::Beside).unwrap();
        // It is found again: so it is read, and not made anew each time.
        let log = Log::default();
        log.listen(|| self.open(&path, Access::Mapped).unwrap().index(&IndexPlace::Beside)).unwrap();
        assert!(log.text().contains("a record index is used"), "{}", log.text());
        files.push(index(fs::read(folder.path().join(INDEX)).unwrap()));
        files
    }
}

fn set_time(file: &Path) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + CHANGED_AFTER).unwrap();
}

/// A file, or the files of a folder.
fn files_of(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Err(_) => vec![path.to_owned()],
        Ok(files) => files.map(|file| file.unwrap().path()).collect(),
    }
}

/// The parts of an index (`src/source/index/sidecar.rs`).
fn index(bytes: Vec<u8>) -> Stated {
    let mut file = Stated::of(INDEX, bytes, Guard::Mended);
    let identity = u32::from_le_bytes(file.bytes[32..36].try_into().unwrap()) as usize;
    file.mark("magic", Guard::Mended, 0..8);
    file.mark_number("version", Guard::Mended, Number::Little, 8..12);
    file.mark_number("kind", Guard::Mended, Number::Little, 12..16);
    file.mark_number("length of the file", Guard::Mended, Number::Little, 16..24);
    file.mark_number("numbers", Guard::Mended, Number::Little, 24..32);
    file.mark_number("length of the identity", Guard::Mended, Number::Little, 32..36);
    file.mark("identity", Guard::Mended, 36..36 + identity);
    file.mark("checksum of the places", Guard::Mended, 36 + identity..40 + identity);
    let places = (44 + identity).next_multiple_of(8);
    file.mark("checksum of the head", Guard::Mended, places - 4..places);
    file.mark("places", Guard::Mended, places..file.bytes.len());
    file
}

impl Format for Indexed {
    type Item = Vec<u8>;

    const BYTES_MAX: usize = 3000;

    fn name(&self) -> String {
        format!("record index, {self:?}")
    }

    fn files(&self) -> Vec<Stated> {
        self.stated(0)
    }

    /// Of a database of the same size.
    fn donor(&self) -> Vec<Stated> {
        self.stated(100)
    }

    /// Of other records with the same lengths; and with what was made of this database beside them, these and
    /// records whose lengths are in another order.
    fn others(&self) -> Vec<Vec<Stated>> {
        let beside = |records: Vec<Stated>| {
            let made = self.files().into_iter().filter(|file| !file.is_kept);
            records.into_iter().filter(|file| file.is_kept).chain(made).collect()
        };
        vec![self.stated(100), beside(self.stated(100)), beside(self.stated(REORDERED))]
    }

    /// What the database gives without what is beside it.
    fn whole_of(&self, other: &[Stated], way: &'static str) -> Vec<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let database: Vec<_> = other.iter().filter(|file| file.is_kept).cloned().collect();
        Case::whole(&database).put(folder.path());
        let found = self.read(folder.path(), way);
        assert_eq!((found.error, found.items.len()), (None, RECORDS));
        found.items
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(BY_POSITION), Way::seldom(BY_POSITION_READ, 2), Way::seldom(FED, 8)]
    }

    /// As a forger who knows the format.
    fn seal(&self, file: &str, bytes: &mut Vec<u8>) {
        if file == INDEX {
            let identity = u32::from_le_bytes(bytes[32..36].try_into().unwrap()) as usize;
            let head = identity.checked_add(44).and_then(|head| head.checked_next_multiple_of(8));
            if let Some(head) = head.filter(|head| *head <= bytes.len()) {
                let checksum = crc32c::crc32c(&bytes[..head - 4]);
                bytes[head - 4..head].copy_from_slice(&checksum.to_le_bytes());
            }
        }
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Vec<u8>> {
        let path = folder.join(DATABASE);
        let access = if way == BY_POSITION_READ { Access::Read } else { Access::Mapped };
        if way == FED {
            return Reading::of(|items| {
                let feed = Feed::builder();
                let feed = match self {
                    Indexed::Lmdb => feed.source(Lmdb::open_without_lock(&path).map_err(reader)?),
                    Indexed::LevelDb => feed.leveldb(&path),
                    Indexed::TfRecord => feed.tfrecord(&path),
                };
                let feed = feed.index(IndexPlace::Beside).shuffle(Shuffle::Global).epochs(1).threads(2);
                for batch in feed.decoder(RawBytes::up_to(1 << 12)).batch_size(1).build()? {
                    items.push(batch?.ragged::<u8>(0)?.values().to_vec());
                }
                Ok::<(), FeedError>(())
            });
        }
        Reading::of(|items| {
            let source = self.open(&path, access)?;
            source.index(&IndexPlace::Beside)?;
            let records = source.records().unwrap();
            let mut cursor = source.cursor()?;
            for number in 0..records {
                cursor.seek(number * 7 % records)?;
                let entry = cursor.advance()?.expect("there is a record at each position");
                items.push(entry.value().to_vec());
            }
            cursor.seek(records)?;
            assert!(cursor.advance()?.is_none());
            Ok::<(), SourceError>(())
        })
    }
}

fn reader(error: SourceError) -> FeedError {
    FeedError::Reader(error.into())
}

#[test]
fn indexes_of_lmdbs() {
    harness::check(this_test!(), 300, || Indexed::Lmdb);
}

#[test]
fn indexes_of_leveldbs() {
    harness::check(this_test!(), 300, || Indexed::LevelDb);
}

#[test]
fn indexes_of_tfrecord_files() {
    harness::check(this_test!(), 300, || Indexed::TfRecord);
}
