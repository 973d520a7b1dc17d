//! The index of a checkpoint: a sorted table with an entry for each tensor.
//!
//! ```text
//! ""                    header: data files, byte order, version
//! 00 name axes ...      a slice of a variable: the same as for a tensor (the key is ordered code)
//! name                  a tensor: type, shape, data file, offset, bytes, checksum
//! name                  a variable in slices: type, shape, and which slices
//! ```
//!
//! The index is read whole, and is then consistent: every checksum of its blocks was verified, each entry has
//! as many bytes as its type and shape take, and slices make up their variables. (If they do not, the fault
//! is kept: one part of a checkpoint that several machines save has only some slices.) An unknown type is
//! refused for the whole index, because no tensor here could have it. Whether the data files have these bytes
//! is checked when they are used.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use percolator_leveldb::table::{TableCursor, TableError, Verify};
use prost::Message as _;

use super::error::CheckpointError;
use super::header::Header;
use super::slices::{self, Extent};
use super::strings::CHECKSUM_BYTES;
use crate::DataType;
use crate::proto::tensor_shape_proto::Dim;
use crate::proto::{BundleEntryProto, TensorShapeProto, TensorSliceProto, tensor_slice_proto};
use crate::tensor::{AXES_MAX, elements};

/// An index stores of a key only what differs from the key before it, so a few bytes can stand for a long
/// name. The names take at most this many times the bytes of the index. TensorFlow repeats a name in full
/// after sixteen entries, so its own take 16 times as many at most; other writers may repeat it more seldom.
const NAMES_PER_BYTE: usize = 64;
/// Two bytes of an entry, which may be compressed, can state a slice of many bytes of memory. All slices take
/// at most this many times the bytes of the index. Those that were saved have an entry each, and take some
/// three times as many.
const SLICES_PER_BYTE: usize = 64;

/// How many comparisons are made of the ranges of slices, for each byte of the index. An entry of a slice and
/// its part of the variable's entry take some 60 bytes: so several thousand slices may all be compared with
/// one another, and millions if they are cut along one axis or on a grid.
const COMPARISONS_PER_BYTE: usize = 64;

/// Where the bytes of a tensor, or of a slice of one, are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the data file.
    pub shard: u32,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// Their masked crc32c, as the index states it.
    pub crc32c: u32,
}

/// A slice of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What it has of each axis, as it was saved: the whole, or these places.
    pub extents: Vec<Extent>,
    /// Where it is.
    pub place: Place,
}

impl Slice {
    /// Returns which elements are in it, a range for each axis. `shape` is that of the whole tensor.
    #[must_use]
    pub fn region(&self, shape: &[usize]) -> Vec<Range<usize>> {
        slices::region(&self.extents, shape)
    }
}

/// What the index says of a tensor.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    /// Its name, the key of its entry.
    pub name: &'a str,
    /// The type of its elements.
    pub data_type: DataType,
    /// Its extents, the outermost first; none for a scalar.
    pub shape: &'a [usize],
    /// The bytes that it takes in the data files. Strings take more than their own bytes.
    pub bytes: u64,
    /// Whether it can be read: `false` if its slices do not make it up, so that reading it is an error.
    pub is_complete: bool,
    /// Where it is; `None` if it was saved in slices.
    pub place: Option<Place>,
    /// The slices that it was saved in; none if it was saved whole.
    pub slices: &'a [Slice],
}

/// The entries of an index.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) header: Header,
    /// All names, one after the other.
    names: String,
    /// Where in `names` each starts, and where the last ends: apart from the entries, because a search reads
    /// little else.
    name_bounds: Vec<usize>,
    /// In the order of their names.
    entries: Vec<Entry>,
    /// All extents, one after the other.
    extents: Vec<usize>,
    pub(super) slices: Vec<Slice>,
    /// Variables in slices, by the numbers of their entries, ascending.
    sliced: Vec<Sliced>,
}

/// A variable in slices.
#[derive(Debug)]
struct Sliced {
    /// The number of its entry.
    number: usize,
    /// Where in `slices` its slices are: those that were found, if some are missing.
    slices: Range<usize>,
    /// Why they do not make it up.
    fault: Option<String>,
}

