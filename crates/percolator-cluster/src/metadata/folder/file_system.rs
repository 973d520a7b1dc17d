//! Which file systems can be trusted with the folder.

use std::io;
use std::path::Path;

use rustix::fs::statfs;

use super::fault::Fault;

/// Refuses a file system that several machines may use at once, or that another process provides.
pub(super) fn check(folder: &Path) -> Result<(), Fault> {
    let number = statfs(folder).map_err(io::Error::from)?.f_type;
    let Some(name) = shared_file_system(number as u64 & 0xffff_ffff) else { return Ok(()) };
    Err(Fault::Denied(format!(
        "it is on {name}, and SQLite's log needs memory that all processes share, and locks that hold: use a \
         folder on a disk of this machine, or etcd"
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
        check(&std::env::temp_dir()).unwrap();
        let proc = statfs("/proc").unwrap().f_type;
        assert_eq!(shared_file_system(proc as u64), None);
    }
}
