//! Comma-separated values (RFC 4180), and their like with tabs or other delimiters. Plain, `.gz` or `.zst`.
//!
//! A record is a line, or several where a quoted field has line breaks. Its parts are the fields as text, by
//! the columns' names. Settings:
//!
//! - `header`: `true` if the first record has the columns' names, `false` if it is data. If neither is said
//!   nor `columns`, the first record must look like names.
//! - `columns`: the names, separated by commas: of a file without a header, or in place of its header's.
//! - `delimiter`: one character, or `tab`. By default a tab in `.tsv` files, else a comma.
//! - `quote`: one character, or `none`. By default `"`.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use percolator_files::shown;

use crate::known_settings::KnownSettings;
use crate::text::{TextFormat, TextShard, Wrong};
use crate::unpack::Packing;
use crate::{Fault, FormatError, Grammar, Options, Part, Shard, Value};

/// Opens a file.
///
/// # Errors
///
/// [`FormatError`] if it cannot be opened, a setting is unknown, or the columns' names are not known.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "csv", options, &["header", "columns", "delimiter", "quote"])?;
    let dialect = CsvDialect::of(path, &settings)?;
    let header = settings.truth("header")?;
    let columns =
        settings.get("columns").map(|names| names.split(',').map(str::to_owned).collect::<Vec<_>>());
    let shard = TextShard::open(path, options, |beginning| {
        let path = beginning.path().to_owned();
        let take = |record: &[u8]| take_header(dialect, record, header, columns.as_deref());
        // No column is expected yet.
        let names = beginning.first(&CsvGrammar { dialect, names: Vec::new() }, take)?;
        let names = names.or(columns).unwrap_or_default();
        check_names(&names).map_err(|what| FormatError::damaged(&path, what).line(1))?;
        Ok(CsvGrammar { dialect, names })
    })?;
    Ok(vec![shard])
}

/// Whether a file is of this format: its name says so, `.csv` or `.tsv`, with `.gz` or `.zst` if it is
/// compressed.
#[must_use]
pub fn is(path: &Path, _head: &[u8]) -> bool {
    has_extension(path, "csv") || has_extension(path, "tsv")
}

fn has_extension(path: &Path, extension: &str) -> bool {
    Packing::inner_name(path).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// Names the columns after the first record and the settings; true if the record is no data.
fn take_header(
    dialect: CsvDialect,
    record: &[u8],
    header: Option<bool>,
    columns: Option<&[String]>,
) -> Result<(Vec<String>, bool), Wrong> {
    let fields = CsvFields { dialect, rest: Some(record) };
    let text = |field: Result<Cow<'_, [u8]>, &str>| {
        let field = field.map_err(|what| Wrong::new(0, what))?;
        String::from_utf8(field.into_owned()).map_err(|_| Wrong::new(0, "the header is not UTF-8"))
    };
    let first = fields.map(text).collect::<Result<Vec<_>, _>>()?;
    let is_header = header.unwrap_or(columns.is_none());
    if let Some(columns) = columns {
        if columns.len() != first.len() {
            let what = format!(
                "the first record has {}, and the setting columns names {}",
                shown::count(first.len() as u64, "field"),
                columns.len()
            );
            return Err(Wrong::new(0, what));
        }
        return Ok((columns.to_vec(), is_header));
    }
    if !is_header {
        return Ok(((0..first.len()).map(|number| number.to_string()).collect(), false));
    }
    let is_name = |name: &String| !name.trim().is_empty() && name.trim().parse::<f64>().is_err();
    if let Some(name) = first.iter().find(|name| !is_name(name)).filter(|_| header.is_none()) {
        let what = format!(
            "the first record does not look like a header: a column would have the name {name:?}. Set \
             header=true if it is one, header=false or columns=NAME,NAME if it is data"
        );
        return Err(Wrong::new(0, what));
    }
    if let ([only], None) = (&*first, header)
        && let Some(other) = [';', '\t', '|'].into_iter().find(|other| only.contains(*other))
    {
        let what = format!(
            "the only column would have the name {only:?}: set delimiter={}, or header=true if it has",
            if other == '\t' { "tab".to_owned() } else { other.to_string() }
        );
        return Err(Wrong::new(0, what));
    }
    Ok((first, true))
}

fn check_names(names: &[String]) -> Result<(), String> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    match sorted.windows(2).find_map(|pair| pair.first().filter(|first| pair.last() == Some(first))) {
        Some(name) => Err(format!("two columns have the name {name:?}; name them with the setting columns")),
        None => Ok(()),
    }
}

