//! What goes wrong, and where: plain values.

use std::fmt;
use std::time::Duration;

/// Something that goes wrong: an [`Effect`] at a [`Place`].
///
/// ```
/// use percolator_chaos::Fault;
///
/// let fault = Fault::record(17).fails("the disk does not answer").after(1);
/// assert_eq!(fault.to_string(), "record 17 fails (the disk does not answer), but not the first time");
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it strikes.
    pub place: Place,
    /// Which one of them, counted from 0; `None` for all.
    pub number: Option<u64>,
    /// What happens there.
    pub effect: Effect,
    /// How often the place is passed unharmed before.
    pub after: u64,
    /// How often it strikes; `None` for always.
    pub times: Option<u64>,
}

/// What a fault strikes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A record that a cursor of the source returns, by its position. Skipping it does not strike it.
    Record,
    /// The opening of a cursor of the source.
    Cursor,
    /// The host memory of one of a device's batches.
    Memory,
    /// The creation of one of a device's transfers.
    Transfer,
    /// The submission of a batch to a device.
    Submit,
    /// The event that a batch has arrived at its device.
    Arrival,
    /// The call that tells a device that a batch was dropped. Batches are numbered as they were submitted.
    Release,
    /// The event that a batch is no longer used by its device.
    LastUse,
    /// A batch that a consumer is about to take.
    Batch,
    /// A byte that is written.
    Byte,
}

/// What happens where a fault strikes.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with an error that has this message.
    Fail(String),
    /// It panics.
    Panic,
    /// It does not go on until it is [released](crate::Chaos::release).
    Stick,
    /// It takes this much longer.
    Delay(Duration),
    /// A record's value has no more than this many bytes.
    Cut(usize),
    /// A record's value has other bytes, but as many as before.
    Damage,
    /// A consumer takes no more batches, and drops its lane.
    Leave,
}

impl Fault {
    fn new(place: Place, number: impl Into<Option<u64>>, effect: Effect) -> Self {
        Fault { place, number: number.into(), effect, after: 0, times: None }
    }

    /// Strikes the record at a position, counted from 0, in every pass over the source.
    pub fn record(position: u64) -> OnRecord {
        OnRecord(Some(position))
    }

    /// Strikes every record.
    pub fn every_record() -> OnRecord {
        OnRecord(None)
    }

    /// Strikes the opening of a cursor of the source. Building a feed opens some before the reader opens its
    /// own.
    pub fn cursor(number: u64) -> OnCall {
        OnCall(Place::Cursor, Some(number))
    }

    /// Strikes the allocation of a batch's host memory: a device refuses it if it [fails](OnCall::fails).
    pub fn memory(number: u64) -> OnCall {
        OnCall(Place::Memory, Some(number))
    }

    /// Strikes the creation of a transfer, which takes up a device's own memory.
    pub fn transfer(number: u64) -> OnCall {
        OnCall(Place::Transfer, Some(number))
    }

    /// Strikes the submission of a batch to a device.
    pub fn submit(batch: u64) -> OnCall {
        OnCall(Place::Submit, Some(batch))
    }

    /// Strikes every submission of a batch to a device.
    pub fn every_submit() -> OnCall {
        OnCall(Place::Submit, None)
    }

    /// Strikes the arrival of a batch at its device.
    pub fn arrival(batch: u64) -> OnEvent {
        OnEvent(Place::Arrival, Some(batch))
    }

    /// Strikes the call that tells a device that a batch was dropped.
    pub fn release(batch: u64) -> OnCall {
        OnCall(Place::Release, Some(batch))
    }

    /// Strikes the end of a batch's use by its device.
    pub fn last_use(batch: u64) -> OnEvent {
        OnEvent(Place::LastUse, Some(batch))
    }

    /// Strikes the end of every batch's use by its device.
    pub fn every_last_use() -> OnEvent {
        OnEvent(Place::LastUse, None)
    }

