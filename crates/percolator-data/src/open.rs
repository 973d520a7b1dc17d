//! Finds out what a path is: a data set of which kind, or a model's files.
//!
//! A folder is known by the files in it, a file by its first bytes, and by its name only where the bytes say
//! nothing. What is merely damaged is opened as what it was, so that its own reader says what is wrong.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::glob;
use percolator::leveldb::LogGaps;
use percolator::shown;
use percolator::source::{Access, ImageList, LevelDb, Lmdb, Source, SourceError, TfRecord};
use percolator::tfrecord::{self, TfRecordError};
use serde::Serialize;

/// How the records of a data set are stored.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An LMDB.
    Lmdb,
    /// A LevelDB.
    LevelDb,
    /// One TFRecord file, or several.
    TfRecord,
    /// A text file that lists images and labels.
    ImageList,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lmdb => "LMDB",
            Kind::LevelDb => "LevelDB",
            Kind::TfRecord => "TFRecord",
            Kind::ImageList => "list of images",
        })
    }
}

/// What a path is.
#[derive(Debug)]
pub enum Found {
    /// Records.
    DataSet(DataSet),
    /// A model's files: a checkpoint, a SavedModel, or a file of tensors.
    Model(PathBuf),
}

/// A data set, opened for reading. Nothing in this package writes to it.
#[derive(Clone, Debug)]
pub struct DataSet {
    path: PathBuf,
    kind: Kind,
    /// The sources whose records follow one another: each TFRecord file is one, all other kinds have one.
    sources: Vec<Arc<dyn Source>>,
    /// The same once more if it is a LevelDB, whose keys can be sought.
    leveldb: Option<LevelDb>,
}

/// Why a path cannot be opened as a data set.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there, or it cannot be read.
    #[error("{}: cannot {action}: {error}{hint}", shown::path(path))]
    Io {
        /// The path.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The error.
        error: io::Error,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// Something is there that is no data set.
    #[error(
        "{}: no data set: found {found}; a data set is an LMDB (a folder with data.mdb), a LevelDB (a folder \
         with CURRENT), TFRecord files, or a text file whose lines are an image's name and a label",
        shown::path(path)
    )]
    Unknown {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// A model's files are there, where records are needed.
    #[error(
        "{}: a model's files, which have no records; `percolator inspect` and `percolator model` read them",
        shown::path(path)
    )]
    Model {
        /// The path.
        path: PathBuf,
    },
    /// The data set itself cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// How a data set is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    database: Option<String>,
    root_folder: Option<OsString>,
    access: Access,
    log_gaps: LogGaps,
}

impl OpenOptions {
    /// Reads the database of this name, one of several in an LMDB.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// Prepends this to each name of a list of images, as is: without a slash, as Caffe does.
    #[must_use]
    pub fn root_folder(mut self, root: impl Into<OsString>) -> Self {
        self.root_folder = Some(root.into());
        self
    }

