//! Runs kernels from their PTX: it knows the words that `src/device/cuda/kernels/*.ptx` use, and no others.
//!
//! ```text
//! tokens   splits a text into words and marks, each with its line
//! parse    makes entries and their parameters of the words
//! body     makes steps of an entry's words, and resolves registers, constants and labels
//! forms    the instructions, and the classes of their operands
//! steps    what an instruction computes
//! flow     through which parameters an entry may read and write memory
//! run      runs every thread of a grid, one after another
//! ```
//!
//! A module with anything unknown is refused when it is loaded: nothing is skipped. So a kernel that runs
//! here runs as PTX says, except for the order: threads do not alternate, and the instructions by which
//! threads communicate are unknown here.

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
