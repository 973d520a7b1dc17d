//! An open data file, shared by all its readers, and what one reader sees of it.

#![expect(unsafe_code, reason = "a view keeps its slot no longer than the environment that the slot is of")]

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use once_cell::sync::Lazy;
use parking_lot::Mutex;

use super::fault::{Fault, fault};
use super::files::{DataFile, Files};
use super::free::FreePages;
use super::meta::{Commit, Metas, newest_tree};
use super::page::{Holds, Tree};
use super::pages::Pages;
use super::slot::{NoLock, Slot, Slots};
use super::tree::Walk;
use crate::base::keyed::{Held, Keyed};
use crate::source::page_cache::PageCache;
use crate::source::{LmdbError, SourceError, Verifier};
use percolator_files::Reading;
use percolator_files::file_id::FileId;
use percolator_files::shown;

/// The most attempts to determine what a reader sees, while a writer keeps committing.
const LOOKS: usize = 8;

/// The most names of databases in a message.
const NAMES_MAX: usize = 20;

/// Identifies an open environment. It is the file and not its path, so that a database that was replaced is
/// not mistaken for the one before it, which may still be being read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    file: FileId,
    reading: Reading,
    /// The lock file, if a lock is wanted. A data file may have several, through links: each excludes only
    /// the writers that lock the same one.
    lock: Option<PathBuf>,
}

/// Every environment that is open in this process.
static ENVIRONMENTS: Lazy<Arc<Keyed<Key, Environment>>> = Lazy::new(Keyed::new);

pub(super) type Shared = Arc<Held<Key, Environment>>;

/// An open data file.
pub(super) struct Environment {
    /// The path that was given, for messages.
    path: PathBuf,
    /// The data file, canonical.
    pub(super) data: PathBuf,
    /// The identity of that file when it was opened.
    file: FileId,
    /// What was wrong with the older meta page at that time.
    doubt: Option<String>,
    /// The reader slots, or why there are none. Without slots, nothing keeps a writer from reusing the pages
    /// of a view.
    slots: Result<Slots, NoLock>,
    /// Replaced when a commit needs more pages and the file has grown.
    pages: Mutex<Arc<Pages>>,
    /// The last commit that was read, and the pages that are free in it.
    free: Mutex<Option<(Commit, FreePages)>>,
}

impl Environment {
    pub(super) fn open(files: &Files, reading: Reading, is_locked: bool) -> Result<Shared, SourceError> {
        let data = files.open()?;
        let key = Key { file: data.id, reading, lock: is_locked.then(|| files.lock.clone()) };
        let environment =
            ENVIRONMENTS.get_or_open(&key, || Self::open_file(files, data, reading, is_locked))?;
        // Each caller is warned, because callers may not know of each other.
        if let Some(doubt) = &environment.doubt {
            tracing::warn!(
                path = %shown::path(&files.given), doubt,
                "the older meta page is damaged, or a crash left it out of date: reading the newer one"
            );
        }
        if let Err(why) = &environment.slots {
            why.warn(&files.given);
        }
        Ok(environment)
    }

    fn open_file(
        files: &Files,
        data: DataFile,
        reading: Reading,
        is_locked: bool,
    ) -> Result<Self, SourceError> {
        let DataFile { file, id, bytes } = data;
        let error = |fault| error_of(&files.given, &file, None, fault, None);
        let metas = read_metas(&file).map_err(error)?;
        // Only a file whose meta pages are valid is passed to the library.
        let slots = if is_locked { Slots::open(files, id, bytes)? } else { Err(NoLock::NotWanted) };
        let pages = Pages::open(Arc::new(file), bytes, metas.page_bytes, reading)
            .map_err(|error| SourceError::io(&files.given, "open the data file", &error))?;
        let (pages, free, doubt) = (Mutex::new(Arc::new(pages)), Mutex::new(None), metas.doubt);
        tracing::debug!(path = %shown::path(&files.given), bytes, ?reading, "opened an LMDB environment");
        let (path, data) = (files.given.clone(), files.data.clone());
        Ok(Environment { path, data, file: id, doubt, slots, pages, free })
    }

