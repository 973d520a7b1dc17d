//! LevelDB's databases as sources of records. [`percolator_leveldb`] reads the files and changes nothing; its
//! documentation has its promises, its memory and its errors.
//!
//! ```text
//! LevelDb -> Opened: the database, and the one lender of its bytes
//!            LevelDbCursor -> Walk: in key order; helpers unpack the blocks ahead of it (ahead/)
//!                          -> RecordCursor: to the place of a record, by the index
//! ```
//!
//! - Every block's checksum is verified: by the cursor; or, in feeds, by the worker before it writes a large
//!   uncompressed block's records to a batch, and by the thread that unpacks a compressed block. Damage is an
//!   error that names the file and the place; nothing is skipped.
//! - A value stored uncompressed (all of Caffe's images that do not compress, and everything still in a log)
//!   is lent from the map. A value in a compressed block is lent from the buffer that the block was unpacked
//!   to, until the cursor moves. In a feed, whose workers unpack the blocks ahead of the walk, a value that
//!   fills its buffer is handed over together with the buffer.
//!
//! If helpers unpack blocks ahead, a walk has at most 32 groups of blocks, of 128 KiB each. If blocks are
//! usually longer, up to 8 MiB each, a group has one block, and all tables of the walk together have as many
//! groups as total 16 MiB, or two. For a while after an unusually long block, a buffer may be four times as
//! large. The walk itself unpacks a block that is more than twice as long as usual, or longer than 8 MiB.
//!
//! An index, if requested, has 16 bytes per record. A run of records copies a table's keys, up to 8 KiB each.

mod ahead;
mod by_position;
mod index;
mod lending;
// Miri maps no files.
#[cfg(test)]
#[cfg(not(miri))]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use percolator_files::Access;
use percolator_leveldb::table::Verify;
use percolator_leveldb::{Database, Options};

pub use percolator_leveldb::table::TableError;
pub use percolator_leveldb::{LevelDbError, LogCut, LogFault, LogGaps, LogTail};

pub(super) use self::ahead::Pool;

use self::by_position::LevelDbCursor;
use self::index::Indexed;
use self::lending::{Opened, Walk};
use super::{Cursor, Identity, IndexPlace, NOT_WRITTEN, Source, SourceError, VerifiesLater};

/// The shortest block whose checksum is deferred: for a shorter one, passing the deferred checksum on costs
/// more than verifying the block. The tests' tables are small.
const DEFERRED_BYTES_MIN: usize = if cfg!(test) { 1 } else { 16 << 10 };

/// How a cursor verifies blocks if the user of its entries checks their deferred checksums.
const BY_THE_USER: Verify = Verify::ByTheUser { block_bytes_min: DEFERRED_BYTES_MIN };

/// A LevelDB opened for reading. Nothing on disk is changed, and no lock is taken.
///
/// Clones share the open database. A database must not be written to while it is open.
///
/// ```no_run
/// use percolator::source::{LevelDb, Source};
///
/// let digits = LevelDb::open("mnist_train_leveldb")?;
/// for cut in digits.cuts() {
///     eprintln!("{cut}");
/// }
/// let mut cursor = digits.range(Some(b"00010000"), Some(b"00020000"))?;
/// while let Some(entry) = cursor.advance()? {
///     println!("{}: {} bytes", entry.key().escape_ascii(), entry.value().len());
/// }
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LevelDb {
    /// As the caller passed it.
    path: PathBuf,
    opened: Arc<Opened>,
    /// The index of its records, once requested. Clones share it.
    indexed: Arc<Mutex<Option<Indexed>>>,
}

/// Options for opening a [`LevelDb`].
///
/// ```no_run
/// use percolator::leveldb::LogGaps;
/// use percolator::source::{Access, LevelDb};
///
/// let options = LevelDb::options().access(Access::Read).log_gaps(LogGaps::Allow);
/// let train = options.open("mnist_train_leveldb")?;
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LevelDbOptions(Options);

impl LevelDbOptions {
    /// Sets how the files are read (default: [`Access::Auto`]).
    ///
    /// With [`Access::Read`] the logs are in memory as long as the database is open. A cursor holds the
    /// current table of each level, and each table of level 0, in memory. Tables usually have 2 MiB. Tables
    /// that Caffe loaded into level 0, or in the order of its keys, have up to 256 MiB. Values are copied,
    /// and the cursor's own thread unpacks compressed blocks. A cursor that seeks by an index reads single
    /// blocks. At most 512 tables of all databases stay open; if a writer deletes others before a cursor
    /// reaches them, that is [`LevelDbError::BeingWritten`].
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.0.access = access;
        self
    }

    /// Sets what happens if logs lack writes (default: they are refused).
    #[must_use]
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.0.log_gaps = gaps;
        self
    }

    /// Opens a database: the folder that holds CURRENT.
    ///
    /// # Errors
    ///
    /// As [`LevelDb::open`], except for gaps that are allowed: [`LevelDb::gaps`] returns those.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<LevelDb, SourceError> {
        let path = path.as_ref().to_owned();
        let opened = Opened::new(Database::open(&path, &self.0)?);
        Ok(LevelDb { path, opened, indexed: Arc::default() })
    }
}

