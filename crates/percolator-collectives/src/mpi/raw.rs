//! The calls of MPI for which the crate `mpi` has no safe and fallible form: it discards what they return.
#![expect(unsafe_code, reason = "MPI is C")]

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::mpi::ffi;

use super::error::MpiError;

pub(super) use ::mpi::ffi::MPI_Comm as Comm;

/// `MPI_SUCCESS`, which the standard fixes.
const SUCCESS: c_int = 0;
/// More than any MPI's messages have.
const MESSAGE_BYTES: usize = 4096;

/// An operation of MPI that may go on while the process does something else.
#[derive(Debug)]
pub(super) struct Request(ffi::MPI_Request);

// SAFETY: a request is a handle, which MPI allows any thread to use at its level `Serialized` or above, one
// at a time, which `CALLS` sees to. Whoever makes one has checked that level, and has the only handle.
unsafe impl Send for Request {}

/// MPI at its level `Serialized` takes one call at a time, whichever communicator it is about.
static CALLS: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    // Nothing is left half done by a panic.
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn checked(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == SUCCESS {
        return Ok(());
    }
    let mut bytes = [0_u8; MESSAGE_BYTES];
    let mut length: c_int = 0;
    // SAFETY: MPI writes no more than MPI_MAX_ERROR_STRING bytes, which is 256 to 1024 in Open MPI and MPICH.
    let known = unsafe { ffi::MPI_Error_string(code, bytes.as_mut_ptr().cast::<c_char>(), &mut length) };
    let length = if known == SUCCESS { usize::try_from(length).unwrap_or(0) } else { 0 };
    let message = String::from_utf8_lossy(&bytes[..length.min(MESSAGE_BYTES)]).into_owned();
    Err(MpiError::Call { call, code, message })
}

/// Begins to duplicate a communicator.
///
/// # Safety
///
/// MPI runs, `of` is one of its communicators, and `new` stays where it is until the request is complete.
pub(super) unsafe fn start_duplicate(of: Comm, new: *mut Comm) -> Result<Request, MpiError> {
    let _call = one_at_a_time();
    let mut request = MaybeUninit::uninit();
    // SAFETY: as the caller promises; MPI writes the request if it succeeds.
    let code = unsafe { ffi::MPI_Comm_idup(of, new, request.as_mut_ptr()) };
    checked("MPI_Comm_idup", code)?;
    // SAFETY: MPI has written it.
    Ok(Request(unsafe { request.assume_init() }))
}

/// Makes a communicator return its errors.
///
/// # Safety
///
/// MPI runs, and this is one of its communicators.
pub(super) unsafe fn return_errors(comm: Comm) -> Result<(), MpiError> {
    let _call = one_at_a_time();
    // SAFETY: a constant that MPI's library defines.
    let handler = unsafe { ffi::RSMPI_ERRORS_RETURN };
    // SAFETY: as the caller promises.
    checked("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(comm, handler) })
}

/// The rank of this process, and the number of processes.
///
/// # Safety
///
/// MPI runs, and this is one of its communicators.
pub(super) unsafe fn place(comm: Comm) -> Result<(usize, usize), MpiError> {
    let _call = one_at_a_time();
    let (mut rank, mut size) = (0, 0);
    // SAFETY: as the caller promises.
    checked("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(comm, &mut rank) })?;
    // SAFETY: as the caller promises.
    checked("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(comm, &mut size) })?;
    let number = |number| usize::try_from(number).expect("MPI counts from 0");
    Ok((number(rank), number(size)))
}

/// Begins to gather words from all processes.
///
/// # Safety
///
/// MPI runs, and `comm` is one of its communicators; `from` has `count` words, and `into` has room for as
/// many of each process. Both stay where they are, and nobody else uses them, until the request is complete.
pub(super) unsafe fn start_gather(
    comm: Comm,
    from: *const u64,
    into: *mut u64,
    count: c_int,
) -> Result<Request, MpiError> {
    let _call = one_at_a_time();
    let mut request = MaybeUninit::uninit();
    // SAFETY: a constant that MPI's library defines.
    let word = unsafe { ffi::RSMPI_UINT64_T };
    // SAFETY: as the caller promises; MPI writes the request if it succeeds.
    let code = unsafe {
        ffi::MPI_Iallgather(from.cast(), count, word, into.cast(), count, word, comm, request.as_mut_ptr())
    };
    checked("MPI_Iallgather", code)?;
    // SAFETY: MPI has written it.
    Ok(Request(unsafe { request.assume_init() }))
}

impl Request {
    /// Lets MPI work, and returns whether the operation is complete.
    ///
    /// # Safety
    ///
    /// MPI runs.
    pub(super) unsafe fn test(&mut self) -> Result<bool, MpiError> {
        let _call = one_at_a_time();
        let mut is_complete = 0;
        // SAFETY: a constant that MPI's library defines.
        let no_status = unsafe { ffi::RSMPI_STATUS_IGNORE };
        // SAFETY: the request is MPI's own; a complete one becomes the null request, which may be tested.
        let code = unsafe { ffi::MPI_Test(&mut self.0, &mut is_complete, no_status) };
        checked("MPI_Test", code)?;
        Ok(is_complete != 0)
    }
}
