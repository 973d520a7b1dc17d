//! Tar as WebDataset reads it: a record is a run of members with one key. Plain, `.gz` or `.zst`.
//!
//! The key is a member's name up to the first dot behind the last slash; the rest, in lower case, is the
//! field. A record is lent as the piece of the tar from its first member's header on. What WebDataset passes
//! over is passed over, and said in a warning: links, and names without a key or a field.
//!
//! A key may come back after others: each run is a record, as in WebDataset, and a warning names both places.
//! The setting `group` says otherwise: `once` makes it an error, and `shard` makes one record of all members
//! with one key.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod dali;
mod grouped;
mod header;
mod names;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percolator_files::shown;

use self::grouped::GroupedTarShard;
use self::header::{BLOCK, TarKind, TarStep, is_lower_of, lower, padded, step};
use self::names::TarNames;
use self::walk::TarWalk;
use crate::known_settings::KnownSettings;
use crate::unpack::{IN_ORDER, Packing};
use crate::{
    Cursor, DataFile, Fault, FormatError, Grammar, Key, Lent, Options, Part, Place, Record, Seeks, Shard,
    Value,
};

pub use self::dali::{DaliMember, DaliSample, dali_index};

/// Opens a tar, or the tars of a folder, in the order of their names.
///
/// # Errors
///
/// [`FormatError`] if a file cannot be opened, a setting is unknown, or records are to be grouped and a
/// header is damaged.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "tar", options, &["group"])?;
    let group = match settings.get("group") {
        None | Some("run") => TarGroup::Run,
        Some("once") => TarGroup::Once,
        Some("shard") => TarGroup::Shard,
        Some(other) => return Err(settings.refuse("group", other, "run, once or shard")),
    };
    if !path.is_dir() {
        return Ok(vec![open_file(path, options, group)?]);
    }
    let files = tars_of(path).map_err(|error| FormatError::io(path, "list the folder", error))?;
    if files.is_empty() {
        return Err(FormatError::damaged(path, "the folder has no file that is named as a tar is"));
    }
    files.iter().map(|file| open_file(file, options, group)).collect()
}

/// Whether a file is a tar, by its first header or its name; or a folder has one, by their names.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    if path.is_dir() {
        return tars_of(path).is_ok_and(|files| !files.is_empty());
    }
    match head.first_chunk::<BLOCK>() {
        Some(block) if Packing::of(head).is_none() && block != &[0; BLOCK] => {
            // Old tars have nothing but the checksum to be told by.
            matches!(
                step(block),
                Ok(TarStep::Member(_) | TarStep::More(_)) | Err(header::TarFault { refused: true, .. })
            ) || is_named_tar(path)
        }
        _ => is_named_tar(path),
    }
}

fn is_named_tar(path: &Path) -> bool {
    let inner = Packing::inner_name(path);
    inner.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

fn tars_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // A link that leads nowhere is an error: its records would be missing.
        if is_named_tar(&path) && !is_hidden && std::fs::metadata(&path)?.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn open_file(path: &Path, options: &Options, group: TarGroup) -> Result<Arc<dyn Shard>, FormatError> {
    let file = Arc::new(DataFile::open(path, options.access)?);
    let packing = Packing::of_file(&file)?;
    let shard = TarShard {
        file,
        packing,
        may_come_back: group != TarGroup::Once,
        warned: AtomicBool::new(false),
        warned_of_key: AtomicBool::new(false),
    };
    match group {
        TarGroup::Once | TarGroup::Run => Ok(Arc::new(shard)),
        TarGroup::Shard => Ok(Arc::new(GroupedTarShard::new(shard, options)?)),
    }
}

/// Which members are one record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TarGroup {
    /// A run of one key, which does not come back.
    Once,
    /// A run of one key.
    Run,
    /// All of one key.
    Shard,
}

/// A tar of records.
#[derive(Debug)]
struct TarShard {
    file: Arc<DataFile>,
    packing: Option<Packing>,
    /// Whether a key may come back after others.
    may_come_back: bool,
    /// Whether it was said what is passed over.
    warned: AtomicBool,
    /// Whether it was said that a key comes back.
    warned_of_key: AtomicBool,
}

impl TarShard {
    /// Says once what a pass to the end has passed over.
    fn warn(&self, walk: &TarWalk) {
        if let Some(said) = walk.passed.said()
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(file = %shown::path(self.file.path()), "members of a tar are passed over: {said}");
        }
    }
}

