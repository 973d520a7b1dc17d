//! A snapshot as text, and in a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use super::{Course, Ring, Snapshot, SnapshotError};
use crate::order::Plan;
use crate::record::StepId;
use crate::sealed_text::{OneLine, TextFault, TextReader, TextWriter};
use crate::source::Identity;
use crate::whole_file;

const KIND: &str = "snapshot";
const VERSION: u32 = 1;

impl fmt::Display for Snapshot {
    /// The whole text, line by line. It ends with a line break, which is part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = TextWriter::new(KIND, VERSION);
        text.fact("source", OneLine(&self.source.display().to_string()));
        for line in self.identity.lines() {
            text.fact("data", line);
        }
        match &self.course {
            Course::Plan(plan) => plan.write(&mut text),
            Course::Ring(Ring { batch_size, ranks, passes }) => {
                text.fact("ring", format_args!("{batch_size} records {ranks} ranks"));
                text.fact("passes", passes.map_or(0, Into::into));
            }
        }
        let mut next = self.next.iter().peekable();
        while let Some((&first, &id)) = next.next() {
            let mut last = first;
            while next.next_if(|&(&replica, &other)| replica == last + 1 && other == id).is_some() {
                last += 1;
            }
            let StepId { epoch, step } = id;
            text.fact("next", format_args!("epoch {epoch} step {step} replicas {first} to {last}"));
        }
        f.write_str(&text.seal())
    }
}

impl FromStr for Snapshot {
    type Err = SnapshotError;

    /// # Errors
    ///
    /// [`SnapshotError::Text`] if it is cut, was edited, is of a later release, or is no snapshot at all.
    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        read(text).map_err(|fault| SnapshotError::Text { path: None, fault })
    }
}

fn read(text: &str) -> Result<Snapshot, TextFault> {
    let (mut facts, _) = TextReader::open(text, KIND, VERSION)?;
    let source = PathBuf::from(facts.value("source")?);
    let mut identity = Identity::new();
    while let Some(line) = facts.next_if("data") {
        identity.push_line(line);
    }
    let course = match facts.next_if("ring") {
        None => Course::Plan(Arc::new(Plan::read(&mut facts)?)),
        Some(found) => {
            let words: Vec<&str> = found.split(' ').collect();
            let ring = match words[..] {
                [batch_size, "records", ranks, "ranks"] => batch_size.parse().ok().zip(ranks.parse().ok()),
                _ => None,
            };
            let Some((batch_size, ranks)) = ring else {
                return Err(facts.fault_before("\"ring ... records ... ranks\" with two numbers", found));
            };
            Course::Ring(Ring {
                batch_size,
                ranks,
                passes: facts.parse::<u64>("passes", "a number")?.try_into().ok(),
            })
        }
    };
    let mut snapshot = Snapshot::new(&source, identity, course, []);
    let replicas = snapshot.replicas();
    while let Some(found) = facts.next_if("next") {
        let Some((id, first, last)) =
            next(found).filter(|&(_, first, last)| first <= last && last < replicas)
        else {
            let wanted = format!("\"next epoch ... step ... replicas ... to ...\", of {replicas} replicas,");
            return Err(facts.fault_before(&wanted, found));
        };
        snapshot.next.extend((first..=last).map(|replica| (replica, id)));
    }
    facts.end()?;
    Ok(snapshot)
}

fn next(text: &str) -> Option<(StepId, usize, usize)> {
    let words: Vec<&str> = text.split(' ').collect();
    let ["epoch", epoch, "step", step, "replicas", first, "to", last] = words[..] else { return None };
    let id = StepId { epoch: epoch.parse().ok()?, step: step.parse().ok()? };
    Some((id, first.parse().ok()?, last.parse().ok()?))
}

impl Snapshot {
    /// Writes it to a file, which is never there by half: it is written beside it and then put in its place.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        let path = path.as_ref();
        whole_file::write(path, &[self.to_string().as_bytes()]).map_err(|error| SnapshotError::Io {
            path: path.to_owned(),
            action: "write",
            message: error.to_string(),
        })
    }

    /// Reads it from a file.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`] if the file cannot be read, [`SnapshotError::Text`] if it is cut, was edited, is of a later release, or is
    /// no snapshot at all.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(|error| SnapshotError::Io {
            path: path.to_owned(),
            action: "read",
            message: error.to_string(),
        })?;
        // What is no text has lost its checksum with the letters that stand for the others.
        read(&String::from_utf8_lossy(&text))
            .map_err(|fault| SnapshotError::Text { path: Some(path.to_owned()), fault })
    }
}
