//! How a database is opened.

use percolator_files::Access;

/// How a [`Database`](crate::Database) is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether its files are mapped or read.
    pub access: Access,
    /// What happens if logs lack writes.
    pub log_gaps: LogGaps,
    /// The most tables that stay mapped, unless fewer maps are [left](percolator_files::KeptMaps) to the
    /// process, or that stay open if they are read. Each cursor maps or opens the others for itself.
    pub held_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { access: Access::default(), log_gaps: LogGaps::default(), held_max: 16_384 }
    }
}

/// What happens if logs lack writes that the sequence numbers show to have existed, or are missing.
///
/// LevelDB numbers its writes. A log loses some if its file system loses power, or if a copy of it was cut
/// short. That shows if the numbers jump, or if the MANIFEST counts more of them. docs/caffe.md lists the
/// losses that no number shows.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum LogGaps {
    /// Missing writes are an error.
    #[default]
    Refuse,
    /// The remaining writes are read, as LevelDB itself does, with a warning for each gap.
    Allow,
}
