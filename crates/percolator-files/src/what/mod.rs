//! What a file or folder is when it is not what was wanted: determined by its name, its first bytes and its
//! neighbours, in one place for all readers, with advice in the caller's terms. If it is not certain, nothing
//! is said.
//!
//! ```text
//! a path -> folder    by the names in it
//!        -> file      by its first and last bytes (image_format), then by the words of a text (text)
//! ```

mod file;
mod folder;
mod image_format;
mod text;

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::caller::words;
use crate::shown;

pub use file::{begins_with_record, picture};
pub use image_format::ImageFormat;

/// What can be read, and what cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An LMDB: its folder, or its data file.
    Lmdb,
    /// A LevelDB's folder.
    LevelDb,
    /// A TFRecord file, or a folder of them.
    TfRecord,
    /// A list of images and labels.
    List,
    /// A folder with a folder of images for each class.
    Classes,
    /// One of MNIST's files.
    Idx,
    /// A net of Caffe as text.
    Net,
    /// A mean image, or another blob of Caffe.
    Mean,
    /// A model's files.
    Model,
    /// A text that may be a damaged one of those that are read.
    Text,
    /// What begins with zeros, and may be a damaged one of those that are read.
    Damaged,
    /// Nothing that is read here, or only after something was done about it.
    Other,
}

/// Something whose kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    kind: Kind,
    /// With its article: "a Git LFS pointer".
    what: Cow<'static, str>,
    /// What to do about it, if that does not depend on the caller.
    remedy: Cow<'static, str>,
}

impl Thing {
    fn new(
        kind: Kind,
        what: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Option<Self> {
        Some(Thing { kind, what: what.into(), remedy: remedy.into() })
    }

    /// What is at a path; `None` if that is not certain.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => folder::what(path),
            Ok(found) if found.is_file() => file::what(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let target = fs::read_link(path).ok()?;
                let what = format!("a link to {}, where nothing is", shown::path(&target));
                Thing::new(Kind::Other, what, "mend the link, or give the path of the data")
            }
            Ok(_) | Err(_) => None,
        }
    }

    /// What can read it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What to do about it, in the caller's terms.
    #[must_use]
    pub fn remedy(&self) -> &str {
        if !self.remedy.is_empty() {
            return &self.remedy;
        }
        match self.kind {
            Kind::Lmdb => words(
                "read it with `.lmdb(path)`, or in a net with `backend: LMDB`",
                "read it with `percolator feed PATH`, or in a net with `backend: LMDB`",
                "read it with lmdb=, or in a net with `backend: LMDB`",
            ),
            Kind::LevelDb => words(
                "read it with `.leveldb(path)`, or in a net with `backend: LEVELDB`",
                "read it with `percolator feed PATH`, or in a net with `backend: LEVELDB`",
                "read it with leveldb=, or in a net with `backend: LEVELDB`",
            ),
            Kind::TfRecord => {
                let command = "read it with `percolator feed PATH`";
                words("read it with `.tfrecord(path)`", command, "read it with tfrecord=")
            }
            Kind::List => words(
                "read it with `ImageList::open`",
                "`percolator inspect`, `verify` and `mean` read it, an ImageData layer of a net feeds it, \
                 and `percolator convert list` makes a database of it",
                "read it with image_list=",
            ),
            Kind::Classes => words(
                "list its images and labels in a text file for `ImageList`, or make a database of it with \
                 `percolator convert folders`",
                "make a database of it with `percolator convert folders`",
                "list its images and labels in a text file for image_list=, or make a database of it with \
                 `percolator convert folders`",
            ),
            Kind::Idx => "make a database of it with `percolator convert idx`",
            Kind::Net => words(
                "open it with `Net::open`",
                "feed it with `percolator feed NET`",
                "open it with percolator.Net",
            ),
            Kind::Mean => words(
                "subtract it with `Transform::mean_file`",
                "subtract it with --mean-file",
                "subtract it with mean_file=",
            ),
            Kind::Model => words(
                "it has no records; `percolator model list` shows what is in it",
                "it has no records; `percolator model list` shows what is in it",
                "it has no records; `percolator model list` shows what is in it",
            ),
            Kind::Text | Kind::Damaged | Kind::Other => "",
        }
    }
}

/// "a Git LFS pointer, which ...: fetch ...".
impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.remedy() {
            "" => Ok(()),
            remedy => write!(f, ": {remedy}"),
        }
    }
}

/// What is at a path instead of one of the wanted kinds, with what to do about it; `None` if it may be one of
/// them, or if it is unknown.
#[must_use]
pub fn instead_of(wanted: &[Kind], path: &Path) -> Option<Thing> {
    Thing::at(path).filter(|thing| !wanted.contains(&thing.kind))
}

/// The remedy for everything that was truncated or overwritten.
const COPY: &str = "copy it again from where it came";
/// The remedy for formats that are not read here.
const UNREAD: &str = "nothing here reads it";

/// The remedy for another library's files that percolator-formats reads.
fn read_as_it_is() -> &'static str {
    words(
        "read it with `SourceSpec::files(path)` and the package percolator-formats",
        "read it with `percolator feed PATH`",
        "read it with files=",
    )
}

#[cfg(test)]
mod tests;
