//! Host memory that batches are written to.

#![expect(unsafe_code, reason = "what a device promises of its memory cannot be checked by the compiler")]

use std::fmt;
use std::io;

use memmap2::MmapMut;

/// Memory of the host that batches are written to and a device reads from.
///
/// A device provides its own kind (page-locked memory, say); [`PageMemory`] is the plain one.
///
/// # Safety
///
/// For as long as the value lives, wherever it is moved:
///
/// - `as_mut_ptr` returns the same address, a multiple of 4096;
/// - `len` bytes from there on are initialised, readable and writable, and belong to nobody else.
pub unsafe trait HostMemory: Send + Sync + fmt::Debug {
    /// The first byte.
    fn as_mut_ptr(&mut self) -> *mut u8;

    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// None at all: what stands in for memory while other memory is sought.
#[derive(Debug)]
pub(crate) struct NoMemory;

// SAFETY: the address is always the same, a multiple of 4096, and no byte is there.
unsafe impl HostMemory for NoMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        std::ptr::without_provenance_mut(4096)
    }

    fn len(&self) -> usize {
        0
    }
}

/// Zeroed, page-aligned memory of the process, in huge pages where the system gives them.
///
/// Its pages are not touched here: the first batch faults them in, spread over the workers, rather than
/// `build` on one thread.
pub struct PageMemory {
    map: MmapMut,
}

impl PageMemory {
    /// Reserves `bytes` bytes.
    ///
    /// # Errors
    ///
    /// What the operating system says if it has none left.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // An empty map is an error to the system; a page that nobody uses is not.
        let map = MmapMut::map_anon(bytes.max(1))?;
        #[cfg(target_os = "linux")]
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no huge pages; ordinary ones serve");
        }
        Ok(PageMemory { map })
    }

    /// All of it.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMemory").field("bytes", &self.map.len()).finish()
    }
}

// SAFETY: an anonymous map starts on a page, is zeroed, private to this value, and stays where it is until
// the value is dropped.
unsafe impl HostMemory for PageMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.map.len()
    }
}
