//! The files in which a feed's records are stored.

use std::path::{Path, PathBuf};

use percolator::feed::{FeedSpec, SourceSpec};
use percolator::source::{ImageList, SourceError};
use percolator::tfrecord;

use crate::error::MeasureError;

/// This many files of a list stand for all of them.
const LISTED_MAX: usize = 1000;

/// The files of all sources of a feed. Those of a source that a program attaches are not known.
pub(crate) fn files(spec: &FeedSpec) -> Result<Vec<PathBuf>, MeasureError> {
    let mut files = Vec::new();
    for source in &spec.sources {
        files.extend(of_source(source, &spec.root)?);
    }
    Ok(files)
}

fn of_source(source: &SourceSpec, root: &Path) -> Result<Vec<PathBuf>, MeasureError> {
    Ok(match source {
        SourceSpec::Lmdb { path, .. } => {
            let path = root.join(path);
            vec![if path.is_dir() { path.join("data.mdb") } else { path }]
        }
        SourceSpec::LevelDb { path } => tables(root.join(path))?,
        SourceSpec::TfRecord { path, .. } => tfrecord::files(root.join(path)).map_err(SourceError::from)?,
        SourceSpec::ImageList { list, root_folder, .. } => {
            let list = ImageList::open(root.join(list))?.root_folder(root_folder).relative_to(root);
            list.files().take(LISTED_MAX).map(|file| file.path).collect()
        }
        _ => Vec::new(),
    })
}

/// The tables and logs of a LevelDB, ordered by name.
fn tables(folder: PathBuf) -> Result<Vec<PathBuf>, MeasureError> {
    let listed = std::fs::read_dir(&folder).and_then(|files| files.collect::<Result<Vec<_>, _>>());
    let listed =
        listed.map_err(|error| MeasureError::File { path: folder, action: "list the folder", error })?;
    let holds_records = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| matches!(ending, "ldb" | "sst" | "log"))
    };
    let mut files: Vec<_> = listed.iter().map(|file| file.path()).filter(holds_records).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_of_a_feed_are_found_from_its_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["lmdb", "leveldb"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        for name in ["lmdb/data.mdb", "leveldb/000007.ldb", "leveldb/000005.log", "leveldb/CURRENT", "one"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::fs::write(root.join("list"), "a.png 1\nb c.png 0\n").unwrap();
        let list = SourceSpec::ImageList {
            list: "list".into(),
            root_folder: "images/".to_owned(),
            shuffle: false,
            rand_skip: 0,
        };
        let mut spec = FeedSpec::default();
        spec.root = root.to_owned();
        spec.sources = vec![
            SourceSpec::lmdb("lmdb"),
            SourceSpec::lmdb("lmdb/data.mdb"),
            SourceSpec::leveldb("leveldb"),
            SourceSpec::tfrecord("one"),
            list,
        ];
        let due = ["lmdb/data.mdb", "lmdb/data.mdb", "leveldb/000005.log", "leveldb/000007.ldb", "one"];
        let due = due.into_iter().chain(["images/a.png", "images/b c.png"]);
        assert_eq!(files(&spec).unwrap(), due.map(|name| root.join(name)).collect::<Vec<_>>());
        spec.sources = vec![SourceSpec::leveldb("none")];
        let error = files(&spec).unwrap_err().to_string();
        assert!(error.contains("none: cannot list the folder"), "{error}");
    }
}
