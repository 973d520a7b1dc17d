//! Where the rows of a data set are, and what reads them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hdf5_pure::{Chunk, ChunkIndex, Dataset, Error, Layout};

use super::filters::{Filter, applied, undo};
use super::form::Form;
use super::source::{Bounds, guarded};
use crate::unpack::RECORD_MAX;
use crate::{DataFile, FormatError};

/// A stored byte stands for no more than this: the most that deflate unpacks one to.
const PACKED_MAX: u64 = 1032;

/// The chunks of one data set whose places are kept.
const CHUNKS_MAX: u64 = 4 << 20;

/// What is read at once of a data set that has nothing but its fill value.
const FILLED_BYTES: u64 = 1 << 20;

/// A data set whose first axis is the record.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) rows: u64,
    row_bytes: u64,
    place: Placed,
    /// For rows that have values which are not stored.
    dataset: Dataset,
    bounds: Arc<Bounds>,
}

/// Where a data set's bytes are.
#[derive(Debug)]
enum Placed {
    /// In what describes it.
    Inside(Vec<u8>),
    /// From a byte of the file on.
    Run(u64),
    /// Nowhere: all are the fill value.
    Unwritten,
    Chunked(Chunks),
}

#[derive(Debug)]
struct Chunks {
    /// The extents of a chunk, and those of the data set.
    shape: Vec<usize>,
    extents: Vec<u64>,
    /// The chunks on each axis.
    grid: Vec<u64>,
    /// Those that are stored, by their numbers in the grid.
    stored: Vec<StoredChunk>,
    filters: Vec<Filter>,
    bytes: usize,
    element_bytes: usize,
}

#[derive(Debug)]
struct StoredChunk {
    number: u64,
    address: u64,
    bytes: u64,
    mask: u32,
}

/// What a data set is looked at with.
#[derive(Debug)]
pub(super) struct Surveyor<'a> {
    pub(super) file: &'a DataFile,
    /// What is added to the crate's addresses.
    pub(super) shift: u64,
    pub(super) bounds: &'a Arc<Bounds>,
    /// The bytes of an address in the file.
    pub(super) offset_bytes: u8,
    pub(super) as_floats: bool,
}

