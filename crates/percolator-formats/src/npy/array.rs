//! An array's rows, wherever its bytes are.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use percolator_files::shown;

use super::form::{self, HeaderFault};
use super::header::{self, NpyHeader, PREFIX};
use crate::{DataFile, FormatError, Lent, Value};

/// The bytes of rows that are gathered at once from an array in Fortran order.
const GATHERED_BYTES: usize = 1 << 20;

/// Bytes of a file from one on, or bytes that were unpacked.
#[derive(Clone, Debug)]
pub(crate) enum NpySource {
    File(Arc<DataFile>, Range<u64>),
    Memory(Arc<Vec<u8>>),
}

impl NpySource {
    pub(crate) fn whole(file: DataFile) -> Self {
        let bytes = file.bytes();
        NpySource::File(Arc::new(file), 0..bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            NpySource::File(_, range) => range.end.saturating_sub(range.start),
            NpySource::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Lends a range of it. Callers have compared it with [`bytes`](Self::bytes).
    pub(crate) fn lend<'a>(
        &'a self,
        range: Range<u64>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Lent<'a>, FormatError> {
        match self {
            NpySource::File(file, own) => {
                let at = |offset: u64| offset.saturating_add(own.start);
                file.lend(at(range.start)..at(range.end), buffer)
            }
            NpySource::Memory(bytes) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(Lent::Buffer(bytes.get(at(range.start)..at(range.end)).unwrap_or_default()))
            }
        }
    }

    fn read<'a>(&'a self, range: Range<u64>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], FormatError> {
        self.lend(range, buffer).map(|lent| lent.bytes())
    }
}

/// The header of an array in a source; `path` and `member` name it in messages.
pub(crate) fn header_of(
    source: &NpySource,
    path: &Path,
    member: Option<&str>,
) -> Result<NpyHeader, FormatError> {
    let fail = |fault| failure(path, member, fault);
    let (mut head, mut text) = (Vec::new(), Vec::new());
    let head = source.read(0..source.bytes().min(PREFIX), &mut head)?;
    let (begin, end) = header::extent(head, source.bytes()).map_err(fail)?;
    let text = source.read(begin..end, &mut text)?;
    let header = NpyHeader::parse(head, text, end, source.bytes()).map_err(fail)?;
    tell(&header, source.bytes(), path, member);
    Ok(header)
}

/// The header of an array of so many bytes that is unpacked.
pub(crate) fn header_of_reader(
    reader: &mut dyn Read,
    bytes: u64,
    path: &Path,
    member: &str,
    broken: &dyn Fn(io::Error) -> FormatError,
) -> Result<NpyHeader, FormatError> {
    let fail = |fault| failure(path, Some(member), fault);
    let mut head = Vec::new();
    reader.take(PREFIX).read_to_end(&mut head).map_err(broken)?;
    let (begin, end) = header::extent(&head, bytes).map_err(fail)?;
    // The shortest header ends before the longest prefix does.
    let more = end.saturating_sub(head.len() as u64);
    let length = usize::try_from(begin).unwrap_or_default();
    let mut text = head.get(length..).unwrap_or_default().to_vec();
    reader.take(more).read_to_end(&mut text).map_err(broken)?;
    text.truncate(usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX));
    let header = NpyHeader::parse(&head, &text, end, bytes).map_err(fail)?;
    tell(&header, bytes, path, Some(member));
    Ok(header)
}

fn failure(path: &Path, member: Option<&str>, fault: HeaderFault) -> FormatError {
    let what = match member {
        Some(member) => format!("{member}: {}", fault.what),
        None => fault.what,
    };
    if fault.refused { FormatError::refused(path, what) } else { FormatError::damaged(path, what) }
}

/// Says what is allowed, but may surprise.
fn tell(header: &NpyHeader, bytes: u64, path: &Path, member: Option<&str>) {
    let behind = bytes.saturating_sub(header.data.saturating_add(header.data_bytes));
    let file = shown::path(path);
    if behind > 0 {
        tracing::warn!(%file, member, bytes = behind, "bytes behind the array are not read, as in NumPy");
    }
    if header.rows.is_none() {
        tracing::warn!(%file, member, "the array has no axis, so it has no records");
    }
}

/// Rows of one array, as a cursor reads them. Its buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct RowReader {
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// The rows that the buffer has, of an array in Fortran order.
    gathered: Range<u64>,
}

