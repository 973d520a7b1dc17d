//! `percolator cat`: the records of a data set, with their parts.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use percolator_files::shown;
use percolator_formats::{Key, Part, Value, notation};

use crate::args::records::{RecordArgs, Visit};
use crate::terminal::out::{printable, stdout};

/// The most characters of a text that are shown to people.
const SHOWN_MAX: usize = 80;

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// The data: files, folders, or quoted patterns, of any format that is read, in this order.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    records: RecordArgs,
    /// Print this record only: its number over all paths, from 0, or its key.
    #[arg(long, value_name = "N|KEY")]
    record: Option<String>,
    /// Print only so many records.
    #[arg(long, value_name = "N")]
    head: Option<u64>,
    /// Print a line of JSON for each record: bytes and long arrays by their lengths and SHA-256 sums.
    #[arg(long)]
    json: bool,
}

impl Cat {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut out = stdout();
        let mut left = self.head.unwrap_or(u64::MAX);
        let shown = self.records.visit(&self.paths, self.record.as_deref(), &mut |number, key, parts| {
            if left == 0 {
                return Ok(Visit::Ends);
            }
            left -= 1;
            if self.json {
                writeln!(out, "{}", notation::record(number, key, parts))?;
            } else {
                for line in lines(number, key, parts) {
                    writeln!(out, "{line}")?;
                }
            }
            Ok(if left == 0 { Visit::Ends } else { Visit::GoesOn })
        });
        // What was read before an error is printed.
        out.finish()?;
        shown
    }
}

/// A record for people: its number and key, and a line for each part.
fn lines(number: u64, key: &Key<'_>, parts: &[Part<'_>]) -> Vec<String> {
    let key = match key {
        Key::None => String::new(),
        Key::Number(key) => format!("  {key}"),
        Key::Bytes(key) => format!("  {}", printable(&shown::quoted(key).to_string())),
    };
    let width = parts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let part = |(name, value): &Part<'_>| {
        let name = printable(name);
        format!("    {name:width$}  {}", said(value))
    };
    std::iter::once(format!("{number}{key}")).chain(parts.iter().map(part)).collect()
}

/// A value in a line.
fn said(value: &Value<'_>) -> String {
    match value {
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::Text(text) => {
            let short: String = text.chars().take(SHOWN_MAX).collect();
            let more = if short.len() < text.len() { " ..." } else { "" };
            format!("{}{more}", printable(&format!("{short:?}")))
        }
        Value::Array(array) => {
            let shape: Vec<_> = array.shape.iter().map(ToString::to_string).collect();
            format!("{} [{}]", array.dtype.numpy(), shape.join("x"))
        }
        other => {
            let text = notation::value(other).to_string();
            let short: String = text.chars().take(SHOWN_MAX).collect();
            printable(&if short.len() < text.len() { format!("{short} ...") } else { short })
        }
    }
}
