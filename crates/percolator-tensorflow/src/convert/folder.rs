//! A folder of `.npy` files: one for each tensor, at the path that its name is.
//!
//! The parts of a name between slashes are folders, and the last part is the file's name before `.npy`.
//! Characters that could lead out of the folder, or that cannot be in a file name, are written as `%` and two
//! hexadecimal digits: `%` itself, control characters, the first dot of `.` and `..`, and the last dot of a
//! part that is not the last one and ends with `.npy` (which would be both a folder and a file), or has the
//! name of a temporary folder (which would be skipped, and removed). An empty part is a lone `%`.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use percolator_files::whole_file::temporary_of;

use super::file::InputFile;
use super::npy::{self, Header};
use super::{ConvertError, Format, ModelTensor, new_folder};
use crate::Tensor;

const ENDING: &str = ".npy";
/// The longest name of a file on Linux.
const PART_BYTES_MAX: usize = 255;
/// How many folders are entered one in another.
const DEPTH_MAX: usize = 100;

/// A folder, open for reading.
#[derive(Debug)]
pub(super) struct NpyFolder {
    path: PathBuf,
    arrays: Vec<Array>,
}

#[derive(Debug)]
struct Array {
    path: PathBuf,
    header: Header,
    header_bytes: u64,
}

impl Array {
    fn open(path: PathBuf) -> Result<Self, ConvertError> {
        let (header, header_bytes) = npy::read_header(&InputFile::open(&path)?)?;
        Ok(Array { path, header, header_bytes })
    }

    fn info(&self, name: String) -> ModelTensor {
        ModelTensor { name, data_type: self.header.data_type(), shape: self.header.shape().to_vec() }
    }
}

impl NpyFolder {
    /// Opens all arrays in a folder, and returns what its tensors are, by name. Other files are left alone.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<ModelTensor>), ConvertError> {
        let mut files = Vec::new();
        find(path, 0, &mut |file| {
            files.push(file);
            true
        })?;
        let mut named: HashMap<String, PathBuf> = HashMap::new();
        for file in files {
            let relative = file.strip_prefix(path).unwrap_or(&file);
            let name = name_of(relative).ok_or_else(|| ConvertError::NoFormat {
                path: file.clone(),
                found: "the path is not UTF-8, and tensors' names are".to_owned(),
            })?;
            if let Some(other) = named.get(&name) {
                let (first, second) = (other.to_string_lossy(), file.to_string_lossy());
                return Err(ConvertError::Names(format!(
                    "the tensors {first:?} and {second:?} would both be named {name:?}: rename one of the \
                     files"
                )));
            }
            named.insert(name, file);
        }
        let mut named: Vec<_> = named.into_iter().collect();
        named.sort();
        let mut arrays = Vec::with_capacity(named.len());
        let mut infos = Vec::with_capacity(named.len());
        for (name, file) in named {
            let array = Array::open(file)?;
            infos.push(array.info(name));
            arrays.push(array);
        }
        Ok((NpyFolder { path: path.to_owned(), arrays }, infos))
    }

    /// Opens a single array, which is named as its file.
    pub(super) fn open_file(path: &Path) -> Result<(Self, Vec<ModelTensor>), ConvertError> {
        let array = Array::open(path.to_owned())?;
        let name = path.file_name().and_then(|name| name_of(Path::new(name)));
        let infos = vec![array.info(name.unwrap_or_else(|| "array".to_owned()))];
        Ok((NpyFolder { path: path.to_owned(), arrays: vec![array] }, infos))
    }

    /// The files of the arrays.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.arrays.iter().map(|array| &*array.path)
    }

    /// Reads the tensor at this place of the list that [`open`](Self::open) returned.
    pub(super) fn read(&self, place: usize, info: &ModelTensor) -> Result<Tensor<'static>, ConvertError> {
        let Some(array) = self.arrays.get(place) else {
            let found = "there is no such array".to_owned();
            return Err(ConvertError::NoFormat { path: self.path.clone(), found });
        };
        let file = InputFile::open(&array.path)?;
        if npy::read_header(&file)? != (array.header.clone(), array.header_bytes) {
            let found = "its header is not the one that it had when the model was opened";
            let allowed = "the file has been changed or replaced: start again";
            return Err(file.part(Some(&info.name), 0).damaged(0, found, allowed));
        }
        let data = file.read(None, array.header_bytes..file.length())?;
        array.header.tensor(data, file.part(Some(&info.name), array.header_bytes))
    }
}

/// Whether there is an array in a folder, or in one of its folders.
pub(super) fn has_arrays(path: &Path) -> Result<bool, ConvertError> {
    let is_without = find(path, 0, &mut |_| false)?;
    Ok(!is_without)
}