    /// Sets how files are read (default: [`Access::Auto`]).
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets what happens if a LevelDB's logs lack writes (default: they are refused).
    #[must_use]
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.log_gaps = gaps;
        self
    }

    /// Finds out what a path is, and opens it if it has records. A path is a folder, a file, a pattern of
    /// TFRecord files such as `train-*`, or the prefix of a checkpoint's files.
    ///
    /// # Errors
    ///
    /// [`OpenError`], except for [`OpenError::Model`].
    pub fn find(&self, path: impl AsRef<Path>) -> Result<Found, OpenError> {
        let path = path.as_ref();
        let is_model = || Ok(Found::Model(path.to_owned()));
        let kind = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => match what_folder(path)? {
                What::Model => return is_model(),
                What::Records(kind) => kind,
            },
            Ok(metadata) if metadata.is_file() => match what_file(path, metadata.len())? {
                What::Model => return is_model(),
                What::Records(kind) => kind,
            },
            Ok(_) => {
                let found = "something other than a file or a folder".to_owned();
                return Err(OpenError::Unknown { path: path.to_owned(), found });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if with_ending(path, ".index").is_file() {
                    return is_model();
                }
                if !glob::is_pattern(path.as_os_str()) {
                    return Err(cannot(path, "find it", error));
                }
                Kind::TfRecord
            }
            Err(error) => return Err(cannot(path, "look at it", error)),
        };
        self.open_kind(path, kind).map(Found::DataSet)
    }

    /// Opens a path that has records.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<DataSet, OpenError> {
        match self.find(path)? {
            Found::DataSet(data) => Ok(data),
            Found::Model(path) => Err(OpenError::Model { path }),
        }
    }

    /// Opens a path as what it is known to be.
    pub(crate) fn open_kind(&self, path: &Path, kind: Kind) -> Result<DataSet, OpenError> {
        let mut leveldb = None;
        let sources: Vec<Arc<dyn Source>> = match kind {
            Kind::Lmdb => {
                let options = Lmdb::options().access(self.access);
                let options = match &self.database {
                    Some(name) => options.name(name),
                    None => options,
                };
                vec![Arc::new(options.open(path)?)]
            }
            Kind::LevelDb => {
                let opened = LevelDb::options().access(self.access).log_gaps(self.log_gaps).open(path)?;
                leveldb = Some(opened.clone());
                vec![Arc::new(opened)]
            }
            Kind::TfRecord => {
                let options = TfRecord::options().access(self.access);
                let open = |file: PathBuf| Ok(Arc::new(options.open(file)?) as Arc<dyn Source>);
                tfrecord::files(path)?.into_iter().map(open).collect::<Result<_, SourceError>>()?
            }
            Kind::ImageList => {
                let list = ImageList::open(path)?;
                vec![match &self.root_folder {
                    Some(root) => Arc::new(list.root_folder(root)),
                    None => Arc::new(list),
                }]
            }
        };
        Ok(DataSet { path: path.to_owned(), kind, sources, leveldb })
    }
}

impl DataSet {
    /// Opens a path that has records, with all options at their defaults.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        OpenOptions::default().open(path)
    }

    /// The path that it was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its records are stored.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of records, if it is known without reading them.
    #[must_use]
    pub fn records(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.records()).sum()
    }

    /// The sources whose records follow one another.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    /// One of its sources by itself.
    pub(crate) fn only(&self, source: usize) -> Option<DataSet> {
        let sources = vec![Arc::clone(self.sources.get(source)?)];
        Some(DataSet { sources, ..self.clone() })
    }

    pub(crate) fn leveldb(&self) -> Option<&LevelDb> {
        self.leveldb.as_ref()
    }

    /// The bytes of its files, as far as the system tells. Of a list of images, those of the list.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let of_file =
            |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file.len());
        let of_folder = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.filter_map(|entry| of_file(&entry.path())).sum()
        };
        let of_path = |path: &Path| match self.kind {
            // Its lock file is no part of it.
            Kind::Lmdb if path.is_dir() => of_file(&path.join("data.mdb")).unwrap_or(0),
            Kind::LevelDb => of_folder(path),
            _ => of_file(path).unwrap_or(0),
        };
        self.sources.iter().map(|source| of_path(source.path())).sum()
    }
}

/// What a path is, before it is opened.
enum What {
    Records(Kind),
    Model,
}

fn what_folder(path: &Path) -> Result<What, OpenError> {
    let has = |name: &str| fs::symlink_metadata(path.join(name)).is_ok();
    if has("data.mdb") {
        return Ok(What::Records(Kind::Lmdb));
    }
    if has("CURRENT") {
        return Ok(What::Records(Kind::LevelDb));
    }
    if ["saved_model.pb", "saved_model.pbtxt", "checkpoint"].into_iter().any(has) {
        return Ok(What::Model);
    }
    let entries = fs::read_dir(path).map_err(|error| cannot(path, "read the folder", error))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    if names.is_empty() {
        return Err(OpenError::Unknown { path: path.to_owned(), found: "an empty folder".to_owned() });
    }
    let mut visible = names.iter().filter(|name| !name.as_bytes().starts_with(b"."));
    let files = visible.clone().map(|name| path.join(name)).filter(|file| file.is_file());
    if files.clone().any(|file| ends_with(&file, &[".npy"])) {
        return Ok(What::Model);
    }
    if files.take(FILES_TRIED_MAX).any(|file| is_tfrecord(&file)) {
        return Ok(What::Records(Kind::TfRecord));
    }
    let first = visible.next().map(|name| format!(", such as {}", shown::path(Path::new(name))));
    let found = format!("a folder of {} other files{}", names.len(), first.unwrap_or_default());
    Err(OpenError::Unknown { path: path.to_owned(), found })
}

