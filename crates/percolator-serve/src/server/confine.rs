//! What a client's feed may name: files below the server's folder, and nothing else.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use percolator::Transform;
use percolator::feed::{DecoderSpec, FeedSpec, Receipts, SourceSpec, TargetFrom};
use percolator::source::{IndexPlace, Opener, Source, SourceError, WantedFiles};
use percolator::transform::TransformPlace;
use percolator_files::glob::{self, Rules};
use percolator_files::{input_file, shown};

use crate::grpc::{Code, Status};

/// The place of a mean file in a transform that is written as JSON.
const MEAN_FILE: &str = "/mean_image/file";

/// The largest list of images that is read; a feed reads no larger one.
const LIST_BYTES_MAX: u64 = i32::MAX as u64;

/// A byte order mark, which is not part of a list's first name.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The folder below which everything lies that a client can name.
#[derive(Clone, Debug)]
pub(super) struct DataRoot {
    folder: PathBuf,
    /// Opens data of other libraries.
    opener: Option<Arc<dyn Opener>>,
}

/// Opens data of other libraries that lie below the root, wherever patterns and links lead.
#[derive(Clone, Debug)]
pub(super) struct RootOpener {
    root: DataRoot,
    opener: Arc<dyn Opener>,
}

impl Opener for RootOpener {
    fn open(&self, wanted: &WantedFiles<'_>) -> Result<Vec<Arc<dyn Source>>, SourceError> {
        let mut wanted = wanted.clone();
        wanted.is_confined = true;
        let sources = self.opener.open(&wanted)?;
        for path in sources.iter().flat_map(|source| source.paths()) {
            let checked = self.root.check_below(&path, wanted.path);
            checked.map_err(|status| SourceError::other(wanted.path, status.message))?;
        }
        Ok(sources)
    }
}

