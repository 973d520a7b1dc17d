//! The fields of a batch: named arrays with one row for each record.

use std::fmt;
use std::sync::Arc;

use crate::base::shape::{AXES_MAX, BatchShape, Dtype, Extents, ImageShape, Layout};
use percolator_files::caller::words;

/// The most fields that a batch can have.
pub const FIELDS_MAX: usize = 64;

/// One field of a batch: its name, the type of its elements, and what each record has of it.
///
/// ```
/// use percolator::{Dtype, Field};
///
/// let image = Field::new("image", Dtype::U8, [3, 32, 32]);
/// let class = Field::scalar("class", Dtype::I64);
/// let tokens = Field::ragged("tokens", Dtype::I32, 64);
/// assert_eq!(image.to_string(), "image: u8 [3x32x32]");
/// assert_eq!(class.to_string(), "class: i64");
/// assert_eq!(tokens.to_string(), "tokens: i32 [<=64]");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    name: Arc<str>,
    dtype: Dtype,
    kind: FieldKind,
    /// The order of the axes, if it is an image.
    layout: Option<Layout>,
    /// The result of the device's transform, if a device transforms this field.
    transformed: Option<BatchShape>,
}

/// What one record has of a field.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldKind {
    /// An array of this shape; without axes, one element.
    Fixed(Extents),
    /// Up to `max` elements, followed by `pad` up to that length. The number of elements is in the array
    /// `NAME.lengths`, one `i64` for each record.
    Padded {
        /// The most elements of a record.
        max: usize,
        /// The value that follows a record's elements.
        pad: Pad,
    },
    /// Up to `max` elements. In a batch the records' elements are contiguous, without gaps. The array
    /// `NAME.offsets` holds where each record's elements start and where the last ones end: one `i64` for
    /// each record, plus one.
    Ragged {
        /// The most elements of a record.
        max: usize,
    },
}

/// The value that fills the rest of a padded row. Integers are exact; fractions are rounded to the field's
/// type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pad {
    /// For integers and booleans.
    Integer(i128),
    /// For floats.
    Float(f64),
}

impl From<i32> for Pad {
    fn from(pad: i32) -> Self {
        Pad::Integer(pad.into())
    }
}

impl From<i64> for Pad {
    fn from(pad: i64) -> Self {
        Pad::Integer(pad.into())
    }
}

impl From<u64> for Pad {
    fn from(pad: u64) -> Self {
        Pad::Integer(pad.into())
    }
}

impl From<bool> for Pad {
    fn from(pad: bool) -> Self {
        Pad::Integer(pad.into())
    }
}

impl From<f64> for Pad {
    fn from(pad: f64) -> Self {
        Pad::Float(pad)
    }
}

impl From<f32> for Pad {
    fn from(pad: f32) -> Self {
        Pad::Float(pad.into())
    }
}

impl fmt::Display for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pad::Integer(pad) => pad.fmt(f),
            Pad::Float(pad) => pad.fmt(f),
        }
    }
}

impl Field {
    /// An array of the same shape for each record: its extents, outermost first. Without extents, one
    /// element.
    ///
    /// # Panics
    ///
    /// If there are more than 7 extents: an array of a batch has up to [`AXES_MAX`] axes.
    pub fn new(name: impl Into<Arc<str>>, dtype: Dtype, shape: impl AsRef<[usize]>) -> Self {
        let shape = shape.as_ref();
        assert!(shape.len() < AXES_MAX, "a field has up to {} axes, but was given {shape:?}", AXES_MAX - 1);
        let kind = FieldKind::Fixed(Extents::new(shape));
        Field { name: name.into(), dtype, kind, layout: None, transformed: None }
    }

    /// One element for each record.
    pub fn scalar(name: impl Into<Arc<str>>, dtype: Dtype) -> Self {
        Self::new(name, dtype, [])
    }

    /// Up to `max` elements for each record. In a batch they are contiguous, and `NAME.offsets` holds where
    /// each record's elements start: [`FieldKind::Ragged`].
    pub fn ragged(name: impl Into<Arc<str>>, dtype: Dtype, max: usize) -> Self {
        Field { kind: FieldKind::Ragged { max }, ..Self::scalar(name, dtype) }
    }

