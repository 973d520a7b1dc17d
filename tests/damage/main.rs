//! Files that stand beside the records, on the damage harness: lists of images, mean files, record indexes,
//! snapshots, receipts and digests. (The record formats are damaged where they are tested: `tests/tfrecord`,
//! `tests/lmdb`, `tests/leveldb`.)
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/damage/mod.rs"]
mod harness;
mod lists;
mod means;
mod sidecars;
mod texts;
