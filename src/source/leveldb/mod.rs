//! A LevelDB reader that takes no lock, keeps no log of its own and writes nothing, regardless of which
//! program wrote the database.
//!
//! C++ LevelDB cannot open a database without changing it: it takes LOCK, renames LOG, writes the records of
//! the write-ahead log to tables and deletes the files those replace. Here the tables are mapped, and the
//! logs are mapped and indexed in memory (or both are read, see [`Access`]). A walk merges them; the newest
//! write of each key counts.
//!
//! - Every checksum is verified: a log's when the database is opened, a table block's whenever a walk enters
//!   the block. Two exceptions apply to feeds: the worker that writes a large uncompressed block's records to
//!   a batch verifies the block first, and the thread that unpacks a compressed block verifies it. Damage is
//!   an error that names the file and the place; nothing is skipped.
//! - A log that ends inside a record, as after a crash, is served up to there, with a warning; see
//!   [`LevelDb::cuts`].
//! - A log that lacks writes which the sequence numbers show to have existed is an error, and so is a log
//!   that is missing, unless [`LogGaps`] allows it.
//! - A value stored uncompressed (all of Caffe's images that do not compress, and everything still in a log)
//!   is lent from the map. A value in a compressed block is lent from the buffer that the block was unpacked
//!   to, until the cursor moves. In a feed, whose workers unpack the blocks ahead of the walk, a value that
//!   fills its buffer is handed over together with the buffer.
//! - A key of more than 8 KiB is refused. Tables store a key as its difference from the key before it, so an
//!   entry of twenty bytes could have a key of any length. Caffe's keys have some 300 bytes at most.
//!
//! Memory: 40 bytes per key in the logs, plus those keys and values that the logs' blocks of 32 KiB cut to
//! pieces; some hundred bytes per table. A walk has its last key, and for each level and each table of level
//! 0 an index block and a data block, uncompressed, and a key of each. A damaged or forged database, and a
//! walk of it, can need at most
//!
//! - 60 bytes per byte of log, while a buffer grows, if its writes delete the empty key;
//! - 22 bytes per byte of table, if snappy yields the most it can;
//! - the keys: at most 16 KiB each, because their buffers double; except for the walk's own key, none is
//!   longer than its block.
//!
//! If helpers unpack blocks ahead, a walk has at most 32 groups of blocks, of 128 KiB each. If blocks are
//! usually longer, up to 8 MiB each, a group has one block, and all tables of the walk together have as many
//! groups as total 16 MiB, or two. For a while after an unusually long block, a buffer may be four times as
//! large. The walk itself unpacks a block that is more than twice as long as usual, or longer than 8 MiB.
//!
//! An index, if requested, has 16 bytes per record. A cursor that seeks by position has one more block, and a
//! key.
//!
//! These limits are the reader's own. A caller that keeps entries copies a table's keys: a run of records has
//! up to 8 KiB for each, whatever the database's length. The same holds for time: for each entry that a walk
//! passes, up to 8 KiB are copied and compared, and an entry may have twenty bytes.

mod ahead;
mod batch;
mod by_position;
mod database;
// Miri maps no files, as these tests and those at the end do.
#[cfg(test)]
#[cfg(not(miri))]
mod deferring;
mod edit;
mod error;
mod folder;
mod group;
mod index;
mod key;
mod level;
mod log;
mod map;
mod memtable;
mod merge;
mod numbers;
mod opened;
mod recovery;
mod replay;
#[cfg(test)]
#[cfg(not(miri))]
mod seeking;
#[cfg(test)]
#[cfg(not(any(miri, shuttle)))]
mod unpacking;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use percolator_table::Verify;

pub(super) use self::ahead::Pool;
pub use self::error::LevelDbError;
pub use self::log::{LogFault, LogTail};
pub use percolator_table::TableError;

