//! From a record's named parts directly into its row.

use std::borrow::Cow;
use std::sync::Arc;

use half::{bf16, f16};

use super::example::{Elements, ExampleField, ExampleFields, ExampleImage, ImageShapeFrom, Missing};
use super::{Decoded, RecordDecoder, WorkerSetup};
use crate::base::shape::{Dtype, Element, ImageShape};
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::Field;
use crate::record::FeatureError;
use crate::source::{Part, PartFault, Record, RecordParts};
use percolator_image::ColorMode;
use percolator_messages::Datum;

/// So many numbers are converted at a time, between the type that is stored and the field's.
const STAGED: usize = 64;

/// The fields that are made of parts.
#[derive(Debug)]
pub(crate) struct PartFields {
    parts: Arc<dyn RecordParts>,
    fields: Vec<PartField>,
}

/// A field, and its number among those of parts.
#[derive(Debug)]
struct PartField {
    at: usize,
    of: ExampleField,
    lengths: Option<Field>,
}

impl PartFields {
    pub(crate) fn new(parts: Arc<dyn RecordParts>, fields: &ExampleFields) -> Self {
        let mut at = 0;
        let fields = fields.fields().iter().map(|of| {
            let field = PartField { at, of: of.clone(), lengths: of.lengths() };
            at += 1 + usize::from(field.lengths.is_some());
            field
        });
        PartFields { fields: fields.collect(), parts }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = Field> {
        self.fields
            .iter()
            .flat_map(|field| std::iter::once(field.of.field.clone()).chain(field.lengths.clone()))
    }

    /// Checks that the first record of a feed has what it must have. A name that is misspelt is found before
    /// anything runs.
    pub(crate) fn check(&self, record: &[u8]) -> Result<(), RecordCause> {
        self.fields.iter().try_for_each(|PartField { of, .. }| {
            let is_there = self.parts.part(record, &of.feature)?.is_some();
            match &of.missing {
                Missing::Error if !is_there => Err(self.missing(record, &of.feature, &wanted(of))),
                Missing::Empty if !is_there => {
                    let (part, field, has) = (&*of.feature, &of.field, self.parts.names(record));
                    tracing::warn!(
                        part, %field, ?has,
                        "the first record has no such part: if its name is wrong, the field is always empty"
                    );
                    Ok(())
                }
                _ => Ok(()),
            }
        })
    }

    /// Writes the fields of a record to its row, starting with the row's field `first`.
    #[inline]
    pub(crate) fn write(&self, record: &[u8], row: &mut Row<'_>, first: usize) -> Result<(), RecordCause> {
        self.fields.iter().try_for_each(|field| {
            let at = first + field.at;
            match self.parts.part(record, &field.of.feature)? {
                Some(part) => field.write(part, row, at),
                None => {
                    field.stand_in(row, at, || self.missing(record, &field.of.feature, &wanted(&field.of)))
                }
            }
        })
    }

    #[cold]
    fn missing(&self, record: &[u8], part: &str, wanted: &str) -> RecordCause {
        let features = self.parts.names(record);
        FeatureError::Missing { feature: part.to_owned(), wanted: wanted.to_owned(), features }.into()
    }
}

/// Describes a field for a message.
fn wanted(of: &ExampleField) -> String {
    format!("the field {}", of.field)
}

impl PartField {
    fn write(&self, part: Part<'_>, row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        match (self.of.elements, part) {
            (Elements::Values, part) => self.write_values(&part, row, at),
            (Elements::Bytes, Part::Bytes(bytes)) => self.write_bytes(&bytes, row, at),
            (Elements::Bytes, Part::Numbers { dtype: Dtype::U8, values }) => {
                self.write_bytes(&values, row, at)
            }
            (Elements::Strings, Part::Bytes(one)) => self.write_strings(std::slice::from_ref(&one), row, at),
            (Elements::Strings, Part::Strings(strings)) => self.write_strings(&strings, row, at),
            (Elements::Bytes | Elements::Strings, part) => Err(self.wrong_kind(&part, "bytes or text")),
        }
    }

