//! Verifies receipts against their plans and against each other.
//!
//! A receipt has what was delivered in two forms: as steps, whose records its plan gives, and as a digest of
//! the records themselves. If both agree, nothing was lost or doubled on the way through a feed. The steps of
//! all receipts together then show how often each record came. Records that a digest has beyond its steps are
//! counted too, if they can be named.

mod absent;
mod contents;
mod judge;
mod plans;

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use percolator::Receipt;
use percolator::order::Plan;
use percolator::receipt::{DataDigest, Digest, EpochAccount};
use percolator::source::Identity;

use crate::ProofError;
use crate::coverage::Counts;
use crate::verdict::Verdict;

/// The largest data set that can be verified, in records: 16 GiB of counters.
const RECORDS_MAX: u64 = 1 << 32;

/// How many epochs are counted at a time: many of a small data set, of which a step may have as many, and a
/// few of any, for replicas that were apart. Each has 5 KiB for each receipt, too.
const EPOCHS_MAX: u64 = 1 << 12;
const EPOCHS_MIN: u64 = 4;

/// The most counters of several epochs, beyond those few: 64 MiB.
const COUNTERS_MAX: u64 = 1 << 24;

impl Verdict {
    /// Verifies the receipts of a run, each with a name for messages: those of all ranks, and from before and
    /// after each resume. A run may have resumed with other plans, as long as data set, seed and shuffle are
    /// the same.
    ///
    /// An epoch must be covered if any receipt has its last step or a later epoch, or is of a job that
    /// resumed with less than a step of it and drops that. It must also be covered if everything that a
    /// resumed job has of it is in what another job left of an earlier epoch, and that was delivered.
    /// Otherwise it is under way, and steps that no replica has reached are not missing.
    ///
    /// # Errors
    ///
    /// [`ProofError`] if there are no receipts, if they are of different runs, or if their records are too
    /// many to be counted.
    pub fn of<'a>(receipts: impl IntoIterator<Item = (&'a str, &'a Receipt)>) -> Result<Self, ProofError> {
        Audit::of(receipts.into_iter().collect(), None)?.verdict()
    }

    /// Like [`of`](Self::of), and verifies that the right bytes were delivered: those of the data set of the
    /// digest, which has a name as well. Receipts must [keep
    /// contents](percolator::feed::Receipts::Contents).
    ///
    /// A digest with only the sum over all records proves epochs that were delivered as a whole. An epoch
    /// that is under way or drops records needs one with [each record's
    /// hash](percolator::receipt::DigestDetail::EachRecord).
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of), and [`ProofError::Differ`] if the receipts are of another data set than the
    /// digest, as far as its length and its first and last record show.
    pub fn with_digest<'a>(
        digest: (&'a str, &'a DataDigest),
        receipts: impl IntoIterator<Item = (&'a str, &'a Receipt)>,
    ) -> Result<Self, ProofError> {
        Audit::of(receipts.into_iter().collect(), Some(digest))?.verdict()
    }
}

impl Audit<'_> {
    fn verdict(mut self) -> Result<Verdict, ProofError> {
        let audit = &mut self;
        let accounts = || audit.witnesses.iter().flat_map(|witness| witness.receipt.epochs());
        let claimed = accounts().filter(|account| account.steps().next().is_some());
        let claimed: BTreeSet<u64> = claimed.map(EpochAccount::epoch).collect();
        let mut said: BTreeSet<u64> = accounts().map(EpochAccount::epoch).collect();
        let last_claimed = claimed.last().copied().unwrap_or(0);
        said.extend(audit.without_a_record()?);
        let mut epochs = Vec::new();
        // The steps of an epoch have records of that epoch and of later ones, and of earlier ones if the run
        // resumed while its replicas were at different steps.
        let mut claimed: Vec<(u64, u64)> =
            claimed.into_iter().map(|epoch| (audit.reaches_back_to(epoch), epoch)).collect();
        claimed.sort_unstable();
        let mut following = claimed.iter().skip(1);
        for &(_, epoch) in &claimed {
            audit.count(epoch)?;
            let done = following.next().map_or(u64::MAX, |&(reach, _)| reach);
            let later = said.split_off(&done);
            let mut known = std::mem::replace(&mut said, later);
            known.extend(audit.counts.range(..done).map(|(&epoch, _)| epoch));
            for epoch in known {
                epochs.push(audit.judge(epoch, last_claimed)?);
            }
        }
        // Epochs with records but without a step.
        for epoch in said {
            epochs.push(audit.judge(epoch, last_claimed)?);
        }
        let absent_epochs = audit.absent_epochs(&epochs, last_claimed)?;
        Ok(Verdict { absent_epochs, absent_replicas: audit.absent_replicas(), epochs })
    }
}

/// A receipt, and the records of its steps, epoch by epoch.
struct Witness<'a> {
    name: &'a str,
    receipt: &'a Receipt,
    expected: BTreeMap<u64, Expected>,
}

/// What a receipt should have of an epoch.
struct Expected {
    account: EpochAccount,
    /// The contents of the records, as far as the data set's digest has those of each.
    contents: Digest,
}

impl Expected {
    fn of(epoch: u64) -> Self {
        Expected { account: EpochAccount::of(epoch), contents: Digest::default() }
    }

    /// Adds a record `times` times; if negative, takes it out.
    fn add(&mut self, position: u64, times: i64, data: Option<&DataDigest>) {
        self.account.add(position, times);
        if let Some(contents) = data.and_then(|data| data.of_record(position)) {
            self.contents += contents.times(times);
        }
    }
}

