//! TFRecord, TensorFlow's file of records.
//!
//! A file is a sequence of records, each with its length and two masked CRC-32Cs, one of the length and one
//! of the data. It may be compressed as a whole, with GZIP or ZLIB.

mod frame;
mod writer;

pub use self::writer::TfRecordWriter;

/// How a TFRecord file is compressed: TensorFlow's `compression_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Compression {
    /// Not compressed: `""` or `"NONE"`.
    #[default]
    Plain,
    /// `"GZIP"`.
    Gzip,
    /// `"ZLIB"`.
    Zlib,
}
