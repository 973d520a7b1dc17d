//! LMDB, through lmdb-rkv: read-only, values lent from the map.
//!
//! What is done differently from a plain `mdb_env_open`, and why:
//!
//! - One environment a path in a process (LMDB forbids two), shared by every reader of it.
//! - The map is as long as the file: files from Caffe before 2016 ask for 1 TB of address space.
//! - The file's length is checked against its last page before the first read: LMDB opens a file that was
//!   cut short, and the process dies of SIGBUS where the missing pages begin.
//! - Where the lock file cannot be made or locked (read-only media, some network file systems), the
//!   database is opened without it, and a warning says so.
//!
//! What is not caught here: pages damaged in place (LMDB aborts the process), and a file that is cut while
//! it is open.
//!
//! A record is found by its position without LMDB: an index says on which leaf page it lies (`index`), and that page
//! is read in a map of our own, where no damage does harm (`page`).

#![expect(unsafe_code, reason = "LMDB lends memory whose lifetime its Rust binding ties to a borrow")]

mod index;
mod page;
mod sought;
mod tree;

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use lmdb::{Cursor as _, Database, Environment, EnvironmentFlags, RoCursor, RoTransaction, Transaction as _};
use once_cell::sync::{Lazy, OnceCell};

use self::index::Indexed;
use self::page::Pages;
use self::sought::Sought;
use super::file_id::FileId;
use super::resident::Resident;
use super::{Cursor, Dealt, Entry, Identity, IndexPlace, Lender, Source, SourceError};
use crate::keyed::{Held, Keyed};

/// Cursor operations of lmdb.h, a stable interface that lmdb-rkv takes as numbers.
const MDB_FIRST: u32 = 0;
const MDB_NEXT: u32 = 8;

/// The number every LMDB file has behind the header of its first page.
const MAGIC: u32 = 0xbeef_c0de;
const MAGIC_OFFSET: usize = 16;
/// Where that page says how long a page is.
const PAGE_BYTES_OFFSET: usize = 40;

/// Read transactions that may be open at once over all processes. LMDB's own default is 126; a server
/// that makes a reader a connection needs more. It counts only for whoever creates the lock file.
const READERS_MAX: u32 = 1022;

/// Every environment that is open in this process. The key is the data file and not its path, so that a
/// database which was replaced is not taken for the one before it, which somebody may still be reading.
static ENVIRONMENTS: Lazy<Arc<Keyed<FileId, OpenEnvironment>>> = Lazy::new(Keyed::new);

/// A Caffe LMDB, opened for reading.
///
/// ```no_run
/// use percolator::{Lmdb, Source};
///
/// let digits = Lmdb::open("mnist_train_lmdb")?;
/// println!("{} records", digits.records().unwrap_or(0));
/// # Ok::<(), percolator::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lmdb {
    /// As the caller gave it.
    path: PathBuf,
    environment: Arc<Held<FileId, OpenEnvironment>>,
    /// The index of its records, once it was asked for. Clones share it.
    indexed: Arc<Mutex<Option<Indexed>>>,
}

impl Lmdb {
    /// Opens a database: the folder that holds `data.mdb`, or the data file itself.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no such database, or its file is cut short.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::open_with(path.as_ref(), Locking::IfPossible)
    }

    /// As [`Lmdb::open`], but without LMDB's lock file: nothing is created beside the database, and
    /// nothing protects the walk from a process that writes to it at the same time.
    ///
    /// # Errors
    ///
    /// As [`Lmdb::open`].
    pub fn open_without_lock(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::open_with(path.as_ref(), Locking::Never)
    }

    fn open_with(path: &Path, locking: Locking) -> Result<Self, SourceError> {
        let files = Files::find(path)?;
        let (file, length) = check_head(&files)?;
        let environment =
            ENVIRONMENTS.get_or_open(&file, || OpenEnvironment::open(&files, file, length, locking))?;
        Ok(Lmdb { path: path.to_owned(), environment, indexed: Arc::default() })
    }
}

impl Source for Lmdb {
    fn path(&self) -> &Path {
        &self.path
    }

