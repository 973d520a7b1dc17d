//! `percolator checkpoints restore`

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use percolator_cluster::checkpoint::{ArchiveError, Existing, Origin};
use percolator_cluster::store::Id;
use percolator_files::shown;
use serde_json::json;

use super::{Place, id, printable};
use crate::output;
use crate::terminal::out::stdout;

#[derive(Debug, Args)]
pub(super) struct Restore {
    #[command(flatten)]
    place: Place,
    /// The id.
    #[arg(long, value_name = "ID", value_parser = id)]
    id: Id,
    /// The file that is written. Until it is whole, it has a temporary name.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Only this part of a state that has several.
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    /// Replace a file that is there.
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let archive = self.place.open()?;
        let existing = Existing::replaced_if(self.force);
        let done =
            archive.extract(&self.id, self.part.as_deref(), &self.out, existing).map_err(
                |error| match error {
                    ArchiveError::Exists { path } => output::exists(&path),
                    error => error.into(),
                },
            )?;
        let (restored, bytes) = (&done.restored, done.bytes);
        if self.json {
            let origin = match restored.origin {
                Origin::Newest(_) => "newest",
                _ => "older",
            };
            let rejected = restored.rejected.iter().map(ToString::to_string).collect::<Vec<_>>();
            stdout().json(
                "percolator.checkpoints.restore/1",
                &json!({
                    "id": self.id.as_str(),
                    "origin": origin,
                    "entry": restored.entry(),
                    "rejected": rejected,
                    "bytes": bytes,
                }),
            )?;
        } else {
            let mut out = stdout();
            writeln!(out, "{}", printable(&restored.to_string()))?;
            writeln!(out, "{bytes} bytes written to {}", shown::path(&self.out))?;
            out.finish()?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
