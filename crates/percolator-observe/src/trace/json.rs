//! Chrome's trace events: one object a line.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use super::rows::Rows;
use super::{BatchName, Fields, Record};

/// The groups of tracks.
const THREADS: u8 = 1;
const LANES: u8 = 2;
const DEVICES: u8 = 3;

/// Tracks of batches are numbered from here; those of threads below. Viewers keep 32 bits.
const BATCH_TRACKS: u64 = 1 << 30;

/// A flow's event is at most this long after the start of its slice, to be inside of it.
const INSIDE: Duration = Duration::from_nanos(500);

/// Writes records as trace events.
#[derive(Debug)]
pub(super) struct Events<W> {
    out: W,
    is_first: bool,
    /// Slices, and flows of batches that reached their consumer.
    slices: u64,
    flows: u64,
    tracks: u64,
    /// The device of each lane of a feed.
    devices: HashMap<(u64, u64), String>,
    /// The batch of each lane whose flow was begun last.
    begun: HashMap<(u64, u64), u64>,
    /// The places of batches that are being filled, by lane, and of those at a device, by its name.
    filling: HashMap<(u64, u64), Rows>,
    at_device: HashMap<(u64, String), Rows>,
    /// Where the batches are that somebody has.
    alive: HashMap<BatchName, Place>,
}

/// The track of a batch, and since when it is there.
#[derive(Clone, Copy, Debug)]
struct Place {
    track: u64,
    since: Duration,
}