    fn records(&self) -> Option<u64> {
        self.environment.env.stat().ok().map(|stat| stat.entries() as u64)
    }

    /// A copy has the same transaction, but for one that is made compact.
    fn identity(&self) -> Identity {
        let identity = Identity::new().with("kind", "LMDB");
        let identity = match self.records() {
            Some(records) => identity.with("records", records),
            None => identity,
        };
        match self.environment.env.info() {
            Ok(info) => identity.with("transaction", info.last_txnid()),
            Err(_) => identity,
        }
    }

    /// The index of its records.
    fn held_bytes(&self) -> usize {
        self.indexed.lock().as_ref().map_or(0, Indexed::held_bytes)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(LmdbCursor::open(self)?))
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Locking {
    IfPossible,
    Never,
}

/// Where the parts of a database lie.
struct Files {
    /// What the user named.
    given: PathBuf,
    /// The data file, canonical.
    data: PathBuf,
    /// What `mdb_env_open` wants, and whether that is the data file itself.
    open: PathBuf,
    open_is_file: bool,
}

impl Files {
    fn find(given: &Path) -> Result<Self, SourceError> {
        let io = |action| move |error| SourceError::io(given, action, &error);
        let is_folder = std::fs::metadata(given).map_err(io("open the database"))?.is_dir();
        let data = if is_folder { given.join("data.mdb") } else { given.to_owned() };
        if is_folder && !data.try_exists().map_err(io("look for data.mdb"))? {
            return Err(explain_missing_data(given));
        }
        let data = data.canonicalize().map_err(io("resolve the path"))?;
        // A writer that was given the folder locks `lock.mdb` in it. Naming `data.mdb` must not end in
        // another lock file than the writer's, so that, too, opens the folder.
        match data.parent() {
            Some(folder) if data.file_name().is_some_and(|name| name == "data.mdb") => {
                let open = folder.to_owned();
                Ok(Files { given: given.to_owned(), data, open, open_is_file: false })
            }
            _ => Ok(Files { given: given.to_owned(), open: data.clone(), data, open_is_file: true }),
        }
    }
}

fn explain_missing_data(folder: &Path) -> SourceError {
    let hint = if folder.join("CURRENT").exists() {
        "; it is a LevelDB: say .leveldb(path), --leveldb, or in a net backend: LEVELDB"
    } else {
        "; give the folder that convert_imageset or its like wrote"
    };
    SourceError::NotADatabase { path: folder.to_owned(), kind: "an LMDB database", missing: "data.mdb", hint }
}

/// An environment and its one, unnamed database.
struct OpenEnvironment {
    env: Environment,
    database: Database,
    /// For messages.
    path: PathBuf,
    /// The data file, canonical.
    data: PathBuf,
    /// Which file that was when the environment was opened.
    file: FileId,
    /// That file in a map of our own, once a record was wanted by its position.
    pages: OnceCell<Pages>,
}

impl OpenEnvironment {
    fn open(files: &Files, file: FileId, length: u64, locking: Locking) -> Result<Self, SourceError> {
        let env = Self::open_env(files, locking, length)
            .map_err(|error| library_error(&files.given, "mdb_env_open", error))?;
        check_length(&files.given, &env, length)?;
        let database =
            env.open_db(None).map_err(|error| library_error(&files.given, "mdb_dbi_open", error))?;
        tracing::debug!(path = %files.given.display(), bytes = length, "an LMDB environment is open");
        let (path, data) = (files.given.clone(), files.data.clone());
        Ok(OpenEnvironment { env, database, path, data, file, pages: OnceCell::new() })
    }

