//! HDF5 files whose data sets share their first axis, which is the record.
//!
//! A data set is a part, by its path in the file: `image`, `train/label`. Of data sets that differ on the
//! first axis, those that belong together are to be [named](Options::parts). Rows are read as they are
//! wanted: one from a run of bytes, and those of a chunk together. Values of variable length are lists,
//! texts, or bytes.
//!
//! What describes the data sets, the crate `hdf5-pure` reads, and rows that have values which were never
//! written; chunks and values are read here. Gzip, LZF, shuffle and Fletcher-32 are undone.
//!
//! ```text
//! source     what the crate reads, within bounds -> newer
//! storage    where rows are, and what reads them -> filters
//! form       values of a row's bytes -> heap
//! ```

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod filters;
mod form;
mod heap;
mod newer;
mod source;
mod storage;

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdf5_pure::{ChunkCacheConfig, Dataset, File, FileAccessProperties, Group};
use percolator_files::{Access, input_file};

use self::heap::{Heap, HeapReader};
use self::source::{Bounds, FileSource, guarded};
use self::storage::{Column, RowReader, Surveyor};
use crate::data_set::HEAD_BYTES;
use crate::fields::has_twice;
use crate::known_settings::KnownSettings;
use crate::npy::check_row;
use crate::packed::{self, PackedGrammar};
use crate::{Cursor, DataFile, FormatError, Grammar, Key, Lent, Options, Place, Record, Seeks, Shard};

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// Groups in groups, so deep. A group that is in itself has no end.
const DEPTH_MAX: usize = 32;

/// More data sets than any file of training data has.
const DATA_SETS_MAX: usize = 1 << 16;

/// Tells an HDF5 file by its signature, which may stand behind a block of the user's, at byte 512, 1024, 2048
/// and so on.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    if head.starts_with(SIGNATURE) {
        return true;
    }
    // The first member of a tar begins at byte 512, too.
    head.len() as u64 == HEAD_BYTES && !crate::tar::is(path, head) && has_signature(path)
}

fn has_signature(path: &Path) -> bool {
    let Ok((file, bytes)) = input_file::open(path) else { return false };
    user_blocks(bytes).any(|at| {
        let mut found = [0; 8];
        file.read_exact_at(&mut found, at).is_ok_and(|()| found == *SIGNATURE)
    })
}

/// Where the signature may stand, behind a block of the user's.
fn user_blocks(bytes: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(512_u64), |at| at.checked_mul(2))
        .take_while(move |at| at.saturating_add(8) <= bytes)
}

/// Opens the data sets as one shard. It has no settings; [`Options::parts`] names those that are wanted.
///
/// # Errors
///
/// [`FormatError::Damaged`] if the file is no HDF5 file, is cut, or a data set's description is damaged;
/// [`FormatError::Refused`] if the first axes differ, or a data set has a type, a filter or a layout that is
/// not read.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "hdf5", options, &[])?;
    let choose = |names: &[String]| {
        // To count records, no part is wanted.
        let wants_none = options.parts.as_ref().is_some_and(Vec::is_empty);
        let chosen = (0_usize..).zip(names).filter(|(_, name)| wants_none || options.wants(name));
        let chosen: Vec<_> = chosen.map(|(index, _)| index).collect();
        match chosen.is_empty() {
            true => Err(FormatError::refused(path, none_of(names))),
            false => Ok(chosen),
        }
    };
    let shard = Hdf5Shard::open(path, options.access, &choose, false)?;
    Ok(vec![Arc::new(shard)])
}

/// Says that what is wanted is none of these data sets.
pub(crate) fn none_of(names: &[String]) -> String {
    match names {
        [] => "there is no data set in the file".to_owned(),
        names => format!("none of its data sets is wanted; it has {}", names.join(", ")),
    }
}

/// Chooses among the names of data sets, which are in their order.
pub(crate) type Choose<'a> = &'a (dyn Fn(&[String]) -> Result<Vec<usize>, FormatError> + Sync);

