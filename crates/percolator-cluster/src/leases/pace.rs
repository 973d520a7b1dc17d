//! How fast workers are, and which blocks are slow.
//!
//! A worker measures itself by its own clock: the steps of the block under way, and how long its turn has
//! lasted. Others add how long they have seen that record unchanged, by their own clocks. So no two clocks
//! are compared, and a worker that makes no progress is slow, even if its lease is kept alive.

use std::collections::BTreeMap;
use std::time::Duration;

use super::board::Asker;
use super::keys::BlockId;
use super::live::{Live, Living, Open};
use super::records::{Pace, Progress};
use crate::metadata::Revision;

/// How often a worker makes its progress known, in the time of its lease.
pub(super) const REPORTS: u32 = 10;

/// For each worker that lives, how long a worker takes the next block without looking at all that there are:
/// so all of them together look ten times in a second, however many they are.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A worker's own progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stopwatch {
    /// When the turn of the block under way came; none before the first.
    since: Option<Duration>,
    handed: u64,
    /// All steps of the block were handed over.
    is_over: bool,
    before: Option<Progress>,
}

impl Stopwatch {
    /// A step is asked for: those that were handed over are trained on.
    pub(super) fn ask(&mut self, now: Duration) {
        match (self.is_over, self.since) {
            (true, Some(since)) => {
                let before = Some(Progress::new(self.handed, now.saturating_sub(since)));
                *self = Stopwatch { since: Some(now), before, ..Stopwatch::default() };
            }
            (true, None) | (false, _) => drop(self.since.get_or_insert(now)),
        }
    }

    /// A step is handed over, the last one of its block or another.
    pub(super) fn hand_over(&mut self, is_last: bool) {
        self.handed += 1;
        self.is_over = is_last;
    }

    /// A block is taken, and there was none: its turn comes now, however long the worker has waited for it.
    pub(super) fn begin(&mut self, now: Duration) {
        if self.handed == 0 && self.since.is_some() {
            self.since = Some(now);
        }
    }

    /// The block under way is lost.
    pub(super) fn lose(&mut self) {
        *self = Stopwatch { before: self.before, ..Stopwatch::default() };
    }

    pub(super) fn pace(&self, now: Duration) -> Pace {
        let time = self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        // The last step that was handed over is trained on.
        Pace { under_way: Progress::new(self.handed.saturating_sub(1), time), before: self.before }
    }
}

/// What a worker has seen of the others.
#[derive(Debug)]
pub(super) struct Sight {
    /// How often workers make their progress known.
    period: Duration,
    /// The revision of each worker's record, and since when it is the same.
    seen: BTreeMap<String, (Revision, Duration)>,
    now: Duration,
    /// When all records of the job should be read again.
    looks_at: Duration,
}

impl Sight {
    pub(super) fn new(ttl: Duration) -> Self {
        Sight { period: ttl / REPORTS, seen: BTreeMap::new(), now: Duration::ZERO, looks_at: Duration::ZERO }
    }

    /// Whether it is time to read all records of the job.
    pub(super) fn is_look_due(&self) -> bool {
        self.looks_at <= self.now
    }

    /// Looks the next time.
    pub(super) fn look_next(&mut self) {
        self.looks_at = Duration::ZERO;
    }

    /// It has looked, and has seen so many workers.
    pub(super) fn has_looked(&mut self, workers: usize) {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        self.looks_at = self.now.saturating_add(LOOK_EVERY.saturating_mul(workers));
    }

    /// Looks from now on as of this time.
    pub(super) fn at(&mut self, now: Duration) -> &mut Self {
        self.now = now;
        self
    }

    /// Returns a block that a slow worker holds alone, if all blocks of its epoch were handed out: the end of
    /// the epoch waits for it. It is the last of them, which that worker comes to last.
    pub(super) fn slow_block<'l, 'r>(
        &mut self,
        live: &'l Live<'r>,
        next: BlockId,
        asker: &Asker<'_>,
        share: f64,
    ) -> Option<(BlockId, &'l Open<'r>)> {
        self.look(live);
        let limit = median(live)? * share;
        // A slow worker is no help.
        if live.workers.get(asker.worker).and_then(rate_before).is_some_and(|rate| rate < limit) {
            return None;
        }
        let waited_for = live.open.iter().filter(|(block, _)| block.epoch < next.epoch);
        let mut slow = waited_for.filter(|(block, open)| match &*open.holders {
            [held] => !asker.known.contains(block) && self.is_slow(live, held.worker, limit),
            _ => false,
        });
        slow.next_back().map(|(&block, open)| (block, open))
    }

