//! Checkpoints: the last one whose record was put is what is restored, whatever fails, and whoever dies.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod announced;
mod archive;
mod bad_stores;
#[cfg(feature = "tensorflow")]
mod bundle;
mod faults;
mod killed;
#[cfg(target_os = "linux")]
mod limits;
mod memory_store;
mod numbered_state;
mod other_metadata;
mod outages;
mod periodic;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod restored;
mod scripts;
mod states;
mod successors;
mod timestamps;
