//! What a server keeps of its shard, and how gradients change it. All of it is in each checkpoint.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::iter::zip;

use percolator_cluster::checkpoint::{Checkpoint, Tensors, read_parts, write_parts};
use serde::{Deserialize, Serialize};

use crate::wire::Push;

/// The most trainers that are remembered. Of more, those that were heard of last stay.
const TRAINERS_MAX: usize = 1000;
/// The one tensor of each part.
const NAME: &str = "shard";

/// The weights of a shard, and what is known of the gradients that made them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    weights: Tensors,
    /// The sum of the squares of each weight's gradients: by its root the steps become shorter (Adagrad).
    squares: Tensors,
    account: Account,
}

/// Which gradients were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    updates: u64,
    /// By their numbers.
    trainers: BTreeMap<u64, Heard>,
}

/// What was last heard of a trainer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heard {
    sequence: u64,
    at_update: u64,
}

/// A gradient that cannot be taken.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadGradient {
    #[error("a gradient of {found} numbers, and this shard has {expected}")]
    Length { found: usize, expected: usize },
    #[error("the gradient of weight {at} of this shard is {value}: it must be a number, and finite")]
    NotFinite { at: usize, value: f32 },
}

impl State {
    pub(crate) fn new(weights: &[f32]) -> Self {
        let tensors = |values: &[f32]| {
            let mut tensors = Tensors::new();
            tensors.insert(NAME, &[values.len()], values).expect("the shape is that of the values");
            tensors
        };
        let (weights, squares) = (tensors(weights), tensors(&vec![0.0; weights.len()]));
        State { weights, squares, account: Account::default() }
    }

    pub(crate) fn weights(&self) -> &[f32] {
        self.weights.values(NAME).expect("it was made so")
    }

    /// How many gradients were taken.
    pub(crate) fn updates(&self) -> u64 {
        self.account.updates
    }

    /// Takes a gradient, unless it was taken before. Returns whether it was new.
    pub(crate) fn apply(&mut self, push: &Push, rate: f32) -> Result<bool, BadGradient> {
        let weights: &mut [f32] = self.weights.values_mut(NAME).expect("it was made so");
        let squares: &mut [f32] = self.squares.values_mut(NAME).expect("it was made so");
        let (found, expected) = (push.gradient.len(), weights.len());
        if found != expected {
            return Err(BadGradient::Length { found, expected });
        }
        if let Some((at, &value)) = push.gradient.iter().enumerate().find(|(_, slope)| !slope.is_finite()) {
            return Err(BadGradient::NotFinite { at, value });
        }
        let Account { updates, trainers } = &mut self.account;
        if trainers.get(&push.trainer).is_some_and(|heard| push.sequence <= heard.sequence) {
            return Ok(false);
        }
        for ((weight, square), slope) in zip(zip(weights, squares), &push.gradient) {
            // As large as it may be, it must not become infinite: 0 times that is no number.
            *square = slope.mul_add(*slope, *square).min(f32::MAX);
            *weight -= rate * slope / (square.sqrt() + 1e-8);
        }
        *updates += 1;
        trainers.insert(push.trainer, Heard { sequence: push.sequence, at_update: *updates });
        if trainers.len() > TRAINERS_MAX {
            let oldest = trainers.iter().min_by_key(|(_, heard)| heard.at_update).map(|(&number, _)| number);
            oldest.map(|number| trainers.remove(&number));
        }
        Ok(true)
    }
}

impl Checkpoint for State {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let State { weights, squares, account } = self;
        write_parts(to, &[("weights", weights), ("squares", squares), ("account", account)])
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let State { weights, squares, account } = self;
        read_parts(from, &mut [("weights", weights), ("squares", squares), ("account", account)])
    }
}

impl Checkpoint for Account {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(to, self)?)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        *self = serde_json::from_reader(from)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(trainer: u64, sequence: u64, gradient: &[f32]) -> Push {
        Push { trainer, sequence, gradient: gradient.to_vec() }
    }

    #[test]
    fn a_gradient_that_comes_twice_is_taken_once() {
        let mut state = State::new(&[1.0, 2.0]);
        assert_eq!(state.apply(&push(7, 1, &[1.0, -1.0]), 0.5), Ok(true));
        let once = state.clone();
        assert_eq!(once.weights(), [0.5, 2.5], "the first step is as long as the rate");
        assert_eq!(state.apply(&push(7, 1, &[1.0, -1.0]), 0.5), Ok(false));
        assert_eq!(state, once);
        assert_eq!(state.apply(&push(8, 1, &[1.0, 1.0]), 0.5), Ok(true), "another trainer's");
        assert_eq!(state.apply(&push(7, 5, &[1.0, 1.0]), 0.5), Ok(true), "a later one");
        assert_eq!(state.updates(), 3);
    }

    #[test]
    fn a_bad_gradient_changes_nothing() {
        let mut state = State::new(&[1.0, 2.0]);
        let before = state.clone();
        let refused = |state: &mut State, gradient: &[f32], due: &str| {
            let message = state.apply(&push(1, 1, gradient), 0.5).unwrap_err().to_string();
            assert!(message.contains(due), "{message}");
        };
        refused(&mut state, &[1.0], "a gradient of 1 numbers, and this shard has 2");
        refused(&mut state, &[1.0, f32::NAN], "the gradient of weight 1 of this shard is NaN");
        refused(&mut state, &[f32::INFINITY, 1.0], "weight 0 of this shard is inf");
        assert_eq!(state, before);
        for sequence in 1..4 {
            state.apply(&push(1, sequence, &[f32::MAX, -f32::MAX]), 0.5).unwrap();
        }
        assert!(state.weights().iter().all(|weight| weight.is_finite()), "{:?}", state.weights());
    }

    #[test]
    fn a_checkpoint_has_all_of_it() {
        let mut state = State::new(&[1.0, 2.0, 3.0]);
        for sequence in 1..50 {
            state.apply(&push(sequence % 3, sequence, &[0.1, -0.2, 0.3]), 0.01).unwrap();
        }
        let mut bytes = Vec::new();
        state.write(&mut bytes).unwrap();
        let mut read = State::new(&[0.0; 3]);
        read.read(&mut &*bytes).unwrap();
        assert_eq!(read, state);
        let error = State::new(&[0.0; 4]).read(&mut &*bytes).unwrap_err().to_string();
        assert!(error.contains("shard"), "another length: {error}");
    }

    #[test]
    fn only_so_many_trainers_are_remembered() {
        let mut state = State::new(&[1.0]);
        for trainer in (0..TRAINERS_MAX as u64 + 5).rev() {
            state.apply(&push(trainer, 1, &[1.0]), 0.01).unwrap();
        }
        assert_eq!(state.account.trainers.len(), TRAINERS_MAX);
        assert!(state.account.trainers.contains_key(&0), "the last one");
        assert!(!state.account.trainers.contains_key(&(TRAINERS_MAX as u64 + 4)), "the first one");
    }
}
