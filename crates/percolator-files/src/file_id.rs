//! The identity of a file, independent of its path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// A file's device and inode. No other file has them while this one is open or mapped; once it is gone, the
/// next file may get its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the identity of the file with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// What must be unchanged when a file is opened again by its path. A file that was removed and recreated may
/// have the same inode and length, but hardly the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Which file it is.
    pub id: FileId,
    /// Its length.
    pub bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileState {
    /// Returns the state of the file with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        FileState { id: FileId::of(metadata), bytes: metadata.len(), modified }
    }

    /// Whether this may be the file that was in the other state: some file systems in user space renumber
    /// their files.
    #[must_use]
    pub fn is_like(self, other: Self) -> bool {
        (self.bytes, self.modified) == (other.bytes, other.modified)
    }
}