impl Surveyor<'_> {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn failure(&self, part: &str, error: &Error) -> FormatError {
        self.bounds.failure(self.path(), part, error)
    }

    /// Looks at a data set: what it is, where its bytes are, and whether they can be.
    pub(super) fn column(&self, name: &str, dataset: Dataset) -> Result<Column, FormatError> {
        let failed = |error| self.failure(name, &error);
        let refused = |what: String| FormatError::refused(self.path(), format!("{name}: {what}"));
        let extents = dataset.shape().map_err(failed)?;
        let Some((&rows, row)) = extents.split_first() else {
            return Err(refused("it has no axis, so it has no records; name the parts that have".to_owned()));
        };
        let datatype = dataset.datatype().map_err(failed)?;
        let form = Form::of(&datatype, row, self.offset_bytes).map_err(refused)?;
        let form = if self.as_floats { form.into_floats().map_err(refused)? } else { form };

        let element = u64::from(datatype.type_size());
        let row_bytes = row.iter().try_fold(element, |product, &extent| product.checked_mul(extent));
        let row_bytes = row_bytes.filter(|bytes| *bytes <= RECORD_MAX as u64);
        let row_bytes = row_bytes.ok_or_else(|| {
            refused(format!("a row has {row:?} elements of {element} bytes, and up to {RECORD_MAX} are read"))
        })?;
        let total = rows.saturating_mul(row_bytes.max(1));
        let most = self.file.bytes().saturating_mul(PACKED_MAX);
        if total > most {
            return Err(refused(format!(
                "it is stated to have {rows} rows of {row_bytes} bytes, which a file of {} bytes cannot \
                 hold, even packed: it is damaged, or most of it was never written",
                self.file.bytes()
            )));
        }
        let place = self.placed(name, &dataset, &extents, [rows, row_bytes, element])?;
        let bounds = Arc::clone(self.bounds);
        Ok(Column { name: name.to_owned(), form, rows, row_bytes, place, dataset, bounds })
    }

    fn placed(
        &self,
        name: &str,
        dataset: &Dataset,
        extents: &[u64],
        [rows, row_bytes, element]: [u64; 3],
    ) -> Result<Placed, FormatError> {
        let failed = |error| self.failure(name, &error);
        let damaged = |what: String| FormatError::damaged(self.path(), format!("{name}: {what}"));
        let total = rows.saturating_mul(row_bytes);
        let check = |size: u64| match size == total {
            true => Ok(()),
            false => Err(damaged(format!("its shape needs {total} bytes, and {size} are stated"))),
        };
        match dataset.layout().map_err(failed)? {
            _ if total == 0 => Ok(Placed::Inside(Vec::new())),
            Layout::Compact { size } => {
                check(size)?;
                dataset.read_raw().map(Placed::Inside).map_err(failed)
            }
            Layout::Contiguous { address: None, .. } => {
                // It may as well be that the bytes are in other files, which is an error then.
                dataset.read_raw_rows(0, 0).map_err(failed)?;
                Ok(Placed::Unwritten)
            }
            Layout::Contiguous { address: Some(address), size } => {
                check(size)?;
                let address = address.saturating_add(self.shift);
                if address.saturating_add(size) > self.file.bytes() {
                    let what = format!(
                        "{size} bytes are stated to be here, and the file has {} in all: it is cut",
                        self.file.bytes()
                    );
                    return Err(damaged(what).byte(address));
                }
                Ok(Placed::Run(address))
            }
            Layout::Chunked { chunk_shape, index } => {
                let chunks = Chunks::new(self, name, &chunk_shape, extents, element, row_bytes)?;
                let stored = match index {
                    ChunkIndex::BTreeV2 => {
                        let what = format!(
                            "{name}: it can grow on several axes, and HDF5's newest index of that is not \
                             read; write it anew, with one axis that grows, or none"
                        );
                        return Err(FormatError::refused(self.path(), what));
                    }
                    _ => dataset.chunks().map_err(failed)?,
                };
                let filters = dataset.filter_pipeline();
                let filters = filters.iter().map(|filter| Filter::of(filter.id)).collect();
                chunks.with(self, name, filters, stored).map(Placed::Chunked)
            }
            Layout::Virtual => {
                let what = format!("{name}: it is virtual, made of other data sets: give their files");
                Err(FormatError::refused(self.path(), what))
            }
            _ => Err(FormatError::refused(self.path(), format!("{name}: its layout is not read"))),
        }
    }
}

