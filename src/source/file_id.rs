//! A file, whatever it is called.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Its device and its inode: a file that was put in another's place is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}
