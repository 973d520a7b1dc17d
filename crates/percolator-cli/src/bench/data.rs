//! Synthetic data sets, which are made once and then kept.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use percolator::Progress;
use percolator_files::shown;

use super::photos::Photos;
use super::synthetic::Kind;
use super::write;
use crate::described::Database;

/// Increase it when the same photographs would give other records, so that data made by an older program are
/// not used.
const VERSION: u32 = 2;

/// The kinds of database that can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    #[default]
    Lmdb,
    /// Without compression, in blocks of 4 KiB.
    Leveldb,
    /// One file, not compressed.
    Tfrecord,
}

impl Format {
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Lmdb => "lmdb",
            Format::Leveldb => "leveldb",
            Format::Tfrecord => "tfrecord",
        }
    }

    /// A database of this format.
    pub(super) fn database(self, path: PathBuf) -> Database {
        match self {
            Format::Lmdb => Database::Lmdb(path, None),
            Format::Leveldb => Database::LevelDb(path),
            Format::Tfrecord => Database::TfRecord(path),
        }
    }

    /// The name of the job that measures such data.
    pub(super) fn job_name(self, kind: Kind) -> String {
        match self {
            Format::Lmdb => kind.name().to_owned(),
            Format::Leveldb | Format::Tfrecord => format!("{}-{}", kind.name(), self.name()),
        }
    }
}

/// A database in which each record is a function of its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) kind: Kind,
    pub(super) format: Format,
    pub(super) records: usize,
}

impl Data {
    /// Returns the database in this folder. If it is missing, it is made first.
    ///
    /// A database gets its name only when it is complete. Until then it has another name, and the next run
    /// that finds it and holds the lock removes it. The lock ends with its process, however that ends.
    pub(super) fn prepare(&self, cache: &Path, progress: &Progress) -> anyhow::Result<PathBuf> {
        let said =
            || format!("cannot keep data in {}: choose another folder with --cache", shown::path(cache));
        std::fs::create_dir_all(cache).with_context(said)?;
        let photos = Photos::open()?;
        let (kind, format) = (self.kind.name(), self.format.name());
        let name = format!("{kind}-{format}-{}-v{VERSION}-{:016x}", self.records, photos.hash());
        let folder = cache.join(&name);
        let _lock = lock(&cache.join(format!("{name}.lock")), progress).with_context(said)?;
        if folder.is_dir() {
            return Ok(folder);
        }
        let under_way = cache.join(format!("{name}.making"));
        clear(&under_way).with_context(said)?;
        self.check_space(cache)?;
        std::fs::create_dir(&under_way).with_context(said)?;
        let made = write::write(self, &under_way, &photos, progress);
        if made.is_err() {
            // The first error says more than an error of the clean-up after it.
            let _ = clear(&under_way);
        }
        made.with_context(|| format!("cannot make {}", shown::path(&folder)))?;
        std::fs::rename(&under_way, &folder).with_context(said)?;
        Ok(folder)
    }

    /// The most bytes that the files take while they are made.
    pub(super) fn file_bytes_max(&self) -> u64 {
        const PAGE: usize = 4096;
        const FIXED: u64 = 16 << 20;

        let record = self.kind.record_bytes_max();
        let bytes = match self.format {
            // A value on its own pages, and its node in a leaf.
            Format::Lmdb => record.next_multiple_of(PAGE) + 64,
            // Tables, and those being merged into them.
            Format::Leveldb => 2 * (record + 64),
            // Two lengths and two checksums, and its place in the index.
            Format::Tfrecord => record + 64,
        };
        FIXED.saturating_add((bytes as u64).saturating_mul(self.records as u64))
    }

    fn check_space(&self, cache: &Path) -> anyhow::Result<()> {
        let found =
            rustix::fs::statvfs(cache).with_context(|| format!("cannot look at {}", shown::path(cache)))?;
        let (free, needed) = (found.f_bavail.saturating_mul(found.f_frsize), self.file_bytes_max());
        ensure!(
            needed <= free,
            "{}: {} records of {} need up to {needed} bytes, and {free} are free: choose another folder with \
             --cache, or fewer records with --records",
            shown::path(cache),
            self.records,
            self.kind.name()
        );
        Ok(())
    }
}

/// The default folder for data.
pub(super) fn default_cache() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    caches.unwrap_or_else(std::env::temp_dir).join("percolator")
}

/// Waits for a run that makes the same data, and says so.
fn lock(path: &Path, progress: &Progress) -> std::io::Result<File> {
    /// How often it looks whether the other one is done.
    const LOOK: Duration = Duration::from_millis(50);

    let file = File::options().create(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => {
            // Even if nobody reads this.
            let _ = writeln!(
                std::io::stderr(),
                "percolator: waiting for another run, which holds {}",
                shown::path(path)
            );
            while let Err(TryLockError::WouldBlock) = file.try_lock() {
                if progress.is_stopped() {
                    return Err(std::io::Error::other("it was told to end"));
                }
                std::thread::park_timeout(LOOK);
            }
        }
    }
    Ok(file)
}

/// Removes what an interrupted run has left behind.
fn clear(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_take_no_more_room_than_is_checked() {
        for format in [Format::Lmdb, Format::Leveldb, Format::Tfrecord] {
            for kind in [Kind::Raw256, Kind::Small, Kind::Jpeg, Kind::Bytes, Kind::Tokens] {
                let cache = tempfile::tempdir().unwrap();
                // Enough records that fixed costs do not matter.
                let records = (40 << 20) / kind.record_bytes_max();
                let data = Data { kind, format, records };
                let folder = data.prepare(cache.path(), &Progress::new()).unwrap();
                let files = std::fs::read_dir(folder).unwrap();
                let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
                assert!(bytes <= data.file_bytes_max(), "{data:?}: {bytes}");
            }
        }
    }

    #[test]
    fn what_was_left_under_way_is_cleared_away() {
        let cache = tempfile::tempdir().unwrap();
        let data = Data { kind: Kind::Tokens, format: Format::Lmdb, records: 3 };
        let folder = data.prepare(cache.path(), &Progress::new()).unwrap();
        let under_way = folder.with_extension("making");
        std::fs::rename(&folder, &under_way).unwrap();
        std::fs::write(under_way.join("junk"), "").unwrap();
        assert_eq!(data.prepare(cache.path(), &Progress::new()).unwrap(), folder);
        assert!(!under_way.exists() && !folder.join("junk").exists());
    }
}
