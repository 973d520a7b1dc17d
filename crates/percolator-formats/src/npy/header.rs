//! The header of an NPY file.

use std::borrow::Cow;

use super::form::{self, HeaderFault, NpyForm, Swap};
use super::literal::{self, Literal};
use crate::{Fault, Shape};

/// The first bytes of every NPY file.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The bytes after which the header's length is known.
pub(super) const PREFIX: u64 = 12;

/// The longest header that is parsed. It has a name for each field of a structure.
const HEADER_MAX: u64 = 16 << 20;

/// What a header states.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NpyHeader {
    /// One record: what is behind the first axis.
    pub(super) row: NpyForm,
    /// The extent of the first axis; `None` if the shape is ().
    pub(super) rows: Option<u64>,
    /// Whether the first axis varies fastest.
    pub(super) fortran: bool,
    /// What is to be turned around in each element.
    pub(super) swaps: Vec<Swap>,
    /// Where the elements begin.
    pub(super) data: u64,
    /// The bytes of all elements, which are there.
    pub(super) data_bytes: u64,
}

/// Where the header's text begins and ends, by a file's first bytes.
pub(super) fn extent(head: &[u8], file_bytes: u64) -> Result<(u64, u64), HeaderFault> {
    if !head.starts_with(MAGIC) {
        return Err(HeaderFault::damaged("it is no NPY file: it does not begin with \\x93NUMPY"));
    }
    let cut = || HeaderFault::damaged("the file ends inside its header: it is cut");
    let (begin, bytes) = match *head.get(6..).unwrap_or_default() {
        [1, 0, a, b, ..] => (10, u64::from(u16::from_le_bytes([a, b]))),
        [2 | 3, 0, a, b, c, d, ..] => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
        [1..=3, 0, ..] | [_] | [] => return Err(cut()),
        [major, minor, ..] => {
            let what = format!("it has version {major}.{minor} of NPY, and 1.0, 2.0 and 3.0 are read");
            return Err(HeaderFault::refused(what));
        }
    };
    let end = bytes.saturating_add(begin);
    if end > file_bytes {
        let what = format!(
            "the header is stated to have {bytes} bytes, and the file has {file_bytes} bytes in all: it is \
             damaged or cut"
        );
        return Err(HeaderFault::damaged(what));
    }
    if bytes > HEADER_MAX {
        return Err(HeaderFault::refused(format!("its header has {bytes} bytes, and up to 16 MiB are read")));
    }
    Ok((begin, end))
}

impl NpyHeader {
    /// Parses a header's text, and compares the shape with the bytes of the file.
    pub(super) fn parse(head: &[u8], text: &[u8], end: u64, file_bytes: u64) -> Result<Self, HeaderFault> {
        let text = match head.get(6) {
            Some(3) => Cow::Borrowed(
                std::str::from_utf8(text).map_err(|_| HeaderFault::damaged("the header is no UTF-8"))?,
            ),
            _ => Cow::Owned(text.iter().map(|byte| char::from(*byte)).collect()),
        };
        let (descr, fortran, shape) = entries(literal::parse(&text)?)?;
        // Objects are refused before their shape is doubted: a pickle has any length.
        let (element, swaps) = NpyForm::parse(&descr)?;
        let shape = form::extents(&shape)?;
        let there = file_bytes.saturating_sub(end);
        let misfit = |needed: &dyn std::fmt::Display| {
            HeaderFault::damaged(format!(
                "the shape {} of {} needs {needed} bytes, and {there} are there: it is damaged or cut",
                shown(&shape),
                element.name()
            ))
        };
        let element_bytes = element.bytes().ok_or_else(|| misfit(&"more than 2^63"))?;
        let data_bytes = form::elements(&shape)
            .and_then(|elements| elements.checked_mul(element_bytes))
            .ok_or_else(|| misfit(&"more than 2^63"))?;
        let data_bytes = u64::try_from(data_bytes).map_err(|_| misfit(&"more than 2^63"))?;
        if data_bytes > there {
            return Err(misfit(&data_bytes));
        }
        let rows = shape.first().copied();
        if data_bytes == 0 && rows > Some(file_bytes) {
            // A number that no bytes stand behind.
            let what = format!("its shape {} states records without bytes", shown(&shape));
            return Err(HeaderFault::refused(what));
        }
        let inner = shape.get(1..).unwrap_or_default();
        let mut row = element;
        let mut row_shape = Shape::from_slice(inner);
        row_shape.extend(row.shape.iter().copied());
        row.shape = row_shape;
        // One extent, or one that is 0 beside the first, makes both orders the same.
        let fortran = fortran && shape.len() > 1 && data_bytes > 0;
        Ok(NpyHeader { row, rows, fortran, swaps, data: end, data_bytes })
    }

    /// The bytes of a record.
    pub(super) fn row_bytes(&self) -> usize {
        // They are no more than all bytes, or all extents but the first are those of an empty array.
        self.row.bytes().unwrap_or_default()
    }

    /// The bytes of an element.
    pub(super) fn element_bytes(&self) -> usize {
        self.row.element_bytes
    }
}

fn shown(shape: &[u64]) -> String {
    let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
    match extents.as_slice() {
        [one] => format!("({one},)"),
        _ => format!("({})", extents.join(", ")),
    }
}

/// The three values that a header has, and no other.
fn entries(header: Literal) -> Result<(Literal, bool, Literal), HeaderFault> {
    let Literal::Dict(entries) = header else { return Err(HeaderFault::damaged("the header is no dict")) };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    for (name, value) in entries {
        let before = match (name.as_str(), value) {
            ("descr", value) => descr.replace(value).is_some(),
            ("shape", value @ (Literal::Tuple(_) | Literal::Number(_))) => shape.replace(value).is_some(),
            ("fortran_order", Literal::Truth(value)) => fortran.replace(value).is_some(),
            (name, _) => {
                return Err(HeaderFault::damaged(format!("the header's {name:?} is not one that NPY has")));
            }
        };
        if before {
            return Err(HeaderFault::damaged(format!("the header has {name:?} twice")));
        }
    }
    match (descr, fortran, shape) {
        (Some(descr), Some(fortran), Some(shape)) => Ok((descr, fortran, shape)),
        _ => Err(HeaderFault::damaged("the header lacks one of descr, fortran_order and shape")),
    }
}

/// The header of an array in memory.
pub(super) fn of_bytes(bytes: &[u8]) -> Result<NpyHeader, Fault> {
    let length = bytes.len() as u64;
    let (begin, end) = extent(bytes, length).map_err(|fault| Fault(fault.what))?;
    let cut = || Fault::new("the header is cut");
    let range = usize::try_from(begin).map_err(|_| cut())?..usize::try_from(end).map_err(|_| cut())?;
    let text = bytes.get(range).ok_or_else(cut)?;
    NpyHeader::parse(bytes, text, end, length).map_err(|fault| Fault(fault.what))
}
