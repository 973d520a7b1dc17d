//! What can end a feed: the errors of all its stages, under one name.

use std::time::Duration;

use crate::batch::fault::{BatchFault, RecordError};
use crate::config::ConfigError;
use crate::device::DeviceError;
use crate::net::NetError;
use crate::reader::ReaderError;
use crate::snapshot::SnapshotError;
use crate::source::SourceError;

/// What ends a feed. Every lane gets it once, after the batches that were complete before it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FeedError {
    /// What was asked for cannot be.
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
        /// What is wrong. It is part of the message, and therefore not given again as the error's source.
        error: Box<FeedError>,
    },
    /// The run cannot go on from the snapshot that was given, or be taken down.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The source could not be opened or read, or its consumers do not agree.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// A record is not what it should be.
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
        /// What the panic said.
        message: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {message}")]
    Thread {
        /// The thread.
        name: String,
        /// What the operating system said.
        message: String,
    },
    /// Somebody cancelled the feed.
    #[error("the feed was cancelled")]
    Cancelled,
    /// A consumer waited for a batch while it held all that its lane's ring has: only it could have ended
    /// that wait.
    #[error(
        "lane {lane} ({device}): its consumer holds all {held} batches of the ring and has waited {waited:?} for \
         one more, which can be filled only when one of them is dropped; drop each batch before the next is asked \
         for (no lane.collect::<Vec<_>>()), make the ring deeper than what is held at once (prefetch, \
         memory_limit), or say give_up_after where another thread drops them later"
    )]
    AllHeld {
        /// The lane's number in its feed.
        lane: usize,
        /// The device at its end.
        device: String,
        /// How many batches the consumer holds.
        held: usize,
        /// How many the lane's ring has.
        ring: usize,
        /// How long the consumer waited.
        waited: Duration,
    },
    /// A feed was asked for its lanes, or for its steps, after its lanes had been handed over.
    #[error(
        "the feed's lanes were handed over before: lanes() hands them over once, and steps() goes through those \
         that it still has; keep the lanes that the first call gave, or use one of the two alone"
    )]
    LanesTaken,
}

impl From<SourceError> for FeedError {
    fn from(error: SourceError) -> Self {
        FeedError::Reader(error.into())
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
                message: "it let go of records of a batch that it had not written".to_owned(),
            },
        }
    }
}
