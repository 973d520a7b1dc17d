//! A receipt's text.
//!
//! ```text
//! percolator receipt 2
//! source /data/train_lmdb
//! clue last "01281166_n15075141_99": 196651 bytes, checksum 1f0a88e3
//! ...                                            further samples of the data
//! files 1281167
//! ...                                            the job, as in a snapshot
//! replicas 0..4
//! epoch 0
//! digest 0123456789abcdef0123456789abcdef of 640584
//! sketch 1f.8a3.7e01c9... - ...
//! contents fedcba9876543210fedcba9876543210 of 640584     if contents were kept
//! steps 0 0..1252                                replica 0 was given these
//! steps 1 0..1252
//! bad 17..18 403..405                            records that were bad, if there were any
//! checksum 5c1e0f6b
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::account::{Entries, EpochAccount};
use super::multiset::Multiset;
use super::{Digest, Receipt};
use crate::order::Plan;
use crate::source::Identity;
use percolator_files::checked_text::{TextFault, TextReader, TextWriter};

pub(super) const KIND: &str = "receipt";
/// Version 1 had neither samples ("clue" lines) nor contents.
const VERSION: u32 = 2;

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = TextWriter::new(KIND, VERSION);
        text.fact("source", &self.source);
        self.samples.write_samples(&mut text);
        self.plan.write(&mut text);
        let mut replicas = Multiset::default();
        self.replicas.iter().for_each(|&replica| replicas.add(replica as u64..replica as u64 + 1, 1));
        text.fact("replicas", replicas);
        for (epoch, entry) in &self.entries {
            text.fact("epoch", epoch);
            text.fact("digest", entry.digest);
            text.fact("sketch", &entry.sketch);
            if entry.contents.records() > 0 {
                text.fact("contents", entry.contents);
            }
            for (replica, steps) in &entry.steps {
                text.fact("steps", format_args!("{replica} {steps}"));
            }
            if !entry.bad.is_empty() {
                text.fact("bad", &entry.bad);
            }
        }
        f.write_str(&text.checksum())
    }
}

impl FromStr for Receipt {
    type Err = TextFault;

    fn from_str(text: &str) -> Result<Self, TextFault> {
        let (mut facts, _) = TextReader::open(text, KIND, VERSION)?;
        let source = facts.value("source")?.to_owned();
        let samples = Identity::read_samples(&mut facts, &[])?;
        let plan = Plan::read(&mut facts)?;
        if plan.job().is_mixed() {
            return Err(
                facts.fault_before("no mixture, of which there are no receipts,", "a job with \"mix ...\"")
            );
        }

        let replicas = facts.value_by("replicas", "replicas of this job, as 0..4", |value| {
            let ranges = Multiset::read(value)?;
            // Checked before they are listed: the text may claim any number of replicas.
            let is_of_job = ranges.bounds().end <= plan.world().replicas() as u64;
            let listed = ranges.ranges().flat_map(|(replicas, _)| replicas);
            let listed = listed.take_while(|_| is_of_job).map(usize::try_from);
            listed.collect::<Result<BTreeSet<_>, _>>().ok().filter(|_| is_of_job)
        })?;
        let mut entries = Entries::new();
        while let Some(epoch) = facts.next_if("epoch") {
            let after = entries.last_key_value().map(|(&epoch, _)| epoch);
            let read = epoch.parse::<u64>().ok().filter(|&epoch| after.is_none_or(|after| after < epoch));
            let Some(number) = read else {
                return Err(
                    facts.fault_before("\"epoch ...\" with a number, greater than that before", epoch)
                );
            };
            entries.insert(number, entry(&mut facts, &plan, &replicas, number)?);
        }
        facts.end()?;
        Ok(Receipt { source, samples, plan, replicas, entries })
    }
}

/// Reads what was delivered of an epoch, from the lines after its number.
fn entry(
    facts: &mut TextReader<'_>,
    plan: &Plan,
    replicas: &BTreeSet<usize>,
    epoch: u64,
) -> Result<EpochAccount, TextFault> {
    let digest = facts.parse("digest", "a sum and how many records it is of")?;
    let sketch = facts.parse("sketch", "the sums of its cells")?;
    let contents = match facts.next_if("contents") {
        None => Digest::default(),
        Some(found) => {
            let read = found.parse().ok().filter(|contents: &Digest| contents.records() > 0);
            let wanted = "\"contents ...\" with a sum and how many records it is of, 1 or more,";
            read.ok_or_else(|| facts.fault_before(wanted, found))?
        }
    };
    let mut entry = EpochAccount { digest, sketch, contents, ..EpochAccount::of(epoch) };
    while let Some(value) = facts.next_if("steps") {
        let read = value
            .split_once(' ')
            .and_then(|(replica, steps)| Some((replica.parse::<usize>().ok()?, Multiset::read(steps)?)));
        let last = plan
            .steps(epoch)
            .map_err(|error| facts.fault_before("an epoch that is counted", &error.to_string()))?;
        let read = read.filter(|(replica, steps)| replicas.contains(replica) && steps.bounds().end <= last);
        let Some((replica, steps)) = read else {
            let wanted = format!("\"steps ...\" with one of its replicas and steps of 0..{last}, as 0..7");
            return Err(facts.fault_before(&wanted, value));
        };
        if entry.steps.insert(replica, steps).is_some() {
            return Err(facts.fault_before("each replica once in an epoch", value));
        }
    }
    if let Some(found) = facts.next_if("bad") {
        // As often as its step: a receipt to which a step was added again has both twice.
        let records = plan.job().records();
        let read = Multiset::read(found).filter(|bad| bad.bounds().end <= records);
        let wanted = format!("\"bad ...\" with records of 0..{records}, as 0..7,");
        entry.bad = read.ok_or_else(|| facts.fault_before(&wanted, found))?;
    }
    Ok(entry)
}
