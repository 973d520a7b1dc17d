//! What to read, by its path: a net, or databases.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use percolator::feed::SourceSpec;
use percolator::{FeedBuilder, Net, Transform};
use percolator_data::{Kind, OpenError};
use percolator_files::what::{self, Thing};
use percolator_files::{input_file, shown};

use crate::args::described::Described;
use crate::args::formats::FormatArgs;
use crate::args::{OpenArgs, StateArgs, TransformArgs, with};
use crate::terminal::out::tell;

/// The arguments that say what to read.
pub(crate) const WHAT_TO_READ: [&str; 5] = ["paths", "net", "lmdb", "leveldb", "tfrecord"];

/// What to read, as given.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// A Caffe net (a .prototxt or a .caffemodel), whose data layer is read, or data: an LMDB, a LevelDB,
    /// TFRecord files (a file, a folder, or a quoted pattern such as 'train-*'), or data of another library:
    /// tar, Parquet, Arrow, JSON lines, MDS, LitData, RecordIO, NPY, HDF5 and more. Several of them are one
    /// data set, in this order.
    #[arg(value_name = "PATH", required_unless_present_any = ["net", "lmdb", "leveldb", "tfrecord"])]
    paths: Vec<PathBuf>,
    /// Read this file as a net, whatever it looks like.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "lmdb", "leveldb", "tfrecord"])]
    net: Option<PathBuf>,
    /// Read this path as an LMDB.
    #[arg(long, value_name = "PATH", hide = true)]
    lmdb: Vec<PathBuf>,
    /// Read this path as a LevelDB.
    #[arg(long, value_name = "PATH", hide = true)]
    leveldb: Vec<PathBuf>,
    /// Read this path as TFRecord files.
    #[arg(long, value_name = "PATH", hide = true)]
    tfrecord: Vec<PathBuf>,
    #[command(flatten)]
    formats: FormatArgs,
}

/// What is read.
#[derive(Debug)]
pub(crate) enum Source {
    /// A net, whose data layer says what is read.
    Net(PathBuf),
    /// Databases whose records follow one another.
    Databases {
        databases: Vec<Database>,
        /// How those of other libraries are read.
        formats: FormatArgs,
    },
}

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) format: Format,
    /// The path, as given.
    pub(crate) path: PathBuf,
}

/// How records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Lmdb,
    LevelDb,
    TfRecord,
    /// As another library stores them.
    Other,
}

impl SourceArgs {
    /// Whether there is a source.
    pub(crate) fn is_given(&self) -> bool {
        let SourceArgs { paths, net, lmdb, leveldb, tfrecord, formats: _ } = self;
        net.is_some() || [paths, lmdb, leveldb, tfrecord].iter().any(|paths| !paths.is_empty())
    }

    /// What the paths are. Those of data are relative to `root`; a net must be alone. Unless this is to be
    /// quiet, options that are no longer needed are named.
    pub(crate) fn found(&self, root: &Path, is_quiet: bool) -> anyhow::Result<Source> {
        if let Some(net) = &self.net {
            return Ok(Source::Net(net.clone()));
        }
        let former = [
            ("--lmdb", &self.lmdb, Format::Lmdb),
            ("--leveldb", &self.leveldb, Format::LevelDb),
            ("--tfrecord", &self.tfrecord, Format::TfRecord),
        ];
        let is_alone = self.paths.len() == 1 && former.iter().all(|(_, paths, _)| paths.is_empty());
        let mut databases = Vec::new();
        for path in &self.paths {
            if self.formats.can_be_fed(&root.join(path)) {
                databases.push(Database { format: Format::Other, path: path.clone() });
                continue;
            }
            match net_of(path, root) {
                None => databases.push(Database { format: format_of(path, root)?, path: path.clone() }),
                Some(net) if is_alone => return Ok(Source::Net(net)),
                Some(net) => {
                    let net = shown::path(&net);
                    bail!("{net}: a net cannot be combined with other data sets: give it alone");
                }
            }
        }
        for (option, paths, format) in former {
            if !paths.is_empty() && !is_quiet {
                tell(&format!("note: {option} PATH is now just PATH"));
            }
            databases.extend(paths.iter().map(|path| Database { format, path: path.clone() }));
        }
        Ok(Source::Databases { databases, formats: self.formats.clone() })
    }
}

