//! A receipt as a file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use super::{Receipt, ReceiptError};
use crate::sealed_text::TextFault;

impl Receipt {
    /// Writes it to a file, which has its name only once it is whole: a file that was there before is replaced then, and
    /// not before.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Write`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ReceiptError> {
        let path = path.as_ref();
        let failed =
            |error: io::Error| ReceiptError::Write { path: path.to_owned(), message: error.to_string() };
        let Some(name) = path.file_name() else {
            return Err(failed(io::Error::other("it is no name of a file: say one")));
        };
        // Of this process alone; what a process left that had its number is written over.
        let mut temporary = OsString::from(name);
        temporary.push(format!(".{}", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(self.to_string().as_bytes())?;
            file.sync_all()
        });
        let named = written.and_then(|()| fs::rename(&temporary, path));
        named.map_err(|error| {
            drop(fs::remove_file(&temporary));
            failed(error)
        })
    }

    /// Reads a file that was [saved](Self::save).
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Read`], and [`ReceiptError::Text`] if it was cut or edited, was written by a later release, or is
    /// something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ReceiptError> {
        let path = path.as_ref();
        let of_text = |fault: TextFault| ReceiptError::Text { path: path.to_owned(), fault };
        match fs::read(path) {
            // What is no text is something else, or was damaged: either is found.
            Ok(bytes) => String::from_utf8_lossy(&bytes).parse().map_err(of_text),
            Err(error) => Err(ReceiptError::Read { path: path.to_owned(), message: error.to_string() }),
        }
    }
}
