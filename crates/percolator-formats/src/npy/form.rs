//! What an array's elements are, and how their bytes become values.

use std::borrow::Cow;

use super::literal::Literal;
use crate::{Array, ElementType, Fault, Part, Shape, Value};

/// The most bytes of an element: NumPy's own limit.
const ELEMENT_BYTES_MAX: usize = i32::MAX as usize;

/// Elements of one type, or one element.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NpyForm {
    pub(super) kind: NpyKind,
    /// The extents of the elements, as they lie in C order; empty for one element.
    pub(super) shape: Shape,
    /// The bytes of one element.
    pub(super) element_bytes: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NpyKind {
    Numbers(ElementType),
    /// UCS-4, filled up with zeros.
    Wide,
    /// Bytes, filled up with zeros.
    Narrow,
    /// Bytes that are all meant.
    Raw,
    /// Fields at their offsets; padding is left out.
    Fields(Vec<NpyField>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NpyField {
    pub(super) name: String,
    offset: usize,
    form: NpyForm,
}

/// Why a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderFault {
    /// Whether it is whole, but has something that is not read.
    pub(super) refused: bool,
    pub(super) what: String,
}

impl HeaderFault {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        HeaderFault { refused: false, what: what.into() }
    }

    pub(super) fn refused(what: impl Into<String>) -> Self {
        HeaderFault { refused: true, what: what.into() }
    }
}

impl From<Fault> for HeaderFault {
    fn from(fault: Fault) -> Self {
        HeaderFault::damaged(fault.0)
    }
}

/// Numbers inside an element that are stored with the other end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    offset: usize,
    bytes: usize,
    number_bytes: usize,
}

/// The most runs of numbers to swap in one element: structures in structures multiply.
const SWAPS_MAX: usize = 1 << 16;

impl NpyForm {
    /// The form that a `descr` states, and what is to be swapped in each element.
    pub(super) fn parse(descr: &Literal) -> Result<(Self, Vec<Swap>), HeaderFault> {
        let mut swaps = Vec::new();
        let form = parse(descr, &mut swaps)?;
        if !form.shape.is_empty() {
            return Err(HeaderFault::refused(
                "its descr has a shape of its own, which NumPy adds to the array's",
            ));
        }
        match form.bytes() {
            Some(0) => Err(HeaderFault::refused("its elements have no bytes")),
            Some(1..=ELEMENT_BYTES_MAX) => Ok((form, swaps)),
            _ => Err(HeaderFault::refused("its elements are larger than 2 GiB")),
        }
    }

    /// The number of elements; `None` if it exceeds the address space.
    pub(super) fn elements(&self) -> Option<usize> {
        elements(&self.shape)
    }