impl<W: Write> Events<W> {
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        let mut events = Events {
            out,
            is_first: true,
            slices: 0,
            flows: 0,
            tracks: BATCH_TRACKS,
            devices: HashMap::new(),
            begun: HashMap::new(),
            filling: HashMap::new(),
            at_device: HashMap::new(),
            alive: HashMap::new(),
        };
        for (group, name) in [(THREADS, "threads"), (LANES, "lanes"), (DEVICES, "devices")] {
            events.name("process_name", group, 0, name)?;
        }
        Ok(events)
    }

    /// Ends the file; returns the numbers of slices and of flows that have arrived.
    pub(super) fn end(mut self) -> io::Result<(u64, u64)> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok((self.slices, self.flows))
    }

    pub(super) fn record(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Thread { thread, name } => self.name("thread_name", THREADS, thread, &name),
            Record::Device { feed, lane, device } => {
                self.devices.insert((feed, lane), device);
                Ok(())
            }
            Record::Slice { thread, name, from, to, of } => {
                let label = match of.on {
                    Some(on) => format!("wait for {}", reason(on)),
                    None => name.to_owned(),
                };
                self.slice(THREADS, thread, &label, (from, to), &of)?;
                match of.batch_name() {
                    Some(batch) => self.step_of_flow(name, batch, thread, (from, to)),
                    None => Ok(()),
                }
            }
            Record::Moment { name, at, of } => match of.batch_name() {
                Some(batch) => self.moment(name, at, batch, &of),
                None => Ok(()),
            },
            Record::End => Ok(()),
        }
    }

    /// Joins a thread's work to the flow of its batch. The reader deals a lane's batches one after the other,
    /// so its first run begins a flow.
    fn step_of_flow(
        &mut self,
        name: &str,
        batch: BatchName,
        thread: u64,
        (from, to): (Duration, Duration),
    ) -> io::Result<()> {
        let lane = (batch.feed, batch.lane);
        let begins = name == "deal" && self.begun.insert(lane, batch.batch) != Some(batch.batch);
        let phase = if begins { 's' } else { 't' };
        self.flow(phase, batch, (THREADS, thread), from + (to - from).min(INSIDE))
    }

    fn moment(&mut self, name: &str, at: Duration, batch: BatchName, of: &Fields) -> io::Result<()> {
        match (name, self.alive.remove(&batch)) {
            ("begun", _) => {
                let track = self.lane_row(batch, at)?;
                self.alive.insert(batch, Place { track, since: at });
                Ok(())
            }
            ("ready", Some(Place { track, since })) => {
                self.slice(LANES, track, "fill", (since, at), of)?;
                self.flow('t', batch, (LANES, track), since + (at - since).min(INSIDE))?;
                self.filling.entry((batch.feed, batch.lane)).or_default().leave(track, at);
                let track = self.device_row(batch, at)?;
                self.alive.insert(batch, Place { track, since: at });
                Ok(())
            }
            ("taken", Some(Place { track, since })) => {
                self.slice(DEVICES, track, "ready", (since, at), of)?;
                self.flow('t', batch, (DEVICES, track), since + (at - since).min(INSIDE))?;
                self.alive.insert(batch, Place { track, since: at });
                Ok(())
            }
            ("returned", Some(Place { track, since })) => {
                self.slice(DEVICES, track, "held", (since, at), of)?;
                self.flow('f', batch, (DEVICES, track), since + (at - since).min(INSIDE))?;
                self.flows += 1;
                let device = self.device_of(batch);
                self.at_device.entry((batch.feed, device)).or_default().leave(track, at);
                Ok(())
            }
            // A batch that was begun before the trace.
            _ => Ok(()),
        }
    }

    fn device_of(&self, batch: BatchName) -> String {
        self.devices.get(&(batch.feed, batch.lane)).cloned().unwrap_or_else(|| "device".to_owned())
    }

    fn lane_row(&mut self, batch: BatchName, from: Duration) -> io::Result<u64> {
        let (next, mut made) = (self.tracks, None);
        let rows = self.filling.entry((batch.feed, batch.lane)).or_default();
        let track = rows.take(from, |number| {
            made = Some(number);
            next
        });
        if let Some(number) = made {
            self.tracks += 1;
            let BatchName { feed, lane, .. } = batch;
            let name = format!("feed {feed}, lane {lane}, {}, filled {number}", self.device_of(batch));
            self.name("thread_name", LANES, track, &name)?;
        }
        Ok(track)
    }

    fn device_row(&mut self, batch: BatchName, from: Duration) -> io::Result<u64> {
        let (next, mut made) = (self.tracks, None);
        let device = self.device_of(batch);
        let rows = self.at_device.entry((batch.feed, device.clone())).or_default();
        let track = rows.take(from, |number| {
            made = Some(number);
            next
        });
        if let Some(number) = made {
            self.tracks += 1;
            self.name(
                "thread_name",
                DEVICES,
                track,
                &format!("feed {}, {device}, batch {number}", batch.feed),
            )?;
        }
        Ok(track)
    }

    fn slice(
        &mut self,
        group: u8,
        track: u64,
        name: &str,
        (from, to): (Duration, Duration),
        of: &Fields,
    ) -> io::Result<()> {
        self.slices += 1;
        self.separate()?;
        let (from_us, long_us) = (Micros(from), Micros(to.saturating_sub(from)));
        write!(
            self.out,
            "{{\"ph\":\"X\",\"pid\":{group},\"tid\":{track},\"ts\":{from_us},\"dur\":{long_us},\"name\":"
        )?;
        self.text(name)?;
        self.out.write_all(b",\"args\":{")?;
        let Fields { feed, lane, batch, records, bytes, on: _ } = *of;
        let known =
            [("feed", feed), ("lane", lane), ("batch", batch), ("records", records), ("bytes", bytes)];
        let mut comma = "";
        for (name, value) in known {
            if let Some(value) = value {
                write!(self.out, "{comma}\"{name}\":{value}")?;
                comma = ",";
            }
        }
        self.out.write_all(b"}}")
    }

    /// An event of a batch's flow: it starts (`s`), goes on (`t`), or ends (`f`) in a slice of this track.
    fn flow(
        &mut self,
        phase: char,
        batch: BatchName,
        (group, track): (u8, u64),
        at: Duration,
    ) -> io::Result<()> {
        self.separate()?;
        write!(
            self.out,
            "{{\"ph\":\"{phase}\",\"bp\":\"e\",\"id\":\"{:#x}\",\"pid\":{group},\"tid\":{track},\
             \"ts\":{},\"cat\":\"batch\",\"name\":\"batch\"}}",
            flow_id(batch),
            Micros(at)
        )
    }

    /// Names a track, or a group of them.
    fn name(&mut self, of: &str, group: u8, track: u64, name: &str) -> io::Result<()> {
        self.separate()?;
        write!(
            self.out,
            "{{\"ph\":\"M\",\"pid\":{group},\"tid\":{track},\"name\":\"{of}\",\"args\":{{\"name\":"
        )?;
        self.text(name)?;
        self.out.write_all(b"}}")
    }

    fn separate(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_first) {
            true => Ok(()),
            false => self.out.write_all(b",\n"),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, text).map_err(io::Error::from)
    }
}

/// The number of a batch's flow. Viewers read a hexadecimal number of 64 bits, and nothing else.
fn flow_id(batch: BatchName) -> u64 {
    let BatchName { feed, lane, batch } = batch;
    (feed & 0xfff) << 52 | (lane & 0xfff) << 40 | (batch & 0xff_ffff_ffff)
}

/// A time in microseconds, to the nanosecond.
struct Micros(Duration);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.as_micros(), self.0.subsec_nanos() % 1000)
    }
}

/// What a wait is for, in words.
fn reason(on: &str) -> &str {
    match on {
        "free" => "a place",
        "resume" => "the end of a pause",
        "batch" => "a batch",
        "device" => "the device",
        "workers" => "the workers",
        other => other,
    }
}
