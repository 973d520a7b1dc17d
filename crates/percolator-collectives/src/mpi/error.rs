//! Why MPI cannot be used.

use std::time::Duration;

/// Why processes cannot agree over MPI.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiError {
    /// MPI has not begun, or has ended.
    #[error(
        "MPI does not run: call mpi::initialize_with_threading first, and keep what it returns until the \
         collective is dropped"
    )]
    NotRunning,
    /// MPI was told that only one thread calls it.
    #[error(
        "MPI runs with the thread level {found}, and a collective is used from several threads: call \
         mpi::initialize_with_threading(Threading::Serialized)"
    )]
    Threads {
        /// The level.
        found: &'static str,
    },
    /// The processes did not all make a collective of their communicator.
    #[error("not all processes of the communicator made a collective of it within {waited:.1?}")]
    Late {
        /// How long they were waited for.
        waited: Duration,
    },
    /// More words than MPI counts.
    #[error("{words} words were to be sent at once, and MPI counts no more than {}", i32::MAX)]
    TooLong {
        /// The number of words.
        words: usize,
    },
    /// A call of MPI failed.
    #[error("{call} failed: {message} (error {code})")]
    Call {
        /// The name of MPI's function.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// What MPI says about it.
        message: String,
    },
}
