//! Detects what a path is: a data set and its kind, or a model's files.
//!
//! A folder is recognised by the files in it, a file by its first bytes, and by its name only if the bytes
//! are inconclusive. A damaged data set is opened as what it was, so that its own reader says what is wrong.
//! Feeds of the command ask [`Kind::at`], too: what a path is does not depend on who reads it.

mod error;
mod what;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::leveldb::LogGaps;
use percolator::source::{
    Access, ImageList, LevelDb, Lmdb, Opener, RecordParts, Source, SourceError, TfRecord, WantedFiles,
};
use percolator_files::input_file;
use serde::Serialize;

pub use self::error::OpenError;

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
    /// Data of another library, which an [opener](OpenOptions::opened_by) opens.
    Files,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lmdb => "LMDB",
            Kind::LevelDb => "LevelDB",
            Kind::TfRecord => "TFRecord",
            Kind::ImageList => "list of images",
            Kind::Files => "files",
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
    /// The sources whose records follow one another: each TFRecord file is one, and each shard of another
    /// library's data; all other kinds have one.
    sources: Vec<Arc<dyn Source>>,
    /// The same once more if it is a LevelDB, whose keys can be sought.
    pub(crate) leveldb: Option<LevelDb>,
    /// How it was opened.
    options: OpenOptions,
}

/// How a data set is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    database: Option<String>,
    image_feature: Option<String>,
    root_folder: Option<OsString>,
    access: Access,
    log_gaps: LogGaps,
    foreign: Option<Arc<ForeignFiles>>,
}

/// How data of another library are opened.
#[derive(Clone, Debug)]
struct ForeignFiles {
    opener: Arc<dyn Opener>,
    format: Option<String>,
    settings: Vec<(String, String)>,
}

impl OpenOptions {
    /// Reads the database of this name, one of several in an LMDB.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// Reads the path as data of another library, with the format's settings. If the format is not stated, it
    /// is told by the files. `percolator-formats` has an opener.
    #[must_use]
    pub fn opened_by(
        mut self,
        opener: impl Opener + 'static,
        format: Option<String>,
        settings: Vec<(String, String)>,
    ) -> Self {
        self.foreign = Some(Arc::new(ForeignFiles { opener: Arc::new(opener), format, settings }));
        self
    }

    /// Takes the image of `tf.train.Example`s from the feature of this name, and that of other records from
    /// the part. By default, each feature is an image whose strings begin like JPEG or PNG files; where one
    /// image is wanted, `image/encoded` is it, or the only one. Of parts, the one that its name tells.
    #[must_use]
    pub fn image_feature(mut self, feature: impl Into<String>) -> Self {
        self.image_feature = Some(feature.into());
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
    /// [`OpenError`].
    pub fn find(&self, path: impl AsRef<Path>) -> Result<Found, OpenError> {
        let path = path.as_ref();
        if self.foreign.is_some() {
            return self.open_kind(path, Kind::Files).map(Found::DataSet);
        }
        match Kind::at("", path)? {
            Some(kind) => self.open_kind(path, kind).map(Found::DataSet),
            None => Ok(Found::Model(path.to_owned())),
        }
    }

    /// Opens a path that has records.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<DataSet, OpenError> {
        match self.find(path)? {
            Found::DataSet(data) => Ok(data),
            Found::Model(path) => Err(OpenError::refused(
                &path,
                "a model's files, which have no records; `percolator inspect` and `percolator model` read \
                 them",
            )),
        }
    }

