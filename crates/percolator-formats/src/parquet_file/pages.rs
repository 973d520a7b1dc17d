//! The pages of a row group: their heads, compared with the footer and with what there is, before anything is
//! unpacked.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::source::ParquetSource;
use super::thrift::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, INDEX_PAGE, PageHead, ThriftFault, page_head};
use crate::FormatError;

/// What a head has at least room for when it is read: most have fewer bytes.
const WINDOW: u64 = 1024;

/// The most bytes of a batch of rows that follow from its pages' sizes.
const BATCH_BYTES: u64 = 1024 * 1024;

/// The most bytes of a batch if each of its values is the largest one of its dictionary.
const BATCH_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The most rows of a batch.
const BATCH_ROWS: u64 = 1024;

/// The row group whose pages are looked at.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) source: &'a ParquetSource,
    pub(super) metadata: &'a ParquetMetaData,
    pub(super) number: usize,
}

/// What the pages of a column add up to.
#[derive(Default)]
struct Sums {
    /// The places of its pages of data, and the values before each.
    pages: Vec<(Range<u64>, u64)>,
    values: u64,
    dictionary_bytes: u64,
}

impl Group<'_> {
    /// Checks the pages of some columns; returns the number of rows of a batch.
    pub(super) fn check(self, leaves: impl Iterator<Item = usize>) -> Result<usize, FormatError> {
        let (mut bytes, mut dictionaries) = (0_u64, 0_u64);
        for leaf in leaves {
            let Some(chunk) = self.chunk(leaf) else { continue };
            let sums = self.check_column(chunk, leaf)?;
            bytes = bytes.saturating_add(u64::try_from(chunk.uncompressed_size()).unwrap_or_default());
            let values_a_row = sums.values.div_ceil(self.rows().max(1)).max(1);
            let of_rows = sums.dictionary_bytes.saturating_mul(values_a_row);
            dictionaries = dictionaries.saturating_add(of_rows);
        }
        let a_row = bytes.div_ceil(self.rows().max(1)).max(1);
        let rows = BATCH_BYTES.checked_div(a_row).unwrap_or(BATCH_ROWS);
        let rows = rows.min(BATCH_BYTES_MAX.checked_div(dictionaries).unwrap_or(BATCH_ROWS));
        Ok(usize::try_from(rows.clamp(1, BATCH_ROWS)).unwrap_or(1))
    }

    fn rows(self) -> u64 {
        let rows = self.metadata.row_groups().get(self.number).map(|group| group.num_rows());
        rows.and_then(|rows| u64::try_from(rows).ok()).unwrap_or_default()
    }

    fn chunk<'a>(self, leaf: usize) -> Option<&'a ColumnChunkMetaData>
    where
        Self: 'a,
    {
        self.metadata.row_groups().get(self.number)?.columns().get(leaf)
    }

    fn damaged(self, chunk: &ColumnChunkMetaData, at: u64, what: &str) -> FormatError {
        let what = format!("column {:?} of row group {}: {what}", chunk.column_path().string(), self.number);
        FormatError::damaged(self.source.path(), what).byte(at)
    }

    fn check_column(self, chunk: &ColumnChunkMetaData, leaf: usize) -> Result<Sums, FormatError> {
        let place = place_of(chunk).unwrap_or_default();
        let mut sums = Sums::default();
        let mut at = place.start;
        while at < place.end {
            let head = self.head(chunk, at, place.end)?;
            let data = at.saturating_add(head.bytes);
            let end = data.saturating_add(u64::try_from(head.packed).unwrap_or(u64::MAX));
            if end > place.end {
                let what = format!(
                    "a page of {} bytes stands {} bytes before the column's end",
                    head.packed,
                    place.end.saturating_sub(data)
                );
                return Err(self.damaged(chunk, at, &what));
            }
            check_size(&head, chunk.compression()).map_err(|what| self.damaged(chunk, at, &what))?;
            let values = u64::try_from(head.values);
            match (head.kind, values) {
                (DATA_PAGE | DATA_PAGE_V2, Ok(values)) => {
                    sums.pages.push((at..end, sums.values));
                    sums.values = sums.values.saturating_add(values);
                }
                // No value of a dictionary takes less than a byte.
                (DICTIONARY_PAGE, Ok(_)) if head.values <= head.unpacked => {
                    sums.dictionary_bytes = head.unpacked.unsigned_abs();
                }
                (INDEX_PAGE, _) => {}
                (kind, _) => {
                    let what = format!("a page of kind {kind} states {} values", head.values);
                    return Err(self.damaged(chunk, at, &what));
                }
            }
            at = end;
        }
        if u64::try_from(chunk.num_values()) != Ok(sums.values) {
            let what =
                format!("its pages have {} values, and the footer says {}", sums.values, chunk.num_values());
            return Err(self.damaged(chunk, place.start, &what));
        }
        self.check_index(chunk, leaf, &sums)?;
        Ok(sums)
    }

    /// Reads the head of a page.
    fn head(self, chunk: &ColumnChunkMetaData, at: u64, end: u64) -> Result<PageHead, FormatError> {
        let mut window = WINDOW;
        loop {
            let until = at.saturating_add(window).min(end);
            let bytes = self.source.bytes(at..until)?;
            let what = match page_head(&bytes) {
                Ok(head) => return Ok(head),
                Err(ThriftFault::Cut) if until < end => {
                    window = window.saturating_mul(8);
                    continue;
                }
                Err(ThriftFault::Cut) => "the column ends within it",
                Err(ThriftFault::Damaged(what)) => what,
            };
            return Err(self.damaged(chunk, at, &format!("a page's head cannot be parsed: {what}")));
        }
    }

    /// Compares the table of pages, by which rows are found, with the pages.
    fn check_index(self, chunk: &ColumnChunkMetaData, leaf: usize, sums: &Sums) -> Result<(), FormatError> {
        let index = self.metadata.page_index_for_row_group(self.number);
        let Some(locations) = index.page_locations(leaf) else { return Ok(()) };
        let wrong = |what: String| self.damaged(chunk, sums.pages.first().map_or(0, |p| p.0.start), &what);
        if locations.len() != sums.pages.len() {
            let what = format!("it has {} pages, and its index {}", sums.pages.len(), locations.len());
            return Err(wrong(what));
        }
        let flat = chunk.column_descr().max_rep_level() == 0;
        let mut before = None;
        for (location, (place, values)) in locations.iter().zip(&sums.pages) {
            let bytes = i64::from(location.compressed_page_size);
            let same = u64::try_from(location.offset) == Ok(place.start)
                && u64::try_from(bytes) == Ok(place.end.saturating_sub(place.start));
            let row = u64::try_from(location.first_row_index).ok();
            let rises = row.is_some_and(|row| match before {
                None => row == 0,
                Some(before) => row >= before && row <= self.rows(),
            });
            if !same || !rises || (flat && row != Some(*values)) {
                let what = format!(
                    "the page at byte {} has {} bytes and {values} values before it, and its index says byte \
                     {}, {bytes} bytes, and row {}",
                    place.start,
                    place.end.saturating_sub(place.start),
                    location.offset,
                    location.first_row_index
                );
                return Err(wrong(what));
            }
            before = row;
        }
        Ok(())
    }
}