impl Chunks {
    /// Chunks of these extents, of which none is known yet.
    fn new(
        surveyor: &Surveyor<'_>,
        name: &str,
        chunk_shape: &[u64],
        extents: &[u64],
        element: u64,
        row_bytes: u64,
    ) -> Result<Self, FormatError> {
        let path = surveyor.path();
        if chunk_shape.len() != extents.len() || chunk_shape.contains(&0) {
            let what = format!("{name}: chunks of {chunk_shape:?} are stated for the shape {extents:?}");
            return Err(FormatError::damaged(path, what));
        }
        let bytes = chunk_shape.iter().try_fold(element, |product, &extent| product.checked_mul(extent));
        let band = chunk_shape.first().zip(extents.first()).map(|(chunk, rows)| chunk.min(rows));
        let band = band.unwrap_or(&0).saturating_mul(row_bytes);
        let bytes = bytes.filter(|bytes| (*bytes).max(band) <= RECORD_MAX as u64);
        let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()) else {
            let what = format!(
                "{name}: a row is unpacked with all rows of its chunks, whose extents are {chunk_shape:?} in \
                 {extents:?}, and up to {RECORD_MAX} bytes are; write it anew in chunks of fewer rows"
            );
            return Err(FormatError::refused(path, what));
        };
        let grid: Vec<_> = extents.iter().zip(chunk_shape).map(|(all, chunk)| all.div_ceil(*chunk)).collect();
        let count = grid.iter().try_fold(1_u64, |product, &count| product.checked_mul(count));
        if count.is_none_or(|count| count > CHUNKS_MAX.min(surveyor.file.bytes())) {
            let what = format!(
                "{name}: chunks of {chunk_shape:?} are stated for the shape {extents:?}, and up to \
                 {CHUNKS_MAX} chunks are read, and no more than the file has bytes; write it anew in larger \
                 chunks"
            );
            return Err(FormatError::refused(path, what));
        }
        Ok(Chunks {
            shape: chunk_shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(usize::MAX)).collect(),
            extents: extents.to_vec(),
            grid,
            stored: Vec::new(),
            filters: Vec::new(),
            bytes,
            element_bytes: usize::try_from(element).unwrap_or(usize::MAX),
        })
    }

    /// With those that are stored, each of which is checked.
    fn with(
        mut self,
        surveyor: &Surveyor<'_>,
        name: &str,
        filters: Vec<Filter>,
        stored: Vec<Chunk>,
    ) -> Result<Self, FormatError> {
        self.filters = filters;
        for chunk in stored {
            let named = format!("{name}, chunk {}", Coordinates(&chunk.offset));
            let address = chunk.address.saturating_add(surveyor.shift);
            let damaged = |what: String| {
                FormatError::damaged(surveyor.path(), format!("{named}: {what}")).byte(address)
            };
            let (bytes, logical) = (chunk.storage_size, self.bytes as u64);
            if address.checked_add(bytes).is_none_or(|end| end > surveyor.file.bytes()) {
                let of_file = surveyor.file.bytes();
                return Err(damaged(format!("{bytes} bytes are stated, and the file has {of_file} in all")));
            }
            let filters: Vec<_> = applied(&self.filters, chunk.filter_mask).collect();
            if filters.is_empty() && bytes != logical {
                return Err(damaged(format!("it has {logical} bytes, and {bytes} are stated to be stored")));
            }
            if logical > bytes.saturating_mul(PACKED_MAX) {
                return Err(damaged(format!("{bytes} stored bytes cannot unpack to {logical}")));
            }
            if let Some(other) = filters.iter().find(|filter| matches!(filter, Filter::Other(_))) {
                let what = format!(
                    "{named}: it is packed with {}, and gzip, LZF, shuffle and Fletcher-32 are read; write \
                     it anew with gzip (h5repack -f GZIP=4)",
                    other.name()
                );
                return Err(FormatError::refused(surveyor.path(), what));
            }
            let number = self.number(&chunk.offset).ok_or_else(|| {
                damaged(format!("it lies in no chunk of {:?} of the shape {:?}", self.shape, self.extents))
            })?;
            self.stored.push(StoredChunk { number, address, bytes, mask: chunk.filter_mask });
        }
        self.stored.sort_unstable_by_key(|chunk| chunk.number);
        let twice = self.stored.windows(2).find_map(|pair| match pair {
            [one, two] if one.number == two.number => Some(two),
            _ => None,
        });
        match twice {
            Some(chunk) => {
                let what = format!("{name}: its index has the same chunk twice");
                Err(FormatError::damaged(surveyor.path(), what).byte(chunk.address))
            }
            None => Ok(self),
        }
    }

    /// The number of the chunk that begins at an element.
    fn number(&self, offset: &[u64]) -> Option<u64> {
        let axes = offset.iter().zip(&self.shape).zip(self.extents.iter().zip(&self.grid));
        let number = axes.map(|((&at, &chunk), (&extent, &count))| {
            let chunk = chunk as u64;
            let begins = at < extent && at.checked_rem(chunk) == Some(0);
            begins.then_some((at.checked_div(chunk)?, count))
        });
        let number = number.collect::<Option<Vec<_>>>()?;
        let number =
            number.iter().try_fold(0_u64, |sum, (at, count)| sum.checked_mul(*count)?.checked_add(*at));
        number.filter(|_| offset.len() == self.extents.len())
    }

    /// The first elements of a chunk.
    fn offset(&self, number: u64) -> Vec<u64> {
        let mut rest = number;
        let axes = self.grid.iter().zip(&self.shape).rev();
        let mut offset: Vec<_> = axes
            .map(|(&count, &chunk)| {
                let at = rest.checked_rem(count).unwrap_or_default();
                rest = rest.checked_div(count).unwrap_or_default();
                at.saturating_mul(chunk as u64)
            })
            .collect();
        offset.reverse();
        offset
    }

    /// The rows of the chunks that a row is in.
    fn band(&self, row: u64) -> Range<u64> {
        let step = self.shape.first().map_or(1, |rows| *rows as u64);
        let begin = row.checked_rem(step).map_or(row, |into| row.saturating_sub(into));
        begin..begin.saturating_add(step).min(self.extents.first().copied().unwrap_or_default())
    }

    /// The stored chunks of a band; `None` if the crate has to read it: a chunk is missing, or may be one
    /// that filters were not applied to because it leaves the shape, which only the crate sees.
    fn of_band(&self, band: &Range<u64>) -> Option<&[StoredChunk]> {
        let across = self.grid.iter().skip(1).product::<u64>();
        let step = self.shape.first().map_or(1, |rows| *rows as u64);
        let first = band.start.checked_div(step)?.checked_mul(across)?;
        let begin = self.stored.partition_point(|chunk| chunk.number < first);
        let end = self.stored.partition_point(|chunk| chunk.number < first.saturating_add(across));
        let chunks = self.stored.get(begin..end)?;
        let is_plain = |chunk: &StoredChunk| {
            chunk.bytes == self.bytes as u64
                && applied(&self.filters, chunk.mask).next().is_some()
                && self.leaves_shape(&self.offset(chunk.number))
        };
        (chunks.len() as u64 == across && !chunks.iter().any(is_plain)).then_some(chunks)
    }

    fn leaves_shape(&self, offset: &[u64]) -> bool {
        let mut axes = offset.iter().zip(&self.shape).zip(&self.extents);
        axes.any(|((at, chunk), extent)| at.saturating_add(*chunk as u64) > *extent)
    }
}

