//! A feature: one of three kinds of list.

use std::fmt;

use super::lists::{self, BytesList, FloatList, Int64List};
use crate::datum::Strided;
use crate::wire::{Wire, WireError, chunk_after};

/// A feature's value.
#[derive(Clone, Copy, Debug)]
pub enum Feature<'a> {
    /// It has no kind, and so no list. TensorFlow treats it as missing.
    Unset,
    /// Byte strings.
    Bytes(BytesList<'a>),
    /// Floats.
    Floats(FloatList<'a>),
    /// Integers.
    Ints(Int64List<'a>),
}

impl<'a> Feature<'a> {
    /// Its byte strings, or `None` if it is of another kind.
    #[must_use]
    pub fn bytes(self) -> Option<BytesList<'a>> {
        match self {
            Feature::Bytes(list) => Some(list),
            _ => None,
        }
    }

    /// Its floats, or `None` if it is of another kind.
    #[must_use]
    pub fn floats(self) -> Option<FloatList<'a>> {
        match self {
            Feature::Floats(list) => Some(list),
            _ => None,
        }
    }

    /// Its integers, or `None` if it is of another kind.
    #[must_use]
    pub fn ints(self) -> Option<Int64List<'a>> {
        match self {
            Feature::Ints(list) => Some(list),
            _ => None,
        }
    }

    /// The kind of its list, or `None` if it has no kind.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        match self {
            Feature::Unset => None,
            Feature::Bytes(_) => Some(Kind::Bytes),
            Feature::Floats(_) => Some(Kind::Float),
            Feature::Ints(_) => Some(Kind::Int64),
        }
    }
}

/// A kind of feature. Displayed as the field of `Feature` that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Kind {
    /// Byte strings.
    Bytes,
    /// 32-bit floats.
    Float,
    /// 64-bit integers.
    Int64,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bytes => "bytes_list",
            Kind::Float => "float_list",
            Kind::Int64 => "int64_list",
        })
    }
}

/// The fields of a `Feature`.
const BYTES_LIST: u32 = 1;
const INT64_LIST: u32 = 3;
/// The fields of a map's entry.
pub(super) const NAME: u32 = 1;
pub(super) const VALUE: u32 = 2;

/// A map's entry as nearly all writers write it: only the name, and then the value.
#[inline]
pub(super) fn plain_entry(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    const NAME_KEY: u8 = 1 << 3 | 2;
    const VALUE_KEY: u8 = 2 << 3 | 2;

    let (name, rest) = chunk_after(entry, NAME_KEY)?;
    let (value, rest) = chunk_after(rest, VALUE_KEY)?;
    rest.is_empty().then_some((name, value))
}

/// The feature in a map's entry. Packed elements are not checked.
#[inline]
pub(super) fn feature_of(entry: Wire<'_>) -> Result<Feature<'_>, WireError> {
    match plain_numbers(entry) {
        Some(feature) => Ok(feature),
        None => Pieces::of_entry(entry).feature(),
    }
}

/// The feature, if it is a packed list and the entry has nothing else.
#[inline]
fn plain_numbers(entry: Wire<'_>) -> Option<Feature<'_>> {
    const FLOAT_LIST_KEY: u8 = 2 << 3 | 2;
    const INT64_LIST_KEY: u8 = 3 << 3 | 2;
    const VALUES_KEY: u8 = 1 << 3 | 2;

    let (_, value) = plain_entry(entry.message())?;
    let &key = value.first()?;
    if !matches!(key, FLOAT_LIST_KEY | INT64_LIST_KEY) {
        return None;
    }
    let (list, rest) = chunk_after(value, key)?;
    let (packed, after) = if list.is_empty() { (list, list) } else { chunk_after(list, VALUES_KEY)? };
    if !(rest.is_empty() && after.is_empty()) {
        return None;
    }
    // The feature, its list and the list's values all end where the entry does.
    match key {
        INT64_LIST_KEY => Some(Feature::Ints(Int64List::of_run(entry.end(packed.len())))),
        _ => match packed.as_chunks() {
            (floats, []) => Some(Feature::Floats(FloatList::of_run(Strided::Packed(floats)))),
            _ => None,
        },
    }
}

/// One list of a feature, as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) list: Wire<'a>,
}

/// The lists of one feature, which are usually one. Several occur if the feature, or its list, is written in
/// parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pieces<'a> {
    /// What is left of the map's entry, whose values are the feature; empty if there is no entry.
    entry: Wire<'a>,
    /// What is left of a part of the feature.
    feature: Wire<'a>,
}

impl<'a> Pieces<'a> {
    /// The lists of the feature in a map's entry.
    pub(super) fn of_entry(entry: Wire<'a>) -> Self {
        Pieces { entry, feature: Wire::default() }
    }

    /// The lists of a feature that is one message.
    pub(super) fn of_message(feature: Wire<'a>) -> Self {
        Pieces { entry: Wire::default(), feature }
    }

    /// What is left of the map's entry.
    pub(super) fn entry(&self) -> &'a [u8] {
        self.entry.message()
    }

    #[inline]
    pub(super) fn advance(&mut self) -> Result<Option<Piece<'a>>, WireError> {
        loop {
            if let Some((number, list)) = self.feature.next_of(BYTES_LIST..=INT64_LIST)? {
                let kind = match number {
                    BYTES_LIST => Kind::Bytes,
                    INT64_LIST => Kind::Int64,
                    _ => Kind::Float,
                };
                return Ok(Some(Piece { kind, list }));
            }
            match self.entry.next_of(NAME..=VALUE)? {
                Some((VALUE, feature)) => self.feature = feature,
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// The feature: its last kind, and all lists since the kind last changed. Packed elements are not
    /// checked.
    #[inline]
    pub(super) fn feature(mut self) -> Result<Feature<'a>, WireError> {
        let mut before = self;
        let Some(mut first) = self.advance()? else { return Ok(Feature::Unset) };
        let (mut start, mut is_whole) = (before, true);
        loop {
            before = self;
            match self.advance()? {
                None => break,
                Some(piece) if piece.kind == first.kind => is_whole = false,
                Some(piece) => (first, start, is_whole) = (piece, before, true),
            }
        }
        Ok(match first.kind {
            Kind::Bytes => Feature::Bytes(BytesList { pieces: start }),
            Kind::Float => Feature::Floats(FloatList::find(first.list, start, is_whole)?),
            Kind::Int64 => Feature::Ints(Int64List::find(first.list, start, is_whole)?),
        })
    }

    /// Checks all lists, including those that later ones replace.
    pub(super) fn check(mut self) -> Result<(), WireError> {
        while let Some(Piece { kind, list }) = self.advance()? {
            lists::check(kind, list)?;
        }
        Ok(())
    }
}
