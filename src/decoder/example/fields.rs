//! Which features become which fields.

use std::sync::Arc;

use crate::base::shape::Dtype;
use crate::batch::field::{Field, FieldKind, Pad};

/// The most bytes of a string whose field states no maximum.
pub(super) const BYTES_MAX: usize = 256;

/// Which features of an Example become which fields of a batch, in the order of the fields.
///
/// It is made of [fields](ExampleField), or from a text:
///
/// ```
/// use percolator::Dtype;
/// use percolator::Field;
/// use percolator::example::{ExampleField, ExampleFields};
///
/// let fields: ExampleFields = "input:i64[128],label:i64=0,name:bytes,ragged:i64[<=8]=-1".parse()?;
/// let same = ExampleFields::from_iter([
///     ExampleField::new(Field::new("input", Dtype::I64, [128])),
///     ExampleField::new(Field::scalar("label", Dtype::I64)).or(0),
///     ExampleField::bytes("name", 256),
///     ExampleField::new(Field::padded("ragged", Dtype::I64, 8, -1)),
/// ]);
/// assert_eq!(fields, same);
/// assert_eq!(same.to_string(), "input:i64[128],label:i64=0,name:bytes,ragged:i64[<=8]=-1");
/// # Ok::<(), percolator::example::GrammarError>(())
/// ```
///
/// # As text
///
/// `NAME:TYPE`, separated by commas. Each takes the feature of that name, and makes the field of that name;
/// `FEATURE as NAME:TYPE` gives the field another name. A feature whose name has characters other than
/// letters, digits, `_`, `-` and `/` is quoted: `"image.width" as width:i64`.
///
/// | type | field | feature |
/// |---|---|---|
/// | `i64` | one number | exactly one value |
/// | `i64[128]`, `f32[3x4]` | an array of this shape | exactly as many values |
/// | `i64[<=8]` | [ragged](Field::ragged): values and offsets | at most 8 values, or none |
/// | `i64[<=8]=-1` | [padded](Field::padded) with -1: values and lengths | at most 8 values, or none |
/// | `bytes` | one string as `u8`, padded to 256 with zeros; lengths | one string of at most 256 bytes |
/// | `bytes(4096)` | the same, padded to 4096 | one string of at most 4096 bytes |
/// | `bytes[3x32x32]` | an array of `u8` | one string of exactly as many bytes |
/// | `bytes[<=8]` | ragged `u8` | one string of at most 8 bytes, or none |
/// | `bytes[<=8]=0` | `u8` padded with 0 | one string of at most 8 bytes, or none |
/// | `strings[3]` | `u8` of shape 3x256, padded with zeros; `NAME/lengths` | exactly 3 strings |
/// | `strings[2x3](16)` | `u8` of shape 2x3x16; `NAME/lengths` | exactly 6 strings of at most 16 bytes |
/// | `strings[<=8](16)` | `u8` of shape 8x16; `NAME/lengths` | at most 8 strings, or none |
///
/// "Or none": a record may lack the feature, and then has no elements.
///
/// Several strings give two fields. `NAME/lengths` has the bytes of each string, as `i64`; if their number
/// varies, it is padded with 0, and its own lengths are the numbers of strings.
///
/// The types `i8`, `i16`, `i32`, `i64`, `u8`, `u16`, `u32` and `u64` are made of an `int64_list`; a value
/// that does not fit is an error. `f16`, `bf16`, `f32` and `f64` are made of a `float_list`, rounded to the
/// nearest.
///
/// After a type of a fixed length, `=VALUE` sets what a record without the feature gets, in every element:
/// `label:i64=-1`, `weights:f32[5]=0.5`, `name:bytes="none"`; `=[VALUE,...]` has one for each element:
/// `mean:f32[3]=[0.5,0.4,0.4]`, `names:strings[2]=["a","b"]`. Without it, such a record is an error. A
/// feature without a kind counts as missing, as in TensorFlow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExampleFields {
    pub(super) fields: Vec<ExampleField>,
}

