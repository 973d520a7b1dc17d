//! The identity of a file, independent of its path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// A file's device and inode. A file that replaced another one has a different id.
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
