//! The results of one round.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Limit, Round};

/// What one round gave, so that two results can be compared beyond their noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundFigures {
    /// Records per second.
    pub records_per_s: f64,
    /// Processor time for 1,000 records, in seconds.
    pub cpu_s_per_1000: f64,
    /// The time to the first batch, in milliseconds.
    pub first_batch_ms: f64,
    /// The machine's limits, in bytes or records per second, by their [names](Limit::name).
    pub limits: BTreeMap<String, f64>,
    /// The share of each limit that was reached.
    pub share_of: BTreeMap<String, f64>,
}

impl From<&Round> for RoundFigures {
    fn from(round: &Round) -> Self {
        let of_all = |figure: &dyn Fn(Limit) -> Option<f64>| {
            let figures =
                Limit::ALL.into_iter().filter_map(|limit| Some((limit.name().to_owned(), figure(limit)?)));
            figures.collect()
        };
        RoundFigures {
            records_per_s: round.records_per_s(),
            cpu_s_per_1000: round.cpu_s_per_1000(),
            first_batch_ms: round.run.first_batch.as_secs_f64() * 1e3,
            limits: of_all(&|limit| round.most(limit)),
            share_of: of_all(&|limit| round.share_of(limit)),
        }
    }
}
