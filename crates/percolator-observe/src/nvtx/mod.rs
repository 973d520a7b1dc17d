//! Ranges for NVIDIA's profilers (Nsight Systems), through NVTX: what threads do for which batch.
//!
//! ```no_run
//! use percolator_observe::nvtx;
//! use tracing_subscriber::layer::SubscriberExt as _;
//! use tracing_subscriber::util::SubscriberInitExt as _;
//!
//! tracing_subscriber::registry().with(nvtx::layer()).init();
//! ```
//!
//! It needs the feature `cuda`, and NVIDIA's library `nvToolsExt`, which is looked for when the layer is
//! made. Without one of them the layer does nothing, silently.

#[cfg(not(feature = "cuda-driver"))]
mod disabled;
#[cfg(feature = "cuda-driver")]
mod enabled;

#[cfg(not(feature = "cuda-driver"))]
use self::disabled as backend;
#[cfg(feature = "cuda-driver")]
use self::enabled as backend;

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Whether ranges can be marked: the feature is on, and the library is found.
#[must_use]
pub fn is_available() -> bool {
    backend::is_available()
}

/// Returns a layer that marks each run and batch that a thread works on, and each of its waits, as a range of
/// that thread; `None`, which is a layer that does nothing, if it is not [available](is_available).
pub fn layer<S>() -> Option<impl Layer<S> + Send + Sync + use<S>>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    is_available().then(backend::layer)
}