    /// Strikes a consumer that is about to take a batch, counted from 0.
    pub fn batch(number: u64) -> OnBatch {
        OnBatch(Some(number))
    }

    /// Strikes a consumer at every batch.
    pub fn every_batch() -> OnBatch {
        OnBatch(None)
    }

    /// Writes this many bytes, and then fails as a full disk does.
    #[must_use]
    pub fn disk_fills_after(bytes: u64) -> Self {
        Fault::new(Place::Byte, bytes, Effect::Fail("no space left on device".to_owned()))
    }

    /// Spares the place this often before it strikes.
    #[must_use]
    pub fn after(mut self, passes: u64) -> Self {
        self.after = passes;
        self
    }

    /// Strikes this often and then no more (default: always).
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether it strikes this place. A disk stays full.
    pub(crate) fn is_at(&self, place: Place, number: u64) -> bool {
        let is_here = |own| own == number || place == Place::Byte && own < number;
        self.place == place && self.number.is_none_or(is_here)
    }
}

/// A fault at a record: see [`Fault::record`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is a fault once it says what happens"]
pub struct OnRecord(Option<u64>);

impl OnRecord {
    fn with(self, effect: Effect) -> Fault {
        Fault::new(Place::Record, self.0, effect)
    }

    /// The source cannot read it: [`SourceError::Broken`](percolator::source::SourceError::Broken).
    #[must_use]
    pub fn fails(self, message: impl Into<String>) -> Fault {
        self.with(Effect::Fail(message.into()))
    }

    /// The source panics.
    #[must_use]
    pub fn panics(self) -> Fault {
        self.with(Effect::Panic)
    }

    /// The source does not return it before it is [released](crate::Chaos::release).
    #[must_use]
    pub fn sticks(self) -> Fault {
        self.with(Effect::Stick)
    }

    /// The source takes this much longer to return it.
    #[must_use]
    pub fn takes(self, time: Duration) -> Fault {
        self.with(Effect::Delay(time))
    }

    /// Its value ends after this many bytes.
    #[must_use]
    pub fn is_cut_to(self, bytes: usize) -> Fault {
        self.with(Effect::Cut(bytes))
    }

    /// Its value has other bytes, which depend on the [seed](Faults::seed) and its position. No Datum and no
    /// `Example` can be read from them.
    #[must_use]
    pub fn is_damaged(self) -> Fault {
        self.with(Effect::Damage)
    }
}

/// A fault at a call: see [`Fault::cursor`], [`Fault::memory`], [`Fault::submit`] and the like.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is a fault once it says what happens"]
pub struct OnCall(Place, Option<u64>);

impl OnCall {
    fn with(self, effect: Effect) -> Fault {
        Fault::new(self.0, self.1, effect)
    }

    /// It returns an error: a [`SourceError`](percolator::source::SourceError), or a
    /// [`DeviceError`](percolator::DeviceError).
    #[must_use]
    pub fn fails(self, message: impl Into<String>) -> Fault {
        self.with(Effect::Fail(message.into()))
    }

    /// It panics.
    #[must_use]
    pub fn panics(self) -> Fault {
        self.with(Effect::Panic)
    }

    /// It does not return before it is [released](crate::Chaos::release).
    #[must_use]
    pub fn sticks(self) -> Fault {
        self.with(Effect::Stick)
    }

    /// It takes this much longer.
    #[must_use]
    pub fn takes(self, time: Duration) -> Fault {
        self.with(Effect::Delay(time))
    }
}

/// A fault at an event: see [`Fault::arrival`] and [`Fault::last_use`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is a fault once it says what happens"]
pub struct OnEvent(Place, Option<u64>);

impl OnEvent {
    fn with(self, effect: Effect) -> Fault {
        Fault::new(self.0, self.1, effect)
    }

    /// The device can no longer tell whether it has happened.
    #[must_use]
    pub fn fails(self, message: impl Into<String>) -> Fault {
        self.with(Effect::Fail(message.into()))
    }

