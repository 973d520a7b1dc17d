//! The memory of rings that other processes of this machine can map.
//!
//! Each batch of a ring has a file in memory of its own, without a name. Who has its descriptor can map it,
//! and only read: the file is sealed, so that nobody changes its length, and nobody but this process writes
//! it. What a client may read for longer than it is lent is not written again: before the batch goes back to
//! its ring, its addresses get another file.

#![expect(unsafe_code, reason = "memory that a file backs is shared on a promise")]

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;
use percolator::DeviceError;
use percolator::device::{Backend, Capacity, Device, Event, HostBatch, HostMemory, PageMemory, Transfer};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The regions of all rings of a server, by their addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    all: Arc<Mutex<Vec<Region>>>,
    /// Whether anybody may ask for them: only clients at a Unix socket can.
    is_wanted: bool,
}

/// A piece of memory that another process can map.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// A number that no other region of this process has had.
    pub(super) number: u64,
    pub(super) file: Arc<OwnedFd>,
    /// The number of the memory's first region. Its addresses would not do: what a failed map leaves free may
    /// be somebody else's.
    owner: u64,
    start: usize,
    pub(super) length: usize,
    /// Whether a client may go on reading it when the batch goes back to its ring.
    is_kept: bool,
}

/// Where bytes are in a region.
#[derive(Clone, Debug)]
pub(super) struct Within {
    pub(super) region: Region,
    pub(super) offset: usize,
}

impl Regions {
    /// Those of a server that has clients on this machine, or has none.
    pub(super) fn new(is_wanted: bool) -> Self {
        Regions { all: Arc::default(), is_wanted }
    }

    /// The host, with memory that is in one of these regions where somebody wants it and the system can do
    /// that.
    pub(super) fn device(&self, number: usize) -> Device {
        match self.is_wanted {
            true => Device::from_backend(Arc::new(SharedHost { number, regions: self.clone() })),
            // Such memory comes in larger pages, and takes no descriptors.
            false => Device::host(number),
        }
    }

    /// A client may go on reading this region, although its batch is no longer lent.
    pub(super) fn keep(&self, number: u64) {
        if let Some(region) = self.all.lock().iter_mut().find(|region| region.number == number) {
            region.is_kept = true;
        }
    }

    /// Takes the numbers out that no region has any more.
    pub(super) fn take_gone(&self, known: &mut HashSet<u64>) -> Vec<u64> {
        let regions = self.all.lock();
        known.extract_if(|number| !regions.iter().any(|region| region.number == *number)).collect()
    }

    /// Puts other memory at the addresses of a region that a client may go on reading, if it is one.
    ///
    /// # Safety
    ///
    /// Nothing refers to the bytes of the region that starts there, and nothing does before this returns.
    /// After an error, nothing ever does: there may be no memory any more.
    unsafe fn renew(&self, start: usize) -> io::Result<()> {
        let mut regions = self.all.lock();
        let at = regions.iter().position(|region| region.start == start && region.is_kept);
        let Some(at) = at else { return Ok(()) };
        let length = regions[at].length;
        let file = memory_file(length)?;
        let (place, access) = (ptr::without_provenance_mut(start), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: these are the pages of a map of this module, whose owner keeps them for as long as it is in
        // the list, and the caller promises that nothing refers to them. The file has as many bytes; that
        // nobody else writes it or changes its length is as for the first one, in `SharedMemory::new`.
        let mapped =
            unsafe { rustix::mm::mmap(place, length, access, MapFlags::SHARED | MapFlags::FIXED, &file, 0) };
        // Without an entry, the owner does not unmap what may no longer be its own.
        let region = regions.swap_remove(at);
        mapped?;
        // SAFETY: advice changes no byte of this map.
        if let Err(error) = unsafe { rustix::mm::madvise(place, length, Advice::LinuxHugepage) } {
            tracing::trace!(%error, "no huge pages; using ordinary ones");
        }
        seal(&file)?;
        regions.push(Region { number: next_number(), file: Arc::new(file), is_kept: false, ..region });
        Ok(())
    }

    /// Where these bytes are, if another process can map them.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<Within> {
        let start = bytes.as_ptr().addr();
        let regions = self.all.lock();
        let is_in = |region: &&Region| {
            let offset = start.checked_sub(region.start);
            offset.is_some_and(|offset| offset <= region.length && bytes.len() <= region.length - offset)
        };
        let region = regions.iter().find(is_in)?;
        Some(Within { offset: start - region.start, region: region.clone() })
    }
}