impl ExampleFields {
    /// No fields.
    #[must_use]
    pub fn new() -> Self {
        ExampleFields::default()
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: ExampleField) -> Self {
        self.fields.push(field);
        self
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &[ExampleField] {
        &self.fields
    }

    /// Checks what the general check of a batch's fields does not.
    pub(crate) fn check(&self) -> Result<(), ExampleFieldsError> {
        self.fields.iter().try_for_each(ExampleField::check)
    }
}

impl FromIterator<ExampleField> for ExampleFields {
    fn from_iter<T: IntoIterator<Item = ExampleField>>(fields: T) -> Self {
        ExampleFields { fields: fields.into_iter().collect() }
    }
}

/// A feature of an Example, and the field that it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleField {
    pub(in crate::decoder) field: Field,
    pub(in crate::decoder) feature: Arc<str>,
    pub(in crate::decoder) elements: Elements,
    pub(in crate::decoder) missing: Missing,
}

/// What a field's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decoder) enum Elements {
    /// The values of an `int64_list` or a `float_list`, whichever matches the field's type.
    Values,
    /// The bytes of the only string of a `bytes_list`.
    Bytes,
    /// The strings of a `bytes_list`, each padded with zeros: the rows of an array.
    Strings,
}

/// What a record without the feature gets.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::decoder) enum Missing {
    /// It causes an error.
    Error,
    /// No elements.
    Empty,
    /// These values: one for each element, or one for all of them.
    Values(Vec<Pad>),
    /// These bytes.
    Bytes(Vec<u8>),
    /// These strings: one for each place, or one for all of them.
    Strings(Vec<Vec<u8>>),
}

impl ExampleField {
    /// The values of the feature with the field's name. For a field of a fixed shape, a record must have
    /// exactly as many values as the field has elements. For a padded or ragged field it may have fewer, or
    /// lack the feature.
    #[must_use]
    pub fn new(field: Field) -> Self {
        Self::of(field, Elements::Values)
    }

    /// The bytes of the feature's only string, as the elements of a field of `u8`: what TensorFlow's
    /// `decode_raw` returns.
    #[must_use]
    pub fn of_bytes(field: Field) -> Self {
        Self::of(field, Elements::Bytes)
    }

    /// The feature's only string, of at most `max` bytes. The field is of `u8`, padded with zeros, and
    /// `NAME.lengths` has the lengths. A record must have the feature.
    #[must_use]
    pub fn bytes(name: impl Into<Arc<str>>, max: usize) -> Self {
        let field = Self::of_bytes(Field::padded(name, Dtype::U8, max, 0));
        ExampleField { missing: Missing::Error, ..field }
    }

    /// The feature's strings, each of at most `max` bytes: exactly as many as this shape has places. The
    /// field is of `u8`, with the string's bytes as its last axis, padded with zeros; the field
    /// [`NAME/lengths`](Self::lengths) follows it. A record must have the feature.
    ///
    /// # Panics
    ///
    /// If there are more than 6 extents.
    #[must_use]
    pub fn strings(name: impl Into<Arc<str>>, shape: impl AsRef<[usize]>, max: usize) -> Self {
        let shape = [shape.as_ref(), &[max]].concat();
        Self::of(Field::new(name, Dtype::U8, shape), Elements::Strings)
    }

    /// The feature's strings: at most `most`, each of at most `max` bytes. The field is of `u8`, of the shape
    /// `[most, max]`, padded with zeros; the field [`NAME/lengths`](Self::lengths) follows it. A record may
    /// lack the feature.
    #[must_use]
    pub fn strings_up_to(name: impl Into<Arc<str>>, most: usize, max: usize) -> Self {
        ExampleField { missing: Missing::Empty, ..Self::strings(name, [most], max) }
    }

    fn of(field: Field, elements: Elements) -> Self {
        let missing = match field.kind() {
            FieldKind::Fixed(_) => Missing::Error,
            FieldKind::Padded { .. } | FieldKind::Ragged { .. } => Missing::Empty,
        };
        let feature = field.shared_name().clone();
        ExampleField { field, feature, elements, missing }
    }