    /// Up to `max` elements for each record, padded with `pad`. `NAME.lengths` holds how many there are:
    /// [`FieldKind::Padded`].
    pub fn padded(name: impl Into<Arc<str>>, dtype: Dtype, max: usize, pad: impl Into<Pad>) -> Self {
        Field { kind: FieldKind::Padded { max, pad: pad.into() }, ..Self::scalar(name, dtype) }
    }

    /// Returns the same field with another name.
    #[must_use]
    pub fn renamed(self, name: impl Into<Arc<str>>) -> Self {
        Field { name: name.into(), ..self }
    }

    /// Returns the same field as an image whose axes have this order: one that has three extents.
    #[must_use]
    pub fn of_image(self, layout: Layout) -> Self {
        let is_image = matches!(&self.kind, FieldKind::Fixed(extents) if extents.len() == 3);
        Field { layout: is_image.then_some(layout), ..self }
    }

    /// An image for each record.
    pub(crate) fn image(name: impl Into<Arc<str>>, shape: BatchShape) -> Self {
        let BatchShape { image: ImageShape { channels, height, width }, layout, dtype, .. } = shape;
        let extents = match layout {
            Layout::Nchw => [channels, height, width],
            Layout::Nhwc => [height, width, channels],
        };
        Field { layout: Some(layout), ..Self::new(name, dtype, extents) }
    }

