//! Reads a record's bytes in place as TensorFlow's `Example` and `SequenceExample`, and writes them.
//!
//! ```text
//! Example          features: Features
//! SequenceExample  context: Features, feature_lists: name -> list of Feature
//! Features         feature: name -> Feature
//! Feature          one of bytes_list, float_list, int64_list
//! ```
//!
//! The views do not copy or allocate. They accept and refuse exactly the messages that prost does, and read
//! the same values from them:
//!
//! - A message that occurs several times where the schema allows one (`features`, the value of a map's entry)
//!   is merged: all parts count, in order.
//! - Of several entries of a map with the same name, the last one replaces the others completely.
//! - A Feature with several kinds has the last of them. Its lists of that kind since the kind last changed
//!   are one list.
//! - Numbers may be packed, unpacked, or some of each.
//! - A Feature without a kind is present, but has no list.
//! - Unknown fields are skipped, groups too. A known field with another wire type is an error. (protobuf's
//!   own parser skips such a field; no writer makes one.)
//! - Names are UTF-8, like all strings of proto3.

#![deny(clippy::indexing_slicing)]

mod error;
mod feature;
mod lists;
mod varints;
mod writer;

use std::fmt;

pub use self::error::ExampleError;
pub use self::feature::{Feature, Kind};
pub use self::lists::{BytesIter, BytesList, FloatIter, FloatList, Int64List, IntError, IntIter};
pub use self::varints::{Float, Integer};
pub use self::writer::{ExampleWriter, NameFirst, features_head, string_head};

use self::feature::{NAME, Pieces, VALUE, feature_of};
use crate::wire::{Wire, WireError};

/// The fields of messages.
const FEATURES: u32 = 1;
const CONTEXT: u32 = 1;
const FEATURE_LISTS: u32 = 2;
const ENTRIES: u32 = 1;
const ELEMENTS: u32 = 1;

/// A record that is a `tf.train.Example`.
///
/// ```
/// use percolator_messages::example::{Example, ExampleWriter};
///
/// let record = ExampleWriter::new().ints("id", [7]).bytes("name", ["seven"]).to_bytes();
/// let example = Example::parse(&record)?;
/// let name = example.features().get("name").and_then(|feature| feature.bytes());
/// assert_eq!(name.and_then(|name| name.iter().next()), Some(&b"seven"[..]));
/// # Ok::<(), percolator_messages::example::ExampleError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Example<'a> {
    features: Features<'a>,
}

impl<'a> Example<'a> {
    /// Reads a record, and checks all of it.
    ///
    /// # Errors
    ///
    /// If the bytes are not an `Example`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ExampleError> {
        let message = Wire::new(bytes);
        let mut fields = message;
        while let Some((_, features)) = fields.next_of(FEATURES..=FEATURES)? {
            check_features(features)?;
        }
        Ok(Example { features: Features { message } })
    }

    /// Its features.
    #[must_use]
    pub fn features(&self) -> Features<'a> {
        self.features
    }
}

impl fmt::Debug for Example<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Example").field(&self.features).finish()
    }
}

/// A record that is a `tf.train.SequenceExample`.
#[derive(Clone, Copy)]
pub struct SequenceExample<'a> {
    message: Wire<'a>,
}

impl<'a> SequenceExample<'a> {
    /// Reads a record, and checks all of it.
    ///
    /// # Errors
    ///
    /// If the bytes are not a `SequenceExample`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ExampleError> {
        let message = Wire::new(bytes);
        let mut fields = message;
        while let Some((number, field)) = fields.next_of(CONTEXT..=FEATURE_LISTS)? {
            match number {
                CONTEXT => check_features(field)?,
                _ => check_lists(field)?,
            }
        }
        Ok(SequenceExample { message })
    }

    /// The features of the whole sequence.
    #[must_use]
    pub fn context(&self) -> Features<'a> {
        Features { message: self.message }
    }

    /// The features of its elements.
    #[must_use]
    pub fn feature_lists(&self) -> FeatureLists<'a> {
        FeatureLists { message: self.message }
    }
}

impl fmt::Debug for SequenceExample<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceExample")
            .field("context", &self.context())
            .field("feature_lists", &self.feature_lists())
            .finish()
    }
}

/// Features by name.
#[derive(Clone, Copy)]
pub struct Features<'a> {
    /// An Example, or a SequenceExample whose context they are.
    message: Wire<'a>,
}

impl<'a> Features<'a> {
    /// The feature of this name, or `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Feature<'a>> {
        self.entries().filter(|(found, _)| *found == name).last().map(|(_, feature)| feature)
    }

    /// All entries, as they are written. An entry replaces those of the same name before it, which are
    /// returned as well.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Feature<'a>)> + use<'a> {
        named(self.message, FEATURES).map(|(name, entry)| (name, feature_of(entry).unwrap_or(Feature::Unset)))
    }
}

impl fmt::Debug for Features<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

/// Lists of features by name.
#[derive(Clone, Copy)]
pub struct FeatureLists<'a> {
    /// The `SequenceExample`.
    message: Wire<'a>,
}

