//! How far the runs of some receipts have got in an epoch, and which steps are missing.

use std::collections::BTreeMap;
use std::ops::Range;

use super::ReceiptError;
use super::coverage::Marks;
use super::multiset::Multiset;
use super::verdict::{GivenSteps, MissingSteps};
use super::verify::not_of_plan;
use crate::order::{Plan, ReplicaShare};

/// How far an epoch has got.
pub(super) struct EpochProgress<'a> {
    /// The parties that have steps of the epoch.
    pub(super) parties: Vec<PartyProgress<'a>>,
    /// Whether the epoch has ended, or a later one has begun.
    pub(super) must_be_covered: bool,
    /// Whether no other plan has records of the epoch.
    pub(super) is_only: bool,
}

/// How far the receipts of one plan have got.
pub(super) struct PartyProgress<'a> {
    /// The name of one of its receipts.
    pub(super) name: &'a str,
    pub(super) plan: &'a Plan,
    /// Its receipts, by number.
    pub(super) witnesses: &'a [usize],
    /// The steps each replica was given.
    pub(super) given: BTreeMap<usize, Multiset>,
    /// The number of steps of the epoch.
    pub(super) of: u64,
    pub(super) missing: Vec<MissingSteps>,
}

impl PartyProgress<'_> {
    /// If several plans share an epoch, each has a part of its steps, and only gaps within that part are
    /// known to be missing.
    pub(super) fn find_missing(&mut self, is_only: bool, must_be_covered: bool) {
        let none = Multiset::default();
        // Adjacent replicas that miss the same steps are reported together.
        let mut groups: Vec<(Range<usize>, Vec<Range<u64>>)> = Vec::new();
        for replica in 0..self.plan.world().replicas() {
            let given = self.given.get(&replica).unwrap_or(&none);
            let all = match (is_only, must_be_covered) {
                (false, _) => given.bounds(),
                (true, false) => 0..given.bounds().end,
                (true, true) => 0..self.of,
            };
            let missing = given.missing(all);
            match groups.last_mut() {
                Some((replicas, same)) if *same == missing => replicas.end += 1,
                _ => groups.push((replica..replica + 1, missing)),
            }
        }
        let of_group = |(replicas, missing): (Range<usize>, Vec<Range<u64>>)| {
            missing.into_iter().map(move |steps| MissingSteps { replicas: replicas.clone(), steps })
        };
        self.missing = groups.into_iter().flat_map(of_group).collect();
    }

    fn share(&self, epoch: u64, step: u64, replica: usize) -> Result<ReplicaShare<'_>, ReceiptError> {
        self.plan.share(epoch, step, replica).map_err(|error| not_of_plan(self.name, error))
    }
}

impl EpochProgress<'_> {
    pub(super) fn steps(&self) -> Option<GivenSteps> {
        let [PartyProgress { plan, given, of, .. }] = &self.parties[..] else { return None };
        let from_first =
            |steps: &Multiset| steps.missing(0..*of).first().map_or(*of, |missing| missing.start);
        let has_all = given.len() == plan.world().replicas();
        let by_all = given.values().map(from_first).min().filter(|_| has_all).unwrap_or(0);
        let by_some = given.values().map(|steps| steps.bounds().end).max().unwrap_or(0);
        Some(GivenSteps { of: *of, by_all, by_some })
    }

    /// Marks the records of an epoch that are in the missing steps.
    pub(super) fn mark_passed_over(&self, epoch: u64, marks: &mut Marks) -> Result<(), ReceiptError> {
        for party in &self.parties {
            for MissingSteps { replicas, steps } in &party.missing {
                for replica in replicas.clone() {
                    let busy = party.plan.steps_with_records(epoch, steps.clone(), replica);
                    for step in busy.map_err(|error| not_of_plan(party.name, error))? {
                        let of_epoch =
                            party.share(epoch, step, replica)?.filter(|record| record.epoch == epoch);
                        of_epoch.for_each(|record| marks.add(record.index));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether each step that has records was given once. If more steps than can be checked were not, this is
    /// unknown, and so it is not claimed.
    pub(super) fn is_step_by_step(&self, epoch: u64) -> Result<bool, ReceiptError> {
        /// A second's worth, or less.
        const LOOKS_MAX: usize = 1 << 20;

        let mut looks = 0..LOOKS_MAX;
        for party in &self.parties {
            let missing = party.missing.iter().flat_map(|MissingSteps { replicas, steps }| {
                replicas.clone().map(move |replica| (replica, steps.clone()))
            });
            let given = party.given.iter();
            let doubled =
                given.flat_map(|(&replica, given)| given.doubled().map(move |steps| (replica, steps)));
            for (replica, steps) in missing.chain(doubled) {
                for step in steps {
                    if looks.next().is_none() || party.share(epoch, step, replica)?.len() > 0 {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}
