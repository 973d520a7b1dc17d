//! Host memory that batches are written to.

#![expect(unsafe_code, reason = "what a device promises of its memory cannot be checked by the compiler")]

use std::fmt;
use std::io;

#[cfg(not(miri))]
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
        #[cfg(all(target_os = "linux", not(miri)))]
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

/// What stands in for a map under Miri, which has none: pages of the heap.
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

    /// Without a reference to the bytes, which somebody may be writing.
    fn len(&self) -> usize {
        self.0.len() * 4096
    }
}

#[cfg(miri)]
impl std::ops::Deref for MmapMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages lie one behind the other, and their bytes are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 4096) }
    }
}

#[cfg(miri)]
impl std::ops::DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; they are borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 4096) }
    }
}
