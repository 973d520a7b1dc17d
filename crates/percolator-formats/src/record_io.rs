//! MXNet's RecordIO: `.rec`, with or without its `.idx`.
//!
//! A record is a part, or several where its bytes have the magic number at a multiple of four. A whole one is
//! lent; parts are joined in the cursor's buffer, with the magic that was left out between them. The index
//! gives keys and places, in the order of the file; without it, records are found by walking.
//!
//! Settings: `records` is `raw` (the part `record`) or `image` (`flag`, `label`, `id`, `id2`, `image`);
//! without it, the first records decide. `index` is `none` to leave the index aside.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::{input_file, shown};

use crate::known_settings::KnownSettings;
use crate::raw_grammar::RawGrammar;
use crate::{
    Array, Cursor, DataFile, ElementType, Fault, FormatError, Grammar, Key, Lent, Options, Part, Place,
    Record, Seeks, Shape, Shard, Value,
};

const MAGIC: [u8; 4] = 0xCED7_230A_u32.to_le_bytes();

/// The magic, and a word of flag and length.
const HEADER: u64 = 8;

/// The lower bits of a header's second word: the length.
const LENGTH_BITS: u32 = 29;

/// The bytes of an image record before its labels.
const IMAGE_HEADER: usize = 24;

/// So many first records decide what all are.
const SAMPLED: usize = 8;

/// The parts of an image record.
const IMAGE_PARTS: [&str; 5] = ["flag", "label", "id", "id2", "image"];

/// Tells a RecordIO file by its first bytes; an empty one by the name.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    if head.is_empty() {
        return path.extension() == Some(OsStr::new("rec"));
    }
    let begins = |flag: &u8| matches!(flag >> 5, 0 | 1);
    head.starts_with(&MAGIC) && head.get(7).is_some_and(begins)
}

/// Opens a file, by its path or its index's. The index lies beside it, under its name with `.idx`.
///
/// # Errors
///
/// [`FormatError::Damaged`] if a line of the index is none, or lies outside the file;
/// [`FormatError::Refused`] for unknown settings.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "recordio", options, &["records", "index"])?;
    let path = if path.extension() == Some(OsStr::new("idx")) { &path.with_extension("rec") } else { path };
    let file = DataFile::open(path, options.access)?;
    let beside = path.with_extension("idx");
    let index = match settings.get("index") {
        Some("none") => None,
        Some(other) => return Err(settings.refuse("index", other, "none, or left out")),
        None if beside == path => None,
        None => RecIndex::open(beside, &file)?,
    };
    let content = match settings.get("records") {
        Some("raw") => Content::Bytes,
        Some("image") => Content::Images,
        Some(other) => return Err(settings.refuse("records", other, "raw or image")),
        None => content_of(&file),
    };
    Ok(vec![Arc::new(RecShard { file, index, content })])
}

/// What the index says, in the order of the file.
#[derive(Debug)]
struct RecIndex {
    path: PathBuf,
    offsets: Vec<u64>,
    keys: RecKeys,
}

/// MXNet's keys are integers, unless the writer says otherwise.
#[derive(Debug)]
enum RecKeys {
    Numbers(Vec<u64>),
    Texts(Vec<Box<str>>),
}