    fn open_env(files: &Files, locking: Locking, length: u64) -> lmdb::Result<Environment> {
        let mut flags = EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS;
        flags.set(EnvironmentFlags::NO_SUB_DIR, files.open_is_file);
        flags.set(EnvironmentFlags::NO_LOCK, locking == Locking::Never);
        let mut builder = Environment::new();
        builder.set_flags(flags).set_max_readers(READERS_MAX);
        // A file longer than the address space is left to LMDB, which knows how to refuse it.
        if let Ok(length) = usize::try_from(length) {
            builder.set_map_size(length);
        }
        match builder.open(&files.open) {
            Err(lmdb::Error::Other(code)) if locking == Locking::IfPossible && is_locking_trouble(code) => {
                tracing::warn!(
                    path = %files.given.display(),
                    error = %lmdb::Error::Other(code),
                    "cannot lock the database: reading it without a lock; nobody may write to it meanwhile"
                );
                builder.set_flags(flags | EnvironmentFlags::NO_LOCK).open(&files.open)
            }
            opened => opened,
        }
    }
}

impl fmt::Debug for OpenEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenEnvironment").field(&self.path).finish()
    }
}

/// Says what a file that is no LMDB is, before LMDB makes a lock file beside it; gives the file and its length.
fn check_head(files: &Files) -> Result<(FileId, u64), SourceError> {
    let io = |action| move |error| SourceError::io(&files.given, action, &error);
    // Not opened before it is known to be a file: opening a pipe waits for whoever writes to it.
    if !std::fs::metadata(&files.data).map_err(io("look at the data file"))?.is_file() {
        let found = "something that is no regular file".to_owned();
        return Err(SourceError::NotLmdb { path: files.given.clone(), found });
    }
    let mut file = File::open(&files.data).map_err(io("open the data file"))?;
    let metadata = file.metadata().map_err(io("look at the data file"))?;
    let length = metadata.len();
    let mut head = [0_u8; PAGE_BYTES_OFFSET + size_of::<u32>()];
    if length < head.len() as u64 {
        return Err(SourceError::NotLmdb { path: files.given.clone(), found: format!("{length} bytes") });
    }
    file.read_exact(&mut head).map_err(io("read the data file"))?;
    // LMDB writes its numbers as the machine has them.
    let number = |offset: usize| -> u32 { bytemuck::pod_read_unaligned(&head[offset..][..size_of::<u32>()]) };
    let magic = number(MAGIC_OFFSET);
    if magic == MAGIC.swap_bytes() {
        let found = "a file of a machine with the other byte order".to_owned();
        return Err(SourceError::NotLmdb { path: files.given.clone(), found });
    }
    if magic != MAGIC {
        let found = format!("{magic:#010x} at byte {MAGIC_OFFSET}, where LMDB writes {MAGIC:#010x}");
        return Err(SourceError::NotLmdb { path: files.given.clone(), found });
    }
    // LMDB takes its two first pages for granted; whatever else it says of them is for it to check.
    let page_bytes = u64::from(number(PAGE_BYTES_OFFSET));
    let needed_bytes = 2 * page_bytes;
    if page_bytes.is_power_of_two() && length < needed_bytes {
        let path = files.given.clone();
        return Err(SourceError::Truncated {
            path,
            found_bytes: length,
            needed_bytes,
            last_page: 1,
            page_bytes,
        });
    }
    Ok((FileId::of(&metadata), length))
}

/// What read-only media and network file systems answer to making, or locking, a lock file.
fn is_locking_trouble(code: i32) -> bool {
    matches!(code, libc::EACCES | libc::EROFS | libc::ENOSYS | libc::EAGAIN)
}

/// LMDB maps what the newest commit says it uses, whether the file has it or not.
fn check_length(path: &Path, env: &Environment, found_bytes: u64) -> Result<(), SourceError> {
    let info = env.info().map_err(|error| library_error(path, "mdb_env_info", error))?;
    let stat = env.stat().map_err(|error| library_error(path, "mdb_env_stat", error))?;
    let last_page = info.last_pgno() as u64;
    let page_bytes = u64::from(stat.page_size());
    let needed_bytes = last_page.saturating_add(1).saturating_mul(page_bytes);
    if found_bytes < needed_bytes {
        let path = path.to_owned();
        return Err(SourceError::Truncated { path, found_bytes, needed_bytes, last_page, page_bytes });
    }
    Ok(())
}

