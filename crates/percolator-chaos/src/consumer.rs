//! A consumer that may be slow, stick, panic or leave.

use std::sync::Arc;

use crate::fault::{Effect, Place};
use crate::state::State;

/// An iterator over batches that a [`Chaos`](crate::Chaos::consumer) has wrapped.
///
/// A fault strikes before the batch is taken. A consumer that leaves drops the inner iterator, and has no
/// more batches.
#[derive(Debug)]
pub struct Consumer<I> {
    /// `None` once it has left.
    batches: Option<I>,
    state: Arc<State>,
    /// The number of the next batch.
    next: u64,
}

impl<I> Consumer<I> {
    pub(crate) fn new(batches: I, state: &Arc<State>) -> Self {
        Consumer { batches: Some(batches), state: state.clone(), next: 0 }
    }

    /// Returns the iterator that was wrapped, unless the consumer has left.
    pub fn into_inner(self) -> Option<I> {
        self.batches
    }
}

impl<I: Iterator> Iterator for Consumer<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let batches = self.batches.as_mut()?;
        let number = self.next;
        self.next += 1;
        let effects = self.state.strike(Place::Batch, number);
        // A consumer has no errors of its own.
        let _ = self.state.suffer(&effects, &format_args!("the consumer of batch {number}"));
        if effects.contains(&&Effect::Leave) {
            self.batches = None;
            return None;
        }
        batches.next()
    }
}
