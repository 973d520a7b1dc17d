//! Raw memory: every byte that the stand-in reads or writes on behalf of a device goes through here.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
/// NVIDIA's driver cuts small pieces of pinned memory out of larger ones (seen with 580.159.04: 138,432 bytes
/// that began within a page). Here, a piece of fewer bytes than this begins `WITHIN_A_PAGE`.
const SMALL: usize = 1 << 20;
const WITHIN_A_PAGE: usize = 512;
/// The value of uninitialised memory.
const UNWRITTEN: u8 = 0xCD;

// From libc, which std links; a crate for it would be the driver's only dependency.
unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        len: usize,
        protect: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
}
const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x02 | 0x20;
const MAP_FIXED: c_int = 0x10;
const MAP_NORESERVE: c_int = 0x4000;

/// Where the bytes come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Heap(Layout),
    /// Pages that fault once they are freed, and whose addresses are not reused.
    Pages {
        first: usize,
        bytes: usize,
    },
    Foreign,
}

/// A range of this process's memory that operations in flight share.
///
/// 1. Memory from the heap, and pages, live as long as the value: every holder of the `Arc` may read and
///    write it.
/// 2. Foreign memory belongs to the caller of the driver, who promises, as CUDA demands, that it lives until
///    the operations on it end; `revoked` is set if the caller takes it back before.
#[derive(Debug)]
pub(crate) struct Storage {
    start: usize,
    len: usize,
    source: Source,
    revoked: AtomicBool,
}

impl Storage {
    /// `None` if the process cannot allocate that much.
    pub(crate) fn owned(len: usize) -> Option<Storage> {
        let layout = Layout::from_size_align(len.max(1), PAGE).ok()?;
        // SAFETY: the layout's size is at least 1.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: `layout.size()` bytes from `start` on were just allocated.
        unsafe { start.write_bytes(UNWRITTEN, layout.size()) };
        let revoked = AtomicBool::new(false);
        Some(Storage { start: start as usize, len, source: Source::Heap(layout), revoked })
    }

