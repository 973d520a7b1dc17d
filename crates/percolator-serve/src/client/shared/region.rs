//! Memory of a server on the same machine, mapped to be read.

#![expect(unsafe_code, reason = "memory that another process writes is read on a promise")]

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::SealFlags;
use tokio::sync::mpsc::WeakUnboundedSender;

use crate::client::receive::Malformed;
use crate::local::FromClient;

/// A region of a server's memory.
pub(super) struct MappedRegion(Mmap);

impl fmt::Debug for MappedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRegion").field("bytes", &self.0.len()).finish()
    }
}

/// Why a region is not mapped.
#[derive(Debug)]
pub(super) enum RegionError {
    /// It is not what a server shares.
    Unfit(Malformed),
    System(io::Error),
}

impl MappedRegion {
    pub(super) fn new(file: &OwnedFd, bytes: usize) -> Result<Self, RegionError> {
        let unfit = |what: String| RegionError::Unfit(Malformed(what));
        // What is no file in memory has no seals.
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(unfit("memory that may become shorter while it is read".to_owned()));
        }
        let found = rustix::fs::fstat(file).map_err(|error| RegionError::System(error.into()))?.st_size;
        if bytes == 0 || u64::try_from(found).ok().is_none_or(|found| found < bytes as u64) {
            return Err(unfit(format!("a region of {bytes} bytes in memory of {found}")));
        }
        // SAFETY: the file has as many bytes, and never fewer: the seal cannot be taken off, and was there
        // before the length was looked at. So each byte of the map can be read for as long as there is one.
        // That it does not change while it is borrowed is the server's promise (see `local`): it says where a
        // batch is when that is written, and writes there again only if this client has released it. Bytes
        // are borrowed by `LentArray` alone, and the drop of the last one of a batch says the release.
        let map = unsafe { MmapOptions::new().len(bytes).map(file) }.map_err(RegionError::System)?;
        Ok(MappedRegion(map))
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// The memory of a batch, for as long as anybody reads it. Its drop releases it, on whatever thread that is,
/// and waits for nobody. If the connection has ended, nobody needs to be told.
#[derive(Debug)]
pub(crate) struct LentBatch {
    region: Arc<MappedRegion>,
    number: u64,
    releases: WeakUnboundedSender<FromClient>,
}

impl LentBatch {
    pub(super) fn new(
        region: Arc<MappedRegion>,
        number: u64,
        releases: WeakUnboundedSender<FromClient>,
    ) -> Self {
        LentBatch { region, number, releases }
    }

    /// The bytes of the region that it is in.
    pub(crate) fn region_bytes(&self) -> usize {
        self.region.bytes()
    }

    /// An array of the batch, which keeps its memory.
    pub(crate) fn buffer(self: &Arc<Self>, offset: usize, bytes: usize) -> Result<Buffer, Malformed> {
        let all = self.region_bytes();
        let end = offset.checked_add(bytes).filter(|&end| end <= all);
        let end = end.ok_or_else(|| {
            Malformed(format!("an array of {bytes} bytes at {offset} of a region of {all}"))
        })?;
        if bytes == 0 {
            // The address of nothing need not be aligned.
            return Ok(Buffer::default());
        }
        Ok(Buffer::from(Bytes::from_owner(LentArray { batch: self.clone(), place: offset..end })))
    }
}

impl Drop for LentBatch {
    fn drop(&mut self) {
        if let Some(releases) = self.releases.upgrade() {
            let _ = releases.send(FromClient::Released(self.number));
        }
    }
}

/// An array in the memory of a batch.
struct LentArray {
    batch: Arc<LentBatch>,
    /// Within the region.
    place: Range<usize>,
}

impl AsRef<[u8]> for LentArray {
    fn as_ref(&self) -> &[u8] {
        &self.batch.region.0[self.place.clone()]
    }
}
