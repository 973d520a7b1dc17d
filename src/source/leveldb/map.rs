//! The bytes that a LevelDB's records lie in: files, mapped, and what had to be put together.

#![expect(unsafe_code, reason = "files are mapped, and their bytes are lent past the borrow of a cursor")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use once_cell::sync::OnceCell;

use super::error::LevelDbError;
use crate::source::{Entry, Keeper, Lender, SourceError, TableSeal};

/// What the system reads for one request, whatever it is asked for.
const PIECE_BYTES: usize = 128 << 10;

/// A file, mapped without permission to write. It is not open any more.
#[derive(Debug)]
pub(super) struct FileMap(Mmap);

impl FileMap {
    /// Maps a file, which must have `wanted` bytes if that is known.
    pub(super) fn open(path: &Path, wanted: Option<u64>) -> Result<Self, SourceError> {
        let io = |action| move |error: io::Error| SourceError::io(path, action, &error);
        // Not opened before it is known to be a file: opening a pipe waits for whoever writes to it.
        if !std::fs::metadata(path).map_err(io("look at the file"))?.is_file() {
            return Err(LevelDbError::NoFile { file: path.to_owned() }.into());
        }
        let file = File::open(path).map_err(io("open the file"))?;
        let found = file.metadata().map_err(io("look at the file"))?.len();
        if let Some(wanted) = wanted.filter(|&wanted| wanted != found) {
            return Err(LevelDbError::Length { file: path.to_owned(), found, wanted }.into());
        }
        let length = usize::try_from(found)
            .map_err(|_| io("map the file")(io::Error::from(io::ErrorKind::FileTooLarge)))?;
        // SAFETY: nobody in this process writes to a database's files. That nobody else writes to them or
        // cuts them while they are mapped is the assumption under which every database is read here
        // (docs/design.md); `length` bytes are there.
        let map = unsafe { MmapOptions::new().len(length).map(&file) };
        Ok(FileMap(map.map_err(io("map the file"))?))
    }

    /// Takes all pages out of the map. Whoever reads one brings it back.
    #[cfg(target_os = "linux")]
    fn empty(&self) -> io::Result<()> {
        // SAFETY: the map is shared and read-only, so on Linux a page that is read again is the file's, as it was: that
        // nobody writes to the file is what it was mapped on.
        unsafe { self.0.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) }
    }
}

impl AsRef<[u8]> for FileMap {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Where some bytes of a log lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    home: u32,
    bytes: u32,
    start: usize,
}

/// The home of what lies in `joined`.
const JOINED: u32 = u32::MAX;

impl Place {
    /// Bytes that lie in one piece in a log, which is a number below `u32::MAX`.
    pub(super) fn in_log(log: u32, start: usize, bytes: u32) -> Self {
        Place { home: log, bytes, start }
    }

    /// The place among what was joined where a log's bytes are once the log is appended there.
    #[cfg(test)]
    pub(super) fn moved_from_log(self, appended_at: usize) -> Self {
        match self.home {
            JOINED => self,
            _ => Place::joined(appended_at + self.start, self.bytes),
        }
    }

    /// How many bytes there are.
    pub(super) fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// Bytes that had to be joined.
    pub(super) fn joined(start: usize, bytes: u32) -> Self {
        Place { home: JOINED, bytes, start }
    }
}

/// Everything that is lent. Nothing in it changes or goes before it is dropped; maps of tables are added.
#[derive(Debug, Default)]
pub(super) struct Store {
    logs: Vec<FileMap>,
    /// Keys and values that fragments of a log cut to pieces.
    joined: Vec<u8>,
    /// By the number that the version gave each table.
    tables: Box<[OnceCell<TableMap>]>,
}

/// A table that is mapped, and its name for messages.
#[derive(Debug)]
struct TableMap {
    map: FileMap,
    path: PathBuf,
}

impl Store {
    pub(super) fn new(logs: Vec<FileMap>, joined: Vec<u8>, tables: usize) -> Self {
        Store { logs, joined, tables: (0..tables).map(|_| OnceCell::new()).collect() }
    }

    /// What it holds beside files that are mapped.
    pub(super) fn held_bytes(&self) -> usize {
        let maps = self.logs.capacity() * size_of::<FileMap>() + size_of_val(&*self.tables);
        self.joined.capacity() + maps
    }

    /// The bytes at a place.
    #[inline]
    pub(super) fn bytes(&self, place: Place) -> &[u8] {
        let home = match place.home {
            JOINED => &self.joined[..],
            log => self.logs.get(log as usize).map(AsRef::as_ref).unwrap_or_default(),
        };
        let end = place.start.checked_add(place.bytes as usize);
        end.and_then(|end| home.get(place.start..end)).unwrap_or_default()
    }

    /// Takes the pages of a table out of its map, if it is mapped. They come back with whoever reads them.
    #[cfg(target_os = "linux")]
    pub(super) fn empty_map(&self, table: usize) -> io::Result<()> {
        self.tables.get(table).and_then(OnceCell::get).map_or(Ok(()), |table| table.map.empty())
    }

