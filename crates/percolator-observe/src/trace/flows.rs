//! The flows of batches: arrows from slice to slice. Each is written at once when nothing more can come, so
//! that it has one start, one end, and its steps in the order of time, in whatever order they were reported.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::BatchName;

/// How many batches later a flow is written. Threads tell what they did when it is over: the reader that it
/// dealt a run when it deals the next, a worker that it filled a place when the batch may be gone.
const LATER: u64 = 16;

/// A step of a flow: a moment in a slice of a track, which is a group and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) at: Duration,
    pub(super) track: (u8, u64),
}

/// The flows that have not been written.
#[derive(Debug, Default)]
pub(super) struct Flows {
    known: BTreeMap<BatchName, Flow>,
    /// For each lane of a feed: batches before this one that are not known have been written.
    written: HashMap<(u64, u64), u64>,
}

#[derive(Debug, Default)]
struct Flow {
    steps: Vec<Step>,
    /// Whether its batch is nowhere any more.
    has_ended: bool,
}

impl Flows {
    /// Adds a step. One of a flow that has been written comes too late, and is left out.
    pub(super) fn add(&mut self, batch: BatchName, step: Step) {
        let written = self.written.get(&(batch.feed, batch.lane)).copied().unwrap_or_default();
        match self.known.get_mut(&batch) {
            Some(flow) => flow.steps.push(step),
            None if batch.batch < written => {}
            None => self.known.entry(batch).or_default().steps.push(step),
        }
    }

    /// The batch is nowhere any more.
    pub(super) fn end(&mut self, batch: BatchName) {
        if let Some(flow) = self.known.get_mut(&batch) {
            flow.has_ended = true;
        }
    }

    /// Takes the flows that have ended, of the batches of a lane that are long before this one.
    pub(super) fn take_before(&mut self, batch: BatchName) -> Vec<(BatchName, Vec<Step>)> {
        let end = BatchName { batch: batch.batch.saturating_sub(LATER), ..batch };
        self.written.insert((batch.feed, batch.lane), end.batch);
        let ended = self
            .known
            .range(BatchName { batch: 0, ..batch }..end)
            .filter(|(_, flow)| flow.has_ended)
            .map(|(batch, _)| *batch);
        let ended: Vec<_> = ended.collect();
        let taken = ended.into_iter().filter_map(|batch| self.known.remove_entry(&batch));
        taken.map(|(batch, flow)| (batch, in_order(flow))).collect()
    }

    /// Takes all flows.
    pub(super) fn take_all(&mut self) -> Vec<(BatchName, Vec<Step>)> {
        std::mem::take(&mut self.known).into_iter().map(|(batch, flow)| (batch, in_order(flow))).collect()
    }
}

fn in_order(mut flow: Flow) -> Vec<Step> {
    flow.steps.sort_by_key(|step| step.at);
    flow.steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_taken_once_it_has_ended_and_a_much_later_batch_is_dealt() {
        let batch = |lane, batch| BatchName { feed: 1, lane, batch };
        let step = |micros| Step { at: Duration::from_micros(micros), track: (1, micros) };
        let mut flows = Flows::default();
        for (of, at) in [(batch(0, 0), 5), (batch(0, 0), 2), (batch(0, 1), 3), (batch(1, 0), 4)] {
            flows.add(of, step(at));
        }
        flows.end(batch(0, 0));
        flows.end(batch(0, 7));
        assert_eq!(flows.take_before(batch(0, LATER)), [], "something may have yet to be told");
        assert_eq!(flows.take_before(batch(1, LATER + 9)), [], "another lane");
        assert_eq!(flows.take_before(batch(0, LATER + 2)), [(batch(0, 0), vec![step(2), step(5)])]);
        flows.add(batch(0, 0), step(9));
        let left = flows.take_all();
        assert_eq!(left, [(batch(0, 1), vec![step(3)]), (batch(1, 0), vec![step(4)])]);
    }
}
