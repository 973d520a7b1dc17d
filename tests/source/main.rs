//! Sources in other ways than one database from start to end: by position, joined, listed in a file, and with
//! readahead.

#[path = "../common/mod.rs"]
mod common;
mod image_data;
mod joined;
mod record_index;
#[cfg(target_os = "linux")]
mod residency;
mod sidecar;
