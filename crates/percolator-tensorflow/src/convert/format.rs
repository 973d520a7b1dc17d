//! The formats of tensors in files, and how a path determines the format.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percolator_files::what::{self, Thing};

use super::file::InputFile;
use super::{ConvertError, folder, npy, safetensors};
use crate::paths::{folder_of, index_path};
use crate::{DataType, latest_checkpoint};

/// A format of tensors in files.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// TensorFlow's: `PREFIX.index` and `PREFIX.data-?????-of-?????`.
    Checkpoint,
    /// Safetensors.
    Safetensors,
    /// NumPy's archive of arrays.
    Npz,
    /// A single array of NumPy's.
    Npy,
    /// A folder with a `.npy` file for each tensor.
    NpyFolder,
}

const NAMES: [(Format, &str); 5] = [
    (Format::Checkpoint, "checkpoint"),
    (Format::Safetensors, "safetensors"),
    (Format::Npz, "npz"),
    (Format::Npy, "npy"),
    (Format::NpyFolder, "npy-folder"),
];

impl Format {
    /// All formats.
    pub fn all() -> impl Iterator<Item = Format> {
        NAMES.into_iter().map(|(format, _)| format)
    }

    /// Returns the format's name: `checkpoint`, `safetensors`, `npz`, `npy`, `npy-folder`.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.into_iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// Returns the format that the ending of a path tells: `.safetensors`, `.npz`, `.npy`; a path that ends
    /// with a slash is a folder of `.npy` files, and any other a checkpoint's prefix.
    #[must_use]
    pub fn of_target(path: &Path) -> Self {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Format::NpyFolder;
        }
        of_ending(path).unwrap_or(Format::Checkpoint)
    }

    /// Whether files of this format hold elements of this type.
    #[must_use]
    pub fn keeps(self, data_type: DataType) -> bool {
        match self {
            Format::Checkpoint => data_type != DataType::Resource,
            Format::Safetensors => safetensors::is_kept(data_type),
            Format::Npz | Format::Npy | Format::NpyFolder => npy::is_kept(data_type),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Checkpoint => "a checkpoint",
            Format::Safetensors => ".safetensors",
            Format::Npz => ".npz",
            Format::Npy => ".npy",
            Format::NpyFolder => "a folder of .npy files",
        })
    }
}

/// There is no format of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no format; formats are checkpoint, safetensors, npz, npy and npy-folder")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = NAMES.into_iter().find(|(_, known)| *known == name);
        found.map(|(format, _)| format).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

fn of_ending(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "safetensors" => Some(Format::Safetensors),
        "npz" => Some(Format::Npz),
        "npy" => Some(Format::Npy),
        _ => None,
    }
}

/// A path without this text at its end.
fn without_ending(path: &Path, ending: &str) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes().strip_suffix(ending.as_bytes())?;
    (!name.is_empty()).then(|| path.with_file_name(OsStr::from_bytes(name)))
}

/// Where a model's tensors are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) format: Format,
    /// The file, the folder, or the prefix.
    pub(super) path: PathBuf,
    /// The folder of the SavedModel whose variables they are.
    pub(super) saved_model: Option<PathBuf>,
}

impl Found {
    fn new(format: Format, path: impl Into<PathBuf>) -> Self {
        Found { format, path: path.into(), saved_model: None }
    }

    fn checkpoint(prefix: impl Into<PathBuf>) -> Self {
        Found::new(Format::Checkpoint, prefix)
    }

    /// The variables of the SavedModel in a folder.
    fn variables(folder: &Path) -> Self {
        let saved_model = Some(folder.to_owned());
        Found { saved_model, ..Found::checkpoint(folder.join("variables/variables")) }
    }
}

