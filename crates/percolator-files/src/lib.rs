//! Helpers for programs that read and write data files.
//!
//! - [`whole_file`]: outputs that are complete or absent, whatever happens while they are written.
//! - [`folder_turn`]: one process at a time names files of a folder that belong together.
//! - [`file_lock`]: waits for a file's lock as long as its holders make progress.
//! - [`input_file`]: inputs that cannot hang or fill the memory.
//! - [`Access`]: whether a file is mapped or read; by default, its file system decides.
//! - [`file_id`]: which file it is, whatever its path, and whether it is unchanged.
//! - [`IoCause`]: the system's error as the cause of errors that are cloned and compared.
//! - [`KeptMaps`]: how many files of the process may stay mapped.
//! - [`SpareBuffers`]: buffers that readers of several files share.
//! - [`glob`]: which files a pattern names.
//! - [`checked_text`]: small values as text that shows whether it was cut or edited.
//! - [`checksum`]: crc32c, plain, or masked as in LevelDB and TFRecord.
//! - [`what`]: what a file or folder is when it is not what was wanted, and what to do about it.
//! - [`shown`]: paths, keys and other foreign text in messages, safe for a terminal.
//! - [`parallel`]: work that several threads share, with its results in order.
//! - [`caller`]: a message's remedy in the caller's terms: Rust, a shell or Python.
//! - [`Progress`]: how far a long task is, and a way to end it.
//!
//! It is built for Percolator, and does not depend on its feeds. Unix only.

mod access;
pub mod caller;
pub mod checked_text;
pub mod checksum;
pub mod file_id;
pub mod file_lock;
pub mod folder_turn;
pub mod glob;
pub mod input_file;
mod io_cause;
mod kept_maps;
pub mod parallel;
mod progress;
pub mod shown;
mod spare_buffers;
pub mod what;
pub mod whole_file;

pub use self::access::{Access, Reading};
pub use self::io_cause::IoCause;
pub use self::kept_maps::KeptMaps;
pub use self::progress::Progress;
pub use self::spare_buffers::{Buffers, SpareBuffers};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