/// Coordinates, as messages have them: `(4, 0, 0)`.
struct Coordinates<'a>(&'a [u64]);

impl std::fmt::Display for Coordinates<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u64::to_string).collect();
        write!(f, "({})", numbers.join(", "))
    }
}

/// Rows of one data set, as a cursor reads them. Its buffers are reused.
#[derive(Debug, Default)]
pub(super) struct RowReader {
    /// The rows that `bytes` has.
    band: Range<u64>,
    bytes: Vec<u8>,
    stored: Vec<u8>,
}

impl RowReader {
    /// A row's bytes, as they are stored. The number is less than that of the rows.
    pub(super) fn row<'a>(
        &'a mut self,
        column: &'a Column,
        file: &'a DataFile,
        row: u64,
    ) -> Result<&'a [u8], FormatError> {
        let length = column.row_bytes;
        if length == 0 {
            return Ok(&[]);
        }
        let at = |row: u64| row.saturating_mul(length);
        match &column.place {
            Placed::Inside(bytes) => slice(bytes, at(row), length, file.path()),
            Placed::Run(address) => {
                let begin = address.saturating_add(at(row));
                file.read(begin..begin.saturating_add(length), &mut self.stored)
            }
            Placed::Unwritten | Placed::Chunked(_) => {
                if !self.band.contains(&row) {
                    self.fill(column, file, row)?;
                }
                slice(&self.bytes, at(row.saturating_sub(self.band.start)), length, file.path())
            }
        }
    }

    fn fill(&mut self, column: &Column, file: &DataFile, row: u64) -> Result<(), FormatError> {
        self.band = 0..0;
        let band = match &column.place {
            Placed::Chunked(chunks) => chunks.band(row),
            _ => {
                let rows = FILLED_BYTES.checked_div(column.row_bytes).unwrap_or_default().max(1);
                row..row.saturating_add(rows).min(column.rows)
            }
        };
        match &column.place {
            Placed::Chunked(chunks) if let Some(stored) = chunks.of_band(&band) => {
                self.unpack(column, file, chunks, stored, &band)?;
            }
            _ => {
                let rows = band.end.saturating_sub(band.start);
                let read = guarded(file.path(), || {
                    let read = column.dataset.read_raw_rows(band.start, rows);
                    read.map_err(|error| column.bounds.failure(file.path(), &column.name, &error))
                });
                self.bytes = read?;
            }
        }
        self.band = band;
        Ok(())
    }

    fn unpack(
        &mut self,
        column: &Column,
        file: &DataFile,
        chunks: &Chunks,
        stored: &[StoredChunk],
        band: &Range<u64>,
    ) -> Result<(), FormatError> {
        let rows = band.end.saturating_sub(band.start);
        let bytes = usize::try_from(rows.saturating_mul(column.row_bytes)).unwrap_or(usize::MAX);
        self.bytes.clear();
        self.bytes.resize(bytes, 0);
        let extents = [rows].into_iter().chain(chunks.extents.iter().skip(1).copied());
        let extents: Vec<_> = extents.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX)).collect();
        for chunk in stored {
            let offset = chunks.offset(chunk.number);
            let damaged = |what: String| {
                let what = format!("{}, chunk {}: {what}", column.name, Coordinates(&offset));
                FormatError::damaged(file.path(), what).byte(chunk.address)
            };
            let range = chunk.address..chunk.address.saturating_add(chunk.bytes);
            let bytes = file.read(range, &mut self.stored)?;
            let undone;
            let bytes = match applied(&chunks.filters, chunk.mask).next() {
                None => bytes,
                Some(_) => {
                    let filters = applied(&chunks.filters, chunk.mask);
                    undone = undo(filters, bytes, chunks.element_bytes, chunks.bytes).map_err(damaged)?;
                    &undone
                }
            };
            let at = [0].into_iter().chain(offset.iter().skip(1).copied());
            let at: Vec<_> = at.map(|at| usize::try_from(at).unwrap_or(usize::MAX)).collect();
            let axes = Axes { chunk: &chunks.shape, whole: &extents, at: &at };
            place(bytes, &mut self.bytes, axes, chunks.element_bytes)
                .ok_or_else(|| damaged("it does not lie in the shape".to_owned()))?;
        }
        Ok(())
    }
}

