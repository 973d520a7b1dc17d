//! Opens a LevelDB: does what LevelDB's own recovery does, but writes nothing.
//!
//! CURRENT names the MANIFEST. The MANIFEST's edits add up to a list of tables, and the number of the oldest
//! log that is not in them. That log and every later one are read front to back. LevelDB would write their
//! contents to tables; here they are kept in memory.
//!
//! It is stricter than LevelDB, which would continue silently:
//!
//! - The log whose number the MANIFEST has must exist: in a database that Caffe has just written, all records
//!   are in it. [`LogGaps`](crate::LogGaps) allows a database without it.
//! - No log may lack a write that the sequence numbers show to have existed ([`numbers`](crate::numbers)),
//!   unless [`LogGaps`](crate::LogGaps) allows it.
//! - No key may have more than 8 KiB.
//! - A MANIFEST must name its comparator, and every table must have the length it was written with.
//!
//! A writer may be at work meanwhile. It deletes tables and logs only once the MANIFEST no longer needs them.
//! So if the database cannot be opened and its MANIFEST has changed, it is opened once more. Once it is open,
//! its tables are mapped, or kept open for reading, and so stay readable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::file_id::FileState;
use percolator_files::{Reading, shown};

use crate::batch::Writes;
use crate::cut::LogCut;
use crate::database::{Database, Table};
use crate::edit::{COMPARATOR, Edits, LEVELS, State, TableFile};
use crate::error::LevelDbError;
use crate::folder::{Folder, TableName};
use crate::log::{LogReader, LogTail};
use crate::map::{FileBytes, Store, open_file};
use crate::memtable::Memtable;
use crate::numbers::Numbers;
use crate::opened::OpenTables;
use crate::options::Options;
use crate::replay::{Replay, damaged};

/// Opens the database at `path`.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Database, LevelDbError> {
    let stamp = || Folder::find(path).and_then(|folder| folder.stamp()).ok();
    open_again_once(path, stamp, || open_once(path, options))
}

/// Opens a database that may change meanwhile: once more if it failed and the stamp has changed, but only
/// once.
fn open_again_once<T, S: PartialEq>(
    path: &Path,
    stamp: impl Fn() -> Option<S>,
    mut open: impl FnMut() -> Result<T, LevelDbError>,
) -> Result<T, LevelDbError> {
    let before = stamp();
    let error = match open() {
        Err(error) => error,
        opened => return opened,
    };
    let again = stamp();
    if again == before {
        return Err(error);
    }
    tracing::debug!(path = %shown::path(path), %error, "a writer changed the database; opening it again");
    let error = match open() {
        Err(error) if stamp() != again => error,
        opened => return opened,
    };
    let (path, error) = (path.to_owned(), error.to_string());
    Err(LevelDbError::BeingWritten { path, error })
}

fn open_once(path: &Path, options: &Options) -> Result<Database, LevelDbError> {
    let folder = Folder::find(path)?;
    let manifest = folder.manifest()?;
    // All files are read in the way chosen for this one.
    let reading = options.access.of(&open_file(&manifest)?);
    let mut cuts = Vec::new();
    let (state, manifest_bytes) = read_manifest(&manifest, reading, &mut cuts)?;
    let State { log_number, previous_log_number, last_sequence, log_start, levels } = state;
    let manifest_name = manifest.file_name().unwrap_or_default().to_string_lossy();
    let opened_from = vec![("MANIFEST", format!("{manifest_name}: {manifest_bytes} bytes"))];

    let (levels, tables) = find_tables(&folder, levels, &manifest)?;
    let logs = folder.logs()?;
    let is_missing = |number: &u64| *number > 0 && !logs.contains(number);
    let missing = [previous_log_number, log_number].into_iter().filter(is_missing);
    let missing: Vec<PathBuf> = missing.map(|number| folder.log(number)).collect();
    let is_live = |number: u64| number >= log_number || number == previous_log_number;
    let logs = logs.into_iter().filter(|&number| is_live(number)).map(|number| folder.log(number));
    let (counted, log_start) = (last_sequence, &log_start);
    let (folder_of, manifest, levels_of) = (&folder, &*manifest, &levels);
    let numbers =
        Numbers { folder: folder_of, manifest, levels: levels_of, counted, log_number, log_start, reading };
    let mut replay = Replay::new(numbers, options.log_gaps, opened_from);
    for log in missing {
        replay.lacks(LevelDbError::MissingLog { file: log, manifest: manifest.to_owned() })?;
    }
    for log in logs {
        replay.add(log)?;
    }
    replay.check_end()?;
    let last_sequence = replay.last_sequence();
    let Replay { opened_from, logs, writes: Writes { writes, joined }, cuts: log_cuts, gaps, .. } = replay;
    cuts.extend(log_cuts);
    for cut in &cuts {
        if cut.tail == LogTail::Zeros {
            tracing::info!("{cut}");
            continue;
        }
        tracing::warn!(
            file = %shown::path(&cut.file),
            offset = cut.offset,
            dropped_bytes = cut.dropped_bytes,
            "{} is cut, as after a crash: {}",
            if cut.is_manifest { "the MANIFEST" } else { "the log" },
            cut.consequence()
        );
    }
    let maps = match reading {
        Reading::Mapped => tables.min(options.held_max),
        Reading::Read => 0,
    };
    let store = Store::new(logs, joined, maps);
    let mut memtable = Memtable::new(writes, &store);
    if tables == 0 {
        memtable.forget_deletions();
    }
    let mut database = Database {
        folder,
        levels,
        last_sequence,
        memtable,
        store: Arc::new(store),
        cuts,
        gaps,
        opened_from,
        reading,
        open_tables: OpenTables::default(),
    };
    database.hold_tables(options.held_max)?;
    Ok(database)
}