    fn write_values(&self, part: &Part<'_>, row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        match part {
            Part::Int(number) => self.convert(Dtype::I64, &number.to_le_bytes(), row, at),
            Part::Float(number) => self.convert(Dtype::F64, &number.to_le_bytes(), row, at),
            Part::Numbers { dtype, values } => self.convert(*dtype, values, row, at),
            Part::Bytes(text) => {
                let number = std::str::from_utf8(text).map(str::trim).unwrap_or_default();
                if let Ok(number) = number.parse::<i64>() {
                    return self.convert(Dtype::I64, &number.to_le_bytes(), row, at);
                }
                match number.parse::<f64>() {
                    Ok(number) => self.convert(Dtype::F64, &number.to_le_bytes(), row, at),
                    Err(_) => Err(self.wrong_kind(part, "numbers, or a text that is one")),
                }
            }
            Part::Strings(_) => Err(self.wrong_kind(part, "numbers, or a text that is one")),
        }
    }

    /// Writes numbers of another type, or of the field's own.
    fn convert(&self, from: Dtype, bytes: &[u8], row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        let elements = bytes.len() / from.size();
        let is_fixed = !self.of.has_most();
        let allowed = self.of.field.row_elements().unwrap_or(usize::MAX);
        if elements > allowed || is_fixed && elements != allowed {
            let (feature, wanted) = (self.of.feature.to_string(), wanted(&self.of));
            let cause = FeatureError::Count { feature, wanted, found: elements, allowed, is_most: !is_fixed };
            return Err(cause.into());
        }
        let to = self.of.field.dtype();
        if from == to && cfg!(target_endian = "little") {
            return Ok(row.write_bytes(at, bytes)?);
        }
        match to {
            Dtype::F32 => self.fill::<f32>(from, bytes, row, at, float),
            Dtype::F64 => self.fill::<f64>(from, bytes, row, at, float),
            Dtype::F16 => self.fill::<f16>(from, bytes, row, at, float),
            Dtype::Bf16 => self.fill::<bf16>(from, bytes, row, at, float),
            Dtype::I8 => self.fill::<i8>(from, bytes, row, at, integer),
            Dtype::I16 => self.fill::<i16>(from, bytes, row, at, integer),
            Dtype::I32 => self.fill::<i32>(from, bytes, row, at, integer),
            Dtype::I64 => self.fill::<i64>(from, bytes, row, at, integer),
            Dtype::U16 => self.fill::<u16>(from, bytes, row, at, integer),
            Dtype::U32 => self.fill::<u32>(from, bytes, row, at, integer),
            Dtype::U64 => self.fill::<u64>(from, bytes, row, at, integer),
            // The fields were checked: none has booleans.
            Dtype::U8 | Dtype::Bool => self.fill::<u8>(from, bytes, row, at, integer),
        }?;
        if !is_fixed {
            row.set_len(at, elements)?;
        }
        Ok(())
    }

    /// Converts some numbers at a time; `convert` says which one cannot be.
    fn fill<T: Element + bytemuck::Pod>(
        &self,
        from: Dtype,
        bytes: &[u8],
        row: &mut Row<'_>,
        at: usize,
        convert: impl Fn(Dtype, &[u8], &mut [T]) -> Result<(), (usize, String)>,
    ) -> Result<(), RecordCause> {
        let to = row.values_mut::<T>(at)?;
        let pieces = bytes.chunks(STAGED * from.size()).zip(to.chunks_mut(STAGED)).enumerate();
        for (piece, (bytes, to)) in pieces {
            convert(from, bytes, to).map_err(|(index, found)| {
                let (part, index) = (&self.of.feature, piece * STAGED + index);
                let message = format!(
                    "value {index} of the part {part:?} is {found}, which is not a value of {} ({})",
                    self.of.field.dtype(),
                    wanted(&self.of)
                );
                RecordCause::Other { message }
            })?;
        }
        Ok(())
    }

    fn write_bytes(&self, bytes: &[u8], row: &mut Row<'_>, at: usize) -> Result<(), RecordCause> {
        let (allowed, is_most) = (self.of.field.row_elements().unwrap_or(usize::MAX), self.of.has_most());
        if bytes.len() > allowed || !is_most && bytes.len() != allowed {
            return Err(self.wrong_length(bytes.len(), allowed, is_most));
        }
        Ok(row.write(at, bytes)?)
    }

    fn write_strings(
        &self,
        strings: &[Cow<'_, [u8]>],
        row: &mut Row<'_>,
        at: usize,
    ) -> Result<(), RecordCause> {
        let (shape, max) = self.of.strings_shape().unwrap_or_default();
        let (allowed, is_most) = (shape.iter().product(), self.of.has_most());
        if strings.len() > allowed || !is_most && strings.len() != allowed {
            let (feature, wanted) = (self.of.feature.to_string(), wanted(&self.of));
            return Err(
                FeatureError::Count { feature, wanted, found: strings.len(), allowed, is_most }.into()
            );
        }
        if let Some(long) = strings.iter().find(|string| string.len() > max) {
            return Err(self.wrong_length(long.len(), max, true));
        }
        let mut places = row.values_mut::<u8>(at)?.chunks_exact_mut(max.max(1));
        for (string, place) in strings.iter().zip(&mut places) {
            let (to, rest) = place.split_at_mut(string.len());
            to.copy_from_slice(string);
            rest.fill(0);
        }
        places.for_each(|place| place.fill(0));
        let lengths = row.values_mut::<i64>(at + 1)?;
        // A slice's length fits.
        lengths.iter_mut().zip(strings).for_each(|(to, string)| *to = string.len() as i64);
        if is_most {
            row.set_len(at + 1, strings.len())?;
        }
        Ok(())
    }

    /// Writes what a record without the part gets.
    #[cold]
    fn stand_in(
        &self,
        row: &mut Row<'_>,
        at: usize,
        missing: impl FnOnce() -> RecordCause,
    ) -> Result<(), RecordCause> {
        match &self.of.missing {
            Missing::Error => Err(missing()),
            Missing::Empty if self.lengths.is_some() => self.write_strings(&[], row, at),
            Missing::Empty => Ok(row.set_len(at, 0)?),
            Missing::Bytes(bytes) => self.write_bytes(bytes, row, at),
            Missing::Strings(strings) => {
                let (shape, _) = self.of.strings_shape().unwrap_or_default();
                let strings = strings.iter().cycle().take(shape.iter().product());
                let strings: Vec<_> = strings.map(|string| Cow::Borrowed(&string[..])).collect();
                self.write_strings(&strings, row, at)
            }
            Missing::Values(values) => {
                let size = self.of.field.dtype().size();
                let elements = row.bytes_mut(at).chunks_exact_mut(size);
                // The fields were checked: each value is one of the field's type.
                for (to, value) in elements.zip(values.iter().cycle()) {
                    to.copy_from_slice(&self.of.field.pad_bytes(*value).unwrap_or_default()[..size]);
                }
                Ok(())
            }
        }
    }

    #[cold]
    fn wrong_length(&self, found: usize, allowed: usize, is_most: bool) -> RecordCause {
        let (feature, wanted) = (self.of.feature.to_string(), wanted(&self.of));
        FeatureError::Bytes { feature, wanted, found, allowed, is_most }.into()
    }

    #[cold]
    fn wrong_kind(&self, found: &Part<'_>, allowed: &str) -> RecordCause {
        let (part, wanted) = (&self.of.feature, wanted(&self.of));
        let message = format!("the part {part:?} is {}, but {wanted} takes {allowed}", kind_of(found));
        RecordCause::Other { message }
    }
}

