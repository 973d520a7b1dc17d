//! What identifies a record of any kind: its epoch and position ([`RecordId`]), its key ([`Key`]) for
//! messages, the step it belongs to ([`StepId`]), and the end of a step ([`StepEnd`]).
//!
//! A record's value means something only to a [decoder](crate::RecordDecoder). Two kinds of value are read in
//! place, by views that copy nothing: [`Datum`], Caffe's image with a label, which a feed decodes by default,
//! and TensorFlow's [`Example`](crate::example::Example). The package `percolator-messages` has both; what
//! belongs to `Datum` is also named here, and what belongs to `Example` in [`example`](crate::example).
//! [`FeatureError`], of Examples, is defined here because the errors of all records
//! ([`RecordCause`](crate::batch::RecordCause)) contain it.

pub(crate) mod distributions;
mod feature_error;
pub(crate) mod random;

use std::fmt;

pub use self::feature_error::FeatureError;

use percolator_files::shown;

#[doc(inline)]
pub use percolator_messages::{Datum, DatumError, Floats, Image, Pixels, Strided, WireError};

/// Identifies a record: its number, and the pass over the database.
///
/// All that a feed decides about a record (its crop, its mirroring) is a function of this and the seed, never
/// of the thread that processes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordId {
    /// The epoch, from 0; without a plan, the pass over the database.
    pub epoch: u64,
    /// The record's position in key order, from 0. (A database's *index*, which finds a record by its
    /// position, is something else.)
    pub index: u64,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, record {}", self.epoch, self.index)
    }
}

/// A step of a training run. Steps are those of a [plan](crate::order::Plan), counted from 0 in each epoch.
/// In round-robin order, which has no epochs, they are counted from the start, and their epoch is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StepId {
    /// The epoch.
    pub epoch: u64,
    /// The step.
    pub step: u64,
}

impl From<(u64, u64)> for StepId {
    fn from((epoch, step): (u64, u64)) -> Self {
        StepId { epoch, step }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, step {}", self.epoch, self.step)
    }
}

/// The end of a consumer's share of a step: what follows belongs to the next step.
///
/// Steps are those of a [plan](crate::order::Plan), counted from 0 in each epoch. In round-robin order, which
/// has no epochs, they are counted from the start, and their epoch is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepEnd {
    /// The epoch.
    pub epoch: u64,
    /// The step.
    pub step: u64,
    /// Whether it is the last step of its epoch.
    pub is_last: bool,
}

impl StepEnd {
    /// The step that ends here.
    #[must_use]
    pub fn id(&self) -> StepId {
        StepId { epoch: self.epoch, step: self.step }
    }

    /// The step that comes next, provided that the next epoch has any.
    #[must_use]
    pub fn next(&self) -> StepId {
        match self.is_last {
            true => StepId { epoch: self.epoch + 1, step: 0 },
            false => StepId { epoch: self.epoch, step: self.step + 1 },
        }
    }
}

/// A key, displayed as quoted text with other bytes escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown::quoted(&self.0))
    }
}
