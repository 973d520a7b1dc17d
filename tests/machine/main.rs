//! What a feed does on a machine that runs out of something: files, threads, memory, processor time. It ends
//! with a typed error or goes on with less; it never panics, aborts or hangs.
//!
//! The limits are the system's own: those of a process (`setrlimit`), of a control group, and of a mount
//! namespace. Each test sets them for a child. Where the system lets nobody set one, the test says that it
//! did not run.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod address_space;
#[path = "../common/mod.rs"]
mod common;
mod control_groups;
mod data;
mod limited;
mod no_proc;
mod open_files;
mod threads;
