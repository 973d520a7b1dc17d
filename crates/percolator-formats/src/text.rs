//! What text files of records have in common: a record is a line, or several.
//!
//! Lines end at a line feed, before which a carriage return may stand. The last may lack its end. A byte
//! order mark and blank lines are no records.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::unpack::{IN_ORDER, Packing};
use crate::window::{Window, line_at};
use crate::{Cursor, DataFile, FormatError, Grammar, Key, Options, Place, Record, Seeks, Shard};

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// What is wrong with a record, and at which of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl Wrong {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        Wrong { at, what: what.into() }
    }
}

/// What tells one text format from another.
pub(crate) trait TextFormat: Grammar + 'static {
    /// How far the search for a record's end has come.
    type Scan: Default;

    /// Finds the line feed that ends the record with which the window begins, going on from where the last
    /// search ended; `None` if it is not at hand.
    fn end(&self, window: &[u8], scan: &mut Self::Scan) -> Result<Option<usize>, Wrong>;

    /// Whether a record may end where the file ends.
    fn may_end(&self, _scan: &Self::Scan) -> Result<(), Wrong> {
        Ok(())
    }

    /// Whether a line is no record.
    fn is_blank(&self, line: &[u8]) -> bool {
        line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
    }

    /// Checks what the reader of a record relies on, and what only the file's lines can tell.
    fn check(&self, _record: &[u8], _scan: &Self::Scan) -> Result<(), Wrong> {
        Ok(())
    }

    /// What the record is called.
    fn key<'a>(&self, _record: &'a [u8]) -> Key<'a> {
        Key::None
    }
}

/// Finds the next line feed.
pub(crate) fn line_end(window: &[u8], scanned: &mut usize) -> Option<usize> {
    let rest = window.get(*scanned..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest).map(|end| scanned.saturating_add(end));
    *scanned = window.len();
    end
}

/// A text file of records.
pub(crate) struct TextShard<F> {
    file: Arc<DataFile>,
    packing: Option<Packing>,
    format: Arc<F>,
    /// Where the records begin, behind a mark and a header, and in which line.
    begin: u64,
    line: u64,
}

impl<F: fmt::Debug> fmt::Debug for TextShard<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextShard")
            .field("file", &self.file)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl<F: TextFormat> TextShard<F> {
    /// Opens a file, whose format may depend on its first record.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the file cannot be opened, or is no text of this format.
    pub(crate) fn open(
        path: &Path,
        options: &Options,
        format: impl FnOnce(&mut TextBeginning) -> Result<F, FormatError>,
    ) -> Result<Arc<dyn Shard>, FormatError> {
        let file = Arc::new(DataFile::open(path, options.access)?);
        let packing = Packing::of_file(&file)?;
        let mut window = Window::new(&file, packing)?;
        while window.bytes().len() < MARK.len() && window.more()? {}
        if [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| window.bytes().starts_with(&mark[..])) {
            let what = "the text is UTF-16, and only UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8";
            return Err(FormatError::refused(path, what));
        }
        if window.bytes().starts_with(MARK) {
            window.consume(MARK.len());
        }
        let mut beginning = TextBeginning { file: Arc::clone(&file), window, line: 1 };
        let format = Arc::new(format(&mut beginning)?);
        let TextBeginning { window, line, .. } = beginning;
        Ok(Arc::new(TextShard { file, packing, format, begin: window.at(), line }))
    }
}

/// The beginning of a file, from which a format may take its header.
pub(crate) struct TextBeginning {
    file: Arc<DataFile>,
    window: Window,
    line: u64,
}

impl TextBeginning {
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Takes the first record that is not blank, and passes it to `take`, which says whether it is none of
    /// the records. `None` if the file has no record.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the file cannot be read, or the record is wrong.
    pub(crate) fn first<F: TextFormat, T>(
        &mut self,
        format: &F,
        take: impl FnOnce(&[u8]) -> Result<(T, bool), Wrong>,
    ) -> Result<Option<T>, FormatError> {
        let mut at = TextPosition { number: 0, line: Some(self.line), taken: 0 };
        let found = at.find(&mut self.window, &self.file, format)?;
        self.line = at.line.unwrap_or(self.line);
        let Some(found) = found else { return Ok(None) };
        let record = self.window.bytes().get(..found.record).unwrap_or_default();
        let (value, is_header) = take(record).map_err(|wrong| at.error(&self.window, &self.file, wrong))?;
        if is_header {
            self.line = self.line.saturating_add(found.lines);
            self.window.consume(found.all);
        }
        Ok(Some(value))
    }
}

impl<F: TextFormat> Shard for TextShard<F> {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.file.path().to_owned()]
    }

    fn records(&self) -> Option<u64> {
        None
    }

    fn seeks(&self) -> Seeks {
        match self.packing {
            Some(_) => Seeks::InOrder(IN_ORDER),
            None => Seeks::ByPlace,
        }
    }

    fn line(&self, [begin, _]: Place) -> Option<u64> {
        // Of a compressed file, the place counts unpacked bytes.
        if self.packing.is_some() { None } else { line_at(&self.file, begin).ok() }
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.format) as _
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        let mut window = Window::new(&self.file, self.packing)?;
        window.pass_over(self.begin)?;
        let position = TextPosition { number: 0, line: Some(self.line), taken: 0 };
        Ok(Box::new(TextCursor { window, position, due: None, before: Vec::new(), shard: self }))
    }
}

