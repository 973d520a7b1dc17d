//! The share of each limit that the pipeline reached in a round, and which limit binds.

use std::collections::BTreeMap;

use percolator::Stats;
use percolator::feed::Bottleneck;
use percolator::transform::TransformPlace;
use serde::Serialize;

use crate::machine::Limits;
use crate::noise::median;
use crate::run::Run;

/// A limit whose share is below this does not bind.
pub(crate) const NEAR: f64 = 0.5;
/// Workers that are at work for this share of the time count as always at work.
const BUSY: f64 = 0.8;

/// One round: the machine's limits, and the pipeline's run.
#[non_exhaustive]
#[derive(Debug)]
pub struct Round {
    /// What the machine can do.
    pub limits: Limits,
    /// What the pipeline did.
    pub run: Run,
    /// The job's workers, and where its transform runs.
    pub(crate) threads: usize,
    pub(crate) place: TransformPlace,
}

/// A limit of the machine. A report of limits names each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// What one thread copies.
    Copy1,
    /// What all threads copy.
    CopyN,
    /// What all threads store past the caches.
    StoreN,
    /// What all threads read of the files.
    ReadN,
    /// What all threads decode.
    Decode,
    /// What the GPUs copy from page-locked memory.
    PinnedCopy,
    /// The processors' time.
    Cpu,
}

impl Limit {
    /// All of them.
    pub const ALL: [Limit; 7] = [
        Limit::Copy1,
        Limit::CopyN,
        Limit::StoreN,
        Limit::ReadN,
        Limit::Decode,
        Limit::PinnedCopy,
        Limit::Cpu,
    ];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Limit::Copy1 => "copy_1",
            Limit::CopyN => "copy_n",
            Limit::StoreN => "store_n",
            Limit::ReadN => "read_n",
            Limit::Decode => "decode",
            Limit::PinnedCopy => "pinned_copy",
            Limit::Cpu => "cpu",
        }
    }

    /// Whether all threads of the pipeline share the limit, so that it can hold them up. A copy reads as much
    /// as it writes, so its rate does not limit a pipeline that turns bytes into floats.
    fn can_bind(self, is_copy: bool) -> bool {
        match self {
            Limit::Copy1 | Limit::Cpu => false,
            Limit::CopyN => is_copy,
            Limit::StoreN | Limit::ReadN | Limit::Decode | Limit::PinnedCopy => true,
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Round {
    /// Records per second.
    #[must_use]
    pub fn records_per_s(&self) -> f64 {
        self.run.stats.records_per_second()
    }

    /// The bytes of their values per second.
    #[must_use]
    pub fn source_per_s(&self) -> f64 {
        self.records_per_s() * self.run.value_bytes
    }

    /// The bytes of the batches' pixels per second.
    #[must_use]
    pub fn output_per_s(&self) -> f64 {
        self.run.stats.pixel_bytes_per_second()
    }

    /// Seconds of processor time for 1,000 records.
    #[must_use]
    pub fn cpu_s_per_1000(&self) -> f64 {
        self.run.cpu.as_secs_f64() / self.run.stats.records().max(1) as f64 * 1e3
    }

    /// The bytes that the host writes; not the output's if devices transform.
    #[must_use]
    pub fn written_per_s(&self) -> f64 {
        if self.place == TransformPlace::Device { self.host_per_s() } else { self.output_per_s() }
    }

    /// The bytes of batches on the host.
    fn host_per_s(&self) -> f64 {
        self.run.stats.per_second(self.run.stats.lanes.iter().map(|lane| lane.host_bytes).sum())
    }

    /// A limit: bytes or records per second, or seconds of processors per second.
    #[must_use]
    pub fn most(&self, limit: Limit) -> Option<f64> {
        let limits = &self.limits;
        let threads = self.threads as f64;
        let most = match limit {
            Limit::Copy1 => limits.copy_1(),
            Limit::CopyN => limits.copy_n(),
            Limit::StoreN => limits.store_n,
            Limit::ReadN => limits.read_n?,
            Limit::Decode => limits.decode_1? * threads,
            Limit::PinnedCopy => limits.pinned_copy?,
            Limit::Cpu => threads,
        };
        (most > 0.0).then_some(most)
    }

    /// The share of a limit that the pipeline reached.
    #[must_use]
    pub fn share_of(&self, limit: Limit) -> Option<f64> {
        let run = &self.run;
        let done = match limit {
            Limit::Copy1 | Limit::CopyN | Limit::StoreN => self.written_per_s(),
            Limit::ReadN => self.source_per_s(),
            Limit::Decode => self.records_per_s(),
            Limit::PinnedCopy => self.host_per_s(),
            Limit::Cpu => run.cpu.as_secs_f64() / run.stats.elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
        };
        Some(done / self.most(limit)?)
    }
}

/// The limit that binds a pipeline.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// The limit.
    pub limit: Limit,
    /// The share of it that was reached.
    pub share: f64,
}

impl Binding {
    /// Whether the limit holds the pipeline up: at least a half of it was reached, or it is the processors'
    /// time, of which no limit is nearer. Otherwise, threads wait for one another.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.limit == Limit::Cpu || self.share >= NEAR
    }
}

