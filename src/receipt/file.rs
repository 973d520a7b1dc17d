//! Files of receipts and digests.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use super::text::KIND;
use super::{Receipt, ReceiptError};
use percolator_files::checked_text::{TextFault, text_of};
use percolator_files::input_file;
use percolator_files::whole_file;

/// The largest file that is read, and so the largest that is written: a receipt of more than a million
/// epochs, or a digest with the hashes of about 500 million records.
pub(crate) const BYTES_MAX: u64 = 8 << 30;

impl Receipt {
    /// Writes the receipt to a file, which has its name only once it is complete: an existing file is
    /// replaced only then. Symbolic links are followed, and only a regular file is replaced. To save a
    /// snapshot as well, use [`Snapshot::save_with_receipt`](crate::Snapshot::save_with_receipt), which
    /// leaves both or neither.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Write`]; [`ReceiptError::TooLarge`] if the text exceeds 8 GiB and so could not be read
    /// back.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ReceiptError> {
        save(KIND, path.as_ref(), self, BYTES_MAX)
    }

    /// Reads a file that was [saved](Self::save).
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Read`], also if it is not a regular file or exceeds 8 GiB; [`ReceiptError::Text`] if
    /// it was cut off or edited, was written by a later release, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ReceiptError> {
        load(KIND, path.as_ref(), BYTES_MAX)
    }

    /// Returns the receipt's text, if it can be read back from a file.
    pub(crate) fn text_for(&self, path: &Path, bytes_max: u64) -> Result<String, ReceiptError> {
        text_for(KIND, path, self, bytes_max)
    }
}

/// Writes a text that can be read back to a file, completely or not at all.
pub(super) fn save(
    kind: &'static str,
    path: &Path,
    what: &impl Display,
    bytes_max: u64,
) -> Result<(), ReceiptError> {
    let text = text_for(kind, path, what, bytes_max)?;
    whole_file::write(path, &[text.as_bytes()]).map_err(|error| ReceiptError::Write {
        kind,
        path: path.to_owned(),
        source: error.into(),
    })
}

fn text_for(
    kind: &'static str,
    path: &Path,
    what: &impl Display,
    allowed: u64,
) -> Result<String, ReceiptError> {
    let text = what.to_string();
    match text.len() as u64 {
        found if found > allowed => {
            Err(ReceiptError::TooLarge { kind, path: path.to_owned(), found, allowed })
        }
        _ => Ok(text),
    }
}

/// Reads a text from a regular file of at most `bytes_max` bytes.
pub(super) fn load<T: FromStr<Err = TextFault>>(
    kind: &'static str,
    path: &Path,
    bytes_max: u64,
) -> Result<T, ReceiptError> {
    match input_file::read_if_begins(path, b"percolator ", bytes_max) {
        Ok(bytes) => text_of(kind, &bytes).and_then(str::parse).map_err(|fault| ReceiptError::Text {
            kind,
            path: path.to_owned(),
            fault,
        }),
        Err(error) => Err(ReceiptError::Read { kind, path: path.to_owned(), source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{BatchSize, Job, World};
    use crate::receipt::Ledger;
    use crate::source::Identity;

    #[test]
    fn what_is_saved_is_read_and_what_is_too_large_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receipt");
        let plan = Job::new([100], BatchSize::PerReplica(5), World::ALONE).plan().unwrap();
        let mut receipt = Receipt::new("db", &Identity::new(), &plan);
        receipt.add(&Ledger::of(0));
        let bytes = receipt.to_string().len() as u64;
        save(KIND, &path, &receipt, bytes).unwrap();
        assert_eq!(load(KIND, &path, bytes), Ok(receipt.clone()), "a file that just fits");
        let before = std::fs::read(&path).unwrap();
        let error = save(KIND, &path, &receipt, bytes - 1).unwrap_err();
        let said = error.to_string();
        let wanted = format!(
            "the receipt would be {bytes} bytes, but only files of at most {} can be read back",
            bytes - 1
        );
        assert!(said.contains(&wanted) && said.contains("a receipt of its own"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert!(matches!(load::<Receipt>(KIND, &path, bytes - 1), Err(ReceiptError::Read { .. })));
    }
}