/// Data sets with equal first axes.
#[derive(Debug)]
pub(crate) struct Hdf5Shard {
    path: PathBuf,
    file: Arc<DataFile>,
    columns: Vec<Column>,
    rows: u64,
    /// Where addresses begin, for values of variable length.
    base: u64,
    grammar: Arc<PackedGrammar>,
}

impl Hdf5Shard {
    /// Opens the chosen data sets of a file, in the order in which they are chosen. With `as_floats`, numbers
    /// become F32, and nothing else is read.
    ///
    /// # Errors
    ///
    /// As [`open`].
    pub(crate) fn open(
        path: &Path,
        access: Access,
        choose: Choose<'_>,
        as_floats: bool,
    ) -> Result<Self, FormatError> {
        let file = Arc::new(DataFile::open(path, access)?);
        let signature = signature_of(&file)?;
        guarded(path, || {
            let bounds = Bounds::of(&file);
            let found = Found::of(&file, signature, &bounds)?;
            let shard = found.shard(path, &file, &bounds, choose, as_floats)?;
            bounds.lift();
            Ok(shard)
        })
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
}

/// Where the signature stands.
fn signature_of(file: &DataFile) -> Result<u64, FormatError> {
    let mut buffer = Vec::new();
    let places = [0].into_iter().filter(|_| file.bytes() >= 8).chain(user_blocks(file.bytes()));
    for at in places {
        if file.read(at..at.saturating_add(8), &mut buffer)? == SIGNATURE {
            return Ok(at);
        }
    }
    let what = "it is no HDF5 file: the signature \\x89HDF\\r\\n\\x1a\\n is at none of its places";
    Err(FormatError::damaged(file.path(), what))
}

/// An open file, and what is in it.
struct Found {
    /// What is added to the crate's addresses.
    shift: u64,
    /// Where the file's own addresses begin.
    base: u64,
    offset_bytes: u8,
    data_sets: Vec<(String, Dataset)>,
}

impl Found {
    fn of(file: &Arc<DataFile>, signature: u64, bounds: &Arc<Bounds>) -> Result<Self, FormatError> {
        let path = file.path();
        let open = |shift| {
            let source = FileSource::new(file, shift, bounds);
            // Rows are kept here, and indexes.
            let cache = ChunkCacheConfig::disabled().with_index_cache(true);
            let properties = FileAccessProperties::new().with_chunk_cache(cache);
            let opened = File::from_source_with_options(source, properties);
            opened.map_err(|error| bounds.failure(path, "", &error))
        };
        let mut opened = open(0)?;
        // A block that was put before a file moves all of it, and its addresses say nothing of that.
        let stated = opened.superblock().base_address.get();
        let shift = signature.checked_sub(stated).ok_or_else(|| {
            let what = format!("its addresses are stated to begin at byte {stated}, behind its signature");
            FormatError::damaged(path, what).byte(signature)
        })?;
        if shift > 0 {
            opened = open(shift)?;
        }
        let superblock = opened.superblock();
        let end = superblock.eof_address.saturating_add(shift);
        if end > file.bytes() {
            let what = format!(
                "it is stated to end at byte {end}, and has {} bytes: it is cut; copy it again from where it \
                 came",
                file.bytes()
            );
            return Err(FormatError::damaged(path, what));
        }
        let mut found =
            Found { shift, base: signature, offset_bytes: superblock.offset_size, data_sets: Vec::new() };
        found.walk(path, bounds, &opened.root(), "", 0)?;
        found.data_sets.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut names = found.data_sets.iter().map(|(name, _)| &**name);
        if has_twice(names.clone()) || names.any(|name| name.is_empty() || name.ends_with('/')) {
            return Err(FormatError::damaged(path, "two of its data sets have one name, or one has none"));
        }
        Ok(found)
    }

