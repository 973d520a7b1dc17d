//! Feeds as candle's tensors, on the CPU and, with the feature `cuda`, on the stand-in driver.

#[allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "shared by tests only")]
mod common;
#[cfg(feature = "cuda")]
mod cuda;
mod fields;
mod made;
#[cfg(feature = "cuda")]
mod own_device;
mod refused;
#[cfg(feature = "cuda")]
#[path = "../../../../tests/common/standin.rs"]
mod standin;
mod steps;
#[path = "../../../../tests/common/transforming.rs"]
mod transforming;
