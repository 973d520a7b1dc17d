//! One exchange at a time, with a limit to its wait.
//!
//! # Invariants
//!
//! 1. What MPI reads and writes stays alive until its request is complete. If that never happens, it stays
//!    for ever: it cannot be taken back from MPI.
//! 2. MPI is called only while it runs, at the level `Serialized` or above, by the owner of the engine.
#![expect(unsafe_code, reason = "it keeps the promises that MPI's calls ask for")]

use std::thread;
use std::time::{Duration, Instant};

use ::mpi::Threading;
use ::mpi::environment::{is_finalized, is_initialized, threading_support};
use ::mpi::raw::AsRaw as _;
use ::mpi::topology::SimpleCommunicator;
use percolator_distribute::Gather;

use super::error::MpiError;
use super::raw::{self, Comm, Request};

/// How often a wait looks before it yields its processor, and before it sleeps.
const SPINS: u32 = 200;
const YIELDS: u32 = 2000;
/// How long it sleeps: the others have long steps then.
const NAP: Duration = Duration::from_micros(50);

/// A communicator of this process's own, by which it gathers words. It is not freed: that would wait for all
/// processes. `MPI_Finalize` frees it.
#[derive(Debug)]
pub struct MpiEngine {
    comm: Comm,
    rank: usize,
    size: usize,
}

// SAFETY: a communicator is a handle, which MPI allows any thread to use at its level `Serialized` or above,
// one at a time: `new` has checked the level, and `raw` makes one call at a time.
unsafe impl Send for MpiEngine {}

impl MpiEngine {
    /// Duplicates a communicator, together with all of its processes.
    pub(super) fn new(of: &SimpleCommunicator, timeout: Duration) -> Result<Self, MpiError> {
        check_running()?;
        let found = match threading_support() {
            Threading::Single => Some("Single"),
            Threading::Funneled => Some("Funneled"),
            Threading::Serialized | Threading::Multiple => None,
        };
        if let Some(found) = found {
            return Err(MpiError::Threads { found });
        }
        let mut new = Box::new(of.as_raw());
        // SAFETY: MPI runs; `new` stays in its box, which `wait` keeps for ever if the request does not end.
        let mut request = unsafe { raw::start_duplicate(of.as_raw(), &mut *new) }?;
        match wait(&mut request, timeout) {
            Ok(true) => {}
            Ok(false) => {
                Box::leak(new);
                return Err(MpiError::Late { waited: timeout });
            }
            Err(error) => {
                Box::leak(new);
                return Err(error);
            }
        }
        let comm = *new;
        // SAFETY: MPI runs, and has made the communicator.
        unsafe { raw::return_errors(comm) }?;
        // SAFETY: as above.
        let (rank, size) = unsafe { raw::place(comm) }?;
        Ok(MpiEngine { comm, rank, size })
    }
}

/// Waits until a request is complete. Returns false after the timeout.
fn wait(request: &mut Request, timeout: Duration) -> Result<bool, MpiError> {
    let start = Instant::now();
    let mut looks: u32 = 0;
    loop {
        // A thread that ends MPI while another waits is not ours, but must not crash the process.
        check_running()?;
        // SAFETY: MPI runs.
        if unsafe { request.test() }? {
            return Ok(true);
        }
        if start.elapsed() >= timeout {
            return Ok(false);
        }
        looks = looks.saturating_add(1);
        match looks {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
    }
}

fn check_running() -> Result<(), MpiError> {
    if is_initialized() && !is_finalized() { Ok(()) } else { Err(MpiError::NotRunning) }
}

impl Gather for MpiEngine {
    type Error = MpiError;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&mut self, words: &[u64], timeout: Duration) -> Result<Option<Vec<u64>>, MpiError> {
        check_running()?;
        let too_long = || MpiError::TooLong { words: words.len() };
        let count = i32::try_from(words.len()).map_err(|_| too_long())?;
        let from: Box<[u64]> = words.into();
        let mut into = vec![0_u64; words.len().checked_mul(self.size).ok_or_else(too_long)?];
        // SAFETY: MPI runs. `from` has `count` words, and `into` as many of each process. Both are on the
        // heap, and are leaked below unless the request is complete.
        let mut request = unsafe { raw::start_gather(self.comm, from.as_ptr(), into.as_mut_ptr(), count) }?;
        let done = wait(&mut request, timeout);
        if matches!(done, Ok(true)) {
            return Ok(Some(into));
        }
        Box::leak(from);
        Vec::leak(into);
        done.map(|_| None)
    }
}
