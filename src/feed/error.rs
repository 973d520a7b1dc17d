//! The errors that end a feed: those of all its stages, in one type.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use super::config::ConfigError;
use super::supply::SupplyError;
use crate::bad::{BadRecord, QuarantineError, TooManyBad};
use crate::base::sync::panic_message;
use crate::batch::fault::{BatchFault, RecordError};
use crate::batch::field::{FieldError, FieldsError};
use crate::device::DeviceError;
use crate::net::NetError;
use crate::order::OrderError;
use crate::reader::ReaderError;
use crate::snapshot::SnapshotError;
use crate::source::{Damage, SourceError};
use crate::transform::TransformError;
use percolator_files::{IoCause, shown};

/// An error that ends a feed. Every lane gets it once. If the data caused it, it comes after the batches of
/// all steps before it; otherwise after those that were complete.
///
/// Its `Debug` is its message with all causes, because that is what a `main` that returns it prints.
#[non_exhaustive]
#[derive(Clone, PartialEq, thiserror::Error)]
pub enum FeedError {
    /// The options cannot be met.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A net cannot be read, or its data layer cannot be set up.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The feed of a net's layer could not be built.
    #[error("{layer}: {}", shown::with_sources(&**error))]
    Layer {
        /// The net's file, the place in it, and the layer.
        layer: String,
        /// What is wrong. It is part of the message, with its causes, so it is not the source as well.
        error: Box<FeedError>,
    },
    /// The run cannot resume from the given snapshot, or no snapshot of it can be taken.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The source could not be opened or read, or its consumers do not agree.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// A field of a batch was requested as something that it is not. No feed ends with this error: it is here
    /// so that a training loop can use `?` on batches and on what is read from them.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A record is not valid.
    #[error(transparent)]
    Record(Box<RecordError>),
    /// A lane had more bad records than its [policy](crate::BadRecords) allows.
    #[error(transparent)]
    TooManyBad(#[from] TooManyBad),
    /// A bad record could not be written to the [quarantine file](crate::BadRecords::quarantine).
    #[error(transparent)]
    Quarantine(#[from] QuarantineError),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Whoever makes the batches [elsewhere](crate::FeedBuilder::build_supplied) supplies no more of them.
    #[error(transparent)]
    Supply(#[from] SupplyError),
    /// A thread of the feed panicked.
    #[error("the thread {name} panicked: {message}; this is a bug, please report it")]
    Panicked {
        /// The thread.
        name: String,
        /// The panic's message.
        message: String,
    },
    /// A source or a device panicked while the feed was built, or sought.
    #[error("{who} panicked while the feed was built: {message}; if it is your own, this is a bug in it")]
    BuildPanicked {
        /// What panicked: `the source`, `the device of lane 0`.
        who: String,
        /// The panic's message.
        message: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}")]
    Thread {
        /// The thread.
        name: String,
        /// The operating system's error.
        source: IoCause,
    },
    /// Somebody cancelled the feed.
    #[error("the feed was cancelled")]
    Cancelled,
    /// A consumer waited for a batch while it held all batches of its lane's ring, so that only it could have
    /// ended the wait.
    #[error(
        "lane {lane} ({device}): its consumer holds all {held} batches of the ring and has waited \
         {waited:.1?} for one more, which can be filled only when one of them is dropped; drop each batch \
         before requesting the next (no lane.collect::<Vec<_>>()), make the ring deeper than what is held at \
         once (prefetch, memory_limit), or set give_up_after if another thread drops them later"
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

impl From<Damage> for FeedError {
    fn from(damage: Damage) -> Self {
        SourceError::from(damage).into()
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
            BatchFault::Source(damage) => damage.into(),
            BatchFault::Quarantine(error) => (*error).into(),
            BatchFault::Rest { after, message } => {
                let message = format!("rest() of its decoder, after {after}: {message}");
                FeedError::Panicked { name: "worker".to_owned(), message }
            }
            BatchFault::Unwritten => FeedError::Panicked {
                name: "worker".to_owned(),
                message: "it dropped records of a batch that it had not written".to_owned(),
            },
        }
    }
}

impl fmt::Debug for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown::with_sources(self))
    }
}

