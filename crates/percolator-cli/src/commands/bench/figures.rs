//! A job's figures: medians over its rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use percolator::Stats;
use percolator::transform::TransformPlace;
use percolator_measure::compare::RoundFigures;
use percolator_measure::{Limit, Limits, Round, Stage, binding, median, shares, stages};
use serde::Serialize;

use super::job::NamedJob;
use super::measure::Known;

/// A figure's spread over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

/// The times between a lane's batches, over all rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Intervals {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Medians of the limits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LimitFigures {
    pub(super) copy_1_gb_s: f64,
    pub(super) copy_n_gb_s: f64,
    pub(super) store_n_gb_s: f64,
    pub(super) fresh_n_gb_s: f64,
    pub(super) read_n_gb_s: Option<f64>,
    pub(super) decode_1_per_s: Option<f64>,
    pub(super) pinned_copy_gb_s: Option<f64>,
    /// The copy rates, by number of threads.
    pub(super) copy_gb_s: BTreeMap<usize, f64>,
}

/// All figures of a job. Programs get them as one JSON object per line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) job: String,
    pub(super) source_records: Option<u64>,
    pub(super) source_shape: Option<String>,
    pub(super) batch_shape: String,
    pub(super) dtype: String,
    pub(super) layout: String,
    pub(super) transform_on: &'static str,
    pub(super) devices: Vec<String>,
    pub(super) threads: usize,
    /// The number of workers that were active at the end, and of batches in a ring: the largest of all
    /// rounds.
    pub(super) workers_at_work: usize,
    pub(super) ring_batches: usize,
    pub(super) batch_size: usize,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    pub(super) cold: bool,
    pub(super) evicted: Option<bool>,
    pub(super) records_per_s: Spread,
    pub(super) source_gb_s: f64,
    pub(super) output_gb_s: f64,
    pub(super) cpu_s_per_1000: f64,
    pub(super) first_batch_ms: f64,
    /// The time to touch as much new memory as a batch takes up.
    pub(super) fresh_memory_ms: f64,
    pub(super) batch_interval_ms: Intervals,
    pub(super) anon_mib: Option<f64>,
    pub(super) limits: LimitFigures,
    pub(super) share_of: BTreeMap<Limit, f64>,
    pub(super) binds: Limit,
    pub(super) share: f64,
    /// Whether the limit holds the pipeline up.
    #[serde(skip)]
    pub(super) is_near: bool,
    pub(super) stages: Vec<Stage>,
    pub(super) held_up_by: String,
    pub(super) each_round: Vec<RoundFigures>,
}

impl Figures {
    pub(super) fn of(named: &NamedJob, known: &Known, rounds: &[Round]) -> Self {
        let NamedJob { name, dtype, job } = named;
        let middle = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure)).unwrap_or(0.0);
        let binding = binding(rounds);
        let rates = || rounds.iter().map(Round::records_per_s);
        let whole: Vec<&Stats> = rounds.iter().map(|round| &round.run.stats).collect();
        let most =
            |count: &dyn Fn(&Stats) -> usize| whole.iter().map(|stats| count(stats)).max().unwrap_or(0);
        let stages = stages(rounds);
        Figures {
            job: name.clone(),
            source_records: known.records,
            source_shape: known.image.map(|image| image.to_string()),
            batch_shape: match known.image {
                Some(_) => known.batch.to_string(),
                None => known.layout.clone(),
            },
            dtype: known.image.map_or(known.batch.dtype, |_| *dtype).to_string(),
            layout: known.batch.layout.to_string(),
            transform_on: match job.place() {
                TransformPlace::Host => "host",
                TransformPlace::Device => "device",
            },
            devices: known.devices.clone(),
            threads: job.threads(),
            workers_at_work: most(&|stats| stats.workers.active),
            ring_batches: most(&|stats| stats.lanes.iter().map(|lane| lane.ring).max().unwrap_or(0)),
            batch_size: known.batch.records,
            rounds: known.rounds,
            seconds: known.length.as_secs_f64(),
            cold: job.is_cold(),
            evicted: known.is_evicted,
            records_per_s: Spread {
                min: rates().fold(f64::INFINITY, f64::min),
                median: middle(&Round::records_per_s),
                max: rates().fold(0.0, f64::max),
            },
            source_gb_s: middle(&Round::source_per_s) / 1e9,
            output_gb_s: middle(&Round::output_per_s) / 1e9,
            cpu_s_per_1000: middle(&Round::cpu_s_per_1000),
            fresh_memory_ms: middle(&|round| {
                let bytes = job.batch_bytes() as f64;
                bytes / round.limits.fresh_n.max(f64::MIN_POSITIVE) * 1e3
            }),
            first_batch_ms: middle(&|round| millis(round.run.first_batch)),
            batch_interval_ms: intervals(rounds),
            anon_mib: most_anonymous(rounds),
            limits: limits(rounds),
            share_of: shares(rounds),
            binds: binding.limit,
            share: binding.share,
            is_near: binding.is_near(),
            held_up_by: held_up_by(&stages),
            stages,
            each_round: rounds.iter().map(RoundFigures::from).collect(),
        }
    }
}

