//! The bytes of a LevelDB's records: files, mapped or read, and the pieces that had to be joined.

#![expect(unsafe_code, reason = "files are mapped")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use once_cell::sync::OnceCell;
use percolator_files::file_id::{FileId, FileState};
use percolator_files::input_file::open_without_waiting;
use percolator_files::{KeptMaps, Reading, shown};

use crate::entry::{Entry, Home};
use crate::error::LevelDbError;
use crate::table::{DeferredChecksum, Unverified};

/// The most bytes the kernel reads for one request, however many are requested.
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// How many bytes are read at a time: few enough to still be in the processor's cache when they are put in
/// place.
const READ_BYTES: usize = 256 << 10;

/// All of a file. The file itself is closed.
#[derive(Debug)]
pub(crate) enum FileBytes {
    /// Mapped read-only.
    Mapped(Mmap),
    /// Its contents when it was read.
    Read(Vec<u8>),
}

/// Opens a path that must be a regular file.
pub(crate) fn open_file(path: &Path) -> Result<File, LevelDbError> {
    let io = |action| move |error: io::Error| LevelDbError::io(path, action, &error);
    if !std::fs::metadata(path).map_err(io("look at the file"))?.is_file() {
        return Err(LevelDbError::NoFile { file: path.to_owned() });
    }
    // A pipe may have taken its place.
    open_without_waiting(path).map_err(io("open the file"))
}

/// Opens a table that must be in the state in which it was when the database was opened: a database that was
/// recreated may have a table of the same name and length.
pub(crate) fn open_table(path: &Path, state: FileState) -> Result<File, LevelDbError> {
    let file = open_file(path)?;
    let now = file.metadata().map_err(|error| LevelDbError::io(path, "look at the file", &error))?;
    let now = FileState::of(&now);
    if now.is_like(state) {
        return Ok(file);
    }
    let file = path.to_owned();
    let changed = match now.id == state.id && now.bytes != state.bytes {
        true => LevelDbError::Length { file, found: now.bytes, wanted: state.bytes },
        false => LevelDbError::Replaced { file },
    };
    Err(changed)
}

/// Appends `bytes` bytes of a file, starting at `at`, or as many of them as there are.
pub(crate) fn read_at(file: &File, at: u64, bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    buffer.try_reserve_exact(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let (start, mut read) = (buffer.len(), 0);
    while read < bytes {
        let piece = READ_BYTES.min(bytes - read);
        buffer.resize(start + read + piece, 0);
        let found = file.read_at(&mut buffer[start + read..], at.saturating_add(read as u64));
        let found = match found {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            found => found?,
        };
        read += found;
        buffer.truncate(start + read);
        if found == 0 {
            break;
        }
    }
    Ok(())
}

impl FileBytes {
    /// Returns the bytes of a file, which must have `wanted` bytes if that is known.
    pub(crate) fn open(path: &Path, wanted: Option<u64>, reading: Reading) -> Result<Self, LevelDbError> {
        Self::of(&open_file(path)?, path, wanted, reading)
    }

    /// Does the same for an open file.
    pub(crate) fn of(
        file: &File,
        path: &Path,
        wanted: Option<u64>,
        reading: Reading,
    ) -> Result<Self, LevelDbError> {
        let io = |action| move |error: io::Error| LevelDbError::io(path, action, &error);
        let found = file.metadata().map_err(io("look at the file"))?.len();
        if let Some(wanted) = wanted.filter(|&wanted| wanted != found) {
            return Err(LevelDbError::Length { file: path.to_owned(), found, wanted });
        }
        if reading == Reading::Read {
            return Self::read(file, path, found, wanted);
        }
        let length = usize::try_from(found)
            .map_err(|_| io("map the file")(io::Error::from(io::ErrorKind::FileTooLarge)))?;
        // SAFETY: this process does not write to a database's files. That no other process writes to them or
        // truncates them while they are mapped is the assumption under which every database is read here
        // (docs/design.md). The file has `length` bytes.
        let map = unsafe { MmapOptions::new().len(length).map(file) };
        Ok(FileBytes::Mapped(map.map_err(io("map the file"))?))
    }

    /// Reads `bytes` bytes, the length that the file has just been seen to have.
    fn read(file: &File, path: &Path, bytes: u64, wanted: Option<u64>) -> Result<Self, LevelDbError> {
        let io = |error: io::Error| LevelDbError::io(path, "read the file", &error);
        let mut buffer = Vec::new();
        read_at(file, 0, bytes, &mut buffer).map_err(io)?;
        let found = buffer.len() as u64;
        match wanted {
            _ if found == bytes => Ok(FileBytes::Read(buffer)),
            Some(wanted) => Err(LevelDbError::Length { file: path.to_owned(), found, wanted }),
            None => {
                let cut = format!("it had {bytes} bytes, and was cut to {found} while it was read");
                Err(io(io::Error::new(io::ErrorKind::UnexpectedEof, cut)))
            }
        }
    }

    /// Returns how many bytes it holds if it is not mapped.
    fn held_bytes(&self) -> usize {
        match self {
            FileBytes::Mapped(_) => 0,
            FileBytes::Read(bytes) => bytes.capacity(),
        }
    }

    /// Asks the kernel to read a part of the map, without waiting for it.
    fn will_need(&self, part: Range<usize>, path: &Path) {
        if let FileBytes::Mapped(map) = self
            && let Err(error) = map.advise_range(memmap2::Advice::WillNeed, part.start, part.len())
        {
            tracing::debug!(%error, table = %shown::path(path), "the kernel does not read ahead");
        }
    }
}

impl AsRef<[u8]> for FileBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map,
            FileBytes::Read(bytes) => bytes,
        }
    }
}

