//! From a feature's list directly into the record's row.

use half::{bf16, f16};

use super::fields::{Elements, ExampleField, ExampleFields, Missing};
use super::lookup::{Found, Lookup};
use crate::base::shape::{Dtype, Element};
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::Field;
use crate::record::{FeatureError, WireError};
use percolator_messages::example::{
    BytesList, Example, ExampleError, Feature, Float, FloatList, Int64List, IntError, Integer, Kind,
};

/// The fields that are made of features.
#[derive(Debug)]
pub(crate) struct FeatureFields {
    fields: Vec<FeatureField>,
}

/// A field, and the feature that it is made of.
#[derive(Debug)]
struct FeatureField {
    field: Field,
    /// The number of the field among those of features.
    at: usize,
    /// Of several strings: the field of their lengths, which follows, and the most bytes of one.
    strings: Option<(Field, usize)>,
    /// The feature, by its number in the lookup.
    feature: usize,
    name: String,
    kind: Kind,
    missing: Replacement,
    /// The number of elements, of several strings the number of strings; or the maximum.
    elements: usize,
    is_fixed: bool,
}

/// What replaces a missing feature.
#[derive(Debug)]
enum Replacement {
    Nothing,
    /// No elements.
    Empty,
    /// The bytes of all elements, or of one that stands for each.
    Elements(Vec<u8>),
    Bytes(Vec<u8>),
    /// All strings, or one that stands for each.
    Strings(Vec<Vec<u8>>),
}

impl FeatureFields {
    pub(super) fn new(fields: &ExampleFields, lookup: &mut Lookup) -> Self {
        let mut at = 0;
        let fields = fields.fields().iter().map(|one| {
            let field = FeatureField::new(one, at, lookup);
            at += 1 + usize::from(field.strings.is_some());
            field
        });
        FeatureFields { fields: fields.collect() }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = Field> {
        let fields = self.fields.iter().map(|one| (&one.field, &one.strings));
        fields.flat_map(|(field, strings)| {
            [Some(field.clone()), strings.as_ref().map(|(lengths, _)| lengths.clone())].into_iter().flatten()
        })
    }

    /// Checks that a record has the features that it must have, and in the right kind of lists.
    pub(crate) fn check(&self, record: &[u8], found: &Found) -> Result<(), RecordCause> {
        self.fields.iter().try_for_each(|field| field.check(record, found))
    }

    /// Writes the fields of a record to its row, starting with the row's field `first`.
    #[inline]
    pub(crate) fn write(
        &self,
        record: &[u8],
        found: &Found,
        row: &mut Row<'_>,
        first: usize,
    ) -> Result<(), RecordCause> {
        self.fields.iter().try_for_each(|field| field.write(record, found, row, first + field.at))
    }
}

impl FeatureField {
    fn new(one: &ExampleField, at: usize, lookup: &mut Lookup) -> Self {
        let field = one.field.clone();
        let kind = match (one.elements, field.dtype()) {
            (Elements::Bytes | Elements::Strings, _) => Kind::Bytes,
            (_, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64) => Kind::Float,
            _ => Kind::Int64,
        };
        let missing = match &one.missing {
            Missing::Error => Replacement::Nothing,
            Missing::Empty => Replacement::Empty,
            Missing::Values(values) => {
                let size = field.dtype().size();
                // The fields were checked: each value is one of the field's type.
                let bytes = values.iter().filter_map(|value| Some(field.pad_bytes(*value)?[..size].to_vec()));
                Replacement::Elements(bytes.flatten().collect())
            }
            Missing::Bytes(bytes) => Replacement::Bytes(bytes.clone()),
            Missing::Strings(strings) => Replacement::Strings(strings.clone()),
        };
        let max = one.strings_shape().map(|(_, max)| max);
        let strings = one.lengths().zip(max);
        let counted = strings.as_ref().map_or(&field, |(lengths, _)| lengths);
        let elements = counted.row_elements().unwrap_or(usize::MAX);
        let is_fixed = !one.has_most();
        let (feature, name) = (lookup.number(&one.feature), one.feature.to_string());
        FeatureField { field, at, strings, feature, name, kind, missing, elements, is_fixed }
    }

    #[inline]
    fn write(&self, record: &[u8], found: &Found, row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        match (found.feature(record, self.feature)?, self.kind) {
            (Some(Feature::Ints(list)), Kind::Int64) => self.write_ints(list, row, at),
            (Some(Feature::Floats(list)), Kind::Float) => self.write_floats(list, row, at),
            (Some(Feature::Bytes(list)), Kind::Bytes) => self.write_bytes(list, row, at),
            (None | Some(Feature::Unset), _) => self.stand_in(record, found, row, at),
            (Some(other), allowed) => Err(self.wrong_kind(other, allowed).into()),
        }
    }

