//! The rounds of a process, one after the other.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use percolator_distribute::{Collective, CollectiveError};
use percolator_files::shown;
use tracing::warn;

use super::generation::{Entered, Generation};
use super::records::WORDS_MAX;
use crate::patience::Deadline;

/// How long a process that leaves tries to say so.
const PARTING: Duration = Duration::from_secs(10);

/// A [`Collective`] through records that processes share: in etcd, in a folder, or in memory for threads.
/// [`Group::join`](super::Group::join) returns it.
///
/// A process brings at most 2^21 words (16 MiB) to a round. What it brings is in the records for two rounds.
/// etcd keeps each value that a record ever had until it compacts its history, so a job that reduces
/// gradients needs one that does (`--auto-compaction-mode=revision --auto-compaction-retention=1000`).
#[derive(Debug)]
pub struct MetadataCollective {
    generation: Generation,
    timeout: Duration,
    /// Held for a whole round, so that calls on one end are consecutive rounds.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    round: u64,
    /// The rounds whose records this process has not removed: at most two.
    entered: VecDeque<Entered>,
    /// The last round that all had entered, and what this process brought to it.
    last: (u64, Vec<u64>),
    /// Permanent once set.
    fault: Option<CollectiveError>,
    has_left: bool,
}

impl MetadataCollective {
    /// A process that was in the first round, to which no process brings a word.
    pub(super) fn new(generation: Generation, timeout: Duration) -> Self {
        let entered = VecDeque::from([Entered { round: 0, words: 0 }]);
        let last = (0, Vec::new());
        let state = Mutex::new(State { round: 1, entered, last, fault: None, has_left: false });
        MetadataCollective { generation, timeout, state }
    }

    fn part(&self, reason: Option<&str>) {
        let mut state = self.state.lock();
        let Generation { rank, size, .. } = self.generation;
        if state.fault.is_none() {
            let reason = reason.map(Into::into);
            state.fault = Some(CollectiveError::Left { rank, size, reason });
        } else if reason.is_some() {
            return;
        }
        state.say(&self.generation, reason, self.timeout);
    }
}

impl State {
    fn round(
        &mut self,
        generation: &Generation,
        words: &[u64],
        timeout: Duration,
    ) -> Result<Vec<u64>, CollectiveError> {
        if words.len() > WORDS_MAX {
            return Err(CollectiveError::TooLong { words: words.len(), allowed: WORDS_MAX });
        }
        let (deadline, round) = (Deadline::after(timeout), self.round);
        let read_by_all = if self.entered.len() > 1 { self.entered.pop_front() } else { None };
        generation.enter(round, words, read_by_all, deadline)?;
        self.entered.push_back(Entered { round, words: words.len() });
        let gathered = generation.gather(round, words, deadline);
        // Those that are slower must see how long each part of an uneven round is.
        if matches!(gathered, Ok(_) | Err(CollectiveError::Uneven { .. })) {
            self.last = (round, words.to_vec());
        }
        self.round += 1;
        gathered
    }

    /// Leaves the generation, once.
    fn say(&mut self, generation: &Generation, reason: Option<&str>, timeout: Duration) {
        if std::mem::replace(&mut self.has_left, true) || generation.lease.has_ended() {
            return;
        }
        let last = (self.last.0, &*self.last.1);
        let given_up = self.entered.back().map(|entered| entered.round).filter(|round| *round > last.0);
        if let Err(error) = generation.resign(reason, last, given_up, timeout, Deadline::after(PARTING)) {
            warn!(
                rank = generation.rank, error = %shown::with_sources(&error),
                "the others cannot be told that this process leaves"
            );
        }
    }
}

impl Collective for MetadataCollective {
    fn rank(&self) -> usize {
        self.generation.rank
    }

    fn size(&self) -> usize {
        self.generation.size
    }

    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        let mut state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let gathered = state.round(&self.generation, words, self.timeout);
        if let Err(fault) = &gathered {
            state.fault = Some(fault.clone());
            // All see these; of the others, only this process knows.
            if !matches!(fault, CollectiveError::Left { .. } | CollectiveError::Uneven { .. }) {
                state.say(&self.generation, Some(&fault.to_string()), self.timeout);
            }
        }
        gathered
    }

    fn resign(&self, reason: &str) {
        self.part(Some(reason));
    }
}

impl Drop for MetadataCollective {
    fn drop(&mut self) {
        self.part(None);
    }
}
