//! A receipt as a file.

use std::path::Path;
use std::str::FromStr;

use super::{Receipt, ReceiptError};
use crate::input_file;
use crate::sealed_text::TextFault;
use crate::whole_file;

/// The largest file that is read: some 50,000 epochs.
pub(crate) const BYTES_MAX: u64 = 256 << 20;

impl Receipt {
    /// Writes it to a file, which has its name only once it is whole: a file that was there before is
    /// replaced then, and not before. Symbolic links are followed, and only a regular file is replaced. Where
    /// a snapshot is saved as well, [`Snapshot::save_with_receipt`](crate::Snapshot::save_with_receipt) has
    /// both there or neither.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Write`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ReceiptError> {
        save(path.as_ref(), &self.to_string())
    }

    /// Reads a file that was [saved](Self::save).
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Read`], also if it is no regular file or has more than 256 MiB, and
    /// [`ReceiptError::Text`] if it was cut or edited, was written by a later release, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ReceiptError> {
        load(path.as_ref(), BYTES_MAX)
    }
}

/// Writes a text to a file, whole or not at all.
pub(super) fn save(path: &Path, text: &str) -> Result<(), ReceiptError> {
    whole_file::write(path, &[text.as_bytes()])
        .map_err(|error| ReceiptError::Write { path: path.to_owned(), message: error.to_string() })
}

/// Reads a text from a regular file of so many bytes at the most.
pub(super) fn load<T: FromStr<Err = TextFault>>(path: &Path, bytes_max: u64) -> Result<T, ReceiptError> {
    match input_file::read_if_begins(path, b"percolator ", bytes_max) {
        // What is no text is something else, or was damaged: either is found.
        Ok(bytes) => String::from_utf8_lossy(&bytes)
            .parse()
            .map_err(|fault| ReceiptError::Text { path: path.to_owned(), fault }),
        Err(error) => Err(ReceiptError::Read { path: path.to_owned(), message: error.to_string() }),
    }
}
