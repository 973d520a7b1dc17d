//! Who did what when, as a file that [Perfetto](https://ui.perfetto.dev) and `chrome://tracing` load.
//!
//! The file has Chrome's JSON trace events. Threads are tracks: the reader, the prefetchers, the workers, the
//! consumers. So are the places of a lane's ring, while a batch is being filled, and those at its device,
//! while a batch waits for its consumer or is held. A flow connects the work for one batch, from the run that
//! was dealt first to its consumer.
//!
//! A trace is complete whenever it is finished: what threads are doing then, and batches on their way, are
//! slices up to that moment. Slices of batches that did not reach their consumer, or did not return from it,
//! are marked `unfinished`.
//!
//! Why JSON, and not Perfetto's own protobuf: every viewer reads it, and so does any program with a few lines
//! of code. It has what is needed: slices, tracks, flows.
//!
//! ```no_run
//! use percolator::Feed;
//! use percolator_observe::trace::{Existing, TraceFile};
//! use tracing_subscriber::layer::SubscriberExt as _;
//! use tracing_subscriber::util::SubscriberInitExt as _;
//!
//! let trace = TraceFile::create("run.json".as_ref(), Existing::Refuse)?;
//! tracing_subscriber::registry().with(trace.layer()).init();
//! let mut feed = Feed::builder().lmdb("ilsvrc12_train_lmdb").batch_size(64).build()?;
//! for step in feed.steps().take(1000) {
//!     let batches = step?;
//! }
//! trace.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod flows;
mod json;
mod layer;
mod rows;

use std::time::Duration;

pub use self::file::{Summary, TraceError, TraceFile};
#[doc(inline)]
pub use percolator_files::whole_file::Existing;

/// What the layer passes to the thread that writes.
#[derive(Debug)]
enum Record {
    /// A thread that is seen for the first time.
    Thread { thread: u64, name: String },
    /// The device of a lane.
    Device { feed: u64, lane: u64, device: String },
    /// What a thread has done.
    Slice {
        thread: u64,
        name: &'static str,
        from: Duration,
        to: Duration,
        of: Fields,
        /// Whether the thread was still at it when the trace ended.
        is_unfinished: bool,
    },
    /// A moment in the life of a batch.
    Moment { name: &'static str, at: Duration, of: Fields },
    /// Nothing more comes; all that goes on is cut off at this moment.
    End { at: Duration },
}

/// The fields of a span or event.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    feed: Option<u64>,
    lane: Option<u64>,
    batch: Option<u64>,
    records: Option<u64>,
    bytes: Option<u64>,
    /// What a wait is for.
    on: Option<&'static str>,
}

/// A batch of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct BatchName {
    feed: u64,
    lane: u64,
    batch: u64,
}

impl Fields {
    fn batch_name(&self) -> Option<BatchName> {
        Some(BatchName { feed: self.feed?, lane: self.lane?, batch: self.batch? })
    }
}
