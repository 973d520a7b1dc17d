//! How far the runs of some receipts have got in an epoch, and which steps are missing.

use std::collections::BTreeMap;
use std::ops::Range;

use percolator::order::{Plan, ReplicaShare};
use percolator::receipt::Multiset;

use crate::coverage::Marks;
use crate::verdict::{GivenSteps, MissingSteps};
use crate::{ProofError, gaps};

/// How far an epoch has got.
pub(crate) struct EpochProgress<'a> {
    /// The parties that have steps of the epoch.
    pub(crate) parties: Vec<PartyProgress<'a>>,
    /// Whether the epoch has ended, or a later one has begun.
    pub(crate) must_be_covered: bool,
    /// Whether no other plan has records of the epoch.
    pub(crate) is_only: bool,
}

/// How far the receipts of one plan have got.
pub(crate) struct PartyProgress<'a> {
    /// The name of one of its receipts.
    pub(crate) name: &'a str,
    pub(crate) plan: &'a Plan,
    /// Its receipts, by number.
    pub(crate) witnesses: &'a [usize],
    /// The steps each replica was given.
    pub(crate) given: BTreeMap<usize, Multiset>,
    /// The number of steps of the epoch.
    pub(crate) of: u64,
    pub(crate) missing: Vec<MissingSteps>,
}

impl PartyProgress<'_> {
    /// If several plans share an epoch, each has a part of its steps, and only gaps within that part are
    /// known to be missing.
    pub(crate) fn find_missing(&mut self, is_only: bool, must_be_covered: bool) {
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
            let missing = gaps::missing(given, all);
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

    fn share(&self, epoch: u64, step: u64, replica: usize) -> Result<ReplicaShare<'_>, ProofError> {
        self.plan.share(epoch, step, replica).map_err(|error| ProofError::of_plan(self.name, error))
    }
}

impl EpochProgress<'_> {
    pub(crate) fn steps(&self) -> Option<GivenSteps> {
        let [PartyProgress { plan, given, of, .. }] = &self.parties[..] else { return None };
        let from_first =
            |steps: &Multiset| gaps::missing(steps, 0..*of).first().map_or(*of, |missing| missing.start);
        let has_all = given.len() == plan.world().replicas();
        let by_all = given.values().map(from_first).min().filter(|_| has_all).unwrap_or(0);
        let by_some = given.values().map(|steps| steps.bounds().end).max().unwrap_or(0);
        Some(GivenSteps { of: *of, by_all, by_some })
    }

    /// Marks the records of an epoch that are in the missing steps.
    pub(crate) fn mark_passed_over(&self, epoch: u64, marks: &mut Marks) -> Result<(), ProofError> {
        for party in &self.parties {
            for MissingSteps { replicas, steps } in &party.missing {
                for replica in replicas.clone() {
                    let busy = party.plan.steps_with_records(epoch, steps.clone(), replica);
                    for step in busy.map_err(|error| ProofError::of_plan(party.name, error))? {
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
    pub(crate) fn is_step_by_step(&self, epoch: u64) -> Result<bool, ProofError> {
        /// A second's worth, or less.
        const LOOKS_MAX: usize = 1 << 20;

        let mut looks = 0..LOOKS_MAX;
        for party in &self.parties {
            let missing = party.missing.iter().flat_map(|MissingSteps { replicas, steps }| {
                replicas.clone().map(move |replica| (replica, steps.clone()))
            });
            let given = party.given.iter();
            let doubled =
                given.flat_map(|(&replica, given)| gaps::doubled(given).map(move |steps| (replica, steps)));
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
