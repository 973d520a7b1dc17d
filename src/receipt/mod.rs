//! Records of what was delivered, which prove that an epoch was covered exactly once.
//!
//! Each lane adds the records that it hands over to an order-free [`Digest`] and to a sketch. If two digests
//! differ by few records, the sketches can name these. The lane also notes the steps it was given. Together
//! these are a [`Receipt`]: a page of text per epoch, whatever its number of records. The receipts of all
//! ranks of a run, from before and after each resume, make a [`Verdict`]. It says either that the plan's
//! records for those steps were delivered, and that those steps have every record exactly once; or which
//! records are missing, and which came twice.

pub(crate) mod content;
mod coverage;
mod data;
mod digest;
mod error;
pub(crate) mod file;
mod ledger;
mod multiset;
mod progress;
mod sketch;
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
pub use percolator_files::checked_text::TextFault;

use self::ledger::Entries;
use crate::order::Plan;
use crate::source::Identity;
use percolator_files::checked_text::TextWriter;

/// What was delivered to some lanes of a training run. [`Feed::receipt`](crate::Feed::receipt) and
/// [`Lane::receipt`](crate::Lane::receipt) return one, and [`Verdict::of`] takes those of the whole run.
///
/// It is text ([`Display`](std::fmt::Display), [`FromStr`](std::str::FromStr)), with a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// For messages only: ranks may have the same data in different places.
    source: String,
    /// Samples of the data: ranks whose samples differ have different data.
    samples: Identity,
    plan: Plan,
    /// The replicas it covers, whether they were given anything or not.
    replicas: BTreeSet<usize>,
    entries: Entries,
}

impl Receipt {
    /// An empty receipt.
    pub(crate) fn new(source: &str, identity: &Identity, plan: &Plan) -> Self {
        let (source, samples) = (one_line(source), identity.of_records());
        Receipt { source, samples, plan: plan.clone(), replicas: BTreeSet::new(), entries: Entries::new() }
    }

    /// Adds a lane's ledger.
    pub(crate) fn add(&mut self, ledger: &Ledger) {
        self.replicas.insert(ledger.replica);
        self.add_entries(&ledger.entries);
    }

    fn add_entries(&mut self, entries: &Entries) {
        for (&epoch, entry) in entries {
            self.entries.entry(epoch).or_default().merge(entry);
        }
    }

    /// The path of the source, as the feed was configured.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The plan by which the records were delivered.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The replicas of the job that the receipt covers.
    pub fn replicas(&self) -> impl Iterator<Item = usize> {
        self.replicas.iter().copied()
    }

    /// The digest of the records delivered in each epoch, for epochs of which any were.
    pub fn digests(&self) -> impl Iterator<Item = (u64, Digest)> {
        self.entries.iter().map(|(&epoch, entry)| (epoch, entry.digest))
    }

    /// The digest of the contents of the records delivered in each epoch, as far as contents were
    /// [kept](crate::FeedBuilder::receipt_contents).
    pub fn contents(&self) -> impl Iterator<Item = (u64, Digest)> {
        let entries = self.entries.iter().filter(|(_, entry)| entry.contents.records() > 0);
        entries.map(|(&epoch, entry)| (epoch, entry.contents))
    }

    /// Adds what other lanes of the same plan were given, or the same lanes before or after a resume.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Differ`] if the other receipt is of another plan or of other data.
    pub fn merge(&mut self, other: &Receipt) -> Result<(), ReceiptError> {
        let names = ["this receipt", "the one to be added"];
        check_same("plan", [(names[0], &self.plan), (names[1], &other.plan)], |_| true)?;
        check_samples([(names[0], &self.samples), (names[1], &other.samples)])?;
        self.samples.merge(&other.samples);
        self.replicas.extend(&other.replicas);
        self.add_entries(&other.entries);
        Ok(())
    }
}

/// Replaces control characters: a fact is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Checks that the samples of two data sets do not contradict each other.
fn check_samples([one, other]: [(&str, &Identity); 2]) -> Result<(), ReceiptError> {
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

/// Checks that two plans agree on the facts for which `is_checked` is true.
fn check_same(
    of: &'static str,
    [one, other]: [(&str, &Plan); 2],
    is_checked: impl Fn(&str) -> bool,
) -> Result<(), ReceiptError> {
    let [one_says, other_says] = [one.1, other.1].map(|plan| {
        let mut text = TextWriter::new("plan", 0);
        plan.write(&mut text);
        let text = text.checksum();
        // Skips the title, and the checksum, which is the last line.
        let facts = text.lines().skip(1).filter(|fact| !fact.starts_with("checksum "));
        let facts = facts.filter(|fact| fact.split(' ').next().is_some_and(&is_checked));
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

/// Truncates a fact for a message: a list of files may be long.
fn shortened(mut fact: String) -> String {
    const SHOWN: usize = 80;

    if let Some((end, _)) = fact.char_indices().nth(SHOWN) {
        fact.truncate(end);
        fact.push_str("...");
    }
    fact
}
