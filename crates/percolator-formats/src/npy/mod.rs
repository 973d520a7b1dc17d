//! Arrays as NumPy saves them: `.npy`.
//!
//! Records are the rows on the first axis. A row is lent as it lies in the file; in Fortran order, or with
//! the other end first, it is copied. An array is the part `array`; of an array of structures, each field is
//! a part, and padding is left out. Objects are refused: they are pickles.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod array;
mod form;
mod header;
mod literal;
mod table;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::array::RowReader;
pub(crate) use self::array::{NpySource, header_of, header_of_reader};
use self::form::NpyForm;
use self::header::NpyHeader;
pub(crate) use self::table::{ArrayTable, PackedColumn, TableColumn, TableSource, check_names};
use crate::known_settings::KnownSettings;
use crate::{
    Cursor, DataFile, Fault, FormatError, Grammar, Key, Options, Part, Place, Record, Seeks, Shard, Value,
};

/// The part that an array is.
const ARRAY: &str = "array";

/// Tells an NPY file by its first bytes.
#[must_use]
pub fn is(_path: &Path, head: &[u8]) -> bool {
    head.starts_with(header::MAGIC)
}

/// Opens one array. It has no settings.
///
/// # Errors
///
/// [`FormatError::Damaged`] if the header is none, or states more than there is;
/// [`FormatError::Refused`] for objects and times.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "npy", options, &[])?;
    let source = NpySource::whole(DataFile::open(path, options.access)?);
    let header = header_of(&source, path, None)?;
    let grammar = Arc::new(NpyGrammar { row: header.row.clone() });
    Ok(vec![Arc::new(NpyShard { path: path.to_owned(), source, header, grammar })])
}

/// Joins arrays with equal first axes into one shard: a part each, named as the file without `.npy`.
///
/// # Errors
///
/// As [`open`]; [`FormatError::Refused`] if the first axes differ, or two names are equal.
pub fn join(paths: &[PathBuf], options: &Options) -> Result<Arc<dyn Shard>, FormatError> {
    let Some(first) = paths.first() else {
        return Err(FormatError::refused(Path::new(""), "no array is named to be joined"));
    };
    KnownSettings::of(first, "npy", options, &[])?;
    let name_of = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<_> = paths.iter().map(|path| name_of(path)).collect();
    check_names(first, &names)?;

    let mut columns = Vec::new();
    for (path, name) in paths.iter().zip(names) {
        if !options.wants(&name) {
            continue;
        }
        let source = NpySource::whole(DataFile::open(path, options.access)?);
        let header = header_of(&source, path, None)?;
        columns.push(TableColumn { name, path: path.clone(), header, source: TableSource::Open(source) });
    }
    let folder = first.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(first);
    let path = if paths.len() > 1 { folder } else { first };
    Ok(Arc::new(ArrayTable::new(path, columns, paths.to_vec())?))
}

/// The array that an NPY file in memory is. Numbers in C order, with the least byte first, are lent.
/// Structures and texts are lists. Bytes behind the array are left out, as in NumPy.
///
/// # Errors
///
/// [`Fault`] if it is damaged or refused, as in [`open`].
pub fn value(bytes: &[u8]) -> Result<Value<'_>, Fault> {
    array::value_of(bytes)
}

/// One array in a file.
#[derive(Debug)]
struct NpyShard {
    path: PathBuf,
    source: NpySource,
    header: NpyHeader,
    grammar: Arc<NpyGrammar>,
}

impl Shard for NpyShard {
    fn path(&self) -> &Path {
        &self.path
    }

    fn records(&self) -> Option<u64> {
        Some(self.header.rows.unwrap_or_default())
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.grammar) as _
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(NpyCursor { shard: self, at: 0, reader: RowReader::default() }))
    }
}

#[derive(Debug)]
struct NpyCursor {
    shard: Arc<NpyShard>,
    at: u64,
    reader: RowReader,
}

impl Cursor for NpyCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let NpyShard { header, source, .. } = &*self.shard;
        if self.at >= header.rows.unwrap_or_default() {
            return Ok(None);
        }
        let value = self.reader.row(header, source, self.at)?;
        let place = [self.at, 0];
        self.at = self.at.saturating_add(1);
        Ok(Some(Record { key: Key::None, value, place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        let place = [self.at, 0];
        if self.at >= self.shard.header.rows.unwrap_or_default() {
            return Ok(None);
        }
        self.at = self.at.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        let rows = self.shard.header.rows.unwrap_or_default();
        check_row(&self.shard.path, place, rows)?;
        let [row, _] = place;
        self.at = row;
        Ok(())
    }
}

/// Whether a place is that of a row.
pub(crate) fn check_row(path: &Path, place: Place, rows: u64) -> Result<(), FormatError> {
    let [row, _] = place;
    if row < rows {
        return Ok(());
    }
    let what = format!("row {row} is wanted, and there are {rows}: the file has changed");
    Err(FormatError::damaged(path, what))
}

/// Finds the fields of a structure, or has the array.
#[derive(Debug)]
struct NpyGrammar {
    row: NpyForm,
}

impl Grammar for NpyGrammar {
    fn description(&self) -> String {
        match self.row.fields() {
            Some(_) => format!("fields {}", self.row.name()),
            None => format!("{ARRAY}: {}", self.row.name()),
        }
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(match self.row.fields() {
            Some(fields) => fields.iter().map(|field| field.name.clone()).collect(),
            None => vec![ARRAY.to_owned()],
        })
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        match self.row.fields() {
            Some(_) => self.row.parts(value),
            None => Ok(vec![(Cow::Borrowed(ARRAY), self.row.value(value)?)]),
        }
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        match self.row.fields() {
            Some(_) => self.row.part(value, name),
            None if name == ARRAY => self.row.value(value).map(Some),
            None => Ok(None),
        }
    }
}
