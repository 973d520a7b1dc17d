//! Who waited for whom: which stage limits the feed.

use std::fmt;
use std::time::Duration;

use crate::base::meter::Waits;

/// What a feed has done so far.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Stats {
    /// The time since the feed was built, until its last lane ended.
    pub elapsed: Duration,
    /// The reader, which all lanes share.
    pub reader: ReaderStats,
    /// The workers, which all lanes share.
    pub workers: WorkerStats,
    /// The lanes, in the order of their devices.
    pub lanes: Vec<LaneStats>,
}

/// What the reader has done.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReaderStats {
    /// Records dealt.
    pub records: u64,
    /// The bytes of their values.
    pub value_bytes: u64,
    /// Complete passes over the source.
    pub passes: u64,
    /// Records whose lane had ended while others continued; they were discarded.
    pub undelivered: u64,
    /// Waits for a lane to return records.
    pub waits_for_free: Waits,
    /// Waits to be [resumed](super::FeedHandle::resume).
    pub waits_for_resume: Waits,
}

/// What the workers have done.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WorkerStats {
    /// The number of workers.
    pub threads: usize,
    /// The time that all of them together have existed: some may have been added while the feed ran.
    pub time: Duration,
    /// How many of them are active now. If their number was not set: only as many as it takes to keep the
    /// consumers from waiting.
    pub active: usize,
    /// Tasks that no worker has taken yet: runs, and what the reader offloads.
    pub queued: usize,
    /// The room for such tasks.
    pub queue_capacity: usize,
    /// Runs of records handled.
    pub runs: u64,
    /// Offloaded tasks: groups of compressed blocks that a worker unpacked ahead of the reader.
    pub offloaded: u64,
    /// The waits for work, of all workers together, including those that are not active.
    pub waits_for_records: Waits,
}

/// What one lane has done.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LaneStats {
    /// The device at its end.
    pub device: String,
    /// Batches that the consumer has taken.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// The bytes of their pixels, as the consumer sees them.
    pub pixel_bytes: u64,
    /// The bytes that the whole batches take up on the host. If they go to another device, this is what is
    /// copied.
    pub host_bytes: u64,
    /// The lane's waits for the reader's records.
    pub waits_for_records: Waits,
    /// The lane's waits for the consumer to drop a batch.
    pub waits_for_free: Waits,
    /// The lane's waits for its device to be done with a batch that the consumer has dropped.
    pub waits_for_device: Waits,
    /// The lane's waits for the workers, with nothing else to do.
    pub waits_for_workers: Waits,
    /// The lane's waits for other lanes, which have yet to complete their batches of a step.
    pub waits_for_lanes: Waits,
    /// The consumer's waits for a batch, except those during which it held [all](Self::ring) of them: these
    /// are its own.
    pub waits_for_batch: Waits,
    /// Bad records that these batches [left out](crate::FeedBuilder::bad_records).
    pub bad_records: u64,
    /// Batches that were larger than any before, so that their memory had to grow.
    pub growths: u64,
    /// The runs that circulate between the reader and the lane, now.
    pub runs: QueueStats,
    /// Batches in its ring now.
    pub ring: usize,
    /// Batches that are being filled now, or that wait until another lane completes its own batch of the
    /// step.
    pub filling: usize,
    /// Complete batches that wait for the consumer now.
    pub ready: usize,
    /// Batches that the consumer holds now.
    pub held: usize,
}

/// Where the slots of a queue pair are. Those in neither queue are in use.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// All slots.
    pub capacity: usize,
    /// Those that wait to be used.
    pub full: usize,
    /// Those that wait to be filled.
    pub free: usize,
}

/// The stage that limits the feed.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Reading the source.
    Reader,
    /// The workers: decode and transform.
    Transform,
    /// The code that takes the batches. The feed keeps up with it.
    Consumer,
    /// The lanes' devices: copies, transforms there, or other work that the consumers give them.
    Device,
}

