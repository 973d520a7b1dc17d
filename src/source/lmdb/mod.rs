//! Reads LMDB with our own code: read-only, with values lent from the map.
//!
//! ```text
//! opening                                               reading
//!
//! files        where the data file and its lock are;    cursor         the records, in either order:
//!              what is not an LMDB at all                 tree         in key order
//! meta         the first two pages, judged before use     by_position  by position, through index
//! environment  an open data file, and what one reader   values         large values, if not mapped
//!              sees of it (a view)                      last           the last record alone
//! slot         liblmdb's part: keeps writers from the   pages          bytes of a page: mapped, or read
//!              pages of a view                          page           what may be on a page
//! lock_file    which lock files this process has open   free           pages no tree may lead to
//! room         how far liblmdb's map may grow
//! ```
//!
//! - A walk checks each page that it enters, and trusts nothing that a page says. Damage causes an error,
//!   never a signal, a duplicated record or a missing one. LMDB has no checksums, so the bytes of keys and
//!   values are not protected.
//! - A process has one environment for each lock file, shared by all its readers: LMDB forbids two.
//! - If the lock file cannot be made or locked (read-only media, some network file systems), or is already
//!   open in this process, the database is opened without it, and each open logs a warning. If somebody then
//!   commits to it, cursors end with an error.
//! - A file may be shorter than its last page's number implies: only pages that the tree leads to must be in
//!   it.

mod by_position;
mod cursor;
mod environment;
mod error;
mod fault;
mod files;
mod free;
mod index;
mod last;
mod lock_file;
mod meta;
mod page;
mod pages;
mod room;
mod slot;
mod tree;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::error::LmdbError;

use self::cursor::{Heads, LmdbCursor};
use self::environment::{Environment, Shared, View};
use self::fault::Fault;
use self::files::Files;
use self::index::Indexed;
use self::page::{Holds, IS_READ_HERE, Tree};
use super::{Cursor, Identity, IndexPlace, Source, SourceError, VerifiesLater};
use percolator_files::{Access, Reading};

/// A Caffe LMDB, opened for reading.
///
/// ```no_run
/// use percolator::source::{Lmdb, Source};
///
/// let digits = Lmdb::open("mnist_train_lmdb")?;
/// println!("{} records", digits.records().unwrap_or(0));
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lmdb {
    /// As the caller gave it.
    path: PathBuf,
    /// The name of the database within the unnamed one; the unnamed one if `None`.
    name: Option<String>,
    environment: Shared,
    /// The index of its records, once it was requested. Clones share it.
    indexed: Arc<Mutex<Option<Indexed>>>,
}

/// How an [`Lmdb`] is opened.
///
/// ```no_run
/// use percolator::source::{Access, Lmdb};
///
/// let train = Lmdb::options().name("train").access(Access::Read).open("voc_lmdb")?;
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LmdbOptions {
    name: Option<String>,
    access: Access,
    without_lock: bool,
}

impl LmdbOptions {
    /// Reads the database of this name, one of several in the file, instead of the unnamed one.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets how the file is read (default: [`Access::Auto`]).
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Opens without LMDB's lock file: nothing is created beside the database, and nothing protects the pages
    /// being read from a process that writes to it. If one commits, cursors end with an error.
    #[must_use]
    pub fn without_lock(mut self) -> Self {
        self.without_lock = true;
        self
    }

    /// Opens the database: the folder that holds `data.mdb`, or the data file itself.
    ///
    /// # Errors
    ///
    /// As [`Lmdb::open`], and [`LmdbError::NoSuchDatabase`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Lmdb, SourceError> {
        Lmdb::open_with(path.as_ref(), self)
    }
}

