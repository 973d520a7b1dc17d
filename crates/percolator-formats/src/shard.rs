//! What every format implements.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::Access;

use crate::{Fault, FormatError, Lent, Value};

/// Where a record is in its shard: numbers that the format defines, such as offset and length.
pub type Place = [u64; 2];

/// How a shard is opened.
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether files are mapped or read.
    pub access: Access,
    /// The parts that will be used; `None` for all. A format that stores parts apart reads only these, and
    /// its grammar has only these ([`wants`](Self::wants)). A name that no part has is whoever uses it to
    /// notice.
    pub parts: Option<Vec<String>>,
    /// The format, if it is not to be told by content and name: `"tar"`, `"mds"`, `"csv"`.
    pub format: Option<String>,
    /// Settings that a format has of its own, by their names: `("block", "1024")`. A format refuses what it
    /// does not know.
    pub settings: Vec<(String, String)>,
    /// If it is stated, files that a list names lie below this folder, where their names begin, too.
    pub within: Option<PathBuf>,
    /// What the shards of a data set keep decoded, together.
    #[cfg(feature = "parquet")]
    pub(crate) decoded: Arc<crate::parquet_file::DecodedRows>,
}

impl Options {
    /// Whether a part will be used. A wanted name may be a path into the part (`image.bytes`, `json:a.b`),
    /// and one of several between semicolons (`jpg;png`).
    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        let leads_into = |name: &str| {
            name.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
        };
        self.parts.as_ref().is_none_or(|parts| parts.iter().any(|names| names.split(';').any(leads_into)))
    }
}

/// A file of records, or a folder that one index describes.
pub trait Shard: Send + Sync + fmt::Debug {
    /// What names it in messages: the file, or the folder.
    fn path(&self) -> &Path;

    /// The files that it consists of, which decide what its records are.
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    /// The number of records, if the format states it. It was compared with what else states it.
    fn records(&self) -> Option<u64>;

    /// How a record is reached.
    fn seeks(&self) -> Seeks;

    /// The place of a record, if [`Seeks::ByPosition`].
    ///
    /// # Errors
    ///
    /// [`FormatError`] if what states it is damaged.
    fn place(&self, position: u64) -> Result<Place, FormatError> {
        Ok([position, 0])
    }

    /// The line, from 1, of a record of a text file, for messages; `None` of other files, and where it cannot
    /// be read.
    fn line(&self, _place: Place) -> Option<u64> {
        None
    }

    /// Finds the parts in a record's bytes. Shards with equal [descriptions](Grammar::description) have
    /// interchangeable grammars.
    fn grammar(&self) -> Arc<dyn Grammar>;

    /// Opens a cursor before the first record.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the files cannot be read.
    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError>;
}

/// How a record is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeks {
    /// By its position: the format has a table, or records of one size.
    ByPosition,
    /// By its place, which a pass over the shard finds.
    ByPlace,
    /// Only by reading everything before it. The words say why, and what to do: "it is compressed as a
    /// whole; convert it ...".
    InOrder(&'static str),
}

/// Reads a shard in order, or goes to a place.
pub trait Cursor {
    /// Reads the next record; `None` past the last one. At the end it verifies what only the end shows: an
    /// end mark, a checksum over all, a count.
    ///
    /// # Errors
    ///
    /// [`FormatError`] with file, offset and record. The cursor then stays where it is: the next call returns
    /// the same error.
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError>;

    /// Passes over the next record and returns its place; `None` past the last one. A cursor that reads no
    /// value for this overrides it.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        Ok(self.advance()?.map(|record| record.place))
    }

    /// Goes to the record at a place, which the shard or an earlier pass has given; reading continues from
    /// there. `position` is its number in the shard, for messages. A shard that is read
    /// [in order](Seeks::InOrder) goes back to the first record for position 0 and refuses others.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if there is no record at the place: the file has changed.
    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError>;
}

/// A record as a cursor returns it.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// What the format calls it.
    pub key: Key<'a>,
    /// Its bytes, in which the [grammar](Shard::grammar) finds the parts.
    pub value: Lent<'a>,
    /// Where it is.
    pub place: Place,
}

/// What a format calls a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// It has no name but its position.
    None,
    /// A text, or bytes.
    Bytes(&'a [u8]),
    /// A number.
    Number(u64),
}

/// A named part of a record.
pub type Part<'a> = (Cow<'a, str>, Value<'a>);

/// Finds the parts in a record's bytes. What a worker does with a record begins here.
pub trait Grammar: Send + Sync + fmt::Debug {
    /// Decides whether the shards of a data set fit together: two grammars with one description read each
    /// other's records. For messages, too: "columns image: bytes, label: int".
    fn description(&self) -> String;

    /// The names of the parts, if all records have the same ones.
    fn names(&self) -> Option<Vec<String>>;

    /// All parts, in the order in which they are stored.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the bytes are damaged: which part, what was found, what was expected.
    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault>;

    /// One part; `None` if the record has none of that name. It looks at no other part's bytes, and allocates
    /// nothing for a number, a text, bytes or an array.
    ///
    /// # Errors
    ///
    /// As [`parts`](Self::parts).
    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        Ok(self.parts(value)?.into_iter().find(|(part, _)| part == name).map(|(_, value)| value))
    }
}
