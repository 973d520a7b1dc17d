//! `percolator model convert`: tensors from one format to another, under other names.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use percolator_files::shown::{self, count};
use percolator_tensorflow::convert::{
    Conversion, ConvertError, Existing, Format, LeftOut, Model, Options, Rules, Unmatched, UnusedRule,
};
use serde_json::{Value as Json, json};

use super::work::{Ended, watched};
use super::{How, check_prefix, printable, stdout, with_force};

/// The most unused rules that are named on the standard error.
const UNUSED_MAX: usize = 20;

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
    /// Names tensors by the rules in this file, a rule a line: "NAME -> NAME", "regex PATTERN -> NAME" ($1 is
    /// the first group, and each match is replaced), "drop NAME", "drop regex PATTERN", "unmatched keep" (or
    /// drop, or error), "# comment". The first rule that matches decides. Rules that are not used are
    /// reported.
    #[arg(long, value_name = "FILE", conflicts_with = "rename")]
    rules: Option<PathBuf>,
    /// Names tensors by replacing each match of a regular expression: '/=.' turns slashes into dots.
    #[arg(long, value_name = "REGEX=TO")]
    rename: Option<String>,
    /// What becomes of tensors that no rule matches [default: keep, or what the file of rules says].
    #[arg(long, value_enum, value_name = "WHAT")]
    unmatched: Option<UnmatchedArg>,
    /// Leave out tensors of types that the format does not have, instead of failing.
    #[arg(long)]
    leave_out: bool,
    /// The data files of a checkpoint that is written [default: 1].
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroUsize>,
    /// Replace a file or a checkpoint that is there.
    #[arg(long)]
    force: bool,
    /// Print what would be written under which names, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnmatchedArg {
    /// They keep their names.
    Keep,
    /// They are left out.
    Drop,
    /// They are an error.
    Error,
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
        if self.unmatched.is_some() && self.rules.is_none() && self.rename.is_none() {
            bail!("--unmatched is for names that no rule matches: give --rules or --rename as well");
        }
        Ok(format)
    }

    fn options(&self) -> Result<Options, ConvertError> {
        let mut rules = match (&self.rules, &self.rename) {
            (Some(path), _) => Rules::from_file(path)?,
            (None, Some(rule)) => Rules::rename(rule)?,
            (None, None) => Rules::none(),
        };
        if let Some(unmatched) = self.unmatched {
            rules = rules.unmatched(match unmatched {
                UnmatchedArg::Keep => Unmatched::Keep,
                UnmatchedArg::Drop => Unmatched::Drop,
                UnmatchedArg::Error => Unmatched::Error,
            });
        }
        Ok(Options {
            rules,
            leave_out: self.leave_out,
            shards: self.shards.map_or(1, NonZeroUsize::get),
            existing: Existing::replaced_if(self.force),
        })
    }

    pub(super) fn run(&self, how: How) -> anyhow::Result<ExitCode> {
        let model = Model::open(&self.from)?;
        let format = self.target_format()?;
        let conversion = Conversion::plan(&model, &self.to, format, &self.options()?);
        let conversion = conversion.map_err(|error| match error {
            ConvertError::NoSuchType { .. } => {
                anyhow::Error::new(error).context("--leave-out leaves out such tensors")
            }
            error => with_force(error),
        })?;
        warn_of_unused_rules(&conversion);
        if self.dry_run {
            return self.report_plan(&conversion, how);
        }
        let converted = watched(how.quiet, |progress| conversion.run(progress).map_err(with_force))?;
        let summary = match converted {
            Ended::Done(summary) => summary,
            Ended::Stopped(code) => return Ok(code),
        };
        let mut out = stdout();
        let (tensors, bytes) = (summary.tensors, summary.bytes);
        let left_out = conversion.left_out();
        if how.json {
            let left_out: Vec<_> = left_out.iter().map(|left_out| name_and_reason(left_out).0).collect();
            let path = self.to.to_string_lossy();
            let unused = unused_rules(&conversion);
            let done = json!({
                "path": path, "tensors": tensors, "bytes": bytes, "left_out": left_out,
                "unused_rules": unused,
            });
            writeln!(out, "{done:#}")?;
        } else {
            writeln!(out, "{}: {}, {bytes} bytes", shown::path(&self.to), count(tensors, "tensor"))?;
            write_left_out(&conversion, &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }

    fn report_plan(&self, conversion: &Conversion<'_>, how: How) -> anyhow::Result<ExitCode> {
        let mut out = stdout();
        if how.json {
            let tensors =
                conversion.tensors().iter().map(|tensor| json!({ "from": tensor.from, "to": tensor.to }));
            let left_out: Vec<_> =
                conversion.left_out().iter().map(|left_out| name_and_reason(left_out).0).collect();
            let unused = unused_rules(conversion);
            let plan = json!({
                "tensors": tensors.collect::<Vec<_>>(), "left_out": left_out, "unused_rules": unused,
            });
            writeln!(out, "{plan:#}")?;
        } else {
            for tensor in conversion.tensors() {
                if tensor.from == tensor.to {
                    writeln!(out, "{}", printable(&tensor.from))?;
                } else {
                    writeln!(out, "{} -> {}", printable(&tensor.from), printable(&tensor.to))?;
                }
            }
            write_left_out(conversion, &mut out)?;
            let tensors = count(conversion.tensors().len(), "tensor");
            writeln!(out, "{}: {tensors} would be written", shown::path(&self.to))?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a line for each rule that decides the name of no tensor.
fn warn_of_unused_rules(conversion: &Conversion<'_>) {
    let unused = conversion.unused_rules();
    let mut lines: Vec<_> = unused.iter().take(UNUSED_MAX).map(ToString::to_string).collect();
    if let more @ 1.. = unused.len().saturating_sub(UNUSED_MAX) {
        lines.push(format!("{more} more rules are not used"));
    }
    for line in lines {
        // Nobody may read them.
        let _ = writeln!(std::io::stderr(), "percolator: {}", shown::message(&line));
    }
}

fn unused_rules(conversion: &Conversion<'_>) -> Vec<Json> {
    let unused = conversion.unused_rules().iter();
    let rule = |rule: &UnusedRule| {
        let (pattern, reason) = (&rule.pattern, rule.reason());
        json!({ "line": rule.line, "pattern": pattern, "regex": rule.is_regex, "reason": reason })
    };
    unused.map(rule).collect()
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
        LeftOut::Dropped { name } => (name, "dropped by the rules".to_owned()),
        LeftOut::Type { name, data_type } => (name, format!("the format has no type {data_type}")),
    }
}