    fn write_ints(&self, list: Int64List<'_>, row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        match self.field.dtype() {
            Dtype::I64 => self.copy_ints::<i64>(list, row, at),
            Dtype::I32 => self.copy_ints::<i32>(list, row, at),
            Dtype::I16 => self.copy_ints::<i16>(list, row, at),
            Dtype::I8 => self.copy_ints::<i8>(list, row, at),
            Dtype::U64 => self.copy_ints::<u64>(list, row, at),
            Dtype::U32 => self.copy_ints::<u32>(list, row, at),
            Dtype::U16 => self.copy_ints::<u16>(list, row, at),
            // The fields were checked: no other type has integers.
            _ => self.copy_ints::<u8>(list, row, at),
        }
    }

    #[inline]
    fn copy_ints<T: Integer + Element>(
        &self,
        list: Int64List<'_>,
        row: &mut Row<'_>,
        at: usize,
    ) -> Result<(), RecordCause> {
        match list.copy_to(row.values_mut::<T>(at)?) {
            Ok(values) if !self.is_fixed => Ok(row.set_len(at, values)?),
            Ok(values) if values == self.elements => Ok(()),
            Ok(values) => Err(self.wrong_count(values).into()),
            Err(IntError::Wire(error)) => Err(ExampleError::Wire(error).into()),
            Err(IntError::TooMany) => {
                let values = list.count().map_err(ExampleError::Wire)?;
                Err(self.wrong_count(values).into())
            }
            Err(IntError::Range { index, value }) => Err(self.out_of_range(index, value).into()),
        }
    }

    fn write_floats(&self, list: FloatList<'_>, row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        if list.len() > self.elements || self.is_fixed && list.len() != self.elements {
            return Err(self.wrong_count(list.len()).into());
        }
        match self.field.dtype() {
            Dtype::F64 => Self::copy_floats::<f64>(list, row, at),
            Dtype::F16 => Self::copy_floats::<f16>(list, row, at),
            Dtype::Bf16 => Self::copy_floats::<bf16>(list, row, at),
            // The fields were checked: no other type has floats.
            _ => Self::copy_floats::<f32>(list, row, at),
        }?;
        if !self.is_fixed {
            row.set_len(at, list.len())?;
        }
        Ok(())
    }

    #[inline]
    fn copy_floats<T: Float + Element>(
        list: FloatList<'_>,
        row: &mut Row<'_>,
        at: usize,
    ) -> Result<(), RecordCause> {
        list.copy_to(row.values_mut::<T>(at)?);
        Ok(())
    }

    fn write_bytes(&self, list: BytesList<'_>, row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        if let Some((_, max)) = self.strings {
            return self.write_strings(|| list.each(), max, row, at);
        }
        if matches!(self.missing, Replacement::Empty) && list.is_empty() {
            return Ok(row.set_len(at, 0)?);
        }
        let string = only_string(list).map_err(|error| match error {
            StringError::Wire(error) => error.into(),
            StringError::Count(found) => RecordCause::Feature(FeatureError::Count {
                feature: self.name.clone(),
                wanted: format!("{}, made of a string,", self.wanted()),
                found,
                allowed: 1,
                is_most: false,
            }),
        })?;
        if string.len() > self.elements || self.is_fixed && string.len() != self.elements {
            return Err(self.wrong_length(string.len()).into());
        }
        Ok(row.write(at, string)?)
    }

    /// Writes strings, each of up to `max` bytes, and their lengths.
    fn write_strings<'s, E>(
        &self,
        strings: impl Fn() -> E,
        max: usize,
        row: &mut Row<'_>,
        at: usize,
    ) -> Result<(), RecordCause>
    where
        E: Iterator<Item = Result<&'s [u8], WireError>>,
    {
        let mut places = row.values_mut::<u8>(at)?.chunks_exact_mut(max.max(1));
        let mut count = 0;
        for string in strings() {
            let string = string.map_err(ExampleError::Wire)?;
            count += 1;
            // Too many are counted to the end, for the message.
            let Some(place) = places.next() else { continue };
            let Some((to, rest)) = place.split_at_mut_checked(string.len()) else {
                return Err(self.wrong_length(string.len()).into());
            };
            to.copy_from_slice(string);
            rest.fill(0);
        }
        if count > self.elements || self.is_fixed && count != self.elements {
            return Err(self.wrong_count(count).into());
        }
        places.for_each(|place| place.fill(0));
        let lengths = row.values_mut::<i64>(at + 1)?;
        for (to, string) in lengths.iter_mut().zip(strings()) {
            // A slice's length fits.
            *to = string.map_err(ExampleError::Wire)?.len() as i64;
        }
        if !self.is_fixed {
            row.set_len(at + 1, count)?;
        }
        Ok(())
    }

    /// Writes what a record without the feature gets.
    #[cold]
    fn stand_in(
        &self,
        record: &[u8],
        found: &Found,
        row: &mut Row<'_>,
        at: usize,
    ) -> Result<(), RecordCause> {
        match &self.missing {
            Replacement::Empty => match self.strings {
                Some((_, max)) => self.write_strings(std::iter::empty, max, row, at),
                None => Ok(row.set_len(at, 0)?),
            },
            Replacement::Strings(strings) => {
                let max = self.strings.as_ref().map_or(0, |(_, max)| *max);
                let each = || strings.iter().cycle().take(self.elements).map(|string| Ok(&string[..]));
                self.write_strings(each, max, row, at)
            }
            Replacement::Bytes(bytes) => Ok(row.write(at, bytes)?),
            Replacement::Elements(bytes) => {
                row.bytes_mut(at)
                    .chunks_exact_mut(bytes.len().max(1))
                    .for_each(|to| to.copy_from_slice(bytes));
                Ok(())
            }
            Replacement::Nothing => Err(self.missing(record, found)?.into()),
        }
    }

    /// Checks that a record has the feature if it must, and in the right kind of list.
    fn check(&self, record: &[u8], found: &Found) -> Result<(), RecordCause> {
        match found.feature(record, self.feature)? {
            None | Some(Feature::Unset) => match self.missing {
                Replacement::Nothing => Err(self.missing(record, found)?.into()),
                Replacement::Empty => self.warn_of_empty(record, found),
                _ => Ok(()),
            },
            Some(feature) if feature.kind() == Some(self.kind) => Ok(()),
            Some(other) => Err(self.wrong_kind(other, self.kind).into()),
        }
    }

    /// A record may lack the feature. But if the first record does, the name may be misspelt, and all rows
    /// would be empty.
    #[cold]
    fn warn_of_empty(&self, record: &[u8], found: &Found) -> Result<(), RecordCause> {
        if let FeatureError::Missing { feature, wanted: _, features } = self.missing(record, found)? {
            tracing::warn!(
                feature,
                field = %self.field,
                has = ?features,
                "the first record has no such feature: if its name is wrong, the field is always empty"
            );
        }
        Ok(())
    }

    #[cold]
    fn missing(&self, record: &[u8], found: &Found) -> Result<FeatureError, ExampleError> {
        let wanted = format!("{}, which has no default,", self.wanted());
        missing(record, found, self.feature, &self.name, &wanted)
    }

    /// Describes the field for a message.
    fn wanted(&self) -> String {
        format!("the field {}", self.field)
    }

    #[cold]
    fn wrong_kind(&self, found: Feature<'_>, allowed: Kind) -> FeatureError {
        wrong_kind(&self.name, self.wanted(), found, allowed)
    }

    #[cold]
    fn wrong_count(&self, found: usize) -> FeatureError {
        let (feature, wanted, is_most) = (self.name.clone(), self.wanted(), !self.is_fixed);
        FeatureError::Count { feature, wanted, found, allowed: self.elements, is_most }
    }

    #[cold]
    fn wrong_length(&self, found: usize) -> FeatureError {
        let (feature, wanted) = (self.name.clone(), self.wanted());
        let (allowed, is_most) = match self.strings {
            Some((_, max)) => (max, true),
            None => (self.elements, !self.is_fixed),
        };
        FeatureError::Bytes { feature, wanted, found, allowed, is_most }
    }

    #[cold]
    fn out_of_range(&self, index: usize, found: i64) -> FeatureError {
        let (feature, wanted, dtype) = (self.name.clone(), self.wanted(), self.field.dtype());
        FeatureError::Range { feature, wanted, index, found, dtype }
    }
}

