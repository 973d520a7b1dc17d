//! Where records come from: lists and folders of image files, the files of MNIST and CIFAR, other stores.
//!
//! An [`Input`] has items in a fixed order, each of which becomes one record or is skipped. If an item is
//! made from a file, it only names it: the conversion's workers read files and decode images.

mod cifar;
mod class_folders;
mod error;
mod identity;
mod idx;
mod image_list;
mod read;
mod records;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::source::RecordParts;

pub use self::cifar::{Cifar, CifarKind, CifarLabel, CifarSplit};
pub use self::class_folders::ClassFolders;
pub use self::error::InputError;
pub use self::idx::Idx;
pub use self::image_list::ListedImages;
pub use self::records::Records;

pub(crate) use self::read::read_file;

/// What a record is made from.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An image file.
    File {
        /// The record's key.
        key: Vec<u8>,
        /// Where the file is.
        path: PathBuf,
        /// The image's label.
        label: i32,
    },
    /// An image that is not encoded.
    Pixels {
        /// The record's key.
        key: Vec<u8>,
        /// Channels, rows and columns.
        shape: [u16; 3],
        /// A byte for each pixel and channel: a plane for each channel.
        pixels: Vec<u8>,
        /// The image's label.
        label: i32,
    },
    /// A record of another store.
    Record {
        /// The record's key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// A record of another store that cannot be read. It is skipped.
    Unreadable {
        /// The record's key; empty if it is not known.
        key: Vec<u8>,
        /// Why it cannot be read.
        reason: String,
    },
}

impl Item {
    /// The key of the record.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Item::File { key, .. }
            | Item::Pixels { key, .. }
            | Item::Record { key, .. }
            | Item::Unreadable { key, .. } => key,
        }
    }

    /// About how many bytes of work it is.
    pub(crate) fn weight(&self) -> usize {
        /// An image file of usual size.
        const FILE_BYTES: usize = 64 << 10;

        match self {
            Item::File { .. } => FILE_BYTES,
            Item::Pixels { pixels: bytes, .. } | Item::Record { value: bytes, .. } => bytes.len(),
            Item::Unreadable { .. } => 0,
        }
    }
}

/// A source of items, which are the same in the same order whenever it is read.
pub trait Input: Send + Sync + fmt::Debug {
    /// The path that names it in messages.
    fn path(&self) -> &Path;

    /// What it reads, as far as an output could replace it: files, or whole folders.
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    /// How it is recognised when a conversion is resumed: facts that differ if its items do.
    fn identity(&self) -> String;

    /// What finds the named parts in the values of its [records](Item::Record), if they have any.
    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        None
    }

    /// The number of items, if it is known without reading them.
    fn items(&self) -> Option<u64>;

    /// Counts the items, and checks now and then whether to end.
    ///
    /// # Errors
    ///
    /// [`InputError`] if they cannot be read, or it was told to end.
    fn count(&self, is_stopped: &dyn Fn() -> bool) -> Result<u64, InputError> {
        match self.items() {
            Some(items) => Ok(items),
            None => {
                let mut items = 0;
                for item in self.reader(0)? {
                    item?;
                    items += 1;
                    if is_stopped() {
                        return Err(InputError::Stopped);
                    }
                }
                Ok(items)
            }
        }
    }

    /// Reads the items from number `from` on, counted from 0.
    ///
    /// # Errors
    ///
    /// [`InputError`] if they cannot be read.
    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError>;

    /// Does the same, and checks now and then whether to end. An input that has to skip the earlier items
    /// implements it.
    ///
    /// # Errors
    ///
    /// [`InputError`] if they cannot be read, or it was told to end.
    fn reader_unless_stopped(
        &self,
        from: u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<ItemReader<'_>, InputError> {
        if is_stopped() { Err(InputError::Stopped) } else { self.reader(from) }
    }

    /// The names of the classes whose numbers the labels are, if it has any.
    fn classes(&self) -> Option<&[Vec<u8>]> {
        None
    }
}

/// Reads items one after another. It stays on the thread that created it. Reading ends at the first error.
pub type ItemReader<'a> = Box<dyn Iterator<Item = Result<Item, InputError>> + 'a>;

/// The key that Caffe's `convert_imageset` gives to a file.
fn file_key(number: u64, name: &[u8]) -> Vec<u8> {
    [format!("{number:08}_").as_bytes(), name].concat()
}
