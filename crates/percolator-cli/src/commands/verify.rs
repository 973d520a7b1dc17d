//! `percolator verify`: every record read, checked, parsed and decoded; a clean copy of those that are whole.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use percolator::bad::Quarantined;
use percolator_data::scan::Progress;
use percolator_data::verify::{self, Fault, Repaired, Since, Verified, VerifyOptions};
use percolator_data::{Content, DataSet, inspect};
use percolator_files::{shown, whole_file};
use serde_json::json;

use crate::args::ContentArg;
use crate::args::data_set::DataArgs;
use crate::run::exit;
use crate::terminal::out::{Out, json_line, stdout};
use crate::terminal::progress::Lines;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    data: DataArgs,
    /// What the values have to be [default: what most of them are].
    #[arg(long, value_enum, value_name = "KIND")]
    content: Option<ContentArg>,
    /// Also say what has become of the bad records that a feed has named in this file.
    #[arg(long, value_name = "FILE")]
    quarantine: Option<PathBuf>,
    /// Also write a copy without what is wrong, of the same kind. It is whole, or absent.
    #[arg(long, value_name = "OUT")]
    repair: Option<PathBuf>,
}

impl Verify {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let (Some(quarantine), Some(copy)) = (&self.quarantine, &self.repair) {
            let is_same = whole_file::is_same_place(quarantine, copy).unwrap_or(false);
            ensure!(!is_same, "{}: the copy would take the place of the quarantine file", shown::path(copy));
        }
        let named = self.quarantine.as_ref().map(Quarantined::read).transpose()?.unwrap_or_default();
        let data = self.data.options().open(&self.data.path)?;
        let mut looked = None;
        let since = self.data.watched(|progress, lines| {
            looked = Some(self.look(&data, progress, lines)?);
            let since = verify::quarantined(&data, named, progress);
            since.context("stopped before all records of the quarantine file were looked for")
        });
        // Once there is a verdict, it is printed, whatever stops the rest.
        if let Some((verified, repaired)) = &looked {
            self.print(verified, repaired.as_ref())?;
        }
        self.say_quarantined(&since?)?;
        let is_whole = looked.is_some_and(|(verified, _)| verified.is_whole() && !verified.is_empty());
        Ok(exit::found(is_whole))
    }

    /// Verifies, and prints each fault when it is found.
    fn look(
        &self,
        data: &DataSet,
        progress: &Progress,
        lines: &Lines,
    ) -> anyhow::Result<(Verified, Option<Repaired>)> {
        let mut out = Out::new(io::stdout());
        let options = VerifyOptions { content: self.content.map(Into::into), threads: self.data.threads };
        let mut say = |fault: &Fault| {
            let line = if self.data.json {
                fault_json(fault)
            } else {
                shown::message(&fault.to_string()).to_string()
            };
            lines.print(|| {
                // A closed output ends the list, and not the verification, whose verdict is the exit code.
                let _ = writeln!(out, "{line}");
            });
        };
        let found = match &self.repair {
            None => (verify::verify(data, &options, progress, &mut say)?, None),
            Some(copy) => {
                let repaired =
                    verify::repair(data, copy, self.data.existing(), &options, progress, &mut say)?;
                (repaired.verified, Some(repaired))
            }
        };
        out.finish()?;
        Ok(found)
    }

    /// Says of each record that the file names what has become of it.
    fn say_quarantined(&self, named: &[(Quarantined, Since)]) -> anyhow::Result<()> {
        let mut out = stdout();
        for (entry, since) in named {
            let Quarantined { source, number, epoch, key, reason, .. } = entry;
            match self.data.json {
                true => writeln!(
                    out,
                    "{}",
                    json_line(
                        "percolator.verify.quarantined/1",
                        &json!({
                            "quarantined": number,
                            "source": source.to_string_lossy(),
                            "key": inspect::key_text(&key.0),
                            "epoch": epoch,
                            "reason": reason,
                            "since": since.to_string(),
                        })
                    )?
                )?,
                false => {
                    let source = shown::path(source).to_string();
                    let (reason, since) = said_once(&source, reason, since);
                    let line = format!(
                        "{source}: record {number}, key {key}: bad in epoch {epoch}: {reason}; {since}"
                    );
                    writeln!(out, "{}", shown::message(&line))?;
                }
            }
        }
        out.finish()
    }

    fn print(&self, verified: &Verified, repaired: Option<&Repaired>) -> anyhow::Result<()> {
        let mut out = stdout();
        let copy = self.repair.as_deref();
        if self.data.json {
            let is_whole = verified.is_whole() && !verified.is_empty();
            let mut line = json!({ "path": self.data.path.to_string_lossy(), "is_whole": is_whole });
            if let (Some(fields), serde_json::Value::Object(counts)) =
                (line.as_object_mut(), serde_json::to_value(verified)?)
            {
                fields.extend(counts);
                if let (Some(repaired), Some(copy)) = (repaired, copy) {
                    fields.insert("repaired".to_owned(), copy.to_string_lossy().into());
                    fields.insert("written".to_owned(), repaired.written.into());
                }
            }
            return out.json("percolator.verify/1", &line);
        }
        let Verified { content, whole, damaged, unreadable, gaps, .. } = verified;
        let mut wrong = Vec::new();
        if *damaged > 0 {
            wrong.push(format!("{damaged} damaged"));
        }
        if *unreadable > 0 {
            wrong.push(format!("{unreadable} unreadable"));
        }
        if *gaps > 0 {
            wrong.push(format!("records lost at {}, how many is not known", shown::count(*gaps, "place")));
        }
        if verified.is_empty() {
            writeln!(out, "{}: there is no record, so nothing was verified", shown::path(&self.data.path))?;
            return out.finish();
        }
        let verdict = if wrong.is_empty() { "nothing is wrong".to_owned() } else { wrong.join(", ") };
        let records = if *whole == 1 { "1 record is".to_owned() } else { format!("{whole} records are") };
        writeln!(out, "{}: {records} whole ({content}); {verdict}", shown::path(&self.data.path))?;
        if verified.is_interleaved {
            writeln!(out, "the images are whole, but {}", inspect::INTERLEAVED)?;
        }
        if *content == Content::Bytes && self.content.is_none() {
            let are = "the values are neither Datums nor Examples";
            match verified.values {
                Some(value) if value.is_image() => {
                    writeln!(out, "{are}: each is {value}, and was decoded; {}", value.remedy())?;
                }
                Some(value) => {
                    writeln!(out, "{are}: most are {value}, which is not looked into; {}", value.remedy())?;
                }
                None => {
                    writeln!(out, "{are}, so nothing is known of what is in them")?;
                    writeln!(out, "(--content says what they have to be)")?;
                }
            }
        }
        if let (Some(repaired), Some(copy)) = (repaired, copy) {
            let records = shown::count(repaired.written, "record");
            writeln!(out, "{}: a clean copy with {records}", shown::path(copy))?;
        }
        out.finish()
    }
}

