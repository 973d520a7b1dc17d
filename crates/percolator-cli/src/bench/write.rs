//! Writes records into a database.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::Progress;
use percolator_files::parallel::try_map;
use percolator_tfrecord::{Compression, TfRecordWriter};
use rusty_leveldb::{DB, Options};

use super::data::{Data, Format};
use super::photos::Photos;

/// The number of records made and committed together.
const CHUNK: usize = 256;

/// A key and a value.
type Record = (Vec<u8>, Vec<u8>);

/// Writes all records, in order.
pub(super) fn write(data: &Data, folder: &Path, photos: &Photos, progress: &Progress) -> anyhow::Result<()> {
    progress.begin(data.records as u64);
    let chunks = (0..data.records).step_by(CHUNK).map(|start| {
        ensure!(!progress.is_stopped(), "it was told to end");
        let chunk = make(data, photos, start..data.records.min(start + CHUNK))?;
        progress.add_done(chunk.len() as u64);
        Ok(chunk)
    });
    match data.format {
        Format::Lmdb => write_lmdb(folder, data.file_bytes_max(), chunks),
        Format::Leveldb => write_leveldb(folder, chunks),
        Format::Tfrecord => write_tfrecord(folder, chunks),
    }
}

/// Makes records on all cores.
fn make(data: &Data, photos: &Photos, indexes: Range<usize>) -> anyhow::Result<Vec<Record>> {
    try_map("make", 0, indexes, |index| {
        Ok((format!("{index:08}").into_bytes(), data.kind.record(photos, index)?))
    })
}

/// Writes as Caffe does: a folder, the unnamed database, keys in order.
fn write_lmdb(
    folder: &Path,
    bytes_max: u64,
    chunks: impl Iterator<Item = anyhow::Result<Vec<Record>>>,
) -> anyhow::Result<()> {
    // No other process uses the folder before it has its name.
    let flags = EnvironmentFlags::NO_SYNC | EnvironmentFlags::NO_LOCK;
    let map = usize::try_from(bytes_max.saturating_mul(2)).context("it is larger than memory can address")?;
    let environment = Environment::new().set_map_size(map).set_flags(flags).open(folder)?;
    let database = environment.open_db(None)?;
    for chunk in chunks {
        let mut transaction = environment.begin_rw_txn()?;
        for (key, value) in chunk? {
            transaction.put(database, &key, &value, WriteFlags::APPEND)?;
        }
        transaction.commit()?;
    }
    Ok(environment.sync(true)?)
}

/// Writes with LevelDB's defaults, except that nothing is compressed.
fn write_leveldb(
    folder: &Path,
    chunks: impl Iterator<Item = anyhow::Result<Vec<Record>>>,
) -> anyhow::Result<()> {
    const BLOCK_BYTES: usize = 4096;
    const RAW: u8 = 0;

    let failed = |status: rusty_leveldb::Status| anyhow!("the database cannot be written: {status}");
    let options = Options { block_size: BLOCK_BYTES, compressor: RAW, ..Options::default() };
    let mut database = DB::open(folder, options).map_err(failed)?;
    for chunk in chunks {
        for (key, value) in chunk? {
            database.put(&key, &value).map_err(failed)?;
        }
    }
    // Moves all records into tables.
    database.flush().map_err(failed)?;
    database.close().map_err(failed)?;
    sync(folder)
}

/// Writes one file.
fn write_tfrecord(
    folder: &Path,
    chunks: impl Iterator<Item = anyhow::Result<Vec<Record>>>,
) -> anyhow::Result<()> {
    let mut writer = TfRecordWriter::create(folder.join("records.tfrecord"), Compression::Plain)?;
    for chunk in chunks {
        for (_key, value) in chunk? {
            writer.write(&value)?;
        }
    }
    Ok(writer.finish()?)
}

/// Only files that are on disk can be evicted from memory.
fn sync(folder: &Path) -> anyhow::Result<()> {
    for file in std::fs::read_dir(folder)? {
        std::fs::File::open(file?.path())?.sync_all()?;
    }
    Ok(())
}
