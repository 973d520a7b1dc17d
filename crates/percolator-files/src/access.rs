//! How a database's files are read.

use std::fs::File;

/// How a database's files are read.
///
/// A mapped file costs no copy but cannot report errors: if the file is truncated while it is read, or the
/// disk or the network fails, the kernel ends the process with SIGBUS. A file that is read costs a copy of
/// each byte, on the one thread that reads for all others, and every failure is an error.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Access {
    /// Mapped, unless the file is on a network file system (NFS, SMB, Ceph, Lustre, GPFS, 9P and the like) or
    /// on one that another process provides (FUSE); then [read](Self::Read), with its consequences for an
    /// LMDB that is being written to.
    #[default]
    Auto,
    /// Mapped. The fastest, as long as nobody truncates the file.
    Mapped,
    /// Read with `pread` into buffers. An LMDB is then not locked: no reader slot is taken, and if there is a
    /// commit meanwhile, the cursor, and a feed with it, ends with `LmdbError::WrittenTo`.
    /// `LevelDbOptions::access` describes the memory that a LevelDB's cursors then hold.
    Read,
}

/// The access method chosen for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Mapped.
    Mapped,
    /// With `pread`.
    Read,
}

impl Access {
    /// How this file is read.
    #[must_use]
    pub fn of(self, file: &File) -> Reading {
        match self {
            Access::Mapped => Reading::Mapped,
            Access::Read => Reading::Read,
            // Miri maps no files.
            Access::Auto if cfg!(miri) || is_remote(file) => Reading::Read,
            Access::Auto => Reading::Mapped,
        }
    }
}

#[cfg(target_os = "linux")]
fn is_remote(file: &File) -> bool {
    // If the kernel cannot tell, the file system is assumed to be local.
    rustix::fs::fstatfs(file).is_ok_and(|system| is_remote_type(system.f_type as u64 & 0xffff_ffff))
}

#[cfg(not(target_os = "linux"))]
fn is_remote(_file: &File) -> bool {
    false
}

/// Whether `statfs(2)` uses this number for a network file system or for FUSE.
#[cfg(target_os = "linux")]
fn is_remote_type(number: u64) -> bool {
    const REMOTE: [u64; 15] = [
        0x6969,      // NFS
        0x517b,      // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB 2
        0x564c,      // NCP
        0x5346_414f, // AFS
        0x6b41_4653, // kAFS
        0x7375_7245, // Coda
        0x00c3_6400, // Ceph
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
        0x1983_0326, // BeeGFS
        0x2003_0528, // OrangeFS
        0x0102_1997, // 9P
        0x6573_5546, // FUSE: sshfs, s3fs, gcsfuse, virtiofs
    ];
    REMOTE.contains(&number)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn files_on_network_file_systems_are_read_and_others_mapped() {
        assert!([0x6969, 0xff53_4d42, 0x0bd0_0bd0, 0x6573_5546].into_iter().all(is_remote_type));
        // ext4, XFS, Btrfs, tmpfs, overlayfs.
        assert!(
            ![0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630].into_iter().any(is_remote_type)
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn the_requested_access_is_used() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Access::Read.of(&file), Reading::Read);
        assert_eq!(Access::Mapped.of(&file), Reading::Mapped);
        assert_eq!(Access::Auto.of(&file), Reading::Mapped, "the folder for temporary files is local");
    }
}
