//! A data set in each format, and what is done with it.

use std::fs;
use std::path::{Path, PathBuf};

use percolator::source::tfrecord::write_record;
use percolator::source::{Access, ImageList, IndexPlace, LevelDb, Lmdb, TfRecord};
use percolator::{Epochs, Feed, FeedBuilder, FeedError, Shuffle};

use crate::common;

/// Records of each data set.
pub(crate) const RECORDS: usize = 24;

/// The formats. Several files each, where a format has them.
pub(crate) const FORMATS: [&str; 5] = ["lmdb", "leveldb", "leveldb, read", "tfrecord", "list"];

/// A folder with a data set of every format.
pub(crate) struct Data(tempfile::TempDir);

impl Data {
    pub(crate) fn write() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let records = || (0..RECORDS).map(|index| common::image(index, 3, 4, 4));
        common::write_lmdb(&at("lmdb"), records());
        common::leveldb::write(&at("leveldb"), common::indexed::leveldb_options(1), records());
        for file in 0..4 {
            let mut bytes = Vec::new();
            for (_, value) in records().skip(file * RECORDS / 4).take(RECORDS / 4) {
                write_record(&mut bytes, &value).unwrap();
            }
            fs::write(at(&format!("records-{file}.tfrecord")), bytes).unwrap();
        }
        let jpeg = common::repository().join("tests/data/images/444.jpg");
        let list: String = (0..RECORDS).map(|label| format!("{} {label}\n", jpeg.display())).collect();
        fs::write(at("list"), list).unwrap();
        Data(folder)
    }

    /// Lets everybody read and write, as a child may be somebody else.
    pub(crate) fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        let mut paths = vec![self.0.path().to_owned()];
        while let Some(path) = paths.pop() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            if path.is_dir() {
                paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A feed of the data set of a format in a folder of [`Data`], in order or shuffled. Shuffled, it needs an
/// index, which goes to a sidecar.
pub(crate) fn feed(folder: &Path, format: &str, is_shuffled: bool) -> Result<FeedBuilder, FeedError> {
    let files =
        || -> Vec<PathBuf> { (0..4).map(|file| folder.join(format!("records-{file}.tfrecord"))).collect() };
    let new = Feed::builder();
    let builder = match format {
        "lmdb" => new.source(Lmdb::open(folder.join("lmdb"))?),
        "leveldb" => new.source(LevelDb::open(folder.join("leveldb"))?),
        "leveldb, read" => new.source(LevelDb::options().access(Access::Read).open(folder.join("leveldb"))?),
        "tfrecord" => new.source(TfRecord::options().open_all(files())?),
        "list" => new.source(ImageList::open(folder.join("list"))?),
        _ => panic!("{format}"),
    };
    let builder = builder.batch_size(5);
    Ok(match is_shuffled {
        true => builder.index(IndexPlace::Beside).shuffle(Shuffle::Global).seed(1).epochs(1),
        false => builder.epochs(Epochs::OnePass),
    })
}

/// The labels that a feed delivers, sorted; each record once, or an error.
pub(crate) fn labels(feed: FeedBuilder) -> Result<Vec<i32>, FeedError> {
    let mut labels = Vec::new();
    for batch in feed.build()?.take_lanes()?.remove(0) {
        labels.extend_from_slice(batch?.labels()?);
    }
    labels.sort_unstable();
    Ok(labels)
}

/// What a whole pass delivers.
pub(crate) fn all() -> Vec<i32> {
    (0..i32::try_from(RECORDS).unwrap()).collect()
}

/// Removes what the last run wrote beside the data.
pub(crate) fn remove_sidecars(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("percolator-") {
            fs::remove_file(path).unwrap();
        }
    }
}
