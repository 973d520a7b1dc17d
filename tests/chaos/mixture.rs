//! The plain model of a mixture: how long an epoch is, and which records come.

use std::collections::HashSet;
use std::ops::Range;

use percolator::record::RecordId;

use crate::scenario::Scenario;
use crate::stores::thirds;

/// The files of a joined data set, and their weights. Unit tests check the order within a round.
pub(crate) struct Mixture {
    files: [Range<usize>; 3],
    weights: [usize; 3],
}

/// A scenario's mixture, if it has one.
pub(crate) fn of(scenario: &Scenario) -> Option<Mixture> {
    let weights = scenario.mix?.map(|weight| usize::try_from(weight).expect("it is small"));
    let divisor = (1..=weights[0]).rev().find(|divisor| weights.iter().all(|weight| weight % divisor == 0));
    let weights = weights.map(|weight| weight / divisor.expect("1 divides all"));
    Some(Mixture { files: thirds(0..scenario.records), weights })
}

impl Mixture {
    /// The rounds in which each record comes at least once.
    fn rounds(&self) -> usize {
        let rounds = self.files.iter().zip(self.weights).map(|(file, weight)| file.len().div_ceil(weight));
        rounds.max().expect("there are three files")
    }

    pub(crate) fn epoch_len(&self) -> usize {
        self.rounds() * self.weights.iter().sum::<usize>()
    }

    /// Checks that these are what so many epochs have at least: each record of the whole passes over each
    /// file, and as many as are left of the pass after those.
    pub(crate) fn check(&self, seen: &HashSet<RecordId>, epochs: usize) {
        for (file, weight) in self.files.iter().zip(self.weights) {
            let draws = epochs * self.rounds() * weight;
            let (passes, left) = (draws / file.len(), draws % file.len());
            let of_pass = |pass: usize| {
                let ids = file.clone().map(move |at| RecordId { epoch: pass as u64, index: at as u64 });
                ids.filter(|id| seen.contains(id)).count()
            };
            for pass in 0..passes {
                assert_eq!(of_pass(pass), file.len(), "records of pass {pass} over {file:?}");
            }
            assert!(of_pass(passes) >= left, "{left} records of pass {passes} over {file:?} are due");
        }
    }
}