/// The receipts of one plan.
struct Party<'a> {
    /// The name of one of them.
    name: &'a str,
    plan: &'a Plan,
    witnesses: Vec<usize>,
}

struct Audit<'a> {
    witnesses: Vec<Witness<'a>>,
    parties: Vec<Party<'a>>,
    records: usize,
    /// How many epochs are counted at a time.
    epochs_max: usize,
    /// How often each record is due per epoch.
    times: u32,
    /// The digest of the data set.
    data: Option<&'a DataDigest>,
    /// The counts of each epoch that has records in the steps seen so far.
    counts: BTreeMap<u64, Counts>,
}

impl<'a> Audit<'a> {
    fn of(
        receipts: Vec<(&'a str, &'a Receipt)>,
        data: Option<(&'a str, &'a DataDigest)>,
    ) -> Result<Self, ProofError> {
        let Some(&(first, receipt)) = receipts.first() else { return Err(ProofError::None) };
        let plan = receipt.plan();
        let records = plan.job().records();
        if records > RECORDS_MAX {
            return Err(ProofError::TooMany { records, allowed: RECORDS_MAX });
        }
        if let Some((name, data)) = data {
            check_records([name, first], [data.contents().records(), records])?;
        }
        let of_data = data.map(|(name, data)| (name, data.samples()));
        let mut samples: Vec<(&str, &Identity)> =
            of_data.iter().map(|(name, samples)| (*name, samples)).collect();
        let mut parties: Vec<Party<'a>> = Vec::new();
        for (number, &(name, receipt)) in receipts.iter().enumerate() {
            check_run([first, name], [plan, receipt.plan()])?;
            for (other, known) in &samples {
                if let Some(says) = known.contradiction(receipt.samples()) {
                    return Err(ProofError::differ("data set", [other, name], says));
                }
            }
            samples.push((name, receipt.samples()));
            match parties.iter_mut().find(|party| party.plan == receipt.plan()) {
                Some(party) => party.witnesses.push(number),
                None => parties.push(Party { name, plan: receipt.plan(), witnesses: vec![number] }),
            }
        }
        let witness = |(name, receipt)| Witness { name, receipt, expected: BTreeMap::new() };
        Ok(Audit {
            witnesses: receipts.into_iter().map(witness).collect(),
            parties,
            records: usize::try_from(records).expect("an address has 64 bits, or counters fail to be had"),
            epochs_max: usize::try_from((COUNTERS_MAX / records.max(1)).clamp(EPOCHS_MIN, EPOCHS_MAX))
                .expect("it is small"),
            times: u32::try_from(plan.times_each()).expect("a job has at most 65,536 workers"),
            data: data.map(|(_, data)| data),
            counts: BTreeMap::new(),
        })
    }

    /// The first epoch of which the steps of `epoch` have a record.
    fn reaches_back_to(&self, epoch: u64) -> u64 {
        self.parties.iter().map(|party| *party.plan.epochs_in(epoch).start()).min().unwrap_or(epoch)
    }

    /// Counts the records of an epoch's steps.
    fn count(&mut self, epoch: u64) -> Result<(), ProofError> {
        for Witness { name, receipt, expected } in &mut self.witnesses {
            let of_plan = |error| ProofError::of_plan(name, error);
            let Some(account) = receipt.epoch(epoch) else { continue };
            let given = account
                .steps()
                .flat_map(|(replica, steps)| steps.ranges().map(move |range| (replica, range)));
            for (replica, (steps, times)) in given {
                let times = times.cast_signed();
                for step in receipt.plan().steps_with_records(epoch, steps, replica).map_err(of_plan)? {
                    for record in receipt.plan().share(epoch, step, replica).map_err(of_plan)? {
                        let due = expected.entry(record.epoch).or_insert_with(|| Expected::of(record.epoch));
                        due.add(record.index, times, self.data);
                        let held = self.counts.len();
                        let counts = match self.counts.entry(record.epoch) {
                            Slot::Occupied(counts) => counts.into_mut(),
                            Slot::Vacant(_) if held == self.epochs_max => {
                                return Err(ProofError::too_many_epochs(name, epoch, held));
                            }
                            Slot::Vacant(vacant) => vacant.insert(counts_of(self.records)?),
                        };
                        counts.add(record.index, times);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Checks that two plans are of one run: of the same records, in the same order, each equally often.
fn check_run(names: [&str; 2], [one, other]: [&Plan; 2]) -> Result<(), ProofError> {
    if let Some(says) = one.difference(other, |fact| ["files", "shuffle", "seed"].contains(&fact)) {
        return Err(ProofError::differ("run", names, says));
    }
    let says = |plan: &Plan| format!("each record {} time(s) in an epoch", plan.times_each());
    match one.times_each() == other.times_each() {
        true => Ok(()),
        false => Err(ProofError::differ("run", names, (says(one), says(other)))),
    }
}

/// Checks that a data set has as many records as a run.
fn check_records(names: [&str; 2], [one, other]: [u64; 2]) -> Result<(), ProofError> {
    let says = |records| format!("{records} records");
    match one == other {
        true => Ok(()),
        false => Err(ProofError::differ("data set", names, (says(one), says(other)))),
    }
}

/// A counter for each record of the data set, whose number a receipt states.
fn counts_of(records: usize) -> Result<Counts, ProofError> {
    Counts::of(records).ok_or_else(|| ProofError::no_memory(records))
}
