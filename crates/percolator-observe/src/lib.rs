//! Watches a running feed: Prometheus metrics, traces, and a live view in the terminal.
//!
//! - [`metrics`]: the numbers of feeds at an address that Prometheus reads, and through the crate `metrics`.
//! - [`trace`]: who did what when, as a file that [Perfetto](https://ui.perfetto.dev) loads.
//! - [`nvtx`]: the same as ranges for NVIDIA's profilers.
//! - [`view`]: the pipeline of a feed in this program or another one, drawn in the terminal.
//! - [`Numbers`]: what all of them say about a feed.
//!
//! ```no_run
//! use percolator::Feed;
//! use percolator_observe::metrics::{Endpoint, Feeds};
//!
//! let mut feed = Feed::builder().lmdb("ilsvrc12_train_lmdb").batch_size(64).build()?;
//! let feeds = Feeds::new();
//! feeds.put("train", feed.handle());
//! let _endpoint = Endpoint::serve("127.0.0.1:9464".parse()?, &feeds)?;
//! for step in feed.steps() {
//!     // Train. Meanwhile: `curl http://127.0.0.1:9464/metrics`.
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything that watches a feed reads counters that the feed keeps anyway. A trace listens to spans; there
//! is one per run or batch, never one per record, and without a listener they cost a few instructions per
//! run.

mod numbers;

pub mod metrics;

pub mod trace;

pub mod nvtx;

pub mod view;

#[doc(inline)]
pub use numbers::{FAMILIES, Family, Kind, Numbers, ParseError, Sample, parse, render};

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/watching.md")]
pub struct Watching;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
