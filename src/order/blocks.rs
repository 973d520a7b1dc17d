//! Steps that are handed out block by block while a feed runs.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::order::Plan;
use crate::record::StepId;

/// Steps of one epoch that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The first of them.
    pub first: StepId,
    /// How many there are: at least 1.
    pub steps: u64,
}

impl Block {
    /// Returns whether a step is one of them.
    #[must_use]
    pub fn has(&self, step: StepId) -> bool {
        let number = step.step.checked_sub(self.first.step);
        step.epoch == self.first.epoch && number.is_some_and(|number| number < self.steps)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (StepId { epoch, step }, steps) = (self.first, self.steps);
        write!(f, "epoch {epoch}, steps {step} to {}", step.saturating_add(steps).saturating_sub(1))
    }
}

/// Hands out the steps of a plan, block by block, to a feed that is
/// [built with it](crate::FeedBuilder::blocks). It decides which steps come, in which order, and when they
/// end; the plan decides which records a step has.
///
/// It is called on the feed's reading thread, as soon as the last block is read: that is ahead of the
/// consumer, by as much as the feed prefetches.
pub trait Blocks: Send + fmt::Debug {
    /// Returns the next block, or `None` if there are no more. It may wait for one, and must return soon once
    /// `is_stopping` returns `true`: the block is then no longer wanted, and a feed that is dropped waits for
    /// this call.
    ///
    /// # Errors
    ///
    /// Any error ends the feed, after the batches before it.
    fn next(
        &mut self,
        plan: &Plan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>>;
}

/// Where a feed gets its blocks from. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct BlockSource(Arc<Mutex<Option<Box<dyn Blocks>>>>);

impl BlockSource {
    pub(crate) fn new(blocks: impl Blocks + 'static) -> Self {
        BlockSource(Arc::new(Mutex::new(Some(Box::new(blocks)))))
    }

    /// Takes the source of the blocks, which then ends with its reader, even if clones of this remain; `None`
    /// if another reader has it.
    pub(crate) fn take(&self) -> Option<Box<dyn Blocks>> {
        self.0.lock().take()
    }
}

impl PartialEq for BlockSource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BlockSource {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_steps_and_no_others() {
        let block = Block { first: StepId::from((2, 5)), steps: 3 };
        let has = |epoch, step| block.has(StepId { epoch, step });
        assert!(has(2, 5) && has(2, 7));
        assert!(!has(2, 4) && !has(2, 8) && !has(1, 5));
        assert_eq!(block.to_string(), "epoch 2, steps 5 to 7");
    }
}
