//! The index of an LMDB's records: for each record, its leaf page and the number of its node there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percolator_files::checksum::crc32c;

use super::Lmdb;
use super::environment::View;
use super::page::{Holds, Tree};
use super::pages::Pages;
use crate::source::SourceError;
use crate::source::index::{Damage, IndexPlace, Kind, RecordIndex, Subject};
use percolator_files::shown;

/// An index, and the commit that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    transaction: u64,
    /// The place that was requested.
    place: IndexPlace,
    pub(super) tree: Tree,
    pub(super) index: Arc<RecordIndex>,
    /// The leaves that a cursor has read and found valid.
    pub(super) checked: Arc<Checked>,
    /// A separate map for cursors that use the index: advice to the kernel about it does not affect other
    /// cursors.
    pub(super) pages: Arc<Pages>,
}

impl Indexed {
    fn new(view: &View, tree: Tree, place: &IndexPlace, index: RecordIndex) -> Result<Self, SourceError> {
        let pages = view.pages().clone();
        let checked = Checked::of(&pages, &tree).map_err(|error| view.error(error.into(), None))?;
        let (transaction, place) = (view.transaction(), place.clone());
        Ok(Indexed { transaction, place, tree, index: Arc::new(index), checked: Arc::new(checked), pages })
    }

    pub(super) fn checksum(&self) -> u32 {
        self.index.checksum()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.index.held_bytes() + size_of_val(&*self.checked.0)
    }
}

/// A set of pages of a commit, one bit each.
#[derive(Debug)]
pub(super) struct Checked(Box<[AtomicU64]>);

impl Checked {
    fn of(pages: &Pages, tree: &Tree) -> io::Result<Self> {
        // A file may be much longer than the part of it that is used.
        let pages = (pages.file_bytes() / pages.page_bytes() as u64).min(tree.last_page.saturating_add(1));
        let words = pages / 64 + 1;
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        let mut bits = Vec::new();
        // Most of it may be a hole.
        bits.try_reserve_exact(words)?;
        bits.resize_with(words, AtomicU64::default);
        Ok(Checked(bits.into_boxed_slice()))
    }

    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(page / 64).ok()?)
    }

    // Relaxed: a bit means that the page is valid, which holds on every thread and at any time.
    #[inline]
    pub(super) fn has(&self, page: u64) -> bool {
        self.word(page).is_some_and(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1)
    }

    pub(super) fn add(&self, page: u64) {
        if let Some(word) = self.word(page) {
            word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }
}

/// The path that the sidecar of a named database is named after.
fn named(database: &Path, name: &str) -> PathBuf {
    const READABLE_CHARS: usize = 40;

    let readable: String = name.chars().filter(char::is_ascii_alphanumeric).take(READABLE_CHARS).collect();
    let mut file = database.file_name().unwrap_or_default().to_owned();
    file.push(format!(".{readable}-{:08x}", crc32c(name.as_bytes())));
    database.with_file_name(file)
}

impl Lmdb {
    pub(super) fn make_seekable(&self, place: &IndexPlace) -> Result<(), SourceError> {
        // A sidecar beside the file now at the path would be that file's.
        let place = if self.environment.is_replaced() { &IndexPlace::Memory } else { place };
        // The view is held until the index is made, so that no writer reuses its pages.
        let view = View::begin(&self.environment)?;
        let tree = self.tree(&view)?;
        let is_there =
            |indexed: &Indexed| indexed.transaction == view.transaction() && indexed.place == *place;
        if self.indexed.lock().as_ref().is_some_and(is_there) {
            return Ok(());
        }
        let pages = view.pages().anew().map_err(|error| view.error(error.into(), None))?;
        pages.read_singly();
        let view = view.on(Arc::new(pages));
        let subject = self.subject(&view, &tree, place)?;
        let index = match RecordIndex::find(&subject) {
            Some(index) if index.records() == tree.entries => index,
            _ => Self::make_index(&view, &tree, &subject)?,
        };
        *self.indexed.lock() = Some(Indexed::new(&view, tree, place, index)?);
        Ok(())
    }

    /// The index of the commit of this transaction, if there is one.
    pub(super) fn index_within(&self, transaction: u64) -> Option<Indexed> {
        let indexed = self.indexed.lock().clone()?;
        if indexed.transaction != transaction {
            let path = shown::path(&self.path);
            tracing::debug!(%path, "the index is from another commit: the cursor scans");
            return None;
        }
        indexed.pages.read_singly();
        Some(indexed)
    }

    /// Rebuilds a damaged index. The view uses the map of cursors by index.
    #[cold]
    pub(super) fn rebuild_index(&self, view: &View, damage: &Damage) -> Result<Indexed, SourceError> {
        let path = shown::path(&self.path);
        tracing::warn!(%path, %damage, "the record index cannot be used: rebuilding it");
        let place = self.indexed.lock().as_ref().map_or(IndexPlace::Memory, |indexed| indexed.place.clone());
        let tree = self.tree(view)?;
        let index = Self::make_index(view, &tree, &self.subject(view, &tree, &place)?)?;
        let indexed = Indexed::new(view, tree, &place, index)?;
        *self.indexed.lock() = Some(indexed.clone());
        Ok(indexed)
    }

    fn make_index(view: &View, tree: &Tree, subject: &Subject<'_>) -> Result<RecordIndex, SourceError> {
        let mut walk = view.walk(*tree, Holds::Records);
        let places = walk.places(view.pages()).and_then(|places| view.check().map(|()| places));
        let places = places.map_err(|fault| view.error(fault, walk.last_key()))?;
        Ok(RecordIndex::keep(subject, places))
    }

    fn subject<'a>(
        &'a self,
        view: &View,
        tree: &Tree,
        place: &'a IndexPlace,
    ) -> Result<Subject<'a>, SourceError> {
        let data = &self.environment.data;
        // A folder's sidecar is beside the folder.
        let folder = data.parent().filter(|_| data.file_name().is_some_and(|name| name == "data.mdb"));
        let database: &Path = folder.unwrap_or(data);
        let identity = view.pages().identity(view.transaction(), tree);
        let identity = identity.map_err(|error| view.error(error.into(), None))?;
        let (database, identity) = match &self.name {
            Some(name) => (named(database, name).into(), identity.with("database", name)),
            None => (database.into(), identity),
        };
        Ok(Subject { kind: Kind::Lmdb, database, identity, place })
    }
}
