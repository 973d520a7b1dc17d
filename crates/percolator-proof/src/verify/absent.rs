//! What is in no receipt: epochs between others, and replicas.

use std::collections::BTreeSet;
use std::ops::Range;

use percolator::receipt::Multiset;

use super::{Audit, Party};
use crate::verdict::{AbsentReplicas, EpochVerdict};
use crate::{ProofError, gaps};

impl Audit<'_> {
    /// The epochs between those that were judged, except those of which a record may still come.
    pub(super) fn absent_epochs(
        &self,
        judged: &[EpochVerdict],
        last_claimed: u64,
    ) -> Result<Vec<Range<u64>>, ProofError> {
        let pairs = judged.windows(2).map(|pair| pair[0].epoch + 1..pair[1].epoch);
        let absent: Vec<Range<u64>> = pairs.filter(|between| !between.is_empty()).collect();
        // Of the jobs that resumed last: it is unknown which of them went on as another job, and that one has
        // less left.
        let resumed = |party: &Party<'_>| party.plan.resumed_epochs().max();
        let Some(last) = self.parties.iter().filter_map(resumed).max().filter(|_| !absent.is_empty()) else {
            return Ok(absent);
        };
        let last = self.parties.iter().filter(|party| resumed(party) == Some(last));
        let due: Vec<_> = last.map(|party| self.still_due(party, last_claimed)).collect::<Result<_, _>>()?;
        let mut known = Multiset::default();
        for &epoch in due[0].iter().filter(|epoch| due[1..].iter().all(|due| due.contains(epoch))) {
            known.add(epoch..epoch.saturating_add(1), 1);
        }
        Ok(absent.into_iter().flat_map(|absent| gaps::missing(&known, absent)).collect())
    }

    /// The epochs of the records in those steps of another job's rest that a party's replicas have not
    /// reached: all of them, or those of the first steps if there are more than can be checked.
    fn still_due(&self, party: &Party<'_>, last_claimed: u64) -> Result<BTreeSet<u64>, ProofError> {
        /// Of steps and records: a few seconds' worth.
        const LOOKS_MAX: u64 = 1 << 26;

        let mut looks = LOOKS_MAX;
        let Party { name, plan, .. } = party;
        let mut due = BTreeSet::new();
        for of in plan.resumed_epochs().filter(|&of| of >= last_claimed) {
            let given = self.given(party, of);
            for replica in 0..plan.world().replicas() {
                let reached = given.get(&replica).map_or(0, |given| given.bounds().end);
                for step in reached..party.steps(of)? {
                    let share =
                        plan.share(of, step, replica).map_err(|error| ProofError::of_plan(name, error))?;
                    looks = looks.saturating_sub(1 + share.len() as u64);
                    if looks == 0 {
                        return Ok(due);
                    }
                    due.extend(share.map(|record| record.epoch));
                }
            }
        }
        Ok(due)
    }

    /// The replicas of each plan that are in none of its receipts.
    pub(super) fn absent_replicas(&self) -> Vec<AbsentReplicas> {
        let mut absent = Vec::new();
        for Party { plan, witnesses, .. } in &self.parties {
            let mut present = Multiset::default();
            for replica in witnesses.iter().flat_map(|&witness| self.witnesses[witness].receipt.replicas()) {
                present.add(replica as u64..replica as u64 + 1, 1);
            }
            let of = plan.world().replicas();
            let slot =
                |number| usize::try_from(number).expect("it is no greater than the number of replicas");
            let missing = gaps::missing(&present, 0..of as u64).into_iter();
            absent.extend(
                missing.map(|replicas| AbsentReplicas {
                    replicas: slot(replicas.start)..slot(replicas.end),
                    of,
                }),
            );
        }
        absent
    }
}