impl Stats {
    /// Returns what was done since earlier statistics of the same feed. Figures that are not sums are the
    /// current ones: the number of active workers, what is in the queues, and where a ring's batches are.
    #[must_use]
    pub fn since(&self, before: &Stats) -> Stats {
        // All fields are named, here and below, so that a new one cannot be forgotten.
        let Stats { elapsed, reader, workers, lanes } = self;
        let zeros = LaneStats::default();
        let lanes_before = before.lanes.iter().chain(std::iter::repeat(&zeros));
        Stats {
            elapsed: elapsed.saturating_sub(before.elapsed),
            reader: reader.since(&before.reader),
            workers: workers.since(&before.workers),
            lanes: lanes.iter().zip(lanes_before).map(|(lane, before)| lane.since(before)).collect(),
        }
    }

    /// Returns the number of records that the consumers have taken, over all lanes.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.lanes.iter().fold(0, |sum, lane| sum.saturating_add(lane.records))
    }

    /// Returns the bytes of pixels that the consumers have taken, over all lanes.
    #[must_use]
    pub fn pixel_bytes(&self) -> u64 {
        self.lanes.iter().fold(0, |sum, lane| sum.saturating_add(lane.pixel_bytes))
    }

    /// Returns `count` divided by the seconds since the feed was built.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        per_second(count, self.elapsed)
    }

    /// Returns the records taken per second since the feed was built.
    #[must_use]
    pub fn records_per_second(&self) -> f64 {
        self.per_second(self.records())
    }

    /// Returns the bytes of pixels taken per second since the feed was built.
    #[must_use]
    pub fn pixel_bytes_per_second(&self) -> f64 {
        self.per_second(self.pixel_bytes())
    }

    /// Returns the share of its time that each stage was busy rather than waiting for another.
    #[must_use]
    pub fn busy(&self) -> [(Bottleneck, f64); 4] {
        // Numbers that come from elsewhere may be of any size.
        let sum = |time: fn(&LaneStats) -> Duration| {
            self.lanes.iter().map(time).fold(Duration::ZERO, Duration::saturating_add)
        };
        let devices = sum(|lane| lane.waits_for_device.time);
        let consumers = sum(|lane| lane.waits_for_batch.time);
        let part = |time: f64, whole: f64| if whole > 0.0 { (time / whole).clamp(0.0, 1.0) } else { 0.0 };
        let without = |waits: Duration, whole: f64| part(whole - waits.as_secs_f64(), whole);
        let one = self.elapsed.as_secs_f64();
        let of_lanes = one * to_f64(self.lanes.len().max(1) as u64);
        let reader = self.reader.waits_for_free.time.saturating_add(self.reader.waits_for_resume.time);
        [
            (Bottleneck::Reader, without(reader, one)),
            (
                Bottleneck::Transform,
                without(self.workers.waits_for_records.time, self.workers.time.as_secs_f64()),
            ),
            (Bottleneck::Consumer, without(consumers, of_lanes)),
            // A device's time is known only while something waits for it.
            (Bottleneck::Device, part(devices.as_secs_f64(), of_lanes)),
        ]
    }

    /// Returns the stage that waits least for the others, which therefore wait for it.
    #[must_use]
    pub fn bottleneck(&self) -> Bottleneck {
        let [reader, transform, consumer, device] = self.busy();
        let busier = |a: (Bottleneck, f64), b: (Bottleneck, f64)| if b.1 > a.1 { b } else { a };
        busier(busier(busier(consumer, device), transform), reader).0
    }
}

impl ReaderStats {
    fn since(&self, before: &Self) -> Self {
        let &ReaderStats { records, value_bytes, passes, undelivered, waits_for_free, waits_for_resume } =
            self;
        ReaderStats {
            records: records.saturating_sub(before.records),
            value_bytes: value_bytes.saturating_sub(before.value_bytes),
            passes: passes.saturating_sub(before.passes),
            undelivered: undelivered.saturating_sub(before.undelivered),
            waits_for_free: waits_since(waits_for_free, before.waits_for_free),
            waits_for_resume: waits_since(waits_for_resume, before.waits_for_resume),
        }
    }
}

impl WorkerStats {
    fn since(&self, before: &Self) -> Self {
        let &WorkerStats {
            threads,
            time,
            active,
            queued,
            queue_capacity,
            runs,
            offloaded,
            waits_for_records,
        } = self;
        WorkerStats {
            threads,
            time: time.saturating_sub(before.time),
            active,
            queued,
            queue_capacity,
            runs: runs.saturating_sub(before.runs),
            offloaded: offloaded.saturating_sub(before.offloaded),
            waits_for_records: waits_since(waits_for_records, before.waits_for_records),
        }
    }
}