impl RecIndex {
    /// Reads the index of a file; `None` if there is none.
    fn open(path: PathBuf, file: &DataFile) -> Result<Option<Self>, FormatError> {
        let failed = |error| FormatError::io(&path, "read the index", error);
        if !input_file::is_there(&path).map_err(failed)? {
            return Ok(None);
        }
        let bytes = input_file::read(&path, u64::MAX).map_err(failed)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| FormatError::damaged(&path, "it is no text, as an index of RecordIO is"))?;
        let mut entries = Vec::new();
        for (number, line) in (1_u64..).zip(text.lines()) {
            if !line.trim().is_empty() {
                let entry =
                    index_entry(line, file).map_err(|what| FormatError::damaged(&path, what).line(number))?;
                entries.push((entry, number));
            }
        }
        // Keys are in any order, records in the file's.
        entries.sort_by_key(|&((_, offset), _)| offset);
        for ((before, _), (after, line)) in entries.iter().zip(entries.iter().skip(1)) {
            if before.1 == after.1 {
                let what = format!(
                    "the keys {} and {} are at the same offset {}",
                    shown::line(before.0),
                    shown::line(after.0),
                    after.1
                );
                return Err(FormatError::damaged(&path, what).line(*line));
            }
        }
        let offsets = entries.iter().map(|((_, offset), _)| *offset).collect();
        let numbers: Option<_> = entries.iter().map(|((key, _), _)| key.parse().ok()).collect();
        let keys = match numbers {
            Some(numbers) => RecKeys::Numbers(numbers),
            None => RecKeys::Texts(entries.iter().map(|((key, _), _)| Box::from(*key)).collect()),
        };
        let index = RecIndex { path, offsets, keys };
        index.check_ends(file)?;
        Ok(Some(index))
    }

    /// Compares its first and its last entry with the file: records before and behind them would never be
    /// read by position. A last record that is damaged is whoever reads it to notice.
    fn check_ends(&self, file: &DataFile) -> Result<(), FormatError> {
        let first = self.offsets.first().copied().unwrap_or_default();
        if let (1.., Ok(RecPart { flag: 0 | 1, .. })) = (first, RecWalk::default().part(file, 0)) {
            return Err(self.leaves_out(0, 0, first));
        }
        let end = match self.offsets.last() {
            None => Some(0),
            Some(last) => {
                let end = RecWalk::default().parts(file, *last, |_, _| Ok(()));
                end.ok().flatten()
            }
        };
        match end {
            Some(end) if end < file.bytes() => Err(self.ends_after(self.offsets.len() as u64, end)),
            _ => Ok(()),
        }
    }

    fn ends_after(&self, records: u64, end: u64) -> FormatError {
        let what = format!(
            "the index ends after {records} records, and the file has another at byte {end}: the index is of \
             another file, or cut; make it again, or read without it (index=none)"
        );
        FormatError::damaged(&self.path, what).record(records)
    }

    fn leaves_out(&self, position: u64, at: u64, stated: u64) -> FormatError {
        let key = self.shown_key(position);
        let what = format!(
            "the index leaves out what is at byte {at} of the file, before byte {stated} of key {key}; make \
             it again, or read without it (index=none)"
        );
        FormatError::damaged(&self.path, what).record(position)
    }

    fn offset(&self, position: u64) -> Option<u64> {
        self.offsets.get(usize::try_from(position).ok()?).copied()
    }

    fn key(&self, position: u64) -> Key<'_> {
        let index = usize::try_from(position).unwrap_or(usize::MAX);
        match &self.keys {
            RecKeys::Numbers(numbers) => numbers.get(index).map_or(Key::None, |key| Key::Number(*key)),
            RecKeys::Texts(texts) => texts.get(index).map_or(Key::None, |key| Key::Bytes(key.as_bytes())),
        }
    }

    /// A key for messages.
    fn shown_key(&self, position: u64) -> String {
        match self.key(position) {
            Key::Number(key) => key.to_string(),
            Key::Bytes(key) => shown::line(&String::from_utf8_lossy(key)).to_string(),
            Key::None => "none".to_owned(),
        }
    }
}

/// The key and the offset of a line, which is inside the file.
fn index_entry<'a>(line: &'a str, file: &DataFile) -> Result<(&'a str, u64), String> {
    let form = || format!("{} is no key, tab and offset", shown::line(line));
    let (key, offset) = line.split_once('\t').ok_or_else(form)?;
    let offset: u64 = offset.trim().parse().map_err(|_| form())?;
    if offset >= file.bytes() {
        let bytes = file.bytes();
        return Err(format!(
            "the index gives the offset {offset} for key {}, and the file has {bytes} bytes: the file is \
             cut, or the index is damaged (MXNet's tools/rec2idx.py makes it again)",
            shown::line(key)
        ));
    }
    Ok((key, offset))
}

