//! A block's seal: what it takes to verify a block that was entered before it was verified.
//!
//! To verify a block is to read all of it. Whoever uses its values soon, on another processor, reads it there
//! anyway. So a walk may leave the verifying to them, by the seal that it hands out with an entry.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::checksum::masked_crc32c;
use super::error::TableError;

/// Where a block lies, and the checksum that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredChecksum {
    /// Where in the file the block starts.
    offset: usize,
    /// Its length without type and checksum.
    bytes: usize,
    /// The masked checksum that was written behind it, of the block and its type.
    stored: u32,
}

impl DeferredChecksum {
    pub(crate) fn new(block: &Range<usize>, stored: u32) -> Self {
        DeferredChecksum { offset: block.start, bytes: block.len(), stored }
    }

    /// Verifies the block. `following` is how many of the file's bytes behind it are probably wanted next.
    ///
    /// # Errors
    ///
    /// [`TableError::Checksum`] if it is not what was written.
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

/// The seal of a block that a walk is in, and whether somebody took it over.
#[derive(Debug)]
pub struct Unverified {
    checksum: DeferredChecksum,
    is_taken: AtomicBool,
}

impl Unverified {
    pub(crate) fn new(checksum: DeferredChecksum) -> Self {
        Unverified { checksum, is_taken: AtomicBool::new(false) }
    }

    /// The seal, for whoever only looks at it.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> DeferredChecksum {
        self.checksum
    }

    /// The same, for whoever verifies the block before they use a byte of it. A walk need not do it then.
    #[inline]
    #[must_use]
    pub fn take(&self) -> DeferredChecksum {
        // Relaxed: the walk that asks is on the thread that takes.
        self.is_taken.store(true, Ordering::Relaxed);
        self.checksum
    }

    /// Whether somebody took it over.
    #[inline]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }
}

/// When a walk verifies the blocks that are not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// When it enters them.
    AtOnce,
    /// When it leaves them, unless somebody [took](Unverified::take) their seal; shorter ones when it enters them.
    ByTheUser {
        /// The length from which on a block is sealed: of a shorter one, its seal costs whoever hands it on more than
        /// to verify it.
        block_bytes_min: usize,
    },
}