use self::by_position::LevelDbCursor;
use self::database::Database;
use self::index::Indexed;
use self::log::Cut;
use self::merge::MergeCursor;
use super::{Cursor, Identity, IndexPlace, Source, SourceError, VerifiesLater};
use crate::source::internals::SourceInternals;
use percolator_files::Access;
use percolator_files::shown;

/// The most tables of one database that stay mapped, unless fewer maps are left to the process
/// (`kept_maps.rs`). Each cursor maps the others for itself, and lends their values only until it moves.
const MAPS_MAX: usize = 16_384;

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
    database: Arc<Database>,
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
pub struct LevelDbOptions {
    access: Access,
    log_gaps: LogGaps,
}

impl LevelDbOptions {
    /// Sets how the files are read (default: [`Access::Auto`]).
    ///
    /// With [`Access::Read`] the logs are in memory as long as the database is open. A cursor holds the
    /// current table of each level, and each table of level 0, in memory. Tables usually have 2 MiB. What
    /// Caffe loaded into level 0, or in the order of its keys, has tables of up to 256 MiB. Values are
    /// copied, and the cursor's own thread unpacks compressed blocks. A cursor that seeks by an index reads
    /// single blocks. At most 512 tables of all databases stay open; if a writer deletes others before a
    /// cursor reaches them, that is [`LevelDbError::BeingWritten`].
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets what happens if logs lack writes (default: they are refused).
    #[must_use]
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.log_gaps = gaps;
        self
    }

    /// Opens a database: the folder that holds CURRENT.
    ///
    /// # Errors
    ///
    /// As [`LevelDb::open`], except for gaps that are allowed: [`LevelDb::gaps`] returns those.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<LevelDb, SourceError> {
        LevelDb::open_mapping(path.as_ref(), MAPS_MAX, self)
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

    fn open_mapping(path: &Path, maps: usize, options: &LevelDbOptions) -> Result<Self, SourceError> {
        let database = Arc::new(recovery::open(path, maps, options)?);
        tracing::debug!(
            path = %shown::path(path),
            tables = database.levels.iter().map(Vec::len).sum::<usize>(),
            keys_in_logs = database.memtable.len(),
            "a LevelDB is open"
        );
        Ok(LevelDb { path: path.to_owned(), database, indexed: Arc::default() })
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
        Ok(Box::new(MergeCursor::new(&self.database, start.unwrap_or_default(), end)))
    }

    /// Returns the cuts of this database's logs, as after a crash, and what each dropped. Usually there are
    /// none.
    #[must_use]
    pub fn cuts(&self) -> &[LogCut] {
        &self.database.cuts
    }

    /// Returns what the logs of this database lack if it was opened with [`LogGaps::Allow`]: up to 100 of the
    /// errors that would otherwise have been returned. Usually there are none.
    #[must_use]
    pub fn gaps(&self) -> &[LevelDbError] {
        &self.database.gaps
    }
}

impl Source for LevelDb {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Known if all records are in the logs, or if there is an index of them.
    fn records(&self) -> Option<u64> {
        let of_index = || self.indexed.lock().as_ref().map(|indexed| indexed.index.records());
        self.database.records().or_else(of_index)
    }

    /// Compaction changes the files, but not the identity.
    fn identity(&self) -> Identity {
        Identity::new().with("kind", "LevelDB").with("last write", self.database.last_sequence)
    }

    /// Counts where the logs' keys and values are, the bytes that had to be joined, what is known of each
    /// table, and an index. It does not count what a cursor holds, a block of each of its tables, which is
    /// not known in advance; nor what helpers unpack for a cursor, which `CursorInternals::held_bytes`
    /// returns.
    fn held_bytes(&self) -> usize {
        let of_index = self.indexed.lock().as_ref().map_or(0, |indexed| indexed.index.held_bytes());
        size_of::<Database>() + self.database.held_bytes() + of_index
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        let merge = MergeCursor::new(&self.database, &[], None);
        Ok(Box::new(LevelDbCursor::new(self, merge, Verify::AtOnce)))
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    /// The index is made by one walk, which itself unpacks compressed blocks.
    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }

