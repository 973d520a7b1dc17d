//! Runs the command as a user does: each test starts the program and checks its output and files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../../tests/common/mod.rs"]
mod common;
#[path = "../../../percolator-text/tests/example/mod.rs"]
mod examples;
#[cfg(feature = "cuda")]
#[path = "../../../../tests/common/standin.rs"]
mod standin;

#[path = "../../../../tests/common/pty.rs"]
mod pty;

mod bad_input;
mod bad_records;
mod bench;
mod checkpoints;
mod checkpoints_refused;
mod compare;
mod convert;
mod data_tools;
mod descriptions;
mod doctor;
mod dump;
mod dump_files;
mod dump_refused;
mod dumps;
mod example;
mod exit_codes;
mod feed;
mod full_disk;
#[cfg(feature = "cuda")]
mod gpu;
mod jobs;
mod json;
mod killed;
mod leases;
#[cfg(target_os = "linux")]
mod limits;
mod model;
mod model_refused;
mod observe;
mod plan;
mod prepare;
mod receipts;
mod snapshot;
mod suggested;
mod tfrecord;
mod what;