    /// The bytes of all elements.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.element_bytes)
    }

    /// Its fields, if it is one structure.
    pub(super) fn fields(&self) -> Option<&[NpyField]> {
        match &self.kind {
            NpyKind::Fields(fields) if self.shape.is_empty() => Some(fields),
            _ => None,
        }
    }

    /// As in NumPy: `<f4[5]`.
    pub(super) fn name(&self) -> String {
        let name = match &self.kind {
            NpyKind::Numbers(dtype) => dtype.numpy().to_owned(),
            NpyKind::Wide => format!("<U{}", self.element_bytes / 4),
            NpyKind::Narrow => format!("|S{}", self.element_bytes),
            NpyKind::Raw => format!("|V{}", self.element_bytes),
            NpyKind::Fields(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|field| format!("{}: {}", field.name, field.form.name())).collect();
                format!("{{{}}}", fields.join(", "))
            }
        };
        if self.shape.is_empty() { name } else { format!("{name}{:?}", self.shape.as_slice()) }
    }

    /// The value of bytes that are this form's.
    pub(super) fn value<'a>(&self, bytes: &'a [u8]) -> Result<Value<'a>, Fault> {
        if Some(bytes.len()) != self.bytes() {
            return Err(Fault::new(format!("{} bytes are no {}", bytes.len(), self.name())));
        }
        match &self.kind {
            NpyKind::Numbers(dtype) => {
                if *dtype == ElementType::Bool && bytes.iter().any(|byte| *byte > 1) {
                    return Err(Fault::new("a truth value is neither 0 nor 1"));
                }
                let bytes = Cow::Borrowed(bytes);
                Ok(Value::Array(Array { dtype: *dtype, shape: self.shape.clone(), bytes }))
            }
            _ => self.list(&self.shape, bytes),
        }
    }

    /// Elements that no array can hold, as lists in lists.
    fn list<'a>(&self, shape: &[u64], bytes: &'a [u8]) -> Result<Value<'a>, Fault> {
        let Some((&extent, inner)) = shape.split_first() else { return self.element(bytes) };
        // Elements have bytes, so no list is longer than the bytes are.
        let Some(step) = usize::try_from(extent).ok().and_then(|extent| bytes.len().checked_div(extent))
        else {
            return Ok(Value::List(Vec::new()));
        };
        if step == 0 {
            return Ok(Value::List(Vec::new()));
        }
        bytes.chunks_exact(step).map(|item| self.list(inner, item)).collect::<Result<_, _>>().map(Value::List)
    }

    fn element<'a>(&self, bytes: &'a [u8]) -> Result<Value<'a>, Fault> {
        match &self.kind {
            NpyKind::Numbers(dtype) => {
                Ok(Value::Array(Array { dtype: *dtype, shape: Shape::new(), bytes: Cow::Borrowed(bytes) }))
            }
            NpyKind::Wide => wide(bytes).map(|text| Value::Text(Cow::Owned(text))),
            NpyKind::Narrow => {
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
                let bytes = bytes.get(..end).unwrap_or_default();
                Ok(std::str::from_utf8(bytes)
                    .map_or(Value::Bytes(Cow::Borrowed(bytes)), |text| Value::Text(Cow::Borrowed(text))))
            }
            NpyKind::Raw => Ok(Value::Bytes(Cow::Borrowed(bytes))),
            NpyKind::Fields(fields) => {
                let values: Result<Vec<_>, Fault> = fields
                    .iter()
                    .map(|field| Ok((Cow::Owned(field.name.clone()), field.value(bytes)?)))
                    .collect();
                values.map(Value::Struct)
            }
        }
    }

    /// All fields of one structure.
    pub(super) fn parts<'a>(&'a self, bytes: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let fields = self.fields().unwrap_or_default();
        fields.iter().map(|field| Ok((Cow::Borrowed(field.name.as_str()), field.value(bytes)?))).collect()
    }

    /// One field of one structure.
    pub(super) fn part<'a>(&self, bytes: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let field = self.fields().unwrap_or_default().iter().find(|field| field.name == name);
        field.map(|field| field.value(bytes)).transpose()
    }
}

impl NpyField {
    /// A single integer or truth value is a plain one; a single float keeps its width.
    fn value<'a>(&self, structure: &'a [u8]) -> Result<Value<'a>, Fault> {
        let cut = || Fault::new(format!("the field {} leaves its structure", self.name));
        let bytes = self.form.bytes().ok_or_else(cut)?;
        let end = self.offset.checked_add(bytes).ok_or_else(cut)?;
        let value = self.form.value(structure.get(self.offset..end).ok_or_else(cut)?)?;
        Ok(match value {
            Value::Array(array) if array.shape.is_empty() => plain(array),
            other => other,
        })
    }
}

/// A number of no dimensions, as an integer if it is one.
fn plain(array: Array<'_>) -> Value<'_> {
    let mut eight = [0; 8];
    let Some(place) = eight.get_mut(..array.bytes.len()) else { return Value::Array(array) };
    place.copy_from_slice(&array.bytes);
    let bits = u64::from_le_bytes(eight);
    match array.dtype {
        ElementType::Bool => Value::Bool(bits != 0),
        ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => Value::UInt(bits),
        ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => {
            let unused =
                64_u32.saturating_sub(u32::try_from(array.bytes.len()).unwrap_or(8).saturating_mul(8));
            Value::Int(bits.wrapping_shl(unused).cast_signed().wrapping_shr(unused))
        }
        _ => Value::Array(array),
    }
}

fn wide(bytes: &[u8]) -> Result<String, Fault> {
    let (codes, _) = bytes.as_chunks::<4>();
    let end = codes.iter().rposition(|code| *code != [0; 4]).map_or(0, |last| last.saturating_add(1));
    let codes = codes.iter().take(end).map(|code| u32::from_le_bytes(*code));
    codes
        .map(|code| {
            char::from_u32(code).ok_or_else(|| Fault::new(format!("{code:#x} is no character of Unicode")))
        })
        .collect()
}

/// The product of extents; `None` if it exceeds the address space.
pub(super) fn elements(shape: &[u64]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(usize::try_from(extent).ok()?))
}