/// What is kept of an entry: little, since each page that is touched first costs as much as many entries.
#[derive(Debug)]
struct Entry {
    /// If it is in slices, only the bytes count.
    place: Place,
    /// Where in `extents` its shape ends.
    shape_end: u32,
    data_type: DataType,
    is_sliced: bool,
}

impl Index {
    /// Reads the bytes of an index. `path` is for messages.
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let table = |error: TableError| CheckpointError::Table { index: path.to_owned(), error };
        let (header, mut cursor) = read_header(path, bytes)?;
        let mut reader = Reader::new(path, header, bytes.len());
        while cursor.advance().map_err(table)? {
            reader.add(cursor.key(), cursor.value_bytes())?;
        }
        reader.end()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry of this number.
    pub(super) fn get(&self, number: usize) -> Option<TensorInfo<'_>> {
        let entry = self.entries.get(number)?;
        let before = number.checked_sub(1).and_then(|before| self.entries.get(before));
        let shape_start = before.map_or(0, |before| as_index(before.shape_end));
        let slices = self.slices.get(self.slices_of(number))?;
        Some(TensorInfo {
            name: self.name(number),
            data_type: entry.data_type,
            shape: self.extents.get(shape_start..as_index(entry.shape_end))?,
            bytes: entry.place.bytes,
            is_complete: self.fault(number).is_none(),
            place: (!entry.is_sliced).then_some(entry.place),
            slices,
        })
    }

    /// Returns the name of an entry.
    #[inline]
    pub(super) fn name(&self, number: usize) -> &str {
        let bounds = self.name_bounds.get(number..).unwrap_or_default();
        let name = if let [start, end, ..] = *bounds { self.names.get(start..end) } else { None };
        name.unwrap_or_default()
    }

    /// Where in `slices` the slices of an entry are.
    pub(super) fn slices_of(&self, number: usize) -> Range<usize> {
        self.sliced_of(number).map_or(0..0, |sliced| sliced.slices.clone())
    }

    /// Why the slices of an entry do not make it up.
    pub(super) fn fault(&self, number: usize) -> Option<&str> {
        self.sliced_of(number)?.fault.as_deref()
    }

    fn sliced_of(&self, number: usize) -> Option<&Sliced> {
        if !self.entries.get(number)?.is_sliced {
            return None;
        }
        let place = self.sliced.binary_search_by_key(&number, |sliced| sliced.number).ok()?;
        self.sliced.get(place)
    }

    /// Finds a name by binary search.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Less => low = middle.saturating_add(1),
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The data files that tensors are in.
    pub(super) fn shards(&self) -> BTreeSet<u32> {
        let whole = self.entries.iter().filter(|entry| !entry.is_sliced).map(|entry| entry.place.shard);
        whole.chain(self.slices.iter().map(|slice| slice.place.shard)).collect()
    }
}

/// Reads the header of an index; returns the cursor that is there.
pub(super) fn read_header<'i>(
    path: &Path,
    bytes: &'i [u8],
) -> Result<(Header, TableCursor<&'i [u8]>), CheckpointError> {
    let table = |error: TableError| CheckpointError::Table { index: path.to_owned(), error };
    // A key is no longer than its block: that bounds it.
    let mut cursor = TableCursor::new(usize::MAX);
    cursor.open(bytes, Verify::AtOnce).map_err(table)?;
    if !cursor.advance().map_err(table)? || !cursor.key().is_empty() {
        let message = "this is a sorted table, but not the index of a checkpoint: it has no header";
        return Err(CheckpointError::Index { index: path.to_owned(), message: message.to_owned() });
    }
    Ok((Header::read(path, cursor.value_bytes())?, cursor))
}

fn as_index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// An index that is being read.
struct Reader<'a> {
    path: &'a Path,
    index: Index,
    /// The entry that was read last.
    raw: BundleEntryProto,
    /// Its shape.
    shape: Vec<usize>,
    /// The key that was read last.
    last: Vec<u8>,
    /// How many bytes more all keys may have.
    key_bytes_left: usize,
    /// How many bytes more of memory all slices may take.
    slice_bytes_left: usize,
    /// How many comparisons of slices are left.
    comparisons_left: usize,
    /// The entries of slices, in the order of their keys.
    slices: Vec<SliceEntry>,
    /// Variables in slices, by the numbers of their entries, and their slices.
    sliced: Vec<(usize, Vec<TensorSliceProto>)>,
}

