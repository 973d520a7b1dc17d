//! The data of Caffe's layer `HDF5Data`: a text that lists HDF5 files, whose numbers become F32.
//!
//! Each file that the list names is a shard, in order. Paths end at white space, so they have none, and
//! begin at the working directory, as in Caffe, or at the setting `root`. Tops are data sets of the file's
//! root by their names: the setting `tops` names them in their order, as a net does (`data,label`); without
//! it, all that are [wanted](Options::parts) are read.
//!
//! As in Caffe, it is an error if a top is missing, has no axis, has fewer rows than another, or is neither
//! float nor integer; if the list is empty; and if a file cannot be opened, which Caffe notices only when its
//! turn comes. Rows of another shape in a later file, and files without rows, are refused: Caffe reads memory
//! that is not theirs. What Caffe's version of HDF5 cannot read, such as LZF, is read here.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use percolator_files::{input_file, shown};

use crate::data_set::HEAD_BYTES;
use crate::hdf5::{Hdf5Shard, none_of};
use crate::known_settings::KnownSettings;
use crate::{FormatError, Options, Shard, index_file};

/// The longest list that is read.
const LIST_MAX: u64 = 64 << 20;

/// Whether a file is such a list: a text (`.txt`, `.list`) of nothing but names that end in `.h5` or `.hdf5`.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    let is_named = ["txt", "list"].iter().any(|known| path.extension().is_some_and(|found| found == *known));
    // The last name may go on behind the head.
    let end = match head.len() as u64 >= HEAD_BYTES {
        true => head.iter().rposition(u8::is_ascii_whitespace).unwrap_or_default(),
        false => head.len(),
    };
    let mut names = names(head.get(..end).unwrap_or_default()).peekable();
    is_named && names.peek().is_some() && names.all(is_hdf5)
}

fn is_hdf5(name: &[u8]) -> bool {
    let ending = Path::new(OsStr::from_bytes(name)).extension();
    ending.is_some_and(|ending| ["h5", "hdf5"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The names in a list: what white space separates, as C++ has it.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_white = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    list.split(is_white).filter(|name| !name.is_empty())
}

/// Opens the files that a list names. It has the settings `root`, the folder that relative paths begin at,
/// and `tops`.
///
/// # Errors
///
/// [`FormatError`] if the list is empty, a file cannot be opened, or Caffe would refuse it or could not tell
/// what it reads.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "caffe-hdf5", options, &["root", "tops"])?;
    let tops = match settings.get("tops") {
        None => None,
        Some(tops) => {
            let names: Vec<_> = tops.split(',').map(str::trim).collect();
            if names
                .iter()
                .enumerate()
                .any(|(at, name)| name.is_empty() || names.iter().take(at).any(|n| n == name))
            {
                return Err(settings.refuse("tops", tops, "names with commas between, each once"));
            }
            Some(names)
        }
    };
    let root = settings.get("root").map(Path::new);
    if let (Some(_), Some(root)) = (&options.within, settings.get("root")) {
        return Err(settings.refuse("root", root, "left out: names begin at the folder that is served"));
    }
    let root = options.within.as_deref().or(root);
    let list =
        input_file::read(path, LIST_MAX).map_err(|error| FormatError::io(path, "read the file", error))?;
    let mut shards: Vec<Hdf5Shard> = Vec::new();
    for name in names(&list) {
        let named = Path::new(OsStr::from_bytes(name));
        if options.within.is_some() {
            index_file::below(path, &named.to_string_lossy())?;
        }
        let file = root.map_or_else(|| named.to_owned(), |root| root.join(named));
        check_is_there(path, &file, root)?;
        let shard = open_file(&file, options, tops.as_deref())?;
        if let Some(first) = shards.first() {
            check_alike(first, &shard)?;
        }
        shards.push(shard);
    }
    if shards.is_empty() {
        return Err(FormatError::refused(path, "it lists no HDF5 file, and Caffe needs one at least"));
    }
    Ok(shards.into_iter().map(|shard| Arc::new(shard) as Arc<dyn Shard>).collect())
}

fn open_file(file: &Path, options: &Options, tops: Option<&[&str]>) -> Result<Hdf5Shard, FormatError> {
    let choose = |names: &[String]| match tops {
        Some(tops) => {
            let find = |top: &&str| {
                names.iter().position(|name| name == top && !top.contains('/')).ok_or_else(|| {
                    let what = format!("there is no data set {top}; there are {}", names.join(", "));
                    FormatError::refused(file, what)
                })
            };
            tops.iter().map(find).collect()
        }
        None => {
            let of_root = (0_usize..).zip(names).filter(|(_, name)| !name.contains('/'));
            let wants_none = options.parts.as_ref().is_some_and(Vec::is_empty);
            let wanted = of_root.filter(|(_, name)| wants_none || options.wants(name));
            let wanted: Vec<_> = wanted.map(|(index, _)| index).collect();
            if wanted.is_empty() { Err(FormatError::refused(file, none_of(names))) } else { Ok(wanted) }
        }
    };
    let shard = Hdf5Shard::open(file, options.access, &choose, true)?;
    match shard.rows() {
        0 => Err(FormatError::refused(file, "it has no rows, and Caffe reads memory that it does not have")),
        _ => Ok(shard),
    }
}

/// Says which list names a file that is not there, and where it was looked for.
fn check_is_there(list: &Path, file: &Path, root: Option<&Path>) -> Result<(), FormatError> {
    let error = match input_file::open(file) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let from = match root {
        _ if file.is_absolute() => "",
        Some(_) => "; relative paths begin at the setting root",
        None => "; relative paths begin at the working directory, as in Caffe: set root if it is another one",
    };
    let what = format!("it lists {}, which cannot be opened: {error}{from}", shown::path(file));
    Err(FormatError::refused(list, what))
}

/// Refuses rows of another shape than those of the first file.
fn check_alike(first: &Hdf5Shard, other: &Hdf5Shard) -> Result<(), FormatError> {
    let (due, found) = (first.grammar().description(), other.grammar().description());
    if due == found {
        return Ok(());
    }
    let what = format!(
        "its rows are {found}, and those of {} are {due}: Caffe would read memory that is not theirs; list \
         files with equal rows",
        shown::path(first.path())
    );
    Err(FormatError::refused(other.path(), what))
}
