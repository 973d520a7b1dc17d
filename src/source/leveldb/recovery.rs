//! Opening a LevelDB: what LevelDB's own recovery does, with nothing written.
//!
//! CURRENT names the MANIFEST; its edits come to a list of tables and the number of the oldest log that is
//! not in them. That log and every later one are read front to back, and what they hold is kept in memory
//! beside the tables, where LevelDB would write tables of it.
//!
//! Stricter than LevelDB, which would go on without a word:
//!
//! - The log whose number the MANIFEST has must be there: in a database that Caffe has just written, all
//!   records lie in it.
//! - A log that was cut, or is empty, may be followed by others only if the next write in them has the next
//!   number. If it has not, or nothing tells which number that is, writes were lost between others that were
//!   not.
//! - No key may have more than 8 KiB.
//! - A MANIFEST must name its comparator, and every table must have the length that it was written with.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::LogCut;
use super::batch::{BatchFault, Writes};
use super::database::{Database, Table};
use super::edit::{COMPARATOR, Edits, LEVELS, State, TableFile};
use super::error::LevelDbError;
use super::folder::{Folder, TableName};
use super::key::KEY_BYTES_MAX;
use super::log::{BLOCK_BYTES, LogError, LogReader};
use super::map::{FileMap, Lending, Store};
use super::memtable::Memtable;
use crate::source::Identity;
use crate::source::SourceError;

/// Opens the database at `path`; at most `maps` of its tables stay mapped once they have been.
pub(super) fn open(path: &Path, maps: usize) -> Result<Database, SourceError> {
    let folder = Folder::find(path)?;
    let manifest = folder.manifest()?;
    let mut cuts = Vec::new();
    let (State { log_number, previous_log_number, last_sequence, levels }, manifest_bytes) =
        read_manifest(&manifest, &mut cuts)?;
    let manifest_name = manifest.file_name().unwrap_or_default().to_string_lossy();
    let opened_from =
        Identity::default().with("MANIFEST", format_args!("{manifest_name}: {manifest_bytes} bytes"));

    let (levels, tables) = find_tables(&folder, levels, &manifest)?;
    let logs = folder.logs()?;
    if log_number > 0 && !logs.contains(&log_number) {
        let what = "the log of its newest writes";
        return Err(LevelDbError::Missing { file: folder.log(log_number), what, named_by: manifest }.into());
    }
    let is_live = |number: u64| number >= log_number || number == previous_log_number;
    let logs = logs.into_iter().filter(|&number| is_live(number)).map(|number| folder.log(number));
    let mut replay = Replay { last_sequence, opened_from, ..Replay::default() };
    for log in logs {
        replay.add(log)?;
    }
    cuts.append(&mut replay.cuts);
    for cut in &cuts {
        tracing::warn!(
            file = %cut.file.display(),
            offset = cut.offset,
            dropped_bytes = cut.dropped_bytes,
            "{} has been cut, as after a crash: {}",
            if cut.is_manifest { "the MANIFEST" } else { "the log" },
            cut.consequence()
        );
    }
    let Writes { writes, joined } = replay.writes;
    let store = Store::new(replay.logs, joined, tables.min(maps));
    let mut memtable = Memtable::new(writes, &store);
    if tables == 0 {
        memtable.forget_deletions();
    }
    let Replay { last_sequence, opened_from, .. } = replay;
    Ok(Database { folder, levels, last_sequence, memtable, lending: Lending::new(store), cuts, opened_from })
}

/// The sum of a MANIFEST's edits, and its length.
fn read_manifest(manifest: &Path, cuts: &mut Vec<LogCut>) -> Result<(State, usize), SourceError> {
    let map = FileMap::open(manifest, None)?;
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
        let added = edits.add(edit);
        added.map_err(|message| malformed(manifest, log.offset(), message))?;
        if let Some(found) = edits.comparator().filter(|&name| name != COMPARATOR) {
            let found = found.to_owned();
            return Err(LevelDbError::Comparator { file: manifest.to_owned(), found }.into());
        }
    }
    cuts.extend(log.cut().map(|cut| LogCut { is_manifest: true, ..LogCut::new(manifest, cut) }));
    let state = edits.finish().map_err(|message| malformed(manifest, log.offset(), message))?;
    Ok((state, bytes.len()))
}

fn malformed(manifest: &Path, offset: usize, message: String) -> SourceError {
    LevelDbError::Manifest { file: manifest.to_owned(), offset, message }.into()
}

fn damaged(file: &Path, error: LogError) -> SourceError {
    let (block, offset) = (error.block(), error.offset);
    LevelDbError::Log { file: file.to_owned(), block, offset, fault: error.fault }.into()
}

/// The tables of every level, and how many there are.
fn find_tables(
    folder: &Folder,
    levels: [Vec<TableFile>; LEVELS],
    manifest: &Path,
) -> Result<([Vec<Table>; LEVELS], usize), SourceError> {
    let mut tables = 0;
    let mut found = [const { Vec::new() }; LEVELS];
    // How many, and the first one: a MANIFEST can name any number of tables.
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
            Err(LevelDbError::MissingTables { file, missing, tables, manifest }.into())
        }
    }
}

