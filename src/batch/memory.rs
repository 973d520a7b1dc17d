//! The host memory that batches are written to.

#![expect(unsafe_code, reason = "the compiler cannot check a device's promises about its memory")]

use std::fmt;
use std::io;

#[cfg(not(miri))]
use memmap2::MmapMut;

use crate::base::cache_lines::{self, Page};

/// Host memory that batches are written to and a device reads from.
///
/// A device provides its own kind, such as page-locked memory; [`PageMemory`] is the plain kind.
///
/// # Safety
///
/// For as long as the value lives, wherever it is moved:
///
/// - `as_mut_ptr` returns the same address, a multiple of 4096;
/// - `len` bytes from there on are initialised, readable and writable, and belong to nobody else.
pub unsafe trait HostMemory: Send + Sync + fmt::Debug {
    /// Returns the address of the first byte.
    fn as_mut_ptr(&mut self) -> *mut u8;

    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// No memory: stands in while other memory is obtained.
#[derive(Debug)]
pub(crate) struct NoMemory;

// SAFETY: the address is always the same, a multiple of 4096, and it has no bytes.
unsafe impl HostMemory for NoMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        std::ptr::without_provenance_mut(4096)
    }

    fn len(&self) -> usize {
        0
    }
}

/// Zeroed, page-aligned memory of the process, in huge pages if the system provides them.
///
/// Its pages are not touched here: the first batch faults them in on all workers, instead of `build` on one
/// thread.
pub struct PageMemory {
    map: MmapMut,
}

impl PageMemory {
    /// Reserves `bytes` bytes of zeroed memory.
    ///
    /// # Errors
    ///
    /// The operating system's error if it has no memory left.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // The system rejects an empty map, but not an unused page.
        let map = MmapMut::map_anon(bytes.max(1))?;
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no huge pages; using ordinary ones");
        }
        Ok(PageMemory { map })
    }

    /// All bytes of the memory. The first use of a page takes it from the system.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Writes this value to every byte as fast as the processor can: past the caches on x86-64.
    pub fn fill_past_caches(&mut self, value: u8) {
        cache_lines::fill_past_caches(self.bytes_mut(), &Page::filled(value));
    }
}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMemory").field("bytes", &self.map.len()).finish()
    }
}

// SAFETY: an anonymous map starts on a page, is zeroed, is private to this value, and does not move until the
// value is dropped.
unsafe impl HostMemory for PageMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.map.len()
    }
}

/// Heap pages instead of a map, which Miri does not have.
#[cfg(miri)]
struct MmapMut(Vec<HeapPage>);

#[cfg(miri)]
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct HeapPage([u8; 4096]);

#[cfg(miri)]
impl MmapMut {
    fn map_anon(bytes: usize) -> io::Result<Self> {
        Ok(MmapMut(vec![HeapPage([0; 4096]); bytes.div_ceil(4096)]))
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// Makes no reference to the bytes, which another thread may be writing.
    fn len(&self) -> usize {
        self.0.len() * 4096
    }
}

#[cfg(miri)]
impl std::ops::Deref for MmapMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are contiguous, and their bytes are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 4096) }
    }
}

#[cfg(miri)]
impl std::ops::DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 4096) }
    }
}
