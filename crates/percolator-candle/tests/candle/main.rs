//! Feeds as candle's tensors, on the CPU and, with the feature `cuda`, on the stand-in driver.

#[cfg(feature = "cuda")]
mod cuda;
mod fields;
mod made;
#[path = "../../../../tests/common/process.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "shared by tests only")]
mod process;
mod refused;
mod steps;