/// The place of some bytes of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    home: u32,
    bytes: u32,
    start: usize,
}

/// The `home` of bytes in `joined`.
const JOINED: u32 = u32::MAX;

impl Place {
    /// Returns the place of bytes that are in one piece in a log. The log's number is less than `u32::MAX`.
    pub(crate) fn in_log(log: u32, start: usize, bytes: u32) -> Self {
        Place { home: log, bytes, start }
    }

    /// Returns the place in `joined` of a log's bytes once the log is appended there.
    #[cfg(test)]
    pub(crate) fn moved_from_log(self, appended_at: usize) -> Self {
        match self.home {
            JOINED => self,
            _ => Place::joined(appended_at + self.start, self.bytes),
        }
    }

    /// Returns how many bytes there are.
    pub(crate) fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// Returns the place of bytes that had to be joined.
    pub(crate) fn joined(start: usize, bytes: u32) -> Self {
        Place { home: JOINED, bytes, start }
    }
}

/// The bytes of a database that stay where they are: its logs, and its tables that stay mapped.
///
/// **Nothing in it changes, moves or is freed before the store is dropped**, whatever happens to the database
/// and its cursors; maps of tables are added. Unsafe code may rely on that, as far as files that are mapped
/// are not written to.
#[derive(Debug, Default)]
pub struct Store {
    logs: Vec<FileBytes>,
    /// Keys and values that fragments of a log cut into pieces.
    joined: Vec<u8>,
    /// By the table's number in the store.
    tables: Box<[OnceCell<TableMap>]>,
    _kept: KeptMaps,
}

/// A mapped table, and its path for messages.
#[derive(Debug)]
struct TableMap {
    map: FileBytes,
    path: PathBuf,
}

impl Store {
    /// With places for the maps of this many tables, or for as many as may be kept.
    pub(crate) fn new(logs: Vec<FileBytes>, joined: Vec<u8>, tables: usize) -> Self {
        let kept = KeptMaps::take(tables);
        Store { logs, joined, tables: (0..kept.count()).map(|_| OnceCell::new()).collect(), _kept: kept }
    }

    /// Returns how many bytes it holds besides mapped files.
    pub(crate) fn held_bytes(&self) -> usize {
        let maps = self.logs.capacity() * size_of::<FileBytes>() + size_of_val(&*self.tables);
        self.joined.capacity() + maps + self.logs.iter().map(FileBytes::held_bytes).sum::<usize>()
    }

    /// Returns the bytes at a place.
    #[inline]
    pub(crate) fn bytes(&self, place: Place) -> &[u8] {
        let home = match place.home {
            JOINED => &self.joined[..],
            log => self.logs.get(log as usize).map(AsRef::as_ref).unwrap_or_default(),
        };
        let end = place.start.checked_add(place.bytes as usize);
        end.and_then(|end| home.get(place.start..end)).unwrap_or_default()
    }

    /// Verifies the block that the deferred checksum of an [entry](crate::Home::Table) is of.
    ///
    /// # Errors
    ///
    /// [`LevelDbError::Table`] if it is damaged.
    ///
    /// # Panics
    ///
    /// If no entry was in this table.
    pub fn check_block(&self, table: usize, checksum: DeferredChecksum) -> Result<(), LevelDbError> {
        let Some(TableMap { map, path }) = self.tables.get(table).and_then(OnceCell::get) else {
            panic!("table {table} has a deferred checksum, but is not mapped");
        };
        let checked = checksum.check(map.as_ref(), 0);
        checked.map_err(|error| LevelDbError::Table { file: path.clone(), error })
    }

    /// Returns whether a table has a place here, and so stays mapped.
    pub(crate) fn keeps(&self, table: usize) -> bool {
        table < self.tables.len()
    }