/// Names what a part is, for messages.
fn kind_of(part: &Part<'_>) -> String {
    match part {
        Part::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Part::Strings(strings) => format!("{} strings", strings.len()),
        Part::Int(number) => number.to_string(),
        Part::Float(number) => number.to_string(),
        Part::Numbers { dtype, values } => format!("{} numbers of {dtype}", values.len() / dtype.size()),
    }
}

/// Reads up to [`STAGED`] numbers as integers. The number of the first that is none, and that number.
fn integers(from: Dtype, bytes: &[u8], out: &mut [i64; STAGED]) -> Result<(), (usize, String)> {
    macro_rules! exact {
        ($number:ty) => {{
            for (to, from) in out.iter_mut().zip(bytes.as_chunks().0) {
                *to = <$number>::from_le_bytes(*from).into();
            }
            Ok(())
        }};
    }
    match from {
        Dtype::I8 => exact!(i8),
        Dtype::I16 => exact!(i16),
        Dtype::I32 => exact!(i32),
        Dtype::I64 => exact!(i64),
        Dtype::U8 | Dtype::Bool => exact!(u8),
        Dtype::U16 => exact!(u16),
        Dtype::U32 => exact!(u32),
        Dtype::U64 => {
            out.iter_mut().zip(bytes.as_chunks().0).enumerate().try_for_each(|(index, (to, from))| {
                let number = u64::from_le_bytes(*from);
                *to = number.try_into().map_err(|_| (index, number.to_string()))?;
                Ok(())
            })
        }
        Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => {
            let mut floats = [0.0; STAGED];
            floats_of(from, bytes, &mut floats);
            let numbers = out.iter_mut().zip(floats).take(bytes.len() / from.size());
            numbers.enumerate().try_for_each(|(index, (to, float))| {
                // Every whole number up to 2^53 is exact, and no label is larger.
                if float.fract() != 0.0 || float.abs() > 9_007_199_254_740_992.0 {
                    return Err((index, float.to_string()));
                }
                #[expect(clippy::cast_possible_truncation, reason = "it is whole, and in range")]
                let whole = float as i64;
                *to = whole;
                Ok(())
            })
        }
    }
}