    /// It does not happen before it is [released](crate::Chaos::release).
    #[must_use]
    pub fn sticks(self) -> Fault {
        self.with(Effect::Stick)
    }

    /// It does not happen before this long after the batch was submitted.
    #[must_use]
    pub fn takes(self, time: Duration) -> Fault {
        self.with(Effect::Delay(time))
    }
}

/// A fault of a consumer: see [`Fault::batch`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is a fault once it says what happens"]
pub struct OnBatch(Option<u64>);

impl OnBatch {
    fn with(self, effect: Effect) -> Fault {
        Fault::new(Place::Batch, self.0, effect)
    }

    /// It takes no more batches, and drops its lane.
    #[must_use]
    pub fn leaves(self) -> Fault {
        self.with(Effect::Leave)
    }

    /// It panics.
    #[must_use]
    pub fn panics(self) -> Fault {
        self.with(Effect::Panic)
    }

    /// It does not take it before it is [released](crate::Chaos::release).
    #[must_use]
    pub fn sticks(self) -> Fault {
        self.with(Effect::Stick)
    }

    /// It waits this long before it takes it.
    #[must_use]
    pub fn takes(self, time: Duration) -> Fault {
        self.with(Effect::Delay(time))
    }
}

/// A list of faults, and the seed that they were drawn from.
///
/// Its text says everything that goes wrong, so a test that prints it can be repeated.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// What they were [drawn](Self::drawn) from, if they were. The bytes of damaged records depend on it.
    pub seed: Option<u64>,
    /// What goes wrong.
    pub list: Vec<Fault>,
}

impl Faults {
    /// Returns a list without faults.
    #[must_use]
    pub fn none() -> Self {
        Faults::default()
    }

    /// Adds a fault.
    #[must_use]
    pub fn and(mut self, fault: Fault) -> Self {
        self.list.push(fault);
        self
    }

    /// Iterates over them.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Faults { seed: None, list: vec![fault] }
    }
}

impl From<Vec<Fault>> for Faults {
    fn from(list: Vec<Fault>) -> Self {
        Faults { seed: None, list }
    }
}

impl<const N: usize> From<[Fault; N]> for Faults {
    fn from(list: [Fault; N]) -> Self {
        Faults { seed: None, list: list.into() }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(seed) = self.seed {
            write!(f, "seed {seed}: ")?;
        }
        for (position, fault) in self.list.iter().enumerate() {
            write!(f, "{}{fault}", if position == 0 { "" } else { "; " })?;
        }
        if self.list.is_empty() { f.write_str("no faults") } else { Ok(()) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.place, self.number) {
            (Place::Byte, number) => return write!(f, "the disk is full at byte {}", number.unwrap_or(0)),
            (place, Some(number)) => write!(f, "{place} {number} ")?,
            (place, None) => write!(f, "every {place} ")?,
        }
        write!(f, "{}", self.effect)?;
        match self.after {
            0 => {}
            1 => f.write_str(", but not the first time")?,
            after => write!(f, ", but not the first {after} times")?,
        }
        match self.times {
            None => Ok(()),
            Some(1) => f.write_str(", once"),
            Some(times) => write!(f, ", {times} times"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Record => "record",
            Place::Cursor => "cursor",
            Place::Memory => "memory",
            Place::Transfer => "transfer",
            Place::Submit => "submit",
            Place::Arrival => "arrival",
            Place::Release => "release",
            Place::LastUse => "last use",
            Place::Batch => "batch",
            Place::Byte => "byte",
        })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Fail(message) => write!(f, "fails ({message})"),
            Effect::Panic => f.write_str("panics"),
            Effect::Stick => f.write_str("sticks until it is released"),
            Effect::Delay(time) => write!(f, "takes {time:?} longer"),
            Effect::Cut(bytes) => write!(f, "is cut to {bytes} bytes"),
            Effect::Damage => f.write_str("is damaged"),
            Effect::Leave => f.write_str("is left by its consumer"),
        }
    }
}
