//! What this machine can do at best, to be measured beside a feed: a rate says little without its limit.
//!
//! | function | limits |
//! |---|---|
//! | [`copy_bytes_per_second`] | memory that is read and written |
//! | [`store_bytes_per_second`] | memory that is only written, past the caches |
//! | [`fresh_bytes_per_second`] | memory that is new to the process |
//! | [`PageCache`] | files that are only read |
//! | [`decodes_per_second`] | encoded records |
//! | `CudaDevice::copy_rate` | page-locked memory that is copied to a GPU |
//!
//! Each function takes about as long as requested. It allocates the memory that it needs and frees it again,
//! unlike a feed, which keeps its memory. If there is not enough memory, or a thread cannot be started, the
//! rate is 0.

mod copy;
mod decode;
mod fresh;
mod read;
mod store;
mod together;

use percolator::device::PageMemory;

pub use copy::copy_bytes_per_second;
pub use decode::decodes_per_second;
pub use fresh::fresh_bytes_per_second;
pub use read::PageCache;
pub use store::store_bytes_per_second;

/// What one of `threads` threads copies from, copies to or writes: memory as a batch has it, touched. It is
/// far larger than the thread's share of any cache, including those that only some processors have. `None` if
/// there is no memory for it.
fn buffer(threads: usize) -> Option<PageMemory> {
    /// How much is copied at a time: several times the size of a last-level cache.
    const COPY_BYTES: usize = 128 << 20;
    const THREAD_BYTES_MIN: usize = 32 << 20;

    let mut memory = PageMemory::new((COPY_BYTES / threads.max(1)).max(THREAD_BYTES_MIN)).ok()?;
    memory.bytes_mut().fill(1);
    Some(memory)
}