    /// Has the system read the first bytes of a table that is mapped, so many at the most, without waiting for it.
    pub(super) fn will_need(&self, table: usize, bytes_max: u64) {
        let Some(table) = self.tables.get(table).and_then(OnceCell::get) else { return };
        let bytes = table.map.0.len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX));
        #[cfg(unix)]
        if let Err(error) = table.map.0.advise_range(memmap2::Advice::WillNeed, 0, bytes) {
            tracing::debug!(%error, table = %table.path.display(), "the system does not read ahead");
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Has the system read a part of a table that is mapped, without waiting for it.
    pub(super) fn will_need_part(&self, table: usize, part: Range<usize>) {
        let Some(table) = self.tables.get(table).and_then(OnceCell::get) else { return };
        let end = part.end.min(table.map.0.len());
        #[cfg(unix)]
        for start in (part.start..end).step_by(PIECE_BYTES) {
            let bytes = PIECE_BYTES.min(end - start);
            if let Err(error) = table.map.0.advise_range(memmap2::Advice::WillNeed, start, bytes) {
                tracing::debug!(%error, table = %table.path.display(), "the system does not read ahead");
            }
        }
        #[cfg(not(unix))]
        let _ = end;
    }

    /// The bytes of a table that is mapped.
    #[inline]
    pub(super) fn table(&self, table: usize) -> &[u8] {
        self.tables.get(table).and_then(OnceCell::get).map(|table| table.map.as_ref()).unwrap_or_default()
    }
}

impl Keeper for Store {
    fn check_seal(&self, TableSeal { table, seal }: TableSeal) -> Result<(), SourceError> {
        let Some(TableMap { map, path }) = self.tables.get(table).and_then(OnceCell::get) else {
            unreachable!("table {table} was sealed, and is not mapped");
        };
        let checked = seal.check(map.as_ref(), 0);
        checked.map_err(|error| LevelDbError::Table { file: path.clone(), error }.into())
    }
}

/// A table's bytes, as a walk holds them.
#[derive(Debug)]
pub(super) enum TableBytes {
    /// In the store, for as long as that lives.
    Kept { store: Arc<Store>, table: usize },
    /// The walk's own, which go with it.
    Own(FileMap),
}

impl AsRef<[u8]> for TableBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            TableBytes::Kept { store, table } => store.table(*table),
            TableBytes::Own(map) => map.as_ref(),
        }
    }
}

/// The store, and the one lender of all that is in it.
#[derive(Debug)]
pub(super) struct Lending {
    store: Arc<Store>,
    /// Holds `store`.
    lender: Lender,
}

impl Lending {
    pub(super) fn new(store: Store) -> Self {
        let store = Arc::new(store);
        let lender = Lender::keeping(store.clone());
        Lending { store, lender }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether there is a place for a table, so that it stays mapped.
    pub(super) fn keeps(&self, table: usize) -> bool {
        table < self.store.tables.len()
    }

    /// Checks that a table that is mapped still has its length, if it is still there.
    pub(super) fn check_length(&self, table: usize, wanted: u64) -> Result<(), SourceError> {
        let Some(TableMap { path, .. }) = self.store.tables.get(table).and_then(OnceCell::get) else {
            return Ok(());
        };
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.len() != wanted => {
                Err(LevelDbError::Length { file: path.clone(), found: metadata.len(), wanted }.into())
            }
            // The map is there, whatever has become of the path.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Maps a table, unless that has been done: to stay if there is a place for it, or else for one walk.
    pub(super) fn open_table(
        &self,
        table: usize,
        path: impl FnOnce() -> PathBuf,
        wanted: u64,
    ) -> Result<TableBytes, SourceError> {
        let Some(cell) = self.store.tables.get(table) else {
            return Ok(TableBytes::Own(FileMap::open(&path(), Some(wanted))?));
        };
        cell.get_or_try_init(|| {
            let path = path();
            FileMap::open(&path, Some(wanted)).map(|map| TableMap { map, path })
        })?;
        Ok(TableBytes::Kept { store: self.store.clone(), table })
    }

    /// Lends a record of a log.
    pub(super) fn entry(&self, key: Place, value: Place) -> Entry<'_> {
        let (key, value) = (self.store.bytes(key), self.store.bytes(value));
        // SAFETY: both lie in the store, which `lender` holds: maps without permission to write and a vector
        // that nobody can reach to change. None of them goes before the store does.
        unsafe { Entry::lent(key, value, &self.lender) }
    }

    /// Lends a value of a table that is kept; the key is the walk's own.
    pub(super) fn entry_of_table<'a>(
        &'a self,
        key: &'a [u8],
        table: usize,
        value: Range<usize>,
    ) -> Entry<'a> {
        let value = self.store.table(table).get(value).unwrap_or_default();
        // SAFETY: the value lies in the store, as above: a map that was put into its cell stays there.
        unsafe { Entry::lent_value(key, value, &self.lender) }
    }
}