/// The shares of all limits that these rounds reached: medians.
#[must_use]
pub fn shares(rounds: &[Round]) -> BTreeMap<Limit, f64> {
    let share = |limit| median(rounds.iter().filter_map(|round| round.share_of(limit)));
    Limit::ALL.into_iter().filter_map(|limit| Some((limit, share(limit)?))).collect()
}

/// The limit that binds in these rounds.
#[must_use]
pub fn binding(rounds: &[Round]) -> Binding {
    let at_work = median(rounds.iter().map(|round| workers_at_work(&round.run.stats))).unwrap_or(0.0);
    let (limit, share) = binding_of(&shares(rounds), at_work, is_copy(rounds));
    Binding { limit, share }
}

/// Whether no more is written than read.
pub(crate) fn is_copy(rounds: &[Round]) -> bool {
    let middle = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure)).unwrap_or(0.0);
    middle(&Round::written_per_s) <= middle(&Round::source_per_s)
}

/// The limit that binds, and its share.
fn binding_of(share_of: &BTreeMap<Limit, f64>, workers_at_work: f64, is_copy: bool) -> (Limit, f64) {
    let cpu = share_of.get(&Limit::Cpu).copied().unwrap_or(0.0);
    let can_bind = share_of.iter().filter(|(limit, _)| limit.can_bind(is_copy));
    let largest = can_bind.max_by(|(_, one), (_, other)| one.total_cmp(other));
    match largest {
        Some((&limit, &share)) if share >= NEAR || workers_at_work < BUSY => (limit, share),
        _ => (Limit::Cpu, cpu),
    }
}

/// The share of their time that the workers were at work.
pub(crate) fn workers_at_work(stats: &Stats) -> f64 {
    let busy = stats.busy().into_iter().find(|(stage, _)| *stage == Bottleneck::Transform);
    busy.map_or(0.0, |(_, share)| share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_binding(shares: &[(Limit, f64)], workers_at_work: f64, expected: Limit) {
        let share_of: BTreeMap<_, _> = shares.iter().copied().collect();
        assert_eq!(binding_of(&share_of, workers_at_work, true), (expected, share_of[&expected]));
    }

    #[test]
    fn the_largest_share_binds() {
        let shares = [(Limit::CopyN, 0.6), (Limit::StoreN, 0.2), (Limit::ReadN, 0.7), (Limit::Cpu, 0.9)];
        check_binding(&shares, 1.0, Limit::ReadN);
        check_binding(&shares, 0.0, Limit::ReadN);
    }

    #[test]
    fn what_one_thread_copies_binds_nobody() {
        check_binding(&[(Limit::Copy1, 1.4), (Limit::CopyN, 0.6), (Limit::Cpu, 0.9)], 1.0, Limit::CopyN);
    }

    #[test]
    fn a_copy_binds_nobody_who_writes_more_than_they_read() {
        let share_of = [(Limit::CopyN, 1.7), (Limit::StoreN, 0.8), (Limit::Cpu, 0.9)].into_iter().collect();
        assert_eq!(binding_of(&share_of, 1.0, false), (Limit::StoreN, 0.8));
        assert_eq!(binding_of(&share_of, 1.0, true), (Limit::CopyN, 1.7));
    }

    #[test]
    fn the_processor_binds_where_workers_are_busy_far_from_any_limit() {
        let shares = [(Limit::Copy1, 0.6), (Limit::CopyN, 0.3), (Limit::Decode, 0.4), (Limit::Cpu, 0.95)];
        check_binding(&shares, 0.9, Limit::Cpu);
        check_binding(&shares, 0.7, Limit::Decode);
    }
}
