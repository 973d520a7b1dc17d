//! Sources other than a single database read from start to end: indexed, joined, listed in a file, and read ahead.

#[path = "../common/mod.rs"]
mod common;
mod image_data;
mod joined;
mod record_index;
#[cfg(target_os = "linux")]
mod residency;
mod sidecar;