/// The net that a path means, if it is one. What is below the root goes before a net beside it.
fn net_of(path: &Path, root: &Path) -> Option<PathBuf> {
    let at = root.join(path);
    // What is wrong with one that cannot be read is said by its own reader.
    let is_named_so = is_named(path, "prototxt") || is_named(path, "caffemodel");
    if is_named_so && !at.is_dir() && !path.is_dir() {
        return Some(path.to_owned());
    }
    Some(if at.exists() { at } else { path.to_owned() }).filter(|file| is_net(file))
}

fn is_named(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

/// Whether a file is a net by what is in it. An empty one may be, too, but has nothing to read then.
fn is_net(path: &Path) -> bool {
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return false;
    }
    match Thing::at(path).map(|thing| thing.kind()) {
        Some(what::Kind::Net) => true,
        Some(what::Kind::Text) => Net::open(path).is_ok(),
        None => may_begin_net(path) && Net::open(path).is_ok(),
        Some(_) => false,
    }
}

/// Whether an unknown file is worth reading whole, by its first bytes: a comment, or the tag of a field of
/// NetParameter.
fn may_begin_net(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = input_file::open(path).and_then(|(file, _)| file.take(2).read_to_end(&mut head));
    let is_tag =
        matches!(*head, [0x0a | 0x12 | 0x1a | 0x20 | 0x22 | 0x28 | 0x32 | 0x38 | 0x42, ..] | [0xa2, 6]);
    read.is_ok() && (is_tag || head.starts_with(b"#"))
}

/// How the records at a path are stored.
fn format_of(path: &Path, root: &Path) -> anyhow::Result<Format> {
    let at = root.join(path);
    let (found, is_known) = match Kind::at(root, path) {
        Ok(Some(Kind::Lmdb)) => return Ok(Format::Lmdb),
        Ok(Some(Kind::LevelDb)) => return Ok(Format::LevelDb),
        Ok(Some(Kind::TfRecord)) => return Ok(Format::TfRecord),
        Ok(kind) => match Thing::at(&at) {
            Some(thing) => (format!("it is {thing}"), true),
            None if kind.is_none() => ("found a model's files".to_owned(), false),
            None => ("found a list of images".to_owned(), false),
        },
        Err(OpenError::NoDataSet { found, hint, .. }) => (found, hint.is_empty()),
        Err(error) => return Err(error.into()),
    };
    let hint = if is_known { "" } else { "; give a net, an LMDB, a LevelDB, or TFRecord files" };
    bail!("{}: neither a net nor data that can be fed: {found}{hint}", shown::path(&at))
}

impl Source {
    pub(crate) fn is_net(&self) -> bool {
        matches!(self, Source::Net(_))
    }

    /// The databases: none if it is a net.
    fn databases(&self) -> &[Database] {
        match self {
            Source::Net(_) => &[],
            Source::Databases { databases, .. } => databases,
        }
    }

    /// Checks that a file that is to be written would not be taken for one of the TFRecord files.
    pub(crate) fn check_output(&self, file: &Path, root: &Path) -> anyhow::Result<()> {
        let mut files = self.databases().iter().filter(|data| data.format == Format::TfRecord);
        let data = files.find(|data| percolator_tfrecord::is_among(file, root, &data.path));
        match data.map(|data| [file, &data.path].map(shown::path)) {
            None => Ok(()),
            Some([file, data]) => {
                bail!("{file} would be one of the files of the data set {data}: give another path")
            }
        }
    }

    /// Checks that no option is given that says how to open what is not there.
    pub(crate) fn check_open(&self, open: &OpenArgs) -> anyhow::Result<()> {
        let data = self.databases();
        let are_lmdbs = !data.is_empty() && data.iter().all(|data| data.format == Format::Lmdb);
        let has_leveldb = data.iter().any(|data| data.format == Format::LevelDb);
        open.check_use(are_lmdbs, self.is_net() || has_leveldb)
    }

    /// Checks that options that a net has no use for are not given with one.
    pub(crate) fn check_net(&self, options: &str, are_given: bool) -> anyhow::Result<()> {
        match self {
            Source::Net(net) if are_given => {
                bail!("{options} cannot be used with a net: {}", shown::path(net))
            }
            _ => Ok(()),
        }
    }

