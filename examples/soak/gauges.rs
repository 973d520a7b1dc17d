//! Memory, threads and open files of this process, and whether they grow.

use std::time::{Duration, Instant};

use anyhow::Context as _;

/// What the process uses at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Resident anonymous memory, in MiB.
    pub(crate) memory_mib: f64,
    pub(crate) threads: f64,
    pub(crate) files: f64,
}

impl Usage {
    pub(crate) fn now() -> anyhow::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").context("a soak needs Linux's /proc")?;
        let number = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let text = line.with_context(|| format!("/proc/self/status has no {name}"))?;
            Ok(text.trim().trim_end_matches("kB").trim().parse()?)
        };
        // Without the folder that is being listed.
        let files = std::fs::read_dir("/proc/self/fd")?.count() - 1;
        let (memory_mib, threads) = (number("RssAnon:")? / 1024.0, number("Threads:")?);
        Ok(Usage { memory_mib, threads, files: f64::from(u32::try_from(files)?) })
    }

    /// What it uses once threads that have been joined are gone from the kernel's list, or after a second.
    pub(crate) fn at_rest(threads: f64) -> anyhow::Result<Self> {
        let start = Instant::now();
        loop {
            let usage = Usage::now()?;
            if usage.threads <= threads || start.elapsed() > Duration::from_secs(1) {
                return Ok(usage);
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn max(self, other: Usage) -> Usage {
        Usage {
            memory_mib: self.memory_mib.max(other.memory_mib),
            threads: self.threads.max(other.threads),
            files: self.files.max(other.files),
        }
    }
}

/// What was used when a round was over, and the most while it ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) minutes: f64,
    pub(crate) at_rest: Usage,
    pub(crate) peak: Usage,
}

/// One of the three gauges, and what it may grow by in the second half of the time.
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) of: fn(&Usage) -> f64,
    /// The allocator keeps a little more now and then; a thread or a file that is left is one too many.
    allowed: fn(f64) -> f64,
}

pub(crate) const GAUGES: [Gauge; 3] = [
    Gauge {
        name: "anonymous memory",
        unit: "MiB",
        of: |usage| usage.memory_mib,
        allowed: |median| 4.0 + median / 10.0,
    },
    Gauge { name: "threads", unit: "", of: |usage| usage.threads, allowed: |_| 0.9 },
    Gauge { name: "open files", unit: "", of: |usage| usage.files, allowed: |_| 0.9 },
];

impl Gauge {
    /// By how much it grows in the second half of the samples, and how much is allowed.
    pub(crate) fn growth(&self, samples: &[Sample]) -> (f64, f64) {
        let half = &samples[samples.len() / 2..];
        let points: Vec<(f64, f64)> =
            half.iter().map(|sample| (sample.minutes, (self.of)(&sample.at_rest))).collect();
        let Some((first, last)) = points.first().zip(points.last()) else { return (0.0, f64::INFINITY) };
        let mut values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
        (slope(&points) * (last.0 - first.0), (self.allowed)(median(&mut values)))
    }
}

/// The most points between which slopes are taken.
const POINTS: usize = 400;

/// The median of the slopes between all pairs of points (Theil and Sen): a few moments at which the machine
/// was busy do not change it.
fn slope(points: &[(f64, f64)]) -> f64 {
    let every = points.len().div_ceil(POINTS).max(1);
    let points: Vec<_> = points.iter().step_by(every).collect();
    let mut slopes = Vec::new();
    for (number, one) in points.iter().enumerate() {
        for other in &points[number + 1..] {
            if other.0 > one.0 {
                slopes.push((other.1 - one.1) / (other.0 - one.0));
            }
        }
    }
    median(&mut slopes)
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
