//! Numbers, their endpoint and their picture, of feeds that run.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod docs;
mod endpoint;
mod numbers;
mod picture;
#[path = "../../../../tests/common/pty.rs"]
mod pty;
mod terminal;

use percolator::source::FnSource;
use percolator::{Feed, FeedBuilder, RawBytes};

/// A feed of this many records of 64 bytes.
fn feed(records: u64) -> FeedBuilder {
    let source = FnSource::new("numbers", records, |position, value| {
        value.extend(std::iter::repeat_n(position.to_le_bytes(), 8).flatten());
        Ok(())
    });
    Feed::builder().source(source).decoder(RawBytes::fixed()).batch_size(4)
}
