//! What holds a feed up, in plain words.

use std::fmt;

use percolator::feed::Bottleneck;
use serde::Serialize;

use crate::noise::median;
use crate::shares::{Limit, NEAR, Round, is_copy, workers_at_work};

/// A stage that works for this share of the time is always at work.
const BUSY: f64 = 0.8;
/// The share of the records' bytes that come from storage if the disk has a part in it.
const FROM_STORAGE: f64 = 0.5;

/// What holds the feed up.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binds {
    /// The training step: the feed keeps up with it.
    Consumer,
    /// The records' files are read from storage.
    Disk,
    /// The thread that reads the source.
    Reader,
    /// Decoding images.
    Decode,
    /// Reading the files, which are in memory.
    Reading,
    /// Writing batches to memory.
    Memory,
    /// The copy to the devices.
    Copy,
    /// The processors, with all that is not decoding.
    Processors,
    /// No limit is near: threads wait for one another.
    Nothing,
}

/// The medians that say what binds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Evidence {
    /// The share of their time that these were at work.
    consumers: f64,
    reader: f64,
    workers: f64,
    devices: f64,
    /// The share of the records' bytes that came from storage.
    storage: f64,
    /// The shares of limits that were reached.
    decode: f64,
    reading: f64,
    memory: f64,
    pinned_copy: f64,
}

impl Evidence {
    pub(super) fn of(rounds: &[Round]) -> Self {
        let middle =
            |figure: &dyn Fn(&Round) -> Option<f64>| median(rounds.iter().filter_map(figure)).unwrap_or(0.0);
        let busy = |stage: Bottleneck| {
            middle(&|round| {
                round.run.stats.busy().into_iter().find(|(one, _)| *one == stage).map(|(_, share)| share)
            })
        };
        let share = |limit| middle(&|round| round.share_of(limit));
        let copy = if is_copy(rounds) { share(Limit::CopyN) } else { 0.0 };
        Evidence {
            consumers: busy(Bottleneck::Consumer),
            reader: busy(Bottleneck::Reader),
            workers: middle(&|round| Some(workers_at_work(&round.run.stats))),
            devices: busy(Bottleneck::Device),
            storage: middle(&|round| {
                let run = &round.run;
                Some(run.storage_bytes? as f64 / (run.stats.reader.value_bytes.max(1) as f64))
            }),
            decode: share(Limit::Decode),
            reading: share(Limit::ReadN),
            memory: share(Limit::StoreN).max(copy),
            pinned_copy: share(Limit::PinnedCopy),
        }
    }

    /// What binds. Without a training step, consumers take batches as they come, and never bind.
    pub(super) fn binds(&self, has_step: bool) -> Binds {
        if has_step && self.consumers >= BUSY {
            return Binds::Consumer;
        }
        if self.storage >= FROM_STORAGE {
            return Binds::Disk;
        }
        if self.devices >= NEAR || self.pinned_copy >= BUSY {
            return Binds::Copy;
        }
        if self.reader >= BUSY && self.reader > self.workers {
            return Binds::Reader;
        }
        if self.decode >= NEAR {
            return Binds::Decode;
        }
        if self.memory >= NEAR && self.memory >= self.reading {
            return Binds::Memory;
        }
        if self.reading >= NEAR {
            return Binds::Reading;
        }
        if self.workers >= BUSY { Binds::Processors } else { Binds::Nothing }
    }
}

impl fmt::Display for Binds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Binds::Consumer => "the consumer: the feed has a batch ready whenever it is asked for one",
            Binds::Disk => "the disk: most of what is read is not in memory",
            Binds::Reader => "the reader: one thread finds the records, and the workers wait for it",
            Binds::Decode => "decoding: the workers are near the rate of the decoder alone",
            Binds::Reading => "reading: the files are in memory, and at least half of what it gives is used",
            Binds::Memory => "memory: at least half of its bandwidth is used for writing batches",
            Binds::Copy => "the copy to the devices",
            Binds::Processors => "the processors: the workers are always at work, far from any other limit",
            Binds::Nothing => "nothing for long: no limit is near, and threads wait for one another",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_binds_is_what_the_others_wait_for() {
        let none = Evidence::default();
        let cases = [
            (Evidence { consumers: 0.95, reader: 0.9, ..none }, Binds::Consumer),
            (Evidence { storage: 0.9, reader: 0.9, decode: 0.6, ..none }, Binds::Disk),
            (Evidence { devices: 0.6, workers: 0.4, ..none }, Binds::Copy),
            (Evidence { reader: 0.97, workers: 0.5, memory: 0.6, ..none }, Binds::Reader),
            (Evidence { reader: 0.9, workers: 0.99, decode: 0.8, ..none }, Binds::Decode),
            (Evidence { workers: 0.9, memory: 0.7, ..none }, Binds::Memory),
            (Evidence { workers: 0.9, memory: 0.6, reading: 0.8, ..none }, Binds::Reading),
            (Evidence { workers: 0.9, memory: 0.2, ..none }, Binds::Processors),
            (Evidence { workers: 0.2, reader: 0.1, memory: 0.1, ..none }, Binds::Nothing),
        ];
        for (evidence, binds) in cases {
            assert_eq!(evidence.binds(true), binds, "{evidence:?}");
        }
        let fast = Evidence { consumers: 1.0, workers: 0.9, ..none };
        assert_eq!(fast.binds(false), Binds::Processors, "nobody trains");
    }
}