/// Why a record is bad and what has become of it, without what the line says already: its source, and the
/// reason again.
fn said_once<'a>(source: &str, reason: &'a str, since: &Since) -> (&'a str, String) {
    // The file names the source by its absolute path, and the reason as the feed called it.
    let of_source = |path: &str| !path.is_empty() && Path::new(source).ends_with(path);
    let reason = reason.split_once(": ").filter(|(path, _)| of_source(path)).map_or(reason, |(_, rest)| rest);
    let since = match since {
        Since::Unreadable(error) if !reason.is_empty() && error.to_string().ends_with(reason) => {
            "it still cannot be read".to_owned()
        }
        since => since.to_string(),
    };
    (reason, since)
}

/// A fault as a line of JSON.
fn fault_json(fault: &Fault) -> String {
    let key = |key: &percolator::record::Key| inspect::key_text(&key.0);
    let line = match fault {
        Fault::Record { .. } => json!({
            "fault": "damaged",
            "record": fault.number(),
            "key": fault.key().map(key),
            "reason": fault.reason(),
        }),
        Fault::Unreadable(unreadable) => json!({
            "fault": "unreadable",
            "record": unreadable.first,
            "records": unreadable.records,
            "after": unreadable.after.as_ref().map(key),
            "before": unreadable.before.as_ref().map(key),
            "are_given_up": unreadable.are_given_up,
            "reason": fault.reason(),
        }),
        _ => json!({ "fault": "other", "record": fault.number(), "reason": fault.reason() }),
    };
    json_line("percolator.verify.fault/1", &line).expect("a value is JSON")
}
