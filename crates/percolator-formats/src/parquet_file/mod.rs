//! Parquet files.
//!
//! The footer says how many rows each row group has, so that a row is found by its number; an index of pages,
//! where there is one, says in which page it is. Rows are decoded in batches of bounded memory, only the
//! columns that are wanted. The heads of all pages are compared with the footer before they are unpacked, and
//! the checksums of pages that have one are verified. Most files have none: a changed byte in an image then
//! passes unseen.

mod cursor;
mod decoded;
mod pages;
mod source;
mod thrift;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};

use self::cursor::ParquetCursor;
pub(crate) use self::decoded::DecodedRows;
use self::pages::{Group, place_of};
use self::source::ParquetSource;
use self::thrift::{ThriftFault, check_structure, schema_depth};
use crate::columns::Columns;
use crate::known_settings::KnownSettings;
use crate::table_files::{caught, files_of, has_extension};
use crate::{Cursor, FormatError, Grammar, Options, Seeks, Shard};

/// What a file begins with, and ends with.
const MAGIC: &[u8] = b"PAR1";

/// The bytes after the footer: its length, and the magic.
const TAIL: u64 = 8;

/// How deep groups may stand in each other: the decoder goes down on the stack.
const DEPTH_MAX: usize = 64;

const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// Whether it is a Parquet file.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    head.starts_with(MAGIC)
        || head.starts_with(b"PARE")
        || (!head.is_empty() && has_extension(path, &EXTENSIONS))
}

/// Opens a file, or all of a folder, in the order of their names.
///
/// # Errors
///
/// [`FormatError`] if one cannot be opened, is damaged, or has a type that is not read.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "parquet", options, &[])?;
    let open = |file: &std::path::PathBuf| {
        ParquetShard::open(file, options).map(|shard| Arc::new(shard) as Arc<dyn Shard>)
    };
    files_of(path, &EXTENSIONS)?.iter().map(open).collect()
}

/// A Parquet file.
#[derive(Debug)]
struct ParquetShard {
    source: ParquetSource,
    metadata: ArrowReaderMetadata,
    columns: Columns,
    mask: ProjectionMask,
    /// The number of rows before each row group, and that of all.
    starts: Vec<u64>,
    /// Tells it from the others of its data set.
    number: usize,
    decoded: Arc<DecodedRows>,
    /// The rows of a batch of each row group, once its pages are checked.
    batches: Vec<OnceLock<usize>>,
}

impl ParquetShard {
    fn open(path: &Path, options: &Options) -> Result<Self, FormatError> {
        let source = ParquetSource::open(path, options.access)?;
        let footer = check_ends(&source)?;
        let damaged = |what: String| FormatError::damaged(path, what).byte(footer);
        let parsed = caught(|| {
            let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
            reader.parse_and_finish(&source).map_err(|error| error.to_string())
        });
        let unparsed = |what: String| damaged(format!("the footer cannot be parsed: {what}"));
        let parsed = parsed.map_err(unparsed)?;
        let starts = check_footer(&parsed, footer).map_err(damaged)?;
        check_offset_indexes(&parsed, &source)?;
        let metadata = caught(|| {
            // Rows are found by the offsets of pages; what stands in them is not asked for.
            let mut reader = ParquetMetaDataReader::new_with_metadata(parsed)
                .with_offset_index_policy(PageIndexPolicy::Optional)
                .with_column_index_policy(PageIndexPolicy::Skip);
            let metadata = reader.read_page_indexes(&source).and_then(|()| reader.finish());
            let metadata = metadata.map_err(|error| error.to_string())?;
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
                .map_err(|error| error.to_string())
        });
        let metadata = metadata.map_err(unparsed)?;
        let columns = Columns::of(path, metadata.schema(), options)?;
        if metadata.schema().fields().is_empty() {
            return Err(FormatError::refused(path, "it has no columns"));
        }
        let schema = metadata.parquet_schema();
        if schema.root_schema().get_fields().len() != metadata.schema().fields().len() {
            return Err(damaged("the footer has two schemas with different numbers of columns".to_owned()));
        }
        let mask = ProjectionMask::roots(schema, columns.numbers.iter().copied());
        let batches = std::iter::repeat_with(OnceLock::new).take(starts.len().saturating_sub(1)).collect();
        let decoded = Arc::clone(&options.decoded);
        let number = decoded.number();
        Ok(ParquetShard { source, metadata, columns, mask, starts, number, decoded, batches })
    }

    fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// The row group that has a row, and the row's number in it.
    fn find(&self, row: u64) -> Option<(usize, u64)> {
        let group = self.starts.partition_point(|start| *start <= row).checked_sub(1)?;
        let end = self.starts.get(group.checked_add(1)?)?;
        let start = self.starts.get(group)?;
        (row < *end).then_some((group, row.saturating_sub(*start)))
    }

    fn rows_of(&self, group: usize) -> u64 {
        let start = self.starts.get(group).copied().unwrap_or_default();
        let end = self.starts.get(group.saturating_add(1)).copied().unwrap_or_default();
        end.saturating_sub(start)
    }