    fn walk(
        &mut self,
        path: &Path,
        bounds: &Bounds,
        group: &Group,
        prefix: &str,
        depth: usize,
    ) -> Result<(), FormatError> {
        let failed = |error| bounds.failure(path, prefix.trim_end_matches('/'), &error);
        if depth > DEPTH_MAX {
            let what = format!("groups nest deeper than {DEPTH_MAX} levels, or a group is in itself");
            return Err(FormatError::refused(path, what));
        }
        for (name, data_set) in group.iter_datasets().map_err(failed)? {
            self.data_sets.push((format!("{prefix}{name}"), data_set));
        }
        if self.data_sets.len() > DATA_SETS_MAX {
            return Err(FormatError::refused(path, format!("it has more than {DATA_SETS_MAX} data sets")));
        }
        for (name, inner) in group.iter_groups().map_err(failed)? {
            self.walk(path, bounds, &inner, &format!("{prefix}{name}/"), depth.saturating_add(1))?;
        }
        Ok(())
    }

    fn shard(
        self,
        path: &Path,
        file: &Arc<DataFile>,
        bounds: &Arc<Bounds>,
        choose: Choose<'_>,
        as_floats: bool,
    ) -> Result<Hdf5Shard, FormatError> {
        let Found { shift, base, offset_bytes, data_sets } = self;
        let names: Vec<_> = data_sets.iter().map(|(name, _)| name.clone()).collect();
        let surveyor = Surveyor { file, shift, bounds, offset_bytes, as_floats };
        let chosen = choose(&names)?;
        let chosen = chosen.into_iter().filter_map(|index| data_sets.get(index));
        let columns = chosen.map(|(name, data_set)| surveyor.column(name, data_set.clone()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let rows = columns.first().map(|column| column.rows).unwrap_or_default();
        if columns.iter().any(|column| column.rows != rows) {
            let shown: Vec<_> =
                columns.iter().map(|column| format!("{} has {}", column.name, column.rows)).collect();
            let what = format!(
                "the data sets differ in the number of records on their first axis: {}; name the parts that \
                 belong together",
                shown.join(", ")
            );
            return Err(FormatError::refused(path, what));
        }
        let types = columns.iter().map(|column| (column.name.clone(), column.form.name()));
        let grammar = Arc::new(PackedGrammar::new(types));
        Ok(Hdf5Shard { path: path.to_owned(), file: Arc::clone(file), columns, rows, base, grammar })
    }
}

impl Shard for Hdf5Shard {
    fn path(&self) -> &Path {
        &self.path
    }

    fn records(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.grammar) as _
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        let columns = self.columns.iter().map(|_| RowReader::default()).collect();
        let heap = HeapReader::default();
        Ok(Box::new(Hdf5Cursor { shard: self, columns, heap, at: 0, packed: Vec::new() }))
    }
}

#[derive(Debug)]
struct Hdf5Cursor {
    shard: Arc<Hdf5Shard>,
    columns: Vec<RowReader>,
    heap: HeapReader,
    at: u64,
    packed: Vec<u8>,
}

impl Cursor for Hdf5Cursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let (row, place) = (self.at, [self.at, 0]);
        let Hdf5Shard { file, columns, rows, base, .. } = &*self.shard;
        if row >= *rows {
            return Ok(None);
        }
        self.packed.clear();
        self.heap.begin();
        for (column, reader) in columns.iter().zip(&mut self.columns) {
            let bytes = reader.row(column, file, row).map_err(|error| error.record(row))?;
            let mut heap = Heap { reader: &mut self.heap, file, base: *base, part: &column.name };
            let value = column.form.value(bytes, &mut heap).map_err(|error| error.record(row))?;
            packed::pack(&value, &mut self.packed);
        }
        self.at = row.saturating_add(1);
        Ok(Some(Record { key: Key::None, value: Lent::Buffer(&self.packed), place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.at >= self.shard.rows {
            return Ok(None);
        }
        let place = [self.at, 0];
        self.at = self.at.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        check_row(&self.shard.path, place, self.shard.rows)?;
        let [row, _] = place;
        self.at = row;
        Ok(())
    }
}