/// What is left of the axes of a chunk and of the rows that it goes to.
#[derive(Clone, Copy, Debug)]
struct Axes<'a> {
    chunk: &'a [usize],
    whole: &'a [usize],
    /// Where the chunk begins.
    at: &'a [usize],
}

/// Copies the part of a chunk that lies in the rows.
fn place(chunk: &[u8], whole: &mut [u8], axes: Axes<'_>, element_bytes: usize) -> Option<()> {
    let ([of_chunk, chunk_axes @ ..], [of_whole, whole_axes @ ..], [at, at_axes @ ..]) =
        (axes.chunk, axes.whole, axes.at)
    else {
        return None;
    };
    let bytes =
        |axes: &[usize]| axes.iter().try_fold(element_bytes, |product, &extent| product.checked_mul(extent));
    let (chunk_step, whole_step) = (bytes(chunk_axes)?, bytes(whole_axes)?);
    let count = of_whole.checked_sub(*at)?.min(*of_chunk);
    let whole = whole.get_mut(at.checked_mul(whole_step)?..)?;
    // All that is within is of one length, so it lies in one run.
    if chunk_axes == whole_axes {
        let length = count.checked_mul(chunk_step)?;
        whole.get_mut(..length)?.copy_from_slice(chunk.get(..length)?);
        return Some(());
    }
    let axes = Axes { chunk: chunk_axes, whole: whole_axes, at: at_axes };
    let mut pairs = chunk.chunks_exact(chunk_step).zip(whole.chunks_exact_mut(whole_step)).take(count);
    pairs.try_for_each(|(chunk, whole)| place(chunk, whole, axes, element_bytes))
}

fn slice<'a>(bytes: &'a [u8], at: u64, length: u64, path: &Path) -> Result<&'a [u8], FormatError> {
    let begin = usize::try_from(at).ok();
    let end = begin.zip(usize::try_from(length).ok()).and_then(|(begin, length)| begin.checked_add(length));
    let found = begin.zip(end).and_then(|(begin, end)| bytes.get(begin..end));
    found.ok_or_else(|| FormatError::damaged(path, "a row is missing: the file has changed"))
}
