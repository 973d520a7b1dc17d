//! The sources of a feed, named or attached, and how they are opened.

use std::path::Path;
use std::sync::Arc;

use super::config::ConfigError;
use super::error::FeedError;
use super::spec::{FeedSpec, SourceSpec};
use crate::source::image_list::ImageList;
use crate::source::joined::Joined;
use crate::source::leveldb::LevelDb;
use crate::source::lmdb::Lmdb;
use crate::source::tfrecord::{Compression, TfRecord};
use crate::source::{Opener, Source, SourceError, WantedFiles};
use crate::transform::{LayerKind, LayerSeeds};
use percolator_files::shown;

/// What changes the order of a source's records.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListOrder {
    pub(super) shuffle: bool,
    pub(super) rand_skip: u32,
}

impl SourceSpec {
    /// Whether it is a list that draws random numbers: to shuffle itself, or to skip lines.
    pub(super) fn is_random(&self) -> bool {
        matches!(self, SourceSpec::ImageList { shuffle, rand_skip, .. } if *shuffle || *rand_skip > 0)
    }

    /// Its order, unless it is already open.
    fn order(&self) -> Option<ListOrder> {
        match *self {
            SourceSpec::Attached { .. } => None,
            SourceSpec::ImageList { shuffle, rand_skip, .. } => Some(ListOrder { shuffle, rand_skip }),
            SourceSpec::Lmdb { .. }
            | SourceSpec::LevelDb { .. }
            | SourceSpec::TfRecord { .. }
            | SourceSpec::Files { .. } => Some(ListOrder { shuffle: false, rand_skip: 0 }),
        }
    }
}

/// The number of these sources that are only named, because a program attaches them.
pub(super) fn only_named(sources: &[SourceSpec]) -> usize {
    sources.iter().filter(|source| matches!(source, SourceSpec::Attached { .. })).count()
}

/// The kind of Caffe layer that reads these sources. Sources added to a net's layer do not change its kind.
pub(super) fn layer_kind(sources: &[SourceSpec]) -> LayerKind {
    match sources.first() {
        Some(SourceSpec::ImageList { shuffle, rand_skip, .. }) => {
            LayerKind::ImageData { shuffles: *shuffle, skips: *rand_skip > 0 }
        }
        _ => LayerKind::Data,
    }
}

/// The order in which these sources are read, if it is known before they are open.
pub(super) fn order(sources: &[SourceSpec]) -> Option<ListOrder> {
    match sources {
        [] => None,
        [source] => source.order(),
        // Each pass has all records of each source.
        sources => {
            let shuffle = sources.iter().filter_map(SourceSpec::order).any(|order| order.shuffle);
            Some(ListOrder { shuffle, rand_skip: 0 })
        }
    }
}

/// How the sources of a feed are opened.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) spec: &'a FeedSpec,
    /// What attaches a source that is only named.
    pub(super) method: &'static str,
    /// Where relative paths start.
    pub(super) root: &'a Path,
    pub(super) seeds: &'a LayerSeeds,
    /// What opens files of other formats.
    pub(super) opener: Option<&'a dyn Opener>,
}

impl Opening<'_> {
    /// Opens these sources as one. `attached` has one for each [`SourceSpec::Attached`], in order.
    pub(super) fn open(
        &self,
        sources: &[SourceSpec],
        attached: &[Arc<dyn Source>],
    ) -> Result<Arc<dyn Source>, FeedError> {
        let mut attached = attached.iter();
        let mut opened = Vec::with_capacity(sources.len());
        for source in sources {
            match source {
                SourceSpec::Attached { path } => {
                    opened.push(attached.next().cloned().ok_or_else(|| {
                        let name = Some(shown::path(path).to_string());
                        ConfigError::NotAttached { what: "source", name, method: self.method }
                    })?);
                }
                SourceSpec::TfRecord { path, compression } => {
                    opened.extend(self.open_tfrecord(path, *compression)?);
                }
                SourceSpec::Files { path, format, settings } => {
                    opened.extend(self.open_files(path, format.as_deref(), settings)?);
                }
                named => opened.push(self.open_named(named)?),
            }
        }
        match opened.len() {
            0 => Err(ConfigError::NoSource.into()),
            1 => Ok(opened.remove(0)),
            _ => Ok(Arc::new(Joined::of(opened))),
        }
    }

    /// Opens the files that a path means.
    fn open_tfrecord(
        &self,
        path: &Path,
        compression: Option<Compression>,
    ) -> Result<Vec<Arc<dyn Source>>, SourceError> {
        let options = TfRecord::options().access(self.spec.access);
        let options = match compression {
            Some(compression) => options.compression(compression),
            None => options,
        };
        Ok(self.as_databases(options.open_each(self.root, path)?))
    }

    /// Has the program's opener open files of another format.
    fn open_files(
        &self,
        path: &Path,
        format: Option<&str>,
        settings: &[(String, String)],
    ) -> Result<Vec<Arc<dyn Source>>, FeedError> {
        let opener = self.opener.ok_or_else(|| ConfigError::NotAttached {
            what: "opener",
            name: Some(shown::path(path).to_string()),
            method: ".opener(...)",
        })?;
        let (access, parts) = (self.spec.access, self.spec.parts_used());
        let root = self.root;
        let wanted = WantedFiles { path, root, format, settings, access, is_confined: false, parts };
        Ok(self.as_databases(opener.open(&wanted)?))
    }

    /// The files that one path means, as one database if the feed is a mixture of databases.
    fn as_databases(&self, files: Vec<Arc<dyn Source>>) -> Vec<Arc<dyn Source>> {
        if files.len() == 1 || self.spec.schedule.mix.is_empty() {
            return files;
        }
        vec![Arc::new(Joined::of(files))]
    }

    fn open_named(&self, source: &SourceSpec) -> Result<Arc<dyn Source>, SourceError> {
        Ok(match source {
            SourceSpec::Lmdb { path, name } => {
                let options = Lmdb::options().access(self.spec.access);
                let options = match name {
                    Some(name) => options.name(name),
                    None => options,
                };
                Arc::new(options.open(self.root.join(path))?)
            }
            SourceSpec::LevelDb { path } => {
                let options = LevelDb::options().access(self.spec.access).log_gaps(self.spec.log_gaps);
                Arc::new(options.open(self.root.join(path))?)
            }
            SourceSpec::ImageList { list, root_folder, shuffle, rand_skip } => {
                let list = ImageList::open(self.root.join(list))?;
                let list = list.root_folder(root_folder).relative_to(self.root);
                let list = match self.seeds.shuffle {
                    Some(seed) if *shuffle => list.shuffled(seed),
                    _ => list,
                };
                Arc::new(match self.seeds.skip {
                    Some(number) if *rand_skip > 0 => list.skipping((number % rand_skip) as usize)?,
                    _ => list,
                })
            }
            SourceSpec::Attached { .. } | SourceSpec::Files { .. } | SourceSpec::TfRecord { .. } => {
                unreachable!("these are opened in their own ways")
            }
        })
    }
}
