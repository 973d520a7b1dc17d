//! MXNet's lists (`im2rec`): a key, labels and a path a line, separated by tabs. Plain, `.gz` or `.zst`.
//!
//! The key is the record's. Parts: `label`, the number as it is written, or a list if a line has several; and
//! `path`. Paths are bytes: text only if they are UTF-8.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::path::Path;
use std::sync::Arc;

use percolator_files::shown;

use crate::known_settings::KnownSettings;
use crate::list::path_of;
use crate::text::{TextFormat, TextShard, Wrong, line_end};
use crate::unpack::Packing;
use crate::{Fault, FormatError, Grammar, Key, Options, Part, Shard, Value};

/// Opens a file.
///
/// # Errors
///
/// [`FormatError`] if it cannot be opened; settings are refused, as there are none.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "lst", options, &[])?;
    Ok(vec![TextShard::open(path, options, |_| Ok(LstGrammar))?])
}

/// Whether a file is of this format: its name says so, `.lst`, with `.gz` or `.zst` if it is compressed.
#[must_use]
pub fn is(path: &Path, _head: &[u8]) -> bool {
    Packing::inner_name(path).extension().is_some_and(|found| found.eq_ignore_ascii_case("lst"))
}

/// A line's key, labels with the tabs between, and path.
struct LstEntry<'a> {
    key: u64,
    labels: &'a str,
    path: &'a [u8],
}

impl<'a> LstEntry<'a> {
    fn of(line: &'a [u8]) -> Result<Self, String> {
        let first = memchr::memchr(b'\t', line);
        let last = memchr::memrchr(b'\t', line);
        let tabs = first.zip(last).filter(|(first, last)| first < last);
        let (first, last) = tabs.ok_or("a key, labels and a path are expected, separated by tabs")?;
        let key = line.get(..first).and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
        let key = key.ok_or_else(|| {
            let found = shown::quoted(line.get(..first).unwrap_or_default()).to_string();
            format!("the key, {found}, is no integer from 0 on")
        })?;
        let labels = line.get(first.saturating_add(1)..last).unwrap_or_default();
        let is_number = |label: &str| label.parse::<f64>().is_ok();
        let numbers = std::str::from_utf8(labels).ok().filter(|labels| labels.split('\t').all(is_number));
        let labels =
            numbers.ok_or_else(|| format!("the labels, {}, are not numbers", shown::quoted(labels)))?;
        match line.get(last.saturating_add(1)..).unwrap_or_default() {
            b"" => Err("the line has no path".to_owned()),
            path => Ok(LstEntry { key, labels, path }),
        }
    }

    fn label(&self) -> Value<'a> {
        let one = |label: &'a str| Value::Text(label.into());
        match self.labels.contains('\t') {
            true => Value::List(self.labels.split('\t').map(one).collect()),
            false => one(self.labels),
        }
    }
}

/// Finds labels and path of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LstGrammar;

impl TextFormat for LstGrammar {
    type Scan = usize;

    fn end(&self, window: &[u8], scanned: &mut usize) -> Result<Option<usize>, Wrong> {
        Ok(line_end(window, scanned))
    }

    fn check(&self, record: &[u8], _scanned: &usize) -> Result<(), Wrong> {
        if let Some(at) = memchr::memchr(0, record) {
            return Err(Wrong::new(at, "NUL stands in the line, and no path has it"));
        }
        LstEntry::of(record).map(|_| ()).map_err(|what| Wrong::new(0, what))
    }

    fn key<'a>(&self, record: &'a [u8]) -> Key<'a> {
        LstEntry::of(record).map_or(Key::None, |entry| Key::Number(entry.key))
    }
}

impl Grammar for LstGrammar {
    fn description(&self) -> String {
        "lines of a key, labels and a path".to_owned()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(vec!["label".to_owned(), "path".to_owned()])
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let entry = LstEntry::of(value).map_err(Fault)?;
        Ok(vec![("label".into(), entry.label()), ("path".into(), path_of(entry.path))])
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let entry = LstEntry::of(value).map_err(Fault)?;
        Ok(match name {
            "label" => Some(entry.label()),
            "path" => Some(path_of(entry.path)),
            _ => None,
        })
    }
}