/// The host, as the end of a lane whose clients may be other processes.
#[derive(Debug)]
struct SharedHost {
    number: usize,
    regions: Regions,
}

impl Backend for SharedHost {
    fn name(&self) -> String {
        format!("host:{}", self.number)
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        match SharedMemory::new(bytes, &self.regions) {
            Ok(memory) => return Ok(Box::new(memory)),
            Err(error) => tracing::debug!(%error, "memory that other processes cannot map is used instead"),
        }
        let failed = |error: io::Error| DeviceError::OutOfMemory {
            device: self.name(),
            bytes,
            message: error.to_string(),
        };
        PageMemory::new(bytes).map(|memory| Box::new(memory) as Box<dyn HostMemory>).map_err(failed)
    }

    fn transfer(&self, _capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(InPlace { device: self.name(), regions: self.regions.clone(), submitted: None }))
    }
}

/// A batch stays where it was written, until it goes back.
#[derive(Debug)]
struct InPlace {
    device: String,
    regions: Regions,
    /// Where the batch that was submitted last starts, and its bytes.
    submitted: Option<(usize, usize)>,
}

impl Event for InPlace {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Transfer for InPlace {
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError> {
        let memory = batch.memory();
        self.submitted = Some((memory.as_ptr().addr(), memory.len()));
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        self
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        let Some((start, bytes)) = self.submitted.take() else { return Ok(()) };
        // SAFETY: the consumer has dropped the batch, so nothing refers to its memory, and the lane lets
        // nobody write there before this returns. After an error, it never uses the memory again.
        unsafe { self.regions.renew(start) }.map_err(|error| DeviceError::OutOfMemory {
            device: self.device.clone(),
            bytes,
            message: error.to_string(),
        })
    }

    fn last_use(&self) -> &dyn Event {
        self
    }
}

/// Memory with a descriptor.
struct SharedMemory {
    /// `Some` until the drop.
    map: Option<MmapMut>,
    /// That of its [`Region`].
    owner: u64,
    start: usize,
    length: usize,
    regions: Regions,
}

impl SharedMemory {
    fn new(bytes: usize, regions: &Regions) -> io::Result<Self> {
        // An empty file cannot be mapped.
        let length = bytes.max(1);
        let file = memory_file(length)?;
        // SAFETY: nobody else has the descriptor yet; when others get it, the seals below keep them from
        // writing and from changing the length. That others read while this process writes is their loss:
        // they are told when a batch is theirs, and what they have not released is not written.
        let mut map = unsafe { MmapOptions::new().len(length).map_mut(&file) }?;
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::trace!(%error, "no huge pages; using ordinary ones");
        }
        seal(&file)?;
        let (start, number) = (map.as_mut_ptr().addr(), next_number());
        let region = Region { number, file: Arc::new(file), owner: number, start, length, is_kept: false };
        regions.all.lock().push(region);
        Ok(SharedMemory { map: Some(map), owner: number, start, length, regions: regions.clone() })
    }
}

/// A file of zeros, in memory and without a name.
fn memory_file(length: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older systems than Linux 6.3 do not know the seal against execution.
    let file = rustix::fs::memfd_create("percolator", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create("percolator", flags))?;
    rustix::fs::ftruncate(&file, length as u64)?;
    Ok(file)
}

/// Keeps everybody from changing its length, and from writing it by another map than those that there are.
fn seal(file: &OwnedFd) -> io::Result<()> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(file, seals)?)
}

fn next_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("start", &self.start).field("bytes", &self.length).finish()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let mut regions = self.regions.all.lock();
        match regions.iter().position(|region| region.owner == self.owner) {
            Some(at) => {
                regions.swap_remove(at);
            }
            // It could not be renewed: the addresses may be free, or somebody else's by now.
            None => std::mem::forget(self.map.take()),
        }
    }
}