impl Shard for TarShard {
    fn path(&self) -> &Path {
        self.file.path()
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

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::new(TarGrammar)
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(TarCursor {
            walk: TarWalk::new(&self.file, self.packing)?,
            shard: self,
            begin: 0,
            number: 0,
            due: None,
            key: Vec::new(),
            keys: TarNames::default(),
            fields: TarNames::default(),
            buffer: Vec::new(),
            ended: None,
        }))
    }
}

/// Reads a tar run by run.
struct TarCursor {
    shard: Arc<TarShard>,
    walk: TarWalk,
    /// Where the search for the next record begins: at its first header, or at what is passed over before.
    begin: u64,
    number: u64,
    /// The length of the next record, if an earlier pass has found it.
    due: Option<u64>,
    key: Vec<u8>,
    /// The keys since the last seek, with the places of their records.
    keys: TarNames,
    /// The fields of the record, with the places of their members.
    fields: TarNames,
    buffer: Vec<u8>,
    /// The end, or an error, after which a stream cannot be read again.
    ended: Option<Result<(), FormatError>>,
}

impl TarCursor {
    /// Finds the next run: its first header, and the length to the end of its last member's data.
    fn find(&mut self) -> Result<Option<Place>, FormatError> {
        if let Some(ended) = &self.ended {
            return ended.clone().map(|()| None);
        }
        let result = self.find_run().map_err(|error| error.record(self.number));
        match &result {
            Ok(Some(_)) => {
                self.number = self.number.saturating_add(1);
                self.due = None;
            }
            Ok(None) => self.ended = Some(Ok(())),
            Err(error) => self.ended = Some(Err(error.clone())),
        }
        result
    }

    fn find_run(&mut self) -> Result<Option<Place>, FormatError> {
        self.walk.forget(self.begin);
        self.walk.go_to(self.begin);
        let Some(first) = self.walk.first()? else {
            self.shard.warn(&self.walk);
            return match self.due {
                None => Ok(None),
                Some(due) => Err(self.changed(self.begin, due, 0)),
            };
        };
        if let Some(due) = self.due.filter(|_| first.start != self.begin) {
            return Err(self.changed(self.begin, due, 0));
        }
        self.key.clear();
        self.key.extend_from_slice(self.walk.key());
        self.fields.clear();
        let mut last = first;
        loop {
            if let Some(before) = self.fields.add(self.walk.field().as_bytes(), last.start) {
                let what = format!(
                    "the member {} is the second one of its record with the field {:?}, after that at byte \
                    {before}",
                    self.walk.shown_name(),
                    self.walk.field()
                );
                return Err(self.damaged(what, last.start));
            }
            // With a place, the header of the next record is not looked at.
            if self.due.is_some_and(|due| last.end.saturating_sub(first.start) >= due) {
                break;
            }
            match self.walk.next_of(&self.key)? {
                Some(next) => last = next,
                None => break,
            }
        }
        let length = last.end.saturating_sub(first.start);
        if let Some(due) = self.due.filter(|due| *due != length) {
            return Err(self.changed(first.start, due, length));
        }
        if let Some(before) = self.keys.add(&self.key, first.start) {
            let error = self.comes_back(before, first.start);
            if !self.shard.may_come_back {
                return Err(error);
            }
            if !self.shard.warned_of_key.swap(true, Ordering::Relaxed) {
                tracing::warn!("{error}");
            }
        }
        self.begin = last.next;
        Ok(Some([first.start, length]))
    }

    fn damaged(&self, what: String, at: u64) -> FormatError {
        FormatError::damaged(self.shard.file.path(), what).byte(at)
    }

    fn changed(&self, at: u64, due: u64, length: u64) -> FormatError {
        let what =
            format!("a record of {due} bytes was here, and now one of {length} is: the file has changed");
        self.damaged(what, at)
    }

    fn comes_back(&self, before: u64, at: u64) -> FormatError {
        let what = format!(
            "the key {} comes back after others: its members lie at byte {before} and at byte {at}. Pack the \
             tar with its members sorted by name, or set group=shard for one record of all of them; a record \
             of each run, as WebDataset has it, is group=run",
            shown::bytes(&self.key)
        );
        self.damaged(what, at)
    }
}

