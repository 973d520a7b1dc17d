//! A snapshot's text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::{DealtBy, DrawnFrom, RoundRobin, Snapshot, SnapshotError};
use crate::bad::BadCount;
use crate::order::{COUNTED_MAX, Plan};
use crate::record::StepId;
use crate::source::Identity;
use crate::transform::CaffeEra;
use percolator_files::checked_text::{OneLine, TextFault, TextReader, TextWriter};

pub(super) const KIND: &str = "snapshot";
/// Version 1 had no samples ("clue" lines).
const VERSION: u32 = 2;

impl fmt::Display for Snapshot {
    /// Writes the whole text, line by line, with its final line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = TextWriter::new(KIND, VERSION);
        text.fact("source", OneLine(&self.source.display().to_string()));
        for line in self.identity.lines() {
            text.fact("data", line);
        }
        self.identity.write_samples(&mut text);
        match &self.dealt_by {
            DealtBy::Plan(plan) => plan.write(&mut text),
            DealtBy::RoundRobin(RoundRobin { batch_size, ranks, passes }) => {
                text.fact("ring", format_args!("{batch_size} records {ranks} ranks"));
                text.fact("passes", passes.map_or(0, Into::into));
            }
        }
        text.fact("draws", self.draws);
        let mut next = self.next.iter().peekable();
        while let Some((&first, &id)) = next.next() {
            let mut last = first;
            while next.next_if(|&(&replica, &other)| replica == last + 1 && other == id).is_some() {
                last += 1;
            }
            let StepId { epoch, step } = id;
            text.fact("next", format_args!("epoch {epoch} step {step} replicas {first} to {last}"));
        }
        for (replica, BadCount { epoch, records, bad }) in &self.bad {
            text.fact("bad", format_args!("{bad} of {records} records of epoch {epoch} replica {replica}"));
        }
        f.write_str(&text.checksum())
    }
}

impl FromStr for Snapshot {
    type Err = SnapshotError;

    /// # Errors
    ///
    /// [`SnapshotError::Text`] if the text is cut off, was edited, is of a later release, or is not a
    /// snapshot.
    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        read(text).map_err(|fault| SnapshotError::Text { path: None, fault })
    }
}

pub(super) fn read(text: &str) -> Result<Snapshot, TextFault> {
    let (mut facts, _) = TextReader::open(text, KIND, VERSION)?;
    let source = PathBuf::from(facts.value("source")?);
    let mut identity = Identity::new();
    while let Some(line) = facts.next_if("data") {
        identity.push_line(line);
    }
    let identity = identity.with_samples_of(&Identity::read_samples(&mut facts, &[])?);
    let dealt_by = match facts.next_if("ring") {
        None => DealtBy::Plan(Arc::new(Plan::read(&mut facts)?)),
        Some(found) => {
            let round_robin = round_robin(found, facts.parse("passes", "a number")?);
            DealtBy::RoundRobin(round_robin.ok_or_else(|| {
                facts
                    .fault_before("\"ring ... records ... ranks\" with two numbers, and 0 or 1 passes", found)
            })?)
        }
    };
    let draws = facts.value_by("draws", "\"seed\", \"caffe\" or \"caffe-2015\" and a number", draws)?;
    let mut snapshot = Snapshot::new(&source, identity, dealt_by, draws, []);
    let replicas = snapshot.replicas();
    while let Some(found) = facts.next_if("next") {
        let is_new = |first, last| snapshot.next.range(first..=last).next().is_none();
        let Some((id, first, last)) =
            next(found).filter(|&(_, first, last)| first <= last && last < replicas && is_new(first, last))
        else {
            let wanted =
                format!("\"next epoch ... step ... replicas ... to ...\", each of {replicas} replicas once,");
            return Err(facts.fault_before(&wanted, found));
        };
        snapshot.next.extend((first..=last).map(|replica| (replica, id)));
    }
    if snapshot.next.is_empty() {
        facts.value("next")?;
    }
    while let Some(found) = facts.next_if("bad") {
        let new =
            bad(found).filter(|(replica, _)| *replica < replicas && !snapshot.bad.contains_key(replica));
        let Some((replica, count)) = new else {
            let wanted =
                format!("\"bad ... of ... records of epoch ... replica ...\", each of {replicas} once,");
            return Err(facts.fault_before(&wanted, found));
        };
        snapshot.bad.insert(replica, count);
    }
    facts.end()?;
    Ok(snapshot)
}

/// Parses a round-robin order, if it is a valid one.
fn round_robin(text: &str, passes: u64) -> Option<RoundRobin> {
    let words: Vec<&str> = text.split(' ').collect();
    let [batch_size, "records", ranks, "ranks"] = words[..] else { return None };
    let round_robin = RoundRobin {
        batch_size: batch_size.parse().ok()?,
        ranks: ranks.parse().ok()?,
        passes: passes.try_into().ok(),
    };
    (passes <= 1 && round_robin.job(&[1], 0).ok()?.plan().is_ok()).then_some(round_robin)
}

fn draws(text: &str) -> Option<DrawnFrom> {
    let (by, seed) = text.split_once(' ')?;
    Some(match by {
        "seed" => DrawnFrom::Indexed(seed.parse().ok()?),
        "caffe" => DrawnFrom::Caffe(seed.parse().ok()?, CaffeEra::Today),
        "caffe-2015" => DrawnFrom::Caffe(seed.parse().ok()?, CaffeEra::DataReader),
        _ => return None,
    })
}

fn next(text: &str) -> Option<(StepId, usize, usize)> {
    let words: Vec<&str> = text.split(' ').collect();
    let ["epoch", epoch, "step", step, "replicas", first, "to", last] = words[..] else { return None };
    let id = StepId { epoch: epoch.parse().ok()?, step: step.parse().ok()? };
    Some((id, first.parse().ok()?, last.parse().ok()?))
}

fn bad(text: &str) -> Option<(usize, BadCount)> {
    let words: Vec<&str> = text.split(' ').collect();
    let [bad, "of", records, "records", "of", "epoch", epoch, "replica", replica] = words[..] else {
        return None;
    };
    let count =
        BadCount { epoch: epoch.parse().ok()?, records: records.parse().ok()?, bad: bad.parse().ok()? };
    let is_counted = count.bad <= count.records && count.records <= COUNTED_MAX;
    Some((replica.parse().ok()?, count)).filter(|_| is_counted)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::order::{BatchSize, Job, World};

    #[test]
    fn bad_records_are_counted_as_far_as_records_are() {
        let plan = Job::new([100], BatchSize::PerReplica(5), World::ALONE).plan().unwrap();
        let next = [(0, StepId::default())];
        let dealt_by = DealtBy::Plan(plan.into());
        let snapshot = Snapshot::new(Path::new("db"), Identity::new(), dealt_by, DrawnFrom::Indexed(0), next);
        let with = |count: u64| {
            let bad = BadCount { epoch: 0, records: count, bad: count };
            snapshot.clone().with_bad([(0, bad)]).to_string()
        };
        assert_eq!(with(1 << 43).parse::<Snapshot>().unwrap().bad_records(), 1 << 43);
        for count in [(1 << 43) + 1, u64::MAX] {
            let fault = with(count).parse::<Snapshot>().unwrap_err().to_string();
            assert!(fault.contains("expected \"bad ... of ..."), "{fault}");
        }
    }
}
