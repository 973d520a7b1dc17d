//! Faults on request: sources, devices, consumers and disks that fail where you say, for tests of a training
//! loop.
//!
//! A [`Fault`] is a plain value that says what goes wrong, and where: record 17 cannot be read, batch 3 never
//! arrives, the consumer leaves after 5 batches, the disk is full after 4,096 bytes. A [`Chaos`] wraps the
//! real source, device, consumer or writer, and lets the faults strike. Everything else stays as it is.
//!
//! ```
//! use percolator_chaos::{Chaos, Fault};
//! use percolator::source::FnSource;
//! use percolator::{Epochs, Feed, FeedError, RawBytes};
//!
//! /// The loop that is tested: it must report a disk that fails, and not train on a part of the data.
//! fn train(feed: Feed) -> Result<usize, FeedError> {
//!     feed.into_iter().map(|batch| Ok(batch?.len())).sum()
//! }
//!
//! let records = FnSource::new("numbers", 100, |position, value| {
//!     value.extend_from_slice(&position.to_le_bytes());
//!     Ok(())
//! });
//! let chaos = Chaos::new(Fault::record(17).fails("the disk does not answer"));
//! let feed = Feed::builder().source(chaos.source(records)).decoder(RawBytes::fixed()).batch_size(8);
//! let error = train(feed.epochs(Epochs::OnePass).build()?).unwrap_err();
//! assert_eq!(error.to_string(), "numbers: record 17: the disk does not answer");
//! assert_eq!(chaos.struck(), 1);
//! # Ok::<(), FeedError>(())
//! ```
//!
//! # Things that stick
//!
//! What [sticks](OnRecord::sticks) stays stuck until [`Chaos::release`], or until the `Chaos` and all its
//! clones have been dropped, so that a failing test does not hang. [`Chaos::wait_until_stuck`] waits until
//! something is stuck. A test of a stall needs no sleep.
//!
//! # Faults that are drawn
//!
//! [`Faults::drawn`] draws faults from a seed. Print them: the text names the seed, which draws the same
//! faults again.
//!
//! ```
//! use percolator_chaos::{Faults, Reach};
//!
//! let faults = Faults::drawn(42, Reach::records(1000).and_batches(50));
//! assert_eq!(faults, Faults::drawn(42, Reach::records(1000).and_batches(50)));
//! assert!(faults.to_string().starts_with("seed 42: "));
//! ```

mod consumer;
mod device;
mod draw;
mod fault;
mod memory;
mod source;
mod splitmix;
mod state;
mod writer;

use std::io::Write;
use std::sync::Arc;

use percolator::device::Device;
use percolator::source::Source;

pub use self::consumer::Consumer;
pub use self::draw::Reach;
pub use self::fault::{Effect, Fault, Faults, OnBatch, OnCall, OnEvent, OnRecord, Place};
pub use self::source::ChaosSource;
pub use self::state::Living;
pub use self::writer::Writer;

use self::device::ChaosBackend;
use self::state::State;

/// Wraps what a feed uses, and lets faults strike there.
///
/// Clones share their faults. Numbers of records, batches and calls are counted for each thing that is
/// wrapped, so two devices of one `Chaos` both fail at batch 3; to make only one device fail, give it its own
/// `Chaos`.
#[derive(Clone, Debug)]
pub struct Chaos {
    state: Arc<State>,
    /// Dropped with the last clone, but not kept by what is wrapped.
    _keeper: Arc<Keeper>,
}

/// Releases what is stuck when the last `Chaos` is dropped.
#[derive(Debug)]
struct Keeper(Arc<State>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Chaos {
    /// Makes these faults strike what is wrapped: one [`Fault`], an array or a `Vec` of them, or [`Faults`].
    #[must_use]
    pub fn new(faults: impl Into<Faults>) -> Self {
        let state = Arc::new(State::new(faults.into()));
        Chaos { _keeper: Arc::new(Keeper(state.clone())), state }
    }

    /// Returns its faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.state.faults
    }

    /// Wraps a source, whose [records](Fault::record) and [cursors](Fault::cursor) may then fail.
    ///
    /// Building a feed reads the first record, and a few others of a source that is
    /// [seekable](Source::is_seekable), or the last one of a database. Faults strike there as well, unless
    /// the chaos is [disarmed](Self::disarm) meanwhile.
    #[must_use]
    pub fn source(&self, source: impl Source + 'static) -> ChaosSource {
        ChaosSource::new(Arc::new(source), &self.state)
    }

    /// Wraps a device, whose calls and events may then fail: [memory](Fault::memory),
    /// [transfer](Fault::transfer), [submit](Fault::submit), [arrival](Fault::arrival),
    /// [release](Fault::release), [last use](Fault::last_use).
    ///
    /// Batches are numbered as they are submitted to the device.
    /// [`Batch::transfer`](percolator::Batch::transfer) is then of another type;
    /// [`Batch::cuda`](percolator::Batch::cuda) stays as it was.
    #[must_use]
    pub fn device(&self, device: Device) -> Device {
        Device::from_backend(Arc::new(ChaosBackend::new(device, &self.state)))
    }

    /// Wraps an iterator over [batches](Fault::batch) or steps, such as a [`Lane`](percolator::Lane): its
    /// consumer may then be slow, stick, panic or leave.
    #[must_use]
    pub fn consumer<I: IntoIterator>(&self, batches: I) -> Consumer<I::IntoIter> {
        Consumer::new(batches.into_iter(), &self.state)
    }

    /// Wraps a writer, whose [disk may then fill](Fault::disk_fills_after).
    #[must_use]
    pub fn writer<W: Write>(&self, writer: W) -> Writer<W> {
        Writer::new(writer, &self.state)
    }

    /// Lets no fault strike until it is [armed](Self::arm), so that a feed can be built unharmed.
    pub fn disarm(&self) {
        self.state.set_armed(false);
    }

    /// Lets faults strike again.
    pub fn arm(&self) {
        self.state.set_armed(true);
    }

    /// Releases everything that is stuck, and everything that would stick later.
    pub fn release(&self) {
        self.state.release();
    }

    /// Waits until something is stuck, or was, or everything is [released](Self::release).
    pub fn wait_until_stuck(&self) {
        self.state.wait_until_stuck();
    }

    /// Returns how often a fault has struck.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.state.strikes().iter().sum()
    }

    /// Returns the faults that have struck, and how often each.
    #[must_use]
    pub fn happened(&self) -> Vec<(Fault, u64)> {
        let strikes = self.state.strikes();
        let each = self.state.faults.iter().cloned().zip(strikes);
        each.filter(|(_, strikes)| *strikes > 0).collect()
    }

    /// Returns which of its objects are alive: zeros when a feed has given everything back.
    #[must_use]
    pub fn living(&self) -> Living {
        self.state.living()
    }

    /// Waits until nothing that it wrapped is alive any more: sources, cursors, and the buffers and transfers
    /// of devices. A feed gives its device's memory back a moment after it was dropped, on a separate thread.
    pub fn wait_until_gone(&self) {
        self.state.wait_until_gone();
    }

    /// Returns how many batches were overwritten although a device still used them. It is always 0 unless
    /// there is a bug in this crate. Only batches whose last use sticks or is late are checked.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.state.overwritten()
    }
}

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/faults.md")]
pub struct Guide;

/// So does the README's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
