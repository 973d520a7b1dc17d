//! One record by itself: found by its number or its key, and taken apart.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use percolator::decoder::ImageFileDecoder;
use percolator::example::{Example, Feature, Features, SequenceExample};
use percolator::record::{Datum, Key};
use percolator::source::{Entry, Part, Source, SourceError};
use percolator_files::shown;
use serde::Serialize;

use super::features::values;
use super::pictures::Pixels;
use crate::content::{ChannelOrder, Content, Picture, PictureEncoding, Values, caught, kind_name};
use crate::open::{DataSet, Kind};
use crate::scan::ScanError;

/// Which record is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this number; if there are not as many records, the one with this key.
    Number(u64, Vec<u8>),
    /// The one with this key.
    Key(Vec<u8>),
}

/// A record.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number; `None` if it was found by its key without counting.
    pub number: Option<u64>,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The file or folder that it is in.
    pub source: PathBuf,
    /// What its value is.
    pub content: Content,
    /// How it is taken apart.
    values: Values,
}

/// A part of a record, as text.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldText {
    /// Its name.
    pub name: String,
    /// Its value, shortened.
    pub value: String,
}

/// Why there is no record.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The data set cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// There is no such record.
    #[error(
        "{}: there is no record with the key {key}{}",
        shown::path(path),
        match records {
            None => "; a number without leading zeros means a position".to_owned(),
            Some(0) => ": there are no records".to_owned(),
            Some(records) => format!(", and none with that number: the last is {}", records - 1),
        }
    )]
    Missing {
        /// The data set.
        path: PathBuf,
        /// The key.
        key: Key,
        /// The number of records, if a number was meant, too.
        records: Option<u64>,
    },
}

impl From<SourceError> for RecordError {
    fn from(error: SourceError) -> Self {
        RecordError::Scan(error.into())
    }
}

impl Which {
    /// Reads a word: a whole number without leading zeros is a number, and anything else a key.
    #[must_use]
    pub fn parse(word: &OsStr) -> Self {
        let key = word.as_bytes().to_vec();
        let is_plain = key == b"0" || (!key.starts_with(b"0") && key.iter().all(u8::is_ascii_digit));
        match word.to_str().filter(|_| is_plain).and_then(|word| word.parse().ok()) {
            Some(number) => Which::Number(number, key),
            None => Which::Key(key),
        }
    }
}

/// Finds a record.
///
/// # Errors
///
/// [`RecordError`].
pub fn record(data: &DataSet, which: &Which) -> Result<Record, RecordError> {
    let (key, records) = match which {
        Which::Number(number, key) => match at(data, *number)? {
            Ok(record) => return Ok(record),
            Err(records) => (key, Some(records)),
        },
        Which::Key(key) => (key, None),
    };
    let missing = || RecordError::Missing { path: data.path().to_owned(), key: Key(key.clone()), records };
    with_key(data, key)?.ok_or_else(missing)
}

/// The record at a position, or else the number of all records.
fn at(data: &DataSet, number: u64) -> Result<Result<Record, u64>, SourceError> {
    let mut before = 0;
    for source in data.sources() {
        if let Some(records) = source.records()
            && before + records <= number
        {
            before += records;
            continue;
        }
        let mut cursor = source.cursor()?;
        if source.is_seekable() {
            cursor.seek(number - before)?;
            before = number;
        }
        while before < number && cursor.skip()? {
            before += 1;
        }
        if before == number
            && let Some(entry) = cursor.advance()?
        {
            return Ok(Ok(Record::new(data, Some(number), &entry, &**source)));
        }
    }
    Ok(Err(before))
}

fn with_key(data: &DataSet, key: &[u8]) -> Result<Option<Record>, SourceError> {
    if let Some(leveldb) = &data.leveldb {
        let mut cursor = leveldb.range(Some(key), None)?;
        let found = cursor.advance()?.filter(|entry| entry.key() == key);
        return Ok(found.map(|entry| Record::new(data, None, &entry, leveldb)));
    }
    let is_sorted = data.kind() == Kind::Lmdb;
    let mut number = 0;
    for source in data.sources() {
        let mut cursor = source.cursor()?;
        while let Some(entry) = cursor.advance()? {
            if entry.key() == key {
                return Ok(Some(Record::new(data, Some(number), &entry, &**source)));
            }
            if is_sorted && entry.key() > key {
                return Ok(None);
            }
            number += 1;
        }
    }
    Ok(None)
}

