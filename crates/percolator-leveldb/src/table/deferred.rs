//! Deferred checksums: how a block is verified after a cursor has entered it.
//!
//! Verifying a block means reading all of it. A thread on another processor that soon uses the block's values
//! reads it there anyway. So a cursor may leave the verification to that thread: it provides the block's
//! deferred checksum with an entry.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use percolator_files::checksum::masked_crc32c;

use super::error::TableError;

/// Where a block is, and the checksum that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredChecksum {
    /// Where in the file the block starts.
    offset: usize,
    /// Its length without type and checksum.
    bytes: usize,
    /// The masked checksum stored after the block, of the block and its type.
    stored: u32,
}

impl DeferredChecksum {
    pub(crate) fn new(block: &Range<usize>, stored: u32) -> Self {
        DeferredChecksum { offset: block.start, bytes: block.len(), stored }
    }

    /// Verifies the block. `following` is how many bytes after it in the file are probably needed next.
    ///
    /// # Errors
    ///
    /// [`TableError::Checksum`] if the block is damaged.
    pub fn check(&self, file: &[u8], following: usize) -> Result<(), TableError> {
        let DeferredChecksum { offset, bytes, stored } = *self;
        let kind = offset.saturating_add(bytes);
        let next = kind.saturating_add(super::block::TRAILER_BYTES);
        let covered = file.get(offset..=kind).unwrap_or_default();
        let following = file.get(next..next.saturating_add(following)).unwrap_or_default();
        let found = masked_crc32c(covered, following);
        if found == stored { Ok(()) } else { Err(TableError::Checksum { offset, bytes, found, stored }) }
    }
}

/// The deferred checksum of a cursor's current block, and whether someone has taken over its verification.
#[derive(Debug)]
pub struct Unverified {
    checksum: DeferredChecksum,
    is_taken: AtomicBool,
}

impl Unverified {
    pub(crate) fn new(checksum: DeferredChecksum) -> Self {
        Unverified { checksum, is_taken: AtomicBool::new(false) }
    }

    /// Returns the deferred checksum without taking over the verification.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> DeferredChecksum {
        self.checksum
    }

    /// Returns the deferred checksum and takes over the verification. The caller must verify the block before
    /// using any of its bytes; the cursor then need not.
    #[inline]
    #[must_use]
    pub fn take(&self) -> DeferredChecksum {
        // Relaxed: the cursor that reads this is on the thread that takes it.
        self.is_taken.store(true, Ordering::Relaxed);
        self.checksum
    }

    /// Returns whether someone has taken over the verification.
    #[inline]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }
}

/// When a cursor verifies uncompressed blocks. It verifies compressed blocks when it enters them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// When it enters them.
    AtOnce,
    /// When it leaves them, unless someone [took](Unverified::take) the deferred checksum. Shorter blocks are
    /// verified on entry.
    ByTheUser {
        /// The shortest block whose checksum is deferred. For a shorter block, passing the deferred checksum
        /// on costs more than verifying the block.
        block_bytes_min: usize,
    },
}