impl LaneStats {
    fn since(&self, before: &Self) -> Self {
        let LaneStats {
            device,
            batches,
            records,
            pixel_bytes,
            host_bytes,
            waits_for_records,
            waits_for_free,
            waits_for_device,
            waits_for_workers,
            waits_for_lanes,
            waits_for_batch,
            bad_records,
            growths,
            runs,
            ring,
            filling,
            ready,
            held,
        } = self;
        LaneStats {
            device: device.clone(),
            batches: batches.saturating_sub(before.batches),
            records: records.saturating_sub(before.records),
            pixel_bytes: pixel_bytes.saturating_sub(before.pixel_bytes),
            host_bytes: host_bytes.saturating_sub(before.host_bytes),
            waits_for_records: waits_since(*waits_for_records, before.waits_for_records),
            waits_for_free: waits_since(*waits_for_free, before.waits_for_free),
            waits_for_device: waits_since(*waits_for_device, before.waits_for_device),
            waits_for_workers: waits_since(*waits_for_workers, before.waits_for_workers),
            waits_for_lanes: waits_since(*waits_for_lanes, before.waits_for_lanes),
            waits_for_batch: waits_since(*waits_for_batch, before.waits_for_batch),
            bad_records: bad_records.saturating_sub(before.bad_records),
            growths: growths.saturating_sub(before.growths),
            runs: *runs,
            ring: *ring,
            filling: *filling,
            ready: *ready,
            held: *held,
        }
    }
}

impl QueueStats {
    /// Returns the slots in neither queue, which threads are using.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.capacity.saturating_sub(self.full).saturating_sub(self.free)
    }
}

fn waits_since(now: Waits, before: Waits) -> Waits {
    let Waits { count, time } = now;
    Waits { count: count.saturating_sub(before.count), time: time.saturating_sub(before.time) }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::Reader => "the reader",
            Bottleneck::Transform => "the workers",
            Bottleneck::Consumer => "the consumer",
            Bottleneck::Device => "the device",
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { to_f64(count) / time.as_secs_f64() }
}

impl fmt::Display for Stats {
    /// Writes a table for people, some 100 columns wide: who did how much, and who waited for whom.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = |waits: Waits| format!("{:.3} s in {} waits", waits.time.as_secs_f64(), waits.count);
        for lane in &self.lanes {
            writeln!(
                f,
                "{:<10} {:>8} batches {:>10} records {:>12.0} records/s {:>9.3} GB/s",
                lane.device,
                lane.batches,
                lane.records,
                per_second(lane.records, self.elapsed),
                per_second(lane.pixel_bytes, self.elapsed) / 1e9,
            )?;
        }
        writeln!(
            f,
            "{:<10} {:>8.3} seconds {:>10} records {:>12.0} records/s {:>9.3} GB/s",
            "all",
            self.elapsed.as_secs_f64(),
            self.records(),
            self.records_per_second(),
            self.pixel_bytes_per_second() / 1e9,
        )?;
        writeln!(f)?;
        writeln!(f, "the reader waited for lanes to return records: {}", waits(self.reader.waits_for_free))?;
        writeln!(
            f,
            "{} worker(s), {} of them active now, waited for work: {}",
            self.workers.threads,
            self.workers.active,
            waits(self.workers.waits_for_records)
        )?;
        for lane in &self.lanes {
            writeln!(
                f,
                "{} waited for a batch, with {} in its ring now: {}",
                lane.device,
                lane.ring,
                waits(lane.waits_for_batch)
            )?;
        }
        if self.reader.undelivered > 0 {
            writeln!(
                f,
                "{} more records were for lanes that had ended, and were dealt to nobody",
                self.reader.undelivered
            )?;
        }
        let is_of_interest = |&(stage, share): &(Bottleneck, f64)| stage != Bottleneck::Device || share > 0.0;
        for (stage, share) in self.busy().into_iter().filter(is_of_interest) {
            writeln!(f, "{:<12} busy {:>5.1} % of the time", stage.to_string(), share * 100.0)?;
        }
        write!(f, "what held the others up: {}", self.bottleneck())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(reader: u64, workers: u64, consumer: u64) -> Stats {
        let waits = |seconds| Waits { count: 1, time: Duration::from_secs(seconds) };
        Stats {
            elapsed: Duration::from_secs(10),
            reader: ReaderStats { waits_for_free: waits(reader), ..ReaderStats::default() },
            workers: WorkerStats {
                threads: 2,
                time: Duration::from_secs(20),
                waits_for_records: waits(workers),
                ..WorkerStats::default()
            },
            lanes: vec![LaneStats { waits_for_batch: waits(consumer), records: 50, ..LaneStats::default() }],
        }
    }

