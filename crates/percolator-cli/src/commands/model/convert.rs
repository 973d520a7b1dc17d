//! `percolator model convert`: tensors from one format to another, under other names.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use percolator_files::shown::{self, count};
use percolator_tensorflow::convert::{
    Conversion, ConvertError, Existing, Format, LeftOut, Model, NameRules, Options,
};
use serde_json::json;

use super::{How, check_prefix, printable, stdout, with_force};

#[derive(Debug, Args)]
pub(super) struct Convert {
    /// What is converted: a checkpoint (its prefix, one of its files, or a folder with a file "checkpoint"),
    /// a SavedModel, a .safetensors, .npz or .npy file, or a folder of .npy files.
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// What is written. A folder must be empty.
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// The format of TO [default: the one that its ending tells].
    #[arg(long = "to", value_name = "FORMAT", value_parser = format)]
    format: Option<Format>,
    /// Name tensors anew: replace each match of a regular expression. '/=.' turns slashes into dots, and $1
    /// is the first group. Of several, the first that matches a name decides.
    #[arg(long, value_name = "REGEX=TO")]
    rename: Vec<String>,
    /// Leave out tensors of whose names a part matches. It comes before any --rename.
    #[arg(long, value_name = "REGEX")]
    drop: Vec<String>,
    /// Leave out tensors of types that the format does not have, instead of failing.
    #[arg(long)]
    leave_out: bool,
    /// The data files of a checkpoint that is written [default: 1].
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroUsize>,
    /// Replace a file or a checkpoint that is there.
    #[arg(short, long)]
    force: bool,
    /// Print what would be written under which names, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

fn format(name: &str) -> Result<Format, String> {
    name.parse().map_err(|error: percolator_tensorflow::convert::UnknownFormat| error.to_string())
}

impl Convert {
    /// The format of what is written, for which all options are.
    fn target_format(&self) -> anyhow::Result<Format> {
        let format = match self.format {
            Some(format) => format,
            None => Format::of_target(&self.to),
        };
        if format == Format::Checkpoint && self.format.is_none() {
            check_prefix(&self.to)?;
        }
        if format != Format::Checkpoint && self.shards.is_some() {
            bail!("--shards is for checkpoints, and {} would be {format}", shown::path(&self.to));
        }
        Ok(format)
    }

    fn options(&self) -> Result<Options, ConvertError> {
        let rules = self.drop.iter().try_fold(NameRules::none(), |rules, regex| rules.drop(regex))?;
        let rules = self.rename.iter().try_fold(rules, |rules, rule| rules.rename(rule))?;
        Ok(Options {
            rules,
            leave_out: self.leave_out,
            shards: self.shards.map_or(1, NonZeroUsize::get),
            existing: Existing::replaced_if(self.force),
        })
    }

    pub(super) fn run(&self, how: How) -> anyhow::Result<()> {
        let model = Model::open(&self.from)?;
        let format = self.target_format()?;
        let conversion = Conversion::plan(&model, &self.to, format, &self.options()?);
        let conversion = conversion.map_err(|error| match error {
            ConvertError::NoSuchType { .. } => {
                anyhow::Error::new(error).context("--leave-out leaves out such tensors")
            }
            error => with_force(error),
        })?;
        if self.dry_run {
            return self.report_plan(&conversion, how);
        }
        let summary = how.watched(|progress| conversion.run(progress).map_err(with_force))?;
        let (tensors, bytes) = (summary.tensors, summary.bytes);
        let left_out = conversion.left_out();
        if how.json {
            let left_out: Vec<_> = left_out.iter().map(|left_out| name_and_reason(left_out).0).collect();
            let path = self.to.to_string_lossy();
            let done = json!({ "path": path, "tensors": tensors, "bytes": bytes, "left_out": left_out });
            return stdout().json("percolator.model.convert/1", &done);
        }
        let mut out = stdout();
        writeln!(out, "{}: {}, {bytes} bytes", shown::path(&self.to), count(tensors, "tensor"))?;
        write_left_out(&conversion, &mut out)?;
        out.finish()
    }

    fn report_plan(&self, conversion: &Conversion<'_>, how: How) -> anyhow::Result<()> {
        if how.json {
            let tensors =
                conversion.tensors().iter().map(|tensor| json!({ "from": tensor.from, "to": tensor.to }));
            let left_out: Vec<_> =
                conversion.left_out().iter().map(|left_out| name_and_reason(left_out).0).collect();
            let plan = json!({ "tensors": tensors.collect::<Vec<_>>(), "left_out": left_out });
            return stdout().json("percolator.model.convert.names/1", &plan);
        }
        let mut out = stdout();
        for tensor in conversion.tensors() {
            match tensor.from == tensor.to {
                true => writeln!(out, "{}", printable(&tensor.from))?,
                false => writeln!(out, "{} -> {}", printable(&tensor.from), printable(&tensor.to))?,
            }
        }
        write_left_out(conversion, &mut out)?;
        let tensors = count(conversion.tensors().len(), "tensor");
        writeln!(out, "{}: {tensors} would be written", shown::path(&self.to))?;
        out.finish()
    }
}

fn write_left_out(conversion: &Conversion<'_>, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    for left_out in conversion.left_out() {
        let (name, reason) = name_and_reason(left_out);
        writeln!(out, "left out: {} ({reason})", printable(name))?;
    }
    match conversion.lost_metadata() {
        0 => {}
        texts => writeln!(out, "left out: the {texts} texts of the .safetensors file's metadata")?,
    }
    Ok(())
}

fn name_and_reason(left_out: &LeftOut) -> (&str, String) {
    match left_out {
        LeftOut::Dropped { name } => (name, "dropped".to_owned()),
        LeftOut::Type { name, data_type } => (name, format!("the format has no type {data_type}")),
    }
}