impl Record {
    fn new(data: &DataSet, number: Option<u64>, entry: &Entry<'_>, source: &dyn Source) -> Self {
        let values = Values::of_value(data, entry.value());
        Record {
            number,
            key: entry.key().to_owned(),
            value: entry.value().to_owned(),
            source: source.path().to_owned(),
            content: values.content,
            values,
        }
    }

    /// The record with its value taken for this, whatever it looks like.
    #[must_use]
    pub fn taken_for(mut self, content: Content) -> Self {
        let stated = self.values.images.first().filter(|_| self.values.is_stated).cloned();
        self.content = content;
        self.values = Values::taken_for(content, stated.as_deref(), &self.value);
        self
    }

    /// What is in it, in the order of its fields.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldText> {
        let mut fields = Vec::new();
        match self.content {
            Content::Datum => {
                if let Ok(datum) = Datum::parse(&self.value) {
                    fields_of_datum(&datum, &mut fields);
                }
            }
            Content::Example => {
                if let Ok(example) = Example::parse(&self.value) {
                    fields_of(example.features(), "", &mut fields);
                }
            }
            Content::SequenceExample => {
                if let Ok(example) = SequenceExample::parse(&self.value) {
                    fields_of(example.context(), "context ", &mut fields);
                    for (name, list) in example.feature_lists().entries() {
                        let first = list.iter().next().map(text_of).unwrap_or_default();
                        let value = format!("{} features; the first: {first}", list.len());
                        fields.push(FieldText { name: format!("list {}", shown::message(name)), value });
                    }
                }
            }
            Content::Bytes => push(&mut fields, "bytes", bytes_text(&self.value)),
            Content::Parts => {
                if let Some((parts, _)) = &self.values.of_parts {
                    for name in parts.names(&self.value) {
                        let value = match parts.part(&self.value, &name) {
                            Ok(part) => text_of_part(part.as_ref()),
                            Err(fault) => fault.to_string(),
                        };
                        fields.push(FieldText { name: shown::message(&name).to_string(), value });
                    }
                }
            }
        }
        if let Some(image) = self.image(ChannelOrder::Bgr) {
            let value = match image {
                Ok((encoding, shape, _)) => format!("{shape} (channels, rows, columns), {encoding}"),
                Err(cause) => cause,
            };
            push(&mut fields, "image", value);
        }
        fields
    }

    /// Its image, decoded; `None` if it has none.
    ///
    /// # Errors
    ///
    /// What is wrong with the image.
    #[must_use]
    pub fn image(
        &self,
        channels: ChannelOrder,
    ) -> Option<Result<(PictureEncoding, percolator::batch::ImageShape, Pixels), String>> {
        let picture = match self.values.parts(&self.value) {
            Ok(parts) => parts.picture?,
            Err(cause) => return Some(Err(cause.to_string())),
        };
        let (encoding, channels) = (Picture::encoding(&picture), picture.channels(channels));
        let decoded = caught(&mut ImageFileDecoder::default(), ImageFileDecoder::default, |decoder| {
            let image = picture.decode(decoder)?;
            Ok((encoding, image.shape, Pixels::of(&image, channels)))
        });
        Some(decoded.map_err(|cause| cause.to_string()))
    }
}

fn push(fields: &mut Vec<FieldText>, name: &str, value: impl ToString) {
    fields.push(FieldText { name: name.to_owned(), value: value.to_string() });
}

fn fields_of_datum(datum: &Datum<'_>, fields: &mut Vec<FieldText>) {
    push(fields, "channels", datum.channels);
    push(fields, "height", datum.height);
    push(fields, "width", datum.width);
    push(fields, "label", datum.label);
    push(fields, "encoded", datum.encoded);
    push(fields, "data", bytes_text(datum.data));
    if !datum.floats.is_empty() {
        let mut floats = Vec::new();
        datum.floats.gather(&mut floats);
        push(fields, "float_data", list_text(floats.len(), floats.iter()));
    }
}

