//! The errors that end a feed: those of all its stages, in one type.

use std::time::Duration;

use crate::batch::fault::{BatchFault, RecordError};
use crate::batch::field::{FieldError, FieldsError};
use crate::config::ConfigError;
use crate::device::DeviceError;
use crate::net::NetError;
use crate::order::OrderError;
use crate::reader::ReaderError;
use crate::snapshot::SnapshotError;
use crate::source::SourceError;
use crate::transform::TransformError;

/// An error that ends a feed. Every lane gets it once, after the batches that were complete before it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FeedError {
    /// The options cannot be met.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A net cannot be read, or its data layer cannot be set up.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The feed of a net's layer could not be built.
    #[error("{layer}: {error}")]
    Layer {
        /// The net's file, the place in it, and the layer.
        layer: String,
        /// What is wrong. It is part of the message, so the error does not repeat it as its source.
        error: Box<FeedError>,
    },
    /// The run cannot resume from the given snapshot, or no snapshot of it can be taken.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The source could not be opened or read, or its consumers do not agree.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// A field of a batch was asked for as something that it is not. No feed ends with it: it is here so that
    /// a training loop can use `?` on batches and on what is read from them.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A record is not valid.
    #[error(transparent)]
    Record(Box<RecordError>),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A thread of the feed panicked.
    #[error("the thread {name} panicked: {message}; this is a bug, please report it")]
    Panicked {
        /// The thread.
        name: String,
        /// The panic's message.
        message: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {message}")]
    Thread {
        /// The thread.
        name: String,
        /// The operating system's message.
        message: String,
    },
    /// Somebody cancelled the feed.
    #[error("the feed was cancelled")]
    Cancelled,
    /// A consumer waited for a batch while it held all batches of its lane's ring, so that only it could have
    /// ended the wait.
    #[error(
        "lane {lane} ({device}): its consumer holds all {held} batches of the ring and has waited {waited:?} \
         for one more, which can be filled only when one of them is dropped; drop each batch before \
         requesting the next (no lane.collect::<Vec<_>>()), make the ring deeper than what is held at once \
         (prefetch, memory_limit), or set give_up_after if another thread drops them later"
    )]
    AllHeld {
        /// The lane's number in its feed.
        lane: usize,
        /// The lane's device.
        device: String,
        /// The number of batches that the consumer holds.
        held: usize,
        /// The number of batches in the lane's ring.
        ring: usize,
        /// How long the consumer waited.
        waited: Duration,
    },
    /// Lanes or steps were requested from a feed whose lanes had already been handed over.
    #[error(
        "the feed's lanes were handed over before: take_lanes() hands them over once, and steps() needs the \
         feed to have them; keep the lanes that the first call returned, or use only one of the two"
    )]
    LanesTaken,
}

impl From<SourceError> for FeedError {
    fn from(error: SourceError) -> Self {
        FeedError::Reader(error.into())
    }
}

impl From<OrderError> for FeedError {
    fn from(error: OrderError) -> Self {
        ConfigError::from(error).into()
    }
}

impl From<TransformError> for FeedError {
    fn from(error: TransformError) -> Self {
        ConfigError::from(error).into()
    }
}

impl From<FieldsError> for FeedError {
    fn from(error: FieldsError) -> Self {
        ConfigError::from(error).into()
    }
}

impl From<Box<RecordError>> for FeedError {
    fn from(error: Box<RecordError>) -> Self {
        FeedError::Record(error)
    }
}

impl From<BatchFault> for FeedError {
    fn from(fault: BatchFault) -> Self {
        match fault {
            BatchFault::Record(error) => error.into(),
            BatchFault::Source(error) => (*error).into(),
            BatchFault::Unwritten => FeedError::Panicked {
                name: "worker".to_owned(),
                message: "it dropped records of a batch that it had not written".to_owned(),
            },
        }
    }
}
