//! `percolator model verify`: every checksum of a model's files.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use percolator_files::parallel::map;
use percolator_files::shown::{self, count};
use percolator_tensorflow::Checkpoint;
use percolator_tensorflow::convert::{ConvertError, Format, Model, Progress};
use serde_json::json;

use super::list::weight;
use super::{How, stdout};
use crate::run::exit;

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// A checkpoint (its prefix, one of its files, or a folder with a file "checkpoint"), a SavedModel, a
    /// .safetensors, .npz or .npy file, or a folder of .npy files.
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// What was found.
struct Verified {
    checksums: usize,
    bytes: u64,
    faults: Vec<String>,
}

impl Verify {
    pub(super) fn run(&self, how: How) -> anyhow::Result<ExitCode> {
        let model = Model::open(&self.path)?;
        let work = |progress: &Progress| match model.checkpoint() {
            Some(checkpoint) => of_checkpoint(checkpoint, progress),
            None => of_tensors(&model, progress),
        };
        let verified = how.watched(work)?;
        report(&model, &verified, how)?;
        Ok(exit::found(verified.faults.is_empty()))
    }
}

fn report(model: &Model, verified: &Verified, how: How) -> anyhow::Result<()> {
    let Verified { checksums, bytes, faults } = verified;
    let tensors = model.tensors().len();
    if how.json {
        let path = model.path().to_string_lossy();
        return stdout().json(
            "percolator.model.verify/1",
            &json!({
                "path": path, "tensors": tensors, "checksums": checksums, "bytes": bytes, "faults": faults,
            }),
        );
    }
    let mut out = stdout();
    for fault in faults {
        writeln!(out, "{}", shown::message(fault))?;
    }
    let has_checksums = matches!(model.format(), Format::Checkpoint | Format::Npz);
    let verified = match has_checksums {
        _ if tensors == 0 && faults.is_empty() => "there is nothing to verify".to_owned(),
        true => format!("{checksums} checksums right, of {bytes} bytes"),
        false => format!("{bytes} bytes read; the format has no checksums"),
    };
    let faults = match faults.len() {
        0 => "nothing is wrong".to_owned(),
        faults => count(faults, "fault").to_string(),
    };
    let tensors = count(tensors, "tensor");
    writeln!(out, "{}: {tensors}; {verified}; {faults}", shown::path(model.path()))?;
    out.finish()
}

fn of_checkpoint(checkpoint: &Checkpoint, progress: &Progress) -> anyhow::Result<Verified> {
    progress.begin(checkpoint.tensors().map(|tensor| tensor.bytes).fold(0, u64::saturating_add));
    let found = checkpoint.verify_watched(0, |bytes| {
        progress.add_done(bytes);
        ConvertError::check(progress)
    })?;
    let faults = found.faults.into_iter().map(|fault| shown::with_sources(&fault)).collect();
    Ok(Verified { checksums: found.checksums, bytes: found.bytes, faults })
}

fn of_tensors(model: &Model, progress: &Progress) -> anyhow::Result<Verified> {
    progress.begin(model.tensors().iter().map(weight).fold(0, u64::saturating_add));
    let checked = map("model", 0, 0..model.tensors().len(), |place| {
        ConvertError::check(progress)?;
        let info = &model.tensors()[place];
        let read = model.read(place);
        progress.add_done(weight(info));
        anyhow::Ok((info.bytes().unwrap_or(0), read.map(drop)))
    });
    let mut verified = Verified { checksums: 0, bytes: 0, faults: Vec::new() };
    for checked in checked {
        match checked? {
            (bytes, Ok(())) => {
                verified.checksums += usize::from(model.format() == Format::Npz);
                verified.bytes += bytes as u64;
            }
            (_, Err(error)) => verified.faults.push(shown::with_sources(&error)),
        }
    }
    Ok(verified)
}
