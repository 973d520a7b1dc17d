//! The views of records compared with prost's own decoding of the same bytes.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue has failed, and its numbers are small"
)]

mod datum;
mod example;
mod twin;
