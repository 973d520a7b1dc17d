//! `percolator model latest`: the latest checkpoint of a folder.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use percolator_files::shown;
use percolator_tensorflow::latest_checkpoint;
use serde_json::json;

use super::{How, stdout};
use crate::run::exit;
use crate::terminal::out::{json_line, tell};

#[derive(Debug, Args)]
pub(super) struct Latest {
    /// The folder that a training run saves its checkpoints in.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Latest {
    pub(super) fn run(&self, how: How) -> anyhow::Result<ExitCode> {
        let Some(prefix) = latest_checkpoint(&self.folder)? else {
            let folder = shown::path(&self.folder);
            ensure!(self.folder.is_dir(), "{folder}: there is no checkpoint: there is no such folder");
            let why = "the folder has no file \"checkpoint\"";
            tell(&format!("{folder}: there is no checkpoint: {why}"));
            return Ok(exit::found(false));
        };
        let mut out = stdout();
        if how.json {
            let found = json!({ "prefix": prefix.to_string_lossy() });
            writeln!(out, "{}", json_line("percolator.model.latest/1", &found)?)?;
        } else {
            // As it is: scripts open it.
            out.write_all(prefix.as_os_str().as_encoded_bytes())?;
            writeln!(out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}
