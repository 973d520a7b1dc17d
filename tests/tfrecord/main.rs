//! TFRecord files: written, read, damaged.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod writer;
