//! Judges an epoch whose records have been counted.

use percolator::receipt::{EpochAccount, Multiset};

use super::{Audit, Expected, Witness, counts_of};
use crate::coverage::Marks;
use crate::progress::EpochProgress;
use crate::verdict::{ContentsVerdict, Deviation, DoubledSteps, EpochState, EpochVerdict, Positions};
use crate::{ProofError, gaps};

impl Audit<'_> {
    /// Judges an epoch. All steps that have records of it have been counted.
    pub(super) fn judge(&mut self, epoch: u64, last_claimed: u64) -> Result<EpochVerdict, ProofError> {
        let mut counts = match self.counts.remove(&epoch) {
            Some(counts) => counts,
            None => counts_of(self.records)?,
        };
        let bad = self.expect_no_bad(epoch);
        let mut contents = self.contents(epoch);
        let deviations = self.deviations(epoch);
        let mut lost = Marks::of(self.records).ok_or_else(|| ProofError::no_memory(self.records))?;
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
        let mut all = Multiset::default();
        for Witness { receipt, expected, .. } in &mut self.witnesses {
            let Some(bad) = receipt.epoch(epoch).map(EpochAccount::bad).filter(|bad| !bad.is_empty()) else {
                continue;
            };
            let due = expected.entry(epoch).or_insert_with(|| Expected::of(epoch));
            for (position, times) in bad.ranges().flat_map(|(range, times)| range.map(move |at| (at, times)))
            {
                due.add(position, -times.cast_signed(), self.data);
            }
            all.merge(bad);
        }
        let mut positions = Positions::default();
        for (range, times) in all.ranges() {
            range.for_each(|position| positions.push(position, times));
        }
        positions
    }

    /// What the receipts have of an epoch beyond the records of their steps.
    fn deviations(&mut self, epoch: u64) -> Vec<Deviation> {
        let none = EpochAccount::of(epoch);
        let deviation = |witness: &mut Witness<'_>| {
            let due = witness.expected.remove(&epoch);
            let due = due.as_ref().map_or(&none, |due| &due.account);
            let records = match witness.receipt.epoch(epoch).unwrap_or(&none).beyond(due) {
                Some(records) if records.is_empty() => return None,
                records => records.map(|records| records.into_iter().collect()),
            };
            Some(Deviation { receipt: witness.name.to_owned(), records })
        };
        self.witnesses.iter_mut().filter_map(deviation).collect()
    }

    fn doubled_steps(&self, epoch: u64, progress: &EpochProgress<'_>) -> Vec<DoubledSteps> {
        let mut doubled = Vec::new();
        for party in &progress.parties {
            let by_plan = party.witnesses.iter().map(|&witness| &self.witnesses[witness]);
            for (&replica, given) in &party.given {
                let first = doubled.len();
                let of_replica = |steps| DoubledSteps { replica, steps, receipts: Vec::new() };
                doubled.extend(gaps::doubled(given).map(of_replica));
                let doubled = &mut doubled[first..];
                for witness in by_plan.clone() {
                    let account = witness.receipt.epoch(epoch);
                    let Some(said) = account.and_then(|account| account.steps_of(replica)) else { continue };
                    let steps = doubled.iter().map(|doubled| &doubled.steps);
                    for number in gaps::having_any_of(said, steps) {
                        doubled[number].receipts.push(witness.name.to_owned());
                    }
                }
            }
        }
        doubled
    }
}