    /// Checks that a mapped table still has its length, if its file is still there.
    pub(crate) fn check_length(&self, table: usize, state: FileState) -> Result<(), LevelDbError> {
        let Some(TableMap { path, .. }) = self.tables.get(table).and_then(OnceCell::get) else {
            return Ok(());
        };
        match std::fs::metadata(path) {
            Ok(metadata) if FileId::of(&metadata) == state.id && metadata.len() != state.bytes => {
                let (found, wanted) = (metadata.len(), state.bytes);
                Err(LevelDbError::Length { file: path.clone(), found, wanted })
            }
            // The map exists, whatever happened to the path.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Maps a table of a mapped database, unless it is mapped already. It stays mapped if it has a place
    /// here; otherwise it belongs to one cursor.
    pub(crate) fn open_table(
        self: &Arc<Self>,
        table: usize,
        path: impl FnOnce() -> PathBuf,
        state: FileState,
    ) -> Result<TableBytes, LevelDbError> {
        let open =
            |path: &Path| FileBytes::of(&open_table(path, state)?, path, Some(state.bytes), Reading::Mapped);
        let Some(cell) = self.tables.get(table) else {
            return Ok(TableBytes::Own(open(&path())?));
        };
        cell.get_or_try_init(|| {
            let path = path();
            open(&path).map(|map| TableMap { map, path })
        })?;
        Ok(TableBytes::Kept(KeptTable { store: self.clone(), table }))
    }

    /// Returns the bytes of a mapped table.
    #[inline]
    pub(crate) fn table(&self, table: usize) -> &[u8] {
        self.tables.get(table).and_then(OnceCell::get).map(|table| table.map.as_ref()).unwrap_or_default()
    }
}

/// A table of a [`Store`], which it keeps.
#[derive(Clone, Debug, Default)]
pub struct KeptTable {
    store: Arc<Store>,
    table: usize,
}

impl KeptTable {
    /// Asks the kernel to read the first bytes, at most `bytes_max`, without waiting for them. It is one
    /// call, which the kernel cuts to its own limit.
    pub(crate) fn will_need_front(&self, bytes_max: usize) {
        if let Some(TableMap { map, path }) = self.store.tables.get(self.table).and_then(OnceCell::get) {
            map.will_need(0..map.as_ref().len().min(bytes_max), path);
        }
    }

    /// Asks the kernel to read a part, whatever its limit for a call, without waiting for it.
    pub(crate) fn will_need(&self, part: Range<usize>) {
        let Some(TableMap { map, path }) = self.store.tables.get(self.table).and_then(OnceCell::get) else {
            return;
        };
        let end = part.end.min(map.as_ref().len());
        for start in (part.start..end).step_by(PIECE_BYTES) {
            map.will_need(start..end.min(start + PIECE_BYTES), path);
        }
    }

    /// Returns the entry with this key, which is the cursor's, and this part of the table as its value.
    #[inline]
    pub(crate) fn entry<'a>(
        &'a self,
        key: &'a [u8],
        value: Range<usize>,
        unverified: Option<&'a Unverified>,
    ) -> Entry<'a> {
        let value = self.store.table(self.table).get(value).unwrap_or_default();
        Entry { key, value, home: Home::Table { table: self.table, unverified } }
    }
}

impl AsRef<[u8]> for KeptTable {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.store.table(self.table)
    }
}

/// A table's bytes, as a cursor holds them.
#[derive(Debug)]
pub(crate) enum TableBytes {
    /// In the store, for as long as the store lives.
    Kept(KeptTable),
    /// The cursor's own, freed with it.
    Own(FileBytes),
}

impl TableBytes {
    /// Returns the table if it is in the store.
    pub(crate) fn kept(&self) -> Option<&KeptTable> {
        match self {
            TableBytes::Kept(table) => Some(table),
            TableBytes::Own(_) => None,
        }
    }
}

impl AsRef<[u8]> for TableBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            TableBytes::Kept(table) => table.as_ref(),
            TableBytes::Own(map) => map.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri minutes")]
    fn a_file_that_is_cut_while_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..=250).cycle().take(READ_BYTES + 1000).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let length = bytes.len() as u64;
        let read = |seen: u64, wanted| FileBytes::read(&file, &path, seen, wanted);
        assert_eq!(read(length, Some(length)).unwrap().as_ref(), bytes);
        assert_eq!(read(READ_BYTES as u64 + 1, None).unwrap().as_ref(), &bytes[..=READ_BYTES]);
        // The file was longer when it was looked at.
        let error = read(length + 1, Some(length + 1)).unwrap_err();
        let due = LevelDbError::Length { file: path.clone(), found: length, wanted: length + 1 };
        assert_eq!(error, due);
        let error = read(length + 7, None).unwrap_err().to_string();
        assert!(error.contains("was cut to") && error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where there is no memory")]
    fn what_no_memory_is_there_for_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let error = FileBytes::read(&file, Path::new("table"), 1 << 62, Some(1 << 62)).unwrap_err();
        assert!(matches!(error, LevelDbError::Io { kind: io::ErrorKind::OutOfMemory, .. }), "{error}");
    }
}