impl<'a> FeatureLists<'a> {
    /// The list of this name, or `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<FeatureList<'a>> {
        self.entries().filter(|(found, _)| *found == name).last().map(|(_, list)| list)
    }

    /// All entries, as they are written. An entry replaces those of the same name before it, which are
    /// returned as well.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, FeatureList<'a>)> + use<'a> {
        named(self.message, FEATURE_LISTS).map(|(name, entry)| (name, FeatureList { entry }))
    }
}

impl fmt::Debug for FeatureLists<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

/// One feature for each element of a sequence.
#[derive(Clone, Copy)]
pub struct FeatureList<'a> {
    /// The map's entry.
    entry: Wire<'a>,
}

impl<'a> FeatureList<'a> {
    /// The features, in order.
    pub fn iter(&self) -> impl Iterator<Item = Feature<'a>> + use<'a> {
        let lists = chunks(self.entry, NAME..=VALUE).filter(|&(number, _)| number == VALUE);
        let features = lists.flat_map(|(_, list)| chunks(list, ELEMENTS..=ELEMENTS));
        features.map(|(_, feature)| Pieces::of_message(feature).feature().unwrap_or(Feature::Unset))
    }

    /// The number of features. Counts them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl fmt::Debug for FeatureList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A range of bytes in a record: start and end.
pub type Place = (usize, usize);

/// The entries of an Example that may not have been checked. What is wrong with it is found as it is read.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    example: Wire<'a>,
    features: Wire<'a>,
}

impl<'a> Entries<'a> {
    /// The entries of the Example with these bytes.
    #[inline]
    #[must_use]
    pub fn of_example(record: &'a [u8]) -> Self {
        Entries { example: Wire::new(record), features: Wire::default() }
    }

    /// The next entry: its name, and its place in the record.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the record is no protobuf message there.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<(&'a [u8], Place)>, WireError> {
        loop {
            if let Some((_, entry)) = self.features.next_of(ENTRIES..=ENTRIES)? {
                return Ok(Some((name_of(entry)?, entry.place())));
            }
            match self.example.next_of(FEATURES..=FEATURES)? {
                Some((_, features)) => self.features = features,
                None => return Ok(None),
            }
        }
    }

    /// The feature of the entry at a place that [`advance`](Self::advance) returned. Packed elements are not
    /// checked.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the record is no protobuf message there.
    #[inline]
    pub fn feature(record: &'a [u8], place: Place) -> Result<Feature<'a>, WireError> {
        /// The depth of an entry: it is inside an Example and its Features.
        const DEPTH: usize = 2;

        feature_of(Wire::at(record, place, DEPTH))
    }
}

/// The name of a map's entry: the last one, if there are several.
#[inline]
fn name_of(mut entry: Wire<'_>) -> Result<&[u8], WireError> {
    if let Some((name, _)) = feature::plain_entry(entry.message()) {
        return Ok(name);
    }
    let mut name: &[u8] = &[];
    while let Some((number, field)) = entry.next_of(NAME..=VALUE)? {
        if number == NAME {
            name = field.rest();
        }
    }
    Ok(name)
}

/// The fields of these numbers, of a message that was checked.
fn chunks(
    mut message: Wire<'_>,
    numbers: std::ops::RangeInclusive<u32>,
) -> impl Iterator<Item = (u32, Wire<'_>)> {
    std::iter::from_fn(move || message.next_of(numbers.clone()).unwrap_or(None))
}

/// The entries of the maps in field `number` of a message that was checked, with their names.
fn named(message: Wire<'_>, number: u32) -> impl Iterator<Item = (&str, Wire<'_>)> {
    let maps = chunks(message, number..=number);
    maps.flat_map(|(_, map)| chunks(map, ENTRIES..=ENTRIES)).map(|(_, entry)| {
        let name = name_of(entry).unwrap_or_default();
        (std::str::from_utf8(name).unwrap_or_default(), entry)
    })
}

fn check_features(mut features: Wire<'_>) -> Result<(), ExampleError> {
    while let Some((_, mut entry)) = features.next_of(ENTRIES..=ENTRIES)? {
        while let Some((number, field)) = entry.next_of(NAME..=VALUE)? {
            match number {
                NAME => check_name(field)?,
                _ => Pieces::of_message(field).check()?,
            }
        }
    }
    Ok(())
}

fn check_lists(mut lists: Wire<'_>) -> Result<(), ExampleError> {
    while let Some((_, mut entry)) = lists.next_of(ENTRIES..=ENTRIES)? {
        while let Some((number, mut field)) = entry.next_of(NAME..=VALUE)? {
            if number == NAME {
                check_name(field)?;
                continue;
            }
            while let Some((_, feature)) = field.next_of(ELEMENTS..=ELEMENTS)? {
                Pieces::of_message(feature).check()?;
            }
        }
    }
    Ok(())
}

fn check_name(name: Wire<'_>) -> Result<(), ExampleError> {
    match std::str::from_utf8(name.rest()) {
        Ok(_) => Ok(()),
        Err(_) => Err(ExampleError::Name { offset: name.offset(), name: name.rest().to_owned() }),
    }
}
