//! Detects what a path is, by the names of a folder's files, or by a file's first bytes.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use percolator_files::what::{self, Thing};
use percolator_files::{input_file, shown};
use percolator_tfrecord::{Reader, TfRecordError};

use super::Kind;
use super::error::{OpenError, cannot, unknown};

/// The kind of records that a folder has; `None` if it has a model.
pub(super) fn what_folder(path: &Path) -> Result<Option<Kind>, OpenError> {
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
    for name in ["saved_model.pb", "saved_model.pbtxt", "checkpoint"] {
        if has(name)? {
            return Ok(None);
        }
    }
    let names = fs::read_dir(path).and_then(|entries| entries.map(|at| Ok(at?.file_name())).collect());
    let mut names: Vec<_> = names.map_err(|error| cannot(path, "read the folder", error))?;
    names.sort_unstable();
    if names.is_empty() {
        return Err(unknown(path, "an empty folder"));
    }
    let mut visible = names.iter().filter(|name| !name.as_bytes().starts_with(b"."));
    let files = visible.clone().map(|name| path.join(name)).filter(|file| file.is_file());
    if files.clone().any(|file| ends_with(&file, &[".npy"])) {
        return Ok(None);
    }
    if files.take(FILES_TRIED_MAX).any(|file| is_tfrecord(&file)) {
        return Ok(Some(Kind::TfRecord));
    }
    let first = visible.next().map(|name| format!(", such as {}", shown::path(Path::new(name))));
    let found = format!("a folder of {} other files{}", names.len(), first.unwrap_or_default());
    Err(unknown(path, &found))
}

/// The most files of a folder that are opened to find out what they are.
const FILES_TRIED_MAX: usize = 16;

/// The kind of records that a file has; `None` if it is a model's.
pub(super) fn what_file(path: &Path, bytes: u64) -> Result<Option<Kind>, OpenError> {
    const HEAD_BYTES: u64 = 4096;
    let mut head = Vec::new();
    File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(|error| cannot(path, "read the file", error))?;
    let is_lmdb = || Thing::at(path).is_some_and(|thing| thing.kind() == what::Kind::Lmdb);
    if ends_with(path, &[".mdb"]) || is_lmdb() {
        return Ok(Some(Kind::Lmdb));
    }
    let endings = [".safetensors", ".npz", ".npy", ".index", ".meta", "saved_model.pb", "saved_model.pbtxt"];
    if ends_with(path, &endings)
        || path.file_name().is_some_and(|name| name.to_string_lossy().contains(".data-0"))
    {
        return Ok(None);
    }
    if is_tfrecord(path) {
        return Ok(Some(Kind::TfRecord));
    }
    if is_list(&head) {
        return Ok(Some(Kind::ImageList));
    }
    let start = head[..head.len().min(16)].escape_ascii();
    Err(unknown(path, &format!("a file of {bytes} bytes that begins with \"{start}\"")))
}

/// Whether a file's first record can be a TFRecord's, or its name says that it is.
fn is_tfrecord(path: &Path) -> bool {
    const ENDINGS: [&str; 6] =
        [".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib", ".tfrecords.zlib"];
    let first = Reader::open(path).and_then(|mut reader| Ok(reader.advance()?.is_some()));
    match first {
        Ok(has_record) => has_record || ends_with(path, &ENDINGS),
        // The length was verified, so this is one, and damaged.
        Err(TfRecordError::Data { .. }) => true,
        Err(_) => ends_with(path, &ENDINGS),
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
