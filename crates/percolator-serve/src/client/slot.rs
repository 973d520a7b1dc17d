//! Memory of received bodies: recycled, aligned for every type, and never refilled while it may be read.

use std::sync::Arc;

use arrow_buffer::{MutableBuffer, MutableBufferError};
use bytes::Bytes;
use parking_lot::Mutex;

/// The slots of a lane that nobody holds.
#[derive(Debug)]
pub(crate) struct BodyPool {
    free: Mutex<Free>,
    /// The most slots that are kept.
    kept_max: usize,
}

#[derive(Debug, Default)]
struct Free {
    memory: Vec<MutableBuffer>,
    /// The bytes of the largest body that came whole.
    largest: usize,
}

/// Memory of one body, while it is filled and for as long as anybody reads it. Dropping it gives the memory
/// back to its pool.
#[derive(Debug)]
pub(crate) struct BodySlot {
    memory: MutableBuffer,
    /// The bytes that the body is said to have.
    stated: usize,
    pool: Arc<BodyPool>,
}

impl BodyPool {
    pub(crate) fn new(kept_max: usize) -> Arc<Self> {
        Arc::new(BodyPool { free: Mutex::default(), kept_max })
    }

    /// A slot for a body that is said to have so many bytes.
    pub(crate) fn slot(self: &Arc<Self>, stated: usize) -> Result<BodySlot, MutableBufferError> {
        let (memory, largest) = {
            let mut free = self.free.lock();
            (free.memory.pop().unwrap_or_default(), free.largest)
        };
        // What a message says is not believed before it came; what came before probably comes again.
        let expected = stated.min(largest);
        let memory = match memory.capacity() < expected {
            true => MutableBuffer::try_with_capacity(expected)?,
            false => memory,
        };
        Ok(BodySlot { memory, stated, pool: self.clone() })
    }
}

impl BodySlot {
    /// Appends what came. There is never more than was stated.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), MutableBufferError> {
        let needed = self.memory.len() + bytes.len();
        debug_assert!(needed <= self.stated, "{needed} bytes of {}", self.stated);
        if needed > self.memory.capacity() {
            let doubled = self.memory.capacity().saturating_mul(2).min(self.stated);
            let mut larger = MutableBuffer::try_with_capacity(needed.max(doubled))?;
            larger.try_extend_from_slice(self.memory.as_slice())?;
            self.memory = larger;
        }
        self.memory.try_extend_from_slice(bytes)
    }

    /// The whole body. Its memory comes back when the last of its clones and slices is gone.
    pub(crate) fn into_bytes(self) -> Bytes {
        {
            let mut free = self.pool.free.lock();
            free.largest = free.largest.max(self.memory.len());
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for BodySlot {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_slice()
    }
}

impl Drop for BodySlot {
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.memory);
        memory.clear();
        let mut free = self.pool.free.lock();
        if memory.capacity() > 0 && free.memory.len() < self.pool.kept_max {
            free.memory.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_buffer::Buffer;

    fn filled(pool: &Arc<BodyPool>, byte: u8, length: usize) -> Bytes {
        let mut slot = pool.slot(length).unwrap();
        slot.extend(&vec![byte; length]).unwrap();
        slot.into_bytes()
    }

    #[test]
    fn memory_is_used_again_and_aligned() {
        let pool = BodyPool::new(2);
        let first = filled(&pool, 1, 1000);
        let place = first.as_ptr();
        assert_eq!(place.align_offset(64), 0);
        drop(first);
        let second = filled(&pool, 2, 900);
        assert_eq!((second.as_ptr(), &second[..]), (place, &[2; 900][..]));
        drop(second);
        // A larger body has memory of its own, which replaces the smaller one.
        drop(filled(&pool, 3, 5000));
        let free = pool.free.lock();
        assert_eq!((free.memory.len(), free.memory[0].capacity() >= 5000), (1, true));
    }

    #[test]
    fn memory_is_not_refilled_while_a_view_lives() {
        let pool = BodyPool::new(2);
        let first = filled(&pool, 1, 256);
        let view = Buffer::from(first.clone()).slice_with_length(64, 64);
        let copy = view.clone();
        drop((first, view));
        let second = filled(&pool, 2, 256);
        assert_ne!(second.as_ptr(), copy.as_ptr().wrapping_sub(64));
        assert_eq!(copy.as_slice(), [1; 64]);
        assert_eq!(pool.free.lock().memory.len(), 0);
        drop((second, copy));
        assert_eq!(pool.free.lock().memory.len(), 2);
    }

    #[test]
    fn no_more_than_asked_for_is_kept() {
        let pool = BodyPool::new(2);
        let held: Vec<_> = (0..5).map(|byte| filled(&pool, byte, 64)).collect();
        drop(held);
        assert_eq!(pool.free.lock().memory.len(), 2);
        // A slot that was given up halfway comes back as well; one that was never filled has no memory.
        let mut slot = pool.slot(64).unwrap();
        slot.extend(&[0; 7]).unwrap();
        drop(slot);
        assert_eq!(pool.free.lock().memory.len(), 2);
        let empty = BodyPool::new(2);
        drop(empty.slot(64).unwrap());
        assert_eq!(empty.free.lock().memory.len(), 0);
    }

    #[test]
    fn what_is_stated_is_not_allocated() {
        let pool = BodyPool::new(2);
        let mut slot = pool.slot(i32::MAX as usize).unwrap();
        slot.extend(&[1; 10]).unwrap();
        assert!(slot.memory.capacity() <= 128);
        // It grows by doubling, and never beyond what is stated.
        let mut slot = pool.slot(1000).unwrap();
        for _ in 0..100 {
            slot.extend(&[2; 10]).unwrap();
        }
        assert!((1000..=1024).contains(&slot.memory.capacity()), "{}", slot.memory.capacity());
        assert_eq!(slot.into_bytes(), [2; 1000][..]);
    }
}
