//! Synthetic data sets, which are made once and then kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use percolator::Progress;
use percolator_data::store::{Backend, Existing, NewStore, StoreError};
use percolator_files::parallel::try_map;
use percolator_files::shown;

use super::photos::Photos;
use super::synthetic::Kind;
use crate::terminal::out::tell;

/// Increase it when the same photographs would give other records, or other files of them, so that data made
/// by an older program are not used.
const VERSION: u32 = 4;

/// The number of records that are made together, on all cores.
const CHUNK: usize = 256;

/// A block of a LevelDB ends with this many bytes: LevelDB's default.
const BLOCK_BYTES: u32 = 4 << 10;

/// What to do where data cannot be kept.
const ELSEWHERE: &str = "choose another folder with --cache";

/// A database in which each record is a function of its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) kind: Kind,
    pub(super) backend: Backend,
    pub(super) records: usize,
}

impl Data {
    /// Returns the database in this folder. If it is missing, it is made first; if another run makes it, that
    /// is waited for.
    pub(super) fn prepare(&self, cache: &Path, progress: &Progress) -> anyhow::Result<PathBuf> {
        let said = || format!("cannot keep data in {}: {ELSEWHERE}", shown::path(cache));
        std::fs::create_dir_all(cache).with_context(said)?;
        let photos = Photos::open()?;
        let (kind, backend) = (self.kind.name(), self.backend.name());
        let path = cache.join(format!("{kind}-{backend}-{}-v{VERSION}-{:016x}", self.records, photos.hash()));
        let mut is_waiting = false;
        while !path.exists() {
            match self.start(&path) {
                Ok(store) => {
                    self.check_space(cache)?;
                    self.write(store, &photos, progress)
                        .with_context(|| format!("cannot make {}", shown::path(&path)))?;
                }
                // Another run has just made it.
                Err(StoreError::Exists { .. }) if path.exists() || !path.is_symlink() => {}
                Err(StoreError::Exists { .. }) => {
                    bail!("{}: a link that leads nowhere; remove it, or {ELSEWHERE}", shown::path(&path));
                }
                Err(StoreError::InUse { .. }) => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        tell(&format!("waiting for another run, which makes {}", shown::path(&path)));
                    }
                    ensure!(!progress.is_stopped(), "it was told to end");
                    std::thread::park_timeout(Duration::from_millis(50));
                }
                Err(error) => return Err(error).with_context(said),
            }
        }
        Ok(path)
    }

    fn start(&self, path: &Path) -> Result<NewStore, StoreError> {
        match self.backend {
            Backend::LevelDb => NewStore::leveldb_with_blocks(path, BLOCK_BYTES, Existing::Refuse),
            other => NewStore::create(path, other, Existing::Refuse),
        }
    }

    /// Writes all records, in order.
    fn write(&self, mut store: NewStore, photos: &Photos, progress: &Progress) -> anyhow::Result<()> {
        progress.begin(self.records as u64);
        for start in (0..self.records).step_by(CHUNK) {
            ensure!(!progress.is_stopped(), "it was told to end");
            let chunk = start..self.records.min(start + CHUNK);
            let records = try_map("make", 0, chunk.clone(), |index| self.kind.record(photos, index))?;
            for (index, record) in chunk.zip(records) {
                store.put(format!("{index:08}").as_bytes(), &record)?;
                progress.add_done(1);
            }
        }
        Ok(store.finish()?)
    }

    /// The most bytes that the files take while they are made.
    pub(super) fn file_bytes_max(&self) -> u64 {
        const PAGE: usize = 4096;
        const FIXED: u64 = 16 << 20;

        let record = self.kind.record_bytes_max();
        let bytes = match self.backend {
            // A value on its own pages, and its node in a leaf.
            Backend::Lmdb => record.next_multiple_of(PAGE) + 64,
            // Two lengths and two checksums, or a block of its own and the block's place in the index.
            _ => record + 96,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_an_error() {
        let cache = tempfile::tempdir().unwrap();
        let data = Data { kind: Kind::Small, backend: Backend::Lmdb, records: 2 };
        let path = data.prepare(cache.path(), &Progress::new()).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        let error = data.prepare(cache.path(), &Progress::new()).unwrap_err();
        let due = format!(
            "{}: a link that leads nowhere; remove it, or choose another folder with --cache",
            shown::path(&path)
        );
        assert_eq!(error.to_string(), due);
    }

    #[test]
    fn data_take_no_more_room_than_is_checked() {
        for backend in [Backend::Lmdb, Backend::LevelDb, Backend::TfRecord] {
            for kind in [Kind::Raw256, Kind::Small, Kind::Jpeg, Kind::Bytes, Kind::Tokens] {
                let cache = tempfile::tempdir().unwrap();
                // Enough records that fixed costs do not matter.
                let records = (40 << 20) / kind.record_bytes_max();
                let data = Data { kind, backend, records };
                let path = data.prepare(cache.path(), &Progress::new()).unwrap();
                let files = match path.is_dir() {
                    true => std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect(),
                    false => vec![path],
                };
                let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
                assert!(bytes <= data.file_bytes_max(), "{data:?}: {bytes}");
            }
        }
    }
}