impl DataRoot {
    pub(super) fn new(folder: &Path, opener: Option<Arc<dyn Opener>>) -> io::Result<Self> {
        let folder = fs::canonicalize(folder)?;
        if folder.is_dir() {
            Ok(DataRoot { folder, opener })
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// What opens data of other libraries for feeds.
    pub(super) fn opener(&self) -> Option<RootOpener> {
        self.opener.clone().map(|opener| RootOpener { root: self.clone(), opener })
    }

    /// A feed as it is described, with what a client does not decide: its paths start from the root and stay
    /// below it, and it writes nothing, here or elsewhere.
    pub(super) fn confine(&self, spec: &FeedSpec, index: &IndexPlace) -> Result<FeedSpec, Status> {
        let mut spec = spec.clone();
        let start = self.below(&spec.root)?;
        for source in &mut spec.sources {
            *source = self.source(&start, source)?;
        }
        spec.transform = self.transform(&start, spec.transform)?;
        for view in &mut spec.views {
            view.transform = self.transform(&start, std::mem::take(&mut view.transform))?;
        }
        if let Some(target) = &mut spec.target {
            let start = target.root.as_deref().map_or(Ok(start.clone()), |root| self.below(root))?;
            if let TargetFrom::Paired { sources, .. } = &mut target.from {
                for source in sources {
                    *source = self.source(&start, source)?;
                }
            }
            target.transform = self.transform(&start, std::mem::take(&mut target.transform))?;
            target.root = None;
        }
        if let DecoderSpec::Attached = spec.decoder {
            return Err(refused("a decoder of a program's own cannot be sent to a server"));
        }
        if spec.after_decode || spec.after_transform {
            return Err(refused("a program's own functions on images and rows cannot be sent to a server"));
        }
        if spec.bad_records.quarantine.is_some() {
            return Err(refused("a server writes no quarantine file: leave `quarantine` out"));
        }
        if spec.transform_on != TransformPlace::Host {
            return Err(refused("a server transforms on its host: leave `transform_on` out"));
        }
        if let Some(device) = spec.devices.iter().find(|device| !device.starts_with("host:")) {
            let device = shown::quoted(device.as_bytes());
            return Err(refused(&format!(
                "a server's devices are host:0, host:1 and so on, and this names {device}"
            )));
        }
        spec.devices = (0..spec.devices.len()).map(|rank| format!("host:{rank}")).collect();
        spec.root = self.folder.clone();
        spec.index = index.clone();
        spec.receipts = Receipts::Off;
        // A client's wait is the server's to limit, and its log the server's to fill.
        spec.give_up_after = None;
        spec.warn_after = FeedSpec::default().warn_after;
        Ok(spec)
    }

    fn source(&self, start: &Path, source: &SourceSpec) -> Result<SourceSpec, Status> {
        Ok(match source {
            SourceSpec::Lmdb { path, name } => {
                SourceSpec::Lmdb { path: self.data(start, path)?, name: name.clone() }
            }
            SourceSpec::LevelDb { path } => SourceSpec::LevelDb { path: self.data(start, path)? },
            SourceSpec::TfRecord { path, compression } => {
                let is_there = self.folder.join(self.lexically(start, path)?).exists();
                let path = if path.iter().any(glob::is_pattern) && !is_there {
                    self.pattern(start, path)?
                } else {
                    self.data(start, path)?
                };
                SourceSpec::TfRecord { path, compression: *compression }
            }
            SourceSpec::ImageList { list, root_folder, shuffle, rand_skip } => {
                let list = self.data(start, list)?;
                let root_folder = self.images(start, &list, root_folder)?;
                SourceSpec::ImageList { list, root_folder, shuffle: *shuffle, rand_skip: *rand_skip }
            }
            SourceSpec::Files { path, format, settings } if self.opener.is_some() => SourceSpec::Files {
                path: self.files(start, path)?,
                format: format.clone(),
                settings: settings.clone(),
            },
            SourceSpec::Files { .. } => {
                return Err(refused(
                    "this server reads no data of other libraries: it has no opener of them",
                ));
            }
            _ => return Err(refused("a source of a program's own cannot be sent to a server")),
        })
    }

    /// The path of data of another library, relative to the root. Whatever is read is
    /// [looked at](RootOpener) again once it is open.
    fn files(&self, start: &Path, path: &Path) -> Result<PathBuf, Status> {
        let relative = self.lexically(start, path)?;
        let at = self.folder.join(&relative);
        if at.exists() {
            self.real(&relative, path)?;
            self.check_folder(&at, path, &mut HashSet::new())?;
            return Ok(relative);
        }
        // What stands in braces must not become a path that leads elsewhere.
        let text = relative.to_str().unwrap_or_default();
        for rest in text.split('{').skip(1) {
            let Some((range, _)) = rest.split_once('}') else {
                return Err(refused(&format!("{{{rest}: a range has no end")));
            };
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let is_plain = |word: &str| !word.is_empty() && word.bytes().all(is_letter);
            let is_range =
                range.split_once("..").is_some_and(|(first, last)| is_plain(first) && is_plain(last));
            if !is_range && !range.split(',').all(is_plain) {
                let message =
                    format!("{{{range}}}: a range on a server is of numbers, or of letters, digits, - and _");
                return Err(refused(&message));
            }
        }
        if relative.iter().any(glob::is_pattern) {
            self.pattern(start, path)?;
        }
        Ok(relative)
    }

    /// Refuses a folder in which a link leads out of the root. A format may have folders in folders, and
    /// links to folders within the root.
    fn check_folder(&self, folder: &Path, named: &Path, seen: &mut HashSet<PathBuf>) -> Result<(), Status> {
        let folder = fs::canonicalize(folder).map_err(|error| failed(named, &error))?;
        if !folder.is_dir() || !seen.insert(folder.clone()) {
            return Ok(());
        }
        for entry in fs::read_dir(&folder).map_err(|error| failed(named, &error))? {
            let entry = entry.map_err(|error| failed(named, &error))?;
            let kind = entry.file_type().map_err(|error| failed(named, &error))?;
            if kind.is_symlink() {
                self.check_link(&entry.path(), named)?;
            }
            if kind.is_dir() || kind.is_symlink() && entry.path().is_dir() {
                self.check_folder(&entry.path(), named, seen)?;
            }
        }
        Ok(())
    }

    /// Refuses what is read, unless it is there and below the root.
    fn check_below(&self, path: &Path, named: &Path) -> Result<(), Status> {
        let real = fs::canonicalize(path).map_err(|error| failed(named, &error))?;
        if real.starts_with(&self.folder) { Ok(()) } else { Err(leads_out(named)) }
    }

    /// The path of a file or folder, relative to the root. What lies in a folder may not lead out of it.
    fn data(&self, start: &Path, path: &Path) -> Result<PathBuf, Status> {
        let relative = self.lexically(start, path)?;
        let real = self.real(&relative, path)?;
        if real.is_dir() {
            let entries = fs::read_dir(&real).map_err(|error| failed(path, &error))?;
            for entry in entries {
                let entry = entry.map_err(|error| failed(path, &error))?;
                self.check_link(&entry.path(), path)?;
            }
        }
        Ok(relative)
    }

    /// A pattern, relative to the root.
    fn pattern(&self, start: &Path, path: &Path) -> Result<PathBuf, Status> {
        let relative = self.lexically(start, path)?;
        let rules = Rules { hidden: true, files: false, is_left_out: |_| false };
        let found = glob::expand(&self.folder, &relative, &rules).map_err(|error| failed(path, &error))?;
        found.iter().try_for_each(|found| self.check_link(found, path))?;
        Ok(relative)
    }

    /// What is put before the names of a list, after a look at each of them.
    fn images(&self, start: &Path, list: &Path, root_folder: &str) -> Result<String, Status> {
        let text = input_file::read(&self.folder.join(list), LIST_BYTES_MAX)
            .map_err(|error| failed(list, &error))?;
        let mut last_folder = PathBuf::new();
        for line in text.strip_prefix(MARK).unwrap_or(&text).split(|&byte| byte == b'\n') {
            let line = line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            let end = line.iter().rposition(|&byte| byte == b' ').unwrap_or(line.len());
            let name = [root_folder.as_bytes(), &line[..end]].concat();
            let name = Path::new(OsStr::from_bytes(&name));
            self.lexically(start, name)?;
            // As it is opened: `..` behind a link goes on from where the link leads.
            let named = self.folder.join(start).join(name);
            let folder = named.parent().unwrap_or(&named);
            if folder != last_folder {
                // A folder that is not there is the feed's to report.
                self.check_link(folder, name)?;
                folder.clone_into(&mut last_folder);
            }
        }
        // It is text that is put before text, so only its beginning may change.
        if Path::new(root_folder).is_absolute() || start.as_os_str().is_empty() {
            return Ok(root_folder.to_owned());
        }
        let start =
            start.to_str().ok_or_else(|| refused("a list's folder is not UTF-8, and cannot be sent"))?;
        Ok(format!("{start}/{root_folder}"))
    }

    fn transform(&self, start: &Path, transform: Transform) -> Result<Transform, Status> {
        let unread = |error| Status::new(Code::Internal, format!("the transform cannot be read: {error}"));
        let mut value = serde_json::to_value(&transform).map_err(unread)?;
        let Some(file) = value.pointer_mut(MEAN_FILE) else { return Ok(transform) };
        let path = PathBuf::from(file.as_str().unwrap_or_default());
        let relative = self.data(start, &path)?;
        *file = serde_json::Value::from(relative.to_string_lossy().into_owned());
        serde_json::from_value(value).map_err(unread)
    }

    /// A folder from which paths start, relative to the root.
    fn below(&self, path: &Path) -> Result<PathBuf, Status> {
        let relative = self.lexically(Path::new(""), path)?;
        self.real(&relative, path)?;
        Ok(relative)
    }

    /// A path relative to the root, without looking at any file.
    fn lexically(&self, start: &Path, path: &Path) -> Result<PathBuf, Status> {
        let outside = || {
            let path = shown::path(path);
            let message =
                format!("{path} is not below the folder that this server serves; paths are relative to it");
            Status::new(Code::PermissionDenied, message)
        };
        let path = match path.is_absolute() {
            true => path.strip_prefix(&self.folder).map_err(|_| outside())?.to_owned(),
            false => start.join(path),
        };
        let mut relative = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                Component::ParentDir if relative.pop() => {}
                _ => return Err(outside()),
            }
        }
        Ok(relative)
    }

