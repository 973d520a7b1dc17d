//! The changes of a feed's settings that may make it faster.

use std::fmt;
use std::path::PathBuf;

use percolator::FeedBuilder;
use percolator::feed::{ResolvedFeed, SourceSpec};
use percolator::source::Access;
use percolator_files::{Reading, input_file};
use serde::Serialize;

use crate::job::Job;

/// A change of a feed's settings.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Change {
    /// Another [number of workers](FeedBuilder::threads), or the same one, set.
    Workers {
        /// How many.
        threads: usize,
        /// How many the feed has.
        instead_of: usize,
        /// Whether the feed chose its number, so that only as many are active as its consumers need. Those
        /// whose number is set are always active.
        was_chosen: bool,
    },
    /// Another number of [batches in a ring](FeedBuilder::prefetch).
    Ring {
        /// How many.
        batches: usize,
        /// How many the feed has.
        instead_of: usize,
    },
    /// Files are [read](Access::Read) instead of mapped.
    ReadFiles,
    /// Files are [mapped](Access::Mapped) instead of read.
    MapFiles,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Workers { threads, instead_of, was_chosen: true } => write!(
                f,
                "{threads} worker(s) that are always active instead of as many of {instead_of} as are needed"
            ),
            Change::Workers { threads, instead_of, .. } => {
                write!(f, "{threads} worker(s) instead of {instead_of}")
            }
            Change::Ring { batches, instead_of } => {
                write!(f, "rings of {batches} batches instead of {instead_of}")
            }
            Change::ReadFiles => f.write_str("files read instead of mapped"),
            Change::MapFiles => f.write_str("files mapped instead of read"),
        }
    }
}

impl Change {
    /// The feed with this change.
    pub(super) fn of(self, feed: &FeedBuilder) -> FeedBuilder {
        let feed = feed.clone();
        match self {
            Change::Workers { threads, .. } => feed.threads(threads),
            Change::Ring { batches, .. } => feed.prefetch(batches),
            Change::ReadFiles => feed.access(Access::Read),
            Change::MapFiles => feed.access(Access::Mapped),
        }
    }
}

/// The changes that this feed, whose rings have so many batches, can have. The one that most often helps
/// comes first.
pub(super) fn changes(job: &Job, feed: &ResolvedFeed, ring: usize) -> Vec<Change> {
    let (sizing, spec) = (feed.sizing(), feed.spec());
    let workers = |threads| Change::Workers {
        threads,
        instead_of: sizing.threads,
        was_chosen: sizing.are_threads_chosen,
    };
    let mut changes = Vec::new();
    if sizing.are_threads_chosen {
        // So that what more workers give is told from what their being active gives.
        changes.push(workers(sizing.threads));
    }
    changes.push(workers(sizing.threads + 1));
    changes.push(Change::Ring { batches: (2 * ring).max(2), instead_of: ring });
    let has_maps = spec.sources.iter().any(|source| {
        matches!(source, SourceSpec::Lmdb { .. } | SourceSpec::LevelDb { .. } | SourceSpec::TfRecord { .. })
    });
    let open = |path: &PathBuf| input_file::open(path).ok();
    let is_mapped = |access: Access| {
        has_maps && job.files.iter().filter_map(open).any(|(file, _)| access.of(&file) == Reading::Mapped)
    };
    if is_mapped(spec.access) {
        changes.push(Change::ReadFiles);
    } else if is_mapped(Access::Auto) {
        // A file system that can fail is never mapped unless the user says so.
        changes.push(Change::MapFiles);
    }
    // A change that the feed refuses, perhaps because it needs too much memory, is no choice.
    changes.retain(|change| change.of(job.feed()).resolve().is_ok());
    changes
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use percolator::Feed;
    use percolator::proto::Datum;
    use prost::Message as _;

    use super::*;

    pub(in crate::doctor) fn lmdb(folder: &Path) -> FeedBuilder {
        use lmdb::Transaction as _;
        let datum = Datum {
            channels: Some(1),
            height: Some(1),
            width: Some(2),
            data: Some(vec![1, 2]),
            ..Datum::default()
        };
        let environment = lmdb::Environment::new().open(folder).unwrap();
        let database = environment.open_db(None).unwrap();
        let mut transaction = environment.begin_rw_txn().unwrap();
        let flags = lmdb::WriteFlags::empty();
        transaction.put(database, b"0", &datum.encode_to_vec(), flags).unwrap();
        transaction.commit().unwrap();
        Feed::builder().lmdb(folder)
    }

    fn changes_of(feed: FeedBuilder, is_cold: bool) -> Vec<Change> {
        let resolved = feed.clone().resolve().unwrap();
        changes(&Job::new(feed).unwrap().cold(is_cold), &resolved, 4)
    }

    #[test]
    fn a_feed_is_changed_only_in_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let feed = lmdb(folder.path()).threads(2);
        let workers = Change::Workers { threads: 3, instead_of: 2, was_chosen: false };
        let ring = Change::Ring { batches: 8, instead_of: 4 };
        assert_eq!(changes_of(feed.clone(), false), [workers, ring, Change::ReadFiles]);
        let read = feed.clone().access(Access::Read);
        assert_eq!(changes_of(read, false), [workers, ring, Change::MapFiles]);
        assert_eq!(changes_of(feed, true), [workers, ring, Change::ReadFiles]);
    }

    #[test]
    fn workers_that_the_feed_chose_are_also_tried_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let changes = changes_of(lmdb(folder.path()), false);
        let [
            Change::Workers { threads: same, instead_of, was_chosen: true },
            Change::Workers { threads: more, .. },
            ..,
        ] = &*changes
        else {
            panic!("{changes:?}")
        };
        assert_eq!((same, *more), (instead_of, same + 1));
    }

    #[test]
    fn what_the_feed_refuses_is_not_tried() {
        let folder = tempfile::tempdir().unwrap();
        let feed = lmdb(folder.path()).threads(1).prefetch(4);
        let needed = feed.clone().resolve().unwrap().memory_budget().total_bytes();
        let changes = changes_of(feed.memory_limit(needed), false);
        assert!(!changes.iter().any(|change| matches!(change, Change::Ring { .. })), "{changes:?}");
    }
}