    /// Returns this image field with the shape that the device's transform makes of it.
    pub(crate) fn transformed(self, transformed: BatchShape) -> Self {
        Field { transformed: Some(transformed), ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// What one record has of it.
    #[must_use]
    pub fn kind(&self) -> FieldKind {
        self.kind
    }

    /// The order of its axes, if it is an image.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// The shape that the device makes of it for one record, if [the device
    /// transforms](crate::FeedBuilder::transform_on) the field. The other methods describe what crosses to
    /// the device.
    #[must_use]
    pub fn made_on_device(&self) -> Option<BatchShape> {
        self.transformed
    }

    /// The shape of a batch of `records` records, viewed as images. A field that is not an image is viewed as
    /// one-pixel images with a channel for each element, as Caffe views vectors.
    pub(crate) fn image_shape(&self, records: usize) -> BatchShape {
        let image = match (self.kind, self.layout) {
            (FieldKind::Fixed(extents), Some(Layout::Nchw)) => {
                ImageShape { channels: extents[0], height: extents[1], width: extents[2] }
            }
            (FieldKind::Fixed(extents), Some(Layout::Nhwc)) => {
                ImageShape { channels: extents[2], height: extents[0], width: extents[1] }
            }
            _ => ImageShape { channels: self.row_elements().unwrap_or(usize::MAX), height: 1, width: 1 },
        };
        BatchShape { records, image, layout: self.layout.unwrap_or_default(), dtype: self.dtype }
    }

    /// Whether both fields are of the same kind, apart from extents and maxima. Names and element types are
    /// not compared.
    pub(crate) fn is_kind_of(&self, other: &Field) -> bool {
        match (self.kind, other.kind) {
            (FieldKind::Fixed(one), FieldKind::Fixed(another)) => one.len() == another.len(),
            (FieldKind::Padded { pad, .. }, FieldKind::Padded { pad: other, .. }) => pad == other,
            (FieldKind::Ragged { .. }, FieldKind::Ragged { .. }) => true,
            _ => false,
        }
    }

    /// The number of elements that fit in a row, or `None` if it does not fit a `usize`.
    pub(crate) fn row_elements(&self) -> Option<usize> {
        match self.kind {
            FieldKind::Fixed(extents) => extents.checked_elements(),
            FieldKind::Padded { max, .. } | FieldKind::Ragged { max } => Some(max),
        }
    }

    /// The extents of its array in a batch of `rows` rows. For a ragged field this is the capacity; the array
    /// ends sooner.
    pub(crate) fn extents(&self, rows: usize) -> Extents {
        match self.kind {
            FieldKind::Fixed(extents) => {
                let mut all = [0; AXES_MAX];
                all[0] = rows;
                all[1..=extents.len()].copy_from_slice(&extents);
                Extents::new(&all[..=extents.len()])
            }
            FieldKind::Padded { max, .. } => Extents::new(&[rows, max]),
            FieldKind::Ragged { max } => Extents::new(&[rows.saturating_mul(max)]),
        }
    }

    /// Checks the field by itself.
    fn check(&self) -> Result<(), FieldsError> {
        let field = || self.name.to_string();
        // A name becomes a file name (`dump`), and `.` marks its second array.
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
        if self.name.split('/').any(str::is_empty) || !self.name.chars().all(is_word) {
            return Err(FieldsError::Name { field: field() });
        }
        let FieldKind::Padded { pad, .. } = self.kind else { return Ok(()) };
        match self.pad_bytes(pad) {
            Some(_) => Ok(()),
            None => Err(FieldsError::Pad { field: field(), pad: pad.to_string(), dtype: self.dtype }),
        }
    }

    /// The bytes of a padding value, at the front, or `None` if it is not a value of the field's type.
    pub(crate) fn pad_bytes(&self, pad: Pad) -> Option<[u8; 8]> {
        let mut bytes = [0; 8];
        let mut put = |of: &[u8]| bytes[..of.len()].copy_from_slice(of);
        match (pad, self.dtype) {
            (Pad::Integer(pad), Dtype::U8) => put(bytemuck::bytes_of(&u8::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::I8) => put(bytemuck::bytes_of(&i8::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::U16) => put(bytemuck::bytes_of(&u16::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::I16) => put(bytemuck::bytes_of(&i16::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::U32) => put(bytemuck::bytes_of(&u32::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::I32) => put(bytemuck::bytes_of(&i32::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::U64) => put(bytemuck::bytes_of(&u64::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::I64) => put(bytemuck::bytes_of(&i64::try_from(pad).ok()?)),
            (Pad::Integer(pad), Dtype::Bool) => put(&[u8::try_from(pad).ok().filter(|&pad| pad < 2)?]),
            (Pad::Integer(pad), _) => {
                // Floats represent integers exactly only up to a bound: a value that does not convert back is
                // not exact.
                let float = f64::from(i32::try_from(pad).ok()?);
                let back = match self.dtype {
                    Dtype::F64 => float,
                    Dtype::F32 => narrow(float).into(),
                    Dtype::F16 => half::f16::from_f64(float).into(),
                    _ => half::bf16::from_f64(float).into(),
                };
                return if back == float { self.pad_bytes(Pad::Float(float)) } else { None };
            }
            (Pad::Float(pad), Dtype::F64) => put(bytemuck::bytes_of(&pad)),
            (Pad::Float(pad), Dtype::F32) if stays_finite(pad, narrow(pad).into()) => {
                put(bytemuck::bytes_of(&narrow(pad)));
            }
            (Pad::Float(pad), Dtype::F16) if stays_finite(pad, half::f16::from_f64(pad).into()) => {
                put(bytemuck::bytes_of(&half::f16::from_f64(pad)));
            }
            (Pad::Float(pad), Dtype::Bf16) if stays_finite(pad, half::bf16::from_f64(pad).into()) => {
                put(bytemuck::bytes_of(&half::bf16::from_f64(pad)));
            }
            (Pad::Float(_), _) => return None,
        }
        Some(bytes)
    }
}

/// Whether a number was not rounded to infinity.
fn stays_finite(pad: f64, rounded: f64) -> bool {
    rounded.is_finite() || !pad.is_finite()
}

#[expect(clippy::cast_possible_truncation, reason = "rounded, to the nearest f32")]
fn narrow(pad: f64) -> f32 {
    pad as f32
}

/// Writes `data: f32 [3x32x32]`, `label: i32`, `tokens: i32 [<=64]` or `tokens: i32 [<=64]=-1`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Field { name, dtype, .. } = self;
        match self.kind {
            FieldKind::Fixed(extents) if extents.is_empty() => write!(f, "{name}: {dtype}"),
            FieldKind::Fixed(extents) => write!(f, "{name}: {dtype} [{extents}]"),
            FieldKind::Padded { max, pad } => write!(f, "{name}: {dtype} [<={max}]={pad}"),
            FieldKind::Ragged { max } => write!(f, "{name}: {dtype} [<={max}]"),
        }
    }
}

/// Fields of which no batch can be made.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FieldsError {
    /// There are no fields.
    #[error("there is no field; name at least one")]
    None,
    /// There are too many.
    #[error("there are {found} fields, but at most {FIELDS_MAX} are allowed; merge fields of the same type")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// Two fields have the same name.
    #[error("two fields have the name {field:?}; give each its own")]
    Twice {
        /// The name.
        field: String,
    },
    /// A name that no field can have.
    #[error("{field:?} is not a valid field name; use letters, digits, \"_\", \"-\" and \"/\"")]
    Name {
        /// The name.
        field: String,
    },
    /// A padding value that is not of the field's type.
    #[error("field {field:?} is padded with {pad}, which is not a value of {dtype}; pad it with one")]
    Pad {
        /// The field.
        field: String,
        /// The padding value.
        pad: String,
        /// The field's type.
        dtype: Dtype,
    },
}

/// Checks that a batch can be made of these fields.
pub(crate) fn check(fields: &[Field]) -> Result<(), FieldsError> {
    if fields.is_empty() {
        return Err(FieldsError::None);
    }
    if fields.len() > FIELDS_MAX {
        return Err(FieldsError::TooMany { found: fields.len() });
    }
    for (at, field) in fields.iter().enumerate() {
        field.check()?;
        if fields[..at].iter().any(|other| other.name == field.name) {
            return Err(FieldsError::Twice { field: field.name.to_string() });
        }
    }
    Ok(())
}

/// A key for a field: its name, or, faster, its number in declaration order.
pub trait FieldKey: sealed::Sealed + fmt::Debug {
    /// The number of the field.
    #[doc(hidden)]
    fn find(&self, fields: &[Field]) -> Option<usize>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for usize {}
    impl Sealed for &str {}
    impl Sealed for &String {}
}

impl FieldKey for usize {
    #[inline]
    fn find(&self, fields: &[Field]) -> Option<usize> {
        Some(*self).filter(|&number| number < fields.len())
    }
}

impl FieldKey for &str {
    #[inline]
    fn find(&self, fields: &[Field]) -> Option<usize> {
        fields.iter().position(|field| &*field.name == *self)
    }
}

impl FieldKey for &String {
    #[inline]
    fn find(&self, fields: &[Field]) -> Option<usize> {
        FieldKey::find(&self.as_str(), fields)
    }
}

/// A field was misused.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FieldError {
    /// There is no such field.
    #[error("there is no field {wanted}; there are {fields}")]
    Unknown {
        /// The requested field.
        wanted: String,
        /// The existing fields.
        fields: String,
    },
    /// Its elements have another type.
    #[error("field {field:?} holds {found}, but {wanted} was requested")]
    Dtype {
        /// The field.
        field: String,
        /// The type of its elements.
        found: Dtype,
        /// The requested type.
        wanted: Dtype,
    },
    /// A record has a different number of elements than the field takes.
    #[error("field {field:?} takes {} {allowed} element(s) a record, but was given {found}", most(*is_most))]
    Length {
        /// The field.
        field: String,
        /// How many were given.
        found: usize,
        /// How many the field takes.
        allowed: usize,
        /// Whether it may take fewer.
        is_most: bool,
    },
    /// A record has a number of bytes that is not that of whole elements.
    #[error(
        "field {field:?} holds {dtype}, of {} bytes each, but was given {found} byte(s); give its elements \
         as they lie in memory",
        dtype.size()
    )]
    PartOfElement {
        /// The field.
        field: String,
        /// The type of its elements.
        dtype: Dtype,
        /// How many bytes were given.
        found: usize,
    },
    /// It holds booleans, and was given a byte that is not one.
    #[error("field {field:?} holds booleans, but was given bytes other than 0 and 1")]
    NotBool {
        /// The field.
        field: String,
    },
    /// The decoder did not write it.
    #[error("field {field:?} was not written; write every field of every record")]
    NotWritten {
        /// The field.
        field: String,
    },
    /// Its records have different numbers of elements.
    #[error("field {field:?} is ragged: read it with ragged, which says where each record's elements begin")]
    Ragged {
        /// The field.
        field: String,
    },
    /// It has no offsets.
    #[error("field {field:?} is not ragged: read it with get")]
    NotRagged {
        /// The field.
        field: String,
    },
    /// It has no lengths.
    #[error("field {field} is not padded: every row has all of its elements, or offsets of its own (ragged)")]
    NotPadded {
        /// The field, with its type and extents.
        field: String,
    },
    /// A byte of a boolean field is neither 0 nor 1.
    #[error("field {field:?} holds a byte that is not a bool: 0 is false and 1 is true")]
    NoBool {
        /// The field.
        field: String,
    },
    /// Its elements are computed on the device.
    #[error(
        "field {field:?} holds {found} on the host and is transformed on its device; look for {wanted} \
         there, or build the feed with {}",
        words(".transform_on(TransformPlace::Host)", "--transform-on host", "transform_on=\"host\"")
    )]
    OnDevice {
        /// The field.
        field: String,
        /// The type on the host.
        found: Dtype,
        /// The requested type.
        wanted: Dtype,
    },
}

fn most(is_most: bool) -> &'static str {
    if is_most { "at most" } else { "exactly" }
}

