//! What can be wrong with a LevelDB.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::caller::words;
use percolator_files::shown;

use crate::log::LogFault;
use crate::table::TableError;

/// Why a LevelDB cannot be read. Offsets count from the start of the file.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelDbError {
    /// The system refuses: nothing is at the path, or it cannot be read or mapped.
    #[error("{}: cannot {action}: {message}", shown::path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The operating system's message.
        message: String,
        /// The kind of that error.
        kind: io::ErrorKind,
        /// The operating system's number of that error (`errno`), if it is the system's.
        code: Option<i32>,
    },
    /// Something is at the path, but not a LevelDB.
    #[error("{}: not a LevelDB database: there is no CURRENT in it{hint}", shown::path(path))]
    NotADatabase {
        /// The folder, or the file.
        path: PathBuf,
        /// What to do instead; may be empty.
        hint: &'static str,
    },
    /// Something else is at the path, and it is known what.
    #[error("{}: not a LevelDB: it is {thing}", shown::path(path))]
    Instead {
        /// The path.
        path: PathBuf,
        /// What is there, and what to do about it.
        thing: String,
    },
    /// CURRENT does not name a MANIFEST.
    #[error(
        "{}: found {found}: a database's CURRENT contains the name of its MANIFEST, such as MANIFEST-000004, \
         and a line feed",
        shown::path(file)
    )]
    Current {
        /// CURRENT.
        file: PathBuf,
        /// Its contents.
        found: String,
    },
    /// A file that another one names is missing.
    #[error(
        "{}: {what} is missing, but {} names it; copy the database again, with all its files",
        shown::path(file),
        shown::path(named_by)
    )]
    Missing {
        /// The file that is missing.
        file: PathBuf,
        /// What it is.
        what: &'static str,
        /// The file that names it.
        named_by: PathBuf,
    },
    /// A log that the MANIFEST names is missing.
    #[error(
        "{}: the log of the newest writes is missing, but {} names it: the writes in it are lost (did a \
         .gitignore leave out *.log?); {}",
        shown::path(file),
        shown::path(manifest),
        allow_gaps()
    )]
    MissingLog {
        /// The log that is missing.
        file: PathBuf,
        /// The MANIFEST.
        manifest: PathBuf,
    },
    /// Tables that the MANIFEST names are missing.
    #[error(
        "{}: the table is missing ({missing} of the {tables} that {} names are missing); copy the database \
         again, with all its files",
        shown::path(file),
        shown::path(manifest)
    )]
    MissingTables {
        /// The first table that is missing.
        file: PathBuf,
        /// How many tables are missing.
        missing: usize,
        /// How many tables the MANIFEST names.
        tables: usize,
        /// The MANIFEST.
        manifest: PathBuf,
    },
    /// There is something under a file's name that is not a regular file.
    #[error("{}: expected a file, but it is not a regular file; {COPY_AGAIN}", shown::path(file))]
    NoFile {
        /// Its path.
        file: PathBuf,
    },
    /// A file does not have the length it was written with.
    #[error(
        "{}: the file has {found} bytes, and the MANIFEST says {wanted}; copy it again from where it came",
        shown::path(file)
    )]
    Length {
        /// The table.
        file: PathBuf,
        /// Its length.
        found: u64,
        /// The length it was written with.
        wanted: u64,
    },
    /// A table is another file than the one that was there when the database was opened, or was written to.
    #[error(
        "{}: another file has taken the table's place since the database was opened, or it was written to; \
         open the database again once its writer is done",
        shown::path(file)
    )]
    Replaced {
        /// The table.
        file: PathBuf,
    },
    /// A log, or the MANIFEST, is damaged.
    #[error("{}: damaged at byte {offset} (block {block}): {fault}; {COPY_AGAIN}", shown::path(file))]
    Log {
        /// The file.
        file: PathBuf,
        /// The block of 32 KiB, counted from 0.
        block: usize,
        /// Where in the file the damaged fragment starts.
        offset: usize,
        /// What was found.
        fault: LogFault,
    },
    /// A batch of writes in a log is malformed, although its checksums match.
    #[error("{}: the batch at byte {offset} is malformed: {message}; {COPY_AGAIN}", shown::path(file))]
    Batch {
        /// The log.
        file: PathBuf,
        /// Where in the file the batch starts.
        offset: usize,
        /// What was found, and what is allowed.
        message: String,
    },
    /// A key is longer than allowed.
    #[error(
        "{}: in the block at byte {block}: the entry or write at byte {offset} of it has a key of {found} \
         bytes: {allowed} are allowed",
        shown::path(file)
    )]
    KeyLength {
        /// The table, or the log.
        file: PathBuf,
        /// Where in the file the block starts.
        block: usize,
        /// Where in the uncompressed block the entry or the write starts.
        offset: usize,
        /// The length of its key.
        found: usize,
        /// The longest key allowed.
        allowed: usize,
    },
    /// A log does not continue where the log before it ends.
    #[error(
        "{}: writes are lost: {} starts with write {found}, {}; {}",
        shown::path(file), shown::path(next), due(*wanted), allow_gaps()
    )]
    Gap {
        /// The log that lacks them: one that was cut or is empty, or the last one before.
        file: PathBuf,
        /// The one after it.
        next: PathBuf,
        /// The sequence number of its first write.
        found: u64,
        /// The sequence number that is due; `None` if nothing that is left shows it.
        wanted: Option<u64>,
    },
    /// A batch of writes does not continue where the one before it ends, or where the tables end.
    #[error(
        "{}: writes are lost: the batch at byte {offset} starts with write {found}, but write {due} is due; \
         {}",
        shown::path(file),
        allow_gaps()
    )]
    Skip {
        /// The log.
        file: PathBuf,
        /// Where in the file the batch starts.
        offset: usize,
        /// The sequence number of its first write.
        found: u64,
        /// The sequence number that is due.
        due: u64,
    },
    /// The logs end before the last write that the MANIFEST counts.
    #[error(
        "{}: writes are lost: the logs end before write {due}, but {} counts up to {counted}; {}",
        shown::path(file),
        shown::path(manifest),
        allow_gaps()
    )]
    LostEnd {
        /// The last log that has a write, or the oldest one needed.
        file: PathBuf,
        /// The sequence number due there.
        due: u64,
        /// The sequence number of the last write that the MANIFEST counts.
        counted: u64,
        /// The MANIFEST.
        manifest: PathBuf,
    },
    /// A writer changes or deletes the database's files while they are opened.
    #[error(
        "{}: the database is being written to ({error}); read it once its writer is done, or use a copy",
        shown::path(path)
    )]
    BeingWritten {
        /// The database.
        path: PathBuf,
        /// The error that resulted.
        error: String,
    },
    /// The MANIFEST's checksums match, but it says something impossible.
    #[error("{}: the edit at byte {offset} is malformed: {message}; {COPY_AGAIN}", shown::path(file))]
    Manifest {
        /// The MANIFEST.
        file: PathBuf,
        /// Where in the file the edit starts, or the file ends.
        offset: usize,
        /// What was found, and what is allowed.
        message: String,
    },
    /// The keys are in a custom order.
    #[error(
        "{}: the database is ordered by the comparator {found:?}: supported is {:?}{}",
        shown::path(file),
        crate::edit::COMPARATOR,
        remedy(found)
    )]
    Comparator {
        /// The MANIFEST.
        file: PathBuf,
        /// The comparator's name.
        found: String,
    },
    /// A table is damaged.
    #[error("{}: {error}{}", shown::path(file), table_remedy(error))]
    Table {
        /// The table.
        file: PathBuf,
        /// What was found.
        error: TableError,
    },
    /// No record is at a [place](crate::RecordPlace): it is of another state of the database.
    #[error("{}: {found}; find the places of its records again", shown::path(path))]
    NoRecord {
        /// The database.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// A table has a key that LevelDB would not write.
    #[error("{}: in the block at byte {block}: {message}; {COPY_AGAIN}", shown::path(file))]
    Key {
        /// The table.
        file: PathBuf,
        /// Where in the file the block starts.
        block: usize,
        /// What was found, and what is allowed.
        message: String,
    },
}

