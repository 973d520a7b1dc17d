//! What a row's elements are, and how their bytes become values.

use std::borrow::Cow;

use hdf5_pure::{CharacterSet, Datatype, DatatypeByteOrder, FloatingPointLayout, StringPadding};

use super::heap::Heap;
use crate::fields::has_twice;
use crate::unpack::RECORD_MAX;
use crate::{Array, ElementType, FormatError, Shape, Value};

/// Structures in structures, and arrays in them, so deep.
const DEPTH_MAX: usize = 8;

/// The bytes of a row's element that stands for values of variable length.
const REFERENCE_BYTES: usize = 16;

/// Elements of one type, or one element.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Form {
    kind: Kind,
    /// The extents; empty for one element.
    pub(super) shape: Shape,
    /// The bytes of one element.
    pub(super) element_bytes: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Numbers {
        dtype: ElementType,
        /// Whether the other end is first.
        swapped: bool,
    },
    /// Numbers that become F32.
    Floats {
        stored: ElementType,
        swapped: bool,
    },
    /// Texts of one length.
    Text {
        padding: Padding,
        utf8: bool,
    },
    /// Bytes that are all meant.
    Raw,
    Fields(Vec<Field>),
    /// Texts that lie apart.
    ApartText {
        utf8: bool,
    },
    /// Lists of such elements that lie apart.
    Apart(Box<Form>),
}

/// How a text fills its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    /// It ends before the first zero.
    Terminated,
    /// Zeros behind it.
    Zeros,
    /// Spaces behind it.
    Spaces,
}

#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    offset: usize,
    form: Form,
}

impl Form {
    /// Elements of a type with these extents; or why they are not read.
    pub(super) fn of(datatype: &Datatype, shape: &[u64], offset_bytes: u8) -> Result<Self, String> {
        let mut form = of(datatype, 0)?;
        if form.is_apart() && offset_bytes != 8 {
            return Err("values of variable length in a file with short addresses are not read".to_owned());
        }
        form.shape = shape.iter().copied().chain(form.shape.iter().copied()).collect();
        let bytes = form.memory();
        if bytes > RECORD_MAX {
            return Err(format!("a row becomes {bytes} bytes of values, and up to {RECORD_MAX} are read"));
        }
        Ok(form)
    }

    /// About how many bytes of memory its values take. Members of a structure may lie over each other, so
    /// there may be more than the file has.
    fn memory(&self) -> usize {
        let elements = self.shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(usize::MAX));
        let of_one = match &self.kind {
            Kind::Numbers { .. } | Kind::Floats { .. } => self.element_bytes,
            _ => self.memory_of_one(),
        };
        elements.fold(of_one, usize::saturating_mul).saturating_add(size_of::<Value<'_>>())
    }