    /// The file or folder itself, wherever links lead.
    fn real(&self, relative: &Path, named: &Path) -> Result<PathBuf, Status> {
        let real = fs::canonicalize(self.folder.join(relative)).map_err(|error| failed(named, &error))?;
        if real.starts_with(&self.folder) { Ok(real) } else { Err(leads_out(named)) }
    }

    /// Refuses what leads out of the root. What is not there leads nowhere.
    fn check_link(&self, path: &Path, named: &Path) -> Result<(), Status> {
        match fs::canonicalize(path) {
            Ok(real) if !real.starts_with(&self.folder) => Err(leads_out(named)),
            _ => Ok(()),
        }
    }
}

fn refused(message: &str) -> Status {
    Status::new(Code::InvalidArgument, message)
}

fn leads_out(path: &Path) -> Status {
    let message = format!("{} leads out of the folder that this server serves, by a link", shown::path(path));
    Status::new(Code::PermissionDenied, message)
}

fn failed(path: &Path, error: &io::Error) -> Status {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::PermissionDenied => Code::PermissionDenied,
        _ => Code::FailedPrecondition,
    };
    Status::new(code, format!("{}: {error}", shown::path(path)))
}

/// All that decides the bytes of a feed's batches, as text: two feeds that agree on it are one.
pub(super) fn identity(spec: &FeedSpec) -> Result<String, Status> {
    let mut spec = spec.clone();
    let default = FeedSpec::default();
    spec.root = PathBuf::new();
    spec.access = default.access;
    spec.index = default.index;
    spec.threads = None;
    spec.prefetch = None;
    spec.memory_limit = None;
    let unread = |error| Status::new(Code::InvalidArgument, format!("the feed cannot be written: {error}"));
    serde_json::to_string(&spec).map_err(unread)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use percolator::Target;
    use percolator::source::TfRecord;

    use super::*;

    /// A folder that is served, with a database, files and images in it, and links that lead out of it.
    struct Served {
        _folder: tempfile::TempDir,
        root: DataRoot,
    }

    fn served() -> Served {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for sub in ["root/db", "root/records", "root/images/a", "root/leading", "outside/db"] {
            fs::create_dir_all(folder.path().join(sub)).unwrap();
        }
        let files = [
            "root/db/data.mdb",
            "root/records/a.tfrecord",
            "root/mean",
            "outside/db/data.mdb",
            "outside/b.tfrecord",
        ];
        files.iter().for_each(|file| fs::write(folder.path().join(file), "").unwrap());
        symlink("../outside/db", root.join("link")).unwrap();
        symlink("../../outside/b.tfrecord", root.join("leading/b.tfrecord")).unwrap();
        symlink("db", root.join("inner")).unwrap();
        let root = DataRoot::new(&root, None).unwrap();
        Served { _folder: folder, root }
    }

    impl Served {
        fn confine(&self, source: SourceSpec) -> Result<FeedSpec, Status> {
            let mut spec = FeedSpec::default();
            spec.sources = vec![source];
            self.root.confine(&spec, &IndexPlace::Memory)
        }

        fn lmdb(&self, path: &str) -> Result<PathBuf, Code> {
            match self.confine(SourceSpec::lmdb(path)).map_err(|status| status.code)?.sources.remove(0) {
                SourceSpec::Lmdb { path, .. } => Ok(path),
                other => panic!("{other:?}"),
            }
        }

        fn list(&self, lines: &str, root_folder: &str) -> Result<String, Status> {
            fs::write(self.root.folder.join("list.txt"), lines).unwrap();
            let (list, root_folder) = ("list.txt".into(), root_folder.to_owned());
            let source = SourceSpec::ImageList { list, root_folder, shuffle: false, rand_skip: 0 };
            match self.confine(source)?.sources.remove(0) {
                SourceSpec::ImageList { root_folder, .. } => Ok(root_folder),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_path_stays_below_the_folder() {
        let served = served();
        let root = served.root.folder.to_str().unwrap().to_owned();
        for inside in ["db", "./db", "records/../db", &format!("{root}/db"), &format!("{root}/records/../db")]
        {
            assert_eq!(served.lmdb(inside), Ok("db".into()), "{inside}");
        }
        assert_eq!(served.lmdb("inner"), Ok("inner".into()));
        let outside =
            ["..", "../root/db", "db/../../outside/db", "/etc", "/", &format!("{root}x"), "link", "link/x"];
        for outside in outside {
            let code = served.lmdb(outside).unwrap_err();
            assert!(matches!(code, Code::PermissionDenied | Code::NotFound), "{outside}: {code}");
            assert!(code == Code::PermissionDenied || outside == "link/x", "{outside}");
        }
        assert_eq!(served.lmdb("none"), Err(Code::NotFound));
        // Whether something is there, outside, is not told.
        let messages =
            ["/etc/passwd", "/etc/none"].map(|path| served.confine(SourceSpec::lmdb(path)).unwrap_err());
        assert_eq!(messages[0].message.replace("passwd", "none"), messages[1].message);
    }

    #[test]
    fn files_of_a_folder_or_a_pattern_do_not_lead_out() {
        let served = served();
        let is_taken =
            |path: &str| served.confine(SourceSpec::tfrecord(path)).map(drop).map_err(|it| it.code);
        assert_eq!(is_taken("records"), Ok(()));
        assert_eq!(is_taken("records/*.tfrecord"), Ok(()));
        for leading in ["leading", "lead*/b.tfrecord", "leading/*", "*/../../outside/*", "leading/b.tfrecord"]
        {
            assert_eq!(is_taken(leading), Err(Code::PermissionDenied), "{leading}");
        }
    }

    /// Opens a TFRecord file, or two of a range.
    #[derive(Debug)]
    struct OfTfRecords;

    impl Opener for OfTfRecords {
        fn open(&self, wanted: &WantedFiles<'_>) -> Result<Vec<Arc<dyn Source>>, SourceError> {
            let path = wanted.path.to_str().unwrap().replace("{a..b}", "b");
            Ok(vec![Arc::new(TfRecord::open(wanted.root.join(path))?)])
        }
    }

    #[test]
    fn data_of_other_libraries_do_not_lead_out() {
        let mut served = served();
        let refused = served.confine(SourceSpec::files("records/a.tfrecord")).unwrap_err();
        assert!(refused.message.contains("no opener"), "{}", refused.message);
        served.root.opener = Some(Arc::new(OfTfRecords));
        let is_taken = |path: &str| served.confine(SourceSpec::files(path)).map(drop).map_err(|it| it.code);
        for inside in ["records", "records/a.tfrecord", "records/*.tfrecord", "records/{a..b}.tfrecord"] {
            assert_eq!(is_taken(inside), Ok(()), "{inside}");
        }
        // Folders in folders are looked at, too.
        for leading in ["leading", ".", "leading/*", "../outside/b.tfrecord", "leading/b.tfrecord"] {
            assert_eq!(is_taken(leading), Err(Code::PermissionDenied), "{leading}");
        }
        for (links, to) in
            [("root/images/class", "../within"), ("root/within/x.jpg", "../../outside/b.tfrecord")]
        {
            fs::create_dir_all(served.root.folder.join("within")).unwrap();
            symlink(to, served.root.folder.parent().unwrap().join(links)).unwrap();
        }
        assert_eq!(is_taken("images"), Err(Code::PermissionDenied), "by a link to a folder with a link");
        let ranges = [
            "{.}./outside/b.tfrecord",
            "{/}etc/passwd",
            "records/{a,../b}",
            "{..}/x",
            ".{,}./x",
            "records/{a",
        ];
        for range in ranges {
            assert_eq!(is_taken(range), Err(Code::InvalidArgument), "{range}");
        }
        // A range is looked at once it is open.
        assert_eq!(is_taken("leading/{a..b}.tfrecord"), Ok(()));
        let opener = served.root.opener().unwrap();
        let mut wanted = WantedFiles::at("leading/{a..b}.tfrecord".as_ref());
        wanted.root = &served.root.folder;
        let error = opener.open(&wanted).unwrap_err().to_string();
        assert!(error.contains("leads out of the folder"), "{error}");
        wanted.path = "records/a.tfrecord".as_ref();
        assert_eq!(opener.open(&wanted).unwrap().len(), 1);
    }

    #[test]
    fn no_line_of_a_list_leads_out() {
        let served = served();
        assert_eq!(served.list("a/1.png 0\na/2.png 1\n", "images/").unwrap(), "images/");
        let absolute = format!("{}/images/", served.root.folder.display());
        assert_eq!(served.list("a/1.png 0\n", &absolute).unwrap(), absolute);
        assert_eq!(served.list("1.png 0\n\n", "").unwrap(), "");
        let marked = served.list("\u{feff}../outside/x.png 0\n", "");
        assert_eq!(marked.map_err(|status| status.code), Err(Code::PermissionDenied));
        for (line, root_folder) in [
            ("../outside/x.png 0", ""),
            ("a/../../../outside/x.png 0", "images/"),
            ("/etc/x.png 0", ""),
            ("link/x.png 0", ""),
            ("x.png 0", "../outside/"),
            ("x.png 0", "/etc/"),
            // It is text before text.
            ("./x.png 0", "."),
            ("link/../x.png 0", ""),
            ("x.png 0", "link/../"),
        ] {
            let refused = served.list(&format!("images/1.png 0\n{line}\n"), root_folder);
            assert_eq!(
                refused.map_err(|status| status.code),
                Err(Code::PermissionDenied),
                "{line} {root_folder}"
            );
        }
    }

    #[test]
    fn whatever_is_beside_the_records_stays_below_it_too() {
        let served = served();
        let mut spec = FeedSpec::default();
        spec.transform = Transform::new().mean_file("mean");
        assert!(served.root.confine(&spec, &IndexPlace::Memory).is_ok());
        spec.transform = Transform::new().mean_file("../mean");
        assert!(served.root.confine(&spec, &IndexPlace::Memory).is_err());
        let target = |root: Option<&str>, path: &str| {
            let mut spec = FeedSpec::default();
            let builder = percolator::Feed::builder().lmdb(path);
            let target = Target::from_feed(builder, percolator::source::Matching::Keys);
            spec.target = percolator::Feed::builder().target(target).spec().target.clone();
            spec.target.as_mut().unwrap().root = root.map(PathBuf::from);
            served.root.confine(&spec, &IndexPlace::Memory).map(drop).map_err(|status| status.code)
        };
        assert_eq!(target(None, "db"), Ok(()));
        assert_eq!(target(Some("."), "db"), Ok(()));
        assert_eq!(target(None, "../outside/db"), Err(Code::PermissionDenied));
        assert_eq!(target(Some(".."), "db"), Err(Code::PermissionDenied));
    }

    #[test]
    fn a_client_decides_neither_what_is_written_nor_where_it_runs() {
        let served = served();
        let refused = |spec: &FeedSpec| served.root.confine(spec, &IndexPlace::Memory).unwrap_err().message;
        let mut spec = FeedSpec::default();
        spec.index = IndexPlace::Folder("/tmp".into());
        spec.receipts = Receipts::Contents;
        let confined = served.root.confine(&spec, &IndexPlace::Memory).unwrap();
        assert_eq!((confined.index, confined.receipts), (IndexPlace::Memory, Receipts::Off));
        spec.bad_records.quarantine = Some("q".into());
        assert!(refused(&spec).contains("no quarantine file"));
        let spec_with = |change: &dyn Fn(&mut FeedSpec)| {
            let mut spec = FeedSpec::default();
            change(&mut spec);
            refused(&spec)
        };
        assert!(spec_with(&|spec| spec.devices = vec!["cuda:0".into()]).contains("names \"cuda:0\""));
        assert!(spec_with(&|spec| spec.decoder = DecoderSpec::Attached).contains("a decoder"));
        assert!(spec_with(&|spec| spec.after_decode = true).contains("own functions"));
        assert!(spec_with(&|spec| spec.transform_on = TransformPlace::Device).contains("transform_on"));
        assert!(
            spec_with(&|spec| spec.sources = vec![SourceSpec::Attached { path: "x".into() }])
                .contains("source")
        );
    }

    #[test]
    fn what_does_not_decide_bytes_does_not_divide_clients() {
        let served = served();
        let mut one = served.confine(SourceSpec::lmdb("db")).unwrap();
        let mut other = served.confine(SourceSpec::lmdb("./db")).unwrap();
        other.threads = Some(3);
        other.prefetch = Some(9);
        other.memory_limit = Some(1 << 30);
        assert_eq!(identity(&one).unwrap(), identity(&other).unwrap());
        one.labels_i64 = true;
        assert_ne!(identity(&one).unwrap(), identity(&other).unwrap());
    }
}