/// What records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Images,
    Texts,
    Bytes,
}

/// What a file's first whole records are: most of them images, or all of them text. One that is damaged
/// changes nothing.
fn content_of(file: &DataFile) -> Content {
    let (mut walk, mut at) = (RecWalk::default(), 0);
    let [mut read, mut images, mut texts] = [0_u32; 3];
    for _ in 0..SAMPLED {
        let Ok(Some((lent, end))) = walk.read(file, at) else { break };
        let record = lent.bytes();
        read = read.saturating_add(1);
        images = images.saturating_add(u32::from(image_labels(record).is_ok()));
        texts = texts.saturating_add(u32::from(std::str::from_utf8(record).is_ok()));
        at = end;
    }
    match () {
        () if images > 0 && images >= read.saturating_sub(images) => Content::Images,
        () if read > 0 && texts == read => Content::Texts,
        () => Content::Bytes,
    }
}

/// One `.rec` file.
#[derive(Debug)]
struct RecShard {
    file: DataFile,
    index: Option<RecIndex>,
    content: Content,
}

impl Shard for RecShard {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        let index = self.index.as_ref().map(|index| index.path.clone());
        std::iter::once(self.file.path().to_owned()).chain(index).collect()
    }

    fn records(&self) -> Option<u64> {
        match &self.index {
            Some(index) => Some(index.offsets.len() as u64),
            None => (self.file.bytes() == 0).then_some(0),
        }
    }

    fn seeks(&self) -> Seeks {
        if self.index.is_some() { Seeks::ByPosition } else { Seeks::ByPlace }
    }

    fn place(&self, position: u64) -> Result<Place, FormatError> {
        match self.index.as_ref().and_then(|index| index.offset(position)) {
            Some(offset) => Ok([offset, 0]),
            None => {
                let what = format!("the index has no record {position}");
                Err(FormatError::damaged(self.path(), what))
            }
        }
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        match self.content {
            Content::Images => Arc::new(RecImageGrammar),
            Content::Texts => Arc::new(RawGrammar { tells_text: true }),
            Content::Bytes => Arc::new(RawGrammar { tells_text: false }),
        }
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(RecCursor { shard: self, at: 0, position: 0, walk: RecWalk::default() }))
    }
}

/// A part's header, inside the file.
#[derive(Clone, Copy, Debug)]
struct RecPart {
    flag: u8,
    begin: u64,
    end: u64,
    /// Behind the padding, where the next part is.
    next: u64,
}

/// Reads records at offsets. Its buffers are reused.
#[derive(Debug, Default)]
struct RecWalk {
    header: Vec<u8>,
    joined: Vec<u8>,
    piece: Vec<u8>,
}

impl RecWalk {
    /// The part at an offset.
    fn part(&mut self, file: &DataFile, at: u64) -> Result<RecPart, FormatError> {
        let damaged = |what: String| FormatError::damaged(file.path(), what).byte(at);
        let there = file.bytes().saturating_sub(at);
        if there < HEADER {
            let what =
                format!("the file ends inside a header, of which {there} of 8 bytes are there: it is cut");
            return Err(damaged(what));
        }
        let begin = at.saturating_add(HEADER);
        let header = file.read(at..begin, &mut self.header)?;
        let Some(word) = header.strip_prefix(&MAGIC).and_then(<[u8]>::first_chunk) else {
            return Err(damaged("no magic number 0xCED7230A is there, with which records begin".to_owned()));
        };
        let word = u32::from_le_bytes(*word);
        let length = u64::from(word & ((1 << LENGTH_BITS) - 1));
        let there = there.saturating_sub(HEADER);
        let padded = length.next_multiple_of(4);
        if padded > there {
            let what = format!(
                "the record has the length {length} ({padded} with its padding), and {there} bytes are \
                 there: the length is damaged, or the file is cut"
            );
            return Err(damaged(what));
        }
        let flag = u8::try_from(word >> LENGTH_BITS).unwrap_or(u8::MAX);
        let next = begin.saturating_add(padded);
        Ok(RecPart { flag, begin, end: begin.saturating_add(length), next })
    }

