//! How a file is compressed.

use std::fmt;

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

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Plain => "a plain file",
            Compression::Gzip => "GZIP",
            Compression::Zlib => "ZLIB",
        })
    }
}
