//! Detects what a path is, by the names of a folder's files, or by a file's first bytes.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use percolator_files::what::{self, Thing};
use percolator_files::whole_file::kind_of;
use percolator_files::{glob, input_file, shown};
use percolator_tfrecord::{Reader, TfRecordError};

use super::Kind;
use super::error::{OpenError, cannot, known, unknown};
use crate::store::with_ending;

/// The most files of a folder that are opened to find out what they are.
const FILES_TRIED_MAX: usize = 16;

/// The endings of TFRecord files' names.
const TFRECORD: [&str; 6] =
    [".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib", ".tfrecords.zlib"];

impl Kind {
    /// Finds out which kind of records is at a path; `None` if a model's files are there. A relative path
    /// begins at `root`, which is not part of a pattern.
    ///
    /// What may be damaged has the kind that it had, and bytes that nobody knows are taken for a TFRecord
    /// file, so that their reader says what is wrong. A file without a byte is a TFRecord file without a
    /// record.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoDataSet`], or [`OpenError::Io`].
    pub fn at(root: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Option<Self>, OpenError> {
        let path = path.as_ref();
        let at = &root.as_ref().join(path);
        match fs::metadata(at) {
            Ok(found) if found.is_dir() => of_folder(at),
            Ok(found) if found.is_file() => of_file(at),
            Ok(found) => Err(unknown(at, kind_of(found.file_type()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if with_ending(at, ".index").is_file() {
                    return Ok(None);
                }
                if glob::is_pattern(path.as_os_str()) {
                    return Ok(Some(Kind::TfRecord));
                }
                // A link may be there.
                Err(match Thing::at(at) {
                    Some(thing) => known(at, &thing),
                    None => cannot(at, "find it", error),
                })
            }
            Err(error) => Err(cannot(at, "look at it", error)),
        }
    }
}

fn of_folder(path: &Path) -> Result<Option<Kind>, OpenError> {
    let has = |name: &str| {
        let path = path.join(name);
        input_file::is_there(&path).map_err(|error| cannot(&path, "look at it", error))
    };
    if has("data.mdb")? {
        return Ok(Some(Kind::Lmdb));
    }
    if has("CURRENT")? {
        return Ok(Some(Kind::LevelDb));
    }
    // Beside a checkpoint may be summaries, which are TFRecord files.
    for name in ["saved_model.pb", "saved_model.pbtxt", "checkpoint"] {
        if has(name)? {
            return Ok(None);
        }
    }
    let names = fs::read_dir(path).and_then(|entries| entries.map(|at| Ok(at?.file_name())).collect());
    let mut names: Vec<_> = names.map_err(|error| cannot(path, "read the folder", error))?;
    names.sort_unstable();
    let mut visible = names.iter().filter(|name| !name.as_bytes().starts_with(b"."));
    // If one of the records' files is missing, their reader says which.
    let files = percolator_tfrecord::files(path).unwrap_or_else(|_| {
        visible.clone().map(|name| path.join(name)).filter(|file| file.is_file()).collect()
    });
    if files.iter().any(|file| ends_with(file, &[".npy"])) {
        return Ok(None);
    }
    let thing = Thing::at(path);
    if thing.as_ref().is_some_and(|thing| thing.kind() == what::Kind::TfRecord)
        || files
            .iter()
            .take(FILES_TRIED_MAX)
            .any(|file| ends_with(file, &TFRECORD) || has_record(file) == Some(true))
    {
        return Ok(Some(Kind::TfRecord));
    }
    if let Some(thing) = thing {
        return Err(known(path, &thing));
    }
    let first = visible.next().map(|name| format!(", such as {}", shown::path(Path::new(name))));
    Err(unknown(path, &format!("a folder of {} other files{}", names.len(), first.unwrap_or_default())))
}

fn of_file(path: &Path) -> Result<Option<Kind>, OpenError> {
    const HEAD_BYTES: u64 = 4096;
    const MODEL: [&str; 7] =
        [".safetensors", ".npz", ".npy", ".index", ".meta", "saved_model.pb", "saved_model.pbtxt"];

    let mut head = Vec::new();
    input_file::open(path)
        .and_then(|(file, _)| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(|error| cannot(path, "read the file", error))?;
    let thing = Thing::at(path);
    let kind = thing.as_ref().map(Thing::kind);
    if ends_with(path, &[".mdb"]) || kind == Some(what::Kind::Lmdb) {
        return Ok(Some(Kind::Lmdb));
    }
    if ends_with(path, &MODEL)
        || path.file_name().is_some_and(|name| name.to_string_lossy().contains(".data-0"))
    {
        return Ok(None);
    }
    if ends_with(path, &TFRECORD) || has_record(path).is_some() {
        return Ok(Some(Kind::TfRecord));
    }
    if is_list(&head) || kind == Some(what::Kind::List) {
        return Ok(Some(Kind::ImageList));
    }
    match thing {
        Some(thing) if !matches!(thing.kind(), what::Kind::TfRecord | what::Kind::Damaged) => {
            Err(known(path, &thing))
        }
        _ => Ok(Some(Kind::TfRecord)),
    }
}

/// Whether a TFRecord file has a record, even a damaged one; `None` if it is no such file.
fn has_record(path: &Path) -> Option<bool> {
    match Reader::open(path).and_then(|mut reader| Ok(reader.advance()?.is_some())) {
        Ok(has_record) => Some(has_record),
        // The length was verified, or what is damaged is the compressed file.
        Err(TfRecordError::Data { .. } | TfRecordError::Packed { .. }) => Some(true),
        Err(_) => None,
    }
}

/// Whether a file that begins like this is a text whose first line is a name, a space and a number.
fn is_list(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let Some(space) = line.iter().rposition(|&byte| byte == b' ') else { return false };
    let (name, label) = (&line[..space], &line[space + 1..]);
    let is_text = !line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
    let digits = label.strip_prefix(b"-").unwrap_or(label);
    is_text && !name.trim_ascii().is_empty() && digits.first().is_some_and(u8::is_ascii_digit)
}

fn ends_with(path: &Path, endings: &[&str]) -> bool {
    let name = path.as_os_str().as_bytes();
    endings.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_begins_with_a_name_and_a_number() {
        for list in ["\u{feff}cat.jpg 3\n", "cat.jpg 3\n", "a b.png -1\nrest", "a 0", "d/e.jpg 2.5\r\nx 1"] {
            assert!(is_list(list.as_bytes()), "{list:?}");
        }
        for other in ["", "\n", "3", " 3", "cat.jpg x\n", "layer {\n", "a\0b 3\n", "name: \"net\"\n"] {
            assert!(!is_list(other.as_bytes()), "{other:?}");
        }
    }
}