    /// About how many bytes of memory the value of one element takes.
    fn memory_of_one(&self) -> usize {
        let own = match &self.kind {
            Kind::Fields(fields) => fields.iter().fold(0_usize, |sum, field| {
                let named = field.name.len().saturating_add(size_of::<Cow<'_, str>>());
                sum.saturating_add(named).saturating_add(field.form.memory())
            }),
            _ => self.element_bytes,
        };
        own.saturating_add(size_of::<Value<'_>>())
    }

    /// The same numbers as F32, as Caffe has them; or why they cannot be.
    pub(super) fn into_floats(self) -> Result<Self, String> {
        match self.kind {
            Kind::Numbers { dtype: ElementType::Bool | ElementType::C64 | ElementType::C128, .. } => {}
            Kind::Numbers { dtype, swapped } if self.element_bytes == dtype.bytes() => {
                return Ok(Form { kind: Kind::Floats { stored: dtype, swapped }, ..self });
            }
            _ => {}
        }
        Err(format!("it has {}, and Caffe reads floats and integers alone", self.name()))
    }

    fn is_apart(&self) -> bool {
        match &self.kind {
            Kind::ApartText { .. } | Kind::Apart(_) => true,
            Kind::Fields(fields) => fields.iter().any(|field| field.form.is_apart()),
            _ => false,
        }
    }

    /// The bytes of all elements; `None` if they exceed the address space.
    fn bytes(&self) -> Option<usize> {
        let elements = self
            .shape
            .iter()
            .try_fold(1_usize, |product, &extent| product.checked_mul(usize::try_from(extent).ok()?));
        elements?.checked_mul(self.element_bytes)
    }

    /// As in NumPy: `<f4[2, 3]`.
    pub(super) fn name(&self) -> String {
        let name = match &self.kind {
            Kind::Numbers { dtype, .. } => dtype.numpy().to_owned(),
            Kind::Floats { .. } => ElementType::F32.numpy().to_owned(),
            Kind::Text { .. } => format!("|S{}", self.element_bytes),
            Kind::Raw => format!("|V{}", self.element_bytes),
            Kind::ApartText { .. } => "text".to_owned(),
            Kind::Apart(form) => format!("lists of {}", form.name()),
            Kind::Fields(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|field| format!("{}: {}", field.name, field.form.name())).collect();
                format!("{{{}}}", fields.join(", "))
            }
        };
        if self.shape.is_empty() { name } else { format!("{name}{:?}", self.shape.as_slice()) }
    }

    /// The value of a row's bytes.
    pub(super) fn value<'a>(&self, bytes: &'a [u8], heap: &mut Heap<'_>) -> Result<Value<'a>, FormatError> {
        if Some(bytes.len()) != self.bytes() {
            return Err(fault(heap, format!("{} bytes are no {}", bytes.len(), self.name())));
        }
        match self.kind {
            Kind::Numbers { dtype, swapped } => {
                let bytes = in_order(dtype, swapped, bytes);
                if dtype == ElementType::Bool && bytes.iter().any(|byte| *byte > 1) {
                    return Err(fault(heap, "a truth value is neither 0 nor 1"));
                }
                Ok(Value::Array(Array { dtype, shape: self.shape.clone(), bytes }))
            }
            Kind::Floats { stored, swapped } => {
                let bytes = Cow::Owned(floats(stored, &in_order(stored, swapped, bytes)));
                Ok(Value::Array(Array { dtype: ElementType::F32, shape: self.shape.clone(), bytes }))
            }
            _ => self.list(&self.shape, bytes, heap),
        }
    }

    /// Elements that no array can hold, as lists in lists.
    fn list<'a>(
        &self,
        shape: &[u64],
        bytes: &'a [u8],
        heap: &mut Heap<'_>,
    ) -> Result<Value<'a>, FormatError> {
        let Some((&extent, inner)) = shape.split_first() else { return self.element(bytes, heap) };
        let step = usize::try_from(extent).ok().and_then(|extent| bytes.len().checked_div(extent));
        // Elements have bytes, so no list is longer than the bytes are.
        let Some(step) = step.filter(|step| *step > 0) else { return Ok(Value::List(Vec::new())) };
        let items = bytes.chunks_exact(step).map(|item| self.list(inner, item, heap));
        items.collect::<Result<_, _>>().map(Value::List)
    }

    fn element<'a>(&self, bytes: &'a [u8], heap: &mut Heap<'_>) -> Result<Value<'a>, FormatError> {
        match &self.kind {
            Kind::Numbers { .. } | Kind::Floats { .. } => {
                Form { shape: Shape::new(), ..self.clone() }.value(bytes, heap)
            }
            Kind::Text { padding, utf8 } => text(padding.without(bytes), *utf8, heap),
            Kind::Raw => Ok(Value::Bytes(Cow::Borrowed(bytes))),
            Kind::ApartText { utf8 } => {
                let found = Padding::Terminated.without(heap.elements(bytes, 1, 1)?).to_vec();
                Ok(text(&found, *utf8, heap)?.into_owned())
            }
            Kind::Apart(form) => {
                let of_one = match form.kind {
                    Kind::Numbers { .. } | Kind::Floats { .. } => form.element_bytes,
                    _ => form.memory_of_one(),
                };
                let found = heap.elements(bytes, form.element_bytes, of_one)?.to_vec();
                form.values(&found, heap)
            }
            Kind::Fields(fields) => {
                let mut values = Vec::new();
                for field in fields {
                    let end = field.form.bytes().and_then(|bytes| field.offset.checked_add(bytes));
                    let own = end.and_then(|end| bytes.get(field.offset..end));
                    let own = own.ok_or_else(|| fault(heap, format!("the field {} is cut", field.name)))?;
                    values.push((Cow::Owned(field.name.clone()), field.form.value(own, heap)?));
                }
                Ok(Value::Struct(values))
            }
        }
    }

    /// A list of elements, of which as many are there as the bytes have.
    fn values(&self, bytes: &[u8], heap: &mut Heap<'_>) -> Result<Value<'static>, FormatError> {
        let elements = bytes.len().checked_div(self.element_bytes).unwrap_or_default() as u64;
        let form = Form { shape: [elements].into_iter().collect(), ..self.clone() };
        let value = match (&self.kind, form.value(bytes, heap)?) {
            // What these bytes mean, the file does not state.
            (Kind::Numbers { dtype: ElementType::U8, .. }, Value::Array(array)) => Value::Bytes(array.bytes),
            (Kind::Numbers { dtype, .. }, Value::Array(array)) if !is_float(*dtype) => Value::Listed(array),
            (_, value) => value,
        };
        Ok(value.into_owned())
    }
}

