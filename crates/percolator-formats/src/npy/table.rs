//! Arrays side by side, whose rows belong together.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::array::{NpySource, RowReader};
use super::check_row;
use super::header::NpyHeader;
use crate::packed::{self, PackedGrammar};
use crate::{Cursor, FormatError, Grammar, Key, Lent, Place, Record, Seeks, Shard};

/// One array of a table.
#[derive(Debug)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    /// The file, for messages.
    pub(crate) path: PathBuf,
    pub(crate) header: NpyHeader,
    pub(crate) source: TableSource,
}

/// Where a column's bytes are.
#[derive(Debug)]
pub(crate) enum TableSource {
    /// They can be read now.
    Open(NpySource),
    /// They can be read now, and have this checksum, which only a pass over all of them verifies.
    Summed { source: NpySource, crc: u32, verified: AtomicBool },
    /// They are unpacked for as long as a cursor is open.
    Packed(PackedColumn),
}

/// A column that is unpacked as a whole, once for all cursors that are open at a time.
pub(crate) struct PackedColumn {
    unpack: Box<dyn Fn() -> Result<Arc<Vec<u8>>, FormatError> + Send + Sync>,
    unpacked: Mutex<Weak<Vec<u8>>>,
}

impl PackedColumn {
    pub(crate) fn new(
        unpack: impl Fn() -> Result<Arc<Vec<u8>>, FormatError> + Send + Sync + 'static,
    ) -> Self {
        PackedColumn { unpack: Box::new(unpack), unpacked: Mutex::new(Weak::new()) }
    }

    fn bytes(&self) -> Result<Arc<Vec<u8>>, FormatError> {
        let mut unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = unpacked.upgrade() {
            return Ok(bytes);
        }
        let bytes = (self.unpack)()?;
        *unpacked = Arc::downgrade(&bytes);
        Ok(bytes)
    }
}

impl fmt::Debug for PackedColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedColumn").finish_non_exhaustive()
    }
}

/// Refuses names that stand twice.
pub(crate) fn check_names(path: &Path, names: &[String]) -> Result<(), FormatError> {
    let twice = names.iter().enumerate().find(|(index, name)| names.iter().take(*index).any(|n| n == *name));
    if let Some((_, name)) = twice {
        return Err(FormatError::refused(path, format!("two arrays are named {name:?}; rename one")));
    }
    Ok(())
}

/// Arrays with equal first axes.
#[derive(Debug)]
pub(crate) struct ArrayTable {
    path: PathBuf,
    files: Vec<PathBuf>,
    columns: Vec<TableColumn>,
    rows: u64,
    grammar: Arc<PackedGrammar>,
}

impl ArrayTable {
    /// Of columns with different names.
    ///
    /// # Errors
    ///
    /// [`FormatError::Refused`] if the first axes differ.
    pub(crate) fn new(
        path: &Path,
        columns: Vec<TableColumn>,
        files: Vec<PathBuf>,
    ) -> Result<Self, FormatError> {
        let rows = columns.first().and_then(|column| column.header.rows);
        let uneven = columns.iter().any(|column| column.header.rows != rows);
        if uneven || (rows.is_none() && columns.len() > 1) {
            let shown: Vec<_> = columns
                .iter()
                .map(|TableColumn { name, header, .. }| match header.rows {
                    Some(rows) => format!("{name} has {rows}"),
                    None => format!("{name} has no axis"),
                })
                .collect();
            let what = format!(
                "the arrays differ in the number of records on their first axis: {}; name the parts that \
                 belong together",
                shown.join(", ")
            );
            return Err(FormatError::refused(path, what));
        }
        let types = columns.iter().map(|column| (column.name.clone(), column.header.row.name()));
        let grammar = Arc::new(PackedGrammar::new(types));
        Ok(ArrayTable { path: path.to_owned(), files, columns, rows: rows.unwrap_or_default(), grammar })
    }

    /// Verifies the checksums of arrays that are read in place, once.
    fn verify(&self, buffer: &mut Vec<u8>) -> Result<(), FormatError> {
        for column in &self.columns {
            let TableSource::Summed { source, crc, verified } = &column.source else { continue };
            if verified.load(Ordering::Relaxed) {
                continue;
            }
            let found = sum(source, buffer)?;
            if found != *crc {
                let what = format!(
                    "{}.npy has the CRC {found:08x}, and {crc:08x} is stored: it is damaged",
                    column.name
                );
                return Err(FormatError::damaged(&column.path, what));
            }
            verified.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The CRC-32 of a source.
fn sum(source: &NpySource, buffer: &mut Vec<u8>) -> Result<u32, FormatError> {
    const STEP: usize = 1 << 20;

    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc);
    let mut at = 0;
    while at < source.bytes() {
        let end = source.bytes().min(at.saturating_add(STEP as u64));
        digest.update(source.lend(at..end, buffer)?.bytes());
        at = end;
    }
    // A CRC-32 has 32 bits.
    Ok(u32::try_from(digest.finalize()).unwrap_or_default())
}

impl Shard for ArrayTable {
    fn path(&self) -> &Path {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
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
        let sources = self.columns.iter().map(|column| match &column.source {
            TableSource::Open(source) | TableSource::Summed { source, .. } => Ok(source.clone()),
            TableSource::Packed(packed) => packed.bytes().map(NpySource::Memory),
        });
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let columns = sources.into_iter().map(|source| (source, RowReader::default())).collect();
        Ok(Box::new(TableCursor { table: self, columns, at: 0, in_order: true, packed: Vec::new() }))
    }
}

#[derive(Debug)]
struct TableCursor {
    table: Arc<ArrayTable>,
    columns: Vec<(NpySource, RowReader)>,
    at: u64,
    /// Whether every record before this one was read.
    in_order: bool,
    packed: Vec<u8>,
}

impl Cursor for TableCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let (row, place) = (self.at, [self.at, 0]);
        if row >= self.table.rows {
            if self.in_order {
                self.table.verify(&mut self.packed)?;
            }
            return Ok(None);
        }
        self.packed.clear();
        for (column, (source, reader)) in self.table.columns.iter().zip(&mut self.columns) {
            let bytes = reader.row(&column.header, source, row)?.bytes();
            let value = column.header.row.value(bytes).map_err(|fault| {
                FormatError::damaged(&column.path, format!("{}: {fault}", column.name)).record(row)
            })?;
            packed::pack(&value, &mut self.packed);
        }
        self.at = row.saturating_add(1);
        Ok(Some(Record { key: Key::None, value: Lent::Buffer(&self.packed), place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.at >= self.table.rows {
            return self.advance().map(|_| None);
        }
        let place = [self.at, 0];
        self.in_order = false;
        self.at = self.at.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        check_row(&self.table.path, place, self.table.rows)?;
        let [row, _] = place;
        self.in_order = row == 0;
        self.at = row;
        Ok(())
    }
}