    /// Statistics whose every number and time is this one.
    fn all(number: u64) -> Stats {
        let waits = Waits { count: number, time: Duration::from_secs(number) };
        let threads = usize::try_from(number).unwrap();
        Stats {
            elapsed: waits.time,
            reader: ReaderStats {
                records: number,
                value_bytes: number,
                passes: number,
                undelivered: number,
                waits_for_free: waits,
                waits_for_resume: waits,
            },
            workers: WorkerStats {
                threads,
                time: waits.time,
                active: threads,
                queued: threads,
                queue_capacity: threads,
                runs: number,
                offloaded: number,
                waits_for_records: waits,
            },
            lanes: vec![LaneStats {
                device: "host:0".to_owned(),
                batches: number,
                records: number,
                pixel_bytes: number,
                host_bytes: number,
                waits_for_records: waits,
                waits_for_free: waits,
                waits_for_device: waits,
                waits_for_workers: waits,
                waits_for_lanes: waits,
                waits_for_batch: waits,
                bad_records: number,
                growths: number,
                runs: QueueStats { capacity: threads, full: threads, free: threads },
                ring: threads,
                filling: threads,
                ready: threads,
                held: threads,
            }],
        }
    }

    #[test]
    fn since_subtracts_every_figure_that_is_a_sum() {
        let mut due = all(7);
        (due.workers.threads, due.workers.active) = (10, 10);
        (due.workers.queued, due.workers.queue_capacity) = (10, 10);
        let lane = &mut due.lanes[0];
        (lane.ring, lane.filling, lane.ready, lane.held) = (10, 10, 10, 10);
        lane.runs = QueueStats { capacity: 10, full: 10, free: 10 };
        assert_eq!(all(10).since(&all(3)), due);
        assert_eq!(all(10).since(&Stats { lanes: Vec::new(), ..all(0) }), all(10));
        let nothing = all(3).since(&all(10));
        assert_eq!(
            (nothing.elapsed, nothing.records()),
            (Duration::ZERO, 0),
            "statistics in the wrong order"
        );
    }

    #[test]
    fn the_stage_that_waits_least_is_the_bottleneck() {
        assert_eq!(stats(1, 18, 9).bottleneck(), Bottleneck::Reader);
        assert_eq!(stats(9, 2, 9).bottleneck(), Bottleneck::Transform);
        assert_eq!(stats(9, 18, 1).bottleneck(), Bottleneck::Consumer);
        assert!((stats(9, 18, 1).records_per_second() - 5.0).abs() < 1e-9);
        let mut waits_for_device = stats(9, 18, 9);
        waits_for_device.lanes[0].waits_for_device.time = Duration::from_secs(8);
        assert_eq!(waits_for_device.bottleneck(), Bottleneck::Device);
        let none = Stats { elapsed: Duration::ZERO, workers: WorkerStats::default(), ..waits_for_device };
        assert_eq!(none.bottleneck(), Bottleneck::Consumer);
        let mut largest = all(1);
        largest.reader.waits_for_free.time = Duration::MAX;
        largest.lanes[0].waits_for_batch.time = Duration::MAX;
        largest.lanes[0].waits_for_device.time = Duration::MAX;
        largest.lanes[0].records = u64::MAX;
        largest.lanes.push(largest.lanes[0].clone());
        assert_eq!((largest.records(), largest.bottleneck()), (u64::MAX, Bottleneck::Device));
    }
}