/// Reads up to [`STAGED`] numbers as floats. Integers beyond 2^53 are rounded.
fn floats_of(from: Dtype, bytes: &[u8], out: &mut [f64; STAGED]) {
    macro_rules! read {
        ($read:expr) => {
            for (to, from) in out.iter_mut().zip(bytes.as_chunks().0) {
                #[allow(clippy::redundant_closure_call, reason = "one for each type")]
                let number = ($read)(*from);
                *to = number;
            }
        };
    }
    #[expect(clippy::cast_precision_loss, reason = "rounded to the nearest")]
    match from {
        Dtype::F16 => read!(|bytes| f64::from(f16::from_le_bytes(bytes))),
        Dtype::Bf16 => read!(|bytes| f64::from(bf16::from_le_bytes(bytes))),
        Dtype::F32 => read!(|bytes| f64::from(f32::from_le_bytes(bytes))),
        Dtype::F64 => read!(f64::from_le_bytes),
        Dtype::U64 => read!(|bytes| u64::from_le_bytes(bytes) as f64),
        Dtype::I64 => read!(|bytes| i64::from_le_bytes(bytes) as f64),
        Dtype::I8 => read!(|bytes| f64::from(i8::from_le_bytes(bytes))),
        Dtype::I16 => read!(|bytes| f64::from(i16::from_le_bytes(bytes))),
        Dtype::I32 => read!(|bytes| f64::from(i32::from_le_bytes(bytes))),
        Dtype::U8 | Dtype::Bool => read!(|bytes| f64::from(u8::from_le_bytes(bytes))),
        Dtype::U16 => read!(|bytes| f64::from(u16::from_le_bytes(bytes))),
        Dtype::U32 => read!(|bytes| f64::from(u32::from_le_bytes(bytes))),
    }
}

/// A type of integers that a field can have.
fn integer<T: TryFrom<i64>>(from: Dtype, bytes: &[u8], to: &mut [T]) -> Result<(), (usize, String)> {
    let mut staged = [0; STAGED];
    integers(from, bytes, &mut staged)?;
    to.iter_mut().zip(staged).enumerate().try_for_each(|(index, (to, number))| {
        *to = T::try_from(number).map_err(|_| (index, number.to_string()))?;
        Ok(())
    })
}

/// A type of floats that a field can have.
trait Rounded {
    /// The nearest value.
    fn of(number: f64) -> Self;
}

impl Rounded for f64 {
    fn of(number: f64) -> Self {
        number
    }
}

impl Rounded for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
    fn of(number: f64) -> Self {
        number as f32
    }
}

impl Rounded for f16 {
    fn of(number: f64) -> Self {
        f16::from_f64(number)
    }
}

impl Rounded for bf16 {
    fn of(number: f64) -> Self {
        bf16::from_f64(number)
    }
}

fn float<T: Rounded>(from: Dtype, bytes: &[u8], to: &mut [T]) -> Result<(), (usize, String)> {
    let mut staged = [0.0; STAGED];
    floats_of(from, bytes, &mut staged);
    to.iter_mut().zip(staged).for_each(|(to, number)| *to = T::of(number));
    Ok(())
}

/// Decodes records with parts of which none is an image.
#[derive(Debug)]
pub(crate) struct PartsDecoder(pub(crate) PartFields);

impl RecordDecoder for PartsDecoder {
    type Scratch = ();

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        self.0.check(first.value)?;
        Ok(self.0.fields().collect())
    }

    fn may_reshape(&self) -> bool {
        false
    }

    fn scratch(&self, _setup: WorkerSetup) -> Self::Scratch {}

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        Ok(self.0.write(record.value, row, 0)?)
    }
}

/// Presents a record with an image part as a Datum, and makes further fields of its other parts.
#[derive(Debug)]
pub(crate) struct PartsFront {
    image: ExampleImage,
    fields: PartFields,
}

impl PartsFront {
    pub(crate) fn new(parts: Arc<dyn RecordParts>, image: ExampleImage, fields: &ExampleFields) -> Self {
        PartsFront { image, fields: PartFields::new(parts, fields) }
    }

    pub(crate) fn fields(&self) -> &PartFields {
        &self.fields
    }

    pub(crate) fn is_interleaved(&self) -> bool {
        self.image.is_interleaved()
    }

