//! The database in the folder: a file of SQLite, its log, and a connection to them.
//!
//! Commits are synced into the log (WAL), and checkpoints move them into the file. All locks are SQLite's:
//! one process at a time changes records, and others read what was committed before. Those locks belong to
//! the process and end with it; closing any handle of the file releases them, too. So only SQLite opens the
//! file here.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use percolator_files::shown;
use percolator_files::whole_file::{self, TemporaryFolder};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{Access, FallocateFlags, access, fallocate};

use super::book;
use super::fault::Fault;
use super::file_system;
use crate::patience::Deadline;

const DATA: &str = "metadata.sqlite";
const LOG: &str = "metadata.sqlite-wal";
const INDEX: &str = "metadata.sqlite-shm";
/// What versions before this one had, an LMDB.
const OLD_DATA: &str = "metadata.mdb";

/// "PERC". Another program's database has another number.
const APPLICATION: i64 = 0x5045_5243;
/// The format of the tables. Another one is refused.
const FORMAT: i64 = 1;

const PAGE_BYTES: u64 = 4096;

/// How much of the file is for leases and removals alone, so that a full one can be emptied.
pub(super) const RESERVE_BYTES: u64 = 1 << 20;

/// How much room on the disk is taken for the log, so that removals do not need any.
const LOG_BYTES: u64 = 4 << 20;

/// How many pages of the log are worth a checkpoint. Puts wait for it: if the disk is full, no more than
/// these have to go before there can be others.
const LOG_PAGES: i64 = 32;

/// From this many pages on, a change waits until the log is not being read; the log then restarts. With what
/// one transaction adds they are about [`LOG_BYTES`].
const LOG_PAGES_MAX: i64 = 768;

const FIRST_PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// The process that first opened a folder.
static OPENER: LazyLock<u32> = LazyLock::new(process::id);

/// An open database.
#[derive(Debug)]
pub(super) struct Database {
    /// `None` only in the drop.
    connection: Option<Mutex<Connection>>,
    path: PathBuf,
    /// The device and the inode of the file.
    id: [u64; 2],
}

impl Database {
    /// Opens the database of a folder, and makes what is missing.
    pub(super) fn open(folder: &Path, boot: &str, deadline: Deadline) -> Result<Self, Fault> {
        check_process(*OPENER)?;
        fs::create_dir_all(folder)?;
        let folder = fs::canonicalize(folder)?;
        file_system::check(&folder)?;
        if folder.join(OLD_DATA).try_exists()? {
            return Err(Fault::Damaged(format!(
                "{OLD_DATA} is of an earlier version, which kept records in an LMDB: end its jobs with the \
                 program that wrote it and remove it, or use another folder"
            )));
        }
        // What makers left that were killed.
        whole_file::sweep(&folder);
        let path = folder.join(DATA);
        // The log is looked for first: a file that it belongs to is there from then on.
        let log = [LOG, INDEX].into_iter().find(|name| folder.join(name).exists());
        match (path.try_exists()?, log) {
            (true, _) => {}
            (false, None) => make(&folder, &path, boot)?,
            (false, Some(log)) => {
                let message = format!("{log} is there without {DATA}: bring it back, or use another folder");
                return Err(Fault::Damaged(message));
            }
        }
        let found = fs::metadata(&path)?;
        if !found.is_file() {
            return Err(Fault::Damaged(format!("{DATA} is no regular file: use another folder")));
        }
        access(&path, Access::READ_OK | Access::WRITE_OK).map_err(io::Error::from)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags)?;
        wait_no_longer_than(&mut connection, deadline)?;
        connection.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA cell_size_check = ON",
        )?;
        check(&connection)?;
        take_room(&folder.join(LOG));
        let id = [found.dev(), found.ino()];
        Ok(Database { connection: Some(Mutex::new(connection)), path, id })
    }

    /// Looks at the records, all of them as they were at one moment.
    pub(super) fn read<T>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut connection = self.connection(deadline)?;
        work(&*connection.transaction()?)
    }

    /// Changes records, all of it or nothing. What was changed is on the disk then. The file may have so many
    /// bytes, of which `puts` leave the reserve.
    pub(super) fn write<T>(
        &self,
        deadline: Deadline,
        (bytes_max, puts): (u64, bool),
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut connection = self.connection(deadline)?;
        // If there is no room in the file, there is still some in the log, but not for puts.
        if let Err(fault) = shorten_log(&connection, deadline)
            && (puts || !fault.is_full())
        {
            return Err(fault);
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let bytes = bytes_max - if puts { RESERVE_BYTES } else { 0 };
        transaction.pragma_update(None, "max_page_count", (bytes / PAGE_BYTES).cast_signed())?;
        let result = work(&transaction)?;
        transaction.commit()?;
        Ok(result)
    }

    /// The connection, which waits for others no longer than until this deadline.
    fn connection(&self, deadline: Deadline) -> Result<MutexGuard<'_, Connection>, Fault> {
        self.check()?;
        let connection = self.connection.as_ref().expect("it is taken only by the drop");
        let mut connection = connection.try_lock_for(deadline.left()).ok_or(Fault::Occupied)?;
        wait_no_longer_than(&mut connection, deadline)?;
        Ok(connection)
    }

    /// Checks that this process and the file are those of the connection. SQLite does not notice it if the
    /// file has another name, or none.
    fn check(&self) -> Result<(), Fault> {
        check_process(*OPENER)?;
        let what = match fs::metadata(&self.path) {
            Ok(found) if [found.dev(), found.ino()] == self.id => return Ok(()),
            Ok(_) => "was replaced",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "was removed",
            Err(error) => return Err(error.into()),
        };
        Err(Fault::Damaged(format!(
            "{DATA} {what} while it was open: open the folder anew, in all processes"
        )))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Closing removes the log by its name, which another process may need: the one that forked this one,
        // or one with the file that is there now.
        if self.check().is_err() {
            mem::forget(self.connection.take());
        }
    }
}