impl Lmdb {
    /// Opens a database: the folder that holds `data.mdb`, or the data file itself.
    ///
    /// The file is mapped, unless it is on a network file system ([`Access`]). If it is truncated while it is
    /// mapped, or cannot be read from its disk, the operating system ends the process (SIGBUS).
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no such database, if its first pages are damaged, if its file is
    /// truncated, or if it holds several databases, of which one must be named ([`LmdbOptions::name`]).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::options().open(path)
    }

    /// Opens a database as [`Lmdb::open`] does, but without LMDB's lock file ([`LmdbOptions::without_lock`]).
    ///
    /// # Errors
    ///
    /// As [`Lmdb::open`].
    pub fn open_without_lock(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::options().without_lock().open(path)
    }

    /// Returns options, all at their defaults.
    #[must_use]
    pub fn options() -> LmdbOptions {
        LmdbOptions::default()
    }

    fn open_with(path: &Path, options: &LmdbOptions) -> Result<Self, SourceError> {
        let LmdbOptions { name, access, without_lock } = options;
        if !IS_READ_HERE {
            let found =
                "written by little-endian machines with words of 64 bits, and this is not one".to_owned();
            return Err(SourceError::Lmdb(LmdbError::NotLmdb { path: path.to_owned(), found }));
        }
        let files = Files::find(path)?;
        let reading = access.of(&files.open()?.file);
        // liblmdb would map the file, so it does not see a file that is read.
        let is_locked = !without_lock && reading == Reading::Mapped;
        let environment = Environment::open(&files, reading, is_locked)?;
        let (path, indexed) = (path.to_owned(), Arc::default());
        let lmdb = Lmdb { path, name: name.clone(), environment, indexed };
        lmdb.look()?;
        Ok(lmdb)
    }

    /// Checks what can be checked at once: that the database has records and not databases, and that the file
    /// is whole.
    fn look(&self) -> Result<(), SourceError> {
        let view = View::begin(&self.environment)?;
        let pages = &**view.pages();
        let tree = self.tree(&view)?;
        let mut walk = view.walk(tree, Holds::Records);
        // The file may be shorter than its last page says. Then all that the tree leads to must be in it.
        let last_byte = tree.last_page.saturating_add(1).saturating_mul(pages.page_bytes() as u64);
        let is_short = last_byte > pages.file_bytes();
        match walk.enter_leaf(pages).and_then(|_| if is_short { walk.run(pages) } else { Ok(()) }) {
            Err(fault @ (Fault::Databases | Fault::Cut { .. })) => Err(view.error(fault, walk.last_key())),
            // A cursor reports any other fault when it gets there.
            _ => Ok(()),
        }
    }

    /// The tree that is read, as a view sees it.
    fn tree(&self, view: &View) -> Result<Tree, SourceError> {
        match &self.name {
            Some(name) => view.named(name),
            None => Ok(view.commit.tree),
        }
    }

    /// The transaction and the tree of the newest commit. No slot is taken for the unnamed database: only its
    /// numbers are read.
    fn newest(&self) -> Option<(u64, Tree)> {
        let commit = self.environment.newest().ok()?;
        match self.name {
            Some(_) => {
                let view = View::begin(&self.environment).ok()?;
                Some((view.transaction(), self.tree(&view).ok()?))
            }
            None => Some((commit.transaction, commit.tree)),
        }
    }
}

impl Source for Lmdb {
    fn path(&self) -> &Path {
        &self.path
    }

    fn records(&self) -> Option<u64> {
        self.newest().map(|(_, tree)| tree.entries)
    }

    /// A copy has the same transaction, unless it is a compacting copy.
    fn identity(&self) -> Identity {
        let identity = Identity::new().with("kind", "LMDB");
        let identity = match &self.name {
            Some(name) => identity.with("database", name),
            None => identity,
        };
        match self.newest() {
            Some((transaction, tree)) => {
                identity.with("records", tree.entries).with("transaction", transaction)
            }
            None => identity,
        }
    }

    /// The memory of the index and of the list of free pages.
    fn held_bytes(&self) -> usize {
        let of_index = self.indexed.lock().as_ref().map_or(0, Indexed::held_bytes);
        of_index + self.environment.held_bytes()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(LmdbCursor::open(self, Heads::ByCursor)?))
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }

    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        self.show_last(look);
    }

    /// The transaction that a cursor would see now.
    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(View::begin(&self.environment)?.transaction()))
    }

    fn index_checksum(&self) -> Option<u32> {
        self.indexed.lock().as_ref().map(Indexed::checksum)
    }

    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(LmdbCursor::open(self, Heads::ByUser)?))
    }
}
