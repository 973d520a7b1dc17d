//! Why a run cannot be taken down, or cannot go on.

use std::path::PathBuf;

use crate::base::checked_text::TextFault;
use crate::base::shown;
use crate::order::OrderError;
use crate::receipt::ReceiptError;

/// A snapshot cannot be made, read, or gone on from.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A file cannot be read or written.
    #[error("{}: cannot {action} the snapshot: {message}", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the operating system said.
        message: String,
    },
    /// It is larger than any file that is read. What was in its place before is as it was.
    #[error(
        "{}: the snapshot would have {found} bytes, and files of at most {allowed} are read: have the source say less of \
         what it is known by (Source::identity)",
        shown::path(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How large it would be.
        found: u64,
        /// How large it may be.
        allowed: u64,
    },
    /// A text is not a snapshot as it was written.
    #[error("{}not a snapshot that can be used: {fault}", of_file(path.as_ref()))]
    Text {
        /// The file, if it is from one.
        path: Option<PathBuf>,
        /// What is wrong.
        fault: TextFault,
    },
    /// The receipt that goes with it cannot be written.
    #[error(transparent)]
    Receipt(ReceiptError),
    /// A snapshot and a receipt in one file.
    #[error(
        "{}: the snapshot and the receipt cannot be one file: give each a path of its own",
        shown::path(path)
    )]
    SamePlace {
        /// The file.
        path: PathBuf,
    },
    /// It is of other data than the feed's.
    #[error(
        "the snapshot is of other data than {}: of {} it says \"{was}\", and here it is \"{is}\"; go on with the data \
         it was taken of, or begin anew",
        shown::path(source_path),
        shown::path(taken_of)
    )]
    OtherData {
        /// What the feed reads.
        source_path: PathBuf,
        /// What was read then.
        taken_of: PathBuf,
        /// The first fact that differs, as it was.
        was: String,
        /// The same, as it is.
        is: String,
    },
    /// The run cannot go on as this job.
    #[error("the snapshot cannot be gone on from: {0}")]
    Order(OrderError),
    /// Crops and mirroring would be drawn from something else.
    #[error(
        "crops and mirroring were drawn from \"{was}\", and are to be drawn from \"{is}\": what comes would not be what would have come; say the \
         same seed, or begin anew"
    )]
    OtherDraws {
        /// What it was.
        was: String,
        /// What it is.
        is: String,
    },
    /// None were given.
    #[error("no snapshots to join: give those that the workers of one job took")]
    None,
    /// Only some replicas are known, and not all of them are at one step.
    #[error(
        "the snapshot says of {known} of {replicas} replicas where they are, and those are not at the same step: join the \
         snapshots of all workers with Snapshot::join"
    )]
    Unknown {
        /// How many it tells of.
        known: usize,
        /// How many there are.
        replicas: usize,
    },
    /// Snapshots that are not of one run.
    #[error("these snapshots are not of one run: {what} differ; join those that one job's workers took")]
    NotOfOne {
        /// What differs.
        what: &'static str,
    },
    /// No two passes over the source need be alike.
    #[error(
        "{}: the list shuffles itself, or begins behind its first lines, and such a run cannot be gone on from: leave out its shuffle and \
         rand_skip, and say .epochs(0).shuffle(Shuffle::Global)",
        shown::path(source_path)
    )]
    PassesDiffer {
        /// The source.
        source_path: PathBuf,
    },
    /// Caffe's random numbers belong to the lanes they were drawn for.
    #[error(
        "Caffe's random sequence is one of each replica's, from its first record on, and the run is to go on as another job: \
         go on with the same replicas and batches, or draw by .seed(...), which depends on the record alone"
    )]
    CaffeRandom,
}

// The error is part of the message, and therefore not its source: it would be said twice.
impl From<OrderError> for SnapshotError {
    fn from(error: OrderError) -> Self {
        SnapshotError::Order(error)
    }
}

fn of_file(path: Option<&PathBuf>) -> String {
    path.map(|path| format!("{}: ", shown::path(path))).unwrap_or_default()
}