/// How fields are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CsvDialect {
    delimiter: u8,
    quote: Option<u8>,
}

impl CsvDialect {
    fn of(path: &Path, settings: &KnownSettings<'_>) -> Result<Self, FormatError> {
        let one = |name: &str, value: &str| match *value.as_bytes() {
            [byte @ (b'\t' | b' '..=b'~')] => Ok(byte),
            _ => Err(settings.refuse(
                name,
                value,
                "one ASCII character, tab for the delimiter, none for the quote",
            )),
        };
        let delimiter = match settings.get("delimiter") {
            None if has_extension(path, "tsv") => b'\t',
            None => b',',
            Some("tab" | "\\t") => b'\t',
            Some(value) => one("delimiter", value)?,
        };
        let quote = match settings.get("quote") {
            None => Some(b'"'),
            Some("none") => None,
            Some(value) => Some(one("quote", value)?),
        };
        if quote == Some(delimiter) {
            return Err(settings.refuse(
                "quote",
                &char::from(delimiter).to_string(),
                "other than the delimiter",
            ));
        }
        Ok(CsvDialect { delimiter, quote })
    }
}

/// How far the search for a record's end has come.
#[derive(Debug, Default)]
struct CsvScan {
    at: usize,
    state: CsvState,
    /// The delimiters so far.
    delimiters: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum CsvState {
    #[default]
    FieldBegins,
    Plain,
    /// In quotes that were opened there.
    Quoted(usize),
    /// Behind a quote that closes, or is the first of two.
    QuoteSeen(usize),
    /// Behind a carriage return outside of quotes, which must be a part of a line's end.
    ReturnSeen,
}

/// Finds the fields of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CsvGrammar {
    dialect: CsvDialect,
    /// Empty only while the header is read.
    names: Vec<String>,
}

impl TextFormat for CsvGrammar {
    type Scan = CsvScan;

    fn end(&self, window: &[u8], scan: &mut CsvScan) -> Result<Option<usize>, Wrong> {
        let CsvDialect { delimiter, quote } = self.dialect;
        loop {
            let rest = window.get(scan.at..).unwrap_or_default();
            let Some(&byte) = rest.first() else { return Ok(None) };
            let here = scan.at;
            // Where the next byte that matters is, from here.
            let skipped = match scan.state {
                CsvState::FieldBegins if Some(byte) != quote => Some(0),
                CsvState::Plain => memchr::memchr3(delimiter, b'\n', b'\r', rest),
                CsvState::Quoted(_) => quote.and_then(|quote| memchr::memchr(quote, rest)),
                _ => Some(0),
            };
            let Some(skipped) = skipped else {
                scan.at = window.len();
                return Ok(None);
            };
            let byte = rest.get(skipped).copied().unwrap_or(byte);
            let next = here.saturating_add(skipped).saturating_add(1);
            scan.at = next;
            scan.state = match (scan.state, byte) {
                (CsvState::FieldBegins, _) if Some(byte) == quote => CsvState::Quoted(here),
                // The byte is looked at again, as one of the field.
                (CsvState::FieldBegins, _) => {
                    scan.at = here;
                    CsvState::Plain
                }
                (CsvState::Quoted(opened), _) => CsvState::QuoteSeen(opened),
                (CsvState::QuoteSeen(opened), _) if Some(byte) == quote => CsvState::Quoted(opened),
                (CsvState::QuoteSeen(_) | CsvState::ReturnSeen | CsvState::Plain, b'\n') => {
                    return Ok(Some(next.saturating_sub(1)));
                }
                (CsvState::QuoteSeen(_) | CsvState::Plain, b'\r') => CsvState::ReturnSeen,
                (CsvState::QuoteSeen(_) | CsvState::Plain, _) if byte == delimiter => {
                    scan.delimiters = scan.delimiters.saturating_add(1);
                    CsvState::FieldBegins
                }
                (CsvState::QuoteSeen(_), _) => {
                    let what = "text follows the quote that ends a field; a quote inside is doubled";
                    return Err(Wrong::new(here, what));
                }
                // Line ends of old Macs.
                (CsvState::ReturnSeen, _) => {
                    let what = "a carriage return without a line feed stands outside of quotes";
                    return Err(Wrong::new(here, what));
                }
                (CsvState::Plain, _) => CsvState::Plain,
            };
        }
    }