    /// Calls for each part of the record at an offset; returns its end, or `None` at the end of the file.
    fn parts(
        &mut self,
        file: &DataFile,
        at: u64,
        mut each: impl FnMut(&mut Self, RecPart) -> Result<(), FormatError>,
    ) -> Result<Option<u64>, FormatError> {
        if at == file.bytes() {
            return Ok(None);
        }
        let mut part = self.part(file, at)?;
        let (mut offset, mut first) = (at, true);
        loop {
            let what = match (part.flag, first) {
                (0 | 1, true) | (2 | 3, false) => None,
                (2 | 3, true) => {
                    Some("a part without a beginning: the flag is that of a later one".to_owned())
                }
                (0 | 1, false) => {
                    Some(format!("a record begins, but the one from byte {at} lacks its last part"))
                }
                (other, _) => Some(format!("the flag {other} is none of 0 to 3")),
            };
            if let Some(what) = what {
                return Err(FormatError::damaged(file.path(), what).byte(offset));
            }
            each(self, part)?;
            if matches!(part.flag, 0 | 3) {
                return Ok(Some(part.next));
            }
            (offset, first) = (part.next, false);
            if offset == file.bytes() {
                let what = "a record without its last part: the file ends behind an earlier one; it is cut";
                return Err(FormatError::damaged(file.path(), what).byte(at));
            }
            part = self.part(file, offset)?;
        }
    }

    /// The record at an offset, and its end; `None` at the end of the file.
    fn read<'a>(&'a mut self, file: &'a DataFile, at: u64) -> Result<Option<(Lent<'a>, u64)>, FormatError> {
        let mut whole = None;
        self.joined.clear();
        let end = self.parts(file, at, |walk, part| {
            if part.flag == 0 {
                whole = Some(part.begin..part.end);
                return Ok(());
            }
            if part.flag != 1 {
                walk.joined.extend_from_slice(&MAGIC);
            }
            let piece = file.read(part.begin..part.end, &mut walk.piece)?;
            walk.joined.extend_from_slice(piece);
            Ok(())
        })?;
        let Some(end) = end else { return Ok(None) };
        let lent = match whole {
            Some(range) => file.lend(range, &mut self.joined)?,
            None => Lent::Buffer(&self.joined),
        };
        Ok(Some((lent, end)))
    }
}

#[derive(Debug)]
struct RecCursor {
    shard: Arc<RecShard>,
    /// Where the record before the next one ends.
    at: u64,
    /// The next one's number.
    position: u64,
    walk: RecWalk,
}

impl RecCursor {
    /// Compares the next record's offset with the index. What the index says is looked at first: it may be
    /// what is damaged.
    fn check(&mut self) -> Result<(), FormatError> {
        let RecShard { file, index: Some(index), .. } = &*self.shard else { return Ok(()) };
        let stated = index.offset(self.position);
        if stated == Some(self.at) || (stated.is_none() && self.at == file.bytes()) {
            return Ok(());
        }
        let Some(stated) = stated else { return Err(index.ends_after(self.position, self.at)) };
        if let Ok(RecPart { flag: 0 | 1, .. }) = self.walk.part(file, stated) {
            return Err(index.leaves_out(self.position, self.at, stated));
        }
        let what = format!(
            "no magic number is at the offset {stated} that the index gives for key {}, or none of a \
             record's beginning; the record before it ends at {}",
            index.shown_key(self.position),
            self.at
        );
        Err(FormatError::damaged(&index.path, what).record(self.position))
    }
}

