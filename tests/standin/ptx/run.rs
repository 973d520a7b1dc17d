//! Runs every thread of a grid, one after another.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::parse::Entry;
use super::steps::Step;
use crate::abi::{Code, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, MISALIGNED_ADDRESS};
use crate::bytes::Storage;

/// The most steps of a thread: one that takes more is considered endless.
const STEPS_MAX: u32 = 1 << 26;
/// A look at the clock counts as this many steps, and takes some time: a thread that waits neither burns the
/// processor that the host's threads need, nor uses up its steps in less than a second.
const STEPS_OF_A_LOOK: u32 = 1 << 10;
const LOOK: Duration = Duration::from_micros(20);

/// Device memory that a launch may touch.
#[derive(Debug)]
pub(crate) struct Region {
    /// The device address of its first byte.
    pub(crate) first: u64,
    pub(crate) bytes: usize,
    pub(crate) is_written: bool,
    pub(crate) storage: Arc<Storage>,
    /// The offset of the region there.
    pub(crate) offset: usize,
}

/// An entry with everything that it needs to run.
#[derive(Debug)]
pub(crate) struct Launch {
    entry: Arc<Entry>,
    /// All parameters, as one block.
    parameters: Vec<u8>,
    /// The grid's extents, then the block's.
    dims: [u32; 6],
    regions: Vec<Region>,
}

/// How a launch failed: the device's sticky error from then on, and the text for the report.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) words: String,
}

/// Why a thread stopped before its end.
enum Stop {
    Illegal { access: &'static str, at: u64, bytes: u8 },
    Misaligned { access: &'static str, at: u64, bytes: u8 },
    TooLong,
}

impl Launch {
    pub(crate) fn new(
        entry: Arc<Entry>,
        arguments: &[Vec<u8>],
        dims: [u32; 6],
        regions: Vec<Region>,
    ) -> Launch {
        let mut parameters = Vec::new();
        for (parameter, argument) in entry.parameters.iter().zip(arguments) {
            parameters.resize(parameter.at, 0);
            parameters.extend_from_slice(argument);
        }
        Launch { entry, parameters, dims, regions }
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        let [grid_x, grid_y, grid_z, block_x, block_y, block_z] = self.dims;
        let mut slots = self.entry.slots.clone();
        for block in places([grid_x, grid_y, grid_z]) {
            for thread in places([block_x, block_y, block_z]) {
                slots.copy_from_slice(&self.entry.slots);
                let numbers = thread.into_iter().chain(block);
                let numbers = numbers.chain([block_x, block_y, block_z, grid_x, grid_y, grid_z]);
                slots.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = u64::from(number));
                self.thread(&mut slots).map_err(|(step, stop)| self.failure(step, &stop, block, thread))?;
            }
        }
        Ok(())
    }

    /// Runs one thread; if it stops early, returns the step.
    fn thread(&self, slots: &mut [u64]) -> Result<(), (usize, Stop)> {
        let (mut next, mut left) = (0_usize, STEPS_MAX);
        loop {
            let step = self.entry.steps[next];
            if left == 0 {
                return Err((next, Stop::TooLong));
            }
            left -= 1;
            let (to, value) = match step {
                Step::One { what, to, from } => (to, what.of(slots[usize::from(from)])),
                Step::Two { what, to, from: [a, b] } => {
                    (to, what.of(slots[usize::from(a)], slots[usize::from(b)]))
                }
                Step::Three { what, to, from: [a, b, c] } => {
                    (to, what.of(slots[usize::from(a)], slots[usize::from(b)], slots[usize::from(c)]))
                }
                Step::Parameter { to, at, bytes } => (to, self.parameter(at as usize, bytes)),
                Step::Load { to, base, offset, bytes } => {
                    let at = slots[usize::from(base)].wrapping_add(u64::from(offset));
                    let (storage, offset) =
                        self.find(at, bytes, "reads", false).map_err(|stop| (next, stop))?;
                    (to, storage.load(offset, bytes))
                }
                Step::Store { from, base, offset, bytes } => {
                    let at = slots[usize::from(base)].wrapping_add(u64::from(offset));
                    let (storage, offset) =
                        self.find(at, bytes, "writes", true).map_err(|stop| (next, stop))?;
                    storage.store(offset, bytes, slots[usize::from(from)]);
                    next += 1;
                    continue;
                }
                Step::Time { to } => {
                    left = left.saturating_sub(STEPS_OF_A_LOOK);
                    (to, look_at_the_clock())
                }
                Step::Branch { to, when } => {
                    let goes = when.is_none_or(|slot| slots[usize::from(slot)] == 1);
                    next = if goes { to as usize } else { next + 1 };
                    continue;
                }
                Step::Return => return Ok(()),
            };
            slots[usize::from(to)] = value;
            next += 1;
        }
    }

    fn parameter(&self, at: usize, bytes: u8) -> u64 {
        let mut value = [0; 8];
        let bytes = usize::from(bytes);
        value[..bytes].copy_from_slice(&self.parameters[at..at + bytes]);
        u64::from_le_bytes(value)
    }

    /// Where an address points, if the launch may access it.
    fn find(
        &self,
        at: u64,
        bytes: u8,
        access: &'static str,
        writes: bool,
    ) -> Result<(&Storage, usize), Stop> {
        if !at.is_multiple_of(u64::from(bytes)) {
            return Err(Stop::Misaligned { access, at, bytes });
        }
        for region in self.regions.iter().filter(|region| region.is_written || !writes) {
            // An address before the region wraps to a large offset.
            let offset = usize::try_from(at.wrapping_sub(region.first)).unwrap_or(usize::MAX);
            if offset < region.bytes && usize::from(bytes) <= region.bytes - offset {
                return Ok((&region.storage, region.offset + offset));
            }
        }
        Err(Stop::Illegal { access, at, bytes })
    }

    fn failure(&self, step: usize, stop: &Stop, block: [u32; 3], thread: [u32; 3]) -> Failure {
        let (name, line) = (&self.entry.name, self.entry.lines[step]);
        let place = format!("in line {line} of its module, in thread {thread:?} of block {block:?}");
        let (code, words) = match stop {
            Stop::Illegal { access, at, bytes } => (
                ILLEGAL_ADDRESS,
                format!(
                    "illegal address: {name} {access} {bytes} bytes at {at:#x}, where no parameter leads \
                     that it {access} through"
                ),
            ),
            Stop::Misaligned { access, at, bytes } => {
                (MISALIGNED_ADDRESS, format!("misaligned address: {name} {access} {bytes} bytes at {at:#x}"))
            }
            Stop::TooLong => {
                (LAUNCH_TIMEOUT, format!("launch timed out: {name} has taken {STEPS_MAX} steps"))
            }
        };
        Failure { code, words: format!("{words}, {place}") }
    }
}

/// All places in this many columns, rows and layers; the first coordinate changes fastest.
fn places([x, y, z]: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..z).flat_map(move |z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z])))
}

/// In nanoseconds.
fn look_at_the_clock() -> u64 {
    std::thread::sleep(LOOK);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
