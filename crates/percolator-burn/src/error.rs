//! What can go wrong between a feed and burn.

use std::error::Error;
use std::sync::Arc;

use percolator::batch::FieldError;
use percolator::order::OrderError;
use percolator::{DeviceError, Dtype, FeedError};

/// What can be wrong with a feed, with a device, or with what was asked for.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BurnError {
    /// The feed ended with an error, cannot be built, or has another number of lanes than there are devices.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// A field of a batch was asked for as something that it is not. Nothing in this crate returns it: it is
    /// here so that a training loop can use `?` on batches as well.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The lane's device failed while a batch was under way.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The records of an epoch cannot be counted.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// There is no such array.
    #[error("the batch has no array {wanted:?}; there are {found}")]
    Unknown {
        /// The requested name.
        wanted: String,
        /// The existing ones.
        found: String,
    },
    /// burn has no tensors of this type.
    #[error("array {array:?} holds {found}, of which burn has no tensors: feed another type")]
    Dtype {
        /// The array.
        array: String,
        /// The type of its elements.
        found: Dtype,
    },
    /// burn has another kind of tensor for an array of this type.
    #[error(
        "array {array:?} holds {found}, which is no type of burn's {wanted} tensors: take it with {method}"
    )]
    Kind {
        /// The array.
        array: String,
        /// The type of its elements.
        found: Dtype,
        /// The requested kind of tensor.
        wanted: &'static str,
        /// The method that gives a tensor of the right kind.
        method: &'static str,
    },
    /// A tensor was requested with another number of dimensions.
    #[error("array {array:?} has {found} dimension(s), {shape}, but a tensor of {wanted} was requested")]
    Rank {
        /// The array.
        array: String,
        /// Its extents, records first.
        shape: String,
        /// How many those are.
        found: usize,
        /// The requested number.
        wanted: usize,
    },
    /// The device does not compute with this type.
    #[error("array {array:?} holds {found}, with which {device} does not compute: feed another type")]
    Unsupported {
        /// The array.
        array: String,
        /// The type of its elements.
        found: Dtype,
        /// burn's device.
        device: String,
    },
    /// The lane's device makes the elements of this field, so the host does not have them.
    #[error(
        "field {field:?} is transformed on the lane's device, and burn takes its tensors from the host: \
         build the feed with .transform_on(TransformPlace::Host)"
    )]
    OnDevice {
        /// The field.
        field: String,
    },
    /// A part of a loader was divided again.
    #[error("items {start} to {end} of a part of a loader were requested: divide the whole loader instead")]
    PartOfPart {
        /// The first item.
        start: usize,
        /// The item after the last.
        end: usize,
    },
    /// A loader whose feed's batches [wrap](percolator::LastBatch::Wrap) was divided by its steps.
    #[error(
        "the batches of the feed wrap into the next epoch, so its steps cannot be divided: give it one lane \
         for each device"
    )]
    Wraps,
    /// This part of a loader cannot be.
    #[error(transparent)]
    NoPart(Arc<BurnError>),
    /// Two iterators over one loader at a time.
    #[error("an iterator over this loader is still in use: a loader has one epoch under way at a time")]
    InUse,
    /// The steps of the feed come in blocks, so it has no epochs of its own.
    #[error("the steps of the feed come in blocks: a loader needs a feed with epochs of its own")]
    Blocks,
    /// The feed ended before its plan did.
    #[error("the feed ended in epoch {epoch}, after {delivered} of {items} items")]
    EndedEarly {
        /// The epoch, counted from 0.
        epoch: u64,
        /// How many items came.
        delivered: usize,
        /// How many the epoch has.
        items: usize,
    },
    /// The program's own function failed, which makes items of tensors.
    #[error("a batch cannot be made of its tensors")]
    Batch(#[source] Box<dyn Error + Send + Sync>),
}

impl BurnError {
    /// Wraps an error of the program's own function that makes items of tensors.
    pub fn batch(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        BurnError::Batch(error.into())
    }
}
