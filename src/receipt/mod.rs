//! What was delivered, written down so that it can be proven that an epoch was covered exactly once.
//!
//! Each lane folds the records that it hands over into a [`Digest`], which does not depend on their order, and into a
//! sketch, which can name the records by which two digests differ if they are few; and it notes the steps that it was
//! given. That is a [`Receipt`]: a page of text an epoch, whatever its number of records. The receipts of all ranks, and
//! of all sessions of a run, make a [`Verdict`]: what was delivered is what those steps come to by the plan, and those
//! steps have every record exactly once; or these records are missing, and those came twice.

pub(crate) mod content;
mod coverage;
mod data;
mod digest;
mod error;
pub(crate) mod file;
mod ledger;
mod sketch;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod verify;

use std::collections::BTreeSet;

pub use self::data::{DataDigest, DigestDetail};
pub use self::digest::Digest;
pub use self::error::ReceiptError;
pub(crate) use self::ledger::Ledger;
pub use self::verdict::{
    AbsentReplicas, ContentsDeviation, ContentsVerdict, Deviation, DoubledSteps, EpochState, EpochVerdict,
    GivenSteps, MissingSteps, Positions, Verdict,
};
pub use crate::base::checked_text::TextFault;

use self::ledger::Entries;
use crate::base::checked_text::TextWriter;
use crate::order::Plan;
use crate::source::Identity;

/// What some lanes of a run were given: [`Feed::receipt`](crate::Feed::receipt) and [`Lane::receipt`](crate::Lane::receipt)
/// give one, [`Verdict::of`] takes those of the whole run.
///
/// It is text ([`Display`](std::fmt::Display), [`FromStr`](std::str::FromStr)), with a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// For people: ranks may have the same data in different places.
    source: String,
    /// What is known of the data: ranks whose clues differ have other data.
    samples: Identity,
    plan: Plan,
    /// Whose receipt it is, whether they were given anything or not.
    replicas: BTreeSet<usize>,
    entries: Entries,
}

impl Receipt {
    /// One that says nothing yet.
    pub(crate) fn new(source: &str, identity: &Identity, plan: &Plan) -> Self {
        let (source, samples) = (one_line(source), identity.of_records());
        Receipt { source, samples, plan: plan.clone(), replicas: BTreeSet::new(), entries: Entries::new() }
    }

    /// Adds what a lane has written down.
    pub(crate) fn add(&mut self, ledger: &Ledger) {
        self.replicas.insert(ledger.replica);
        self.add_entries(&ledger.entries);
    }

    fn add_entries(&mut self, entries: &Entries) {
        for (&epoch, entry) in entries {
            self.entries.entry(epoch).or_default().merge(entry);
        }
    }

    /// Where the records came from, as the feed was told.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Who was to get what.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The replicas of the job that it is of.
    pub fn replicas(&self) -> impl Iterator<Item = usize> {
        self.replicas.iter().copied()
    }

    /// What was delivered of each epoch's records, as far as anything was.
    pub fn digests(&self) -> impl Iterator<Item = (u64, Digest)> {
        self.entries.iter().map(|(&epoch, entry)| (epoch, entry.digest))
    }

    /// What the records that were delivered of each epoch hold, as far as
    /// [that](crate::FeedBuilder::receipt_contents) was asked for.
    pub fn contents(&self) -> impl Iterator<Item = (u64, Digest)> {
        let entries = self.entries.iter().filter(|(_, entry)| entry.contents.records() > 0);
        entries.map(|(&epoch, entry)| (epoch, entry.contents))
    }

    /// Adds what other lanes were given, or the same ones in another session, by the same plan.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Differ`] if it is by another plan, or of other data.
    pub fn merge(&mut self, other: &Receipt) -> Result<(), ReceiptError> {
        let names = ["this receipt", "the one to be added"];
        check_same("plan", [(names[0], &self.plan), (names[1], &other.plan)], |_| true)?;
        check_clues([(names[0], &self.samples), (names[1], &other.samples)])?;
        self.samples.take_in(&other.samples);
        self.replicas.extend(&other.replicas);
        self.add_entries(&other.entries);
        Ok(())
    }
}

/// A fact is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// That what is known of the data in one place is not otherwise in the other.
fn check_clues([one, other]: [(&str, &Identity); 2]) -> Result<(), ReceiptError> {
    match one.1.contradiction(other.1) {
        None => Ok(()),
        Some((one_says, other_says)) => Err(ReceiptError::Differ {
            of: "data set",
            one: one.0.to_owned(),
            one_says,
            other: other.0.to_owned(),
            other_says,
        }),
    }
}

/// That two plans say the same, in the facts that are asked for.
fn check_same(
    of: &'static str,
    [one, other]: [(&str, &Plan); 2],
    is_asked_for: impl Fn(&str) -> bool,
) -> Result<(), ReceiptError> {
    let [one_says, other_says] = [one.1, other.1].map(|plan| {
        let mut text = TextWriter::new("plan", 0);
        plan.write(&mut text);
        let text = text.checksum();
        // Without the title, and without the checksum, which is the last.
        let facts = text.lines().skip(1).filter(|fact| !fact.starts_with("checksum "));
        let facts = facts.filter(|fact| fact.split(' ').next().is_some_and(&is_asked_for));
        facts.map(str::to_owned).collect::<Vec<_>>()
    });
    let fact =
        |facts: &[String], number| facts.get(number).map_or("nothing", |fact: &String| fact).to_owned();
    let most = one_says.len().max(other_says.len());
    match (0..most).find(|&number| one_says.get(number) != other_says.get(number)) {
        None => Ok(()),
        Some(number) => Err(ReceiptError::Differ {
            of,
            one: one.0.to_owned(),
            one_says: shortened(fact(&one_says, number)),
            other: other.0.to_owned(),
            other_says: shortened(fact(&other_says, number)),
        }),
    }
}

/// As much of a fact as a message has room for: a list of files may be long.
fn shortened(mut fact: String) -> String {
    const SHOWN: usize = 80;

    if let Some((end, _)) = fact.char_indices().nth(SHOWN) {
        fact.truncate(end);
        fact.push_str("...");
    }
    fact
}
