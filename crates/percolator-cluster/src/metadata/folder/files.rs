//! The folder and its files: which folder can be trusted, and a data file that is whole or absent.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use percolator_files::shown;

use super::boot::BootId;
use super::environment;
use super::fault::Fault;
use super::turn::{Deadline, Turn};

const DATA: &str = "metadata.mdb";
const NEW_DATA: &str = "metadata.mdb.new";
/// Is there while the name of the data file may not be on the disk.
const UNSYNCED: &str = "metadata.mdb.unsynced";
const LINE: &str = "metadata.lock";

/// A file's device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// The open files of a folder.
#[derive(Debug)]
pub(super) struct Files {
    /// The path of the data file, whatever becomes of the working folder.
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    /// The data file, to be locked.
    pub(super) data: File,
    /// The file by which processes stand in line.
    pub(super) line: File,
}

/// Names a folder in messages.
pub(super) fn place(folder: &Path) -> String {
    format!("the folder {}", shown::path(folder))
}

impl Files {
    /// Opens the files of a folder, and makes what is missing.
    pub(super) fn open(folder: &Path, boot: BootId, deadline: Deadline) -> Result<Self, Fault> {
        fs::create_dir_all(folder)?;
        let folder = fs::canonicalize(folder)?;
        check_file_system(&File::open(&folder)?)?;
        let line = open(&folder.join(LINE), true)?;
        // One process at a time looks whether there is a data file, and makes it.
        let turn = Turn::alone(&line, deadline)?;
        let path = folder.join(DATA);
        let data = match open(&path, false) {
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                make(&folder, boot)?;
                open(&path, false)?
            }
            opened => opened?,
        };
        if folder.join(UNSYNCED).try_exists()? {
            make_lasting(&folder)?;
        }
        drop(turn);
        let id = FileId::of(&data.metadata()?);
        Ok(Files { path, id, data, line })
    }

    /// The length of the data file, if it is still the one at its path.
    pub(super) fn bytes(&self) -> Result<u64, Fault> {
        match fs::metadata(&self.path) {
            Ok(found) if FileId::of(&found) == self.id => Ok(found.len()),
            Ok(_) => Err(gone("was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(gone("was removed")),
            Err(error) => Err(error.into()),
        }
    }
}

fn gone(what: &str) -> Fault {
    Fault::Damaged(format!("metadata.mdb {what} while it was open: open the folder anew, in all processes"))
}

fn open(path: &Path, or_make: bool) -> Result<File, Fault> {
    let file = OpenOptions::new().read(true).write(true).create(or_make).truncate(false).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let message = format!("{} is no regular file: use another folder", shown::path(path));
    Err(Fault::Damaged(message))
}

/// Makes a data file without records. It gets its name when it is whole, and on the disk; the name itself is
/// synced by [`make_lasting`].
fn make(folder: &Path, boot: BootId) -> Result<(), Fault> {
    let new = folder.join(NEW_DATA);
    // Whoever made it was killed.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    environment::make(&new, boot)?;
    File::create(folder.join(UNSYNCED))?;
    Ok(fs::rename(&new, folder.join(DATA))?)
}

/// Syncs the names of the data file, of its folder, and of the folders above it, as far as they are on the
/// same file system. A maker that was killed before that has left [`UNSYNCED`].
fn make_lasting(folder: &Path) -> io::Result<()> {
    let device = fs::metadata(folder)?.dev();
    let is_on_it = |above: &&Path| fs::metadata(above).is_ok_and(|found| found.dev() == device);
    for above in folder.ancestors().skip(1).take_while(is_on_it) {
        match sync(above) {
            // Who may only pass through a folder has made nothing in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    sync(folder)?;
    fs::remove_file(folder.join(UNSYNCED))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Refuses a file system that several machines may use at once, or that another process provides.
fn check_file_system(folder: &File) -> Result<(), Fault> {
    let number = rustix::fs::fstatfs(folder).map_err(io::Error::from)?.f_type;
    let Some(name) = shared_file_system(number as u64 & 0xffff_ffff) else { return Ok(()) };
    Err(Fault::Denied(format!(
        "it is on {name}, and LMDB needs memory that all processes share, and locks that hold: use a folder \
         on a disk of this machine, or etcd"
    )))
}

/// The name of the file system of this number in `statfs(2)`, if it is one of those.
fn shared_file_system(number: u64) -> Option<&'static str> {
    Some(match number {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x564c => "NCP",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x0102_1997 => "9P",
        0x6573_5546 => "FUSE",
        0x786f_4256 => "a folder that VirtualBox shares",
        0xbacb_acbc => "a folder that VMware shares",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_machines_are_refused() {
        assert_eq!(shared_file_system(0x6969), Some("NFS"));
        assert_eq!(shared_file_system(0xfe53_4d42), Some("SMB"));
        assert_eq!(shared_file_system(0x6573_5546), Some("FUSE"));
        // ext4, XFS, Btrfs, tmpfs, overlayfs.
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(shared_file_system(local), None);
        }
        check_file_system(&File::open(std::env::temp_dir()).unwrap()).unwrap();
        let proc = rustix::fs::statfs("/proc").unwrap().f_type;
        assert_eq!(shared_file_system(proc as u64), None);
    }
}
