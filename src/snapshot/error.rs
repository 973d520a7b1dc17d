//! Why a snapshot cannot be taken, or a run cannot resume from one.

use std::path::PathBuf;

use crate::order::OrderError;
use crate::receipt::ReceiptError;
use percolator_files::caller::words;
use percolator_files::checked_text::TextFault;
use percolator_files::{IoCause, shown};

/// A snapshot cannot be taken, read or resumed from.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A file cannot be read or written.
    #[error("{}: cannot {action} the snapshot", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The operating system's error, or one of that kind.
        source: IoCause,
    },
    /// The snapshot is larger than the largest file that is read. The previous file is untouched.
    #[error(
        "{}: the snapshot would be {found} bytes, but only files of at most {allowed} can be read back: \
         report less in Source::identity",
        shown::path(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The size it would have, in bytes.
        found: u64,
        /// The largest size allowed, in bytes.
        allowed: u64,
    },
    /// A text is not a snapshot, or not as it was written.
    #[error("{}not a valid snapshot: {fault}", of_file(path.as_ref()))]
    Text {
        /// The file, if the text is from one.
        path: Option<PathBuf>,
        /// What is wrong.
        fault: TextFault,
    },
    /// The receipt saved with the snapshot cannot be written.
    #[error(transparent)]
    Receipt(ReceiptError),
    /// The snapshot and the receipt have the same path.
    #[error("{}: the snapshot and the receipt cannot be one file: give each its own path", shown::path(path))]
    SamePlace {
        /// The file.
        path: PathBuf,
    },
    /// The snapshot was taken of other data than the feed's.
    #[error(
        "the snapshot was not taken of {}: for {} it has \"{}\", and here it is \"{}\"; resume with the data \
         it was taken of, or start a new run",
        shown::path(source_path),
        shown::path(taken_of),
        shown::line(was),
        shown::line(is)
    )]
    OtherData {
        /// What the feed reads.
        source_path: PathBuf,
        /// What the feed of the snapshot read.
        taken_of: PathBuf,
        /// The first fact that differs, as the snapshot has it.
        was: String,
        /// The same fact of the feed's data.
        is: String,
    },
    /// The run cannot resume as this job.
    #[error("cannot resume from the snapshot: {0}")]
    Order(OrderError),
    /// Crops and mirroring would be drawn from another seed or sequence.
    #[error(
        "crops and mirroring were drawn from \"{was}\", and would now be drawn from \"{is}\", so the resumed \
         run would differ; set the same seed, or start a new run"
    )]
    OtherDraws {
        /// What they were drawn from.
        was: String,
        /// What they would be drawn from.
        is: String,
    },
    /// No snapshots were given.
    #[error("no snapshots to join: give those taken by the workers of one job")]
    None,
    /// Only some replicas' steps are known, and those replicas are not all at one step.
    #[error(
        "the snapshot knows the steps of only {known} of {replicas} replicas, and these are at different \
         steps: join the snapshots of all workers with {}",
        words("Snapshot::join", "Snapshot::join", "Snapshot.join")
    )]
    Unknown {
        /// The number of replicas whose step is known.
        known: usize,
        /// The number of replicas of the job.
        replicas: usize,
    },
    /// The snapshots are of different runs.
    #[error("these snapshots are of different runs: {what} differ; join those that one job's workers took")]
    NotOfOne {
        /// What differs.
        what: &'static str,
    },
    /// The steps are handed out while the feed runs.
    #[error(
        "{}: the steps of this feed are handed out in blocks while it runs (.blocks), so only whoever hands \
         them out knows where the run is",
        shown::path(source_path)
    )]
    OfBlocks {
        /// The source.
        source_path: PathBuf,
    },
    /// Whoever makes the batches makes those of one job.
    #[error(
        "the batches of this feed are made elsewhere, for the job that it began as, and the snapshot is of \
         another one: it has \"{was}\", and here it is \"{is}\"; resume as that job, or with the data itself"
    )]
    AnotherJob {
        /// The first fact that differs, as the snapshot has it.
        was: String,
        /// The same fact of the feed.
        is: String,
    },
    /// Passes over the source may differ from each other.
    #[error(
        "{}: the list shuffles itself, or skips its first lines, and such a run cannot be resumed: remove \
         its shuffle and rand_skip, and set {}",
        shown::path(source_path),
        words(
            ".epochs(0).shuffle(Shuffle::Global)",
            "--epochs 0 --shuffle global",
            "epochs=0, shuffle=True"
        )
    )]
    PassesDiffer {
        /// The source.
        source_path: PathBuf,
    },
    /// Caffe's random numbers belong to the lanes they were drawn for.
    #[error(
        "each replica draws Caffe's random sequence from its first record on, so the run cannot resume as \
         another job: resume with the same replicas and batches, or draw by {}, which depends on the record \
         alone",
        words(".seed(...)", "--seed", "seed=...")
    )]
    CaffeRandom,
}

// The inner error is part of the message, so it is not the source: otherwise it would be printed twice.
impl From<OrderError> for SnapshotError {
    fn from(error: OrderError) -> Self {
        SnapshotError::Order(error)
    }
}

fn of_file(path: Option<&PathBuf>) -> String {
    path.map(|path| format!("{}: ", shown::path(path))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_snapshot_says_of_its_data_cannot_draw_on_a_terminal() {
        let more = "x".repeat(if cfg!(miri) { 1 << 12 } else { 1 << 20 });
        let error = SnapshotError::OtherData {
            source_path: "db".into(),
            taken_of: "db".into(),
            was: format!("a \u{1b}[31m \"b\" {more}"),
            is: "c \"d\"".to_owned(),
        };
        let said = error.to_string();
        assert!(said.len() < 2000 && !said.contains('\u{1b}'), "{said}");
        assert!(
            said.contains("it has \"a \\u{1b}[31m \"b\" xxx") && said.contains("is \"c \"d\"\""),
            "{said}"
        );
    }
}
