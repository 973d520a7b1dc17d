//! What a folder is, by the names in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{COPY, Kind, Thing, UNREAD, read_as_it_is};
use crate::shown;

/// The endings of images' names.
pub(super) const IMAGE_ENDINGS: [&str; 9] =
    ["jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff", "jpe"];

/// What to do about a RocksDB.
pub(super) const ROCKSDB: &str =
    "nothing here reads it: write its records to an LMDB or a LevelDB with a program that uses RocksDB";

/// The most names that are read.
const NAMES_MAX: usize = 4096;
/// The most folders in a folder that are looked into.
const FOLDERS_MAX: usize = 16;

pub(super) fn what(path: &Path) -> Option<Thing> {
    // A folder may have more names than are read, or let nobody list them.
    let has = |wanted: &str| path.join(wanted).symlink_metadata().is_ok();
    if has("data.mdb") {
        return Thing::new(Kind::Lmdb, "an LMDB", "");
    }
    if has("CURRENT") {
        return match is_rocksdb(path) {
            true => Thing::new(Kind::Other, "a RocksDB, which is no LevelDB", ROCKSDB),
            false => Thing::new(Kind::LevelDb, "a LevelDB", ""),
        };
    }
    if has("lock.mdb") {
        return Thing::new(Kind::Other, "an LMDB's folder without its data.mdb", COPY);
    }
    let names = names(path)?;
    if names.is_empty() {
        return Thing::new(Kind::Other, "an empty folder", "check the path, or copy it again");
    }
    let ends = |ending: &str| names.iter().any(|name| name.as_bytes().ends_with(ending.as_bytes()));
    let begins = |start: &str| names.iter().any(|name| name.as_bytes().starts_with(start.as_bytes()));
    if begins("MANIFEST-") || ends(".ldb") {
        return Thing::new(Kind::Other, "a LevelDB's folder without its CURRENT", COPY);
    }
    if has("saved_model.pb") || has("saved_model.pbtxt") {
        return Thing::new(Kind::Model, "a SavedModel", "");
    }
    if has("checkpoint") || ends(".index") && names.iter().any(|name| is_bundle_data(name)) {
        return Thing::new(Kind::Model, "a folder of TensorFlow's checkpoints", "");
    }
    if names.iter().any(|name| is_tfrecord(name)) {
        return Thing::new(Kind::TfRecord, "a folder of TFRecord files", "");
    }
    inner(path, &names).or_else(|| of_files(path, &names))
}

/// The names that are not hidden, in the order of their bytes.
fn names(path: &Path) -> Option<Vec<OsString>> {
    let mut names: Vec<OsString> = fs::read_dir(path)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| !name.as_bytes().starts_with(b"."))
        .take(NAMES_MAX)
        .collect();
    names.sort_unstable();
    Some(names)
}

/// What is in the folders of a folder.
fn inner(path: &Path, names: &[OsString]) -> Option<Thing> {
    let folders = names.iter().map(|name| path.join(name)).filter(|path| path.is_dir());
    let folders: Vec<_> = folders.take(FOLDERS_MAX).collect();
    if !folders.is_empty() && folders.iter().all(|folder| has_images(folder)) {
        return Thing::new(Kind::Classes, "a folder with a folder of images for each class", "");
    }
    let deeper = folders.iter().find(|folder| {
        folder.join("data.mdb").is_file()
            || folder.join("CURRENT").is_file()
            || self::names(folder).is_some_and(|names| names.iter().any(|name| is_tfrecord(name)))
    })?;
    let name = shown::path(Path::new(deeper.file_name()?)).to_string();
    let remedy = format!("give the path of {name}, or of another one");
    Thing::new(Kind::Other, format!("a folder with data sets in its folders, such as {name}"), remedy)
}

/// Files of one kind.
fn of_files(path: &Path, names: &[OsString]) -> Option<Thing> {
    const LIST: &str = "make a data set of them (percolator convert), or list them with their labels in a \
                        text file, a name, a space and a label on each line";

    if has_images(path) {
        return Thing::new(Kind::Other, "a folder of images", LIST);
    }
    let kinds = [
        ("parquet", "a folder of Parquet files", UNREAD),
        ("arrow", "a folder of Arrow files, as Hugging Face's datasets are", UNREAD),
        ("tar", "a folder of tar archives, as WebDataset's are", "unpack them, and give what is in them"),
        ("rec", "a folder of RecordIO files", UNREAD),
        ("h5", "a folder of HDF5 files", read_as_it_is()),
        ("hdf5", "a folder of HDF5 files", read_as_it_is()),
    ];
    let has = |ending: &str| names.iter().any(|name| ending_of(name).as_deref() == Some(ending));
    let &(_, what, remedy) = kinds.iter().find(|(ending, ..)| has(ending))?;
    Thing::new(Kind::Other, what, remedy)
}

/// Whether a folder with a CURRENT is a RocksDB, which keeps files beside it that a LevelDB does not have.
pub(super) fn is_rocksdb(folder: &Path) -> bool {
    let has_options = || {
        names(folder).is_some_and(|names| names.iter().any(|name| name.as_bytes().starts_with(b"OPTIONS-")))
    };
    folder.join("IDENTITY").is_file() || has_options()
}

fn has_images(folder: &Path) -> bool {
    names(folder).is_some_and(|names| {
        names.iter().any(|name| ending_of(name).is_some_and(|ending| IMAGE_ENDINGS.contains(&&*ending)))
    })
}

fn ending_of(name: &OsStr) -> Option<String> {
    Some(Path::new(name).extension()?.to_str()?.to_ascii_lowercase())
}

fn is_bundle_data(name: &OsStr) -> bool {
    name.to_string_lossy().contains(".data-0")
}

fn is_tfrecord(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.contains(".tfrecord") && !name.ends_with(".idx") && !name.ends_with(".index")
}
