//! LevelDB, read as it lies: no lock, no log of its own, nothing written, whoever wrote the database.
//!
//! C++ LevelDB cannot open a database without changing it: it takes LOCK, renames LOG, writes the records of
//! the write-ahead log to tables and deletes what those replace. Here the tables are mapped, the logs are
//! mapped and indexed in memory (or both read, [`Access`]), and a walk merges them: of the writes of a key the newest counts.
//!
//! - Every checksum is verified: of a log when the database is opened, of a table's block whenever a walk
//!   enters it; of a large block that is not compressed, where a feed reads it, by the worker that writes its records
//!   to a batch, before it does; of one that is compressed, by whoever unpacks it. What is damaged is an error that
//!   names the file and the place; nothing is skipped.
//! - A log that ends inside a record, as after a crash, is served up to there, with a warning; see
//!   [`LevelDb::cuts`].
//! - A log that lacks writes which sequence numbers say there were is an error, unless [`LogGaps`] allows it.
//! - A value that lies in its file as it is (all of Caffe's images that do not compress, and what is still in
//!   a log) is lent from the map. A value in a compressed block is lent until the next step, from the buffer
//!   that the block was uncompressed to. In a feed, whose workers uncompress the blocks ahead of the walk, one that
//!   fills its buffer goes on with it.
//! - A key of more than 8 KiB is refused: tables store keys by what they share with the key before them, and
//!   twenty bytes would be a key of any length. Caffe's have some 300 bytes at the most.
//!
//! Memory: 40 bytes a key in the logs, and those of their keys and values that the logs' blocks of 32 KiB cut
//! to pieces; for each table some hundred bytes; for each walk its last key, and for each of the levels and of
//! the tables of level 0 an index block and a data block, uncompressed, and a key of each. What a damaged or
//! forged database can ask for, and a walk of it, is
//!
//! - 60 bytes a byte of log, while a buffer grows, if its writes delete the empty key;
//! - 22 bytes a byte of table, if snappy yields what it can;
//! - the keys: at most 16 KiB each, as their buffers double; but for the walk's own, none is longer than its
//!   block.
//!
//! Where helpers uncompress blocks ahead, a walk has at most 32 groups of them, of 128 KiB each; where blocks are usually
//! longer, up to 8 MiB each, as many groups of one block as come to 16 MiB, or two, all its tables together. For a while a
//! buffer may be four times as large, behind a block that is longer than is usual. One that is more than twice as long,
//! or longer than 8 MiB, the walk uncompresses itself.
//!
//! An index, where one is asked for, has 16 bytes a record. A walk that was sent to a position has one more block, and a key.
//!
//! That is the reader's own. Whoever keeps entries copies a table's keys: a run of records has up to 8 KiB for
//! each, whatever the database's length. Time, too: up to 8 KiB are copied, and compared, for each entry that a
//! walk passes, and an entry may have twenty bytes.

mod ahead;
mod batch;
mod behind;
mod by_position;
mod database;
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
mod sealing;
#[cfg(test)]
mod seeking;
#[cfg(test)]
#[cfg(not(shuttle))]
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
use super::access::Access;
use super::{Cursor, Identity, IndexPlace, Source, SourceError, VerifiesLater};

/// Tables of one database that stay mapped: a process may have 65,530 maps. Walks map the others for
/// themselves, and lend their values until the next step only.
const MAPS_MAX: usize = 16_384;

/// Of a shorter block, its seal costs whoever hands it on more than to verify it. The tables of tests are small.
const SEALED_BYTES_MIN: usize = if cfg!(test) { 1 } else { 16 << 10 };

/// How a walk verifies blocks if whoever uses its entries checks their seals.
const BY_THE_USER: Verify = Verify::ByTheUser { block_bytes_min: SEALED_BYTES_MIN };

/// A LevelDB, opened for reading: nothing on disk is changed, and no lock is taken.
///
/// Clones share what is open. A database must not be written to while it is open.
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
    /// As the caller gave it.
    path: PathBuf,
    database: Arc<Database>,
    /// The index of its records, once it was asked for. Clones share it.
    indexed: Arc<Mutex<Option<Indexed>>>,
}

/// How a [`LevelDb`] is opened.
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
    /// How the files are read; as [`Access::Chosen`] says if not said.
    ///
    /// With [`Access::Read`] the logs are in memory as long as the database is open. A walk holds one table of each level,
    /// and each of level 0, while it is in them: as a rule 2 MiB each, but what Caffe loaded into level 0, or in the order of
    /// its keys, has tables of up to 256 MiB. Values are copied, and compressed blocks are unpacked by the walk's own
    /// thread. A walk by an index reads single blocks. 512 tables of all databases stay open; if a writer deletes
    /// others before a walk comes to them, that is [`LevelDbError::BeingWritten`].
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// What is done about logs that lack writes; they are refused if not said.
    #[must_use]
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.log_gaps = gaps;
        self
    }

    /// Opens a database: the folder that holds CURRENT.
    ///
    /// # Errors
    ///
    /// As [`LevelDb::open`], but for gaps that are allowed: [`LevelDb::gaps`] tells of them.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<LevelDb, SourceError> {
        LevelDb::open_mapping(path.as_ref(), MAPS_MAX, self)
    }
}