/// The table in its slot, if it is there and has its length; if it is not there, where it should be.
fn find_table(folder: &Folder, file: TableFile, slot: usize) -> Result<Result<Table, PathBuf>, SourceError> {
    let Some((name, metadata)) = folder.find_table(file.number)? else {
        return Ok(Err(folder.table(file.number, TableName::Ldb)));
    };
    let path = || folder.table(file.number, name);
    if !metadata.is_file() {
        return Err(LevelDbError::NoFile { file: path() }.into());
    }
    if metadata.len() != file.bytes {
        let (found, wanted) = (metadata.len(), file.bytes);
        return Err(LevelDbError::Length { file: path(), found, wanted }.into());
    }
    Ok(Ok(Table { file, name, slot }))
}

/// The logs that have been read so far.
#[derive(Default)]
struct Replay {
    /// What an index of the database is known by.
    opened_from: Identity,
    logs: Vec<FileMap>,
    writes: Writes,
    /// The number of the database's last write.
    last_sequence: u64,
    /// The number behind the last write in the logs; 0 before the first.
    due: u64,
    /// The last log that was cut or had no write, if no write was found behind it, and the number that such a
    /// write must have: `None` if whatever number it has, writes before it may be lost.
    open_end: Option<(PathBuf, Option<u64>)>,
    cuts: Vec<LogCut>,
}

impl Replay {
    fn add(&mut self, log: PathBuf) -> Result<(), SourceError> {
        let map = FileMap::open(&log, None)?;
        let bytes = map.as_ref();
        let home = u32::try_from(self.logs.len()).unwrap_or(u32::MAX);
        let mut reader = LogReader::new(bytes);
        let due_before = self.due;
        while let Some(pieces) = reader.next().map_err(|error| damaged(&log, error))? {
            let added = self.writes.add(home, bytes, pieces);
            let offset = reader.offset();
            let malformed = |message| LevelDbError::Batch { file: log.clone(), offset, message };
            let numbers = added.map_err(|fault| match fault {
                BatchFault::Malformed(message) => malformed(message),
                BatchFault::KeyLength { at, found } => {
                    let (offset, allowed) = (at % BLOCK_BYTES, KEY_BYTES_MAX);
                    LevelDbError::KeyLength { file: log.clone(), block: at - offset, offset, found, allowed }
                }
            })?;
            if numbers.is_empty() {
                continue;
            }
            let (found, due) = (numbers.start, self.due);
            if found < due {
                let message = format!("it starts with write {found}, and {due} is the least that can follow");
                return Err(malformed(message).into());
            }
            if let Some((file, wanted)) = self.open_end.take().filter(|(_, wanted)| *wanted != Some(found)) {
                return Err(LevelDbError::Gap { file, next: log, found, wanted }.into());
            }
            self.due = numbers.end;
            self.last_sequence = self.last_sequence.max(numbers.end - 1);
        }
        self.note(&log, bytes.len())?;
        if let Some(cut) = reader.cut() {
            self.cuts.push(LogCut::new(&log, cut));
        }
        if reader.cut().is_some() || self.due == due_before {
            self.leave_open(log, reader.cut().is_some());
        }
        self.logs.push(map);
        Ok(())
    }

    fn note(&mut self, log: &Path, bytes: usize) -> Result<(), SourceError> {
        let metadata = std::fs::metadata(log);
        let metadata = metadata.map_err(|error| SourceError::io(log, "look at the file", &error))?;
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let fact = format_args!("{name}: {bytes} bytes, modified {seconds}.{nanoseconds:09}");
        self.opened_from = std::mem::take(&mut self.opened_from).with("log", fact);
        Ok(())
    }

    /// Notes what must follow a log that was cut, or has no write.
    ///
    /// Once there is a write in the logs, the next number is known. Before that there is only the MANIFEST's
    /// last number, and that counts every write before its last edit, those of the live logs among them:
    /// tables are made while writes go on.
    ///
    /// - A log that was cut had a write in it, or a part of one, which the MANIFEST may have counted. A writer
    ///   that starts again after that replays the log, and no longer needs it when it writes to the next one.
    ///   So where such a log is still needed and the next one has writes, no number shows that nothing is lost.
    /// - An empty log can be left behind with nothing lost: LevelDB starts a new log, whatever is in the last
    ///   one, when it is asked to compact; and one that reuses logs may find an empty one before the one that
    ///   it reuses. There was then no write between the edit that opened the database and the next log's
    ///   first, which therefore has the number behind the MANIFEST's last. Any other number is that of a
    ///   database whose log lost what was in it, as file systems do that lose power. (An edit just where the
    ///   one log ended and the next began would look the same as nothing lost, and is not told from it.)
    fn leave_open(&mut self, log: PathBuf, is_cut: bool) {
        let wanted = match self.due {
            0 if is_cut => None,
            0 => Some(self.last_sequence + 1),
            due => Some(due),
        };
        // What was lost before an empty log stays lost.
        if is_cut || self.open_end.is_none() {
            self.open_end = Some((log, wanted));
        }
    }
}