fn library_error(path: &Path, call: &'static str, error: lmdb::Error) -> SourceError {
    let hint = match error {
        lmdb::Error::Invalid => ", or its first pages are damaged",
        lmdb::Error::VersionMismatch => "; it was written by another version of LMDB's file format",
        lmdb::Error::ReadersFull => "; too many readers at once: share one, or open without the lock",
        lmdb::Error::MapResized => "; another process let the database grow: open it again",
        lmdb::Error::Corrupted | lmdb::Error::PageNotFound => "; the file is damaged: copy it again",
        _ => "",
    };
    SourceError::Library { path: path.to_owned(), call, message: error.to_string(), hint }
}

/// A read transaction that keeps its environment, and with it every page it can see.
struct ReadTransaction {
    /// Declared, hence dropped, before the environment that it borrows.
    transaction: RoTransaction<'static>,
    /// The number of the commit that it sees.
    id: u64,
    environment: Arc<Held<FileId, OpenEnvironment>>,
}

// SAFETY: `MDB_NOTLS` unties a read transaction from the thread that began it: it may be used and ended on
// any thread, by one at a time. Shared references use it to open the cursor, in `LmdbCursor::open`, and to ask for its
// number before the value is shared; after that it is only dropped, by whoever held it last.
unsafe impl Send for ReadTransaction {}
// SAFETY: as above.
unsafe impl Sync for ReadTransaction {}

impl ReadTransaction {
    fn begin(environment: &Arc<Held<FileId, OpenEnvironment>>) -> Result<Self, SourceError> {
        let transaction = environment
            .env
            .begin_ro_txn()
            .map_err(|error| library_error(&environment.path, "mdb_txn_begin", error))?;
        // SAFETY: only the lifetime changes. The environment lies behind an `Arc` that this value holds
        // and drops after the transaction.
        let transaction =
            unsafe { std::mem::transmute::<RoTransaction<'_>, RoTransaction<'static>>(transaction) };
        // SAFETY: the transaction is alive, and of this thread alone; its number is only read.
        let id = unsafe { lmdb_sys::mdb_txn_id(transaction.txn()) } as u64;
        Ok(ReadTransaction { transaction, id, environment: environment.clone() })
    }
}

/// A key and a value in the map. They stay for as long as the transaction does, which the walk's lender holds.
type Step = (&'static [u8], &'static [u8]);

/// A walk. It stays on one thread; what it lends does not.
struct LmdbCursor {
    /// Declared, hence closed, before the transaction it walks in.
    cursor: RoCursor<'static>,
    /// Declared, hence dropped, before the lender, which keeps the map.
    resident: Resident,
    /// Where the walk was sent by position; `None` while it is LMDB's own. Declared, hence dropped, before the lender.
    sought: Option<Sought>,
    drops_behind: bool,
    /// Where the walk goes on to from where it is sent.
    until: u64,
    /// The transaction, as whoever keeps lent bytes holds it.
    lender: Lender,
    /// The number of the commit that the walk sees.
    transaction: u64,
    source: Lmdb,
    /// The position that the next step comes to.
    position: u64,
    /// How many there are, unless a writer was at work just when the walk began.
    records: Option<u64>,
}

impl LmdbCursor {
    fn open(source: &Lmdb) -> Result<Self, SourceError> {
        let before = source.records();
        let transaction = Arc::new(ReadTransaction::begin(&source.environment)?);
        let records = before.filter(|_| before == source.records());
        let cursor = transaction
            .transaction
            .open_ro_cursor(transaction.environment.database)
            .map_err(|error| library_error(&source.path, "mdb_cursor_open", error))?;
        // SAFETY: only the lifetime changes. The transaction lies behind an `Arc` that `lender` holds and
        // that is dropped after the cursor.
        let cursor = unsafe { std::mem::transmute::<RoCursor<'_>, RoCursor<'static>>(cursor) };
        let id = transaction.id;
        let lender = Lender::new(transaction);
        // SAFETY: what the walk comes to lies in the environment's map, which is read-only and made once, and which
        // `lender` keeps for longer than the cursor keeps this.
        let resident = unsafe { Resident::of(&source.environment.data, source.environment.file) };
        Ok(LmdbCursor {
            cursor,
            resident,
            sought: None,
            drops_behind: false,
            until: u64::MAX,
            lender,
            transaction: id,
            source: source.clone(),
            position: 0,
            records,
        })
    }

