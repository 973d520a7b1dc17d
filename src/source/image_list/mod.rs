//! A text file that lists image files and their labels: Caffe's `ImageData` layer as a source.
//!
//! Each line is a file name, a space and a label; names may contain spaces. A record's key is the name as
//! listed. Its value is what a database would hold: a Datum with the encoded file and its label.

mod error;
mod lines;
mod shuffle;

use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::encoding::{WireType, bool, encode_key, encode_varint, int32};
use rand_mt::Mt;

pub use self::error::ImageListError;

use self::lines::{Line, parse};
use self::shuffle::shuffle;
use super::{Cursor, Entry, Identity, NOT_WRITTEN, Passes, Source, SourceError, VerifiesLater};
use percolator_files::input_file::{self, open_without_waiting};
use percolator_files::what;

/// The fields of a Datum.
mod field {
    pub(super) const DATA: u32 = 4;
    pub(super) const LABEL: u32 = 5;
    pub(super) const ENCODED: u32 = 7;
}

/// The largest list that is read, about 30 million files.
const LIST_BYTES_MAX: u64 = i32::MAX as u64;

/// The longest file that is read: a Datum has less than 2 GiB, like every protobuf message, and a few of its
/// bytes are not the file's.
const FILE_BYTES_MAX: u64 = i32::MAX as u64 - 32;

/// A list of image files, read like a database of encoded images.
///
/// ```no_run
/// use percolator::{ColorMode, Feed, Transform};
/// use percolator::source::ImageList;
///
/// let files = ImageList::open("train.txt")?.root_folder("images/").shuffled(1701);
/// let transform = Transform::new().color(ColorMode::Color).resize(256, 256).crop(227);
/// let feed = Feed::builder().source(files).transform(transform).batch_size(64).build()?;
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageList {
    list: Arc<List>,
    shuffle: Option<u32>,
    skip: usize,
}

#[derive(Clone, Debug)]
struct List {
    path: PathBuf,
    text: Vec<u8>,
    lines: Vec<Line>,
    /// Prepended to each name as is, without a slash.
    root_folder: Vec<u8>,
    /// The directory of names that are relative even with the root folder prepended.
    directory: PathBuf,
}

/// A file of a list.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile<'a> {
    /// The line that lists it, counted from 1.
    pub line: usize,
    /// Its name, as listed.
    pub name: &'a [u8],
    /// Where it is.
    pub path: PathBuf,
    /// Its label.
    pub label: i32,
}

impl ImageList {
    /// Reads a list, but not the files that it names.
    ///
    /// A label's fraction is cut off, as in Caffe, with a warning. A byte order mark before the first name,
    /// and spaces after a label, are skipped.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the list cannot be read, is not a regular file or has 2 GiB or more, if it is
    /// empty, or has an empty line, a label that does not fit 32 bits, or one that is not a number, which
    /// Caffe reads as 0.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let path = path.as_ref().to_owned();
        let text = input_file::read(&path, LIST_BYTES_MAX)
            .map_err(|error| SourceError::io(&path, "read the list", &error))?;
        let lines = parse(&text, &path).map_err(|error| match error {
            // After a good line it is a list, whatever its beginning looks like.
            SourceError::ImageList(
                ImageListError::EmptyLine { line: 2.., .. }
                | ImageListError::Label { line: 2.., .. }
                | ImageListError::LabelRange { line: 2.., .. },
            ) => error,
            error => {
                let kinds = [what::Kind::List, what::Kind::Text];
                SourceError::instead(&path, "a list of images", &kinds).unwrap_or(error)
            }
        })?;
        if lines.is_empty() {
            return Err(SourceError::Empty { path });
        }
        let list = List { path, text, lines, root_folder: Vec::new(), directory: PathBuf::new() };
        Ok(ImageList { list: Arc::new(list), shuffle: None, skip: 0 })
    }

    /// Prepended to each name (default: nothing). As in Caffe, no slash is added.
    #[must_use]
    pub fn root_folder(mut self, root: impl AsRef<OsStr>) -> Self {
        Arc::make_mut(&mut self.list).root_folder = root.as_ref().as_bytes().to_vec();
        self
    }

    /// The directory of names that are relative even with the root folder prepended (default: the working
    /// directory).
    #[must_use]
    pub fn relative_to(mut self, directory: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.list).directory = directory.into();
        self
    }

    /// Shuffles the list before each pass in exactly the order of Caffe's `shuffle` with a generator of this
    /// seed. Each pass shuffles the order that the previous pass left.
    #[must_use]
    pub fn shuffled(mut self, seed: u32) -> Self {
        self.shuffle = Some(seed);
        self
    }

    /// Starts the first pass after this many lines, as Caffe's `rand_skip` does. Later passes have all lines.
    ///
    /// # Errors
    ///
    /// [`ImageListError::NotEnoughToSkip`] if the list does not have more lines than that.
    pub fn skipping(mut self, lines: usize) -> Result<Self, SourceError> {
        let found = self.list.lines.len();
        if lines >= found {
            return Err(SourceError::ImageList(ImageListError::NotEnoughToSkip {
                path: self.list.path.clone(),
                found,
                skip: lines,
            }));
        }
        self.skip = lines;
        Ok(self)
    }

    /// The files of the first pass, in its order. They are not accessed.
    pub fn files(&self) -> impl ExactSizeIterator<Item = ListedFile<'_>> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        if let Some(seed) = self.shuffle {
            shuffle(&mut order, &mut Mt::new(seed));
        }
        order.into_iter().skip(self.skip).map(|number| {
            let mut path = PathBuf::new();
            self.list.locate(self.list.name(number), &mut path);
            let label = self.list.lines[number].label;
            ListedFile { line: number + 1, name: self.list.name(number), path, label }
        })
    }

    /// The number of files in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.lines.len()
    }

    /// Whether the list is empty. Always false, because an empty list cannot be opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Source for ImageList {
    fn path(&self) -> &Path {
        &self.list.path
    }

    fn records(&self) -> Option<u64> {
        Some(self.len() as u64)
    }

    /// The list's own identity: the files that it names may have changed.
    fn identity(&self) -> Identity {
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &self.list.text);
        let identity = Identity::new().with("kind", "list of images").with("records", self.len());
        identity.with("checksum of the list", format_args!("{checksum:08x}"))
    }

    fn passes(&self) -> Passes {
        match (self.shuffle, self.skip) {
            (Some(_), _) => Passes::Shuffled,
            (None, 0) => Passes::Alike,
            (None, _) => Passes::FirstIsShorter,
        }
    }

    /// The list, and the order of its lines.
    fn held_bytes(&self) -> usize {
        self.list.text.len() + self.len() * (size_of::<Line>() + size_of::<usize>())
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(self.open_cursor()))
    }

    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(NOT_WRITTEN))
    }

    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(ListCursor { goes_on: true, ..self.open_cursor() }))
    }
}