/// An error with a record's number.
fn in_record(position: u64) -> impl FnOnce(FormatError) -> FormatError {
    move |error| error.record(position)
}

impl Cursor for RecCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        self.check()?;
        let (at, position) = (self.at, self.position);
        let RecShard { file, index, .. } = &*self.shard;
        let Some((value, end)) = self.walk.read(file, at).map_err(in_record(position))? else {
            return Ok(None);
        };
        self.at = end;
        self.position = position.saturating_add(1);
        let key = index.as_ref().map_or(Key::None, |index| index.key(position));
        Ok(Some(Record { key, value, place: [at, 0] }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        self.check()?;
        let (at, position) = (self.at, self.position);
        let end = self.walk.parts(&self.shard.file, at, |_, _| Ok(()));
        let Some(end) = end.map_err(in_record(position))? else { return Ok(None) };
        self.at = end;
        self.position = position.saturating_add(1);
        Ok(Some([at, 0]))
    }

    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError> {
        let [at, _] = place;
        let RecShard { file, index, .. } = &*self.shard;
        let changed = |what: String| FormatError::damaged(file.path(), what).record(position).byte(at);
        if index.as_ref().is_some_and(|index| index.offset(position) != Some(at)) {
            return Err(changed(format!("the index has no record {position} there: it has changed")));
        }
        let part = self.walk.part(file, at).map_err(|error| match index {
            Some(index) => {
                let key = index.shown_key(position);
                changed(format!(
                    "no record is at the offset {at} that the index gives for key {key}: {error}"
                ))
            }
            None => error.record(position),
        })?;
        if !matches!(part.flag, 0 | 1) {
            return Err(changed("a part without a beginning is there, no record".to_owned()));
        }
        self.at = at;
        self.position = position;
        Ok(())
    }
}

/// An image with its labels, as MXNet packs them.
#[derive(Debug)]
struct RecImageGrammar;

/// The labels of an image record that stand before the image, and the image.
fn image_labels(value: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let short =
        || Fault::new(format!("an image record has a header of 24 bytes, and this has {}", value.len()));
    let (header, rest) = value.split_at_checked(IMAGE_HEADER).ok_or_else(short)?;
    let flag = u32::from_le_bytes(*header.first_chunk().ok_or_else(short)?);
    let labels = usize::try_from(flag).ok().and_then(|flag| flag.checked_mul(4));
    labels.and_then(|labels| rest.split_at_checked(labels)).ok_or_else(|| {
        let there = rest.len();
        Fault::new(format!(
            "the record states {flag} labels, which leave it: {there} bytes follow its header"
        ))
    })
}

impl Grammar for RecImageGrammar {
    fn description(&self) -> String {
        "flag: int, label: <f4, id: int, id2: int, image: bytes".to_owned()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(IMAGE_PARTS.map(str::to_owned).to_vec())
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let part = |name: &'static str| Ok(self.part(value, name)?.map(|value| (Cow::Borrowed(name), value)));
        IMAGE_PARTS.into_iter().filter_map(|name| part(name).transpose()).collect()
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        if !IMAGE_PARTS.contains(&name) {
            return Ok(None);
        }
        let (labels, image) = image_labels(value)?;
        let eight = |at: usize| {
            let bytes = value.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(Value::Null, |bytes| Value::UInt(u64::from_le_bytes(*bytes)))
        };
        let flag = u64::try_from(labels.len()).unwrap_or_default() >> 2;
        let floats = |bytes: &'a [u8], shape| {
            Value::Array(Array { dtype: ElementType::F32, shape, bytes: Cow::Borrowed(bytes) })
        };
        Ok(Some(match name {
            "flag" => Value::UInt(flag),
            "label" if flag == 0 => floats(value.get(4..8).unwrap_or_default(), Shape::new()),
            "label" => floats(labels, Shape::from_iter([flag])),
            "id" => eight(8),
            "id2" => eight(16),
            _ => Value::Bytes(Cow::Borrowed(image)),
        }))
    }
}
