//! Reads rows batch by batch. The batch around the current row stays decoded, and while rows are read in
//! another order, those around others.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};

use super::ParquetShard;
use super::decoded::Batch;
use crate::columns::pack_row;
use crate::table_files::caught;
use crate::{Cursor, Fault, FormatError, Key, Lent, Place, Record};

pub(super) struct ParquetCursor {
    shard: Arc<ParquetShard>,
    /// The next row's number in the file.
    next: u64,
    /// Whether the next row was sought. Then its batch is kept for those that are yet to come.
    is_sought: bool,
    batch: Option<Arc<Batch>>,
    reader: Option<Reader>,
    packed: Vec<u8>,
}

/// What decodes the batches of a row group, and where it is.
struct Reader {
    group: usize,
    /// The number of the first row of the batch that comes next.
    next: u64,
    batches: ParquetRecordBatchReader,
}

impl ParquetCursor {
    pub(super) fn new(shard: Arc<ParquetShard>) -> Self {
        ParquetCursor { shard, next: 0, is_sought: false, batch: None, reader: None, packed: Vec::new() }
    }

    /// Decodes the batch that has a row, unless it is decoded. Batches begin at multiples of their number of
    /// rows, however they are reached, so that rows that are read backwards are not decoded one by one.
    fn load(&mut self, group: usize, row: u64) -> Result<(), FormatError> {
        if self.batch.as_ref().is_some_and(|batch| batch.has(group, row)) {
            return Ok(());
        }
        // The memory of the one before is free for this one.
        self.batch = None;
        let batch_rows = self.shard.batch_rows(group)?;
        let first = row.saturating_sub(row.checked_rem(batch_rows as u64).unwrap_or_default());
        let place = (self.shard.number, group, first);
        if let Some(batch) = self.shard.decoded.get(place) {
            self.batch = Some(batch);
            return Ok(());
        }
        let mut reader = match self.reader.take() {
            Some(reader) if reader.group == group && reader.next == first => reader,
            _ => {
                let batches = self.shard.reader(group, first, batch_rows, &self.shard.mask);
                Reader {
                    group,
                    next: first,
                    batches: batches.map_err(|what| self.damaged(group, first, &what))?,
                }
            }
        };
        let due = self.shard.rows_of(group).saturating_sub(first).min(batch_rows as u64);
        let batch = next_batch(&mut reader.batches, due).map_err(|what| self.damaged(group, first, &what))?;
        if batch.num_columns() != self.shard.columns.names.len() {
            return Err(self.damaged(group, first, "a column without values is missing"));
        }
        reader.next = first.saturating_add(due);
        let batch = Arc::new(Batch { group, first, rows: due, columns: batch.columns().to_vec() });
        if self.is_sought {
            self.shard.decoded.keep(place, &batch);
        }
        self.batch = Some(batch);
        self.reader = Some(reader);
        Ok(())
    }

    /// Says whose fault it is: one column after the other is decoded.
    fn damaged(&self, group: usize, first: u64, what: &str) -> FormatError {
        let shard = &self.shard;
        let batch_rows = shard.batch_rows(group).unwrap_or(1);
        let due = shard.rows_of(group).saturating_sub(first).min(batch_rows as u64);
        let failed = |number: &usize| {
            let mask = ProjectionMask::roots(shard.metadata.parquet_schema(), [*number]);
            let batches = shard.reader(group, first, batch_rows, &mask);
            batches.and_then(|mut batches| next_batch(&mut batches, due)).is_err()
        };
        let of = shard.columns.numbers.iter().zip(&shard.columns.names).find(|(number, _)| failed(number));
        let of = of.map(|(_, name)| format!("column {name:?} of ")).unwrap_or_default();
        FormatError::damaged(shard.source.path(), format!("{of}row group {group} cannot be decoded: {what}"))
    }
}

impl ParquetShard {
    /// What decodes the batches of a row group, from a row on.
    fn reader(
        &self,
        group: usize,
        first: u64,
        batch_rows: usize,
        mask: &ProjectionMask,
    ) -> Result<ParquetRecordBatchReader, String> {
        let rest = self.rows_of(group).saturating_sub(first);
        let (skip, rest) = usize::try_from(first)
            .ok()
            .zip(usize::try_from(rest).ok())
            .ok_or("it has too many rows for this machine")?;
        caught(|| {
            let metadata = self.metadata.clone();
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(self.source.clone(), metadata)
                    .with_row_groups(vec![group])
                    .with_projection(mask.clone())
                    .with_batch_size(batch_rows);
            if skip > 0 {
                let selectors = vec![RowSelector::skip(skip), RowSelector::select(rest)];
                builder = builder.with_row_selection(RowSelection::from(selectors));
            }
            builder.build().map_err(|error| error.to_string())
        })
    }
}

fn next_batch(batches: &mut ParquetRecordBatchReader, due: u64) -> Result<RecordBatch, String> {
    let batch = caught(|| batches.next().transpose().map_err(|error| error.to_string()))?;
    let rows = batch.as_ref().map_or(0, RecordBatch::num_rows) as u64;
    match batch {
        Some(batch) if rows == due => Ok(batch),
        _ => Err(format!("there are {rows} rows where {due} are expected")),
    }
}

impl Cursor for ParquetCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let position = self.next;
        let Some((group, row)) = self.shard.find(position) else { return Ok(None) };
        self.load(group, row).map_err(|error| error.record(position))?;
        let Some(batch) = &self.batch else { return Ok(None) };
        let row = usize::try_from(row.saturating_sub(batch.first)).unwrap_or(usize::MAX);
        // The decoder builds its columns without validating them once more.
        let packed = &mut self.packed;
        caught(|| {
            pack_row(&batch.columns, &self.shard.columns.names, row, packed).map_err(|Fault(what)| what)
        })
        .map_err(|what| FormatError::damaged(self.shard.source.path(), what).record(position))?;
        (self.next, self.is_sought) = (position.saturating_add(1), false);
        Ok(Some(Record { key: Key::None, value: Lent::Buffer(&self.packed), place: [position, 0] }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.next >= self.shard.rows() {
            return Ok(None);
        }
        let place = [self.next, 0];
        self.next = self.next.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError> {
        let [row, zero] = place;
        if row >= self.shard.rows() || zero != 0 {
            let what =
                format!("there are {} rows, and no place {place:?}: the file has changed", self.shard.rows());
            return Err(FormatError::damaged(self.shard.source.path(), what).record(position));
        }
        self.is_sought = row != self.next;
        self.next = row;
        Ok(())
    }
}
