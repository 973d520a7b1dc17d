//! Verifies receipts against their plans and against each other.
//!
//! A receipt has what was delivered in two forms: as steps, whose records its plan gives, and as a digest of
//! the records themselves. If both agree, nothing was lost or doubled on the way through a feed. The steps of
//! all receipts together then show how often each record came. Records that a digest has beyond its steps are
//! counted too, if they can be named.

mod absent;

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use crate::order::{OrderError, Plan};
use crate::receipt::content::ContentHash;
use crate::receipt::coverage::{Counts, Marks};
use crate::receipt::digest::EpochKey;
use crate::receipt::ledger::{Entries, LedgerEntry};
use crate::receipt::multiset::Multiset;
use crate::receipt::progress::{EpochProgress, PartyProgress};
use crate::receipt::verdict::{
    ContentsDeviation, ContentsVerdict, Deviation, DoubledSteps, EpochState, EpochVerdict, Positions, Verdict,
};
use crate::receipt::{DataDigest, Digest, DigestDetail, Receipt, ReceiptError, check_same, check_samples};
use crate::source::Identity;

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
    /// [`ReceiptError`] if there are no receipts, if they are of different runs, or if their records are too
    /// many to be counted.
    pub fn of<'a>(receipts: impl IntoIterator<Item = (&'a str, &'a Receipt)>) -> Result<Self, ReceiptError> {
        Audit::of(receipts.into_iter().collect(), None)?.verdict()
    }

    /// Like [`of`](Self::of), and verifies that the right bytes were delivered: those of the data set of the
    /// digest, which has a name as well. Receipts must [keep contents](crate::FeedBuilder::receipt_contents).
    ///
    /// A digest with only the sum over all records proves epochs that were delivered as a whole. An epoch
    /// that is under way or drops records needs one with [each record's
    /// hash](crate::receipt::DigestDetail::EachRecord).
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of), and [`ReceiptError::Differ`] if the receipts are of another data set than the
    /// digest, as far as its length and its first and last record show.
    pub fn with_digest<'a>(
        digest: (&'a str, &'a DataDigest),
        receipts: impl IntoIterator<Item = (&'a str, &'a Receipt)>,
    ) -> Result<Self, ReceiptError> {
        Audit::of(receipts.into_iter().collect(), Some(digest))?.verdict()
    }
}

impl Audit<'_> {
    fn verdict(mut self) -> Result<Verdict, ReceiptError> {
        let audit = &mut self;
        let entries = || audit.witnesses.iter().flat_map(|witness| &witness.receipt.entries);
        let has_steps = |entry: &LedgerEntry| !entry.steps.is_empty();
        let claimed: BTreeSet<u64> =
            entries().filter(|(_, entry)| has_steps(entry)).map(|(&epoch, _)| epoch).collect();
        let mut said: BTreeSet<u64> = entries().map(|(&epoch, _)| epoch).collect();
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

/// A receipt, and the records of its steps.
struct Witness<'a> {
    name: &'a str,
    receipt: &'a Receipt,
    expected: Entries,
}

