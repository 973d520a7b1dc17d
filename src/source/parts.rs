//! Records with named parts: a tar's members, a table's columns.

use std::borrow::Cow;
use std::fmt;

use crate::base::shape::Dtype;

/// Finds the named parts in the bytes of a source's records.
///
/// A source whose records have parts [has one](super::Source::record_parts). A feed then makes
/// [fields](crate::example::ExampleFields) and an [image](crate::example::ExampleImage) of the parts, as it
/// does of an Example's features.
pub trait RecordParts: Send + Sync + fmt::Debug {
    /// Describes the parts, for messages. Sources can be joined if they describe their parts alike.
    fn description(&self) -> String;

    /// The names of a record's parts: of each that [`part`](Self::part) takes. Members of parts have names of
    /// their own.
    fn names(&self, record: &[u8]) -> Vec<String>;

    /// Checks that all parts of a record can be read, for whoever verifies a data set.
    ///
    /// # Errors
    ///
    /// [`PartFault`] if the record is damaged.
    fn check(&self, _record: &[u8]) -> Result<(), PartFault> {
        Ok(())
    }

    /// The parts that are the image and its label, if the format says so.
    fn image(&self) -> Option<(String, Option<String>)> {
        None
    }

    /// The part of this name; `None` if the record has none, or a null. Nothing is allocated for a part that
    /// lies in the record as it is, or that is one number.
    ///
    /// # Errors
    ///
    /// [`PartFault`] if the record is damaged, or the part is of a kind that no field takes.
    fn part<'a>(&'a self, record: &'a [u8], name: &str) -> Result<Option<Part<'a>>, PartFault>;
}

/// A part of a record.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum Part<'a> {
    /// Bytes, or a text in UTF-8. A field of numbers reads a text as one decimal number.
    Bytes(Cow<'a, [u8]>),
    /// Several of them.
    Strings(Vec<Cow<'a, [u8]>>),
    /// One integer.
    Int(i64),
    /// One float.
    Float(f64),
    /// Numbers of one type, little-endian, in C order.
    Numbers {
        /// Their type.
        dtype: Dtype,
        /// Their bytes, not aligned.
        values: Cow<'a, [u8]>,
    },
}

/// What is wrong with a record, or with one of its parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PartFault(String);

impl PartFault {
    /// Creates a fault from a message that says what was found and what is allowed.
    pub fn new(message: impl Into<String>) -> Self {
        PartFault(message.into())
    }
}