impl LevelDbError {
    /// Returns the file, or the database's folder, in which it was found.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            LevelDbError::Io { path: file, .. }
            | LevelDbError::NotADatabase { path: file, .. }
            | LevelDbError::Instead { path: file, .. }
            | LevelDbError::NoRecord { path: file, .. }
            | LevelDbError::Current { file, .. }
            | LevelDbError::Missing { file, .. }
            | LevelDbError::MissingLog { file, .. }
            | LevelDbError::MissingTables { file, .. }
            | LevelDbError::NoFile { file, .. }
            | LevelDbError::Length { file, .. }
            | LevelDbError::Replaced { file }
            | LevelDbError::Log { file, .. }
            | LevelDbError::Batch { file, .. }
            | LevelDbError::KeyLength { file, .. }
            | LevelDbError::Gap { file, .. }
            | LevelDbError::Skip { file, .. }
            | LevelDbError::LostEnd { file, .. }
            | LevelDbError::BeingWritten { path: file, .. }
            | LevelDbError::Manifest { file, .. }
            | LevelDbError::Comparator { file, .. }
            | LevelDbError::Table { file, .. }
            | LevelDbError::Key { file, .. } => file,
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str, error: &io::Error) -> Self {
        let (path, message) = (path.to_owned(), error.to_string());
        LevelDbError::Io { path, action, message, kind: error.kind(), code: error.raw_os_error() }
    }
}

fn due(wanted: Option<u64>) -> String {
    match wanted {
        Some(wanted) => format!("but write {wanted} is due"),
        None => "but no write before that is intact".to_owned(),
    }
}

/// The remedy for damage.
const COPY_AGAIN: &str = "copy the database again, with all its files";

/// The remedy for a table that cannot be read, unless its error has one.
fn table_remedy(error: &TableError) -> &'static str {
    match error {
        TableError::Memory { .. } => "; free memory, or let fewer threads read",
        TableError::Compression { .. } => "",
        _ => "; copy the database again, with all its files",
    }
}

/// The remedy for lost writes.
fn allow_gaps() -> &'static str {
    words(
        "copy the database again, with all its files, or set LogGaps::Allow to read what is left",
        "copy the database again, with all its files, or read what is left with --allow-log-gaps",
        "copy the database again, with all its files, or read what is left with log_gaps=\"allow\"",
    )
}

/// Returns the remedy for an unsupported comparator.
fn remedy(found: &str) -> &'static str {
    match found {
        "idb_cmp1" => "; it is Chrome's IndexedDB, not Caffe's: give the folder that Caffe's tools wrote",
        _ => "; copy its records, with the program that has this order, to a new database in LevelDB's order",
    }
}
