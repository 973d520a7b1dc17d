//! The records of data of any format, with their named parts: options of `cat`, `extract` and `convert
//! shards`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use percolator::source::Source;
use percolator_data::Kind;
use percolator_files::shown;
use percolator_formats::feed::parts_of_record;
use percolator_formats::{FormatError, Key, Part, Shard};

use crate::args::OpenArgs;
use crate::args::formats::FormatArgs;

/// How records are read.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    formats: FormatArgs,
    #[command(flatten)]
    open: OpenArgs,
}

/// Whether more records are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    GoesOn,
    Ends,
}

/// Takes a record: its number, its key, its parts.
type Take<'a> = &'a mut dyn FnMut(u64, &Key<'_>, &[Part<'_>]) -> anyhow::Result<Visit>;

impl RecordArgs {
    /// The shards at a path, if they are another library's.
    pub(crate) fn shards(&self, path: &Path) -> anyhow::Result<Option<Vec<Arc<dyn Shard>>>> {
        if !self.formats.is_of_another(path) {
            return Ok(None);
        }
        Ok(Some(self.formats.open(path, self.open.access())?.shards().to_vec()))
    }

    /// The sources at a path whose records are Percolator's own, and whether they have keys.
    pub(crate) fn sources(&self, path: &Path) -> anyhow::Result<(Vec<Arc<dyn Source>>, bool)> {
        let data = self.open.options().open(path)?;
        Ok((data.sources().to_vec(), data.kind() != Kind::TfRecord))
    }

    /// Visits all records in order, or the one with this number or key.
    pub(crate) fn visit(
        &self,
        paths: &[PathBuf],
        record: Option<&str>,
        take: Take<'_>,
    ) -> anyhow::Result<()> {
        let mut visitor = Visitor { number: 0, record, take, state: Visit::GoesOn, is_found: false };
        for path in paths {
            match self.shards(path)? {
                Some(shards) => shards.iter().try_for_each(|shard| visitor.visit_shard(shard))?,
                None => visitor.visit_sources(&self.sources(path)?.0)?,
            }
            if visitor.state == Visit::Ends {
                return Ok(());
            }
        }
        match record {
            Some(record) if !visitor.is_found => {
                bail!("there is no record {record:?} among {}", shown::count(visitor.number, "record"))
            }
            _ => Ok(()),
        }
    }
}

/// Counts records, and passes those that are wanted on.
struct Visitor<'a, 'b> {
    number: u64,
    record: Option<&'a str>,
    take: Take<'b>,
    state: Visit,
    is_found: bool,
}

impl Visitor<'_, '_> {
    /// Whether the next record is wanted, as far as its number tells.
    fn is_number_wanted(&self) -> bool {
        self.record.is_none_or(|record| record.parse() == Ok(self.number))
    }

    fn is_wanted(&self, key: &Key<'_>) -> bool {
        self.is_number_wanted()
            || self.record.is_some_and(|record| match key {
                Key::None => false,
                Key::Bytes(key) => *key == record.as_bytes(),
                // A number means the position.
                Key::Number(_) => false,
            })
    }

    fn pass(&mut self, key: &Key<'_>, parts: &[Part<'_>]) -> anyhow::Result<()> {
        self.state = (self.take)(self.number, key, parts)?;
        if self.record.is_some() {
            (self.is_found, self.state) = (true, Visit::Ends);
        }
        Ok(())
    }

    fn visit_shard(&mut self, shard: &Arc<dyn Shard>) -> anyhow::Result<()> {
        let grammar = shard.grammar();
        let mut cursor = Arc::clone(shard).cursor()?;
        while self.state == Visit::GoesOn {
            let Some(record) = cursor.advance()? else { break };
            if self.is_wanted(&record.key) {
                let parts = grammar.parts(record.value.bytes()).map_err(|fault| {
                    let error = FormatError::damaged(shard.path(), fault.to_string()).record(self.number);
                    match shard.line(record.place) {
                        Some(line) => error.line(line),
                        None => error,
                    }
                })?;
                self.pass(&record.key, &parts)?;
            }
            self.number += 1;
        }
        Ok(())
    }

    /// Visits the records of an LMDB, a LevelDB or TFRecord files.
    fn visit_sources(&mut self, sources: &[Arc<dyn Source>]) -> anyhow::Result<()> {
        for source in sources {
            let mut cursor = source.cursor()?;
            while self.state == Visit::GoesOn {
                let Some(entry) = cursor.advance()? else { break };
                let key = Key::Bytes(entry.key());
                if self.is_wanted(&key) {
                    let parts = parts_of_record(entry.value());
                    self.pass(&key, &parts)?;
                }
                self.number += 1;
            }
        }
        Ok(())
    }
}
