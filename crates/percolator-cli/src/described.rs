//! A feed of databases or of a net, before its pipeline's options are set.

use std::path::{Path, PathBuf};

use percolator::{Feed, FeedBuilder};
use percolator_files::shown;

/// A database given by itself, without a net.
#[derive(Clone, Debug)]
pub(super) enum Database {
    /// An LMDB's database of this name, or its unnamed one.
    Lmdb(PathBuf, Option<String>),
    LevelDb(PathBuf),
    /// A file, a folder, or a pattern.
    TfRecord(PathBuf),
}

impl Database {
    fn path(&self) -> &Path {
        let (Database::Lmdb(path, _) | Database::LevelDb(path) | Database::TfRecord(path)) = self;
        path
    }
}

/// A feed, and what its arguments determine.
pub(super) struct Described {
    pub(super) feed: FeedBuilder,
    /// The source of its records, as given.
    pub(super) origin: PathBuf,
    /// Whether the layer outputs labels: one without a second top does not.
    pub(super) has_labels: bool,
}

impl Described {
    /// The records of databases as they are, one database after the other; `None` without databases.
    pub(super) fn of_databases(databases: impl IntoIterator<Item = Database>) -> Option<Self> {
        let mut databases = databases.into_iter();
        let first = Described::of_database(databases.next()?);
        Some(databases.fold(first, |described, next| {
            let origin = format!("{}, {}", shown::path(&described.origin), shown::path(next.path())).into();
            let feed = match &next {
                Database::Lmdb(path, None) => described.feed.and_lmdb(path),
                Database::Lmdb(path, Some(name)) => described.feed.and_lmdb_named(path, name),
                Database::LevelDb(path) => described.feed.and_leveldb(path),
                Database::TfRecord(path) => described.feed.and_tfrecord(path),
            };
            Described { feed, origin, ..described }
        }))
    }

    /// The records of a database as they are.
    pub(super) fn of_database(database: Database) -> Self {
        let origin = database.path().to_owned();
        let feed = match database {
            Database::Lmdb(path, None) => Feed::builder().lmdb(path),
            Database::Lmdb(path, Some(name)) => Feed::builder().lmdb_named(path, name),
            Database::LevelDb(path) => Feed::builder().leveldb(path),
            Database::TfRecord(path) => Feed::builder().tfrecord(path),
        };
        Described { feed, origin, has_labels: true }
    }
}