    /// Steps to the next record; `None` past the last one.
    #[inline]
    fn step(&mut self) -> Result<Option<Step>, SourceError> {
        let operation = if self.position == 0 { MDB_FIRST } else { MDB_NEXT };
        match self.cursor.get(None, None, operation) {
            Ok((key, value)) => {
                self.position += 1;
                Ok(Some((key.unwrap_or_default(), value)))
            }
            Err(lmdb::Error::NotFound) => self.end(),
            Err(error) => Err(library_error(&self.source.path, "mdb_cursor_get", error)),
        }
    }

    /// From here on goes by the index, if there is one.
    fn seek_by_index(&mut self) {
        if self.sought.is_some() {
            return;
        }
        // SAFETY: `lender` keeps the environment for longer than the cursor keeps this, and it is that of `source`.
        let sought = |index| unsafe { Sought::new(index, self.transaction, self.drops_behind) };
        self.sought = self.source.index_within(self.transaction).map(sought);
        if let Some(sought) = &mut self.sought {
            self.resident.leave();
            sought.goes_on_until(self.until);
        }
    }

    /// The end must come where the database says it does: a tree that lost a branch also just ends.
    fn end(&self) -> Result<Option<Step>, SourceError> {
        match self.records {
            Some(records) if records != self.position => Err(SourceError::Broken {
                path: self.source.path.clone(),
                index: self.position,
                message: format!("the database ends, but says that it holds {records} records"),
            }),
            _ => Ok(None),
        }
    }
}

impl Cursor for LmdbCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        if let Some(sought) = &mut self.sought {
            let step = sought.step(&self.source, &mut self.position, true)?;
            // SAFETY: the record lies in the environment's map of our own, which is never written to; the transaction,
            // which `lender` holds, keeps the environment, and the pages that it sees from being written anew.
            return Ok(step.map(|(key, value)| unsafe { Entry::lent(key, value, &self.lender) }));
        }
        let Some((key, value)) = self.step()? else { return Ok(None) };
        self.resident.took(key, value);
        // SAFETY: LMDB keeps the pages a read transaction can see until it ends; the map is made without write
        // permission; `lender` holds the transaction and its environment. What another process could do to the file
        // is the caveat of every map, named in the module.
        Ok(Some(unsafe { Entry::lent(key, value, &self.lender) }))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        if let Some(sought) = &mut self.sought {
            return Ok(sought.step(&self.source, &mut self.position, false)?.is_some());
        }
        let Some((key, value)) = self.step()? else { return Ok(false) };
        self.resident.passed_over(key, value);
        Ok(true)
    }

    fn drop_behind(&mut self) -> bool {
        self.drops_behind = self.resident.drop_behind();
        self.drops_behind
    }

    fn dealt(&mut self, dealt: Dealt) {
        self.resident.dealt(dealt);
        if let Some(sought) = &mut self.sought {
            sought.dealt(dealt);
        }
    }

    fn leave(&mut self) {
        self.resident.leave();
        if let Some(sought) = &mut self.sought {
            sought.leave();
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.position, self.sought) = (0, None);
        Ok(())
    }

    fn goes_on_until(&mut self, position: u64) {
        self.until = position;
        if position != u64::MAX {
            // LMDB's own walk does not know where that is.
            self.seek_by_index();
        }
        if let Some(sought) = &mut self.sought {
            sought.goes_on_until(position);
        }
    }

    fn foresee(&mut self, position: u64) {
        if let Some(sought) = &mut self.sought {
            sought.foresee(&self.source, position);
        }
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        if position == self.position {
            return Ok(());
        }
        self.seek_by_index();
        if let Some(sought) = &mut self.sought {
            sought.jump(&self.source);
            self.position = position;
            return Ok(());
        }
        if position < self.position {
            self.rewind()?;
        }
        while self.position < position && self.skip()? {}
        Ok(())
    }
}
