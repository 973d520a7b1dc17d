//! Kernels from their PTX: the words that `src/device/cuda/kernels/*.ptx` use, and no others.
//!
//! ```text
//! tokens   text into words and marks, each with its line
//! parse    words into entries and their parameters
//! body     an entry's words into steps: registers, constants and labels looked up
//! forms    which instructions there are, and of what they take
//! steps    what an instruction does to numbers
//! flow     which parameters an entry may read and write memory through
//! run      every thread of a grid, one after another
//! ```
//!
//! Whatever is not understood is refused when the module is loaded: nothing is passed over. So a kernel that
//! runs here has run as PTX says, but for its order: threads do not take turns, and a kernel whose threads
//! speak to one another has no words for it here.

mod body;
mod flow;
mod forms;
mod parse;
mod run;
mod steps;
mod tokens;

pub(crate) use parse::{Entry, parse};
pub(crate) use run::{Launch, Region};

/// Why a text is not taken for PTX.
#[derive(Debug)]
pub(crate) struct Problem {
    /// From 1.
    pub(crate) line: u32,
    pub(crate) words: String,
}

type Parsed<T> = Result<T, Problem>;