    /// Whether all images have the same number of channels, if files are decoded in this mode.
    pub(crate) fn has_fixed_channels(&self, color: ColorMode) -> bool {
        match self.image.shape_from() {
            None => color != ColorMode::Native,
            Some(ImageShapeFrom::Fixed(_)) => true,
            Some(ImageShapeFrom::Feature(_)) => false,
        }
    }

    /// The Datum that the record stands for.
    pub(crate) fn datum<'a>(&'a self, record: &'a [u8]) -> Result<Datum<'a>, RecordCause> {
        let label = match self.image.label_name() {
            Some(name) => self.numbers::<1>(record, name, "the label")?[0],
            None => 0,
        };
        let data = self.bytes(record)?;
        let Some(shape) = self.image.shape_from() else {
            return Ok(Datum { label, encoded: true, data, ..Datum::default() });
        };
        let [channels, height, width] = match shape {
            ImageShapeFrom::Fixed(ImageShape { channels, height, width }) => {
                // If an extent does not fit, the shape has too many elements anyway.
                [channels, height, width].map(|extent| i32::try_from(*extent).unwrap_or(i32::MAX))
            }
            ImageShapeFrom::Feature(name) => {
                let shape = self.numbers::<3>(record, name, "the image's shape")?;
                let [first, second, third] = shape;
                if self.is_interleaved() { [third, first, second] } else { shape }
            }
        };
        let elements = [channels, height, width]
            .iter()
            .try_fold(1_usize, |elements, &extent| elements.checked_mul(usize::try_from(extent).ok()?));
        let allowed = elements.unwrap_or(usize::MAX);
        if data.len() != allowed {
            let (feature, found) = (self.image.feature_name().to_owned(), data.len());
            let wanted = format!("an image of {channels}x{height}x{width}");
            return Err(FeatureError::Count { feature, wanted, found, allowed, is_most: false }.into());
        }
        Ok(Datum { channels, height, width, label, encoded: false, data, ..Datum::default() })
    }

    fn part<'a>(&'a self, record: &'a [u8], name: &str, wanted: &str) -> Result<Part<'a>, RecordCause> {
        let part = self.fields.parts.part(record, name)?;
        part.ok_or_else(|| self.fields.missing(record, name, wanted))
    }

    /// The bytes of the image.
    fn bytes<'a>(&'a self, record: &'a [u8]) -> Result<&'a [u8], RecordCause> {
        let name = self.image.feature_name();
        let found = match self.part(record, name, "the image")? {
            Part::Bytes(Cow::Borrowed(bytes)) => return Ok(bytes),
            Part::Numbers { dtype: Dtype::U8, values: Cow::Borrowed(values) } if !self.image.is_encoded() => {
                return Ok(values);
            }
            other => kind_of(&other),
        };
        let message = if self.image.is_encoded() {
            format!("the part {name:?} is {found}, but an image is the bytes of a file, such as a JPEG")
        } else {
            format!("the part {name:?} is {found}, but raw pixels are bytes")
        };
        Err(RecordCause::Other { message })
    }

    /// The numbers of a part that must have so many.
    fn numbers<const N: usize>(
        &self,
        record: &[u8],
        name: &str,
        wanted: &str,
    ) -> Result<[i32; N], RecordCause> {
        let mut numbers = [0; N];
        let failed = |(index, found): (usize, String)| {
            let message =
                format!("value {index} of the part {name:?} is {found}, which is no i32 ({wanted})");
            RecordCause::Other { message }
        };
        let part = self.part(record, name, wanted)?;
        let one: [u8; 8];
        let (dtype, bytes): (_, &[u8]) = match &part {
            Part::Int(number) => {
                one = number.to_le_bytes();
                (Dtype::I64, &one)
            }
            Part::Float(number) => {
                one = number.to_le_bytes();
                (Dtype::F64, &one)
            }
            Part::Numbers { dtype, values } => (*dtype, values),
            Part::Bytes(text) => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<i64>().ok());
                let number =
                    number.ok_or_else(|| failed((0, format!("{:?}", String::from_utf8_lossy(text)))))?;
                one = number.to_le_bytes();
                (Dtype::I64, &one)
            }
            Part::Strings(strings) => return Err(failed((0, format!("{} strings", strings.len())))),
        };
        let found = bytes.len() / dtype.size();
        if found != N {
            let (feature, wanted) = (name.to_owned(), wanted.to_owned());
            return Err(FeatureError::Count { feature, wanted, found, allowed: N, is_most: false }.into());
        }
        integer(dtype, bytes, &mut numbers).map_err(failed)?;
        Ok(numbers)
    }
}

impl From<PartFault> for RecordCause {
    fn from(fault: PartFault) -> Self {
        RecordCause::Other { message: fault.to_string() }
    }
}