    /// Describes the feed that the arguments select.
    pub(crate) fn describe(&self, state: &StateArgs, transform: &TransformArgs) -> anyhow::Result<Described> {
        state.check_use(self)?;
        self.check_net("options of a transform, such as --crop,", transform.is_given())?;
        let mut described = match self {
            Source::Net(path) if path.is_dir() => bail!(
                "{}: a net is a file, and this is a folder: give a folder of data without --net",
                shown::path(path)
            ),
            Source::Net(path) => state.layer_of(&Net::open(path)?, path)?,
            Source::Databases { databases, formats } => {
                let name = &state.open.database;
                Described::of_sources(databases.iter().map(|Database { format, path }| match format {
                    Format::Lmdb => SourceSpec::Lmdb { path: path.clone(), name: name.clone() },
                    Format::LevelDb => SourceSpec::leveldb(path),
                    Format::TfRecord => SourceSpec::tfrecord(path),
                    Format::Other => formats.spec_of(path),
                }))?
            }
        };
        if !self.is_net() {
            described.feed = described
                .feed
                .phase(state.phase())
                .transform(transform.or(transform.mean(Transform::new()))?);
        }
        let feed = with(described.feed, state.root.as_ref(), FeedBuilder::root);
        let feed = feed.access(state.open.access()).log_gaps(state.open.log_gaps());
        Ok(Described { feed, ..described })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        source: SourceArgs,
    }

    /// What the words after the command's name are.
    fn found(root: &Path, words: &[&str]) -> Result<String, String> {
        let words = std::iter::once("percolator").chain(words.iter().copied());
        let source = Command::try_parse_from(words).map_err(|error| error.to_string())?.source;
        let source = source.found(root, true).map_err(|error| error.to_string())?;
        Ok(match &source {
            Source::Net(path) => format!("net {}", path.display()),
            Source::Databases { databases: data, .. } => {
                let one = |data: &Database| format!("{:?} {}", data.format, data.path.display());
                data.iter().map(one).collect::<Vec<_>>().join(", ")
            }
        })
    }

    #[test]
    fn a_path_is_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let put = |name: &str, bytes: &[u8]| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), bytes).unwrap();
        };
        put("lmdb/data.mdb", b"");
        put("leveldb/CURRENT", b"");
        put("empty", b"");
        put("cats/list", b"cat.jpg 3\n");
        let mut record = Vec::new();
        percolator_tfrecord::write_record(&mut record, b"record").unwrap();
        put("records/part-0", &record);
        put("mixed/part-0", &record);
        put("mixed/thumbs/a.jpg", b"");
        put("classes/cat/1.jpg", b"");
        put("x.prototxt/data.mdb", b"");
        put("x.mdb", b"");
        put("weights", b"\x0a\x02ab");
        put("packed", b"\x1f\x8b\x08\0");
        put("net.txt", b"layer { name: \"a\" type: \"Data\" top: \"a\" }\n");
        let root = folder.path();
        let net = at("net.txt").to_str().unwrap().to_owned();
        let named = format!("net {net}");
        let weights = format!("net {}", at("weights").display());
        let are: [(&[&str], &str); 14] = [
            (&["lmdb"], "Lmdb lmdb"),
            (&["lmdb/data.mdb"], "Lmdb lmdb/data.mdb"),
            (&["records", "leveldb", "lmdb"], "TfRecord records, LevelDb leveldb, Lmdb lmdb"),
            (&["--tfrecord", "empty", "leveldb", "--lmdb", "x"], "LevelDb leveldb, Lmdb x, TfRecord empty"),
            (&["part-*"], "TfRecord part-*"),
            (&["mixed", "packed"], "TfRecord mixed, TfRecord packed"),
            (&["classes"], "Other classes"),
            (&["x.prototxt"], "Lmdb x.prototxt"),
            (&["x.mdb"], "Lmdb x.mdb"),
            (&["net.txt"], &named),
            (&["weights"], &weights),
            (&["none.prototxt"], "net none.prototxt"),
            (&["--net", "lmdb"], "net lmdb"),
            (&[&*net], &named),
        ];
        for (words, due) in are {
            assert_eq!(found(root, words).unwrap(), due, "{words:?}");
        }
        put("files/unknown", b"records");
        put("m.index", b"");
        let missing = format!("{}: cannot find it: No such file or directory", at("none").display());
        let are_not: [(&[&str], &str); 7] = [
            (&["none"], &missing),
            (&["cats/list"], "cats/list: neither a net nor data that can be fed: it is a list of images"),
            (&["files"], "found a folder of 1 other files, such as unknown; give a net, an LMDB"),
            (&["m"], "m: neither a net nor data that can be fed: found a model's files; give a net"),
            (&["lmdb", &*net], "net.txt: a net cannot be combined with other data sets: give it alone"),
            (&["--net", "a", "lmdb"], "cannot be used with"),
            (&[], "<PATH>"),
        ];
        for (words, due) in are_not {
            let said = found(root, words).unwrap_err();
            assert!(said.contains(due), "{words:?}: {said}");
        }
    }
}
