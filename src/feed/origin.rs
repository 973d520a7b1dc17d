//! Where a feed's records come from, before it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::image_list::ImageList;
use crate::source::joined::Joined;
use crate::source::leveldb::{LevelDb, LogGaps};
use crate::source::lmdb::Lmdb;
use crate::source::{Access, Source, SourceError};
use crate::transform::{LayerKind, LayerSeeds};

/// How the files of a source are opened that is named.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) access: Access,
    pub(crate) log_gaps: LogGaps,
}

/// A source that is named, or one that is open already.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Opened(Arc<dyn Source>),
    /// The database of a name, or the unnamed one.
    Lmdb(PathBuf, Option<String>),
    LevelDb(PathBuf),
    Files(FileList),
    /// Several, one behind the other.
    Joined(Vec<Origin>),
}

/// A list of image files, as Caffe's `ImageData` layer describes it.
#[derive(Clone, Debug)]
pub(crate) struct FileList {
    pub(crate) list: PathBuf,
    pub(crate) root_folder: String,
    pub(crate) shuffle: bool,
    pub(crate) rand_skip: u32,
}

/// What changes the order of a source's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) shuffle: bool,
    pub(crate) rand_skip: u32,
}

impl Origin {
    /// The kind of layer that reads such a source.
    pub(crate) fn layer_kind(&self) -> LayerKind {
        match self {
            Origin::Files(FileList { shuffle, rand_skip, .. }) => {
                LayerKind::ImageData { shuffles: *shuffle, skips: *rand_skip > 0 }
            }
            // What was added to a net's layer does not make another layer of it.
            Origin::Joined(origins) => origins.first().map_or(LayerKind::Data, Origin::layer_kind),
            _ => LayerKind::Data,
        }
    }

    /// In which order it is read, where it is not open already.
    pub(crate) fn order(&self) -> Option<Order> {
        match self {
            Origin::Opened(_) => None,
            Origin::Lmdb(..) | Origin::LevelDb(_) => Some(Order { shuffle: false, rand_skip: 0 }),
            Origin::Files(files) => Some(Order { shuffle: files.shuffle, rand_skip: files.rand_skip }),
            // Each pass has all records of each.
            Origin::Joined(origins) => {
                let shuffle = origins.iter().filter_map(Origin::order).any(|order| order.shuffle);
                Some(Order { shuffle, rand_skip: 0 })
            }
        }
    }

    /// Opens the source; relative paths begin at `root`.
    pub(crate) fn open(
        &self,
        root: &Path,
        seeds: &LayerSeeds,
        opening: Opening,
    ) -> Result<Arc<dyn Source>, SourceError> {
        Ok(match self {
            Origin::Opened(source) => source.clone(),
            Origin::Lmdb(path, name) => {
                let options = Lmdb::options().access(opening.access);
                let options = match name {
                    Some(name) => options.name(name),
                    None => options,
                };
                Arc::new(options.open(root.join(path))?)
            }
            Origin::LevelDb(path) => {
                let options = LevelDb::options().access(opening.access).log_gaps(opening.log_gaps);
                Arc::new(options.open(root.join(path))?)
            }
            Origin::Files(files) => Arc::new(files.open(root, seeds)?),
            Origin::Joined(origins) => {
                let sources = origins.iter().map(|origin| origin.open(root, seeds, opening));
                Arc::new(Joined::of(sources.collect::<Result<_, _>>()?))
            }
        })
    }
}

impl FileList {
    fn open(&self, root: &Path, seeds: &LayerSeeds) -> Result<ImageList, SourceError> {
        let list = ImageList::open(root.join(&self.list))?.root_folder(&self.root_folder).relative_to(root);
        let list = match seeds.shuffle {
            Some(seed) => list.shuffled(seed),
            None => list,
        };
        match seeds.skip {
            Some(number) if self.rand_skip > 0 => list.skipping((number % self.rand_skip) as usize),
            _ => Ok(list),
        }
    }
}