impl RowReader {
    /// A row's bytes: little-endian, in C order. The number is less than that of the rows.
    pub(crate) fn row<'a>(
        &'a mut self,
        header: &NpyHeader,
        source: &'a NpySource,
        row: u64,
    ) -> Result<Lent<'a>, FormatError> {
        let row_bytes = header.row_bytes() as u64;
        let begin = header.data.saturating_add(row.saturating_mul(row_bytes));
        let range = begin..begin.saturating_add(row_bytes);
        if header.fortran {
            return self.gathered(header, source, row);
        }
        if header.swaps.is_empty() {
            return source.lend(range, &mut self.buffer);
        }
        let stored = source.read(range, &mut self.scratch)?;
        self.buffer.clear();
        self.buffer.extend_from_slice(stored);
        form::swap(&mut self.buffer, header.element_bytes(), &header.swaps);
        Ok(Lent::Buffer(&self.buffer))
    }

    fn gathered<'a>(
        &'a mut self,
        header: &NpyHeader,
        source: &NpySource,
        row: u64,
    ) -> Result<Lent<'a>, FormatError> {
        if !self.gathered.contains(&row) {
            // Rows in order are gathered in blocks that grow; one that is jumped to, alone.
            let before = self.gathered.end.saturating_sub(self.gathered.start);
            let wanted = if row == self.gathered.end { before.saturating_mul(2).max(1) } else { 1 };
            let fit = GATHERED_BYTES.checked_div(header.row_bytes()).unwrap_or_default().max(1) as u64;
            let rows = header.rows.unwrap_or_default().saturating_sub(row).min(wanted.min(fit));
            self.gathered = 0..0;
            gather(header, source, row..row.saturating_add(rows), &mut self.buffer, &mut self.scratch)?;
            self.gathered = row..row.saturating_add(rows);
        }
        let index = usize::try_from(row.saturating_sub(self.gathered.start)).unwrap_or(usize::MAX);
        let begin = index.saturating_mul(header.row_bytes());
        let bytes = self.buffer.get(begin..begin.saturating_add(header.row_bytes()));
        Ok(Lent::Buffer(bytes.unwrap_or_default()))
    }
}

/// Copies rows of an array in Fortran order, in which each column of the first axis is one run.
fn gather(
    header: &NpyHeader,
    source: &NpySource,
    rows: Range<u64>,
    buffer: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let (element, row_bytes) = (header.element_bytes(), header.row_bytes());
    let stated = header.rows.unwrap_or_default();
    let count = usize::try_from(rows.end.saturating_sub(rows.start)).unwrap_or_default();
    buffer.clear();
    buffer.resize(row_bytes.saturating_mul(count), 0);
    for column in 0..header.row.elements().unwrap_or_default() {
        let first = fortran_index(column as u64, &header.row.shape).saturating_mul(stated);
        let byte = |row: u64| {
            let index = first.saturating_add(row);
            header.data.saturating_add(index.saturating_mul(element as u64))
        };
        let run = source.read(byte(rows.start)..byte(rows.end), scratch)?;
        let at = column.saturating_mul(element);
        for (row, item) in buffer.chunks_exact_mut(row_bytes).zip(run.chunks_exact(element)) {
            if let Some(place) = row.get_mut(at..at.saturating_add(element)) {
                place.copy_from_slice(item);
            }
        }
    }
    form::swap(buffer, element, &header.swaps);
    Ok(())
}

/// An element's position in Fortran order, by its position in C order.
fn fortran_index(mut position: u64, shape: &[u64]) -> u64 {
    let mut stride = shape.iter().fold(1_u64, |product, &extent| product.saturating_mul(extent));
    let mut index: u64 = 0;
    for &extent in shape.iter().rev() {
        let extent = extent.max(1);
        stride = stride.checked_div(extent).unwrap_or_default();
        let inside = position.checked_rem(extent).unwrap_or_default();
        index = index.saturating_add(inside.saturating_mul(stride));
        position = position.checked_div(extent).unwrap_or_default();
    }
    index
}

/// The array that bytes are, in the form that [`value`](super::value) has.
pub(super) fn value_of(bytes: &[u8]) -> Result<Value<'_>, crate::Fault> {
    let header = header::of_bytes(bytes)?;
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let data = index(header.data)..index(header.data.saturating_add(header.data_bytes));
    let data = bytes.get(data).unwrap_or_default();
    let mut whole = header.row.clone();
    if let Some(rows) = header.rows {
        whole.shape.insert(0, rows);
    }
    if !header.fortran && header.swaps.is_empty() {
        return whole.value(data);
    }
    let mut copy = data.to_vec();
    if header.fortran {
        let element = header.element_bytes().max(1);
        for (position, place) in (0..).zip(copy.chunks_exact_mut(element)) {
            let begin = index(fortran_index(position, &whole.shape)).saturating_mul(element);
            if let Some(item) = data.get(begin..begin.saturating_add(element)) {
                place.copy_from_slice(item);
            }
        }
    }
    form::swap(&mut copy, header.element_bytes(), &header.swaps);
    whole.value(&copy).map(Value::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_fortran_order_are_those_of_numpy() {
        // np.arange(24).reshape(2, 3, 4, order="F")[1, 2, 3] is 23, [0, 1, 0] is 2, [1, 0, 2] is 13.
        assert_eq!(fortran_index(23, &[2, 3, 4]), 23);
        assert_eq!(fortran_index(4, &[2, 3, 4]), 2);
        assert_eq!(fortran_index(14, &[2, 3, 4]), 13);
        assert_eq!(fortran_index(3, &[5]), 3);
        assert_eq!(fortran_index(0, &[]), 0);
    }
}