    /// Whether another file is at the path now.
    pub(super) fn is_replaced(&self) -> bool {
        !std::fs::metadata(&self.data).is_ok_and(|metadata| FileId::of(&metadata) == self.file)
    }

    /// The newest commit.
    pub(super) fn newest(&self) -> Result<Commit, Fault> {
        // Not under the lock: a file system that does not answer would block other threads.
        let pages = self.pages.lock().clone();
        Ok(read_metas(pages.file())?.newest)
    }

    /// The pages of a commit. The file may have grown since it was mapped.
    fn pages_of(&self, commit: &Commit) -> io::Result<Arc<Pages>> {
        let mut pages = self.pages.lock();
        let end = commit.tree.last_page.saturating_add(1).saturating_mul(pages.page_bytes() as u64);
        if end > pages.file_bytes() {
            let anew = pages.anew()?;
            // The file may permanently be shorter than the commit says.
            if anew.file_bytes() > pages.file_bytes() {
                *pages = Arc::new(anew);
            }
        }
        Ok(pages.clone())
    }

    /// The memory of its list of free pages.
    pub(super) fn held_bytes(&self) -> usize {
        self.free.lock().as_ref().map_or(0, |(_, free)| free.held_bytes())
    }

    fn error(&self, fault: Fault) -> SourceError {
        error_of(&self.path, self.pages.lock().file(), None, fault, None)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.path).finish()
    }
}

/// Reads the meta pages, several times if necessary: a page looks damaged while it is being written.
fn read_metas(file: &File) -> Result<Metas, Fault> {
    let mut looked = Metas::read(file);
    for _ in 1..LOOKS {
        if looked.as_ref().is_ok_and(|metas| metas.doubt.is_none()) {
            break;
        }
        // Let the writer continue.
        std::thread::yield_now();
        looked = Metas::read(file);
    }
    looked
}

/// What one reader sees: a commit, and a slot that keeps writers from reusing its pages, if there are slots.
pub(super) struct View {
    /// Declared, hence dropped, before the environment.
    slot: Option<Arc<Slot>>,
    pub(super) commit: Commit,
    pages: Arc<Pages>,
    free: FreePages,
    environment: Shared,
}

impl View {
    /// Returns a view of the newest commit.
    pub(super) fn begin(environment: &Shared) -> Result<Self, SourceError> {
        let Ok(slots) = &environment.slots else {
            let commit = environment.newest().map_err(|fault| environment.error(fault))?;
            return Self::of(environment, commit, None);
        };
        let (mut before, mut found) = (None, [0; 2]);
        for _ in 0..LOOKS {
            // SAFETY: the slot becomes part of views, each of which holds the environment and drops it after
            // the slot; a slot that becomes part of none is dropped here, where the environment is borrowed.
            let slot = Arc::new(unsafe { Slot::of(slots, &environment.path) }?);
            let pages = environment.pages.lock().clone();
            let (commit, newest) = Commit::of(pages.file(), pages.page_bytes(), slot.transaction)
                .map_err(|fault| environment.error(fault))?;
            if let Some(commit) = commit {
                // If the data file has a newer transaction than the lock file, its writer is about to publish
                // it, or was killed before it could. The meta page is valid unless the next transaction was
                // already writing to it. If the lock file still names the same transaction now, none had
                // begun when the page was last read.
                if newest == slot.transaction || before == Some(commit) {
                    return Self::of(environment, commit, Some(slot));
                }
            }
            (before, found) = (commit, [slot.transaction, newest]);
        }
        let [transaction, newest] = found;
        Err(SourceError::Lmdb(LmdbError::Busy {
            path: environment.path.clone(),
            found: format!(
                "transaction {transaction} is the newest by its lock file, and {newest} by the data file"
            ),
        }))
    }

