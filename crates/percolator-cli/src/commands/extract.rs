//! `percolator extract`: a part of a record, as it is stored.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use percolator_files::shown;
use percolator_files::whole_file::{self, Existing};
use percolator_formats::Value;

use crate::args::records::{RecordArgs, Visit};
use crate::terminal::out::stdout;

#[derive(Debug, Args)]
pub(crate) struct Extract {
    /// The data: files, folders, or quoted patterns, of any format that is read, in this order.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    records: RecordArgs,
    /// The record: its number over all paths, from 0, or its key.
    #[arg(long, value_name = "N|KEY")]
    record: String,
    /// The part. A text is written in UTF-8, numbers as they are in memory, little-endian; anything else as
    /// JSON.
    #[arg(long, value_name = "NAME")]
    part: String,
    /// Write to this file instead of the standard output.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long, requires = "out")]
    force: bool,
}

impl Extract {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut found = None;
        self.records.visit(&self.paths, Some(&self.record), &mut |number, _, parts| {
            let names = || parts.iter().map(|(name, _)| name.as_ref()).collect::<Vec<_>>().join(", ");
            let Some((_, value)) = parts.iter().find(|(name, _)| *name == self.part) else {
                bail!("record {number} has no part {:?}; it has {}", self.part, names());
            };
            found = Some(match value {
                Value::Bytes(bytes) => bytes.to_vec(),
                Value::Text(text) | Value::Number(text) => text.as_bytes().to_vec(),
                Value::Array(array) => array.bytes.to_vec(),
                other => percolator_formats::notation::value(other).to_string().into_bytes(),
            });
            Ok(Visit::Ends)
        })?;
        let bytes = found.with_context(|| format!("there is no record {}", self.record))?;
        match &self.out {
            None => stdout().text(&bytes),
            Some(path) => {
                let existing = Existing::replaced_if(self.force);
                whole_file::write_over(path, &[&bytes], existing)
                    .with_context(|| format!("{}: cannot write the part", shown::path(path)))
            }
        }
    }
}
