//! What programs that read and write data files do around the files themselves.
//!
//! - [`whole_file`]: outputs that are complete or absent, whatever happens while they are written.
//! - [`folder_turn`]: one process at a time names files of a folder that belong together.
//! - [`file_lock`]: waits for a file's lock as long as whoever has it goes on.
//! - [`input_file`]: inputs that cannot hang or fill the memory.
//! - [`Access`]: whether a file is mapped or read, by its file system if nobody says.
//! - [`file_id`]: which file it is, whatever its path, and whether it is as it was.
//! - [`KeptMaps`]: how many files of the process may stay mapped.
//! - [`glob`]: which files a pattern names.
//! - [`checked_text`]: small values as text that shows whether it was cut or edited.
//! - [`checksum`]: crc32c of what is read, as it is, or masked as LevelDB and TFRecord have it.
//! - [`what`]: what a file or folder is when it is not what was wanted, and what to do about it.
//! - [`shown`]: paths, keys and other foreign text in messages, safe for a terminal.
//! - [`caller`]: a message's remedy in the terms of who calls: Rust, a shell or Python.
//! - [`Progress`]: how far long work is, and the way to end it.
//!
//! It is built for Percolator, and knows nothing of its feeds. Unix only.

mod access;
pub mod caller;
pub mod checked_text;
pub mod checksum;
pub mod file_id;
pub mod file_lock;
pub mod folder_turn;
pub mod glob;
pub mod input_file;
mod kept_maps;
mod progress;
pub mod shown;
pub mod what;
pub mod whole_file;

pub use self::access::{Access, Reading};
pub use self::kept_maps::KeptMaps;
pub use self::progress::Progress;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