    fn internals(&self) -> Option<&dyn SourceInternals> {
        Some(self)
    }
}

impl SourceInternals for LevelDb {
    /// Reads a block of each level. If the greatest key ever written is deleted, `look` is not called: the
    /// result would change with compaction.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        let Some(key) = self.database.greatest_key() else { return };
        if let Ok(Some(entry)) = MergeCursor::new(&self.database, key, None).advance() {
            look(entry.key(), entry.value());
        }
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        if !promise.is_of_blocks() {
            return self.cursor();
        }
        let merge = MergeCursor::deferring(&self.database, promise.pool());
        Ok(Box::new(LevelDbCursor::new(self, merge, BY_THE_USER)))
    }
}

/// What happens if logs lack writes that the sequence numbers show to have existed, or are missing.
///
/// LevelDB numbers its writes. A log loses some if its file system loses power, or if a copy of it was cut
/// short. That shows if the numbers jump, or if the MANIFEST counts more of them. docs/caffe.md lists the
/// losses that no number shows.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum LogGaps {
    /// Missing writes are an error.
    #[default]
    Refuse,
    /// The remaining writes are read, as LevelDB itself does, with a warning for each gap.
    Allow,
}

/// A log or a MANIFEST that ends inside a record, or in zeros: its writer died. What is before the cut is
/// served. For a MANIFEST that is an earlier list of the database's tables, so an older list may be in use.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// The file.
    pub file: PathBuf,
    /// Where the record without an end starts.
    pub offset: u64,
    /// How many bytes there are from there to the end of the file. None of them is served.
    pub dropped_bytes: u64,
    /// What those bytes are.
    pub tail: LogTail,
    /// Whether it is the MANIFEST.
    is_manifest: bool,
}

impl LogCut {
    fn new(file: &Path, cut: Cut) -> Self {
        let (offset, dropped_bytes) = (cut.offset as u64, cut.dropped_bytes as u64);
        LogCut { file: file.to_owned(), offset, dropped_bytes, tail: cut.tail, is_manifest: false }
    }

    /// What the cut means for the records.
    fn consequence(&self) -> &'static str {
        match self.is_manifest {
            true => "an older list of tables may be in use; copy the database again if there is another copy",
            false => "what is before the cut is served",
        }
    }
}