struct SliceEntry {
    key: Vec<u8>,
    data_type: DataType,
    shape: Vec<usize>,
    place: Place,
    is_used: bool,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, header: Header, index_bytes: usize) -> Self {
        /// An entry seldom takes fewer.
        const ENTRY_BYTES_MIN: usize = 32;
        // Unused capacity costs no pages.
        let (names, entries) = (index_bytes, index_bytes / ENTRY_BYTES_MIN);
        let mut name_bounds = Vec::with_capacity(entries);
        name_bounds.push(0);
        let index = Index {
            header,
            names: String::with_capacity(names),
            name_bounds,
            entries: Vec::with_capacity(entries),
            extents: Vec::with_capacity(entries),
            slices: Vec::new(),
            sliced: Vec::new(),
        };
        Reader {
            path,
            index,
            raw: BundleEntryProto::default(),
            shape: Vec::new(),
            last: Vec::new(),
            key_bytes_left: index_bytes.saturating_mul(NAMES_PER_BYTE),
            slice_bytes_left: index_bytes.saturating_mul(SLICES_PER_BYTE),
            comparisons_left: index_bytes.saturating_mul(COMPARISONS_PER_BYTE),
            slices: Vec::new(),
            sliced: Vec::new(),
        }
    }

    fn error(&self, key: &[u8], message: impl Into<String>) -> CheckpointError {
        let (index, tensor) = (self.path.to_owned(), String::from_utf8_lossy(key).into_owned());
        CheckpointError::Entry { index, tensor, message: message.into() }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), CheckpointError> {
        if key <= &self.last[..] {
            return Err(self.error(key, "it comes after an entry whose key is not before its own"));
        }
        self.key_bytes_left = self.key_bytes_left.checked_sub(key.len()).ok_or_else(|| {
            self.error(key, format!("the names have more than {NAMES_PER_BYTE} times the bytes of the index"))
        })?;
        self.last.clear();
        self.last.extend_from_slice(key);
        // No slice has more axes than a tensor.
        let entry = BundleEntryProto::decode(value).ok();
        let entry = entry.filter(|entry| entry.slices.iter().all(|slice| slice.extent.len() <= AXES_MAX));
        self.raw = entry
            .ok_or_else(|| self.error(key, "it is malformed: no message of the kind that an index has"))?;
        self.slice_bytes_left = left_beside(&self.raw.slices, self.slice_bytes_left).ok_or_else(|| {
            self.error(
                key,
                format!("the slices take more than {SLICES_PER_BYTE} times the bytes of the index"),
            )
        })?;
        if key.first() == Some(&0) && slices::name_of_key(key).is_some() {
            return self.add_slice(key);
        }
        self.add_tensor(key)
    }

    /// Adds the entry just read, which is that of a tensor.
    fn add_tensor(&mut self, key: &[u8]) -> Result<(), CheckpointError> {
        let Ok(name) = str::from_utf8(key) else {
            return Err(self.error(key, "its name is not UTF-8: rename the tensor and save it again"));
        };
        let data_type = self.data_type(key)?;
        self.read_shape(key)?;
        // A slice that is the whole has no entry of its own.
        let is_whole = matches!(&self.raw.slices[..], [] | [_])
            && self.raw.slices.iter().all(|slice| slices::is_whole(&slice.extent));
        let place = if is_whole {
            self.place(key, data_type)?
        } else {
            self.sliced.push((self.index.entries.len(), std::mem::take(&mut self.raw.slices)));
            Place { shard: 0, offset: 0, bytes: 0, crc32c: 0 }
        };
        self.index.names.push_str(name);
        self.index.extents.extend_from_slice(&self.shape);
        self.index.name_bounds.push(self.index.names.len());
        let shape_end = u32::try_from(self.index.extents.len())
            .map_err(|_| self.error(key, "the shapes up to here have more than 4 billion axes"))?;
        self.index.entries.push(Entry { place, shape_end, data_type, is_sliced: !is_whole });
        Ok(())
    }

    /// Adds the entry just read, which is that of a slice.
    fn add_slice(&mut self, key: &[u8]) -> Result<(), CheckpointError> {
        let data_type = self.data_type(key)?;
        self.read_shape(key)?;
        if !self.raw.slices.is_empty() {
            return Err(self.error(key, "it is of a slice, and has slices of its own"));
        }
        let place = self.place(key, data_type)?;
        let (key, shape) = (key.to_owned(), self.shape.clone());
        self.slices.push(SliceEntry { key, data_type, shape, place, is_used: false });
        Ok(())
    }

    fn data_type(&self, key: &[u8]) -> Result<DataType, CheckpointError> {
        match DataType::from_proto(self.raw.dtype) {
            Some(DataType::Resource) => {
                Err(self.error(key, "its type is resource, and no file can hold one"))
            }
            Some(data_type) => Ok(data_type),
            None => {
                let found = self.raw.dtype;
                Err(self.error(key, format!("its type has the number {found}, which no known type has")))
            }
        }
    }

    fn read_shape(&mut self, key: &[u8]) -> Result<(), CheckpointError> {
        let TensorShapeProto { dim, unknown_rank } = self.raw.shape.take().unwrap_or_default();
        if unknown_rank {
            return Err(self.error(key, "its shape is not known, and a stored tensor has one"));
        }
        if dim.len() > AXES_MAX {
            let message = format!("it has {} axes, and at most {AXES_MAX} are allowed", dim.len());
            return Err(self.error(key, message));
        }
        self.shape.clear();
        for Dim { size, .. } in &dim {
            let Ok(extent) = usize::try_from(*size) else {
                let dims: Vec<_> = dim.iter().map(|dim| dim.size).collect();
                return Err(self.error(key, format!("its shape is {dims:?}, and {size} is no extent")));
            };
            self.shape.push(extent);
        }
        Ok(())
    }

    /// Returns where the tensor or slice just read is, once that fits its type and shape.
    fn place(&self, key: &[u8], data_type: DataType) -> Result<Place, CheckpointError> {
        let BundleEntryProto { shard_id: shard, offset, size: bytes, crc32c, .. } = self.raw;
        let shards = self.index.header.shards;
        let Some(shard) = u32::try_from(shard).ok().filter(|&shard| shard < shards) else {
            let message = format!("it is in data file {shard}, and the checkpoint has {shards}, from 0 on");
            return Err(self.error(key, message));
        };
        let (Ok(offset), Ok(bytes)) = (u64::try_from(offset), u64::try_from(bytes)) else {
            let message = format!("it states {bytes} bytes from byte {offset} on: neither may be negative");
            return Err(self.error(key, message));
        };
        let count = elements(&self.shape);
        let due = count.and_then(|count| stored_bytes(data_type, count));
        if due.as_ref().is_some_and(|due| due.contains(&bytes)) {
            return Ok(Place { shard, offset, bytes, crc32c });
        }
        let shape = &self.shape;
        let due = match due {
            None => "more than there can be".to_owned(),
            Some(due) if due.start() == due.end() => due.start().to_string(),
            Some(due) => format!("at least {}", due.start()),
        };
        Err(self
            .error(key, format!("it states {bytes} bytes, and {data_type} of shape {shape:?} takes {due}")))
    }

    /// Finds the slices of all variables, and whether they make them up.
    fn end(mut self) -> Result<Index, CheckpointError> {
        for (number, slices) in std::mem::take(&mut self.sliced) {
            let name = self.index.name(number).to_owned();
            let start = self.index.slices.len();
            let fault = self.find_slices(number, &name, &slices).err();
            let slices = start..self.index.slices.len();
            let found = self.index.slices.get(slices.clone()).unwrap_or_default();
            let bytes = found.iter().fold(0, |sum: u64, slice| sum.saturating_add(slice.place.bytes));
            if let Some(entry) = self.index.entries.get_mut(number) {
                entry.place.bytes = bytes;
            }
            self.index.sliced.push(Sliced { number, slices, fault });
        }
        for SliceEntry { key, .. } in self.slices.iter().filter(|slice| !slice.is_used) {
            let name = slices::name_of_key(key).unwrap_or_default();
            let number = str::from_utf8(&name).ok().and_then(|name| self.index.find(name));
            // The search for the slices of a variable ends at the first fault.
            if number.is_none_or(|number| self.index.fault(number).is_none()) {
                let message = "there is an entry for a slice of it that its own entry does not name";
                return Err(self.error(&name, message));
            }
        }
        Ok(self.index)
    }

    /// Finds the slices of a variable. Those up to the first fault are kept.
    fn find_slices(&mut self, number: usize, name: &str, slices: &[TensorSliceProto]) -> Result<(), String> {
        let Some(TensorInfo { data_type, shape, .. }) = self.index.get(number) else { return Ok(()) };
        let (shape, start) = (shape.to_owned(), self.index.slices.len());
        for TensorSliceProto { extent } in slices {
            let extents = slices::extents(extent, &shape)?;
            let region = slices::region(&extents, &shape);
            let key = slices::key(name, extent);
            let place = self.slices.binary_search_by(|entry| entry.key.cmp(&key));
            let Some(entry) = place.ok().and_then(|place| self.slices.get_mut(place)) else {
                return Err(format!("its slice {region:?} has no entry"));
            };
            let lengths = slices::lengths(&region);
            if (entry.data_type, &entry.shape) != (data_type, &lengths) {
                let SliceEntry { data_type: other, shape, .. } = entry;
                return Err(format!(
                    "its slice {region:?} is {data_type} of shape {lengths:?}, and the slice's own entry \
                     says {other} of shape {shape:?}"
                ));
            }
            // Each time costs as much as its key has bytes, and names it in a few.
            if std::mem::replace(&mut entry.is_used, true) {
                return Err(format!("its slice {region:?} is named twice"));
            }
            self.index.slices.push(Slice { extents, place: entry.place });
        }
        let found = self.index.slices.get(start..).unwrap_or_default();
        let regions: Vec<_> = found.iter().map(|slice| slice.region(&shape)).collect();
        let regions: Vec<_> = regions.iter().map(|region| &region[..]).collect();
        slices::check_tiling(&shape, &regions, &mut self.comparisons_left)
    }
}

