//! What each stage did, and which stages it waited for.

use percolator::Stats;
use percolator::feed::{LaneStats, Waits};
use serde::Serialize;

use crate::noise::median;
use crate::shares::Round;

/// One stage, in medians over the rounds.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Its name.
    pub stage: String,
    /// Its number of threads.
    pub threads: usize,
    /// Records per second.
    pub records_per_s: f64,
    /// The bytes of them that it handles, in 10^9 bytes per second.
    pub gb_s: f64,
    /// The share of its time in which it did not wait.
    pub at_work: f64,
    /// For whom it waited.
    pub waited_for: Vec<Waited>,
    /// Whether other stages wait while this one works. A lane's own thread only passes things on; other
    /// threads do its work.
    #[serde(skip)]
    pub can_hold_up: bool,
}

/// A stage's waits for another stage.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Waited {
    /// The other stage.
    pub whom: &'static str,
    /// As a share of its time.
    pub share: f64,
    /// How often.
    pub waits_per_s: f64,
}

/// Selects waits from a round's statistics.
type WaitsOf<'a> = (&'static str, &'a dyn Fn(&Stats) -> Waits);

/// Returns what each stage did, in the order in which a record passes them, over rounds of one job.
#[must_use]
pub fn stages(rounds: &[Round]) -> Vec<Stage> {
    let Some(first) = rounds.first().map(|round| &round.run.stats) else { return Vec::new() };
    let middle =
        |of: &dyn Fn(&Stats) -> f64| median(rounds.iter().map(|round| of(&round.run.stats))).unwrap_or(0.0);
    let source_per_s = median(rounds.iter().map(Round::source_per_s)).unwrap_or(0.0);
    let stage = |stage: String, threads: usize, rates: [f64; 2], can_hold_up: bool, waits: &[WaitsOf<'_>]| {
        let waited_for: Vec<Waited> = waits
            .iter()
            .map(|(whom, of)| Waited {
                whom,
                share: middle(&|stats| share(of(stats), stats, threads)),
                waits_per_s: middle(&|stats| stats.per_second(of(stats).count)),
            })
            .collect();
        let waited: f64 = waited_for.iter().map(|waited| waited.share).sum();
        let [records_per_s, gb_s] = rates;
        let at_work = (1.0 - waited).clamp(0.0, 1.0);
        Stage { stage, threads, records_per_s, gb_s, at_work, waited_for, can_hold_up }
    };
    let whole = [middle(&Stats::records_per_second), middle(&|stats| stats.pixel_bytes_per_second()) / 1e9];
    let threads = first.workers.threads.max(1);
    let mut stages = vec![
        stage(
            "reader".to_owned(),
            1,
            [middle(&|stats| stats.per_second(stats.reader.records)), source_per_s / 1e9],
            true,
            &[("lanes to give records back", &|stats| stats.reader.waits_for_free)],
        ),
        stage(
            "workers".to_owned(),
            threads,
            whole,
            true,
            &[("something to do", &|stats| stats.workers.waits_for_records)],
        ),
    ];
    for (number, lane) in first.lanes.iter().enumerate() {
        let of = |stats: &Stats, figure: &dyn Fn(&LaneStats) -> u64| {
            stats.lanes.get(number).map_or(0.0, |lane| stats.per_second(figure(lane)))
        };
        let waits = |stats: &Stats, which: fn(&LaneStats) -> Waits| {
            stats.lanes.get(number).map(which).unwrap_or_default()
        };
        let rates = [
            middle(&|stats| of(stats, &|lane| lane.records)),
            middle(&|stats| of(stats, &|lane| lane.pixel_bytes)) / 1e9,
        ];
        stages.push(stage(
            format!("lane {}", lane.device),
            1,
            rates,
            false,
            &[
                ("reader", &|stats| waits(stats, |lane| lane.waits_for_records)),
                ("consumer", &|stats| waits(stats, |lane| lane.waits_for_free)),
                ("device", &|stats| waits(stats, |lane| lane.waits_for_device)),
                ("workers", &|stats| waits(stats, |lane| lane.waits_for_workers)),
                ("lanes", &|stats| waits(stats, |lane| lane.waits_for_lanes)),
            ],
        ));
        stages.push(stage(
            format!("consumer {}", lane.device),
            1,
            rates,
            true,
            &[("a batch", &|stats| waits(stats, |lane| lane.waits_for_batch))],
        ));
    }
    stages
}

/// The share of its time that a stage of this many threads spent in these waits.
fn share(waits: Waits, stats: &Stats, threads: usize) -> f64 {
    let whole = stats.elapsed.as_secs_f64() * threads as f64;
    if whole > 0.0 { (waits.time.as_secs_f64() / whole).min(1.0) } else { 0.0 }
}
