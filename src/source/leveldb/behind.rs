//! The tables that a walk has left behind, and nobody uses any more: out of the system's memory, one at a time.

use std::sync::Arc;

use super::database::Database;
use crate::source::Dealt;
use crate::source::page_cache::behind::{Trail, Way};

#[derive(Debug)]
pub(super) struct Behind {
    database: Arc<Database>,
    /// Its parts are the tables, by their numbers in the store.
    trail: Trail,
    /// By the same number: the level of a table, and its place there.
    tables: Vec<(usize, usize)>,
}

impl Behind {
    /// `None` where the system cannot be told to drop anything.
    pub(super) fn new(database: &Arc<Database>) -> Option<Self> {
        if cfg!(not(target_os = "linux")) {
            return None;
        }
        let of_level = |level| (0..database.tables(level).len()).map(move |table| (level, table));
        let mut tables: Vec<_> = (0..database.levels()).flat_map(of_level).collect();
        tables.sort_by_key(|&(level, table)| database.tables(level)[table].slot);
        Some(Behind { database: database.clone(), trail: Trail::new(tables.len()), tables })
    }

    /// The walk is at a record of this table.
    #[inline]
    pub(super) fn came_to(&mut self, slot: usize) {
        self.trail.came_to(Way::Values, slot..slot + 1);
    }

    /// The walk is at none.
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

/// Its file is opened for it, since a map keeps none open. Another that has its name by now is not harmed.
#[cfg(target_os = "linux")]
fn drop_table(database: &Database, level: usize, table: usize) {
    use crate::source::page_cache::dropped::drop_pages;

    let path = database.table_path(level, table);
    let slot = database.tables(level)[table].slot;
    match std::fs::File::open(&path) {
        Ok(file) => drop_pages(&file, 0, None, || database.lending().store().empty_map(slot)),
        // A writer has merged it into others: its pages go with its map.
        Err(error) => {
            tracing::debug!(%error, table = %path.display(), "a table that was used is not dropped")
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn drop_table(_database: &Database, _level: usize, _table: usize) {}