impl ImageList {
    fn open_cursor(&self) -> ListCursor {
        let mut order: Vec<usize> = (0..self.len()).collect();
        let mut generator = self.shuffle.map(Mt::new);
        if let Some(generator) = &mut generator {
            shuffle(&mut order, generator);
        }
        ListCursor {
            list: self.list.clone(),
            order,
            generator,
            next: self.skip,
            is_numbered: self.passes() != Passes::Alike,
            file: PathBuf::new(),
            value: Vec::new(),
            goes_on: false,
            damage: None,
        }
    }
}

struct ListCursor {
    list: Arc<List>,
    /// The line numbers in the order of this pass.
    order: Vec<usize>,
    generator: Option<Mt>,
    next: usize,
    /// Whether passes differ, so that entries need their line's number.
    is_numbered: bool,
    /// The path of the current file.
    file: PathBuf,
    value: Vec<u8>,
    /// Whether the record's user, not the cursor, reports a file that cannot be read.
    goes_on: bool,
    /// What is wrong with the last record.
    damage: Option<SourceError>,
}

impl Cursor for ListCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let Some(&number) = self.order.get(self.next) else { return Ok(None) };
        self.next += 1;
        let of_line = self.is_numbered.then_some(number as u64);
        let name = self.list.name(number);
        self.list.locate(name, &mut self.file);
        let Err(error) = read_datum(&self.file, self.list.lines[number].label, &mut self.value) else {
            return Ok(Some(Entry::borrowed(name, &self.value).numbered(of_line)));
        };
        let is_of_file = input_file::is_of_file(&error);
        let damage = SourceError::ImageList(ImageListError::ListedFile {
            path: self.list.path.clone(),
            line: number + 1,
            file: self.file.clone(),
            message: format!("{error}{}", blank(name)),
            is_of_file,
        });
        match self.goes_on && is_of_file {
            true => {
                let entry = Entry::damaged(name, &[], self.damage.insert(damage));
                Ok(Some(entry.numbered(of_line)))
            }
            false => Err(damage),
        }
    }

    /// Does not open the file.
    fn skip(&mut self) -> Result<bool, SourceError> {
        let is_there = self.next < self.order.len();
        self.next += usize::from(is_there);
        Ok(is_there)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        if let Some(generator) = &mut self.generator {
            shuffle(&mut self.order, generator);
        }
        Ok(())
    }

    /// Seeks in this pass's order, which stays as it is. Lines that the first pass skips have positions too.
    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.next = usize::try_from(position).map_or(self.order.len(), |next| next.min(self.order.len()));
        Ok(())
    }
}

