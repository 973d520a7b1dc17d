//! Chrome's trace events: one object a line.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use super::flows::{Flows, Step};
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
    /// Slices, and batches that came back from their consumer.
    slices: u64,
    returned: u64,
    tracks: u64,
    /// The device of each lane of a feed.
    devices: HashMap<(u64, u64), String>,
    /// What was done for each batch.
    flows: Flows,
    /// The places of batches, by feed.
    rows: HashMap<(u64, Owner), Rows>,
    /// Where the batches in use are.
    alive: BTreeMap<BatchName, Place>,
}

/// The track of a batch, what becomes of it there, and since when.
#[derive(Clone, Copy, Debug)]
struct Place {
    stage: Stage,
    track: u64,
    since: Duration,
}

/// Whose place it is: that of a lane, whose batch is being filled, or of a device, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Lane(u64),
    Device(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Filled,
    Ready,
    Held,
}

impl Stage {
    /// The group of its tracks, and what its slices are called.
    fn group_and_name(self) -> (u8, &'static str) {
        match self {
            Stage::Filled => (LANES, "fill"),
            Stage::Ready => (DEVICES, "ready"),
            Stage::Held => (DEVICES, "held"),
        }
    }
}

impl<W: Write> Events<W> {
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        let mut events = Events {
            out,
            is_first: true,
            slices: 0,
            returned: 0,
            tracks: BATCH_TRACKS,
            devices: HashMap::new(),
            flows: Flows::default(),
            rows: HashMap::new(),
            alive: BTreeMap::new(),
        };
        for (group, name) in [(THREADS, "threads"), (LANES, "lanes"), (DEVICES, "devices")] {
            events.name("process_name", group, 0, name)?;
        }
        Ok(events)
    }

    /// Ends the file at this moment; returns the numbers of slices, and of batches whose whole way is in it.
    pub(super) fn end(mut self, at: Duration) -> io::Result<(u64, u64)> {
        while let Some((batch, place)) = self.alive.pop_first() {
            self.cut_off(batch, place, at)?;
        }
        for (batch, steps) in self.flows.take_all() {
            self.flow(batch, &steps)?;
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok((self.slices, self.returned))
    }

    pub(super) fn record(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Thread { thread, name } => self.name("thread_name", THREADS, thread, &name),
            Record::Device { feed, lane, device } => {
                self.devices.insert((feed, lane), device);
                Ok(())
            }
            Record::Slice { thread, name, from, to, of, is_unfinished } => {
                let label = match of.on {
                    Some(on) => format!("wait for {}", reason(on)),
                    None => name.to_owned(),
                };
                self.slice((THREADS, thread), &label, (from, to), &of, is_unfinished)?;
                let Some(batch) = of.batch_name() else { return Ok(()) };
                self.step((THREADS, thread), batch, (from, to));
                if name == "deal" {
                    for (batch, steps) in self.flows.take_before(batch) {
                        self.flow(batch, &steps)?;
                    }
                }
                Ok(())
            }
            Record::Moment { name: "left", at, of } => self.left(at, &of),
            Record::Moment { name, at, of } => match of.batch_name() {
                Some(batch) => self.moment(name, at, batch, &of),
                None => Ok(()),
            },
            Record::End { .. } => Ok(()),
        }
    }

    /// Joins a slice to the flow of its batch.
    fn step(&mut self, track: (u8, u64), batch: BatchName, (from, to): (Duration, Duration)) {
        let at = from + to.saturating_sub(from).min(INSIDE);
        self.flows.add(batch, Step { at, track });
    }

    fn moment(&mut self, name: &str, at: Duration, batch: BatchName, of: &Fields) -> io::Result<()> {
        if name == "begun" {
            return self.put(batch, Stage::Filled, at);
        }
        let Some(place) = self.alive.remove(&batch) else {
            // A batch that was begun before the trace.
            if name == "returned" {
                self.flows.end(batch);
            }
            return Ok(());
        };
        self.place(batch, place, at, of, false)?;
        match name {
            "ready" => self.put(batch, Stage::Ready, at)?,
            "taken" => {
                self.alive.insert(batch, Place { stage: Stage::Held, since: at, ..place });
            }
            _ => {
                self.flows.end(batch);
                self.returned += 1;
            }
        }
        Ok(())
    }

    /// Writes that a batch was at a place, which it leaves unless it goes from `ready` to `held`.
    fn place(
        &mut self,
        batch: BatchName,
        Place { stage, track, since }: Place,
        at: Duration,
        of: &Fields,
        is_unfinished: bool,
    ) -> io::Result<()> {
        let (group, name) = stage.group_and_name();
        self.slice((group, track), name, (since, at), of, is_unfinished)?;
        self.step((group, track), batch, (since, at));
        if stage != Stage::Ready || is_unfinished {
            let owner = self.owner(batch, stage);
            self.rows.entry((batch.feed, owner)).or_default().leave(track, at);
        }
        Ok(())
    }

    /// Ends the way of a batch where it is.
    fn cut_off(&mut self, batch: BatchName, place: Place, at: Duration) -> io::Result<()> {
        let BatchName { feed, lane, batch: number } = batch;
        let of = Fields { feed: Some(feed), lane: Some(lane), batch: Some(number), ..Fields::default() };
        self.place(batch, place, at.max(place.since), &of, true)?;
        self.flows.end(batch);
        Ok(())
    }

    /// Ends the ways of the batches that a lane's consumer has not taken.
    fn left(&mut self, at: Duration, of: &Fields) -> io::Result<()> {
        let (Some(feed), Some(lane)) = (of.feed, of.lane) else { return Ok(()) };
        let all = BatchName { feed, lane, batch: 0 }..=BatchName { feed, lane, batch: u64::MAX };
        let untaken = self.alive.range(all).filter(|(_, place)| place.stage != Stage::Held);
        let untaken: Vec<_> = untaken.map(|(batch, place)| (*batch, *place)).collect();
        for (batch, place) in untaken {
            self.alive.remove(&batch);
            self.cut_off(batch, place, at)?;
        }
        Ok(())
    }

    fn device_of(&self, batch: BatchName) -> String {
        self.devices.get(&(batch.feed, batch.lane)).cloned().unwrap_or_else(|| "device".to_owned())
    }

    fn owner(&self, batch: BatchName, stage: Stage) -> Owner {
        match stage {
            Stage::Filled => Owner::Lane(batch.lane),
            Stage::Ready | Stage::Held => Owner::Device(self.device_of(batch)),
        }
    }

    /// Puts a batch on a track of its lane or its device that is free, or on a new one.
    fn put(&mut self, batch: BatchName, stage: Stage, since: Duration) -> io::Result<()> {
        let (next, mut made) = (self.tracks, None);
        let owner = self.owner(batch, stage);
        let rows = self.rows.entry((batch.feed, owner)).or_default();
        let track = rows.take(since, |number| {
            made = Some(number);
            next
        });
        self.alive.insert(batch, Place { stage, track, since });
        let Some(number) = made else { return Ok(()) };
        self.tracks += 1;
        let (BatchName { feed, lane, .. }, device) = (batch, self.device_of(batch));
        let name = match stage {
            Stage::Filled => format!("feed {feed}, lane {lane}, {device}, filled {number}"),
            Stage::Ready | Stage::Held => format!("feed {feed}, {device}, batch {number}"),
        };
        self.name("thread_name", stage.group_and_name().0, track, &name)
    }

    fn slice(
        &mut self,
        (group, track): (u8, u64),
        name: &str,
        (from, to): (Duration, Duration),
        of: &Fields,
        is_unfinished: bool,
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
        if is_unfinished {
            write!(self.out, "{comma}\"unfinished\":true")?;
        }
        self.out.write_all(b"}}")
    }

    /// A batch's flow: it starts (`s`), goes on (`t`), and ends (`f`), each in a slice. One step is no flow.
    fn flow(&mut self, batch: BatchName, steps: &[Step]) -> io::Result<()> {
        let last = steps.len().saturating_sub(1);
        for (position, Step { at, track: (group, track) }) in steps.iter().enumerate().filter(|_| last > 0) {
            let phase = match position {
                0 => 's',
                _ if position == last => 'f',
                _ => 't',
            };
            self.separate()?;
            write!(
                self.out,
                "{{\"ph\":\"{phase}\",\"bp\":\"e\",\"id\":\"{:#x}\",\"pid\":{group},\"tid\":{track},\
                 \"ts\":{},\"cat\":\"batch\",\"name\":\"batch\"}}",
                flow_id(batch),
                Micros(*at)
            )?;
        }
        Ok(())
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
        "lanes" => "other lanes",
        other => other,
    }
}