    fn may_end(&self, scan: &CsvScan) -> Result<(), Wrong> {
        match scan.state {
            CsvState::Quoted(opened) => Err(Wrong::new(
                opened,
                "the quote that opens here is not closed: the rest of the file would be one field",
            )),
            _ => Ok(()),
        }
    }

    fn is_blank(&self, line: &[u8]) -> bool {
        line.is_empty()
    }

    fn check(&self, record: &[u8], scan: &CsvScan) -> Result<(), Wrong> {
        if let Some(at) = memchr::memchr(0, record) {
            return Err(Wrong::new(
                at,
                "NUL stands in a field, and is no text: the file is damaged, or is UTF-16",
            ));
        }
        if let Err(error) = std::str::from_utf8(record) {
            let what =
                "the record is not UTF-8; convert the file, from Latin-1 say: iconv -f latin1 -t utf-8";
            return Err(Wrong::new(error.valid_up_to(), what));
        }
        let fields = scan.delimiters.saturating_add(1);
        if !self.names.is_empty() && fields != self.names.len() as u64 {
            let what = format!(
                "the record has {}, and {} are expected: {}",
                shown::count(fields, "field"),
                self.names.len(),
                shown::line(&self.names.join(", "))
            );
            return Err(Wrong::new(0, what));
        }
        Ok(())
    }
}

/// The fields of a record.
struct CsvFields<'a> {
    dialect: CsvDialect,
    /// What is left; `None` behind the last field.
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for CsvFields<'a> {
    type Item = Result<Cow<'a, [u8]>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let CsvDialect { delimiter, quote } = self.dialect;
        if let Some((quote, inside)) =
            quote.zip(rest.split_first()).filter(|(quote, (first, _))| quote == *first)
        {
            return Some(self.quoted(quote, inside.1));
        }
        let end = memchr::memchr(delimiter, rest);
        let field = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.rest = end.and_then(|end| rest.get(end.saturating_add(1)..));
        Some(Ok(Cow::Borrowed(field)))
    }
}

impl<'a> CsvFields<'a> {
    /// Takes a field whose first quote is passed.
    fn quoted(&mut self, quote: u8, inside: &'a [u8]) -> Result<Cow<'a, [u8]>, &'static str> {
        let (mut rest, mut joined) = (inside, None::<Vec<u8>>);
        loop {
            let end = memchr::memchr(quote, rest).ok_or("a quote is not closed")?;
            let (before, after) = rest.split_at_checked(end).unwrap_or_default();
            // Behind the quote.
            let after = after.get(1..).unwrap_or_default();
            match after.first() {
                Some(next) if *next == quote => {
                    let joined = joined.get_or_insert_default();
                    joined.extend_from_slice(before);
                    joined.push(quote);
                    rest = after.get(1..).unwrap_or_default();
                    continue;
                }
                Some(next) if *next == self.dialect.delimiter => self.rest = after.get(1..),
                Some(_) => return Err("text follows the quote that ends a field"),
                None => {}
            }
            return Ok(match joined {
                None => Cow::Borrowed(before),
                Some(mut joined) => {
                    joined.extend_from_slice(before);
                    Cow::Owned(joined)
                }
            });
        }
    }
}

/// A field as text.
fn text_of<'a>(field: Result<Cow<'a, [u8]>, &'static str>) -> Result<Value<'a>, Fault> {
    let not_text = || Fault::new("a field is not UTF-8");
    Ok(Value::Text(match field.map_err(Fault::new)? {
        Cow::Borrowed(field) => Cow::Borrowed(std::str::from_utf8(field).map_err(|_| not_text())?),
        Cow::Owned(field) => Cow::Owned(String::from_utf8(field).map_err(|_| not_text())?),
    }))
}

impl Grammar for CsvGrammar {
    fn description(&self) -> String {
        let CsvDialect { delimiter, quote } = self.dialect;
        let quote = quote.map_or_else(|| "none".to_owned(), |quote| char::from(quote).to_string());
        format!("fields {:?}, delimiter {:?}, quote {quote}", self.names, char::from(delimiter))
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.names.clone())
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let mut fields = CsvFields { dialect: self.dialect, rest: Some(value) };
        let mut parts = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let field = fields.next().ok_or_else(|| Fault::new(format!("the field {name:?} is missing")))?;
            parts.push((Cow::Borrowed(name.as_str()), text_of(field)?));
        }
        Ok(parts)
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let Some(index) = self.names.iter().position(|known| known == name) else { return Ok(None) };
        let mut fields = CsvFields { dialect: self.dialect, rest: Some(value) };
        fields.nth(index).map(text_of).transpose()
    }
}