/// The receipts of one plan.
struct Party<'a> {
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
    ) -> Result<Self, ReceiptError> {
        let Some(&first) = receipts.first() else { return Err(ReceiptError::None) };
        let plan = &first.1.plan;
        let records = plan.job().records();
        if records > RECORDS_MAX {
            return Err(ReceiptError::TooMany { records, allowed: RECORDS_MAX });
        }
        if let Some((name, data)) = data {
            check_records((name, data), (first.0, records))?;
        }
        let of_data = data.map(|(name, data)| (name, data.samples()));
        let mut samples: Vec<(&str, &Identity)> =
            of_data.iter().map(|(name, samples)| (*name, samples)).collect();
        let mut parties: Vec<Party<'a>> = Vec::new();
        for (number, &(name, receipt)) in receipts.iter().enumerate() {
            let pair = [(first.0, plan), (name, &receipt.plan)];
            check_same("run", pair, |fact| ["files", "shuffle", "seed"].contains(&fact))?;
            check_times(pair)?;
            samples.iter().try_for_each(|said| check_samples([*said, (name, &receipt.samples)]))?;
            samples.push((name, &receipt.samples));
            match parties.iter_mut().find(|party| *party.plan == receipt.plan) {
                Some(party) => party.witnesses.push(number),
                None => parties.push(Party { plan: &receipt.plan, witnesses: vec![number] }),
            }
        }
        let witness = |(name, receipt)| Witness { name, receipt, expected: Entries::new() };
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
    fn count(&mut self, epoch: u64) -> Result<(), ReceiptError> {
        let data = self.data.filter(|data| data.detail() == DigestDetail::EachRecord);
        for Witness { name, receipt, expected } in &mut self.witnesses {
            let Some(entry) = receipt.entries.get(&epoch) else { continue };
            let given = entry
                .steps
                .iter()
                .flat_map(|(&replica, steps)| steps.ranges().map(move |range| (replica, range)));
            for (replica, (steps, times)) in given {
                let steps = receipt.plan.steps_with_records(epoch, steps, replica);
                for step in steps.map_err(|error| not_of_plan(name, error))? {
                    let share = receipt.plan.share(epoch, step, replica);
                    for record in share.map_err(|error| not_of_plan(name, error))? {
                        let key = EpochKey::of(record.epoch);
                        let entry = expected.entry(record.epoch).or_default();
                        entry.add(key, record.index, times.cast_signed());
                        if let Some(hash) = data.and_then(|data| data.low_hash(record.index)) {
                            entry.contents.add_content(ContentHash(hash.into()), times.cast_signed());
                        }
                        let held = self.counts.len();
                        let counts = match self.counts.entry(record.epoch) {
                            Slot::Occupied(counts) => counts.into_mut(),
                            Slot::Vacant(_) if held == self.epochs_max => {
                                return Err(too_many_epochs(name, epoch, held));
                            }
                            Slot::Vacant(vacant) => vacant.insert(counts_of(self.records)?),
                        };
                        counts.add(record.index, times.cast_signed());
                    }
                }
            }
        }
        Ok(())
    }

    /// Judges an epoch. All steps that have records of it have been counted.
    fn judge(&mut self, epoch: u64, last_claimed: u64) -> Result<EpochVerdict, ReceiptError> {
        let mut counts = match self.counts.remove(&epoch) {
            Some(counts) => counts,
            None => counts_of(self.records)?,
        };
        let bad = self.expect_no_bad(epoch);
        let mut contents = self.contents(epoch);
        let deviations = self.deviations(epoch);
        let mut lost = Marks::of(self.records).ok_or_else(|| no_memory(self.records))?;
        for &(index, times) in deviations.iter().filter_map(|deviation| deviation.records.as_ref()).flatten()
        {
            counts.add(index, times);
            if times < 0 {
                lost.add(index);
            }
        }
        let progress = self.progress(epoch, last_claimed)?;
        let delivered = counts.total().saturating_sub(bad.count);
        let due = self.records as u64 * u64::from(self.times);
        let (mut dropped, mut pending) = (0, 0);
        let missing = if progress.must_be_covered {
            // Counted as if they had come, so a dropped record that did come counts as one too many.
            dropped = self.count_left_out(epoch, progress.is_only, &mut counts)?;
            counts.missing(self.times)
        } else {
            progress.mark_passed_over(epoch, &mut lost)?;
            let missing = counts.missing_of(&lost, self.times);
            pending = counts.missing(self.times).count - missing.count;
            missing
        };
        let doubled = counts.doubled(self.times);
        let doubled_steps = self.doubled_steps(epoch, &progress);
        // If every worker has all records, a worker that had them twice hides another's lack in the sum, but
        // not in the steps.
        let is_step_by_step = self.times == 1 || progress.is_step_by_step(epoch)?;
        let steps = progress.steps();
        let missing_steps: Vec<_> = progress.parties.into_iter().flat_map(|party| party.missing).collect();
        let is_once = missing.count == 0 && doubled.count == 0 && is_step_by_step;
        let is_sound = is_once && deviations.is_empty();
        let state = match (is_sound, pending) {
            (false, _) => EpochState::Broken,
            (true, 0) => EpochState::Covered,
            (true, _) => EpochState::UnderWay,
        };
        // Even if each receipt by itself is right: that check compared only half of each hash.
        let may_be_proven = matches!(contents, Some(ContentsVerdict::NotKnown | ContentsVerdict::Proven));
        if may_be_proven && state == EpochState::Covered && dropped == 0 && bad.count == 0 {
            contents = Some(self.contents_of_all(epoch));
        }
        Ok(EpochVerdict {
            epoch,
            state,
            times: self.times.into(),
            due,
            delivered,
            dropped,
            pending,
            missing,
            doubled,
            bad,
            steps,
            missing_steps,
            doubled_steps,
            deviations,
            contents,
        })
    }

    /// Takes the records that were bad out of what is expected of each receipt, and returns them. They count
    /// as covered: their steps came, without them.
    fn expect_no_bad(&mut self, epoch: u64) -> Positions {
        let data = self.data.filter(|data| data.detail() == DigestDetail::EachRecord);
        let key = EpochKey::of(epoch);
        let mut all = Multiset::default();
        for Witness { receipt, expected, .. } in &mut self.witnesses {
            let Some(LedgerEntry { bad, .. }) =
                receipt.entries.get(&epoch).filter(|entry| !entry.bad.is_empty())
            else {
                continue;
            };
            let entry = expected.entry(epoch).or_default();
            for (index, times) in bad.ranges().flat_map(|(range, times)| range.map(move |at| (at, times))) {
                entry.add(key, index, -times.cast_signed());
                if let Some(hash) = data.and_then(|data| data.low_hash(index)) {
                    entry.contents.add_content(ContentHash(hash.into()), -times.cast_signed());
                }
            }
            all.merge(bad);
        }
        let mut positions = Positions::default();
        for (range, times) in all.ranges() {
            range.for_each(|index| positions.push(index, times));
        }
        positions
    }

    /// Counts the records of an epoch that its plans leave out by design, for plans that got to the point
    /// where they do, and returns their number. `is_only`: one plan alone has records of the epoch.
    fn count_left_out(&self, epoch: u64, is_only: bool, counts: &mut Counts) -> Result<u64, ReceiptError> {
        let mut left_out = 0;
        for party in &self.parties {
            let (plan, name) = (party.plan, self.witnesses[party.witnesses[0]].name);
            let has_records = |&of: &u64| of != epoch && plan.epochs_in(of).contains(&epoch);
            for of in std::iter::once(epoch).chain(plan.resumed_epochs().filter(has_records)) {
                let is_under_way = is_only && of == epoch && !self.given(party, of).is_empty();
                if is_under_way || self.has_ended(party, of)? || self.resumes_with_nothing(party, of)? {
                    let shares = plan.left_out(of).map_err(|error| not_of_plan(name, error))?;
                    for record in shares.into_iter().flatten().filter(|record| record.epoch == epoch) {
                        counts.add(record.index, 1);
                        left_out += 1;
                    }
                }
            }
        }
        Ok(left_out)
    }

    /// The epochs of which receipts may have no record: those of another job's rest, if a run got to its end
    /// and so left out the records that filled no batch.
    fn without_a_record(&self) -> Result<Vec<u64>, ReceiptError> {
        let mut without = Vec::new();
        for party in &self.parties {
            for of in party.plan.resumed_epochs() {
                if self.has_ended(party, of)? || self.resumes_with_nothing(party, of)? {
                    let epochs = party.plan.epochs_in(of);
                    if epochs.end() - epochs.start() >= self.epochs_max as u64 {
                        let name = self.witnesses[party.witnesses[0]].name;
                        return Err(too_many_epochs(name, of, self.epochs_max));
                    }
                    without.extend(epochs);
                }
            }
        }
        Ok(without)
    }

    /// Whether `epoch` is one in which a party's plan resumes with less than a step, all of which it leaves
    /// out when it gets there.
    fn resumes_with_nothing(&self, party: &Party<'_>, epoch: u64) -> Result<bool, ReceiptError> {
        let Party { plan, .. } = party;
        if self.steps(party, epoch)? > 0 || !plan.resumed_epochs().any(|of| of == epoch) {
            return Ok(false);
        }
        for before in plan.resumed_epochs().filter(|&of| of < epoch) {
            if self.steps(party, before)? > 0 && !self.has_ended(party, before)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of steps of an epoch, by a party's plan.
    fn steps(&self, party: &Party<'_>, epoch: u64) -> Result<u64, ReceiptError> {
        let name = self.witnesses[party.witnesses[0]].name;
        party.plan.steps(epoch).map_err(|error| not_of_plan(name, error))
    }

    /// Whether any of a party's replicas was given the last step of an epoch.
    fn has_ended(&self, party: &Party<'_>, epoch: u64) -> Result<bool, ReceiptError> {
        let steps = self.steps(party, epoch)?;
        Ok(self.given(party, epoch).values().any(|given| given.bounds().end == steps))
    }

    /// The steps of an epoch that a party's replicas were given.
    fn given(&self, party: &Party<'_>, epoch: u64) -> BTreeMap<usize, Multiset> {
        let mut given: BTreeMap<usize, Multiset> = BTreeMap::new();
        for &witness in &party.witnesses {
            let entry = self.witnesses[witness].receipt.entries.get(&epoch);
            for (&replica, steps) in entry.iter().flat_map(|entry| &entry.steps) {
                given.entry(replica).or_default().merge(steps);
            }
        }
        given
    }

    /// Compares an epoch's bytes, receipt by receipt.
    fn contents(&self, epoch: u64) -> Option<ContentsVerdict> {
        let data = self.data?;
        let none = LedgerEntry::default();
        let entries = || {
            self.witnesses.iter().map(|witness| {
                let found = witness.receipt.entries.get(&epoch).unwrap_or(&none);
                (witness, found, witness.expected.get(&epoch).unwrap_or(&none))
            })
        };
        let lacks = entries().filter(|(_, found, _)| found.contents.records() != found.digest.records());
        let receipts: Vec<String> = lacks.map(|(witness, ..)| witness.name.to_owned()).collect();
        if !receipts.is_empty() {
            return Some(ContentsVerdict::NotSaid { receipts });
        }
        if data.detail() == DigestDetail::Sum {
            return Some(ContentsVerdict::NotKnown);
        }
        let differ = entries().filter(|(_, found, due)| found.contents.only_low() != due.contents.only_low());
        let deviation =
            |(witness, found, due): (&Witness<'_>, &LedgerEntry, &LedgerEntry)| ContentsDeviation {
                receipts: vec![witness.name.to_owned()],
                found: found.contents.only_low(),
                due: due.contents.only_low(),
            };
        let deviations: Vec<ContentsDeviation> = differ.map(deviation).collect();
        Some(if deviations.is_empty() {
            ContentsVerdict::Proven
        } else {
            ContentsVerdict::Differ(deviations)
        })
    }

    /// Compares the bytes of an epoch of which all records came as often as they are due.
    fn contents_of_all(&self, epoch: u64) -> ContentsVerdict {
        let of = |witness: &Witness<'_>| witness.receipt.entries.get(&epoch).map(|entry| entry.contents);
        let having = self.witnesses.iter().filter_map(|witness| Some((witness.name, of(witness)?)));
        let found = having.clone().fold(Digest::default(), |sum, (_, contents)| sum + contents);
        let due = self.data.map_or(Digest::default(), |data| data.contents().times(self.times.into()));
        if found == due {
            return ContentsVerdict::Proven;
        }
        let receipts = having.map(|(name, _)| name.to_owned()).collect();
        ContentsVerdict::Differ(vec![ContentsDeviation { receipts, found, due }])
    }

    /// What the receipts have of an epoch beyond the records of their steps.
    fn deviations(&mut self, epoch: u64) -> Vec<Deviation> {
        let deviation = |witness: &mut Witness<'_>| {
            let due = witness.expected.remove(&epoch).unwrap_or_default();
            let none = LedgerEntry::default();
            let found = witness.receipt.entries.get(&epoch).unwrap_or(&none);
            if (due.digest, &due.sketch) == (found.digest, &found.sketch) {
                return None;
            }
            let key = EpochKey::of(epoch);
            let records = found.sketch.beyond(&due.sketch, key).filter(|records| {
                // Names that do not explain the digests are not trusted.
                let mut explained = due.clone();
                records.iter().for_each(|(&index, times)| explained.add(key, index, *times));
                explained.digest == found.digest
            });
            let records = records.map(|records| records.into_iter().collect());
            Some(Deviation { receipt: witness.name.to_owned(), records })
        };
        self.witnesses.iter_mut().filter_map(deviation).collect()
    }

    /// How far each party has got in an epoch.
    fn progress(&self, epoch: u64, last_claimed: u64) -> Result<EpochProgress<'_>, ReceiptError> {
        let mut parties = Vec::new();
        let (mut is_resumed, mut has_ended) = (false, false);
        for party in &self.parties {
            let Party { plan, witnesses } = party;
            // With or without steps of its own, it has records of the epoch. An epoch into which another job
            // had wrapped is not one of them: all of its steps are this plan's.
            let of = |of: &u64| epoch <= *of && plan.epochs_in(*of).contains(&epoch);
            for of in plan.resumed_epochs().filter(of) {
                is_resumed = true;
                has_ended |= self.resumes_with_nothing(party, of)?;
            }
            // Everything that this plan has of the epoch is in what another job left of an earlier one.
            let ends_with = |of: &u64| *of < epoch && plan.has_rest_of(epoch, *of);
            for of in plan.resumed_epochs().filter(ends_with) {
                has_ended |= self.has_ended(party, of)? || self.resumes_with_nothing(party, of)?;
            }
            let given = self.given(party, epoch);
            if !given.is_empty() {
                let name = self.witnesses[witnesses[0]].name;
                let (of, is_at_end) = (self.steps(party, epoch)?, self.has_ended(party, epoch)?);
                let missing = Vec::new();
                has_ended |= is_at_end;
                parties.push(PartyProgress { name, plan, witnesses, given, of, missing });
            }
        }
        let must_be_covered = epoch < last_claimed || has_ended;
        let is_only = parties.len() == 1 && !is_resumed;
        parties.iter_mut().for_each(|party| party.find_missing(is_only, must_be_covered));
        Ok(EpochProgress { parties, must_be_covered, is_only })
    }

    fn doubled_steps(&self, epoch: u64, progress: &EpochProgress<'_>) -> Vec<DoubledSteps> {
        let mut doubled = Vec::new();
        for party in &progress.parties {
            let by_plan = party.witnesses.iter().map(|&witness| &self.witnesses[witness]);
            for (&replica, given) in &party.given {
                let first = doubled.len();
                let of_replica = |steps| DoubledSteps { replica, steps, receipts: Vec::new() };
                doubled.extend(given.doubled().map(of_replica));
                let doubled = &mut doubled[first..];
                for witness in by_plan.clone() {
                    let entry = witness.receipt.entries.get(&epoch);
                    let Some(said) = entry.and_then(|entry| entry.steps.get(&replica)) else { continue };
                    for number in said.having_any_of(doubled.iter().map(|doubled| &doubled.steps)) {
                        doubled[number].receipts.push(witness.name.to_owned());
                    }
                }
            }
        }
        doubled
    }
}

