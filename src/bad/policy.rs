//! What a feed does with a record that cannot be used.

use std::fmt;
use std::path::PathBuf;

/// What a feed does with a bad record: one that can be found but cannot be used. Its bytes do not match their
/// checksum, the file that a list names is missing, or its decoder refuses it.
///
/// By default the first bad record ends the feed. A policy lets the feed go on, within limits:
///
/// ```
/// use percolator::{BadRecords, Feed};
///
/// let policy = BadRecords::skip().at_most(100).at_most_rate(0.001).quarantine("bad.tfrecord");
/// let builder = Feed::builder().bad_records(policy);
/// ```
///
/// Whether a record is bad is a function of its bytes, and the places of all others stay as they are. So the
/// batches are the same for every number of threads and after every resume, and the same records are skipped
/// in every world. A batch names what it [skipped](crate::Batch::bad_records), a [receipt](crate::Receipt)
/// has it, and a [snapshot](crate::Snapshot) carries how many there were.
///
/// Errors that are not one record's still end the feed: a database whose structure is damaged, so that
/// records may be missing; a damaged LevelDB block, which has many records; a decoder that panics; images of
/// several shapes in one batch.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct BadRecords {
    /// What is done with a bad record.
    pub action: BadAction,
    /// The most bad records of an epoch, for each lane; no limit if `None`.
    pub at_most: Option<u64>,
    /// The largest part of an epoch's records that may be bad, from 0 to 1, for each lane. It is a part of
    /// the records so far, or of 1,000 while there are fewer.
    pub at_most_rate: f64,
    /// The file that [names them](BadRecords::quarantine).
    pub quarantine: Option<PathBuf>,
}

/// What is done with a bad record.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum BadAction {
    /// It ends the feed.
    #[default]
    Fail,
    /// Its batch leaves it out.
    Skip,
    /// The next good record of its batch takes its place.
    Replace,
}

/// The part of the records that may be bad by default.
const RATE: f64 = 0.01;

impl Default for BadRecords {
    fn default() -> Self {
        BadRecords::of(BadAction::Fail)
    }
}

impl BadRecords {
    fn of(action: BadAction) -> Self {
        BadRecords { action, at_most: None, at_most_rate: RATE, quarantine: None }
    }

    /// A bad record ends the feed, with an error that names it. The default.
    #[must_use]
    pub fn fail() -> Self {
        BadRecords::of(BadAction::Fail)
    }

    /// A batch leaves out its bad records: later rows move up, and it is shorter, as the last batch of an
    /// epoch may be. A feed that [pads](crate::LastBatch::Pad) fills it up with zeros. A batch without a good
    /// record is empty.
    #[must_use]
    pub fn skip() -> Self {
        BadRecords::of(BadAction::Skip)
    }

    /// A copy of the next good record of the batch, with the same crop, replaces a bad one; if no good record
    /// follows, a copy of the batch's first good one does. So all batches have their full size, for programs
    /// that need that, unless none of their records is good: such a batch is empty, as if it were
    /// [skipped](Self::skip).
    #[must_use]
    pub fn replace() -> Self {
        BadRecords::of(BadAction::Replace)
    }

    /// Sets the most bad records of an epoch, for each lane (default: no such limit). One more ends the feed.
    #[must_use]
    pub fn at_most(mut self, records: u64) -> Self {
        self.at_most = Some(records);
        self
    }

    /// Sets the largest part of an epoch's records that may be bad, for each lane: from 0 to 1 (default:
    /// 0.01; 1 is no limit). It is a part of the lane's records of the epoch so far, or of 1,000 while there
    /// are fewer.
    #[must_use]
    pub fn at_most_rate(mut self, rate: f64) -> Self {
        self.at_most_rate = rate;
        self
    }

    /// Writes each bad record to this [file](super::Quarantined), once, with its bytes. Existing entries
    /// stay, so a resumed run and other processes of the job may use the same file.
    #[must_use]
    pub fn quarantine(mut self, file: impl Into<PathBuf>) -> Self {
        self.quarantine = Some(file.into());
        self
    }

    /// Whether a limit other than the default is set.
    pub(crate) fn is_limited(&self) -> bool {
        self.at_most.is_some() || self.at_most_rate != RATE
    }

    /// Whether a bad record ends the feed.
    pub(crate) fn fails(&self) -> bool {
        self.action == BadAction::Fail
    }
}

impl fmt::Display for BadAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadAction::Fail => "fail",
            BadAction::Skip => "skip",
            BadAction::Replace => "replace",
        })
    }
}
