//! Parquet files.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::properties::WriterProperties;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use percolator_files::whole_file::{Existing, WholeFile};

use super::column::ColumnType;
use super::{RecordWriter, started};
use crate::{FormatError, Key, Part, Value};

/// A row group has as many bytes of values, or as many rows: whoever reads a row reads its group.
const GROUP_BYTES: usize = 32 << 20;
const GROUP_ROWS: usize = 16 << 10;

/// The bytes of a record: with those of the row group before it, its offsets of 4 bytes reach all.
const RECORD_MAX: usize = i32::MAX as usize - GROUP_BYTES;

/// The column that has the records' keys, if they have any.
const KEY: &str = "__key__";

/// Writes a Parquet file: a row for each record, a column for each part.
///
/// The first row group's records say which columns there are, and of which types; a later record has no
/// others. Keys are the column `__key__`. Values are compressed by zstd.
pub struct ParquetWriter {
    path: PathBuf,
    file: WholeFile,
    columns: Vec<Column>,
    /// The rows of the group, and the bytes of their values.
    rows: usize,
    bytes: usize,
    /// The records of the groups that were written.
    written: u64,
    writer: Option<ArrowWriter<File>>,
}

/// A column, and its values in the row group.
struct Column {
    name: String,
    dtype: ColumnType,
    values: Vec<Option<Value<'static>>>,
}

impl fmt::Debug for ParquetWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetWriter")
            .field("path", &self.path)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl ParquetWriter {
    /// Starts a file.
    ///
    /// # Errors
    ///
    /// [`FormatError::Io`] if it cannot be created.
    pub fn create(path: &Path) -> Result<Self, FormatError> {
        let file = started(path)?;
        Ok(ParquetWriter {
            path: path.to_owned(),
            file,
            columns: Vec::new(),
            rows: 0,
            bytes: 0,
            written: 0,
            writer: None,
        })
    }

    fn refused(&self, what: String) -> FormatError {
        FormatError::refused(&self.path, what).record(self.written.saturating_add(self.rows as u64))
    }

    /// Adds a value of the row that is being added.
    fn put_value(&mut self, name: &str, value: Value<'static>) -> Result<(), FormatError> {
        let dtype =
            ColumnType::of(&value).map_err(|what| self.refused(format!("the part {name:?} has {what}")))?;
        let rows = self.rows;
        let number = match self.columns.iter().position(|column| column.name == name) {
            Some(number) => number,
            None if self.writer.is_none() => {
                let values = vec![None; rows];
                self.columns.push(Column { name: name.to_owned(), dtype: ColumnType::Null, values });
                self.columns.len() - 1
            }
            None => {
                let what = format!("it has a part {name:?}, which no record of the first row group has");
                return Err(self.refused(what));
            }
        };
        let is_fixed = self.writer.is_some();
        let column = &mut self.columns[number];
        if column.values.len() > rows {
            return Err(self.refused(format!("it has the part {name:?} twice")));
        }
        let known = column.dtype.clone();
        match known.clone().with(dtype) {
            Ok(both) if !is_fixed || both == known => column.dtype = both,
            Ok(both) => {
                let what =
                    format!("the part {name:?} has {}, and the column {}", both.arrow(), known.arrow());
                return Err(self.refused(what));
            }
            Err(what) => return Err(self.refused(format!("the part {name:?} has {what}"))),
        }
        column.values.push(Some(value).filter(|value| *value != Value::Null));
        Ok(())
    }

    /// Writes the rows so far as a row group.
    fn flush(&mut self) -> Result<(), FormatError> {
        let path = self.path.clone();
        let records = self.written..self.written.saturating_add(self.rows as u64);
        let refused =
            |what: String| FormatError::refused(&path, format!("in one of the records {records:?}, {what}"));
        let fields: Vec<_> =
            self.columns.iter().map(|column| Field::new(&column.name, column.dtype.arrow(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let arrays: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|column| {
                let built = column.dtype.build(&column.values);
                built.map_err(|what| refused(format!("the part {:?} has {what}", column.name)))
            })
            .collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options);
        let batch = batch.map_err(|error| refused(error.to_string()))?;
        let failed = |error: ::parquet::errors::ParquetError| {
            FormatError::io(&path, "write the file", std::io::Error::other(error))
        };
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let properties =
                    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
                let file = self.file.file().try_clone();
                let file = file.map_err(|error| FormatError::io(&path, "write the file", error))?;
                none.insert(ArrowWriter::try_new(file, schema, Some(properties.build())).map_err(failed)?)
            }
        };
        writer.write(&batch).and_then(|()| writer.flush()).map_err(failed)?;
        self.written = self.written.saturating_add(self.rows as u64);
        self.columns.iter_mut().for_each(|column| column.values.clear());
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl RecordWriter for ParquetWriter {
    fn put(&mut self, key: &Key<'_>, parts: &[Part<'_>]) -> Result<(), FormatError> {
        let key = match key {
            Key::None => None,
            Key::Number(number) => Some(number.to_string()),
            Key::Bytes(key) => Some(std::str::from_utf8(key).map(ToOwned::to_owned).map_err(|_| {
                self.refused(format!("its key \"{}\" is no text in UTF-8", key.escape_ascii()))
            })?),
        };
        let bytes = parts.iter().fold(0_usize, |sum, (_, value)| sum.saturating_add(bytes_of(value)));
        if bytes > RECORD_MAX {
            return Err(
                self.refused(format!("its parts have {bytes} bytes, and up to {RECORD_MAX} are written"))
            );
        }
        if let Some(key) = key {
            self.put_value(KEY, Value::Text(key.into()))?;
        }
        for (name, value) in parts {
            self.put_value(name, value.clone().into_owned())?;
        }
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        for column in &mut self.columns {
            column.values.resize(self.rows, None);
        }
        if self.bytes >= GROUP_BYTES || self.rows >= GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, existing: Existing) -> Result<(), FormatError> {
        if self.rows > 0 || self.writer.is_none() {
            self.flush()?;
        }
        let ParquetWriter { path, file, writer, .. } = *self;
        let failed = |error| FormatError::io(&path, "write the file", error);
        writer.map(ArrowWriter::close).transpose().map_err(|error| failed(std::io::Error::other(error)))?;
        file.finish_over(existing).map_err(failed)
    }
}

/// About how many bytes a value has.
fn bytes_of(value: &Value<'_>) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Text(text) | Value::Number(text) => text.len(),
        Value::Array(array) | Value::Listed(array) => array.bytes.len(),
        Value::List(values) => values.iter().map(bytes_of).fold(0, usize::saturating_add),
        Value::Struct(members) => {
            members.iter().map(|(_, value)| bytes_of(value)).fold(0, usize::saturating_add)
        }
        _ => size_of::<u64>(),
    }
}
