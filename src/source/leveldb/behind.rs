//! Drops tables that a walk has left and nobody uses any more from the page cache, one at a time.

use std::sync::Arc;

use super::database::Database;
use crate::source::Dealt;
use crate::source::page_cache::behind::{Trail, Way};
use percolator_files::shown;

#[derive(Debug)]
pub(super) struct Behind {
    database: Arc<Database>,
    /// Its parts are the tables, by their number in the store.
    trail: Trail,
    /// For each table number, the table's level and its place there.
    tables: Vec<(usize, usize)>,
}

impl Behind {
    /// Returns `None` if the kernel has no way to drop pages.
    pub(super) fn new(database: &Arc<Database>) -> Option<Self> {
        if cfg!(any(not(target_os = "linux"), miri)) {
            return None;
        }
        let of_level = |level| (0..database.tables(level).len()).map(move |table| (level, table));
        let mut tables: Vec<_> = (0..database.levels()).flat_map(of_level).collect();
        tables.sort_by_key(|&(level, table)| database.tables(level)[table].slot);
        Some(Behind { database: database.clone(), trail: Trail::new(tables.len()), tables })
    }

    /// Notes that the walk is at a record of this table.
    #[inline]
    pub(super) fn came_to(&mut self, slot: usize) {
        self.trail.came_to(Way::Values, slot..slot + 1);
    }

    /// Notes that the walk is in no table.
    pub(super) fn leave(&mut self) {
        self.trail.leave();
    }

    pub(super) fn dealt(&mut self, dealt: Dealt) {
        let Behind { database, trail, tables } = self;
        trail.dealt(dealt, |slots| {
            for slot in slots {
                let (level, table) = tables[slot];
                drop_table(database, level, table);
            }
        });
    }
}

/// Opens the table's file to drop it, since a map keeps none open. If another file now has the name, no harm
/// is done.
#[cfg(all(target_os = "linux", not(miri)))]
fn drop_table(database: &Database, level: usize, table: usize) {
    use super::map::open_file;
    use crate::source::page_cache::dropped::drop_pages;

    let path = database.table_path(level, table);
    let slot = database.tables(level)[table].slot;
    match open_file(&path) {
        Ok(file) => drop_pages(&file, 0, None, || database.lending().store().empty_map(slot)),
        // A writer has merged the table into others: its pages go when its map goes.
        Err(error) => {
            tracing::debug!(%error, table = %shown::path(&path), "a used table is not dropped")
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn drop_table(_database: &Database, _level: usize, _table: usize) {}