    fn of(environment: &Shared, commit: Commit, slot: Option<Arc<Slot>>) -> Result<Self, SourceError> {
        let pages = environment.pages_of(&commit).map_err(|error| environment.error(error.into()))?;
        let (free, environment) = (FreePages::default(), environment.clone());
        let mut view = View { slot, commit, pages, free, environment };
        view.free = view.find_free();
        Ok(view)
    }

    /// The pages that are free. The first view of a commit reads the list. If the list is damaged, none are
    /// known.
    fn find_free(&self) -> FreePages {
        if self.commit.free.root.is_none() {
            return FreePages::default();
        }
        let environment = &self.environment;
        let mut known = environment.free.lock();
        if let Some((commit, free)) = &*known
            && *commit == self.commit
        {
            return free.clone();
        }
        let read = FreePages::read(&self.commit, &self.pages).and_then(|free| self.check().map(|()| free));
        let free = match read.map_err(|fault| self.error(fault, None)) {
            Ok(free) => free,
            // The cursor reports it.
            Err(SourceError::Lmdb(LmdbError::WrittenTo { .. })) => return FreePages::default(),
            Err(error) => {
                tracing::warn!(
                    path = %shown::path(&environment.path), %error,
                    "the list of free pages cannot be read: continuing without it; do not write to this file"
                );
                FreePages::default()
            }
        };
        *known = Some((self.commit, free.clone()));
        free
    }

    /// The same view, on other pages of its file.
    pub(super) fn on(&self, pages: Arc<Pages>) -> Self {
        let (slot, free, environment) = (self.slot.clone(), self.free.clone(), self.environment.clone());
        View { slot, commit: self.commit, pages, free, environment }
    }

    /// A walk over a tree of the commit.
    pub(super) fn walk(&self, tree: Tree, holds: Holds) -> Walk {
        Walk::new(tree, holds, self.free.clone())
    }

    /// The pages that no tree of the commit may lead to.
    pub(super) fn free(&self) -> &FreePages {
        &self.free
    }

    pub(super) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// The page cache of the view's map, for the cursor over the view.
    ///
    /// # Safety
    ///
    /// The view outlives the result.
    pub(super) unsafe fn page_cache(&self) -> PageCache {
        // SAFETY: the map is one of the whole file, and stays for as long as the view, which the caller
        // keeps.
        unsafe { PageCache::of(&self.environment.data, self.environment.file, self.pages.whole()) }
    }

    pub(super) fn transaction(&self) -> u64 {
        self.commit.transaction
    }

