//! Caffe's lists of images: a path and an integer a line. Plain, `.gz` or `.zst`.
//!
//! As Caffe does, a line is split at its last space, so a path may have spaces. Parts: `path`, and `label` as
//! it is written. Paths are bytes: text only if they are UTF-8.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::path::Path;
use std::sync::Arc;

use percolator_files::shown;

use crate::known_settings::KnownSettings;
use crate::text::{TextFormat, TextShard, Wrong, line_end};
use crate::{Fault, FormatError, Grammar, Options, Part, Shard, Value};

/// Opens a file.
///
/// # Errors
///
/// [`FormatError`] if it cannot be opened; settings are refused, as there are none.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "list", options, &[])?;
    Ok(vec![TextShard::open(path, options, |_| Ok(ListGrammar))?])
}

/// Whether a file is of this format: a text (`.txt`, `.list`) whose first lines end with a space and an
/// integer.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    let is_named = ["txt", "list"].iter().any(|known| path.extension().is_some_and(|found| found == *known));
    // The last line may go on behind the head.
    let lines = memchr::memrchr(b'\n', head).and_then(|end| head.get(..end)).unwrap_or_default();
    let mut lines = lines.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    is_named && !head.contains(&0) && lines.all(|line| split(line).is_ok()) && head.contains(&b' ')
}

/// Splits a line at its last space.
fn split(line: &[u8]) -> Result<(&[u8], &str), String> {
    let space = memchr::memrchr(b' ', line).unwrap_or(line.len());
    let (path, label) = line.split_at_checked(space).unwrap_or_default();
    let label = label.strip_prefix(b" ").unwrap_or(label);
    match std::str::from_utf8(label).ok().filter(|label| label.parse::<i64>().is_ok()) {
        Some(label) if !path.is_empty() => Ok((path, label)),
        Some(_) => Err("the line has no path before its label".to_owned()),
        None => Err(format!(
            "a space and an integer must end the line, and it ends with {}",
            shown::quoted(if label.is_empty() { line } else { label })
        )),
    }
}

/// Finds path and label of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListGrammar;

impl TextFormat for ListGrammar {
    type Scan = usize;

    fn end(&self, window: &[u8], scanned: &mut usize) -> Result<Option<usize>, Wrong> {
        Ok(line_end(window, scanned))
    }

    fn check(&self, record: &[u8], _scanned: &usize) -> Result<(), Wrong> {
        if let Some(at) = memchr::memchr(0, record) {
            return Err(Wrong::new(at, "NUL stands in the line, and no path has it"));
        }
        split(record).map(|_| ()).map_err(|what| Wrong::new(0, what))
    }
}

/// A path as text, or as bytes if it is none.
pub(crate) fn path_of(path: &[u8]) -> Value<'_> {
    std::str::from_utf8(path).map_or(Value::Bytes(path.into()), |path| Value::Text(path.into()))
}

impl Grammar for ListGrammar {
    fn description(&self) -> String {
        "lines of a path and an integer label".to_owned()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(vec!["path".to_owned(), "label".to_owned()])
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let (path, label) = split(value).map_err(Fault)?;
        Ok(vec![("path".into(), path_of(path)), ("label".into(), Value::Text(label.into()))])
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let (path, label) = split(value).map_err(Fault)?;
        Ok(match name {
            "path" => Some(path_of(path)),
            "label" => Some(Value::Text(label.into())),
            _ => None,
        })
    }
}