impl List {
    fn name(&self, line: usize) -> &[u8] {
        let (start, end) = self.lines[line].name;
        &self.text[start..end]
    }

    /// Writes the path of a listed file into a reused buffer.
    fn locate(&self, name: &[u8], file: &mut PathBuf) {
        let path = file.as_mut_os_string();
        path.clear();
        let is_absolute = self.root_folder.first().or(name.first()) == Some(&b'/');
        if !is_absolute && !self.directory.as_os_str().is_empty() {
            path.push(&self.directory);
            path.push("/");
        }
        path.push(OsStr::from_bytes(&self.root_folder));
        path.push(OsStr::from_bytes(name));
    }
}

/// What may be wrong with the name of a missing file.
fn blank(name: &[u8]) -> &'static str {
    match name.last() {
        Some(b' ' | b'\t') => "; the name ends with a blank: leave one space before the label",
        _ if name.first() == Some(&b'"') => "; the name is in quotes: names are listed as they are",
        _ => "",
    }
}

/// Makes a Datum from a file, as Caffe's `ReadFileToDatum` does.
fn read_datum(path: &Path, label: i32, datum: &mut Vec<u8>) -> std::io::Result<()> {
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let bytes = metadata.len();
    if bytes > FILE_BYTES_MAX {
        let message = format!("it has {bytes} bytes, and a record may have {FILE_BYTES_MAX}");
        return Err(std::io::Error::new(ErrorKind::FileTooLarge, message));
    }
    datum.clear();
    int32::encode(field::LABEL, &label, datum);
    bool::encode(field::ENCODED, &true, datum);
    encode_key(field::DATA, WireType::LengthDelimited, datum);
    encode_varint(bytes, datum);
    let header = datum.len();
    // Reading one byte more detects a file that grew. Without a limit, a file that keeps growing would be
    // read for ever.
    file.take(bytes.saturating_add(1)).read_to_end(datum)?;
    let read = datum.len() - header;
    if read as u64 != bytes {
        let read = if read as u64 > bytes { "more" } else { "fewer" };
        let message = format!("its length was {bytes} bytes, and {read} were read: it is being written to");
        return Err(std::io::Error::new(ErrorKind::InvalidData, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use percolator_messages::Datum;

    #[test]
    fn files_come_in_the_order_of_the_first_pass() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.txt");
        std::fs::write(&path, "a.jpg 1\nb c.jpg 2\nc.jpg 3\n").unwrap();
        let list = ImageList::open(&path).unwrap().root_folder("root/");
        let files: Vec<_> = list.files().collect();
        let second = ListedFile { line: 2, name: b"b c.jpg", path: "root/b c.jpg".into(), label: 2 };
        assert_eq!((files.len(), &files[1]), (3, &second));
        let mut order = vec![0, 1, 2];
        shuffle(&mut order, &mut Mt::new(9));
        let lines: Vec<_> = list.shuffled(9).skipping(1).unwrap().files().map(|file| file.line - 1).collect();
        assert_eq!(lines, order[1..]);
    }

    fn write_list(files: &[(&str, &[u8])], list: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().join("list.txt");
        std::fs::write(&path, list).unwrap();
        (folder, path)
    }

    fn keys(cursor: &mut dyn Cursor) -> Vec<String> {
        let mut keys = Vec::new();
        while let Some(entry) = cursor.advance().unwrap() {
            keys.push(String::from_utf8(entry.key().to_vec()).unwrap());
        }
        keys
    }

    #[test]
    fn a_record_is_the_datum_of_its_file() {
        let (folder, path) = write_list(&[("a b.jpg", b"pixels")], "a b.jpg -7");
        let list = ImageList::open(&path).unwrap().relative_to(folder.path());
        let mut cursor = list.cursor().unwrap();
        let entry = cursor.advance().unwrap().unwrap();
        let datum = Datum::parse(entry.value()).unwrap();
        assert_eq!((datum.label, datum.encoded, datum.data), (-7, true, &b"pixels"[..]));
        assert_eq!(entry.key(), b"a b.jpg");
        assert!(cursor.advance().unwrap().is_none());
    }

    #[test]
    fn the_root_folder_is_set_before_each_name_as_it_is() {
        let list = |root: &str, directory: &str| List {
            path: PathBuf::new(),
            text: Vec::new(),
            lines: Vec::new(),
            root_folder: root.as_bytes().to_vec(),
            directory: directory.into(),
        };
        for (root, directory, name, wanted) in [
            ("", "", "a.jpg", "a.jpg"),
            ("img", "", "a.jpg", "imga.jpg"),
            ("img/", "/data", "a.jpg", "/data/img/a.jpg"),
            ("/img/", "/data", "a.jpg", "/img/a.jpg"),
            ("", "/data", "/b/a.jpg", "/b/a.jpg"),
        ] {
            let mut file = PathBuf::from("what was there before");
            list(root, directory).locate(name.as_bytes(), &mut file);
            assert_eq!(file, Path::new(wanted));
        }
    }

    #[test]
    fn a_missing_file_is_named_with_its_line() {
        let (folder, path) = write_list(&[("a.jpg", b"a")], "a.jpg 0\ngone.jpg 1");
        let list = ImageList::open(&path).unwrap().relative_to(folder.path());
        let mut cursor = list.cursor().unwrap();
        cursor.advance().unwrap().unwrap();
        let message = cursor.advance().unwrap_err().to_string();
        assert!(message.contains("list.txt: line 2: cannot read"), "{message}");
        let gone = std::fs::metadata(folder.path().join("gone.jpg")).unwrap_err();
        assert!(message.contains(&format!("gone.jpg: {gone}")), "{message}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes a FIFO")]
    fn what_is_no_file_is_not_waited_for() {
        let (folder, path) = write_list(&[], "pipe 0\n/dev/zero 1\n. 2\n");
        let pipe = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
        assert!(pipe.success());
        for skipped in 0..3 {
            let list = ImageList::open(&path).unwrap().relative_to(folder.path()).skipping(skipped).unwrap();
            let message = list.cursor().unwrap().advance().unwrap_err().to_string();
            assert!(message.ends_with(": it is not a regular file"), "{message}");
        }
    }

    #[test]
    fn a_file_that_is_passed_over_is_not_opened() {
        let (folder, path) = write_list(&[("b", b"")], "gone 0\nb 1\ngone 2\n");
        let list = ImageList::open(&path).unwrap().relative_to(folder.path());
        let mut cursor = list.cursor().unwrap();
        assert!(cursor.skip().unwrap());
        assert_eq!(cursor.advance().unwrap().unwrap().key(), b"b");
        assert_eq!([cursor.skip().unwrap(), cursor.skip().unwrap()], [true, false]);
    }

    #[test]
    fn each_pass_shuffles_what_the_last_one_left() {
        let names = ["0", "1", "2", "3", "4"];
        let files: Vec<(&str, &[u8])> = names.iter().map(|&name| (name, &b""[..])).collect();
        let (folder, path) = write_list(&files, "0 0\n1 1\n2 2\n3 3\n4 4\n");
        let list = ImageList::open(&path).unwrap().relative_to(folder.path()).shuffled(1701);
        let mut cursor = list.cursor().unwrap();
        let (mut order, mut generator) = ([0, 1, 2, 3, 4], Mt::new(1701));
        for _pass in 0..3 {
            shuffle(&mut order, &mut generator);
            assert_eq!(keys(&mut *cursor), order.map(|number| number.to_string()));
            cursor.rewind().unwrap();
        }
    }

    #[test]
    fn a_seek_goes_by_the_order_of_its_pass() {
        let names = ["0", "1", "2", "3", "4"];
        let files: Vec<(&str, &[u8])> = names.iter().map(|&name| (name, &b""[..])).collect();
        let (folder, path) = write_list(&files, "0 0\n1 1\n2 2\n3 3\n4 4\n");
        let list =
            ImageList::open(&path).unwrap().relative_to(folder.path()).shuffled(1701).skipping(1).unwrap();
        assert!(list.is_seekable());
        let mut cursor = list.cursor().unwrap();
        for _pass in 0..2 {
            cursor.seek(0).unwrap();
            let order = keys(&mut *cursor);
            assert_eq!(order.len(), names.len());
            for position in [3, 0, 4, 5, 1, u64::MAX] {
                cursor.seek(position).unwrap();
                let behind = usize::try_from(position).unwrap().min(order.len());
                assert_eq!(keys(&mut *cursor), order[behind..], "from {position}");
            }
            cursor.rewind().unwrap();
        }
    }

    #[test]
    fn lines_are_skipped_in_the_first_pass_only() {
        let (folder, path) = write_list(&[("a", b""), ("b", b""), ("c", b"")], "a 0\nb 1\nc 2");
        let list = ImageList::open(&path).unwrap().relative_to(folder.path());
        let error = list.clone().skipping(3).unwrap_err().to_string();
        assert!(
            error.ends_with("list.txt: not enough points to skip: 3 of 3; lower rand_skip to 3 or less"),
            "{error}"
        );
        let mut cursor = list.skipping(2).unwrap().cursor().unwrap();
        assert_eq!(keys(&mut *cursor), ["c"]);
        cursor.rewind().unwrap();
        assert_eq!(keys(&mut *cursor), ["a", "b", "c"]);
    }
}