    /// Checks that the pages of the commit are still as they were. A writer reuses them only after the next
    /// commit; a reader's slot keeps it from that.
    #[inline]
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.slot.is_some() {
            return Ok(());
        }
        let pages = &*self.pages;
        let (found, tree) = newest_tree(pages.file(), pages.page_bytes())?;
        let Commit { transaction, tree: known, .. } = self.commit;
        // An older one is another database's, which was copied over this one; so is another tree.
        if (found, tree) == (transaction, known) {
            return Ok(());
        }
        Err(Fault::WrittenTo { transaction, found })
    }

    /// The tree of the database of this name within the unnamed one.
    pub(super) fn named(&self, name: &str) -> Result<Tree, SourceError> {
        let pages = &*self.pages;
        let main = &self.commit.tree;
        let mut walk = self.walk(*main, Holds::Databases);
        let mut found = None;
        self.each_database(&mut walk, |known, tree| {
            if known == name.as_bytes() {
                found = Some(tree);
            }
            found.is_none()
        })?;
        let Some(tree) = found else {
            return Err(SourceError::Lmdb(LmdbError::NoSuchDatabase {
                path: self.environment.path.clone(),
                name: name.to_owned(),
                names: self.names()?,
            }));
        };
        tree.check(pages.page_bytes()).map_err(|message| {
            let message = format!("has the database {name:?}, and {message}");
            self.error(fault(walk.page(), message), walk.last_key())
        })?;
        Ok(tree)
    }

    /// The names of the databases within the unnamed one; only the first ones if there are many.
    pub(super) fn names(&self) -> Result<Vec<String>, SourceError> {
        let mut names = Vec::new();
        self.each_database(&mut self.walk(self.commit.tree, Holds::Databases), |name, _| {
            names.push(String::from_utf8_lossy(name).into_owned());
            names.len() < NAMES_MAX
        })?;
        Ok(names)
    }

    /// Passes on the databases within the unnamed one, as long as more are wanted.
    fn each_database(
        &self,
        walk: &mut Walk,
        mut wants_more: impl FnMut(&[u8], Tree) -> bool,
    ) -> Result<(), SourceError> {
        let pages = &*self.pages;
        let mut look = || -> Result<(), Fault> {
            while walk.enter_leaf(pages)? {
                for database in walk.databases(pages)? {
                    let (name, tree) = database?;
                    if !wants_more(name, tree) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        };
        let looked = look();
        looked.map_err(|fault| self.error(fault, walk.last_key()))
    }

    /// Turns a fault into the reader's error. `last_key` is the key of the record before it, if there is one.
    #[cold]
    pub(super) fn error(&self, fault: Fault, last_key: Option<&[u8]>) -> SourceError {
        let environment = &self.environment;
        // Reused pages look damaged.
        let fault = match self.check() {
            Err(written @ Fault::WrittenTo { .. }) => written,
            _ => fault,
        };
        if let Fault::Databases = fault
            && let Ok(names) = self.names()
        {
            return SourceError::Lmdb(LmdbError::HoldsDatabases { path: environment.path.clone(), names });
        }
        error_of(&environment.path, self.pages.file(), Some(&self.commit.tree), fault, last_key)
    }
}

/// The view as the lender of values in the map whose pages the cursor has not checked.
impl Verifier for View {
    #[inline]
    fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
        let pages = &*self.pages;
        pages.check_value(value).map_err(|fault| self.error(fault, None))
    }

    fn check_used(&self) -> Result<(), SourceError> {
        View::check(self).map_err(|fault| self.error(fault, None))
    }
}

/// Turns a fault into an error about the file at this path.
fn error_of(
    path: &Path,
    file: &File,
    tree: Option<&Tree>,
    fault: Fault,
    last_key: Option<&[u8]>,
) -> SourceError {
    let path = path.to_owned();
    match fault {
        Fault::Page { number, message } => {
            let before = last_key.map(|key| crate::record::Key(key.to_owned()));
            SourceError::Lmdb(LmdbError::BrokenPage { path, page: number, message, before })
        }
        Fault::Cut { number, page_bytes } => {
            let found_bytes = file.metadata().map_or(0, |metadata| metadata.len());
            // When it was whole, the file extended to the last page in use.
            let last_page = tree.map_or(number, |tree| tree.last_page.max(number));
            let needed_bytes = last_page.saturating_add(1).saturating_mul(page_bytes);
            SourceError::Lmdb(LmdbError::Truncated { path, found_bytes, needed_bytes, last_page, page_bytes })
        }
        Fault::Databases => SourceError::NoPositions {
            path,
            found: "it holds databases among its records".to_owned(),
            hint: "name one of them",
        },
        Fault::SeveralValues => SourceError::NoPositions {
            path,
            found: "it holds several values of one key".to_owned(),
            hint: "write each record under a key of its own",
        },
        Fault::WrittenTo { transaction, found } => {
            SourceError::Lmdb(LmdbError::WrittenTo { path, transaction, found })
        }
        Fault::TooFew { records, entries } => SourceError::Broken {
            path,
            index: records,
            message: format!("the database ends, but states that it has {entries} records"),
        },
        Fault::Busy => {
            SourceError::Lmdb(LmdbError::Busy { path, found: "its first pages change constantly".to_owned() })
        }
        Fault::Io(error) => SourceError::io(&path, "read the data file", &error),
    }
}