impl fmt::Display for LogCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogCut { file, offset, dropped_bytes, tail, is_manifest } = self;
        let file = shown::path(file);
        if *tail == LogTail::Zeros {
            return write!(
                f,
                "{file}: from byte {offset} on there are {dropped_bytes} zeros: space that its writer \
                 reserved, or data that did not reach the disk"
            );
        }
        write!(
            f,
            "{file}: cut inside the record at byte {offset}: {dropped_bytes} bytes, {tail}, are dropped"
        )?;
        if *is_manifest { write!(f, "; {}", self.consequence()) } else { Ok(()) }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::record::RecordId;
    use crate::source::{Record, Run};

    fn open(name: &str, maps: usize) -> LevelDb {
        open_as(name, maps, Access::Mapped)
    }

    fn open_as(name: &str, held: usize, access: Access) -> LevelDb {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb").join(name);
        LevelDb::open_mapping(&path, held, &LevelDb::options().access(access)).unwrap()
    }

    /// Reads the records of a database into one run; returns it and how many of them were lent.
    fn read(source: &LevelDb) -> (Run, usize) {
        let mut run = Run::with_capacity(0);
        let mut lent = 0;
        let mut cursor = source.cursor().unwrap();
        while let Some(entry) = cursor.advance().unwrap() {
            lent += usize::from(entry.is_lent());
            run.push(RecordId::default(), entry);
        }
        (run, lent)
    }

    #[test]
    fn the_databases_of_the_tests_have_what_they_are_there_for() {
        let tables = |name: &str| open(name, 0).database.levels.each_ref().map(Vec::len);
        println!("{:?}", ["levels", "compacted", "killed", "deleted", "reopened"].map(tables));
        assert!(tables("levels").iter().filter(|&&tables| tables > 0).count() >= 3, "three levels");
        assert!(tables("reopened")[0] > 1, "tables of level 0");
        assert!(!open("reopened", 0).database.memtable.is_empty(), "and a log");
        assert_eq!(tables("big_values"), [0; 7]);
        assert!(!open("killed", 0).database.memtable.is_empty());
    }

    #[test]
    fn what_is_held_is_that_of_the_keys_in_the_logs_and_of_the_tables() {
        let (nothing, logs, tables) = (open("nothing", 9), open("big_values", 9), open("levels", 9));
        let least = nothing.held_bytes();
        let keys = logs.database.memtable.len() * 40;
        assert!(logs.held_bytes() >= least + keys, "{} for {keys}", logs.held_bytes());
        let count = tables.database.levels.iter().map(Vec::len).sum::<usize>();
        let held = tables.held_bytes() - least;
        assert!((100 * count..1000 * count).contains(&held), "{held} for {count} tables");
    }

    #[test]
    fn what_is_read_and_not_mapped_is_held() {
        let file_bytes = |name: &str, ending: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb").join(name);
            let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            let meant = files.filter(|file| file.path().extension().is_some_and(|found| found == ending));
            meant.map(|file| std::fs::read(file.path()).unwrap().len()).collect::<Vec<_>>()
        };
        let logs: usize = file_bytes("big_values", "log").into_iter().sum();
        let [mapped, read] =
            [Access::Mapped, Access::Read].map(|access| open_as("big_values", 9, access).held_bytes());
        assert!(logs > 60_000 && read >= mapped + logs, "{read}, {mapped} and {logs}");
        let tables = file_bytes("levels", "ldb");
        let [mapped, read] = [Access::Mapped, Access::Read]
            .map(|access| open_as("levels", 9, access).cursor().unwrap().held_bytes(0).total());
        assert_eq!(mapped, 0);
        let (longest, all) = (*tables.iter().max().unwrap(), tables.iter().sum());
        assert!((longest..=all).contains(&read), "{read}: a table of each level, of {tables:?}");
    }

    /// This table is not held when the database is opened: there are more tables than may be held.
    #[test]
    fn a_table_that_is_deleted_before_a_walk_opens_it_says_that_somebody_writes() {
        deleted_before_a_walk(Access::Mapped);
        deleted_before_a_walk(Access::Read);
    }

    fn deleted_before_a_walk(access: Access) {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb/uncompressed");
        for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        let source = LevelDb::open_mapping(folder.path(), 0, &LevelDb::options().access(access)).unwrap();
        std::fs::remove_file(folder.path().join("000005.ldb")).unwrap();
        let error = source.cursor().unwrap().advance().map(|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::LevelDb(LevelDbError::BeingWritten { .. })), "{error}");
        assert!(error.to_string().contains("000005.ldb is no longer there"), "{error}");
    }

    #[test]
    fn values_are_lent_where_they_lie_in_a_file_that_stays_mapped() {
        for (name, log_only) in [("uncompressed", false), ("levels", false), ("big_values", true)] {
            let (kept, unkept) = (open(name, MAPS_MAX), open(name, 0));
            let ((kept, kept_lent), (unkept, unkept_lent)) = (read(&kept), read(&unkept));
            let same =
                |(one, other): (Record<'_>, Record<'_>)| (one.key, one.value) == (other.key, other.value);
            assert!(kept.len() == unkept.len() && kept.iter().zip(unkept.iter()).all(same), "{name}");
            match (name, log_only) {
                ("uncompressed", _) => assert_eq!((kept_lent, unkept_lent), (kept.len(), 0)),
                (_, true) => assert_eq!((kept_lent, unkept_lent), (kept.len(), kept.len())),
                // Compressed blocks, and a log.
                _ => assert!(
                    kept_lent > 0 && kept_lent < kept.len() && kept_lent == unkept_lent,
                    "{kept_lent}"
                ),
            }
        }
    }
}
