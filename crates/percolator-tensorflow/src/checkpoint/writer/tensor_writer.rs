//! A tensor that is written in pieces.

use std::io::{self, Write};

use percolator_files::checksum::Crc32c;

use super::data_file::Sink as _;
use super::{CheckpointWriter, WriteError, plan::Planned};
use crate::TensorError;

/// Takes the bytes of one tensor, in pieces of any length, and writes them: begun by
/// [`CheckpointWriter::begin`] and [`CheckpointWriter::begin_slice`]. The tensor is there once it is
/// [finished](Self::finish); if it is dropped before, the checkpoint cannot be finished.
#[derive(Debug)]
#[must_use = "the tensor is there once it is finished"]
pub struct TensorWriter<'a> {
    writer: &'a mut CheckpointWriter,
    planned: Planned,
    checksum: Crc32c,
    /// The bytes so far.
    found: usize,
    /// Whether some of a piece may be in the file, so that those after it would not be at their places.
    is_torn: bool,
}

impl<'a> TensorWriter<'a> {
    pub(super) fn new(writer: &'a mut CheckpointWriter, planned: Planned) -> Self {
        // Until it is whole.
        writer.failed = Some(planned.name.clone());
        TensorWriter { writer, planned, checksum: Crc32c::new(), found: 0, is_torn: false }
    }

    /// Appends bytes: elements in row-major order, little-endian.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if they cannot be written, or are more than the tensor has. Once they could not be
    /// written, none can: [`WriteError::Failed`].
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.check_untorn()?;
        let found = self.found.saturating_add(bytes.len());
        if found > self.planned.bytes {
            return Err(self.wrong_length(found));
        }
        let file = self.writer.file();
        let written = file.put(bytes, &mut self.checksum);
        self.is_torn = written.is_err();
        written.map_err(WriteError::io(&file.path.clone(), "write a tensor"))?;
        self.found = found;
        Ok(())
    }

    /// Ends the tensor.
    ///
    /// # Errors
    ///
    /// [`WriteError::Tensor`] if it has fewer bytes than its type and shape say; [`WriteError::Failed`] if a
    /// piece could not be written.
    pub fn finish(self) -> Result<(), WriteError> {
        self.check_untorn()?;
        if self.found < self.planned.bytes {
            return Err(self.wrong_length(self.found));
        }
        self.writer.failed = None;
        self.writer.record(self.planned, self.found as u64, self.checksum.masked());
        Ok(())
    }

    fn check_untorn(&self) -> Result<(), WriteError> {
        if self.is_torn { Err(self.writer.unfinished(&self.planned.name)) } else { Ok(()) }
    }

    fn wrong_length(&self, found: usize) -> WriteError {
        let Planned { data_type, shape, bytes, .. } = &self.planned;
        let (data_type, shape, allowed) = (*data_type, shape.clone(), *bytes);
        let reason = TensorError::Length { data_type, shape, unit: "bytes", found, allowed };
        self.writer.refused(&self.planned.name, reason.to_string())
    }
}

/// Errors are [`WriteError`]s inside.
impl Write for TensorWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
