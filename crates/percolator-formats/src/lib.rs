//! Reads training data as other libraries wrote it, in place.
//!
//! A [`Shard`] is a file, or a folder that one index describes. Its [`Cursor`] returns [records](Record) in
//! the order in which they are stored, and goes to a [place](Place). A record's bytes are lent from the
//! file's map where they lie in one piece. Its [`Grammar`] finds the named parts in them, so the bytes can
//! travel first, and whoever uses them looks into them.
//!
//! Nothing that a file states is trusted: a length is compared with what is there before it is used, a count
//! that stands in two places is compared, and damage is an error with file, offset and record.

pub mod array_record;
#[cfg(feature = "arrow")]
pub mod arrow_ipc;
pub mod bagz;
#[cfg(feature = "hdf5")]
pub mod caffe_hdf5;
pub mod class_folder;
#[cfg(feature = "columns")]
mod columns;
pub mod csv;
mod data_set;
mod error;
#[cfg(feature = "feed")]
pub mod feed;
mod fields;
mod file;
#[cfg(feature = "hdf5")]
pub mod hdf5;
#[cfg(feature = "arrow")]
pub mod hugging_face;
mod index_file;
mod json;
pub mod jsonl;
mod kinds;
mod known_settings;
pub mod list;
pub mod litdata;
pub mod lst;
pub mod mds;
pub mod megatron;
pub mod notation;
pub mod npy;
pub mod npz;
pub mod packed;
#[cfg(feature = "parquet")]
pub mod parquet_file;
mod raw_grammar;
pub mod record_io;
mod shard;
#[cfg(feature = "columns")]
mod table_files;
pub mod tar;
mod text;
pub mod unpack;
mod value;
mod window;
#[cfg(feature = "write")]
pub mod write;
mod zstd_frames;

pub use self::data_set::DataSet;
pub use self::error::{Fault, FormatError};
pub use self::file::{DataFile, FileMap, Lent};
pub use self::kinds::format_of;
pub use self::shard::{Cursor, Grammar, Key, Options, Part, Place, Record, Seeks, Shard};
pub use self::value::{Array, ElementType, Shape, Value};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