fn fields_of(features: Features<'_>, prefix: &str, fields: &mut Vec<FieldText>) {
    for (name, feature) in features.entries() {
        fields.push(FieldText { name: format!("{prefix}{}", shown::message(name)), value: text_of(feature) });
    }
}

/// A feature's kind and first values.
fn text_of(feature: Feature<'_>) -> String {
    let (kind, count) = (kind_name(feature), values(feature));
    let values = if let Some(list) = feature.ints() {
        list_text(count, list.iter())
    } else if let Some(list) = feature.floats() {
        list_text(count, list.iter())
    } else if let Some(list) = feature.bytes() {
        match (count, list.iter().next()) {
            (1, Some(only)) => bytes_text(only),
            (_, Some(first)) => format!("{count} strings; the first: {}", bytes_text(first)),
            (_, None) => "no strings".to_owned(),
        }
    } else {
        String::new()
    };
    format!("{kind}: {values}").trim_end_matches([' ', ':']).to_owned()
}

/// A part's type and first values.
fn text_of_part(part: Option<&Part<'_>>) -> String {
    match part {
        None => "null".to_owned(),
        Some(Part::Bytes(bytes)) => bytes_text(bytes),
        Some(Part::Strings(strings)) => match &strings[..] {
            [] => "no strings".to_owned(),
            [first, ..] => format!("{} strings; the first: {}", strings.len(), bytes_text(first)),
        },
        Some(Part::Int(number)) => number.to_string(),
        Some(Part::Float(number)) => number.to_string(),
        Some(Part::Numbers { dtype, values }) => {
            format!("{} of {dtype}", values.len() / dtype.size())
        }
        Some(_) => "a value of another kind".to_owned(),
    }
}

/// The most values that are shown of a list, and the most bytes of a string.
const VALUES_MAX: usize = 12;
const BYTES_MAX: usize = 48;

fn list_text<T: ToString>(count: usize, values: impl Iterator<Item = T>) -> String {
    let mut shown: Vec<String> = values.take(VALUES_MAX).map(|value| value.to_string()).collect();
    if count > VALUES_MAX {
        shown.push(format!("... ({count} values)"));
    }
    format!("[{}]", shown.join(", "))
}

fn bytes_text(bytes: &[u8]) -> String {
    let front = &bytes[..bytes.len().min(BYTES_MAX)];
    let is_text = std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control));
    match is_text && bytes.len() <= BYTES_MAX {
        true => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        false => {
            let more = if front.len() < bytes.len() { "..." } else { "" };
            format!("{} bytes: {}{more}", bytes.len(), front.escape_ascii())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_number_or_a_key() {
        let number = |number: u64| Which::Number(number, number.to_string().into_bytes());
        assert_eq!(Which::parse(OsStr::new("0")), number(0));
        assert_eq!(Which::parse(OsStr::new("17")), number(17));
        for key in ["00000017", "00", "17_cat.jpg", "cat", "", "-1", "99999999999999999999999"] {
            assert_eq!(Which::parse(OsStr::new(key)), Which::Key(key.as_bytes().to_vec()), "{key:?}");
        }
        let foreign = OsStr::from_bytes(b"\xff7");
        assert_eq!(Which::parse(foreign), Which::Key(b"\xff7".to_vec()));
    }

    #[test]
    fn values_are_shortened() {
        assert_eq!(bytes_text(b"cat"), "\"cat\"");
        assert_eq!(bytes_text(b"\0\x01"), "2 bytes: \\x00\\x01");
        assert_eq!(bytes_text(&[b'a'; 100]), format!("100 bytes: {}...", "a".repeat(48)));
        assert_eq!(list_text(2, [1, 2].iter()), "[1, 2]");
        assert!(list_text(99, 0..99).ends_with("11, ... (99 values)]"));
    }
}
