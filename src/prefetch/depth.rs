//! Chooses the depth of a lane's ring if it is not configured: deep enough to even out bursts.
//!
//! If a ring is full while the workers could fill another batch, and empty a moment later while the consumer
//! waits, it is too shallow: the feed is fast enough on average, but the consumer waits all the same. The
//! ring then gets one more batch, up to the depth that the memory budget allows for. More depth would gain
//! nothing for a ring that is always full or always empty, and little for one that is nearly always empty: at
//! most the feed's spare time.

use std::time::{Duration, Instant};

use super::LaneMeters;
use crate::base::meter::WaitMeter;

/// The minimum between two checks: rounds of the ring, and time.
const ROUNDS: u64 = 2;
const WINDOW: Duration = Duration::from_millis(500);
/// The share of its time that either end may wait before it counts.
const WAITED: f64 = 0.02;
/// The spare time that the feed must have, as a share of the consumer's waits.
const TO_SPARE: f64 = 0.5;

/// The depth of one ring.
#[derive(Debug)]
pub(crate) struct Depth {
    batches: usize,
    most: usize,
    /// The state at the last check; `None` if there is nothing to choose.
    last: Option<RingCheck>,
}

#[derive(Clone, Copy, Debug)]
struct RingCheck {
    at: Instant,
    batches: u64,
    waits: Ends,
}

/// How long the two ends of a ring have waited.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// The feed, for a batch that it could fill and hand over.
    full: Duration,
    /// The consumer, for a filled batch.
    empty: Duration,
}

impl Depth {
    /// A depth of `batches`, which grows up to `most` if that proves too shallow.
    pub(crate) fn of(batches: usize, most: usize) -> Self {
        let (at, waits) = (Instant::now(), Ends::default());
        Depth { batches, most, last: (batches < most).then_some(RingCheck { at, batches: 0, waits }) }
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    /// Fixes the depth: there is no memory for more.
    pub(crate) fn stay(&mut self, batches: usize) {
        (self.batches, self.last) = (batches, None);
    }

    /// Checks now and then whether the ring is deep enough. Called when batches have been delivered.
    pub(crate) fn look(&mut self, now: Instant, meters: &LaneMeters) {
        let Some(last) = &mut self.last else { return };
        let batches = meters.batches.get();
        let elapsed = now.saturating_duration_since(last.at);
        if batches - last.batches < ROUNDS * self.batches as u64 || elapsed < WINDOW {
            return;
        }
        let time = |meter: &WaitMeter| meter.read(now).time;
        let full = time(&meters.for_slot) + time(&meters.for_device);
        let empty = time(&meters.for_batch) + time(&meters.for_itself);
        let waits = Ends { full, empty };
        let share = |now: Duration, before| now.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64();
        let (full, empty) = (share(waits.full, last.waits.full), share(waits.empty, last.waits.empty));
        let is_too_shallow = full > WAITED && empty > WAITED && full >= TO_SPARE * empty;
        // The batches of the first window include those that fill the ring.
        let is_first = last.batches == 0;
        *last = RingCheck { at: now, batches, waits };
        if is_too_shallow && !is_first {
            self.batches += 1;
            if self.batches == self.most {
                self.last = None;
            }
            tracing::debug!(
                batches = self.batches,
                most = self.most,
                "the ring is too shallow for its bursts"
            );
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    /// Ten windows, in each of which the ring goes round ten times and its ends wait for this percentage of
    /// the time.
    fn after_waits(full: u32, empty: u32) -> usize {
        after_waits_on(|meters| &meters.for_slot, full, empty)
    }

    fn after_waits_on(meter: fn(&LaneMeters) -> &WaitMeter, waits: u32, empty: u32) -> usize {
        let (meters, mut depth) = (LaneMeters::default(), Depth::of(4, 8));
        let mut now = Instant::now();
        for _ in 0..10 {
            meters.batches.add(40);
            // Only the part of a wait that precedes the next check is visible.
            let part = WINDOW * 2 / 100;
            for (meter, parts) in [(meter(&meters), waits), (&*meters.for_batch, empty)] {
                meter.add_past(part * parts);
            }
            now += WINDOW * 2;
            depth.look(now, &meters);
        }
        depth.batches()
    }

    #[test]
    fn a_ring_that_is_full_and_empty_by_turns_becomes_deeper() {
        assert_eq!(after_waits(20, 20), 8);
        assert_eq!(after_waits(30, 50), 8);
    }

    #[test]
    fn a_ring_that_is_only_full_or_only_empty_stays() {
        assert_eq!(after_waits(90, 0), 4);
        assert_eq!(after_waits(0, 90), 4);
        assert_eq!(after_waits(90, 1), 4);
        assert_eq!(after_waits(3, 90), 4, "nearly always empty");
    }

    #[test]
    fn a_ring_whose_batches_wait_for_other_lanes_or_for_workers_stays() {
        assert_eq!(after_waits_on(|meters| &meters.for_device, 20, 20), 8);
        assert_eq!(after_waits_on(|meters| &meters.for_lanes, 20, 20), 4);
        assert_eq!(after_waits_on(|meters| &meters.for_workers, 20, 20), 4);
    }

    #[test]
    fn nothing_is_judged_by_less_than_two_rounds_or_in_a_moment() {
        let (meters, mut depth) = (LaneMeters::default(), Depth::of(4, 8));
        let start = Instant::now();
        for account in 1..20 {
            meters.for_slot.add_past(WINDOW);
            meters.for_batch.add_past(WINDOW);
            meters.batches.add(u64::from(account < 4) * 2);
            depth.look(start + WINDOW * 2 * account, &meters);
            assert_eq!(depth.batches(), 4);
        }
        let mut depth = Depth::of(4, 8);
        for _ in 0..20 {
            meters.batches.add(100);
            depth.look(start, &meters);
        }
        assert_eq!(depth.batches(), 4);
    }

    #[test]
    fn a_configured_depth_or_one_without_more_memory_stays() {
        let meters = LaneMeters::default();
        let mut configured = Depth::of(4, 4);
        let mut bounded = Depth::of(4, 8);
        bounded.stay(4);
        let start = Instant::now();
        for account in 1..20 {
            meters.for_slot.add_past(WINDOW);
            meters.for_batch.add_past(WINDOW);
            meters.batches.add(100);
            for depth in [&mut configured, &mut bounded] {
                depth.look(start + WINDOW * 2 * account, &meters);
                assert_eq!(depth.batches(), 4);
            }
        }
    }
}