/// Reads a text file.
struct TextCursor<F> {
    shard: Arc<TextShard<F>>,
    window: Window,
    position: TextPosition,
    /// The length of the next record, if an earlier pass has found it.
    due: Option<u64>,
    /// The byte before a place.
    before: Vec<u8>,
}

/// Where a window's first record is.
struct TextPosition {
    /// The record's number.
    number: u64,
    /// Its first line; `None` where only its place is known.
    line: Option<u64>,
    /// The bytes of the record that was returned last, which the next step passes over.
    taken: usize,
}

/// A record at the window's beginning.
struct TextFound {
    /// Its bytes.
    record: usize,
    /// Its bytes with the line's end.
    all: usize,
    lines: u64,
}

impl TextPosition {
    /// Passes over blank lines, and finds the record at which the window then begins.
    fn find<F: TextFormat>(
        &mut self,
        window: &mut Window,
        file: &Arc<DataFile>,
        format: &F,
    ) -> Result<Option<TextFound>, FormatError> {
        loop {
            let mut scan = F::Scan::default();
            let end = loop {
                let end = format.end(window.bytes(), &mut scan);
                if let Some(end) = end.map_err(|wrong| self.error(window, file, wrong))? {
                    break Some(end);
                }
                if !window.more()? {
                    break None;
                }
            };
            let held = window.bytes();
            let line = held.get(..end.unwrap_or(held.len())).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let found = TextFound {
                record: line.len(),
                all: end.map_or(held.len(), |end| end.saturating_add(1)),
                lines: (memchr::memchr_iter(b'\n', line).count() as u64).saturating_add(1),
            };
            if end.is_none() {
                format.may_end(&scan).map_err(|wrong| self.error(window, file, wrong))?;
                if held.is_empty() {
                    return Ok(None);
                }
            }
            if !format.is_blank(line) {
                format.check(line, &scan).map_err(|wrong| self.error(window, file, wrong))?;
                return Ok(Some(found));
            }
            window.consume(found.all);
            self.line = self.line.map(|line| line.saturating_add(found.lines));
        }
    }

    /// An error at a byte of the window's first record, with its line.
    fn error(&self, window: &Window, file: &DataFile, wrong: Wrong) -> FormatError {
        let before = window.bytes().get(..wrong.at).unwrap_or_default();
        let byte = window.at().saturating_add(before.len() as u64);
        let lines = memchr::memchr_iter(b'\n', before).count() as u64;
        let line = match self.line {
            Some(line) => Some(line.saturating_add(lines)),
            // The words of the error matter more than the line, if the file cannot be read any more.
            None => line_at(file, byte).ok(),
        };
        let error = FormatError::damaged(file.path(), wrong.what).record(self.number).byte(byte);
        match line {
            Some(line) => error.line(line),
            None => error,
        }
    }
}

impl<F: TextFormat> TextCursor<F> {
    /// Passes over the record that was returned last, and finds the next.
    fn find(&mut self) -> Result<Option<TextFound>, FormatError> {
        let TextCursor { shard, window, position, due, .. } = self;
        let taken = window.bytes().get(..position.taken).unwrap_or_default();
        if !taken.is_empty() {
            let lines = memchr::memchr_iter(b'\n', taken).count() as u64;
            position.line = position.line.map(|line| line.saturating_add(lines));
            position.number = position.number.saturating_add(1);
            window.consume(position.taken);
            position.taken = 0;
        }
        let found = position.find(window, &shard.file, &*shard.format)?;
        let length = found.as_ref().map(|found| found.record as u64);
        if let Some(due) = due.filter(|due| length != Some(*due)) {
            let length = length.map_or_else(|| "none".to_owned(), |length| format!("one of {length} bytes"));
            let what = format!("a record of {due} bytes was here, and now {length} is: the file has changed");
            return Err(position.error(window, &shard.file, Wrong::new(0, what)));
        }
        Ok(found)
    }
}

impl<F: TextFormat> Cursor for TextCursor<F> {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let Some(found) = self.find()? else { return Ok(None) };
        self.due = None;
        self.position.taken = found.all;
        let bytes = self.window.bytes().get(..found.record).unwrap_or_default();
        Ok(Some(Record {
            key: self.shard.format.key(bytes),
            value: self.window.lend(0..found.record),
            place: [self.window.at(), found.record as u64],
        }))
    }

    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError> {
        let TextShard { file, packing, begin, line, .. } = &*self.shard;
        let first = packing.is_some() || place[0] == *begin;
        let changed = |what: &str| {
            FormatError::damaged(file.path(), format!("{what}: the file has changed"))
                .record(position)
                .byte(place[0])
        };
        if packing.is_some() && position != 0 {
            let what = format!("it has no place to go to: {IN_ORDER}");
            return Err(FormatError::refused(file.path(), what).record(position));
        }
        if !first {
            if place[0] < *begin || place[0] >= file.bytes() {
                return Err(changed("no record is here"));
            }
            let before = place[0].saturating_sub(1)..place[0];
            if file.read(before, &mut self.before)? != b"\n" {
                return Err(changed("no line begins here"));
            }
        }
        let ahead = usize::try_from(place[1].saturating_add(2)).unwrap_or(usize::MAX);
        self.window.seek(place[0], ahead)?;
        if packing.is_some() {
            self.window.pass_over(*begin)?;
        }
        self.due = packing.is_none().then_some(place[1]);
        self.position = TextPosition { number: position, line: first.then_some(*line), taken: 0 };
        Ok(())
    }
}
