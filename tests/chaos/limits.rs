//! The plain model of limits for bad records: what a lane had of its epoch, and whether an error says so.

use std::collections::BTreeMap;

use percolator::bad::TooManyBad;
use percolator::record::RecordId;

use crate::model::{Share, Torn};
use crate::scenario::Scenario;

/// What a replica had of its epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) epoch: u64,
    records: u64,
    bad: u64,
}

impl Count {
    /// Counts a batch, and returns the count after each of its epochs. Those before the last one count as it.
    pub(crate) fn add(&mut self, share: &Share, is_bad: impl Fn(&RecordId) -> bool) -> Vec<Count> {
        let mut epochs: BTreeMap<u64, Vec<&RecordId>> = BTreeMap::new();
        let epoch_of = |id: &RecordId| share.mixed.unwrap_or(id.epoch);
        let of_epochs = share.records.iter().map(|id| (epoch_of(id).max(self.epoch), id));
        of_epochs.for_each(|(epoch, id)| epochs.entry(epoch).or_default().push(id));
        let mut counts = Vec::new();
        for (epoch, ids) in epochs {
            if epoch > self.epoch {
                *self = Count { epoch, ..Count::default() };
            }
            self.records += ids.len() as u64;
            self.bad += ids.into_iter().filter(|id| is_bad(id)).count() as u64;
            counts.push(*self);
        }
        counts
    }

    /// How many may be bad.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn allowed(&self, scenario: &Scenario) -> u64 {
        let most = scenario.at_most.unwrap_or(u64::MAX);
        let rate = scenario.at_most_rate;
        if rate < 1.0 { most.min((self.records.max(1000) as f64 * rate) as u64) } else { most }
    }

    pub(crate) fn is_within(&self, scenario: &Scenario) -> bool {
        self.bad <= self.allowed(scenario)
    }

    /// What a replica of another job begins with: the mean of those that had this epoch, rounded up.
    pub(crate) fn mean(counts: &[Count], epoch: u64) -> Count {
        let of_epoch: Vec<&Count> = counts.iter().filter(|count| count.epoch == epoch).collect();
        let mean = |of: fn(&Count) -> u64| {
            of_epoch.iter().map(|count| of(count)).sum::<u64>().div_ceil(of_epoch.len().max(1) as u64)
        };
        Count { epoch, records: mean(|count| count.records), bad: mean(|count| count.bad) }
    }

    /// Checks the error of a lane that had this before the batch that has too many.
    pub(crate) fn check_error(mut self, scenario: &Scenario, share: &Share, torn: Torn, error: &TooManyBad) {
        let mut most = self;
        let least = self.add(share, |id| torn.of(scenario, *id).0);
        let most = most.add(share, |id| torn.of(scenario, *id).1);
        let is_of_epoch = least.iter().zip(&most).any(|(least, most)| {
            let is_right = (least.epoch, least.records) == (error.epoch, error.records);
            is_right
                && (least.bad..=most.bad).contains(&error.bad)
                && least.allowed(scenario) == error.allowed
        });
        assert!(is_of_epoch, "{error}: {least:?} to {most:?}");
        assert!(share.records.contains(&error.record.id), "{error}");
    }
}
