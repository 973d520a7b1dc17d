//! Metrics, as they come from another program.

use percolator_observe::{parse, render};

use crate::accepted::accepted;
use crate::memory::{Budget, within};

/// Metrics in Prometheus's format. What is read is written, and read again.
pub(crate) fn metrics(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A line of a few bytes names a feed with all its numbers.
    let Ok(feeds) = within(bytes, Budget::mebibytes(8, 256), || parse(text)) else { return };
    if !feeds.is_empty() {
        accepted();
    }
    let written = render(&feeds);
    let again = parse(&written).expect("what was written is read");
    assert_eq!(render(&again), written);
}
