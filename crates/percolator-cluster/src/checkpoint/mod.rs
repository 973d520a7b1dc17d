//! The state of a process, written while it trains, and found again wherever the process continues.
//!
//! ```
//! use std::sync::Arc;
//!
//! use percolator_cluster::Checkpointer;
//! use percolator_cluster::metadata::MemoryMetadata;
//! use percolator_cluster::store::FolderStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let store = Arc::new(FolderStore::open(folder.path())?);
//! let metadata = Arc::new(MemoryMetadata::new());
//! let checkpoints = Checkpointer::new(store, metadata, "shard-0")?.restore(|| vec![0_u8; 4])?;
//! println!("{}", checkpoints.restored());
//! for _ in 0..3 {
//!     checkpoints.state().write()[0] += 1; // one step of the training
//!     checkpoints.step()?;
//! }
//! checkpoints.save_now()?;
//! # Ok(())
//! # }
//! ```
//!
//! A state is any type that implements [`Checkpoint`]. [`Parts`] are several states in one file, [`Tensors`]
//! are a model's, and a feed's `Snapshot` is one as well: kept as parts of one state, model and feed cannot
//! get out of step.
//!
//! # How it works
//!
//! A UUID names a new file in the [store](crate::store). The state is written into it, and the file is
//! synced; its MD5 and SHA-256 are computed meanwhile. Then the record `/checkpoints/ID` is put, which names
//! the file. From then on this checkpoint counts. Last, the files that the record does not name are removed.
//!
//! The record is put by a transaction. It compares the revision that this process saw last, and requires that
//! this process holds the id, that is, that the record `/checkpoints-held/ID` is under its lease. So a
//! process that was cut off, and whose successor has begun, cannot replace a newer checkpoint with its older
//! one; it gets [`CheckpointError::Superseded`]. DESIGN.md has the protocol and its invariants.
//!
//! # Trade-offs
//!
//! - [`Mode::Copy`] holds as much memory again as the state takes, and updates wait for one copy of it.
//!   [`Mode::Hold`] needs none, and updates wait until the state is written to the disk.
//! - MD5 is computed by one thread, which bounds the rate of writing. The design that this follows records
//!   MD5, which detects a damaged file, not a forged one; SHA-256 is recorded beside it.
//! - A restart waits for the lease of the previous process, unless that process has given it back.

mod announced;
mod archive;
#[cfg(feature = "tensorflow")]
mod bundle;
mod checkpointer;
mod copy_buffer;
mod entry;
mod error;
mod feed;
mod files;
mod hash;
mod hold;
mod parts;
mod protocol;
mod record;
mod restore;
mod running;
mod stats;
mod tensors;
mod thread;

use std::fmt::Display;
use std::io::{self, Read, Write};

pub use self::archive::{
    Archive, ArchiveError, CleanOptions, Cleaned, Extracted, Ids, Kept, KeptFile, Left, Verified,
};
#[cfg(feature = "tensorflow")]
pub use self::bundle::Bundle;
pub use self::checkpointer::{Checkpointer, Mode};
pub use self::entry::{Entry, Writer};
pub use self::error::{CheckpointError, Fault};
pub use self::parts::{Parts, copy_part, read_parts, write_parts};
pub use self::record::{CheckpointRecord, KEPT_MAX, RECORD_VERSION, RecordError, SPARED_MAX};
pub use self::restore::{Origin, Rejected, Restored};
pub use self::running::Checkpoints;
pub use self::stats::CheckpointStats;
pub use self::tensors::{Element, Tensor, TensorError, Tensors};
#[doc(inline)]
pub use percolator_files::whole_file::Existing;
pub use safetensors::Dtype;

/// A state that can be written, and read again.
///
/// `read` changes a value instead of making one. What the checkpoint must fit (names, types, shapes) is known
/// from the value that is there, and its memory is used again.
pub trait Checkpoint {
    /// Writes the state. Large parts of it are best written in one call each: they are passed on without
    /// another copy. With [`Mode::Copy`] it may be called twice, to learn first how many bytes there are.
    ///
    /// # Errors
    ///
    /// The error of `to`, as it is; or one of its own, if the state cannot be written.
    fn write(&self, to: &mut dyn Write) -> io::Result<()>;

    /// Takes the state that [`write`](Self::write) wrote, to the end of `from`. After an error the value may
    /// be anything: a restoring caller discards it. The bytes are verified while they are read, so they may
    /// be damaged: a length among them is not to be believed. The state of a file that is found to be damaged
    /// at its end is discarded as well. A panic counts as an error.
    ///
    /// # Errors
    ///
    /// The error of `from`, as it is; or [`io::ErrorKind::InvalidData`], saying what was found and what is
    /// allowed, if the bytes are not those of such a state.
    fn read(&mut self, from: &mut dyn Read) -> io::Result<()>;
}

/// An error of parsing.
fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Reads as many bytes as an array has. If there are fewer, `cut` says so.
fn read_array<const BYTES: usize>(from: &mut dyn Read, cut: impl Display) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    from.read_exact(&mut bytes).map_err(|error| error_within(error, cut))?;
    Ok(bytes)
}

/// The error of a read, or what `cut` says if there was nothing left to read.
fn error_within(error: io::Error, cut: impl Display) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid(cut.to_string()),
        _ => error,
    }
}

/// The bytes themselves.
impl Checkpoint for Vec<u8> {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.clear();
        from.read_to_end(self).map(drop)
    }
}

/// The text itself.
impl Checkpoint for String {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.as_bytes())
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.clear();
        from.read_to_string(self).map(drop)
    }
}

impl<T: Checkpoint + ?Sized> Checkpoint for Box<T> {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        (**self).write(to)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        (**self).read(from)
    }
}
