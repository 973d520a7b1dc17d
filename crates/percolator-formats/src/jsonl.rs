//! JSON Lines: each line is a JSON value. Plain, `.gz` or `.zst`.
//!
//! A record is the line. If it is an object, its members are the parts; any other value is one part, `value`.
//! The value is parsed by who uses it: a fault in it has the column, and [`Shard::line`] finds the line.

use std::path::Path;
use std::sync::Arc;

use crate::json;
use crate::known_settings::KnownSettings;
use crate::text::{TextFormat, TextShard, Wrong, line_end};
use crate::unpack::Packing;
use crate::{Fault, FormatError, Grammar, Options, Part, Shard, Value};

/// The part of a record that is no object.
const VALUE: &str = "value";

/// Opens a file.
///
/// # Errors
///
/// [`FormatError`] if it cannot be opened, or is UTF-16; settings are refused, as there are none.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "jsonl", options, &[])?;
    Ok(vec![TextShard::open(path, options, |_| Ok(JsonLines))?])
}

/// Whether a file is of this format: its name says so, `.jsonl` or `.ndjson`, with `.gz` or `.zst` if it is
/// compressed.
#[must_use]
pub fn is(path: &Path, _head: &[u8]) -> bool {
    let name = Packing::inner_name(path);
    let extension = name.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["jsonl", "ndjson"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Finds the members of a line's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JsonLines;

impl TextFormat for JsonLines {
    type Scan = usize;

    fn end(&self, window: &[u8], scanned: &mut usize) -> Result<Option<usize>, Wrong> {
        Ok(line_end(window, scanned))
    }
}

impl Grammar for JsonLines {
    fn description(&self) -> String {
        "JSON, one value a line".to_owned()
    }

    fn names(&self) -> Option<Vec<String>> {
        None
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        Ok(match json::value(value)? {
            Value::Struct(members) => members,
            other => vec![(VALUE.into(), other)],
        })
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        match json::is_object(value) {
            true => json::member(value, name),
            false if name == VALUE => json::value(value).map(Some),
            false => Ok(None),
        }
    }
}
