//! Which operation happens before which: vector clocks, with one entry a stream.
//!
//! An operation comes after everything in its stream's clock at the time it was submitted. That clock grows
//! by the stream's own operations, by the events it waits for, and by what the host had seen end by then. The
//! host counts as one thread: what one of its threads has seen, all are assumed to know, because the order
//! among them is not visible here. So a race that only a missing order between host threads permits is not
//! found; every other one is, whether or not it happened this time.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::abi::Handle;
use crate::world::World;

/// How far each stream has come: all its operations up to that number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(BTreeMap<Handle, u64>);

impl Clock {
    pub(crate) fn merge(&mut self, other: &Clock) {
        for (&stream, &seq) in &other.0 {
            self.advance(stream, seq);
        }
    }

    pub(crate) fn advance(&mut self, stream: Handle, seq: u64) {
        let at = self.0.entry(stream).or_default();
        *at = seq.max(*at);
    }

    pub(crate) fn covers(&self, stream: Handle, seq: u64) -> bool {
        self.0.get(&stream).is_some_and(|&at| at >= seq)
    }
}

/// What an operation does to a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// The buffer's first address.
    pub(crate) buffer: u64,
    /// In bytes from its start.
    pub(crate) range: Range<usize>,
    pub(crate) writes: bool,
}

/// A use that was submitted; it may have ended.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) stream: Handle,
    pub(crate) seq: u64,
    pub(crate) device: usize,
    pub(crate) symbol: &'static str,
    range: Range<usize>,
    writes: bool,
}

impl Access {
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

impl World {
    /// Records what an operation does to a buffer, and reports every earlier use that it is not ordered with.
    pub(crate) fn access(&mut self, stream: Handle, seq: u64, symbol: &'static str, used: &Use) {
        let (device, clock) = {
            let stream = &self.streams[&stream];
            (stream.device, stream.clock.clone())
        };
        // A broken device does not execute what it is given.
        if self.broken(device).is_some() {
            return;
        }
        let Some(buffer) = self.buffers.get_mut(&used.buffer) else { return };
        let (host, devices) = (&self.host, &self.devices);
        buffer.accesses.retain(|access| !host.covers(access.stream, access.seq));
        let races: Vec<Access> = buffer
            .accesses
            .iter()
            .filter(|access| (access.writes || used.writes) && access.overlaps(&used.range))
            .filter(|access| !clock.covers(access.stream, access.seq))
            .filter(|access| devices[access.device].broken().is_none())
            .cloned()
            .collect();
        // Whatever is ordered after this use is also ordered after what the same stream did to the same bytes
        // before.
        buffer.accesses.retain(|access| {
            !(access.stream == stream
                && access.writes <= used.writes
                && used.range.start <= access.range.start
                && access.range.end <= used.range.end)
        });
        buffer.accesses.push(Access {
            stream,
            seq,
            device,
            symbol,
            range: used.range.clone(),
            writes: used.writes,
        });
        for race in races {
            let words = format!(
                "race: {symbol} on {} {} bytes {:?} of {}, unordered with {} on {}, which {} them",
                self.stream_name(stream),
                if used.writes { "writes" } else { "reads" },
                used.range,
                self.buffer_name(used.buffer),
                race.symbol,
                self.stream_name(race.stream),
                if race.writes { "writes" } else { "reads" },
            );
            self.ledger.violation(words);
        }
    }

    /// Reports the uses of a buffer that the host frees without having waited for them. Whatever a broken
    /// device was doing is over.
    pub(crate) fn freed_by_host(&mut self, start: u64, symbol: &str) {
        let Some(buffer) = self.buffers.get(&start) else { return };
        let unordered: Vec<Access> = buffer
            .accesses
            .iter()
            .filter(|access| !self.host.covers(access.stream, access.seq))
            .filter(|access| self.broken(access.device).is_none() && access.symbol != "cuMemAllocAsync")
            .cloned()
            .collect();
        for access in unordered {
            let state = if self.has_ended(access.stream, access.seq) {
                "which had ended, but nobody had waited for it"
            } else {
                "which is queued or running"
            };
            let words = format!(
                "freed in flight: {symbol} of {}, used by {} on {}, {state}",
                self.buffer_name(start),
                access.symbol,
                self.stream_name(access.stream)
            );
            self.ledger.violation(words);
        }
    }

    /// Whether an unfinished operation writes these bytes of a buffer.
    pub(crate) fn is_being_written(&self, start: u64, range: &Range<usize>) -> bool {
        self.buffers.get(&start).is_some_and(|buffer| {
            buffer.accesses.iter().any(|access| {
                access.writes && access.overlaps(range) && !self.has_ended(access.stream, access.seq)
            })
        })
    }

    fn stream_name(&self, stream: Handle) -> String {
        match self.streams.get(&stream) {
            Some(stream) => stream.name(),
            None => format!("destroyed stream {stream:#x}"),
        }
    }
}