/// Finds the tensors that a path leads to.
///
/// ```text
/// a prefix, PREFIX.index, PREFIX.meta, PREFIX.data-...   the checkpoint
/// a file `checkpoint`, or a folder with one              the latest checkpoint that it names
/// a SavedModel's folder, or its saved_model.pb(txt)      its variables
/// a folder with one .index file                          that checkpoint
/// .safetensors, .npz, .npy, or a file that starts so     the file
/// any other folder with .npy files in it                 these
/// ```
pub(super) fn find(path: &Path) -> Result<Found, ConvertError> {
    if path.is_dir() {
        return in_folder(path);
    }
    // A prefix may also be the name of some file.
    if index_path(path).is_file() {
        return Ok(Found::checkpoint(path));
    }
    let is_there = fs::metadata(path);
    let prefix = [".index", ".meta"].iter().find_map(|ending| without_ending(path, ending));
    if let Some(prefix) = prefix.or_else(|| of_data_file(path)) {
        return Ok(Found::checkpoint(prefix));
    }
    let folder = folder_of(path);
    match path.file_name().and_then(|name| name.to_str()) {
        Some("checkpoint") if is_there.is_ok() => return latest(folder).map(Found::checkpoint),
        Some("saved_model.pb" | "saved_model.pbtxt") => return Ok(Found::variables(folder)),
        _ => {}
    }
    let Some(format) = of_ending(path) else { return sniff(path) };
    is_there.map_err(ConvertError::read(path))?;
    if let Some(thing) = what::instead_of(&[what::Kind::Model, what::Kind::Damaged], path) {
        return Err(ConvertError::NoFormat { path: path.to_owned(), found: format!("it is {thing}") });
    }
    Ok(Found::new(format, path))
}

fn in_folder(path: &Path) -> Result<Found, ConvertError> {
    if ["saved_model.pb", "saved_model.pbtxt"].iter().any(|name| path.join(name).is_file()) {
        return Ok(Found::variables(path));
    }
    if path.join("checkpoint").is_file() {
        return latest(path).map(Found::checkpoint);
    }
    let mut prefixes = Vec::new();
    for entry in fs::read_dir(path).map_err(ConvertError::read(path))? {
        prefixes.extend(without_ending(&entry.map_err(ConvertError::read(path))?.path(), ".index"));
    }
    prefixes.sort();
    // Beside a checkpoint, what cannot be searched is no arrays.
    let has_arrays = match folder::has_arrays(path) {
        Err(error) if prefixes.is_empty() => return Err(error),
        has_arrays => has_arrays.unwrap_or(false),
    };
    let found = match (&prefixes[..], has_arrays) {
        ([prefix], false) => return Ok(Found::checkpoint(prefix.clone())),
        ([], true) => return Ok(Found::new(Format::NpyFolder, path)),
        ([], false) => "the folder has neither a file \"checkpoint\" nor a model's files".to_owned(),
        (_, true) => "the folder has .npy files and a checkpoint: give the checkpoint's prefix".to_owned(),
        ([first, ..], false) => format!(
            "the folder has {} checkpoints and no file \"checkpoint\" that names the latest: give a prefix, \
             such as {}",
            prefixes.len(),
            percolator_files::shown::path(first)
        ),
    };
    Err(ConvertError::NoFormat { path: path.to_owned(), found })
}

/// The prefix of a checkpoint's data file.
fn of_data_file(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (prefix, numbers) = name.rsplit_once(".data-")?;
    let (shard, shards) = numbers.split_once("-of-")?;
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|digit| digit.is_ascii_digit());
    (is_number(shard) && is_number(shards) && !prefix.is_empty()).then(|| path.with_file_name(prefix))
}

/// Tells a file by its first bytes.
fn sniff(path: &Path) -> Result<Found, ConvertError> {
    let no_format =
        |found: &str| Err(ConvertError::NoFormat { path: path.to_owned(), found: found.to_owned() });
    let thing = Thing::at(path);
    if let Some(thing) = thing.as_ref().filter(|thing| thing.kind() != what::Kind::Model) {
        return no_format(&format!("it is {thing}"));
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return no_format("there is no such file, and no checkpoint of this prefix");
        }
        found => found.map_err(ConvertError::read(path))?,
    };
    let file = InputFile::open(path)?;
    let mut front = [0; 9];
    let read = file.read_some(&mut front, 0).map_err(ConvertError::read(path))?;
    let format = match &front[..read] {
        front if front.starts_with(b"\x93NUMPY") => Format::Npy,
        front if front.starts_with(b"PK\x03\x04") || front.starts_with(b"PK\x05\x06") => Format::Npz,
        // The length of a header, and its first character.
        [_, _, _, _, _, 0, 0, 0, b'{'] => Format::Safetensors,
        _ => {
            let known = thing.map(|thing| format!("it is {thing}"));
            return no_format(
                known.as_deref().unwrap_or("neither its name nor its first bytes tell what it is"),
            );
        }
    };
    Ok(Found::new(format, path))
}

/// The latest checkpoint that a folder's file `checkpoint` names.
fn latest(folder: &Path) -> Result<PathBuf, ConvertError> {
    latest_checkpoint(folder)?.ok_or_else(|| ConvertError::NoFormat {
        path: folder.to_owned(),
        found: "its file \"checkpoint\" names no checkpoint".to_owned(),
    })
}