/// The stage that waits least for the others.
fn held_up_by(stages: &[Stage]) -> String {
    let busiest = stages
        .iter()
        .filter(|stage| stage.can_hold_up)
        .max_by(|one, other| one.at_work.total_cmp(&other.at_work));
    busiest.map_or_else(String::new, |stage| stage.stage.clone())
}

/// The peak over all rounds. A later round may reuse memory that an earlier one has freed, which the system
/// does not show.
fn most_anonymous(rounds: &[Round]) -> Option<f64> {
    let most = rounds.iter().filter_map(|round| round.run.anonymous_bytes).max()?;
    Some(most as f64 / f64::from(1 << 20))
}

fn limits(rounds: &[Round]) -> LimitFigures {
    let middle =
        |of: &dyn Fn(&Limits) -> Option<f64>| median(rounds.iter().filter_map(|round| of(&round.limits)));
    let gb_s = |rate: Option<f64>| rate.map(|rate| rate / 1e9);
    let counts = rounds.iter().flat_map(|round| round.limits.copy.iter().map(|&(threads, _)| threads));
    let copy_at = |wanted: usize| {
        middle(&|limits| limits.copy.iter().find(|(threads, _)| *threads == wanted).map(|&(_, rate)| rate))
    };
    LimitFigures {
        copy_1_gb_s: gb_s(middle(&|limits| Some(limits.copy_1()))).unwrap_or(0.0),
        copy_n_gb_s: gb_s(middle(&|limits| Some(limits.copy_n()))).unwrap_or(0.0),
        store_n_gb_s: gb_s(middle(&|limits| Some(limits.store_n))).unwrap_or(0.0),
        fresh_n_gb_s: gb_s(middle(&|limits| Some(limits.fresh_n))).unwrap_or(0.0),
        read_n_gb_s: gb_s(middle(&|limits| limits.read_n)),
        decode_1_per_s: middle(&|limits| limits.decode_1),
        pinned_copy_gb_s: gb_s(middle(&|limits| limits.pinned_copy)),
        copy_gb_s: counts.map(|threads| (threads, gb_s(copy_at(threads)).unwrap_or(0.0))).collect(),
    }
}

fn intervals(rounds: &[Round]) -> Intervals {
    let all = rounds.iter().flat_map(|round| &round.run.intervals);
    let mut sorted: Vec<f64> = all.map(|&interval| millis(interval)).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |hundredth: usize| {
        sorted.get((sorted.len() * hundredth / 100).min(sorted.len().saturating_sub(1))).copied()
    };
    Intervals { p50: at(50).unwrap_or(0.0), p99: at(99).unwrap_or(0.0) }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