    /// Opens a path as what it is known to be.
    pub(crate) fn open_kind(&self, path: &Path, kind: Kind) -> Result<DataSet, OpenError> {
        self.check_use(path, kind)?;
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
                percolator_tfrecord::files(path)
                    .map_err(SourceError::from)?
                    .into_iter()
                    .map(open)
                    .collect::<Result<_, SourceError>>()?
            }
            Kind::ImageList => {
                let list = ImageList::open(path)?;
                vec![match &self.root_folder {
                    Some(root) => Arc::new(list.root_folder(root)),
                    None => Arc::new(list),
                }]
            }
            Kind::Files => self.open_files(path)?,
        };
        Ok(DataSet { path: path.to_owned(), kind, sources, leveldb, options: self.clone() })
    }

    fn open_files(&self, path: &Path) -> Result<Vec<Arc<dyn Source>>, OpenError> {
        let Some(foreign) = &self.foreign else {
            return Err(OpenError::refused(path, "there is nothing that opens data of other libraries"));
        };
        let ForeignFiles { opener, format, settings } = &**foreign;
        let mut wanted = WantedFiles::at(path);
        wanted.format = format.as_deref();
        wanted.settings = settings;
        wanted.access = self.access;
        Ok(opener.open(&wanted)?)
    }

    /// Checks that a data set of this kind has a use for each option that is given.
    fn check_use(&self, path: &Path, kind: Kind) -> Result<(), OpenError> {
        let is_of_another_kind = [
            (self.database.is_some(), Kind::Lmdb, "the name of a database is for an LMDB"),
            (self.root_folder.is_some(), Kind::ImageList, "a root folder is for a list of images"),
            (self.log_gaps == LogGaps::Allow, Kind::LevelDb, "gaps in logs are those of a LevelDB"),
        ];
        match is_of_another_kind.into_iter().find(|&(is_given, of, _)| is_given && of != kind) {
            Some((_, _, option)) => {
                let message = format!("{option}, and this is of the kind {kind}: leave it out");
                Err(OpenError::refused(path, message))
            }
            None => Ok(()),
        }
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

    /// The name of its database, if it is one of several in an LMDB.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.options.database.as_deref().filter(|_| self.kind == Kind::Lmdb)
    }

    /// The format and its settings as they were stated, if it is of another library.
    pub(crate) fn read_as(&self) -> (Option<&str>, &[(String, String)]) {
        let foreign = self.options.foreign.as_deref().filter(|_| self.kind == Kind::Files);
        foreign.map_or((None, &[]), |files| (files.format.as_deref(), &files.settings))
    }

    /// The feature, or the part, that has the image, if it was stated.
    #[must_use]
    pub fn image_feature(&self) -> Option<&str> {
        self.options.image_feature.as_deref()
    }

    /// What is prepended to each name, if it is a list of images.
    #[must_use]
    pub fn root_folder(&self) -> Option<&OsStr> {
        self.options.root_folder.as_deref().filter(|_| self.kind == Kind::ImageList)
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

    /// What finds the named parts of its records, if they have any.
    #[must_use]
    pub fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        self.sources.first()?.record_parts()
    }

    /// A data set of any source, which counts as an LMDB.
    #[cfg(test)]
    pub(crate) fn of_source(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        let options = OpenOptions::default();
        DataSet { path, kind: Kind::Lmdb, sources: vec![source], leveldb: None, options }
    }

    /// One of its sources by itself.
    pub(crate) fn only(&self, source: usize) -> Option<DataSet> {
        let sources = vec![Arc::clone(self.sources.get(source)?)];
        Some(DataSet { sources, ..self.clone() })
    }

    /// The bytes of its files, as far as the system tells, without their holes. Of a list of images, those of
    /// the list.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let of_file = |path: &Path| match fs::metadata(path).ok()?.is_file() {
            true => input_file::data_bytes(path).ok(),
            false => None,
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_data_set_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str| DataSet::open(folder.path().join(name)).unwrap_err().to_string();
        let missing = fs::metadata(folder.path().join("missing")).unwrap_err();
        assert!(said("missing").contains(&format!("cannot find it: {missing}")), "{}", said("missing"));
        assert!(said("").contains("an empty folder"), "{}", said(""));
        fs::write(folder.path().join("empty"), b"").unwrap();
        fs::write(folder.path().join("net.prototxt"), b"name: \"x\"\n").unwrap();
        assert!(
            said("net.prototxt").contains("a text that begins with \"name: "),
            "{}",
            said("net.prototxt")
        );
        assert!(said("").contains("a folder of 2 other files, such as empty"), "{}", said(""));
        fs::write(folder.path().join("m.index"), b"x").unwrap();
        assert!(said("m").contains("a model's files"), "{}", said("m"));
        assert!(said("none-*").contains("none-*"), "{}", said("none-*"));
        assert!(said("net.prototxt/x").contains("cannot look at it"), "{}", said("net.prototxt/x"));
    }

    #[test]
    fn a_path_has_one_kind_whoever_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("r[1]");
        let put = |name: &str, bytes: &[u8]| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let mut record = Vec::new();
        percolator_tfrecord::write_record(&mut record, b"record").unwrap();
        put("lmdb/data.mdb", b"");
        put("leveldb/CURRENT", b"");
        put("list", b"cat.jpg 3\n");
        put("latin", b"k\xe4tzchen.jpg 3\n");
        put("empty", b"");
        put("unknown", b"\xfe\x01\x02\xff");
        put("packed", b"\x1f\x8b\x08\0");
        put("many/z", &record);
        (0..20).for_each(|number| put(&format!("many/{number:02}.json"), b"{}"));
        put("some/part-00001-of-00002", &record);
        put("named/a.tfrecord-00000-of-00001", b"\xfe\x01\x02\xff");
        put("run/checkpoint", b"");
        put("run/events.out.tfevents.1", &record);
        put("arrays/a.npy", b"");
        put("x.index", b"");
        let kinds = [
            ("lmdb", Some(Kind::Lmdb)),
            ("lmdb/data.mdb", Some(Kind::Lmdb)),
            ("leveldb", Some(Kind::LevelDb)),
            ("list", Some(Kind::ImageList)),
            ("latin", Some(Kind::ImageList)),
            ("empty", Some(Kind::TfRecord)),
            ("unknown", Some(Kind::TfRecord)),
            ("packed", Some(Kind::TfRecord)),
            ("many", Some(Kind::TfRecord)),
            ("some", Some(Kind::TfRecord)),
            ("named", Some(Kind::TfRecord)),
            ("none-*", Some(Kind::TfRecord)),
            ("run", None),
            ("arrays", None),
            ("x", None),
        ];
        for (path, due) in kinds {
            assert_eq!(Kind::at(&root, path).unwrap(), due, "{path}");
        }
        // The root is not part of a pattern.
        let error = Kind::at(&root, "none").unwrap_err().to_string();
        assert!(error.contains("r[1]/none: cannot find it: "), "{error}");
        put("photos/1.jpg", b"");
        std::os::unix::fs::symlink("gone", root.join("link")).unwrap();
        for (path, due) in [
            ("photos", "photos: no data set: it is a folder of images: make a data set of them"),
            ("link", "link: no data set: it is a link to gone, where nothing is"),
        ] {
            let error = Kind::at(&root, path).unwrap_err();
            assert!(
                matches!(error, OpenError::NoDataSet { .. }) && error.to_string().contains(due),
                "{error}"
            );
        }
    }
}
