//! How a run goes on and ends.
//!
//! ```text
//! consumer   takes batches from a lane
//! stop       signals and limits that end a run
//! exit       the exit codes
//! ```

pub(crate) mod consumer;
pub(crate) mod exit;
pub(crate) mod stop;