/// Calls `take` with each array's file in a folder and its folders, until it returns `false`. Links to other
/// folders are refused: they could lead back, and their arrays would be missed. Returns whether to go on.
fn find(folder: &Path, depth: usize, take: &mut impl FnMut(PathBuf) -> bool) -> Result<bool, ConvertError> {
    if depth > DEPTH_MAX {
        let found = format!("it is more than {DEPTH_MAX} folders deep");
        return Err(ConvertError::NoFormat { path: folder.to_owned(), found });
    }
    for entry in fs::read_dir(folder).map_err(ConvertError::read(folder))? {
        let entry = entry.map_err(ConvertError::read(folder))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(ConvertError::read(&path))?;
        if kind.is_symlink() && path.is_dir() {
            let found = "it is a link to a folder, which is not followed: move that folder here".to_owned();
            return Err(ConvertError::NoFormat { path, found });
        }
        let goes_on = match kind.is_dir() {
            // Of what is filled here by another name, or was when its conversion was killed.
            true if new_folder::is_unfinished(&entry)? => true,
            true => find(&path, depth.saturating_add(1), take)?,
            false if path.as_os_str().as_encoded_bytes().ends_with(ENDING.as_bytes()) => take(path),
            false => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the path of a tensor's file in the folder.
pub(super) fn path_of(name: &str) -> Result<PathBuf, ConvertError> {
    let folders = name.matches('/').count();
    if folders > DEPTH_MAX {
        return Err(ConvertError::Unfit {
            tensor: name.to_owned(),
            format: Format::NpyFolder,
            found: format!("its path is {folders} folders deep"),
            remedy: format!("{DEPTH_MAX} are read: rename the tensor"),
        });
    }
    let mut path = PathBuf::new();
    let mut parts = name.split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let mut part = escaped(part, is_last);
        if is_last {
            part.push_str(ENDING);
        }
        if part.len() > PART_BYTES_MAX {
            return Err(ConvertError::Unfit {
                tensor: name.to_owned(),
                format: Format::NpyFolder,
                found: format!("its path has a part of {} bytes", part.len()),
                remedy: format!("file names have at most {PART_BYTES_MAX}: rename the tensor"),
            });
        }
        path.push(part);
    }
    Ok(path)
}

fn escaped(part: &str, is_last: bool) -> String {
    let is_dots = part == "." || part == "..";
    // The last part gets its ending, which makes it a name whatever it is; but dots are clearer escaped.
    let is_reserved = part.ends_with(ENDING) || temporary_of(OsStr::new(part)).is_some();
    let ending_dot = part.rfind('.').filter(|_| !is_last && is_reserved);
    let mut escaped = String::with_capacity(part.len());
    for (at, character) in part.char_indices() {
        let is_odd = character == '%' || character.is_ascii_control();
        if is_odd || (is_dots && at == 0) || ending_dot == Some(at) {
            escaped.push_str(&format!("%{:02X}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    if escaped.is_empty() { "%".to_owned() } else { escaped }
}

/// Returns the name of the tensor whose file is at this path in the folder; `None` if it is not UTF-8.
fn name_of(relative: &Path) -> Option<String> {
    let path = relative.to_str()?;
    let parts = path.strip_suffix(ENDING).unwrap_or(path).split('/').map(unescaped);
    Some(parts.collect::<Vec<_>>().join("/"))
}

/// A part of a name. A `%` that escapes nothing, in a name that others gave, is itself.
fn unescaped(part: &str) -> String {
    if part == "%" {
        return String::new();
    }
    let mut name = String::with_capacity(part.len());
    let mut rest = part;
    while let Some((plain, after)) = rest.split_once('%') {
        name.push_str(plain);
        let code = after.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(u8::is_ascii) {
            Some(code) => {
                name.push(char::from(code));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                name.push('%');
                rest = after;
            }
        }
    }
    name.push_str(rest);
    name
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_paths() {
        for (name, path) in [
            ("layer1/W", "layer1/W.npy"),
            ("net/w/.ATTRIBUTES/VARIABLE_VALUE", "net/w/.ATTRIBUTES/VARIABLE_VALUE.npy"),
            ("../../etc/passwd", "%2E./%2E./etc/passwd.npy"),
            ("/etc/passwd", "%/etc/passwd.npy"),
            ("a//b/", "a/%/b/%.npy"),
            ("", "%.npy"),
            (".", "%2E.npy"),
            ("..", "%2E..npy"),
            ("a.npy", "a.npy.npy"),
            ("a.npy/b", "a%2Enpy/b.npy"),
            ("100%\0\n", "100%25%00%0A.npy"),
            ("ü:0", "ü:0.npy"),
            ("x.0-1-1-1.percolator-partial/w", "x.0-1-1-1%2Epercolator-partial/w.npy"),
            ("x.0-1-1.percolator-partial/w", "x.0-1-1.percolator-partial/w.npy"),
            ("w/x.0-1-1-1.percolator-partial", "w/x.0-1-1-1.percolator-partial.npy"),
        ] {
            assert_eq!(path_of(name).unwrap(), Path::new(path), "{name}");
            assert_eq!(name_of(Path::new(path)).unwrap(), name);
        }
        assert_eq!(name_of(Path::new("100%.npy")).unwrap(), "100%", "a name that others gave");
        assert_eq!(name_of(Path::new("%é%f.npy")).unwrap(), "%é%f");
        let error = path_of(&format!("a/{}", "b".repeat(252))).unwrap_err().to_string();
        assert!(error.contains("a part of 256 bytes"), "{error}");
        path_of(&"/".repeat(100)).unwrap();
        let error = path_of(&"/".repeat(101)).unwrap_err().to_string();
        assert!(error.contains("101 folders deep"), "{error}");
    }

    proptest! {
        #[test]
        fn each_name_has_its_own_path_in_the_folder(name in "[a./%\\x00é]{0,12}|(a|\\.\\.|\\.npy|/){0,6}") {
            let path = path_of(&name).unwrap();
            prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))), "{:?}", path);
            prop_assert_eq!(path.components().count(), name.split('/').count());
            prop_assert_eq!(name_of(&path).unwrap(), name);
        }

        /// No file of one tensor is a folder of another.
        #[test]
        fn no_file_is_a_folder(one in "(a|\\.npy|/|%){0,5}", other in "(a|\\.npy|/|%){0,5}") {
            let (file, path) = (path_of(&one).unwrap(), path_of(&other).unwrap());
            prop_assert!(one == other || !path.starts_with(&file), "{:?} {:?}", file, path);
        }
    }
}
