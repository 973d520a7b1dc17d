//! Writes a TFRecord file, which is either complete or absent.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::write::{GzEncoder, ZlibEncoder};
use percolator_files::whole_file::WholeFile;

use crate::compression::Compression;
use crate::error::TfRecordError;
use crate::frame::write_record;

/// Bytes that are collected before the system is asked to write them.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes records to a TFRecord file, as TensorFlow's `tf.io.TFRecordWriter` does.
///
/// The file gets its name when it is [finished](Self::finish); until then, an earlier file of that name
/// stays. A writer that is dropped before that leaves no file. One whose process is killed leaves a temporary
/// file that ends in `.percolator-partial`; the next writer into that folder removes it.
///
/// ```
/// use percolator_tfrecord::{Compression, TfRecordWriter};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("numbers.tfrecord");
/// let mut writer = TfRecordWriter::create(&path, Compression::Gzip)?;
/// for number in 0_u32..100 {
///     writer.write(&number.to_le_bytes())?;
/// }
/// writer.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the file is there once it is finished"]
pub struct TfRecordWriter {
    /// As the caller gave it.
    path: PathBuf,
    records: u64,
    out: Out,
    /// Whether a write failed, after which the file would not consist of whole records.
    has_failed: bool,
}

/// Where the framed records go.
enum Out {
    Plain(BufWriter<WholeFile>),
    Gzip(GzEncoder<BufWriter<WholeFile>>),
    Zlib(ZlibEncoder<BufWriter<WholeFile>>),
}

impl Out {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Out::Plain(out) => out,
            Out::Gzip(out) => out,
            Out::Zlib(out) => out,
        }
    }

    fn finish(self) -> io::Result<()> {
        let out = match self {
            Out::Plain(out) => out,
            Out::Gzip(out) => out.finish()?,
            Out::Zlib(out) => out.finish()?,
        };
        out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
    }
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Out::Plain(_) => "Plain",
            Out::Gzip(_) => "Gzip",
            Out::Zlib(_) => "Zlib",
        })
    }
}

impl TfRecordWriter {
    /// Starts a file that will have this path.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Io`] if no file can be there, or if something other than a regular file is there.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<Self, TfRecordError> {
        let path = path.as_ref().to_owned();
        let file =
            WholeFile::create(&path).map_err(|error| TfRecordError::io(&path, "create the file", &error))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let level = flate2::Compression::default();
        let out = match compression {
            Compression::Plain => Out::Plain(file),
            Compression::Gzip => Out::Gzip(GzEncoder::new(file, level)),
            Compression::Zlib => Out::Zlib(ZlibEncoder::new(file, level)),
        };
        Ok(TfRecordWriter { path, records: 0, out, has_failed: false })
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Io`] if the record is longer than 4 GiB - 1, or if the file cannot be written. After
    /// that it cannot be finished either.
    pub fn write(&mut self, record: &[u8]) -> Result<(), TfRecordError> {
        if self.has_failed {
            return Err(self.error("write the file", &failed_before()));
        }
        match write_record(self.out.writer(), record) {
            Ok(()) => {
                self.records += 1;
                Ok(())
            }
            Err(error) => {
                self.has_failed = true;
                Err(self.error("write the file", &error))
            }
        }
    }

    /// Returns the number of records written.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes what is left to the disk, and gives the file its name.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Io`] if the file cannot be written, or if writing a record failed before.
    pub fn finish(self) -> Result<(), TfRecordError> {
        if self.has_failed {
            return Err(self.error("finish the file", &failed_before()));
        }
        let TfRecordWriter { path, out, .. } = self;
        out.finish().map_err(|error| TfRecordError::io(&path, "finish the file", &error))
    }

    fn error(&self, action: &'static str, error: &io::Error) -> TfRecordError {
        TfRecordError::io(&self.path, action, error)
    }
}

fn failed_before() -> io::Error {
    io::Error::other("writing a record failed before, and a part of it may be in the file")
}