impl LevelDb {
    /// Opens a database: the folder that holds CURRENT.
    ///
    /// The logs are read, and every table is mapped; tables are read by the walks. A writer may go on meanwhile
    /// and delete files: what is read is the database as it was when it was opened.
    ///
    /// **A file that is cut while it is mapped, or that the disk cannot read, ends the process** by the signal
    /// SIGBUS: that is how the system says so. LevelDB never cuts a file, but a copy that is made over an open
    /// database does. A table is looked at when a walk comes to it: one that was cut before is an error. With
    /// [`Access::Read`], which is chosen on network file systems ([`LevelDbOptions::access`]), files are read and not
    /// mapped, and whatever goes wrong with one is an error.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no such database, if a file of it is missing or has not its length, if
    /// its MANIFEST or a log is damaged, or if its logs lack writes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::open_with(path, LogGaps::Refuse)
    }

    /// Opens a database whose logs may lack writes, or may not.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for the gaps that are allowed: [`gaps`](Self::gaps) tells of them.
    pub fn open_with(path: impl AsRef<Path>, gaps: LogGaps) -> Result<Self, SourceError> {
        Self::options().log_gaps(gaps).open(path)
    }

    /// How a database is opened.
    #[must_use]
    pub fn options() -> LevelDbOptions {
        LevelDbOptions::default()
    }

    fn open_mapping(path: &Path, maps: usize, options: &LevelDbOptions) -> Result<Self, SourceError> {
        let database = Arc::new(recovery::open(path, maps, options)?);
        tracing::debug!(
            path = %path.display(),
            tables = database.levels.iter().map(Vec::len).sum::<usize>(),
            keys_in_logs = database.memtable.len(),
            "a LevelDB is open"
        );
        Ok(LevelDb { path: path.to_owned(), database, indexed: Arc::default() })
    }

    /// Starts a walk over the keys from `start` on and before `end`; an open end is `None`.
    ///
    /// Several walks, on threads of their own, may share a database out between them.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there can be no walk. What is wrong with a table, the walk's steps say.
    pub fn range(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(MergeCursor::new(&self.database, start.unwrap_or_default(), end)))
    }

    /// The logs of this database that were cut, as by a crash, and what that dropped. Usually there is none.
    #[must_use]
    pub fn cuts(&self) -> &[LogCut] {
        &self.database.cuts
    }

    /// What the logs of this database lack, where [`LogGaps::Allow`] was said: the errors that would have been, up to
    /// 100 of them. Usually there is none.
    #[must_use]
    pub fn gaps(&self) -> &[LevelDbError] {
        &self.database.gaps
    }
}

impl Source for LevelDb {
    fn path(&self) -> &Path {
        &self.path
    }

    /// If all lie in the logs, or there is an index of them.
    fn records(&self) -> Option<u64> {
        let of_index = || self.indexed.lock().as_ref().map(|indexed| indexed.index.records());
        self.database.records().or_else(of_index)
    }

    /// Compaction, which changes the files, does not change it.
    fn identity(&self) -> Identity {
        Identity::new().with("kind", "LevelDB").with("last write", self.database.last_sequence)
    }

    /// Where the logs' keys and values lie, those that had to be put together, what is known of each table, and an index.
    /// What a walk keeps, a block of each of its tables, is not known before; but for what others unpack for it, which its
    /// cursor says ([`Cursor::held_bytes`]).
    fn held_bytes(&self) -> usize {
        let of_index = self.indexed.lock().as_ref().map_or(0, |indexed| indexed.index.held_bytes());
        size_of::<Database>() + self.database.held_bytes() + of_index
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        let merge = MergeCursor::new(&self.database, &[], None);
        Ok(Box::new(LevelDbCursor::new(self, merge, Verify::AtOnce)))
    }

    /// A block of each level is read for it. Where the greatest key that was ever written is deleted, nothing
    /// is shown: compaction would change what is.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        let Some(key) = self.database.greatest_key() else { return };
        if let Ok(Some(entry)) = MergeCursor::new(&self.database, key, None).advance() {
            look(entry.key(), entry.value());
        }
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    /// The index is made by one walk, which unpacks what is compressed.
    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        let merge = MergeCursor::sealing(&self.database, promise.pool());
        Ok(Box::new(LevelDbCursor::new(self, merge, BY_THE_USER)))
    }
}

/// What is done about logs that lack writes which sequence numbers say there were.
///
/// LevelDB numbers its writes. A log that lost some, as file systems do that lose power, or as a copy does that was cut
/// short, shows it where numbers jump, or where the MANIFEST counts more of them. docs/caffe.md says
/// what no number tells.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogGaps {
    /// They are an error.
    #[default]
    Refuse,
    /// What is left is read, as LevelDB itself does, with a warning for each gap.
    Allow,
}

/// A log, or a MANIFEST, that ends inside a record: its writer died. What is before the cut is served. For a
/// MANIFEST that is the list of the database's tables as it was before: an older one may be in use.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// The file.
    pub file: PathBuf,
    /// Where the record starts that has no end.
    pub offset: u64,
    /// How many bytes there are from there to the end of the file, none of which is served.
    pub dropped_bytes: u64,
    /// What they are.
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
        let file = file.display();
        write!(
            f,
            "{file}: cut inside the record at byte {offset}: {dropped_bytes} bytes, {tail}, are dropped"
        )?;
        if *is_manifest { write!(f, "; {}", self.consequence()) } else { Ok(()) }
    }
}

#[cfg(test)]
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

    /// The records of a database in one run, and how many of them were lent.
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
            .map(|access| open_as("levels", 9, access).cursor().unwrap().held_bytes());
        assert_eq!(mapped, 0);
        let (longest, all) = (*tables.iter().max().unwrap(), tables.iter().sum());
        assert!((longest..=all).contains(&read), "{read}: a table of each level, of {tables:?}");
    }

    /// One that is not held when the database is opened: there are more tables than may be.
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
