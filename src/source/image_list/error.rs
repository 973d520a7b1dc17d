//! Why a list of images cannot be read.

use std::path::{Path, PathBuf};

use percolator_files::shown;

/// A list of images that cannot be read, or one of its files.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageListError {
    /// A line of a list of files is empty.
    #[error("{}: line {line} is empty; each line is a file's name, a space and a label", shown::path(path))]
    EmptyLine {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// A line of a list of files has no label that is a number.
    #[error(
        "{}: line {line}: {}; each line is a file's name, a space and a label, a whole number{hint}",
        shown::path(path),
        match found.as_str() {
            "" => "there is no label".to_owned(),
            found => format!("the label {found} is no number"),
        }
    )]
    Label {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is in the place of the label; may be empty.
        found: String,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// A label in a list of files does not fit a 32-bit integer.
    #[error(
        "{}: line {line}: the label {found} does not fit 32 bits; labels are whole numbers from \
         -2147483648 to 2147483647",
        shown::path(path)
    )]
    LabelRange {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The label.
        found: String,
    },
    /// A list of files has too few lines to skip this many.
    #[error(
        "{}: not enough points to skip: {skip} of {found}; lower rand_skip to {found} or less",
        shown::path(path)
    )]
    NotEnoughToSkip {
        /// The list.
        path: PathBuf,
        /// The number of lines in the list.
        found: usize,
        /// The number of lines to skip.
        skip: usize,
    },
    /// A file named by a list cannot be read.
    #[error("{}: line {line}: cannot read {}: {message}", shown::path(path), shown::path(file))]
    ListedFile {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The file.
        file: PathBuf,
        /// The operating system's message.
        message: String,
        /// Whether the fault lies with the file, so that trying again would fail too.
        is_of_file: bool,
    },
}

impl ImageListError {
    /// Returns the list, or the file in it, in which it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            ImageListError::EmptyLine { path, .. }
            | ImageListError::Label { path, .. }
            | ImageListError::LabelRange { path, .. }
            | ImageListError::NotEnoughToSkip { path, .. } => path,
            ImageListError::ListedFile { file, .. } => file,
        }
    }
}