    /// Takes the feature of this name instead of the one with the field's name.
    #[must_use]
    pub fn feature(self, feature: impl Into<Arc<str>>) -> Self {
        ExampleField { feature: feature.into(), ..self }
    }

    /// Sets the value of all elements if a record lacks the feature. For fields of a fixed shape.
    #[must_use]
    pub fn or(self, value: impl Into<Pad>) -> Self {
        self.or_values([value])
    }

    /// Sets the values for a record that lacks the feature: one for each element, or one for all. For fields
    /// of a fixed shape.
    #[must_use]
    pub fn or_values(self, values: impl IntoIterator<Item = impl Into<Pad>>) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        ExampleField { missing: Missing::Values(values), ..self }
    }

    /// Sets the bytes for a record that lacks the feature. For fields of [bytes](Self::bytes).
    #[must_use]
    pub fn or_bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        ExampleField { missing: Missing::Bytes(bytes.into()), ..self }
    }

    /// Sets the strings for a record that lacks the feature: one for each place, or one for all. For fields
    /// of a fixed number of [strings](Self::strings).
    #[must_use]
    pub fn or_strings(self, strings: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        let strings = strings.into_iter().map(Into::into).collect();
        ExampleField { missing: Missing::Strings(strings), ..self }
    }

    /// The field.
    #[must_use]
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// The field of the lengths, `NAME/lengths`, if the feature has several strings. It follows
    /// [the field](Self::field) in a batch.
    #[must_use]
    pub fn lengths(&self) -> Option<Field> {
        let (shape, _) = self.strings_shape()?;
        let name = format!("{}/lengths", self.field.name());
        Some(match self.has_most() {
            true => Field::padded(name, Dtype::I64, shape.iter().product(), 0),
            false => Field::new(name, Dtype::I64, shape),
        })
    }

    /// The places of several strings, and the most bytes of each.
    pub(in crate::decoder) fn strings_shape(&self) -> Option<(Vec<usize>, usize)> {
        match self.field.kind() {
            FieldKind::Fixed(extents) if self.elements == Elements::Strings => {
                let (max, shape) = extents.split_last()?;
                Some((shape.to_vec(), *max))
            }
            _ => None,
        }
    }

    /// Whether a record may have fewer elements than there is room for.
    pub(in crate::decoder) fn has_most(&self) -> bool {
        match self.elements {
            Elements::Strings => self.missing == Missing::Empty,
            Elements::Values | Elements::Bytes => !matches!(self.field.kind(), FieldKind::Fixed(_)),
        }
    }

    /// The name of the feature.
    #[must_use]
    pub fn feature_name(&self) -> &str {
        &self.feature
    }

    /// Whether the elements are the bytes of one string.
    #[must_use]
    pub fn is_of_bytes(&self) -> bool {
        self.elements == Elements::Bytes
    }

    /// Whether it is one [string](Self::bytes), padded with zeros.
    #[must_use]
    pub fn is_string(&self) -> bool {
        let is_zero = |pad| matches!(pad, Pad::Integer(0));
        let is_padded = matches!(self.field.kind(), FieldKind::Padded { pad, .. } if is_zero(pad));
        self.is_of_bytes() && is_padded && self.missing != Missing::Empty
    }

    fn check(&self) -> Result<(), ExampleFieldsError> {
        let (field, dtype) = (self.field.name().to_owned(), self.field.dtype());
        let is_possible = match self.elements {
            Elements::Values => dtype != Dtype::Bool,
            Elements::Bytes | Elements::Strings => dtype == Dtype::U8,
        };
        if !is_possible {
            return Err(ExampleFieldsError::Dtype { field, dtype, is_of_bytes: self.is_of_bytes() });
        }
        match &self.missing {
            Missing::Error | Missing::Empty => Ok(()),
            Missing::Values(values) => self.check_values(values),
            Missing::Bytes(bytes) if self.is_of_bytes() => {
                let allowed = self.field.row_elements().unwrap_or(usize::MAX);
                self.check_length(bytes, allowed, self.has_most())
            }
            Missing::Strings(strings) if self.elements == Elements::Strings => self.check_strings(strings),
            Missing::Bytes(_) | Missing::Strings(_) => Err(ExampleFieldsError::BytesOfValues { field }),
        }
    }

    /// Checks a default of numbers.
    fn check_values(&self, values: &[Pad]) -> Result<(), ExampleFieldsError> {
        let (field, dtype) = (self.field.name().to_owned(), self.field.dtype());
        if self.elements == Elements::Strings {
            return Err(ExampleFieldsError::ValuesOfStrings { field });
        }
        if self.has_most() {
            return Err(ExampleFieldsError::FillOfVarying { field });
        }
        self.check_count(values.len(), self.field.row_elements().unwrap_or(usize::MAX))?;
        match values.iter().find(|value| self.field.pad_bytes(**value).is_none()) {
            None => Ok(()),
            Some(value) => Err(ExampleFieldsError::Default { field, default: value.to_string(), dtype }),
        }
    }

    /// Checks a default of several strings.
    fn check_strings(&self, strings: &[Vec<u8>]) -> Result<(), ExampleFieldsError> {
        let (shape, max) = self.strings_shape().unwrap_or_default();
        self.check_count(strings.len(), shape.iter().product())?;
        strings.iter().try_for_each(|string| self.check_length(string, max, true))
    }

    fn check_count(&self, found: usize, allowed: usize) -> Result<(), ExampleFieldsError> {
        if found == 1 || found == allowed {
            return Ok(());
        }
        Err(ExampleFieldsError::DefaultCount { field: self.field.name().to_owned(), found, allowed })
    }

    fn check_length(&self, bytes: &[u8], allowed: usize, is_most: bool) -> Result<(), ExampleFieldsError> {
        let found = bytes.len();
        if found == allowed || is_most && found < allowed {
            return Ok(());
        }
        let field = self.field.name().to_owned();
        Err(ExampleFieldsError::DefaultLength { field, found, allowed, is_most })
    }
}