/// Refuses a process that was forked by one that had opened a folder. It has inherited what SQLite knows of
/// locks, but not the locks.
fn check_process(opener: u32) -> Result<(), Fault> {
    let found = process::id();
    if found == opener {
        return Ok(());
    }
    Err(Fault::Denied(format!(
        "the process {opener} opened records and then forked this one, {found}, which cannot have its locks: \
         start it as a program (exec), or fork it before records are opened"
    )))
}

/// Lets a connection try again and again until the deadline when another one is in its way.
fn wait_no_longer_than(connection: &mut Connection, deadline: Deadline) -> Result<(), Fault> {
    let mut pause = FIRST_PAUSE;
    let again = move |_| {
        let left = deadline.left();
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSE_MAX);
        !left.is_zero()
    };
    Ok(connection.busy_handler(Some(again))?)
}

/// Moves pages from the log into the file if there are many, so that the log restarts.
fn shorten_log(connection: &Connection, deadline: Deadline) -> Result<(), Fault> {
    let checkpoint = |mode: &str| {
        let found = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        match connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], found) {
            // Another process recovers the log of one that was killed. The change waits for it.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok((false, 0)),
            found => found,
        }
    };
    loop {
        let (_, pages): (bool, i64) = checkpoint("NOOP")?;
        let mode = match pages {
            ..LOG_PAGES => return Ok(()),
            LOG_PAGES..LOG_PAGES_MAX => "PASSIVE",
            LOG_PAGES_MAX.. => "RESTART",
        };
        let (is_in_use, _) = checkpoint(mode)?;
        if !is_in_use || mode == "PASSIVE" {
            return Ok(());
        }
        if deadline.left().is_zero() {
            return Err(Fault::Occupied);
        }
        // SQLite waits for those who read the log, and not for another checkpoint.
        thread::sleep(PAUSE_MAX);
    }
}

/// Takes room on the disk for the log, where the file system can do that and there is room. What is written
/// there stays as it is.
fn take_room(log: &Path) {
    if let Ok(log) = OpenOptions::new().write(true).open(log) {
        let _ = fallocate(log, FallocateFlags::empty(), 0, LOG_BYTES);
    }
}

/// Checks that a file is a database of this format, and that no page of it is damaged.
fn check(connection: &Connection) -> Result<(), Fault> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if number("application_id")? != APPLICATION {
        return Err(Fault::Damaged(format!("{DATA} is a database of another program: use another folder")));
    }
    let format = number("user_version")?;
    if format != FORMAT {
        return Err(Fault::Damaged(format!(
            "{DATA} has the format {format}, and this program knows only {FORMAT}: use the version of the \
             program that wrote it, or another folder"
        )));
    }
    let text = |select: &str| connection.query_row(select, [], |row| row.get::<_, String>(0));
    // The check of all pages evaluates what a schema says, so a foreign one is refused before.
    let said = match text("SELECT group_concat(sql, ';') FROM sqlite_schema")? == book::TABLES {
        true => text("PRAGMA integrity_check(1)")?,
        false => "its tables are not this program's".to_owned(),
    };
    if said != "ok" {
        return Err(Fault::Damaged(format!("{DATA} is damaged: {}; use another folder", shown::line(&said))));
    }
    // It may have been set to another one, with which readers wait.
    Ok(connection.pragma_update(None, "journal_mode", "WAL")?)
}

/// Makes a database without records. It gets its name when it is whole and on the disk, unless another
/// process was faster.
fn make(folder: &Path, path: &Path, boot: &str) -> Result<(), Fault> {
    let new_folder = TemporaryFolder::create(folder, OsStr::new(DATA))?;
    let new = new_folder.path().join(DATA);
    let connection = Connection::open(&new)?;
    // Pages that become free leave the file, so what is removed from a full disk makes room there.
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA auto_vacuum = FULL; PRAGMA synchronous = OFF;
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};
         BEGIN; {}; COMMIT",
        book::TABLES
    ))?;
    book::begin(&connection, boot)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error)?;
    File::open(&new)?.sync_all()?;
    // So are the folders above, before the file can be found.
    let device = fs::metadata(folder)?.dev();
    let is_on_it = |above: &&Path| fs::metadata(above).is_ok_and(|found| found.dev() == device);
    for above in folder.ancestors().skip(1).take_while(is_on_it) {
        match sync(above) {
            // Who may only pass through a folder has made nothing in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    match whole_file::rename_to_free(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        renamed => renamed?,
    }
    Ok(sync(folder)?)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_forked_is_refused() {
        check_process(process::id()).unwrap();
        let error = check_process(process::id() + 1).unwrap_err();
        assert!(matches!(&error, Fault::Denied(said) if said.contains("forked this one")), "{error:?}");
    }
}
