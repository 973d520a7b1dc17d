//! The data set that is fed again and again: one third in an LMDB, one in a LevelDB, one in a TFRecord file.

use std::path::Path;

use anyhow::{Context as _, ensure};
use lmdb::{Environment, Transaction as _, WriteFlags};
use percolator::order::AutoShardPolicy;
use percolator::proto::Datum;
use percolator::receipt::{DataDigest, DigestDetail};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Batch, Device, Dtype, Feed, FeedBuilder};
use percolator_proof::digest;
use prost::Message as _;
use tempfile::TempDir;

/// The records of each of the three parts.
pub(crate) const PART: u64 = 160;
pub(crate) const RECORDS: u64 = 3 * PART;
const SIDE: usize = 16;
const BYTES: usize = SIDE * SIDE;

pub(crate) struct DataSet {
    pub(crate) folder: TempDir,
    pub(crate) digest: DataDigest,
}

impl DataSet {
    pub(crate) fn write() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        write_lmdb(&path.join("lmdb"), 0..PART)?;
        write_leveldb(&path.join("leveldb"), PART..2 * PART)?;
        let mut file = TfRecordWriter::create(path.join("part.tfrecord"), Compression::Plain)?;
        for position in 2 * PART..RECORDS {
            file.write(&value(position))?;
        }
        file.finish()?;
        let digest = digest(&feed(path, 1), DigestDetail::EachRecord)?;
        Ok(DataSet { folder, digest })
    }

    /// A feed of all of it, to this many lanes on the host.
    pub(crate) fn feed(&self, lanes: usize) -> FeedBuilder {
        feed(self.folder.path(), lanes)
    }
}

fn feed(folder: &Path, lanes: usize) -> FeedBuilder {
    let parts = sourceless(lanes).lmdb(folder.join("lmdb"));
    parts.leveldb(folder.join("leveldb")).tfrecord(folder.join("part.tfrecord"))
}

/// A feed to this many lanes on the host, whose source its caller sets.
pub(crate) fn sourceless(lanes: usize) -> FeedBuilder {
    Feed::builder().dtype(Dtype::U8).devices((0..lanes).map(Device::host))
}

/// All records of a job in one stream, however many workers there are.
pub(crate) const POLICY: AutoShardPolicy = AutoShardPolicy::Data;

fn key(position: u64) -> String {
    format!("{position:08}")
}

/// A pixel is a function of the record's position and its own.
fn pixel(position: u64, at: usize) -> u8 {
    let mixed = position.wrapping_mul(0x9e37_79b9).wrapping_add((at as u64).wrapping_mul(0x85eb_ca6b));
    mixed.to_le_bytes()[2]
}

fn value(position: u64) -> Vec<u8> {
    let side = i32::try_from(SIDE).expect("a small number");
    let datum = Datum {
        channels: Some(1),
        height: Some(side),
        width: Some(side),
        data: Some((0..BYTES).map(|at| pixel(position, at)).collect()),
        label: Some(i32::try_from(position).expect("a small number")),
        ..Datum::default()
    };
    datum.encode_to_vec()
}

fn write_lmdb(folder: &Path, positions: std::ops::Range<u64>) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let environment = Environment::new().set_map_size(64 << 20).open(folder)?;
    let database = environment.open_db(None)?;
    let mut transaction = environment.begin_rw_txn()?;
    for position in positions {
        transaction.put(database, &key(position), &value(position), WriteFlags::empty())?;
    }
    transaction.commit().context("the LMDB")
}

fn write_leveldb(folder: &Path, positions: std::ops::Range<u64>) -> anyhow::Result<()> {
    let mut database = rusty_leveldb::DB::open(folder, rusty_leveldb::Options::default())?;
    for position in positions {
        database.put(key(position).as_bytes(), &value(position))?;
    }
    database.flush()?;
    database.close().context("the LevelDB")
}

/// Checks every row of a batch against the record that it says it is.
pub(crate) fn check(batch: &Batch) -> anyhow::Result<u64> {
    for ((row, id), label) in batch.bytes().chunks(BYTES).zip(batch.records()).zip(batch.labels()?) {
        ensure!(u64::try_from(*label) == Ok(id.index), "{id} has the label {label}");
        let is_right = (0..BYTES).all(|at| row[at] == pixel(id.index, at));
        ensure!(is_right, "the pixels of {id} are not its own");
    }
    Ok(batch.len() as u64)
}