/// Why there is not exactly one string.
pub(super) enum StringError {
    Wire(ExampleError),
    /// There are this many.
    Count(usize),
}

/// The only string of a list.
#[inline]
pub(super) fn only_string(list: BytesList<'_>) -> Result<&[u8], StringError> {
    let wire = |error| StringError::Wire(ExampleError::Wire(error));
    let mut strings = list.each();
    let Some(string) = strings.next().transpose().map_err(wire)? else { return Err(StringError::Count(0)) };
    let more = strings.try_fold(0_usize, |more, next| next.map(|_| more.saturating_add(1))).map_err(wire)?;
    if more > 0 { Err(StringError::Count(more.saturating_add(1))) } else { Ok(string) }
}

/// The error for a feature of another kind.
#[cold]
pub(super) fn wrong_kind(feature: &str, wanted: String, found: Feature<'_>, allowed: Kind) -> FeatureError {
    match found.kind() {
        Some(found) => FeatureError::Kind { feature: feature.to_owned(), wanted, found, allowed },
        None => FeatureError::Unset { feature: feature.to_owned(), wanted },
    }
}

/// The error for a feature that a record lacks, or that has no kind. If the record is damaged elsewhere, that
/// damage is the error: it may be why the feature seems to be missing.
#[cold]
pub(super) fn missing(
    record: &[u8],
    found: &Found,
    number: usize,
    feature: &str,
    wanted: &str,
) -> Result<FeatureError, ExampleError> {
    let (feature, wanted) = (feature.to_owned(), wanted.to_owned());
    if found.feature(record, number)?.is_some() {
        return Ok(FeatureError::Unset { feature, wanted });
    }
    let example = Example::parse(record)?;
    let mut features: Vec<String> = example.features().entries().map(|(name, _)| name.to_owned()).collect();
    features.sort();
    features.dedup();
    Ok(FeatureError::Missing { feature, wanted, features })
}
