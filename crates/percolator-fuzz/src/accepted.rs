//! How many inputs a parser has accepted: a corpus of which it refuses all shows little.

use std::cell::Cell;

thread_local! {
    static ACCEPTED: Cell<usize> = const { Cell::new(0) };
}

/// Counts an input that was read, and not refused.
pub(crate) fn accepted() {
    ACCEPTED.set(ACCEPTED.get() + 1);
}

/// The inputs that were accepted on this thread.
#[cfg(test)]
pub(crate) fn count() -> usize {
    ACCEPTED.get()
}