impl Padding {
    fn without(self, bytes: &[u8]) -> &[u8] {
        let last =
            |pad: u8| bytes.iter().rposition(|byte| *byte != pad).map_or(0, |last| last.saturating_add(1));
        let end = match self {
            Padding::Terminated => memchr::memchr(0, bytes).unwrap_or(bytes.len()),
            Padding::Zeros => last(0),
            Padding::Spaces => last(b' '),
        };
        bytes.get(..end).unwrap_or_default()
    }
}

impl From<&StringPadding> for Padding {
    fn from(padding: &StringPadding) -> Self {
        match padding {
            StringPadding::NullTerminate => Padding::Terminated,
            StringPadding::NullPad => Padding::Zeros,
            StringPadding::SpacePad => Padding::Spaces,
        }
    }
}

fn fault(heap: &Heap<'_>, what: impl std::fmt::Display) -> FormatError {
    FormatError::damaged(heap.file.path(), format!("{}: {what}", heap.part))
}

/// A text; bytes if it is none and need not be UTF-8.
fn text<'a>(bytes: &'a [u8], utf8: bool, heap: &Heap<'_>) -> Result<Value<'a>, FormatError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Value::Text(Cow::Borrowed(text))),
        Err(error) if utf8 => Err(fault(heap, format!("a text is not UTF-8, as the file says: {error}"))),
        Err(_) => Ok(Value::Bytes(Cow::Borrowed(bytes))),
    }
}

fn is_float(dtype: ElementType) -> bool {
    use ElementType::{Bf16, C64, C128, F16, F32, F64};
    matches!(dtype, F16 | Bf16 | F32 | F64 | C64 | C128)
}

/// Numbers with the least byte first.
fn in_order(dtype: ElementType, swapped: bool, bytes: &[u8]) -> Cow<'_, [u8]> {
    if !swapped {
        return Cow::Borrowed(bytes);
    }
    let mut ordered = bytes.to_vec();
    ordered.chunks_exact_mut(dtype.number_bytes()).for_each(<[u8]>::reverse);
    Cow::Owned(ordered)
}

/// Numbers as F32, rounded to the nearest as HDF5 does; what is too large is infinite.
#[expect(clippy::cast_possible_truncation, reason = "F64 is rounded to F32")]
fn floats(stored: ElementType, bytes: &[u8]) -> Vec<u8> {
    fn each<const N: usize>(bytes: &[u8], one: impl Fn([u8; N]) -> f32) -> Vec<u8> {
        bytes.as_chunks::<N>().0.iter().flat_map(|number| one(*number).to_le_bytes()).collect()
    }
    match stored {
        ElementType::I8 => each(bytes, |number| f32::from(i8::from_le_bytes(number))),
        ElementType::U8 => each(bytes, |number| f32::from(u8::from_le_bytes(number))),
        ElementType::I16 => each(bytes, |number| f32::from(i16::from_le_bytes(number))),
        ElementType::U16 => each(bytes, |number| f32::from(u16::from_le_bytes(number))),
        ElementType::I32 => each(bytes, |number| i32::from_le_bytes(number) as f32),
        ElementType::U32 => each(bytes, |number| u32::from_le_bytes(number) as f32),
        ElementType::I64 => each(bytes, |number| i64::from_le_bytes(number) as f32),
        ElementType::U64 => each(bytes, |number| u64::from_le_bytes(number) as f32),
        ElementType::F16 => each(bytes, |number| half::f16::from_le_bytes(number).to_f32()),
        ElementType::Bf16 => each(bytes, |number| half::bf16::from_le_bytes(number).to_f32()),
        ElementType::F64 => each(bytes, |number| f64::from_le_bytes(number) as f32),
        ElementType::F32 | ElementType::Bool | ElementType::C64 | ElementType::C128 => bytes.to_vec(),
    }
}