fn parse(descr: &Literal, swaps: &mut Vec<Swap>) -> Result<NpyForm, HeaderFault> {
    match descr {
        Literal::Text(text) => simple(text, swaps),
        Literal::List(fields) => structure(fields, swaps),
        Literal::Tuple(pair) => match pair.as_slice() {
            [inner, shape] => repeated(parse(inner, swaps)?, &extents(shape)?, swaps),
            _ => Err(HeaderFault::damaged("a tuple in its descr is no pair of type and shape")),
        },
        _ => Err(HeaderFault::damaged("its descr is neither a text nor a list of fields")),
    }
}

/// A type by its name: `<f4`.
fn simple(text: &str, swaps: &mut Vec<Swap>) -> Result<NpyForm, HeaderFault> {
    let unknown = || HeaderFault::refused(format!("its type {text:?} is not one of numbers, text or bytes"));
    let (big, name) = match text.split_at_checked(1) {
        Some((">", name)) => (true, name),
        Some(("<" | "|" | "=", name)) => (false, name),
        _ => (false, text),
    };
    let (kind, size) = name.split_at_checked(1).ok_or_else(unknown)?;
    match kind {
        "O" => {
            return Err(HeaderFault::refused(
                "its elements are Python objects: a pickle, which could run code",
            ));
        }
        "M" | "m" => {
            return Err(HeaderFault::refused(format!("its elements are times ({text}); save them as int64")));
        }
        _ => {}
    }
    if size.is_empty() || !size.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(unknown());
    }
    let size: usize = size.parse().map_err(|_| unknown())?;
    let numbers = |dtype| Ok((NpyKind::Numbers(dtype), size));
    let (kind, element_bytes) = match (kind, size) {
        ("b", 1) => numbers(ElementType::Bool),
        ("i", 1) => numbers(ElementType::I8),
        ("i", 2) => numbers(ElementType::I16),
        ("i", 4) => numbers(ElementType::I32),
        ("i", 8) => numbers(ElementType::I64),
        ("u", 1) => numbers(ElementType::U8),
        ("u", 2) => numbers(ElementType::U16),
        ("u", 4) => numbers(ElementType::U32),
        ("u", 8) => numbers(ElementType::U64),
        ("f", 2) => numbers(ElementType::F16),
        ("f", 4) => numbers(ElementType::F32),
        ("f", 8) => numbers(ElementType::F64),
        ("c", 8) => numbers(ElementType::C64),
        ("c", 16) => numbers(ElementType::C128),
        ("U", _) => Ok((NpyKind::Wide, size.checked_mul(4).ok_or_else(unknown)?)),
        ("S" | "a", _) => Ok((NpyKind::Narrow, size)),
        ("V", _) => Ok((NpyKind::Raw, size)),
        _ => Err(unknown()),
    }?;
    let number_bytes = match &kind {
        NpyKind::Numbers(dtype) => dtype.number_bytes(),
        NpyKind::Wide => 4,
        _ => 1,
    };
    if big && number_bytes > 1 {
        swaps.push(Swap { offset: 0, bytes: element_bytes, number_bytes });
    }
    Ok(NpyForm { kind, shape: Shape::new(), element_bytes })
}

