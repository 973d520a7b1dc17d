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
//! beside them is not. Where there is no memory for one, or no thread can be started, its rate is 0.

mod copy;
mod decode;
mod fresh;
mod read;
mod store;
mod together;

use crate::batch::memory::PageMemory;

pub use copy::{copy_bytes_per_second, copy_bytes_per_second_of};
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
    /// For one of so many threads, which touches it by making it. None where there is no memory for it.
    fn new(threads: usize) -> Option<Self> {
        const THREAD_BYTES_MIN: usize = 32 << 20;

        Self::of((COPY_BYTES / threads.max(1)).max(THREAD_BYTES_MIN))
    }

    /// Of so many bytes.
    fn of(bytes: usize) -> Option<Self> {
        let ordinary = || {
            let mut memory = Vec::new();
            memory.try_reserve_exact(bytes).ok()?;
            memory.resize(bytes, 0);
            Some(Buffer::Ordinary(memory))
        };
        let mut buffer = PageMemory::new(bytes).ok().map(Buffer::Huge).or_else(ordinary)?;
        buffer.bytes().fill(1);
        Some(buffer)
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