    fn look(&mut self, live: &Live<'_>) {
        self.seen.retain(|worker, _| live.workers.contains_key(worker.as_str()));
        for (&worker, living) in &live.workers {
            let seen = self.seen.entry(worker.to_owned()).or_insert((living.revision, self.now));
            if seen.0 != living.revision {
                *seen = (living.revision, self.now);
            }
        }
    }

    /// Whether a worker's rate is below the limit, in steps a second. The step that it trains on may end at
    /// any moment, and a report that is not yet visible must not count against it.
    fn is_slow(&self, live: &Live<'_>, worker: &str, limit: f64) -> bool {
        let (Some(living), Some(seen)) = (live.workers.get(worker), self.seen.get(worker)) else {
            return false;
        };
        let Progress { steps, micros } = living.record.pace.under_way;
        let unchanged = self.now.saturating_sub(seen.1).saturating_sub(self.period);
        let time = Duration::from_micros(micros).saturating_add(unchanged);
        Progress::new(steps.saturating_add(1), time).rate().is_some_and(|rate| rate < limit)
    }
}

/// A worker's rate, in steps a second, of the last block that it has finished.
fn rate_before(living: &Living) -> Option<f64> {
    living.record.pace.before.and_then(Progress::rate)
}

/// The median of the workers' rates, in steps a second.
fn median(live: &Live<'_>) -> Option<f64> {
    let mut rates: Vec<f64> = live.workers.values().filter_map(rate_before).collect();
    rates.sort_by(f64::total_cmp);
    let above = *rates.get(rates.len() / 2)?;
    let below = *rates.get(rates.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(below, above))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::live::Held;
    use super::super::records::{OpenRecord, WhoRecord, WorkerRecord};
    use super::*;
    use crate::metadata::LeaseId;

    const SECOND: Duration = Duration::from_secs(1);

    fn who() -> WhoRecord {
        WhoRecord { host: String::new(), pid: 1, since: 0 }
    }

    fn block(epoch: u64, number: u64) -> BlockId {
        BlockId { epoch, number }
    }

    /// Workers with their paces, and the blocks that each of them holds. All of epoch 0 was handed out.
    fn live(workers: &[(&'static str, Pace, &[BlockId])]) -> Live<'static> {
        let mut live = Live {
            revision: Revision(9),
            next: Some((block(1, 0), Revision(1))),
            is_drained: false,
            was_set_back: false,
            open: BTreeMap::new(),
            workers: BTreeMap::new(),
        };
        for &(worker, pace, blocks) in workers {
            let record = WorkerRecord { who: who(), pace };
            live.workers.insert(worker, Living { record, revision: Revision(2) });
            for &block in blocks {
                let record = OpenRecord { times: 1, acknowledged: 0 };
                let open = live.open.entry(block);
                let open = open.or_insert(Open { record, revision: Revision(3), holders: Vec::new() });
                open.holders.push(Held { worker, lease: Some(LeaseId(1)), who: who() });
            }
        }
        live
    }

    fn pace(steps: u64, millis: u64, before: u64) -> Pace {
        let under_way = Progress { steps, micros: millis * 1000 };
        Pace { under_way, before: (before > 0).then_some(Progress { steps: before, micros: 1_000_000 }) }
    }

    fn slow(sight: &mut Sight, live: &Live<'_>, worker: &str) -> Option<BlockId> {
        let known = BTreeSet::new();
        let asker = Asker { worker, lease: LeaseId(7), who: who(), record: None, known: &known };
        sight.slow_block(live, live.next.unwrap().0, &asker, 0.5).map(|(block, _)| block)
    }

    #[test]
    fn a_block_is_slow_if_its_worker_is_below_the_share_of_the_median() {
        let mut sight = Sight::new(10 * SECOND);
        // 10 steps a second are usual: below 5 is slow. The step under way counts for it.
        let others = [("a", pace(0, 0, 10), &[][..]), ("b", pace(0, 0, 10), &[]), ("c", pace(0, 0, 20), &[])];
        let with = |pace, blocks| live(&[others[0], others[1], others[2], ("slow", pace, blocks)]);
        let blocks = [block(0, 3), block(0, 5), block(1, 0)];
        assert_eq!(slow(&mut sight, &with(pace(3, 1000, 10), &blocks), "a"), Some(block(0, 5)));
        assert_eq!(slow(&mut sight, &with(pace(4, 1000, 10), &blocks), "a"), None);
        // It is no help itself; of an epoch that goes on, nothing is duplicated.
        let helps = |live: &mut Live<'_>, worker| {
            let record = OpenRecord { times: 1, acknowledged: 0 };
            let held = Held { worker: "stuck", lease: None, who: who() };
            live.open.insert(block(0, 1), Open { record, revision: Revision(3), holders: vec![held] });
            live.workers.insert(
                "stuck",
                Living { record: WorkerRecord { who: who(), pace: pace(0, 9000, 0) }, revision: Revision(2) },
            );
            slow(&mut Sight::new(10 * SECOND), live, worker)
        };
        assert_eq!(helps(&mut with(pace(0, 0, 3), &[]), "slow"), None);
        assert_eq!(helps(&mut with(pace(0, 0, 3), &[]), "a"), Some(block(0, 1)));
        assert_eq!(slow(&mut sight, &with(pace(3, 1000, 10), &blocks[2..]), "a"), None);
        // A second worker has it as well.
        let slow_one = ("slow", pace(3, 1000, 10), &blocks[1..2]);
        let shared = live(&[others[0], others[1], ("d", pace(0, 0, 10), &blocks[1..2]), slow_one]);
        assert_eq!(slow(&mut sight, &shared, "a"), None);
        // Nobody has finished a block: nothing is known.
        let none = live(&[("a", pace(0, 0, 0), &[]), ("slow", pace(0, 9000, 0), &blocks)]);
        assert_eq!(slow(&mut sight, &none, "a"), None);
    }

    #[test]
    fn a_worker_that_stands_still_is_slow_by_the_clock_of_who_looks() {
        let mut sight = Sight::new(10 * SECOND);
        let blocks = [block(0, 3)];
        let live = live(&[("a", pace(0, 0, 10), &[]), ("stopped", pace(2, 100, 10), &blocks)]);
        assert_eq!(slow(&mut sight, &live, "a"), None);
        // Within the time after which it would make itself known, nothing is said of it.
        assert_eq!(slow(sight.at(SECOND), &live, "a"), None);
        assert_eq!(slow(sight.at(2 * SECOND), &live, "a"), Some(block(0, 3)));
    }

    /// All of them together look equally often, however many they are.
    #[test]
    fn the_more_workers_there_are_the_more_seldom_each_of_them_looks() {
        let mut sight = Sight::new(10 * SECOND);
        assert!(sight.at(SECOND).is_look_due());
        sight.has_looked(50);
        assert!(!sight.at(SECOND + 49 * LOOK_EVERY).is_look_due());
        assert!(sight.at(SECOND + 50 * LOOK_EVERY).is_look_due());
        sight.has_looked(50);
        sight.look_next();
        assert!(sight.is_look_due());
    }

    #[test]
    fn a_stopwatch_counts_what_is_trained_on() {
        let mut watch = Stopwatch::default();
        assert_eq!(watch.pace(5 * SECOND), Pace::default());
        watch.ask(SECOND);
        watch.hand_over(false);
        watch.hand_over(true);
        assert_eq!(watch.pace(3 * SECOND).under_way, Progress { steps: 1, micros: 2_000_000 });
        watch.ask(5 * SECOND);
        let before = Some(Progress { steps: 2, micros: 4_000_000 });
        assert_eq!(
            watch.pace(6 * SECOND),
            Pace { under_way: Progress { steps: 0, micros: 1_000_000 }, before }
        );
    }
}
