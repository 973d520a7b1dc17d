//! A feed that is described by arguments, as what is measured: by `bench`, and by `doctor`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use percolator::leveldb::LogGaps;
use percolator::net::LayerSource;
use percolator::source::{ImageList, LevelDb, Lmdb, Source, SourceError, TfRecord};
use percolator::tfrecord;

use percolator::FeedBuilder;
use percolator_measure::{Job, Open};

use crate::args::{Described, Origin};
use crate::pipeline::PipelineArgs;

/// This many files of a list stand for all of them.
const LISTED_MAX: usize = 1000;

/// A job of the source that was described, and the feed that was made of it. Limits are measured with the
/// files of the first of several sources.
pub(super) fn job(
    described: Described,
    feed: FeedBuilder,
    pipeline: &PipelineArgs,
    database: Option<String>,
    is_of_datums: bool,
) -> anyhow::Result<Job> {
    let Described { source, root, color, has_labels, .. } = described;
    let files = files(&source, &root)?;
    let open = move || open(&source, &root, database.as_deref());
    Ok(Job {
        feed,
        files,
        datums: is_of_datums.then(|| Box::new(open) as Open),
        has_labels,
        color,
        threads: pipeline.threads(),
        is_cold: false,
        step: Duration::ZERO,
        place: pipeline.transform_on.place(),
    })
}

/// Opens a source apart from any feed. If it must not be read, the feed refuses it.
fn open(origin: &Origin, root: &Path, database: Option<&str>) -> Result<Box<dyn Source>, SourceError> {
    let source = match origin {
        Origin::Layer(source) => source,
        Origin::TfRecord(path) => return Ok(Box::new(TfRecord::options().open_all([root.join(path)])?)),
    };
    Ok(match source {
        LayerSource::Lmdb { path } => {
            let options = Lmdb::options();
            let options = database.iter().fold(options, |options, name| options.name(*name));
            Box::new(options.open(root.join(path))?)
        }
        LayerSource::LevelDb { path } => Box::new(LevelDb::open_with(root.join(path), LogGaps::Allow)?),
        LayerSource::ImageList { list, root_folder, .. } => {
            Box::new(ImageList::open(root.join(list))?.root_folder(root_folder).relative_to(root))
        }
    })
}

/// The files that a source's records are stored in, ordered by name.
fn files(origin: &Origin, root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let source = match origin {
        Origin::Layer(source) => source,
        Origin::TfRecord(path) => return Ok(tfrecord::files(root.join(path))?),
    };
    match source {
        LayerSource::Lmdb { path } => {
            let path = root.join(path);
            Ok(vec![if path.is_dir() { path.join("data.mdb") } else { path }])
        }
        LayerSource::LevelDb { path } => tables(&root.join(path)),
        LayerSource::ImageList { root_folder, .. } => {
            let mut files = Vec::new();
            let source = open(origin, root, None)?;
            let mut cursor = source.cursor()?;
            while let Some(entry) = cursor.advance()?.filter(|_| files.len() < LISTED_MAX) {
                let name = [root_folder.as_bytes(), entry.key()].concat();
                files.push(root.join(std::ffi::OsStr::from_bytes(&name)));
            }
            Ok(files)
        }
    }
}

fn tables(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(folder).and_then(|files| files.collect::<Result<Vec<_>, _>>());
    let listed = listed.with_context(|| format!("cannot list {}", folder.display()))?;
    let holds_records = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| matches!(ending, "ldb" | "sst" | "log"))
    };
    let mut files: Vec<_> = listed.iter().map(|file| file.path()).filter(holds_records).collect();
    files.sort();
    Ok(files)
}
