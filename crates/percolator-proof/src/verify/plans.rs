//! How far the plans of some receipts have got in an epoch, and what they leave out of it.

use std::collections::BTreeMap;

use percolator::receipt::{EpochAccount, Multiset};

use super::{Audit, Party};
use crate::ProofError;
use crate::coverage::Counts;
use crate::progress::{EpochProgress, PartyProgress};

impl Party<'_> {
    /// The number of steps of an epoch, by the plan.
    pub(super) fn steps(&self, epoch: u64) -> Result<u64, ProofError> {
        self.plan.steps(epoch).map_err(|error| ProofError::of_plan(self.name, error))
    }
}

impl Audit<'_> {
    /// How far each party has got in an epoch.
    pub(super) fn progress(&self, epoch: u64, last_claimed: u64) -> Result<EpochProgress<'_>, ProofError> {
        let mut parties = Vec::new();
        let (mut is_resumed, mut has_ended) = (false, false);
        for party in &self.parties {
            let Party { name, plan, witnesses } = party;
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
                let (of, is_at_end) = (party.steps(epoch)?, self.has_ended(party, epoch)?);
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

    /// Counts the records of an epoch that its plans leave out by design, for plans that got to the point
    /// where they do, and returns their number. `is_only`: one plan alone has records of the epoch.
    pub(super) fn count_left_out(
        &self,
        epoch: u64,
        is_only: bool,
        counts: &mut Counts,
    ) -> Result<u64, ProofError> {
        let mut left_out = 0;
        for party in &self.parties {
            let Party { name, plan, .. } = party;
            let has_records = |&of: &u64| of != epoch && plan.epochs_in(of).contains(&epoch);
            for of in std::iter::once(epoch).chain(plan.resumed_epochs().filter(has_records)) {
                let is_under_way = is_only && of == epoch && !self.given(party, of).is_empty();
                if is_under_way || self.has_ended(party, of)? || self.resumes_with_nothing(party, of)? {
                    let shares = plan.left_out(of).map_err(|error| ProofError::of_plan(name, error))?;
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
    pub(super) fn without_a_record(&self) -> Result<Vec<u64>, ProofError> {
        let mut without = Vec::new();
        for party in &self.parties {
            for of in party.plan.resumed_epochs() {
                if self.has_ended(party, of)? || self.resumes_with_nothing(party, of)? {
                    let epochs = party.plan.epochs_in(of);
                    if epochs.end() - epochs.start() >= self.epochs_max as u64 {
                        return Err(ProofError::too_many_epochs(party.name, of, self.epochs_max));
                    }
                    without.extend(epochs);
                }
            }
        }
        Ok(without)
    }

    /// Whether `epoch` is one in which a party's plan resumes with less than a step, all of which it leaves
    /// out when it gets there.
    fn resumes_with_nothing(&self, party: &Party<'_>, epoch: u64) -> Result<bool, ProofError> {
        let Party { plan, .. } = party;
        if party.steps(epoch)? > 0 || !plan.resumed_epochs().any(|of| of == epoch) {
            return Ok(false);
        }
        for before in plan.resumed_epochs().filter(|&of| of < epoch) {
            if party.steps(before)? > 0 && !self.has_ended(party, before)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether any of a party's replicas was given the last step of an epoch.
    fn has_ended(&self, party: &Party<'_>, epoch: u64) -> Result<bool, ProofError> {
        let steps = party.steps(epoch)?;
        Ok(self.given(party, epoch).values().any(|given| given.bounds().end == steps))
    }

    /// The steps of an epoch that a party's replicas were given.
    pub(super) fn given(&self, party: &Party<'_>, epoch: u64) -> BTreeMap<usize, Multiset> {
        let mut given: BTreeMap<usize, Multiset> = BTreeMap::new();
        for &witness in &party.witnesses {
            let account = self.witnesses[witness].receipt.epoch(epoch);
            for (replica, steps) in account.into_iter().flat_map(EpochAccount::steps) {
                given.entry(replica).or_default().merge(steps);
            }
        }
        given
    }
}
