//! The metrics: their names, units and meanings, and which number each of them is.
//!
//! Names follow Prometheus's rules: a counter ends with `_total`, and the unit, which is a base unit or the
//! things that are counted, comes before that.

use std::time::Duration;

use percolator::feed::LaneStats;
use percolator::record::StepId;

use super::{Numbers, sums};

/// What a metric does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0.
    Counter,
    /// It rises and falls.
    Gauge,
}

impl Kind {
    /// Returns the word of Prometheus's text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// A metric of every feed: one number, or one for each value of its labels. All have the label `feed`, and
/// those of a lane have `lane` and `device`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it does over time.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
    pub(crate) series: &'static [Series],
}

/// The numbers of a family that have the same label of their own, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Series {
    pub(crate) label: Option<(&'static str, &'static str)>,
    pub(crate) of: Of,
}

/// Which number it is. The same description serves to write it and to read it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Feed(fn(&mut Numbers) -> Number<'_>),
    Lane(fn(&mut LaneStats) -> Number<'_>),
    Step(fn(&mut StepId) -> Number<'_>),
    /// One number for each holder of memory, which is the label `holder`.
    Budget,
}

/// A number as it is kept.
#[derive(Debug)]
pub(crate) enum Number<'a> {
    Count(&'a mut u64),
    Size(&'a mut usize),
    Time(&'a mut Duration),
    Flag(&'a mut bool),
}

/// The longest time that a text may have: that of a thousand threads for a thousand years. Sums of such times
/// are in the range of a [`Duration`].
const TIME_MAX: Duration = Duration::from_secs(40_000_000_000_000);

/// The labels of a number beside `feed`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Labels {
    pub(crate) own: Option<(&'static str, &'static str)>,
    pub(crate) lane: Option<(usize, String)>,
    pub(crate) holder: Option<String>,
}

impl Labels {
    /// The labels, in the order in which they are written.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let lane = self
            .lane
            .iter()
            .flat_map(|(lane, device)| [("lane", lane.to_string()), ("device", device.clone())]);
        let own = self.own.iter().map(|&(name, value)| (name, value.to_owned()));
        let holder = self.holder.iter().map(|holder| ("holder", holder.clone()));
        lane.chain(own).chain(holder).collect()
    }
}

impl Number<'_> {
    /// The number as text: exact.
    pub(crate) fn text(&self) -> String {
        match self {
            Number::Count(count) => count.to_string(),
            Number::Size(size) => size.to_string(),
            Number::Time(time) => format!("{}.{:09}", time.as_secs(), time.subsec_nanos()),
            Number::Flag(flag) => u8::from(**flag).to_string(),
        }
    }

    /// Whether it is a whole number by its nature.
    pub(crate) fn whole(&self) -> Option<u64> {
        match self {
            Number::Count(count) => Some(**count),
            Number::Size(size) => Some(**size as u64),
            Number::Flag(flag) => Some(u64::from(**flag)),
            Number::Time(_) => None,
        }
    }

    /// The number in base units.
    #[expect(clippy::cast_precision_loss, reason = "a float is all that a gauge can be")]
    pub(crate) fn float(&self) -> f64 {
        match self {
            Number::Time(time) => time.as_secs_f64(),
            other => other.whole().unwrap_or_default() as f64,
        }
    }

    /// Takes the number from a text; `false` if it is not of its kind.
    pub(crate) fn read(self, text: &str) -> bool {
        // Another exporter may write a count as a float.
        let whole = || text.parse().ok().or_else(|| whole_of(text.parse().ok()?));
        match self {
            Number::Count(count) => whole().map(|found| *count = found).is_some(),
            Number::Size(size) => {
                let found = whole().and_then(|found| usize::try_from(found).ok());
                found.map(|found| *size = found).is_some()
            }
            Number::Flag(flag) => whole().map(|found| *flag = found != 0).is_some(),
            Number::Time(time) => {
                let found =
                    exact_time_of(text).or_else(|| Duration::try_from_secs_f64(text.parse().ok()?).ok());
                found.filter(|found| *found <= TIME_MAX).map(|found| *time = found).is_some()
            }
        }
    }
}

/// The seconds of a text like `1.25`, of nine decimal places at most: a float is not exact.
fn exact_time_of(text: &str) -> Option<Duration> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_exact = is_number(seconds) && is_number(fraction) && fraction.len() <= 9;
    let nanoseconds = format!("{fraction:0<9}");
    is_exact.then_some(())?;
    Some(Duration::new(seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the range")]
fn whole_of(float: f64) -> Option<u64> {
    (0.0..1.8e19).contains(&float).then_some(float as u64)
}

/// Visits every number of a feed.
pub(crate) fn visit(numbers: &Numbers, mut each: impl FnMut(&'static Family, &Labels, &Number<'_>)) {
    let mut numbers = numbers.clone();
    for family in FAMILIES {
        for series in family.series {
            let own = series.label;
            match series.of {
                Of::Feed(number) => {
                    each(family, &Labels { own, ..Labels::default() }, &number(&mut numbers));
                }
                Of::Lane(number) => {
                    for (lane, stats) in numbers.stats.lanes.iter_mut().enumerate() {
                        let lane = Some((lane, stats.device.clone()));
                        each(family, &Labels { own, lane, ..Labels::default() }, &number(stats));
                    }
                }
                Of::Step(number) => {
                    for (lane, step) in numbers.next.iter_mut().enumerate() {
                        let device = numbers.stats.lanes.get(lane).map(|stats| stats.device.clone());
                        let lane = Some((lane, device.unwrap_or_default()));
                        each(family, &Labels { own, lane, ..Labels::default() }, &number(step));
                    }
                }
                Of::Budget => {
                    // Two numbers with the same labels are one too many for Prometheus.
                    for (holder, mut bytes) in sums(numbers.budget.iter().map(|(name, sum)| (&**name, *sum)))
                    {
                        let labels = Labels { own, holder: Some(holder), ..Labels::default() };
                        each(family, &labels, &Number::Count(&mut bytes));
                    }
                }
            }
        }
    }
}

/// Where a number is, and how it is kept: `Lane Count records`.
macro_rules! number {
    (Budget) => {
        Of::Budget
    };
    ($of:ident $number:ident $($field:ident).+) => {
        Of::$of(|all| Number::$number(&mut all.$($field).+))
    };
}

/// A family of one number without a label of its own, or of several numbers, told apart by a label.
macro_rules! family {
    ($kind:ident $name:literal, $help:literal, $($number:tt)+) => {
        family!(@ $kind $name, $help, Series { label: None, of: number!($($number)+) })
    };
    ($kind:ident $name:literal, $help:literal; $label:literal
        $($value:literal => $of:ident $number:ident $($field:ident).+),+) => {
        family!(@ $kind $name, $help,
            $(Series { label: Some(($label, $value)), of: number!($of $number $($field).+) }),+)
    };
    (@ $kind:ident $name:literal, $help:literal, $($series:expr),+) => {
        Family { name: $name, kind: Kind::$kind, help: $help, series: &[$($series),+] }
    };
}

/// All metrics, in the order in which they are written: along the way of a record.
pub const FAMILIES: &[Family] = &[
    family!(Gauge "percolator_elapsed_seconds", "Time since the feed was built, until its last lane ended.",
        Feed Time stats.elapsed),
    family!(Gauge "percolator_paused", "1 while the feed is paused, otherwise 0.",
        Feed Flag is_paused),
    family!(Gauge "percolator_ended", "1 once all lanes of the feed have ended, before that 0.",
        Feed Flag has_ended),
    family!(Counter "percolator_reader_records_total", "Records that the reader has dealt to lanes.",
        Feed Count stats.reader.records),
    family!(Counter "percolator_reader_value_bytes_total",
        "Bytes of the values of those records, as they are stored.",
        Feed Count stats.reader.value_bytes),
    family!(Counter "percolator_reader_passes_total", "Complete passes over the source.",
        Feed Count stats.reader.passes),
    family!(Counter "percolator_reader_undelivered_records_total",
        "Records whose lane had ended while others continued.",
        Feed Count stats.reader.undelivered),
    family!(Counter "percolator_reader_waits_total",
        "The reader's waits: for a lane to return a run (free), to be resumed (resume).";
        "on"
        "free" => Feed Count stats.reader.waits_for_free.count,
        "resume" => Feed Count stats.reader.waits_for_resume.count),
    family!(Counter "percolator_reader_waits_seconds_total",
        "Time of the reader's waits.";
        "on"
        "free" => Feed Time stats.reader.waits_for_free.time,
        "resume" => Feed Time stats.reader.waits_for_resume.time),
    family!(Gauge "percolator_queue_runs",
        "Runs of records in a lane's two queues: to be used (full), to be filled (free). The others are \
         in use.";
        "queue"
        "full" => Lane Size runs.full,
        "free" => Lane Size runs.free),
    family!(Gauge "percolator_queue_capacity_runs",
        "Runs of records that circulate between the reader and a lane.",
        Lane Size runs.capacity),
    family!(Gauge "percolator_worker_threads", "Worker threads, including those that stand by.",
        Feed Size stats.workers.threads),
    family!(Counter "percolator_worker_thread_seconds_total",
        "Time that all worker threads together have existed.",
        Feed Time stats.workers.time),
    family!(Gauge "percolator_worker_active_threads", "Worker threads that are active.",
        Feed Size stats.workers.active),
    family!(Gauge "percolator_worker_queue_tasks",
        "Tasks that no worker has taken yet: runs, and what the reader offloads.",
        Feed Size stats.workers.queued),
    family!(Gauge "percolator_worker_queue_capacity_tasks", "The room for such tasks.",
        Feed Size stats.workers.queue_capacity),
    family!(Counter "percolator_worker_runs_total", "Runs of records that workers have taken.",
        Feed Count stats.workers.runs),
    family!(Counter "percolator_worker_offloaded_tasks_total",
        "Groups of compressed blocks that workers have unpacked ahead of the reader.",
        Feed Count stats.workers.offloaded),
    family!(Counter "percolator_worker_waits_total",
        "Waits of all workers together for records, including those that stand by.";
        "on"
        "records" => Feed Count stats.workers.waits_for_records.count),
    family!(Counter "percolator_worker_waits_seconds_total",
        "Time of these waits, of all workers together.";
        "on"
        "records" => Feed Time stats.workers.waits_for_records.time),
    family!(Counter "percolator_lane_waits_total",
        "A lane's waits: for the reader's records, for its consumer to drop a batch (free), for its \
         device to be done with one, for the workers, for other lanes to complete a step.";
        "on"
        "records" => Lane Count waits_for_records.count,
        "free" => Lane Count waits_for_free.count,
        "device" => Lane Count waits_for_device.count,
        "workers" => Lane Count waits_for_workers.count,
        "lanes" => Lane Count waits_for_lanes.count),
    family!(Counter "percolator_lane_waits_seconds_total",
        "Time of a lane's waits.";
        "on"
        "records" => Lane Time waits_for_records.time,
        "free" => Lane Time waits_for_free.time,
        "device" => Lane Time waits_for_device.time,
        "workers" => Lane Time waits_for_workers.time,
        "lanes" => Lane Time waits_for_lanes.time),
    family!(Gauge "percolator_ring_batches",
        "Batches of a lane's ring: being filled, complete and waiting for the consumer (ready), held by \
         it. The others are free.";
        "state"
        "filling" => Lane Size filling,
        "ready" => Lane Size ready,
        "held" => Lane Size held),
    family!(Gauge "percolator_ring_capacity_batches", "Batches in a lane's ring.",
        Lane Size ring),
    family!(Counter "percolator_ring_growths_total",
        "Batches that were larger than any before, so that their memory had to grow.",
        Lane Count growths),
    family!(Counter "percolator_bad_records_total", "Bad records in the batches that the consumer has taken.",
        Lane Count bad_records),
    family!(Counter "percolator_batches_total", "Batches that the consumer has taken.",
        Lane Count batches),
    family!(Counter "percolator_records_total", "Records in those batches.",
        Lane Count records),
    family!(Counter "percolator_pixel_bytes_total", "Bytes of their pixels, as the consumer sees them.",
        Lane Count pixel_bytes),
    family!(Counter "percolator_host_bytes_total",
        "Bytes that those batches take up on the host: what is copied to another device.",
        Lane Count host_bytes),
    family!(Counter "percolator_consumer_waits_total",
        "The consumer's waits for a batch, except those during which it held all of them.";
        "on"
        "batch" => Lane Count waits_for_batch.count),
    family!(Counter "percolator_consumer_waits_seconds_total",
        "Time of these waits.";
        "on"
        "batch" => Lane Time waits_for_batch.time),
    family!(Gauge "percolator_next_epoch", "The epoch of a lane's next step, from 0.",
        Step Count epoch),
    family!(Gauge "percolator_next_step", "A lane's next step in its epoch, from 0.",
        Step Count step),
    family!(Gauge "percolator_memory_budget_bytes",
        "Memory that the feed uses beside the page cache, by holder.",
        Budget),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written_and_floats_as_they_are() {
        let read = |text: &str| {
            let mut time = Duration::ZERO;
            Number::Time(&mut time).read(text).then_some(time)
        };
        for time in [Duration::new(9_007_199, 254_740_993), Duration::new(0, 1), TIME_MAX] {
            let mut written = time;
            assert_eq!(read(&Number::Time(&mut written).text()), Some(time));
        }
        for (text, milliseconds) in [("7", 7000), ("1.5", 1500), ("+1.5", 1500), ("2e-3", 2), (".5", 500)] {
            assert_eq!(read(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(read("0.0000000009"), Some(Duration::from_nanos(1)), "rounded");
        let too_long = format!("{}.000000001", TIME_MAX.as_secs());
        for text in ["", "-1", "1.x", "nan", "inf", "40000000000001", &too_long, "1e300"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