impl FeedError {
    /// Turns a panic of `who` into an error, for work that calls the caller's own code, such as a source: a
    /// feed that is built, or a pass over its source. What the work has changed must not be used after that.
    ///
    /// # Errors
    ///
    /// [`FeedError::BuildPanicked`] if the work panics; otherwise its own error.
    pub fn of_panic<T>(
        who: impl FnOnce() -> String,
        work: impl FnOnce() -> Result<T, FeedError>,
    ) -> Result<T, FeedError> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            Err(FeedError::BuildPanicked { who: who(), message: panic_message(&*panic) })
        })
    }

    /// What the error is about, as far as it says.
    fn cause(&self) -> Option<Cause<'_>> {
        match self {
            FeedError::Layer { error, .. } => error.cause(),
            FeedError::Record(error) => Some(Cause::Record(error)),
            FeedError::Reader(ReaderError::Source(error)) => Some(Cause::Source(error)),
            FeedError::TooManyBad(TooManyBad { record, .. }) => Some(Cause::Bad(record)),
            _ => None,
        }
    }

    /// Returns the file or folder of the data in which something was found, if it is an error of the data.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self.cause()? {
            Cause::Record(error) => Some(&error.path),
            Cause::Bad(record) => Some(&record.path),
            Cause::Source(error) => error.path(),
        }
    }

    /// Returns the key of the record that is not valid, if it is known.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self.cause()? {
            Cause::Record(error) => Some(&error.key.0),
            Cause::Bad(record) => Some(&record.key.0),
            Cause::Source(SourceError::KeysDiffer { key, .. }) => Some(&key.0),
            Cause::Source(_) => None,
        }
    }

    /// Returns the number of the record that is not valid or cannot be read, from 0, if it is known: its
    /// position in the data set; if a TFRecord file is damaged, its number in that [file](Self::file).
    #[must_use]
    pub fn record(&self) -> Option<u64> {
        match self.cause()? {
            Cause::Record(error) => Some(error.id.index),
            Cause::Bad(record) => Some(record.id.index),
            Cause::Source(SourceError::Broken { index, .. } | SourceError::KeysDiffer { index, .. }) => {
                Some(*index)
            }
            Cause::Source(SourceError::TfRecord(error)) => error.at()?.record,
            Cause::Source(_) => None,
        }
    }
}

/// An error of the data.
enum Cause<'a> {
    Record(&'a RecordError),
    Bad(&'a BadRecord),
    Source(&'a SourceError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::fault::RecordCause;
    use crate::record::{Key, RecordId};
    use crate::source::tfrecord::{RecordAt, TfRecordError};

    #[test]
    fn an_error_of_the_data_says_where() {
        let place = |error: &FeedError| {
            let file = error.file().map(|file| file.display().to_string());
            (file, error.key().map(<[u8]>::to_vec), error.record())
        };
        let record = FeedError::Record(Box::new(RecordError {
            path: "/data/train".into(),
            id: RecordId { epoch: 2, index: 7 },
            key: Key(b"00000007".to_vec()),
            cause: RecordCause::NoTarget,
        }));
        let known = (Some("/data/train".to_owned()), Some(b"00000007".to_vec()), Some(7));
        assert_eq!(place(&record), known);
        let layer = FeedError::Layer { layer: "net: data".to_owned(), error: Box::new(record) };
        assert_eq!(place(&layer), known);
        let broken = SourceError::Broken { path: "/data/x".into(), index: 3, message: "it ended".to_owned() };
        assert_eq!(place(&broken.into()), (Some("/data/x".to_owned()), None, Some(3)));
        let at = RecordAt { record: Some(6), offset: 318, is_unpacked: false };
        let cut = TfRecordError::Cut { file: "/data/z".into(), at, needed: 53, left: 20 };
        assert_eq!(place(&SourceError::from(cut).into()), (Some("/data/z".to_owned()), None, Some(6)));
        let other = SourceError::other("/data/y", "no");
        assert_eq!(place(&other.into()), (Some("/data/y".to_owned()), None, None));
        assert_eq!(place(&FeedError::Cancelled), (None, None, None));
    }
}
