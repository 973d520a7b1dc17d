//! What is said to people and programs.
//!
//! ```text
//! out        the standard output, and single lines on the standard error
//! progress   work beside a progress bar
//! wrap       text at a width
//! log        what the library logs, and who else listens to it
//! ```

pub(crate) mod log;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod wrap;
