//! LMDB, read by ourselves: read-only, values lent from the map.
//!
//! ```text
//! files        where the data file and its lock lie; what is no LMDB at all
//!   v
//! meta         the two first pages, judged before anybody goes by them
//!   v
//! environment  a data file that is open, and what one reader sees of it (a view)
//!   v          slot: liblmdb's part, which is to keep writers from the pages of a view
//!   |          lock_file: which lock files are open here already; room: how far liblmdb's map may grow
//! cursor       a walk: in order (tree), or by positions (index, by_position)
//!   v
//! free         which pages no tree may lead to
//!   v
//! pages, page  a page's bytes, mapped or read; what may be on one
//! ```
//!
//! - A walk checks each page that it comes to: nothing that a page says is believed. Damage is an error, never a signal, a
//!   record that comes twice, or one that does not come. What LMDB does not protect, for it has no checksums, is the bytes
//!   of keys and values.
//! - One environment a lock file in a process, shared by every reader of it: LMDB forbids two.
//! - Where the lock file cannot be made or locked (read-only media, some network file systems), or is open in this process
//!   already, the database is opened without it, and each open logs a warning. If somebody commits to it
//!   then, walks end with an error.
//! - A file may be shorter than its last page's number says: only pages that the tree leads to must be there.

mod by_position;
mod cursor;
mod environment;
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

use self::cursor::{Heads, LmdbCursor};
use self::environment::{Environment, Shared, View};
use self::fault::Fault;
use self::files::Files;
use self::index::Indexed;
use self::page::{Holds, IS_READ_HERE, Tree};
use super::access::{Access, Reading};
use super::{Cursor, Identity, IndexPlace, Source, SourceError, VerifiesLater};
use crate::source::internals::SourceInternals;

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
    /// Of the database in the unnamed one that is read.
    name: Option<String>,
    environment: Shared,
    /// The index of its records, once it was asked for. Clones share it.
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
    /// Reads the database of this name, one of several in the file, and not the unnamed one.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How the file is read; as [`Access::Chosen`] says if not said.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Does without LMDB's lock file: nothing is created beside the database, and nothing keeps a process that writes to it
    /// from the pages that are read. If one commits to it, walks end with an error.
    #[must_use]
    pub fn without_lock(mut self) -> Self {
        self.without_lock = true;
        self
    }

    /// Opens the database: the folder that holds `data.mdb`, or the data file itself.
    ///
    /// # Errors
    ///
    /// As [`Lmdb::open`], and [`SourceError::NoSuchDatabase`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Lmdb, SourceError> {
        Lmdb::open_with(path.as_ref(), self)
    }
}

impl Lmdb {
    /// Opens a database: the folder that holds `data.mdb`, or the data file itself.
    ///
    /// The file is mapped, if it is not on a network file system ([`Access`]). If it is cut while it is mapped, or cannot be
    /// read from its disk, the system ends the process (SIGBUS).
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no such database, its first pages are damaged, its file is cut short, or it holds databases
    /// of which one must be named ([`LmdbOptions::name`]).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::options().open(path)
    }

    /// As [`Lmdb::open`], but without LMDB's lock file ([`LmdbOptions::without_lock`]).
    ///
    /// # Errors
    ///
    /// As [`Lmdb::open`].
    pub fn open_without_lock(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::options().without_lock().open(path)
    }

    /// How a database is opened.
    #[must_use]
    pub fn options() -> LmdbOptions {
        LmdbOptions::default()
    }

    fn open_with(path: &Path, options: &LmdbOptions) -> Result<Self, SourceError> {
        let LmdbOptions { name, access, without_lock } = options;
        if !IS_READ_HERE {
            let found =
                "written by machines with words of 64 bits, the low byte first, and this is none".to_owned();
            return Err(SourceError::NotLmdb { path: path.to_owned(), found });
        }
        let files = Files::find(path)?;
        let reading = access.of(&files.open()?.file);
        // A file that is read is not shown to liblmdb, which maps it.
        let is_locked = !without_lock && reading == Reading::Mapped;
        let environment = Environment::open(&files, reading, is_locked)?;
        let (path, indexed) = (path.to_owned(), Arc::default());
        let lmdb = Lmdb { path, name: name.clone(), environment, indexed };
        lmdb.look()?;
        Ok(lmdb)
    }

    /// What can be told at once: whether the database has records and not databases, and whether the file is whole.
    fn look(&self) -> Result<(), SourceError> {
        let view = View::begin(&self.environment)?;
        let pages = &**view.pages();
        let tree = self.tree(&view)?;
        let mut walk = view.walk(tree, Holds::Records);
        // It may be shorter than its last page says; then all that the tree leads to must be there.
        let last_byte = tree.last_page.saturating_add(1).saturating_mul(pages.page_bytes() as u64);
        let is_short = last_byte > pages.file_bytes();
        match walk.enter_leaf(pages).and_then(|_| if is_short { walk.run(pages) } else { Ok(()) }) {
            Err(fault @ (Fault::Databases | Fault::Cut { .. })) => Err(view.error(fault, walk.last_key())),
            // Whatever else is wrong is for a walk to say, when it comes there.
            _ => Ok(()),
        }
    }

    /// The tree that is read, as a view has it.
    fn tree(&self, view: &View) -> Result<Tree, SourceError> {
        match &self.name {
            Some(name) => view.named(name),
            None => Ok(view.commit.tree),
        }
    }

    /// Of the newest commit, without a slot: nothing but its numbers is looked at.
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

    /// A copy has the same transaction, but for one that is made compact.
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

    /// The index of its records, and which pages are free.
    fn held_bytes(&self) -> usize {
        let of_index = self.indexed.lock().as_ref().map_or(0, Indexed::held_bytes);
        of_index + self.environment.held_bytes()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(LmdbCursor::open(self, Heads::ByWalk)?))
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }

    fn internals(&self) -> Option<&dyn SourceInternals> {
        Some(self)
    }
}

impl SourceInternals for Lmdb {
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        self.show_last(look);
    }
    fn index_checksum(&self) -> Option<u32> {
        self.indexed.lock().as_ref().map(Indexed::checksum)
    }
    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(LmdbCursor::open(self, Heads::ByUser)?))
    }
}
