//! Opens data that the crate does not read itself.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::{Access, Source, SourceError};

/// Opens the files of other formats that a [spec](crate::feed::SourceSpec::Files) names.
/// `percolator-formats` has one.
pub trait Opener: Send + Sync + fmt::Debug {
    /// Opens the shards of a data set, in their order. They are joined.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there are none, or one cannot be read.
    fn open(&self, wanted: &WantedFiles<'_>) -> Result<Vec<Arc<dyn Source>>, SourceError>;
}

/// What an [`Opener`] is to open.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct WantedFiles<'a> {
    /// A file, a folder, or a pattern. A relative path begins at [`root`](Self::root), which is not part of a
    /// pattern.
    pub path: &'a Path,
    /// Where relative paths begin.
    pub root: &'a Path,
    /// The format, if it is stated.
    pub format: Option<&'a str>,
    /// Options of the format, by their names.
    pub settings: &'a [(String, String)],
    /// How the files are read.
    pub access: Access,
    /// Whether nothing outside of [`root`](Self::root) may be read, whatever a list or a setting names.
    pub is_confined: bool,
    /// The parts of a record that the feed uses; `None` if that may be all of them.
    pub parts: Option<Vec<String>>,
}

impl<'a> WantedFiles<'a> {
    /// All parts of what is at a path, relative to the working directory, in whatever format.
    #[must_use]
    pub fn at(path: &'a Path) -> Self {
        WantedFiles {
            path,
            root: Path::new(""),
            format: None,
            settings: &[],
            access: Access::default(),
            is_confined: false,
            parts: None,
        }
    }
}