/// Checks that two plans have each record equally often.
fn check_times([one, other]: [(&str, &Plan); 2]) -> Result<(), ReceiptError> {
    let [one_times, other_times] = [one.1, other.1].map(Plan::times_each);
    let says = |times| format!("each record {times} time(s) in an epoch");
    if one_times == other_times {
        return Ok(());
    }
    Err(ReceiptError::Differ {
        of: "run",
        one: one.0.to_owned(),
        one_says: says(one_times),
        other: other.0.to_owned(),
        other_says: says(other_times),
    })
}

/// Checks that the data set has as many records as the run.
fn check_records(
    (name, data): (&str, &DataDigest),
    (other, records): (&str, u64),
) -> Result<(), ReceiptError> {
    if data.contents().records() == records {
        return Ok(());
    }
    Err(ReceiptError::Differ {
        of: "data set",
        one: name.to_owned(),
        one_says: format!("{} records", data.contents().records()),
        other: other.to_owned(),
        other_says: format!("{records} records"),
    })
}

fn too_many_epochs(name: &str, epoch: u64, allowed: usize) -> ReceiptError {
    ReceiptError::TooManyEpochs { name: name.to_owned(), epoch, allowed }
}

/// A counter for each record of the data set, whose number a receipt states.
fn counts_of(records: usize) -> Result<Counts, ReceiptError> {
    Counts::of(records).ok_or_else(|| no_memory(records))
}

fn no_memory(records: usize) -> ReceiptError {
    ReceiptError::Memory { records: records as u64 }
}

/// The error of a step that a receipt's plan does not have.
pub(super) fn not_of_plan(name: &str, error: OrderError) -> ReceiptError {
    ReceiptError::Order { name: name.to_owned(), error }
}
