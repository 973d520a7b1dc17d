//! Steps of a plan that are handed out block by block to the workers of a scenario.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::error::Error;

use percolator::order::{Block, Blocks, Plan};
use percolator::record::StepId;

use crate::scenario::{Order, Scenario};

/// The blocks of a worker, without this many steps that it has done.
pub(crate) fn drawn_blocks(scenario: &Scenario, plan: &Plan, worker: usize, mut done: usize) -> Vec<Block> {
    let (Order::Plan { epochs, .. }, Some(drawn)) = (scenario.order, scenario.blocks) else {
        panic!("it has no blocks")
    };
    let of_epoch = |epoch| {
        let steps = plan.steps(epoch).unwrap();
        let block = move |step| Block { first: StepId { epoch, step }, steps: drawn.steps.min(steps - step) };
        (0..steps).step_by(usize::try_from(drawn.steps).unwrap()).map(block)
    };
    let mut blocks: Vec<Block> = (0..epochs).flat_map(of_epoch).collect();
    if drawn.is_reversed {
        blocks.reverse();
    }
    let mine = blocks.into_iter().skip(worker).step_by(scenario.job.workers);
    let left = mine.filter_map(|Block { first: StepId { epoch, step }, steps }| {
        let skipped = steps.min(done as u64);
        done -= usize::try_from(skipped).unwrap();
        let first = StepId { epoch, step: step + skipped };
        (steps > skipped).then_some(Block { first, steps: steps - skipped })
    });
    left.collect()
}

/// Hands out the blocks of a worker.
#[derive(Debug)]
pub(crate) struct Listed {
    scenario: Scenario,
    worker: usize,
    done: usize,
    fail_after: Option<usize>,
    given: usize,
}

/// What it says when no more are to be had.
pub(crate) const CLOSED: &str = "a fault that was drawn: nobody answers";

impl Listed {
    pub(crate) fn of(scenario: &Scenario, worker: usize, done: usize, fail_after: Option<usize>) -> Self {
        Listed { scenario: scenario.clone(), worker, done, fail_after, given: 0 }
    }
}

impl Blocks for Listed {
    fn next(
        &mut self,
        plan: &Plan,
        _is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        if self.fail_after == Some(self.given) {
            return Err(CLOSED.into());
        }
        let blocks = drawn_blocks(&self.scenario, plan, self.worker, self.done);
        self.given += 1;
        Ok(blocks.get(self.given - 1).copied())
    }
}
