//! The LMDB environment on the data file, and how long its map is.
//!
//! The file is as long as the map may be, and only grows: so each process knows from the file's length how
//! much it must map, and a file that has become shorter was cut by somebody else. Room on the disk is taken
//! when the file grows: a disk that is full is noticed then, and not in the midst of a commit.
//!
//! The end of the file is a reserve. Whoever puts records must not use it, so that a full file, or one on a
//! full disk, can be emptied, and leases go on: LMDB changes no page in place, so a removal needs pages, too.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use lmdb::{Database, EnvironmentFlags, WriteFlags};
use percolator::source::{Access, Lmdb, Source as _, SourceError};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::boot::BootId;
use super::entries::{Header, Kind};
use super::fault::Fault;

/// The length of a file without records.
pub(super) const FIRST_BYTES: u64 = 2 << 20;

/// How much of a file is its reserve.
const RESERVE_BYTES: u64 = 1 << 20;

/// The most by which a file grows at once.
const GROWTH_MAX: u64 = 64 << 20;

/// Whether LMDB's format is here what we know of it.
const IS_VERIFIED: bool = cfg!(all(target_endian = "little", target_pointer_width = "64"));

/// Whether the reserve may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserve {
    Kept,
    Used,
}

/// An open environment.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) environment: lmdb::Environment,
    pub(super) database: Database,
    /// How long the file was when it was last looked at.
    file_bytes: u64,
    /// How much of it LMDB was last asked to map. It maps more if more was in use then.
    map_bytes: u64,
}

impl Environment {
    /// Opens the environment of a data file that nobody writes to, once its pages are verified.
    pub(super) fn open(path: &Path, data: &File, file_bytes: u64) -> Result<Self, Fault> {
        if IS_VERIFIED {
            verify(path)?;
            check_length(data, file_bytes)?;
        }
        let (environment, database) = open(path, file_bytes)?;
        Ok(Environment { environment, database, file_bytes, map_bytes: file_bytes })
    }

    /// Maps the file, with or without its reserve, but at least what is in use. There must be no transaction.
    pub(super) fn fit(&mut self, file_bytes: u64, reserve: Reserve) -> Result<(), Fault> {
        // A page that is no longer in the file must not be touched.
        if file_bytes < self.file_bytes {
            return Err(cut(file_bytes, self.file_bytes));
        }
        self.file_bytes = file_bytes;
        let wanted = match reserve {
            Reserve::Kept => file_bytes.saturating_sub(RESERVE_BYTES),
            Reserve::Used => file_bytes,
        };
        if wanted != self.map_bytes || self.is_beyond_its_map()? {
            self.environment.set_map_size(size(wanted)?)?;
            self.map_bytes = wanted;
        }
        Ok(())
    }

    /// Whether another process has used more of the file than is mapped here: of its reserve, as the file has
    /// not become longer. LMDB would refuse every transaction.
    fn is_beyond_its_map(&self) -> Result<bool, Fault> {
        let (info, page_bytes) = (self.environment.info()?, self.environment.stat()?.page_size());
        let in_use = info.last_pgno().saturating_add(1).saturating_mul(page_bytes as usize);
        Ok(in_use > info.map_size())
    }
}

/// Makes a file longer that has so many bytes, and returns how many it has then. It may not have more than
/// `bytes_max`.
pub(super) fn grow(data: &File, bytes: u64, bytes_max: u64) -> Result<u64, Fault> {
    if bytes >= bytes_max {
        return Err(Fault::Full { bytes, bytes_max });
    }
    let longer = bytes.saturating_add(bytes.clamp(FIRST_BYTES, GROWTH_MAX)).min(bytes_max);
    take_room(data, bytes, longer)?;
    Ok(longer)
}

/// Makes a file longer, and takes the room on the disk where the file system can do that.
fn take_room(data: &File, from: u64, to: u64) -> Result<(), Fault> {
    loop {
        return match fallocate(data, FallocateFlags::empty(), from, to.saturating_sub(from)) {
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(data.set_len(to)?),
            taken => Ok(taken.map_err(io::Error::from)?),
        };
    }
}

fn cut(found_bytes: u64, needed_bytes: u64) -> Fault {
    Fault::Damaged(format!(
        "metadata.mdb is cut: it has {found_bytes} bytes, and {needed_bytes} are needed; use another folder"
    ))
}

/// Checks that the last page of each of the two meta pages is in the file. LMDB would map all of it.
fn check_length(data: &File, file_bytes: u64) -> Result<(), Fault> {
    // Of a page that `verify` has accepted: behind its head of 16 bytes are the magic, 4; the version, 4; an
    // address, 8; the map's length, 8; two trees, 48 each, whose first has the length of a page in its first
    // 4; the last page, 8; the transaction, 8.
    const PAGE_BYTES_AT: u64 = 40;
    const LAST_PAGE_AT: u64 = 136;
    let mut page_bytes = [0; 4];
    data.read_exact_at(&mut page_bytes, PAGE_BYTES_AT)?;
    let page_bytes = u64::from(u32::from_le_bytes(page_bytes));
    for page in [0, page_bytes] {
        let mut last_page = [0; 8];
        data.read_exact_at(&mut last_page, page + LAST_PAGE_AT)?;
        let needed_bytes = u64::from_le_bytes(last_page).saturating_add(1).saturating_mul(page_bytes);
        if needed_bytes > file_bytes {
            return Err(cut(file_bytes, needed_bytes));
        }
    }
    Ok(())
}

/// Makes a file without records.
pub(super) fn make(path: &Path, boot: BootId) -> Result<(), Fault> {
    let (environment, database) = open(path, FIRST_BYTES)?;
    let mut transaction = environment.begin_rw_txn()?;
    let header = Header::new(boot).encoded();
    transaction.put(database, &Kind::Header.key(&[]), &header, WriteFlags::empty())?;
    lmdb::Transaction::commit(transaction)?;
    let file = OpenOptions::new().write(true).open(path)?;
    take_room(&file, 0, FIRST_BYTES)?;
    Ok(file.sync_all()?)
}

fn open(path: &Path, map_bytes: u64) -> Result<(lmdb::Environment, Database), Fault> {
    // The locks are ours (`turn`): without a lock file of its own, LMDB has no readers to forget, and nothing
    // that forbids a second environment.
    let flags = EnvironmentFlags::NO_SUB_DIR | EnvironmentFlags::NO_LOCK;
    let mut builder = lmdb::Environment::new();
    let environment = builder.set_flags(flags).set_map_size(size(map_bytes)?).open(path)?;
    let database = environment.open_db(None)?;
    Ok((environment, database))
}

fn size(bytes: u64) -> Result<usize, Fault> {
    usize::try_from(bytes).map_err(|_| Fault::Engine(lmdb::Error::MapFull))
}

/// Walks over all pages of the records with the reader of the core, which trusts none. LMDB would end the
/// process, or show records that are not there.
fn verify(path: &Path) -> Result<(), Fault> {
    let walk = || -> Result<(), SourceError> {
        let pages = Lmdb::options().access(Access::Read).without_lock().open(path)?;
        let mut cursor = pages.cursor()?;
        while cursor.advance()?.is_some() {}
        Ok(())
    };
    walk().map_err(|error| Fault::Damaged(error.to_string()))
}