impl LevelDb {
    /// Opens a database: the folder that holds CURRENT.
    ///
    /// Opening reads the logs and maps every table; cursors read the tables. A writer may continue meanwhile
    /// and delete files: cursors return the database as it was when it was opened.
    ///
    /// **A file that is truncated while it is mapped, or that the disk cannot read, ends the process** with
    /// SIGBUS, because the kernel has no other way to report it. LevelDB never truncates a file, but a copy
    /// made over an open database does. A cursor checks a table when it reaches it: one that was truncated
    /// before that is an error. With [`Access::Read`], which is chosen on network file systems
    /// ([`LevelDbOptions::access`]), files are read instead of mapped, and every failure is an error.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no such database, if one of its files is missing or has the wrong length,
    /// if its MANIFEST or a log is damaged, or if its logs lack writes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::open_with(path, LogGaps::Refuse)
    }

    /// Opens a database with the given policy for logs that lack writes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), except for gaps that are allowed: [`gaps`](Self::gaps) returns those.
    pub fn open_with(path: impl AsRef<Path>, gaps: LogGaps) -> Result<Self, SourceError> {
        Self::options().log_gaps(gaps).open(path)
    }

    /// Returns the default options for opening a database.
    #[must_use]
    pub fn options() -> LevelDbOptions {
        LevelDbOptions::default()
    }

    fn database(&self) -> &Arc<Database> {
        self.opened.database()
    }

    /// Returns a cursor over the keys from `start` (inclusive) to `end` (exclusive); `None` leaves that end
    /// open.
    ///
    /// Several cursors, each on its own thread, may divide a database between them.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if no cursor can be made. Errors of tables are returned by the cursor's steps.
    pub fn range(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(Walk::new(&self.opened, (start.unwrap_or_default(), end), Verify::AtOnce, None)))
    }

    /// Returns the cuts of this database's logs, as after a crash, and what each dropped. Usually there are
    /// none.
    #[must_use]
    pub fn cuts(&self) -> &[LogCut] {
        self.database().cuts()
    }

    /// Returns what the logs of this database lack if it was opened with [`LogGaps::Allow`]: up to 100 of the
    /// errors that would otherwise have been returned. Usually there are none.
    #[must_use]
    pub fn gaps(&self) -> &[LevelDbError] {
        self.database().gaps()
    }
}

impl Source for LevelDb {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Known if all records are in the logs, or if there is an index of them.
    fn records(&self) -> Option<u64> {
        let of_index = || self.indexed.lock().as_ref().map(|indexed| indexed.index.records());
        self.database().records().or_else(of_index)
    }

    /// Compaction changes the files, but not the identity.
    fn identity(&self) -> Identity {
        Identity::new().with("kind", "LevelDB").with("last write", self.database().last_sequence())
    }

    /// Counts where the logs' keys and values are, the bytes that had to be joined, what is known of each
    /// table, and an index. It does not count what a cursor holds, a block of each of its tables, which is
    /// not known in advance; nor what helpers unpack for a cursor, which [`Cursor::held_bytes`]
    /// returns.
    fn held_bytes(&self) -> usize {
        let of_index = self.indexed.lock().as_ref().map_or(0, |indexed| indexed.index.held_bytes());
        size_of::<Database>() + self.database().held_bytes() + of_index
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        let walk = Walk::new(&self.opened, (&[], None), Verify::AtOnce, None);
        Ok(Box::new(LevelDbCursor::new(self, walk, Verify::AtOnce)))
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    /// The index is made by one walk, which itself unpacks compressed blocks.
    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }

    /// Reads a block of each level. If the greatest key ever written is deleted, `look` is not called: the
    /// result would change with compaction.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        let Some(key) = self.database().greatest_key() else { return };
        if let Ok(Some(entry)) = self.database().range(key, None).advance() {
            look(entry.key, entry.value);
        }
    }

    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(NOT_WRITTEN))
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        if !promise.is_of_blocks() {
            return self.cursor();
        }
        let walk = Walk::new(&self.opened, (&[], None), BY_THE_USER, promise.pool());
        Ok(Box::new(LevelDbCursor::new(self, walk, BY_THE_USER)))
    }
}
