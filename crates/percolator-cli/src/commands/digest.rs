//! `percolator digest`: computes the digest of a data set, against which a run's receipts are verified.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use percolator::receipt::{DataDigest, DigestDetail};
use percolator_files::shown;
use percolator_proof::digest_watched;
use serde_json::{Value, json};

use crate::args::source::SourceArgs;
use crate::args::{StateArgs, TransformArgs};
use crate::output::{self, FileKind, Output};
use crate::terminal::out::{json_line, stdout};
use crate::terminal::progress::{rate, watched};

#[derive(Debug, Args)]
pub(crate) struct Digest {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    state: StateArgs,
    /// Also write 64 bits of each record's hash (16 bytes of text per record). The digest then also proves
    /// epochs that are under way or that drop records.
    #[arg(long)]
    each_record: bool,
    /// Write to this file instead of the standard output.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the sum as JSON, in place of the digest.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

impl Digest {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Fails now, rather than after an hour of reading, if the file cannot be written.
        let out = self.out.as_deref().map(|path| Output::of_run(path, FileKind::Digest)).transpose()?;
        let source = self.source.found(self.state.root(), self.quiet || self.json)?;
        if let Some(out) = &self.out {
            source.check_output(out, self.state.root())?;
        }
        let described = source.describe(&self.state, &TransformArgs::default())?;
        let detail = if self.each_record { DigestDetail::EachRecord } else { DigestDetail::Sum };
        let digest = watched(self.quiet, rate, |progress, _| {
            let digest = digest_watched(&described.feed, detail, progress)?;
            digest.context("stopped before the end, so there is no digest")
        })?;
        let path = shown::path(&described.origin);
        ensure!(digest.contents().records() > 0, "{path}: there is no record, so there is no digest");
        if let Some(out) = out {
            let place = out.place();
            output::ended(digest.save(&place.path).map_err(Into::into), [place])?;
        }
        let mut out = stdout();
        match &self.out {
            _ if self.json => writeln!(out, "{}", json_line("percolator.digest/1", &self.facts(&digest))?),
            None => write!(out, "{digest}"),
            Some(_) => writeln!(out, "{path}: {}", digest.contents()),
        }?;
        out.finish()
    }

    /// The sum and the number of records, for programs.
    fn facts(&self, digest: &DataDigest) -> Value {
        let contents = digest.contents();
        let text = contents.to_string();
        json!({
            "source": digest.source(),
            "contents": text.split(' ').next(),
            "records": contents.records(),
            "out": self.out.as_ref().map(|out| out.to_string_lossy()),
        })
    }
}