fn structure(fields: &[Literal], swaps: &mut Vec<Swap>) -> Result<NpyForm, HeaderFault> {
    let large = || HeaderFault::refused("its elements are larger than 2 GiB");
    let (mut offset, mut parsed): (usize, Vec<NpyField>) = (0, Vec::new());
    let mut names = std::collections::HashSet::new();
    for field in fields {
        let Literal::Tuple(items) = field else {
            return Err(HeaderFault::damaged("a field in its descr is no tuple"));
        };
        let (name, descr, shape) = match items.as_slice() {
            [name, descr] => (name, descr, None),
            [name, descr, shape] => (name, descr, Some(shape)),
            _ => return Err(HeaderFault::damaged("a field in its descr has neither two nor three items")),
        };
        let name = field_name(name)?;
        let mut own = Vec::new();
        let mut form = parse(descr, &mut own)?;
        if let Some(shape) = shape {
            form = repeated(form, &extents(shape)?, &mut own)?;
        }
        let end = form.bytes().and_then(|bytes| offset.checked_add(bytes)).ok_or_else(large)?;
        if end > ELEMENT_BYTES_MAX {
            return Err(large());
        }
        // Padding is a field of bytes without a name.
        if !(name.is_empty() && form.kind == NpyKind::Raw) {
            if !names.insert(name) {
                return Err(HeaderFault::damaged(format!("it has the field {name:?} twice")));
            }
            swaps.extend(own.iter().map(|swap| swap.at(offset)));
            parsed.push(NpyField { name: name.to_owned(), offset, form });
        }
        offset = end;
    }
    if swaps.len() > SWAPS_MAX {
        return Err(HeaderFault::refused("its structure has too many fields"));
    }
    Ok(NpyForm { kind: NpyKind::Fields(parsed), shape: Shape::new(), element_bytes: offset })
}

/// A field's name; of a title and a name, the name.
fn field_name(name: &Literal) -> Result<&str, HeaderFault> {
    match name {
        Literal::Text(name) => Ok(name),
        Literal::Tuple(names) => match names.as_slice() {
            [_, Literal::Text(name)] => Ok(name),
            _ => Err(HeaderFault::damaged("a field in its descr has no name")),
        },
        _ => Err(HeaderFault::damaged("a field in its descr has no name")),
    }
}

/// A shape: a tuple, or one extent.
pub(super) fn extents(shape: &Literal) -> Result<Shape, HeaderFault> {
    let extent = |item: &Literal| match item {
        Literal::Number(extent) => Ok(*extent),
        _ => Err(HeaderFault::damaged("its shape has an extent that is no number")),
    };
    match shape {
        Literal::Tuple(items) => items.iter().map(extent).collect(),
        other => Ok(Shape::from_iter([extent(other)?])),
    }
}

/// An array of elements inside an element.
fn repeated(mut form: NpyForm, shape: &[u64], swaps: &mut Vec<Swap>) -> Result<NpyForm, HeaderFault> {
    let large = || HeaderFault::refused("its elements are larger than 2 GiB");
    let element_bytes = form.bytes().ok_or_else(large)?;
    let count = elements(shape).ok_or_else(large)?;
    let bytes =
        element_bytes.checked_mul(count).filter(|bytes| *bytes <= ELEMENT_BYTES_MAX).ok_or_else(large)?;
    if bytes == 0 {
        return Err(HeaderFault::refused("a field of it has no bytes"));
    }
    let own = std::mem::take(swaps);
    match own.as_slice() {
        // Runs of equal numbers, one after the other, are one run.
        [one] if one.bytes == element_bytes => swaps.push(Swap { bytes, ..*one }),
        _ => {
            if own.len().saturating_mul(count) > SWAPS_MAX {
                return Err(HeaderFault::refused(
                    "its structure has too many fields with the other end first",
                ));
            }
            for index in 0..count {
                let offset = index.saturating_mul(element_bytes);
                swaps.extend(own.iter().map(|swap| swap.at(offset)));
            }
        }
    }
    let mut outer = Shape::from_slice(shape);
    outer.extend(form.shape.iter().copied());
    form.shape = outer;
    Ok(form)
}

impl Swap {
    fn at(self, offset: usize) -> Self {
        Swap { offset: self.offset.saturating_add(offset), ..self }
    }
}

/// Turns the numbers of elements around that have the other end first.
pub(super) fn swap(elements: &mut [u8], element_bytes: usize, swaps: &[Swap]) {
    if swaps.is_empty() {
        return;
    }
    for element in elements.chunks_exact_mut(element_bytes.max(1)) {
        for &Swap { offset, bytes, number_bytes } in swaps {
            let numbers = element.get_mut(offset..offset.saturating_add(bytes)).unwrap_or_default();
            numbers.chunks_exact_mut(number_bytes.max(1)).for_each(<[u8]>::reverse);
        }
    }
}