    /// For pinned memory, which the host may access: after it is freed, an access faults.
    pub(crate) fn pages(len: usize) -> Option<Storage> {
        let within = if len < SMALL { WITHIN_A_PAGE } else { 0 };
        let bytes = len.max(1).checked_add(within)?.checked_next_multiple_of(PAGE)?;
        // SAFETY: the kernel chooses addresses that are free.
        let first =
            unsafe { mmap(std::ptr::null_mut(), bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
        if first.addr() == usize::MAX {
            return None;
        }
        // SAFETY: `bytes` bytes from `first` on were just mapped.
        unsafe { first.cast::<u8>().write_bytes(UNWRITTEN, bytes) };
        let first = first as usize;
        let revoked = AtomicBool::new(false);
        Some(Storage { start: first + within, len, source: Source::Pages { first, bytes }, revoked })
    }

    /// The caller's memory: see invariant 2.
    pub(crate) fn foreign(start: usize, len: usize) -> Storage {
        Storage { start, len, source: Source::Foreign, revoked: AtomicBool::new(false) }
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Whether the memory stays, whatever the caller does.
    pub(crate) fn is_ours(&self) -> bool {
        !matches!(self.source, Source::Foreign)
    }

    /// The caller takes foreign memory back: from now on, no operation touches it.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    fn is_readable(&self) -> bool {
        !self.revoked.load(Ordering::Acquire)
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "checked at submission");
    }

    /// A checksum that changes, almost surely, when a byte of the range changes.
    pub(crate) fn checksum(&self, offset: usize, len: usize) -> u64 {
        self.check(offset, len);
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        if !self.is_readable() {
            return sum;
        }
        let start = self.start + offset;
        for word in 0..len / 8 {
            // SAFETY: the word is inside the range, which is alive (invariants 1 and 2). Another thread may
            // write it: the purpose is to notice that, so the read is volatile and its value is only
            // compared.
            let value = unsafe { ((start + word * 8) as *const [u8; 8]).read_volatile() };
            sum = (sum ^ u64::from_le_bytes(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        for byte in len / 8 * 8..len {
            // SAFETY: as above.
            let value = unsafe { ((start + byte) as *const u8).read_volatile() };
            sum = (sum ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        sum
    }

    /// Copies a range of `self` to `to`; does nothing if one of them was taken back.
    pub(crate) fn copy_to(&self, offset: usize, to: &Storage, to_offset: usize, len: usize) {
        self.check(offset, len);
        to.check(to_offset, len);
        if self.is_readable() && to.is_readable() {
            let from = (self.start + offset) as *const u8;
            // SAFETY: both ranges were checked and are alive (invariants 1 and 2); `copy` lets them overlap.
            unsafe { from.copy_to((to.start + to_offset) as *mut u8, len) };
        }
    }

    pub(crate) fn fill(&self, offset: usize, value: u8, len: usize) {
        self.check(offset, len);
        if self.is_readable() {
            // SAFETY: the range was checked and is alive (invariants 1 and 2).
            unsafe { ((self.start + offset) as *mut u8).write_bytes(value, len) };
        }
    }

    /// Reads a number of 1, 2, 4 or 8 bytes; 0 if the memory was taken back.
    pub(crate) fn load(&self, offset: usize, len: u8) -> u64 {
        self.check(offset, usize::from(len));
        let mut bytes = [0; 8];
        if self.is_readable() {
            let from = (self.start + offset) as *const u8;
            // SAFETY: the range was checked and is alive (invariants 1 and 2), and `bytes` has room for it.
            unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), usize::from(len.min(8))) };
        }
        u64::from_le_bytes(bytes)
    }

    /// Writes the lowest 1, 2, 4 or 8 bytes of a number.
    pub(crate) fn store(&self, offset: usize, len: u8, value: u64) {
        self.check(offset, usize::from(len));
        let bytes = value.to_le_bytes();
        if self.is_readable() {
            let to = (self.start + offset) as *mut u8;
            // SAFETY: the range was checked and is alive (invariants 1 and 2), and `bytes` is as long.
            unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, usize::from(len.min(8))) };
        }
    }

    /// A copy in memory of this library.
    pub(crate) fn staged(&self, len: usize) -> Option<Storage> {
        let staged = Storage::owned(len)?;
        self.copy_to(0, &staged, 0, len);
        Some(staged)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        match self.source {
            Source::Foreign => {}
            Source::Heap(layout) => {
                // SAFETY: allocated with this layout in `owned`, and dropped once.
                unsafe { dealloc(self.start as *mut u8, layout) };
            }
            Source::Pages { first, bytes } => {
                let flags = MAP_PRIVATE_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
                // SAFETY: the pages were mapped in `pages`, and nothing in here uses them any more. Mapping
                // over them frees them and reserves their addresses.
                unsafe { mmap(first as *mut c_void, bytes, PROT_NONE, flags, -1, 0) };
            }
        }
    }
}

/// Copies a text that C passes.
pub(crate) fn text(at: *const c_char) -> Option<String> {
    if at.is_null() {
        return None;
    }
    // SAFETY: C passes a text that ends with NUL, as each symbol that takes one demands.
    let text = unsafe { CStr::from_ptr(at) };
    Some(text.to_string_lossy().into_owned())
}

/// Writes a text and its NUL, cut to the capacity.
pub(crate) fn write_text(text: &str, at: *mut c_char, capacity: usize) {
    if at.is_null() || capacity == 0 {
        return;
    }
    let len = text.len().min(capacity - 1);
    // SAFETY: C passes `capacity` writable bytes, and `len` is less than that.
    unsafe { text.as_ptr().copy_to_nonoverlapping(at.cast(), len) };
    // SAFETY: as above.
    unsafe { at.cast::<u8>().wrapping_add(len).write(0) };
}

/// Copies the arguments of a kernel, whose sizes its signature gives.
pub(crate) fn arguments(at: *const *const u8, sizes: &[usize]) -> Vec<Vec<u8>> {
    let argument = |(index, &size): (usize, &usize)| {
        // SAFETY: the launch passes as many pointers as the kernel has parameters.
        let argument = unsafe { at.wrapping_add(index).read() };
        let mut copy = vec![0; size];
        // SAFETY: and each points to a value of that parameter's type, whose size the signature gives.
        unsafe { argument.copy_to_nonoverlapping(copy.as_mut_ptr(), size) };
        copy
    };
    sizes.iter().enumerate().map(argument).collect()
}