fn of(datatype: &Datatype, depth: usize) -> Result<Form, String> {
    if depth > DEPTH_MAX {
        return Err(format!("its type nests deeper than {DEPTH_MAX} levels"));
    }
    let bytes = usize::try_from(datatype.type_size()).unwrap_or(usize::MAX);
    let form = |kind| Form { kind, shape: Shape::new(), element_bytes: bytes };
    if let Some((dtype, swapped)) = numbers(datatype) {
        return Ok(form(Kind::Numbers { dtype, swapped }));
    }
    let utf8 = |charset: &CharacterSet| matches!(charset, CharacterSet::Utf8);
    match datatype {
        Datatype::String { padding, charset, .. } => {
            Ok(form(Kind::Text { padding: padding.into(), utf8: utf8(charset) }))
        }
        Datatype::Opaque { .. } => Ok(form(Kind::Raw)),
        Datatype::VariableLength { is_string: true, charset, .. } => {
            let kind = Kind::ApartText { utf8: charset.as_ref().is_some_and(utf8) };
            Ok(Form { kind, shape: Shape::new(), element_bytes: REFERENCE_BYTES })
        }
        Datatype::VariableLength { base_type, .. } => {
            let inner = of(base_type, depth.saturating_add(1))?;
            if inner.is_apart() || !inner.shape.is_empty() || inner.element_bytes == 0 {
                return Err(format!("lists of {} are not read", inner.name()));
            }
            let kind = Kind::Apart(Box::new(inner));
            Ok(Form { kind, shape: Shape::new(), element_bytes: REFERENCE_BYTES })
        }
        Datatype::Array { base_type, dimensions } => {
            let inner = of(base_type, depth.saturating_add(1))?;
            let outer = dimensions.iter().map(|extent| u64::from(*extent));
            Ok(Form { shape: outer.chain(inner.shape.iter().copied()).collect(), ..inner })
        }
        Datatype::Compound { members, .. } => {
            let field = |member: &hdf5_pure::CompoundMember| -> Result<Field, String> {
                Ok(Field {
                    name: member.name.clone(),
                    offset: usize::try_from(member.byte_offset).unwrap_or(usize::MAX),
                    form: of(&member.datatype, depth.saturating_add(1))?,
                })
            };
            if has_twice(members.iter().map(|member| &*member.name)) {
                return Err("two members of a structure have one name".to_owned());
            }
            Ok(form(Kind::Fields(members.iter().map(field).collect::<Result<_, _>>()?)))
        }
        other => Err(refusal(other).to_owned()),
    }
}

/// Why a type is not read.
fn refusal(datatype: &Datatype) -> &'static str {
    match datatype {
        Datatype::Time { .. } => "times are not read: write them as integers",
        Datatype::BitField { .. } => "bit fields are not read: write them as integers",
        Datatype::Reference { .. } => "references are not read: name the parts that are data",
        Datatype::FixedPoint { .. } | Datatype::Enumeration { .. } => {
            "its integers are of no width that is read: 8, 16, 32 and 64 bits are"
        }
        Datatype::FloatingPoint { .. } => "its floats are of no kind that is read: IEEE's and bfloat16 are",
        _ => "its type is not read",
    }
}

/// The type of numbers, and whether the other end is first; `None` if it is no number that is read.
fn numbers(datatype: &Datatype) -> Option<(ElementType, bool)> {
    let swapped = |order: &DatatypeByteOrder| match order {
        DatatypeByteOrder::LittleEndian => Some(false),
        DatatypeByteOrder::BigEndian => Some(true),
        DatatypeByteOrder::Vax => None,
    };
    match datatype {
        Datatype::FixedPoint { size, byte_order, layout } => {
            let dtype = match (size, layout.signed) {
                (1, true) => ElementType::I8,
                (2, true) => ElementType::I16,
                (4, true) => ElementType::I32,
                (8, true) => ElementType::I64,
                (1, false) => ElementType::U8,
                (2, false) => ElementType::U16,
                (4, false) => ElementType::U32,
                (8, false) => ElementType::U64,
                _ => return None,
            };
            let whole = layout.bit_offset == 0 && u32::from(layout.bit_precision) == size.saturating_mul(8);
            whole.then_some((dtype, swapped(byte_order)?))
        }
        Datatype::FloatingPoint { byte_order, layout, size } => {
            let dtype = float_of(layout).filter(|dtype| u32::try_from(dtype.bytes()) == Ok(*size))?;
            Some((dtype, swapped(byte_order)?))
        }
        Datatype::Enumeration { base_type, members, size, .. } if base_type.type_size() == *size => {
            let (dtype, swapped) = numbers(base_type)?;
            let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
            // As h5py writes truth values.
            let truth = dtype.bytes() == 1 && names == ["FALSE", "TRUE"];
            Some((if truth { ElementType::Bool } else { dtype }, swapped))
        }
        Datatype::Compound { size, members } => complex(*size, members),
        _ => None,
    }
}