/// Returns what is left of so many bytes of memory beside the slices of an entry; `None` if these take more.
fn left_beside(slices: &[TensorSliceProto], bytes: usize) -> Option<usize> {
    let taken = slices.iter().map(|slice| {
        let extents = slice.extent.len().saturating_mul(size_of::<tensor_slice_proto::Extent>());
        extents.saturating_add(size_of::<TensorSliceProto>())
    });
    bytes.checked_sub(taken.fold(0, usize::saturating_add))
}

/// Returns how many bytes elements may take in a data file.
fn stored_bytes(data_type: DataType, count: usize) -> Option<std::ops::RangeInclusive<u64>> {
    /// A length of one byte, and the checksum.
    const VARIANT_BYTES_MIN: usize = 1 + CHECKSUM_BYTES;
    let bytes = |bytes: usize| u64::try_from(bytes).ok();
    match (data_type, data_type.size()) {
        (_, Some(size)) => count.checked_mul(size).and_then(bytes).map(|bytes| bytes..=bytes),
        (DataType::Variant, None) if count == 0 => Some(0..=0),
        (DataType::Variant, None) => {
            Some(count.checked_mul(VARIANT_BYTES_MIN).and_then(bytes)?..=i64::MAX.cast_unsigned())
        }
        // TensorFlow reads nothing where nothing is.
        (_, None) if count == 0 => Some(0..=CHECKSUM_BYTES as u64),
        (_, None) => Some(count.checked_add(CHECKSUM_BYTES).and_then(bytes)?..=i64::MAX.cast_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_take_as_much_memory_as_is_left() {
        let slice = |axes| TensorSliceProto { extent: vec![tensor_slice_proto::Extent::default(); axes] };
        let slices = [slice(1), slice(0)];
        assert_eq!(left_beside(&slices, 73), Some(1));
        assert_eq!(left_beside(&slices, 72), Some(0));
        assert_eq!(left_beside(&slices, 71), None);
        assert_eq!(left_beside(&[], 0), Some(0));
    }
}