impl FieldError {
    #[cold]
    pub(crate) fn unknown(wanted: &dyn fmt::Debug, fields: &[Field]) -> Self {
        let fields: Vec<String> = fields.iter().map(Field::to_string).collect();
        FieldError::Unknown { wanted: format!("{wanted:?}"), fields: fields.join(", ") }
    }
}

/// The number of a field.
#[inline]
pub(crate) fn find(fields: &[Field], key: impl FieldKey) -> Result<usize, FieldError> {
    key.find(fields).ok_or_else(|| FieldError::unknown(&key, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_no_batch_can_be_made_of_are_refused() {
        let field = |name: &str| Field::scalar(name, Dtype::I32);
        assert_eq!(check(&[]), Err(FieldsError::None));
        assert_eq!(check(&[field("a"), field("a")]), Err(FieldsError::Twice { field: "a".into() }));
        for name in ["", "a.b", "a b", "a\n", "/a", "a/", "a//b"] {
            assert_eq!(check(&[field(name)]), Err(FieldsError::Name { field: name.into() }));
        }
        let many: Vec<Field> = (0..=FIELDS_MAX).map(|number| field(&format!("f{number}"))).collect();
        assert_eq!(check(&many), Err(FieldsError::TooMany { found: FIELDS_MAX + 1 }));
        assert_eq!(check(&many[1..]), Ok(()));
        assert_eq!(check(&[field("größe/2")]), Ok(()));
    }

    #[test]
    fn a_padding_is_a_number_of_its_fields_type_or_refused() {
        let bytes = |dtype: Dtype, pad: Pad| {
            let field = Field::padded("f", dtype, 3, pad);
            let checked = check(std::slice::from_ref(&field)).is_ok();
            let bytes = field.pad_bytes(pad).map(|bytes| bytes[..dtype.size()].to_vec());
            assert_eq!(checked, bytes.is_some(), "{dtype} {pad}");
            bytes
        };
        assert_eq!(bytes(Dtype::I32, (-1).into()), Some(bytemuck::bytes_of(&-1_i32).to_vec()));
        assert_eq!(bytes(Dtype::U8, (-1).into()), None);
        assert_eq!(bytes(Dtype::U64, u64::MAX.into()), Some(vec![255; 8]));
        assert_eq!(bytes(Dtype::I64, u64::MAX.into()), None);
        assert_eq!(bytes(Dtype::Bool, 1.into()), Some(vec![1]));
        assert_eq!(bytes(Dtype::Bool, 2.into()), None);
        assert_eq!(bytes(Dtype::F32, 2.into()), Some(bytemuck::bytes_of(&2_f32).to_vec()));
        assert_eq!(bytes(Dtype::F32, 0.5.into()), Some(bytemuck::bytes_of(&0.5_f32).to_vec()));
        assert_eq!(bytes(Dtype::I32, 0.5.into()), None);
        assert_eq!(bytes(Dtype::F16, 100_000.into()), None);
        assert_eq!(bytes(Dtype::F32, 16_777_217.into()), None);
        assert_eq!(bytes(Dtype::F32, 1e300.into()), None);
        assert_eq!(
            bytes(Dtype::F16, f64::INFINITY.into()),
            Some(bytemuck::bytes_of(&half::f16::INFINITY).to_vec())
        );
        assert_eq!(
            bytes(Dtype::Bf16, 1.5.into()),
            Some(bytemuck::bytes_of(&half::bf16::from_f32(1.5)).to_vec())
        );
    }

    #[test]
    fn fields_are_found_by_name_and_by_number() {
        let fields = [Field::scalar("a", Dtype::I32), Field::new("b", Dtype::U8, [2, 3])];
        assert_eq!((find(&fields, "b"), find(&fields, 0)), (Ok(1), Ok(0)));
        let message = find(&fields, "c").unwrap_err().to_string();
        assert_eq!(message, "there is no field \"c\"; there are a: i32, b: u8 [2x3]");
        assert!(find(&fields, 2).is_err());
    }
}
