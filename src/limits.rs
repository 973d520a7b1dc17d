//! What this machine can do at best, measured beside what a feed does: a rate without its limit says
//! little.
//!
//! | limit | what it is a limit of |
//! |---|---|
//! | [`copy_bytes_per_second`] | memory that is read and written |
//! | [`store_bytes_per_second`] | memory that is only written, past the caches |
//! | [`fresh_bytes_per_second`] | memory that is new to the process |
//! | [`PageCache`] | files that are only read |
//! | [`decodes_per_second`] | encoded records |
//! | `CudaDevice::copy_rate` | page-locked memory that is copied to a GPU |
//!
//! Each takes about the time that it is given, and allocates what it needs and frees it: a feed that is measured
//! beside them is not.

mod copy;
mod decode;
mod fresh;
mod read;
mod store;
mod together;

use crate::memory::PageMemory;

pub use copy::copy_bytes_per_second;
pub use decode::decodes_per_second;
pub use fresh::fresh_bytes_per_second;
pub use read::PageCache;
pub use store::store_bytes_per_second;

/// What one of `threads` threads copies from, copies to or writes: far more than its share of any cache, those that
/// only some processors have among them; and in pages as a batch is.
enum Buffer {
    Huge(PageMemory),
    Ordinary(Vec<u8>),
}

impl Buffer {
    /// Touched by the thread that makes it.
    fn new(threads: usize) -> Self {
        const THREAD_BYTES_MIN: usize = 32 << 20;

        let bytes = (COPY_BYTES / threads.max(1)).max(THREAD_BYTES_MIN);
        let mut buffer =
            PageMemory::new(bytes).map_or_else(|_| Buffer::Ordinary(vec![0; bytes]), Buffer::Huge);
        buffer.bytes().fill(1);
        buffer
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Buffer::Huge(memory) => memory.bytes_mut(),
            Buffer::Ordinary(memory) => memory,
        }
    }
}

/// How much is copied in one go: several times what a last-level cache holds.
const COPY_BYTES: usize = 128 << 20;