fn float_of(layout: &FloatingPointLayout) -> Option<ElementType> {
    let short = |exponent, mantissa, bias| FloatingPointLayout {
        bit_offset: 0,
        bit_precision: 16,
        exponent_location: mantissa,
        exponent_size: exponent,
        mantissa_location: 0,
        mantissa_size: mantissa,
        exponent_bias: bias,
    };
    let known = [
        (FloatingPointLayout::IEEE754_BINARY32, ElementType::F32),
        (FloatingPointLayout::IEEE754_BINARY64, ElementType::F64),
        (short(5, 10, 15), ElementType::F16),
        (short(8, 7, 127), ElementType::Bf16),
    ];
    known.iter().find(|(known, _)| known == layout).map(|(_, dtype)| *dtype)
}

/// A complex number, as h5py writes it: two floats, named `r` and `i`.
fn complex(size: u32, members: &[hdf5_pure::CompoundMember]) -> Option<(ElementType, bool)> {
    let [real, imaginary] = members else { return None };
    let (dtype, swapped) = numbers(&real.datatype)?;
    let complex = match dtype {
        ElementType::F32 => ElementType::C64,
        ElementType::F64 => ElementType::C128,
        _ => return None,
    };
    let is_named = real.name == "r" && imaginary.name == "i" && real.datatype == imaginary.datatype;
    let is_close = real.byte_offset == 0
        && imaginary.byte_offset == dtype.bytes() as u64
        && u32::try_from(complex.bytes()) == Ok(size);
    (is_named && is_close).then_some((complex, swapped))
}

#[cfg(test)]
mod tests {
    use hdf5_pure::{CompoundTypeBuilder, FixedPointLayout};

    use super::*;

    fn byte() -> Datatype {
        let layout = FixedPointLayout { signed: false, bit_offset: 0, bit_precision: 8 };
        Datatype::FixedPoint { size: 1, byte_order: DatatypeByteOrder::LittleEndian, layout }
    }

    /// A structure of bytes that lie over each other, with these names.
    fn structure(names: &[String]) -> Datatype {
        let start = CompoundTypeBuilder::new();
        let build = names.iter().enumerate();
        let mut made = build.fold(start, |made, (at, _)| made.u8_field(&at.to_string())).build().unwrap();
        if let Datatype::Compound { members, .. } = &mut made {
            for (member, name) in members.iter_mut().zip(names) {
                (member.name, member.byte_offset) = (name.clone(), 0);
            }
        }
        made
    }

    /// Members may lie over each other, so a byte of the file may become any number of values.
    #[test]
    fn a_row_whose_values_take_too_much_memory_is_refused() {
        let names: Vec<_> = (0..4000).map(|number| number.to_string()).collect();
        let error = Form::of(&structure(&names), &[60_000_000], 8).unwrap_err();
        assert!(error.contains("bytes of values"), "{error}");
        let long = structure(&["x".repeat(60_000)]);
        assert!(Form::of(&long, &[60_000_000], 8).is_err());
        assert!(Form::of(&long, &[100], 8).is_ok());
        assert!(Form::of(&byte(), &[60_000_000], 8).is_ok(), "numbers are one value");
    }

    #[test]
    fn types_that_contradict_themselves_are_refused() {
        let twice = structure(&["a", "a"].map(ToOwned::to_owned));
        assert!(Form::of(&twice, &[], 8).unwrap_err().contains("one name"));
        let of = |size| Datatype::Enumeration { size, base_type: Box::new(byte()), members: Vec::new() };
        assert!(Form::of(&of(1), &[3], 8).is_ok());
        assert!(Form::of(&of(8), &[3], 8).unwrap_err().contains("no width that is read"));
    }
}
