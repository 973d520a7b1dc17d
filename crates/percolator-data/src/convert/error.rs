//! Why a conversion ended.

use std::path::PathBuf;

use percolator_files::shown::{self, count};

use super::report::Skipped;
use crate::input::InputError;
use crate::scan::ThreadsError;
use crate::store::StoreError;

/// Why a conversion ended early.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The input cannot be read, or has fewer items than there are to be outputs.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An output cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are no threads to work.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// It was [told to stop](super::Progress::stop).
    #[error("the conversion was stopped")]
    Stopped,
    /// It ended with this error, and what was written until then is kept.
    #[error(
        "{cause}; the output of the first {} is in {}: --resume goes on with it while the input is the same",
        count(*items, "item"), shown::path(partial)
    )]
    Kept {
        /// Why it ended.
        cause: Box<ConvertError>,
        /// The number of items that are done.
        items: u64,
        /// The folder with the partial output.
        partial: PathBuf,
    },
    /// It ended with this error, and how much was written by then is unknown. The output is kept.
    #[error(
        "{cause}; what was written stays in {}: {error}; --resume goes on with it once that can be read",
        shown::path(partial)
    )]
    StateUnread {
        /// Why it ended.
        cause: Box<ConvertError>,
        /// Why the state of what was written cannot be read.
        error: Box<StoreError>,
        /// The folder with the partial output.
        partial: PathBuf,
    },
    /// It ended with this error before anything was written. The partial output is removed.
    #[error("{cause}; nothing is left of the output")]
    Removed {
        /// Why it ended.
        cause: Box<ConvertError>,
    },
    /// Not one item could be converted.
    #[error(
        "{}: {}{}",
        shown::path(path),
        match skipped {
            0 => "there is no record".to_owned(),
            _ => format!("not one of its {} could be converted", count(*skipped, "item")),
        },
        first.as_ref().map(|first| format!("; the first one, {}: {}", first.key, first.reason))
            .unwrap_or_default()
    )]
    Nothing {
        /// The input.
        path: PathBuf,
        /// The number of items.
        skipped: u64,
        /// The first of them that this run skipped.
        first: Option<Skipped>,
    },
}

impl ConvertError {
    /// Whether it ended because it was told to.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        match self {
            ConvertError::Stopped | ConvertError::Input(InputError::Stopped) => true,
            ConvertError::Kept { cause, .. }
            | ConvertError::StateUnread { cause, .. }
            | ConvertError::Removed { cause } => cause.is_stop(),
            _ => false,
        }
    }
}