// SAFETY: the map starts on a page, is zeroed, and does not move until the value is dropped. No other process
// can write it, and within this one it belongs to this value alone: what is renewed has the same addresses.
unsafe impl HostMemory for SharedMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.as_mut().expect("it is there until the drop").as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SharedMemory {
        fn bytes(&mut self) -> &mut [u8] {
            self.map.as_mut().unwrap()
        }
    }

    fn found(regions: &Regions, memory: &mut SharedMemory) -> Within {
        regions.find(memory.bytes()).unwrap()
    }

    fn mapped(file: &OwnedFd) -> memmap2::Mmap {
        // SAFETY: the tests write the memory only between their own reads.
        unsafe { MmapOptions::new().len(5000).map(file) }.unwrap()
    }

    #[test]
    fn bytes_are_found_where_they_are() {
        let regions = Regions::new(true);
        let mut memories: Vec<_> = (0..3).map(|_| SharedMemory::new(10_000, &regions).unwrap()).collect();
        let mut numbers = HashSet::new();
        for memory in &mut memories {
            let found = regions.find(&memory.bytes()[100..300]).unwrap();
            assert_eq!((found.region.start, found.region.length), (memory.start, 10_000));
            assert_eq!((found.offset, regions.find(memory.bytes()).unwrap().offset), (100, 0));
            assert!(numbers.insert(found.region.number), "a number twice");
        }
        assert!(regions.find(&[0; 8]).is_none() && regions.take_gone(&mut numbers).is_empty());
        let gone = found(&regions, &mut memories[1]).region.number;
        drop(memories.remove(1));
        assert_eq!((regions.take_gone(&mut numbers), numbers.len()), (vec![gone], 2));
    }

    #[test]
    fn others_read_what_is_written_and_cannot_change_it() {
        let regions = Regions::new(true);
        let mut memory = SharedMemory::new(5000, &regions).unwrap();
        let file = found(&regions, &mut memory).region.file;
        memory.bytes()[4999] = 7;
        let theirs = mapped(&file);
        assert_eq!(theirs[4999], 7);
        memory.bytes()[4999] = 8;
        assert_eq!(theirs[4999], 8);
        // SAFETY: it is refused.
        assert!(unsafe { MmapOptions::new().len(5000).map_mut(&*file) }.is_err());
        assert!(rustix::fs::ftruncate(&*file, 1).is_err() && rustix::fs::ftruncate(&*file, 9000).is_err());
        drop(memory);
        assert_eq!(theirs[4999], 8, "a map outlives the memory that it is of");
    }

    #[test]
    fn what_a_client_keeps_is_not_written_again() {
        let regions = Regions::new(true);
        let mut memory = SharedMemory::new(5000, &regions).unwrap();
        let (start, first) = (memory.start, found(&regions, &mut memory).region);
        memory.bytes()[4999] = 7;
        let theirs = mapped(&first.file);
        // SAFETY: nothing refers to the memory.
        unsafe { regions.renew(start) }.unwrap();
        memory.bytes()[4999] = 8;
        assert_eq!((theirs[4999], found(&regions, &mut memory).region.number), (8, first.number));

        regions.keep(first.number);
        // SAFETY: as above.
        unsafe { regions.renew(start) }.unwrap();
        let second = found(&regions, &mut memory).region;
        assert_eq!((memory.bytes()[4999], second.length), (0, 5000));
        assert_ne!(second.number, first.number);
        memory.bytes()[4999] = 9;
        assert_eq!((theirs[4999], mapped(&second.file)[4999]), (8, 9));
        // SAFETY: it is refused.
        assert!(unsafe { MmapOptions::new().len(5000).map_mut(&*second.file) }.is_err());
        // Once is enough.
        // SAFETY: as above.
        unsafe { regions.renew(start) }.unwrap();
        assert_eq!(found(&regions, &mut memory).region.number, second.number);
        drop(memory);
        assert!(regions.all.lock().is_empty());
    }

    #[test]
    fn who_has_no_clients_here_has_plain_memory() {
        let (plain, shared) = (Regions::new(false), Regions::new(true));
        assert_eq!(plain.device(3).name(), shared.device(3).name());
        let host = SharedHost { number: 3, regions: shared.clone() };
        let mut memory = host.host_memory(100).unwrap();
        assert!(memory.len() >= 100 && memory.as_mut_ptr().addr().is_multiple_of(4096));
        assert_eq!(shared.all.lock().len(), 1);
    }
}