    /// The rows of a row group's batches. Its pages are checked first, once.
    fn batch_rows(&self, group: usize) -> Result<usize, FormatError> {
        let known = self.batches.get(group);
        if let Some(rows) = known.and_then(OnceLock::get) {
            return Ok(*rows);
        }
        let leaves = 0..self.metadata.parquet_schema().num_columns();
        let of = Group { source: &self.source, metadata: self.metadata.metadata(), number: group };
        let rows = of.check(leaves.filter(|leaf| self.mask.leaf_included(*leaf)))?;
        Ok(known.map_or(rows, |known| *known.get_or_init(|| rows)))
    }
}

/// Checks a file's first and last bytes; returns where its footer begins.
fn check_ends(source: &ParquetSource) -> Result<u64, FormatError> {
    let end = source.length();
    let damaged = |at: u64, what: String| FormatError::damaged(source.path(), what).byte(at);
    let head = source.bytes(0..end.min(4))?;
    let tail = source.bytes(end.saturating_sub(TAIL)..end)?;
    if head.starts_with(b"PARE") || tail.ends_with(b"PARE") {
        return Err(FormatError::refused(
            source.path(),
            "it is encrypted, which is not read: decrypt it first",
        ));
    }
    if !head.starts_with(MAGIC) {
        return Err(damaged(0, "there is no PAR1 at the beginning: it is no Parquet file".to_owned()));
    }
    let length = tail.strip_suffix(MAGIC).and_then(|length| length.first_chunk::<4>());
    let Some(length) = length.map(|length| u64::from(u32::from_le_bytes(*length))) else {
        let what = "there is no PAR1 at the end: it is cut, or still being written; copy it again";
        return Err(damaged(end, what.to_owned()));
    };
    let start = end.saturating_sub(TAIL).checked_sub(length).filter(|start| *start >= 4);
    let Some(start) = start else {
        let what = format!("the footer's length is {length} bytes, and the file's {end}");
        return Err(damaged(end.saturating_sub(TAIL), what));
    };
    let footer = source.bytes(start..end.saturating_sub(TAIL))?;
    match schema_depth(&footer) {
        Ok(depth) if depth > DEPTH_MAX => {
            let what = format!("its columns stand {depth} deep in each other; {DEPTH_MAX} are read");
            Err(FormatError::refused(source.path(), what).byte(start))
        }
        Ok(_) => Ok(start),
        Err(ThriftFault::Cut) => {
            Err(damaged(start, "the footer cannot be parsed: it ends too early".to_owned()))
        }
        Err(ThriftFault::Damaged(what)) => {
            Err(damaged(start, format!("the footer cannot be parsed: {what}")))
        }
    }
}

/// Compares the numbers of a footer with each other and with the file; returns the rows before each group.
fn check_footer(metadata: &ParquetMetaData, footer: u64) -> Result<Vec<u64>, String> {
    let mut starts = vec![0_u64];
    let mut before = 0_u64;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows());
        let rows = rows.map_err(|_| format!("row group {number} has {} rows", group.num_rows()))?;
        check_group(group, footer).map_err(|what| format!("row group {number}: {what}"))?;
        before = before.checked_add(rows).ok_or("the row groups have too many rows")?;
        starts.push(before);
    }
    let stated = metadata.file_metadata().num_rows();
    match u64::try_from(stated) == Ok(before) {
        true => Ok(starts),
        false => Err(format!("the footer states {stated} rows, and its row groups have {before}")),
    }
}

/// Checks that the offsets of pages are whole: their reader asks for as much memory as they say to need.
fn check_offset_indexes(metadata: &ParquetMetaData, source: &ParquetSource) -> Result<(), FormatError> {
    let chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    for range in chunks.filter_map(ColumnChunkMetaData::offset_index_range) {
        let at = range.start;
        check_structure(&source.bytes(range)?).map_err(|fault| {
            let what = match fault {
                ThriftFault::Cut => "it ends too early",
                ThriftFault::Damaged(what) => what,
            };
            let what = format!("an index of pages cannot be parsed: {what}");
            FormatError::damaged(source.path(), what).byte(at)
        })?;
    }
    Ok(())
}

fn check_group(group: &RowGroupMetaData, footer: u64) -> Result<(), String> {
    let columns = group.schema_descr().num_columns();
    if group.num_columns() != columns {
        return Err(format!("it has {} columns, and the schema {columns}", group.num_columns()));
    }
    for chunk in group.columns() {
        let name = chunk.column_path().string();
        if let Some(other) = chunk.file_path() {
            return Err(format!("column {name:?} is in another file, {other:?}, which is not read"));
        }
        let place = place_of(chunk).filter(|place| place.start >= 4 && place.end <= footer);
        if place.is_none() {
            let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
            let bytes = chunk.compressed_size();
            return Err(format!(
                "column {name:?} has {bytes} bytes from byte {start} on, and the footer begins at byte \
                 {footer}"
            ));
        }
        let flat = chunk.column_descr().max_rep_level() == 0;
        if flat && chunk.num_values() != group.num_rows() {
            return Err(format!(
                "column {name:?} has {} values, and the row group {} rows",
                chunk.num_values(),
                group.num_rows()
            ));
        }
    }
    Ok(())
}

impl Shard for ParquetShard {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn records(&self) -> Option<u64> {
        Some(self.rows())
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.columns.grammar) as Arc<dyn Grammar>
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(ParquetCursor::new(self)))
    }
}