/// Where a column's pages are, if that is possible.
pub(super) fn place_of(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let start = u64::try_from(start).ok()?;
    Some(start..start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?)
}

/// Compares the size that a page will have with what its bytes can give: the decoder allocates it.
fn check_size(head: &PageHead, codec: Compression) -> Result<(), String> {
    let packed = head.packed;
    let most = match codec {
        Compression::UNCOMPRESSED if head.unpacked != packed => {
            return Err(format!("a page that is not packed states {packed} bytes, and {}", head.unpacked));
        }
        Compression::UNCOMPRESSED => packed,
        // A copy of 64 bytes takes 3.
        Compression::SNAPPY => packed.saturating_mul(22),
        Compression::GZIP(_) => packed.saturating_mul(1032),
        Compression::LZ4 | Compression::LZ4_RAW => packed.saturating_mul(255),
        // A run of 128 KiB takes 4.
        Compression::ZSTD(_) => packed.saturating_div(4).saturating_add(1).saturating_mul(128 * 1024),
        _ => i64::MAX,
    };
    // Some more, for what levels that are not packed may round up.
    match head.unpacked <= most.saturating_add(64) {
        true => Ok(()),
        false => Err(format!(
            "a page states {} bytes unpacked, and its {packed} bytes packed give {most} at most",
            head.unpacked
        )),
    }
}