/// The most files of a folder that are opened to find out what they are.
const FILES_TRIED_MAX: usize = 16;

fn what_file(path: &Path, bytes: u64) -> Result<What, OpenError> {
    const HEAD_BYTES: u64 = 4096;
    /// Where an LMDB's first page has its magic number, and that number.
    const LMDB_MAGIC: (std::ops::Range<usize>, [u8; 4]) = (16..20, [0xde, 0xc0, 0xef, 0xbe]);

    let mut head = Vec::new();
    File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(|error| cannot(path, "read the file", error))?;
    if ends_with(path, &[".mdb"]) || head.get(LMDB_MAGIC.0) == Some(&LMDB_MAGIC.1) {
        return Ok(What::Records(Kind::Lmdb));
    }
    let endings = [".safetensors", ".npz", ".npy", ".index", ".meta", "saved_model.pb", "saved_model.pbtxt"];
    if ends_with(path, &endings) || path.to_string_lossy().contains(".data-0") {
        return Ok(What::Model);
    }
    if is_tfrecord(path) {
        return Ok(What::Records(Kind::TfRecord));
    }
    if is_list(&head) {
        return Ok(What::Records(Kind::ImageList));
    }
    let has_beside = |name: &str| path.parent().is_some_and(|folder| folder.join(name).exists());
    let found = match path.file_name() {
        _ if bytes == 0 => "an empty file".to_owned(),
        Some(name) if name != "CURRENT" && has_beside("CURRENT") => {
            "a file of a LevelDB: give its folder".to_owned()
        }
        Some(name) if name == "CURRENT" => "a LevelDB's CURRENT: give its folder".to_owned(),
        Some(name) if name == "lock.mdb" => "an LMDB's lock: give its folder".to_owned(),
        _ => format!(
            "a file of {bytes} bytes that begins with \"{}\"",
            head[..head.len().min(16)].escape_ascii()
        ),
    };
    Err(OpenError::Unknown { path: path.to_owned(), found })
}

/// Whether a file's first record can be a TFRecord's, or its name says that it is.
fn is_tfrecord(path: &Path) -> bool {
    const ENDINGS: [&str; 6] =
        [".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib", ".tfrecords.zlib"];
    let first = TfRecord::open(path).and_then(|file| file.cursor()?.advance().map(|first| first.is_some()));
    match first {
        Ok(has_record) => has_record || ends_with(path, &ENDINGS),
        // The length was verified, so this is one, and damaged.
        Err(SourceError::TfRecord(TfRecordError::Data { .. })) => true,
        Err(_) => ends_with(path, &ENDINGS),
    }
}

/// Whether a file that begins like this is a text whose first line is a name, a space and a number.
fn is_list(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
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

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn cannot(path: &Path, action: &'static str, error: io::Error) -> OpenError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; check the path, and quote a pattern",
        io::ErrorKind::PermissionDenied => "; check the permissions of it and of the folders above it",
        _ => "",
    };
    OpenError::Io { path: path.to_owned(), action, error, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_begins_with_a_name_and_a_number() {
        for list in ["cat.jpg 3\n", "a b.png -1\nrest", "a 0", "d/e.jpg 2.5\r\nx 1"] {
            assert!(is_list(list.as_bytes()), "{list:?}");
        }
        for other in ["", "\n", "3", " 3", "cat.jpg x\n", "layer {\n", "a\0b 3\n", "name: \"net\"\n"] {
            assert!(!is_list(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn what_is_no_data_set_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str| DataSet::open(folder.path().join(name)).unwrap_err().to_string();
        assert!(said("missing").contains("cannot find it: No such file"), "{}", said("missing"));
        assert!(said("").contains("an empty folder"), "{}", said(""));
        fs::write(folder.path().join("empty"), b"").unwrap();
        assert!(said("empty").contains("an empty file"), "{}", said("empty"));
        fs::write(folder.path().join("net.prototxt"), b"name: \"x\"\n").unwrap();
        assert!(said("net.prototxt").contains("begins with \"name: "), "{}", said("net.prototxt"));
        assert!(said("").contains("a folder of 2 other files, such as empty"), "{}", said(""));
        fs::write(folder.path().join("m.index"), b"x").unwrap();
        assert!(said("m").contains("a model's files"), "{}", said("m"));
        assert!(said("none-*").contains("none-*"), "{}", said("none-*"));
    }
}