impl Cursor for TarCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let Some(place) = self.find()? else { return Ok(None) };
        let [start, length] = place;
        let value = match self.walk.window() {
            Some(window) => {
                let start = usize::try_from(start.saturating_sub(window.at())).unwrap_or(usize::MAX);
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                window.lend(start..start.saturating_add(length))
            }
            None => self.shard.file.lend(start..start.saturating_add(length), &mut self.buffer)?,
        };
        Ok(Some(Record { key: Key::Bytes(&self.key), value, place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        self.find()
    }

    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError> {
        let file = &self.shard.file;
        if self.shard.packing.is_some() {
            if position != 0 {
                let what = format!("it has no place to go to: {IN_ORDER}");
                return Err(FormatError::refused(file.path(), what).record(position));
            }
            self.walk.restart()?;
            self.begin = 0;
            self.due = None;
        } else {
            let is_inside = place[0].checked_add(place[1]).is_some_and(|end| end <= file.bytes());
            if !is_inside || !place[0].is_multiple_of(BLOCK as u64) || place[1] < BLOCK as u64 {
                let what = "no record is here: the file has changed";
                return Err(FormatError::damaged(file.path(), what).record(position).byte(place[0]));
            }
            self.begin = place[0];
            self.due = Some(place[1]);
        }
        self.number = position;
        self.ended = None;
        self.keys.clear();
        Ok(())
    }
}

/// A member's field, not yet in lower case, and its data.
type TarEntry<'a> = (&'a [u8], &'a [u8]);

/// Finds the members in a piece of a tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TarGrammar;

impl TarGrammar {
    /// Takes the next member that is a part off the front: its field and its data.
    fn take<'a>(rest: &mut &'a [u8]) -> Result<Option<TarEntry<'a>>, Fault> {
        while !rest.is_empty() {
            let cut = || Fault::new("a piece of a tar is cut");
            let member = match step(rest).map_err(|fault| Fault::new(fault.what))? {
                TarStep::Global(bytes) => {
                    *rest = rest.get(bytes..).ok_or_else(cut)?;
                    continue;
                }
                TarStep::Member(member) => member,
                TarStep::More(_) => return Err(cut()),
                TarStep::Zeros => return Err(Fault::new("zeros stand where a header is expected")),
            };
            let data = rest.get(member.headers..).ok_or_else(cut)?;
            let size = usize::try_from(member.size).map_err(|_| cut())?;
            let padded = padded(member.size).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(cut)?;
            // The last member's padding may be missing.
            *rest = data.get(padded..).unwrap_or_default();
            let data = data.get(..size).ok_or_else(cut)?;
            if let (TarKind::File, Some((_, field))) = (member.kind, member.name.split()) {
                return Ok(Some((field, data)));
            }
        }
        Ok(None)
    }
}

fn part_of(data: &[u8]) -> Value<'_> {
    std::str::from_utf8(data).map_or(Value::Bytes(data.into()), |text| Value::Text(text.into()))
}

impl Grammar for TarGrammar {
    fn description(&self) -> String {
        "members of a tar".to_owned()
    }

    fn names(&self) -> Option<Vec<String>> {
        None
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let (mut rest, mut parts) = (value, Vec::new());
        while let Some((field, data)) = Self::take(&mut rest)? {
            let field = lower(field).ok_or_else(|| Fault::new("a field's name is not UTF-8"))?;
            parts.push((field, part_of(data)));
        }
        Ok(parts)
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let mut rest = value;
        while let Some((field, data)) = Self::take(&mut rest)? {
            if is_lower_of(field, name) {
                return Ok(Some(part_of(data)));
            }
        }
        Ok(None)
    }
}

/// Where the members of one key lie: lent as one piece if they lie in one.
#[derive(Debug)]
enum TarPieces {
    One(u64, u64),
    Several(Vec<(u64, u64)>),
}

impl TarPieces {
    fn lend<'a>(
        &self,
        file: &'a DataFile,
        [packed, piece]: [&'a mut Vec<u8>; 2],
    ) -> Result<Lent<'a>, FormatError> {
        match self {
            TarPieces::One(start, end) => file.lend(*start..*end, packed),
            TarPieces::Several(pieces) => {
                packed.clear();
                for (start, end) in pieces {
                    packed.extend_from_slice(file.read(*start..*end, piece)?);
                }
                Ok(Lent::Buffer(packed))
            }
        }
    }
}
