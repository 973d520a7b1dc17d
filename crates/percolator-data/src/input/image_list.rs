//! The files of an image list.

use std::ffi::OsStr;
use std::path::{self, Path};

use percolator::source::{ImageList, Source as _};

use super::{Input, InputError, Item, ItemReader, file_key};

/// The files of a list, as Caffe's `convert_imageset` takes them: each line is a name, a space and a label; a
/// record's key is the number of its line, after the shuffle, and the name.
#[derive(Clone, Debug)]
pub struct ListedImages {
    list: ImageList,
    identity: String,
}

impl ListedImages {
    /// Reads a list. As in Caffe, `root` is prepended to each name without a slash.
    ///
    /// With a seed, the lines are shuffled in the order of Caffe's `shuffle` with a generator of that seed.
    /// Caffe itself takes another seed at each run.
    ///
    /// # Errors
    ///
    /// [`InputError::Source`] if the list cannot be read, is empty, or has an empty line or a label that does
    /// not fit 32 bits.
    pub fn open(list: &Path, root: impl AsRef<OsStr>, shuffle: Option<u32>) -> Result<Self, InputError> {
        let root = root.as_ref();
        let plain = ImageList::open(list)?.root_folder(root);
        // The root need not be a folder, but it leads to other files from another one.
        let base = path::absolute(".").map_err(InputError::io(Path::new("."), "find the folder"))?;
        let identity = format!("{:?}, root {root:?} in {base:?}, shuffled by {shuffle:?}", plain.identity());
        let list = match shuffle {
            Some(seed) => plain.shuffled(seed),
            None => plain,
        };
        Ok(ListedImages { list, identity })
    }
}

impl Input for ListedImages {
    fn path(&self) -> &Path {
        self.list.path()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn items(&self) -> Option<u64> {
        Some(self.list.len() as u64)
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        let from_file = usize::try_from(from).unwrap_or(usize::MAX);
        let files = (from..).zip(self.list.files().skip(from_file));
        Ok(Box::new(files.map(|(number, file)| {
            let key = file_key(number, file.name);
            Ok(Item::File { key, path: file.path, label: file.label })
        })))
    }
}