/// Fields that no feature can become.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExampleFieldsError {
    /// There is neither a field nor an image.
    #[error("an Example's features are to be fed, but none is named: name fields, or an image")]
    None,
    /// A field of a type that no feature has.
    #[error(
        "the field {field:?} is of {dtype}, {}",
        match *is_of_bytes {
            true => "but bytes are u8",
            false => "which no feature has: use an integer or a float, such as u8",
        }
    )]
    Dtype {
        /// The field.
        field: String,
        /// Its type.
        dtype: Dtype,
        /// Whether it is made of the bytes of a string.
        is_of_bytes: bool,
    },
    /// A default that is not a value of the field's type.
    #[error("the field {field:?} has the default {default}, which is not a value of {dtype}")]
    Default {
        /// The field.
        field: String,
        /// The default.
        default: String,
        /// The field's type.
        dtype: Dtype,
    },
    /// A default value for a padded or ragged field, which is empty if its feature is missing.
    #[error(
        "the field {field:?} has a default, but is padded or ragged: without its feature, a record has no \
         elements of it"
    )]
    FillOfVarying {
        /// The field.
        field: String,
    },
    /// A default of more or fewer values than the field has elements.
    #[error(
        "the default of the field {field:?} has {found} values, but the field has {allowed} elements: use \
         one for each, or one for all"
    )]
    DefaultCount {
        /// The field.
        field: String,
        /// The values of the default.
        found: usize,
        /// The elements of the field.
        allowed: usize,
    },
    /// Numbers as the default of strings.
    #[error("the field {field:?} has numbers as its default, but is made of strings")]
    ValuesOfStrings {
        /// The field.
        field: String,
    },
    /// A text as the default of numbers.
    #[error("the field {field:?} has bytes as its default, but is not made of bytes")]
    BytesOfValues {
        /// The field.
        field: String,
    },
    /// A default of a length that the field does not have.
    #[error(
        "the default of the field {field:?} has {found} bytes, but the field takes {}{allowed}",
        if *is_most { "at most " } else { "" }
    )]
    DefaultLength {
        /// The field.
        field: String,
        /// The bytes of the default.
        found: usize,
        /// The bytes of the field.
        allowed: usize,
        /// Whether fewer are allowed.
        is_most: bool,
    },
}
