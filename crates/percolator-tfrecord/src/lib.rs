//! TFRecord, TensorFlow's file of records: read and written, plain or compressed.
//!
//! A file is a sequence of records and nothing else: no key, no count, no index. It may be compressed as a
//! whole, with GZIP or ZLIB.
//!
//! ```text
//! length: 8 bytes, little-endian | masked crc32c of these 8 bytes: 4
//! data: `length` bytes           | masked crc32c of the data: 4
//! ```
//!
//! - [`Reader`]: the records of a file, one after the other.
//! - [`TfRecordWriter`]: a file that is complete or absent; [`write_record`] appends a record to any writer.
//! - [`files()`]: which files a path means: a file, a folder or a pattern.
//! - [`RecordFile`]: an open file, for readers of your own. [`PlainWalk`] and [`PackedWalk`] go from record
//!   to record, return to a place, and give their buffers away. [`FileMap`] holds the bytes of a mapped file.
//! - [`frame_around`] and [`read_frame`]: the frame of one record, for files that grow while they are read.
//!
//! ```
//! use percolator_tfrecord::{Compression, Reader, TfRecordWriter};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("numbers.tfrecord");
//! let mut writer = TfRecordWriter::create(&path, Compression::Gzip)?;
//! for number in 0_u32..100 {
//!     writer.write(&number.to_le_bytes())?;
//! }
//! writer.finish()?;
//!
//! let mut reader = Reader::open(&path)?;
//! let mut records = 0;
//! while let Some(record) = reader.advance()? {
//!     assert_eq!(record.len(), 4);
//!     records += 1;
//! }
//! assert_eq!(records, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - Both checksums of a record that is read are verified, that of its length before the length is used. Of a
//!   record that is passed over, the data are not verified. A caller of a walk over a [map](FileMap) decides
//!   when it verifies the data.
//! - Damage is an error that names the file, the record and its first byte. Only a record whose data have the
//!   wrong checksum can be passed: after any other damage, nothing says where the next record starts.
//! - A stored length alone never causes an allocation: a plain file must have that many bytes, and a
//!   compressed one is unpacked piece by piece. Deflate makes at most 1,032 bytes of one.
//! - A record has at most 4 GiB - 1 of data: a file with holes may be longer than its disk.
//! - A file that another one replaces, or that gets another length, is an error once it is opened again. A
//!   file that is truncated while it is mapped, or that its disk cannot read, ends the process (SIGBUS); with
//!   [`Options::access`], files are read instead.

mod buffer;
mod compression;
mod error;
mod files;
mod frame;
mod inflate;
mod map;
mod open_files;
mod packed;
mod packed_walk;
mod plain;
mod reader;
mod record_file;
#[cfg(test)]
mod tests;
mod walk;
mod writer;

pub use self::compression::Compression;
pub use self::error::{RecordAt, TfRecordError};
pub use self::files::{files, files_in, is_among};
pub use self::frame::{
    FOOT_BYTES, FRAME_BYTES, Frame, FrameFault, HEAD_BYTES, frame_around, read_frame, write_record,
};
pub use self::map::FileMap;
pub use self::packed::PackedFile;
pub use self::packed_walk::PackedWalk;
pub use self::plain::PlainFile;
pub use self::reader::Reader;
pub use self::record_file::{Fact, Options, RecordFile};
pub use self::walk::{LARGE_BYTES, PlainWalk};
pub use self::writer::TfRecordWriter;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