/// Returns the sum of a MANIFEST's edits, and the MANIFEST's length.
fn read_manifest(
    manifest: &Path,
    reading: Reading,
    cuts: &mut Vec<LogCut>,
) -> Result<(State, usize), LevelDbError> {
    let map = FileBytes::open(manifest, None, reading)?;
    let bytes = map.as_ref();
    let mut log = LogReader::new(bytes);
    let mut edits = Edits::default();
    let mut joined = Vec::new();
    while let Some(pieces) = log.next().map_err(|error| damaged(manifest, error))? {
        let edit = match pieces {
            [piece] => bytes.get(piece.clone()).unwrap_or_default(),
            pieces => {
                joined.clear();
                joined.extend(pieces.iter().filter_map(|piece| bytes.get(piece.clone())).flatten());
                &joined
            }
        };
        if let Some(offset) = log.zeros() {
            tracing::warn!(
                file = %shown::path(manifest),
                offset,
                "the MANIFEST has zeros between its edits: if they are damage, its list of tables is wrong"
            );
        }
        let added = edits.add(edit);
        added.map_err(|message| malformed(manifest, log.offset(), message))?;
        if let Some(found) = edits.comparator().filter(|&name| name != COMPARATOR) {
            let found = found.to_owned();
            return Err(LevelDbError::Comparator { file: manifest.to_owned(), found });
        }
    }
    cuts.extend(log.cut().map(|cut| LogCut { is_manifest: true, ..LogCut::new(manifest, cut) }));
    let state = edits.finish().map_err(|message| malformed(manifest, log.offset(), message))?;
    Ok((state, bytes.len()))
}

fn malformed(manifest: &Path, offset: usize, message: String) -> LevelDbError {
    LevelDbError::Manifest { file: manifest.to_owned(), offset, message }
}

/// Returns the tables of every level, and how many there are.
fn find_tables(
    folder: &Folder,
    levels: [Vec<TableFile>; LEVELS],
    manifest: &Path,
) -> Result<([Vec<Table>; LEVELS], usize), LevelDbError> {
    let mut tables = 0;
    let mut found = [const { Vec::new() }; LEVELS];
    // The first missing table and their number: a MANIFEST can name any number of tables.
    let mut missing: Option<(PathBuf, usize)> = None;
    for (found, files) in found.iter_mut().zip(levels) {
        for file in files {
            match find_table(folder, file, tables)? {
                Ok(table) => found.push(table),
                Err(path) => missing.get_or_insert((path, 0)).1 += 1,
            }
            tables += 1;
        }
    }
    match missing {
        None => Ok((found, tables)),
        Some((file, missing)) => {
            let manifest = manifest.to_owned();
            Err(LevelDbError::MissingTables { file, missing, tables, manifest })
        }
    }
}

/// Returns the table with its slot if it exists with the right length, or the path where it is missing.
fn find_table(folder: &Folder, file: TableFile, slot: usize) -> Result<Result<Table, PathBuf>, LevelDbError> {
    let Some((name, metadata)) = folder.find_table(file.number)? else {
        return Ok(Err(folder.table(file.number, TableName::Ldb)));
    };
    let path = || folder.table(file.number, name);
    if !metadata.is_file() {
        return Err(LevelDbError::NoFile { file: path() });
    }
    if metadata.len() != file.bytes {
        let (found, wanted) = (metadata.len(), file.bytes);
        return Err(LevelDbError::Length { file: path(), found, wanted });
    }
    Ok(Ok(Table { file, name, state: FileState::of(&metadata), slot }))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Returns the result of opening with these stamps and these results of attempts, and how many attempts
    /// are left.
    fn opened(stamps: &[u32], attempts: &[Result<u32, u32>]) -> (Result<u32, LevelDbError>, usize) {
        let (stamps, left) = (RefCell::new(stamps.iter()), Cell::new(attempts));
        let open = || {
            let (first, rest) = left.get().split_first().unwrap();
            left.set(rest);
            first.map_err(|number| LevelDbError::NoFile { file: number.to_string().into() })
        };
        let opened = open_again_once(Path::new("db"), || stamps.borrow_mut().next().copied(), open);
        (opened, left.get().len())
    }

    #[test]
    fn a_database_that_is_changed_meanwhile_is_opened_again_once() {
        let failed = |number: u32| LevelDbError::NoFile { file: number.to_string().into() };
        assert_eq!(opened(&[1], &[Ok(1)]), (Ok(1), 0));
        assert_eq!(opened(&[1, 1], &[Err(1), Ok(2)]), (Err(failed(1)), 1), "nobody wrote");
        assert_eq!(opened(&[1, 2], &[Err(1), Ok(2)]), (Ok(2), 0));
        assert_eq!(opened(&[1, 2, 2], &[Err(1), Err(2)]), (Err(failed(2)), 0));
        let (error, left) = opened(&[1, 2, 3], &[Err(1), Err(2), Ok(3)]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("is being written to") && error.contains(&failed(2).to_string()), "{error}");
        assert_eq!(left, 1);
    }
}
