//! Token sequences as Megatron and fairseq write them: `.bin` and `.idx`.
//!
//! Records are sequences: the part `tokens`, lent from the `.bin`, and of multimodal data the part `mode`.
//! The index is compared with itself and with the `.bin` when it is opened: pointers follow from the lengths,
//! documents end at the number of sequences, and the last sequence ends where the `.bin` does.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::Access;

use crate::known_settings::KnownSettings;
use crate::packed::{self, PackedGrammar};
use crate::{
    Array, Cursor, DataFile, ElementType, Fault, FormatError, Grammar, Key, Lent, Options, Part, Place,
    Record, Seeks, Shape, Shard, Value,
};

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";

/// fairseq's older form.
const OLD_MAGIC: &[u8; 6] = b"TNTIDX";

/// Where fairseq's lengths begin; Megatron has a number of documents there.
const HEADER: u64 = 26;

/// The entries of a table that are compared at once.
const STEP: u64 = 1 << 16;

/// Tells an index by its first bytes, and a `.bin` by the index beside it.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    if head.starts_with(MAGIC) {
        return true;
    }
    let is_bin = path.extension() == Some(OsStr::new("bin"));
    is_bin && DataFile::open(&path.with_extension("idx"), Access::Read).is_ok_and(|index| has_magic(&index))
}

/// Opens a pair of files, by the path of either or without an extension. It has no settings.
///
/// # Errors
///
/// [`FormatError::Damaged`] if the files contradict each other; [`FormatError::Refused`] for other versions.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "megatron", options, &[])?;
    let (data, index) = match path.extension().and_then(OsStr::to_str) {
        Some("bin" | "idx") => (path.with_extension("bin"), path.with_extension("idx")),
        _ => {
            let with = |ending: &str| {
                let mut name = path.as_os_str().to_owned();
                name.push(ending);
                PathBuf::from(name)
            };
            (with(".bin"), with(".idx"))
        }
    };
    let index = DataFile::open(&index, options.access)?;
    let data = DataFile::open(&data, options.access)?;
    let layout = TokenLayout::of(&index)?;
    layout.check_sequences(&index, &data)?;
    layout.check_documents(&index)?;
    Ok(vec![Arc::new(TokenShard { data, index, layout })])
}

fn has_magic(index: &DataFile) -> bool {
    index.read(0..MAGIC.len() as u64, &mut Vec::new()).is_ok_and(|head| head == MAGIC)
}

/// Where the index has its tables.
#[derive(Clone, Copy, Debug)]
struct TokenLayout {
    dtype: ElementType,
    sequences: u64,
    /// `None` in fairseq's form.
    documents: Option<u64>,
    lengths_at: u64,
    pointers_at: u64,
    documents_at: u64,
    /// Where the modes are, if there are any.
    modes_at: Option<u64>,
}

impl TokenLayout {
    fn of(index: &DataFile) -> Result<Self, FormatError> {
        let damaged = |what: String| FormatError::damaged(index.path(), what);
        let mut buffer = Vec::new();
        let head = index.read(0..index.bytes().min(34), &mut buffer)?;
        if head.starts_with(OLD_MAGIC) {
            let what = "it is an index of fairseq's older form (TNTIDX), which is not read; make it again \
                        with --dataset-impl mmap";
            return Err(FormatError::refused(index.path(), what));
        }
        let Some(rest) = head.strip_prefix(MAGIC) else {
            let what = "it is not an index of token sequences: it does not begin with MMIDIDX";
            return Err(damaged(what.to_owned()));
        };
        let number = |at: usize| {
            let bytes = rest.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map(|bytes| u64::from_le_bytes(*bytes))
        };
        let cut = || damaged(format!("the index has {} bytes, fewer than its header", index.bytes()));
        let version = number(0).ok_or_else(cut)?;
        if version != 1 {
            let what = format!("the index has version {version}, which is not supported: version 1 is read");
            return Err(FormatError::refused(index.path(), what).byte(9));
        }
        let code = rest.get(8).copied().ok_or_else(cut)?;
        let sequences = number(9).ok_or_else(cut)?;
        Self::by_length(index, code, sequences, number(17))
    }

    /// Only the length tells Megatron's form, with and without modes, from fairseq's. No two of them agree.
    fn by_length(
        index: &DataFile,
        code: u8,
        sequences: u64,
        documents: Option<u64>,
    ) -> Result<Self, FormatError> {
        let bytes = u128::from(index.bytes());
        let (s, header) = (u128::from(sequences), u128::from(HEADER));
        // Numbers of 64 bits times small ones are far from overflowing 128.
        let fairseq = s.saturating_mul(12).saturating_add(header);
        let megatron =
            documents.map(|d| u128::from(d).saturating_mul(8).saturating_add(fairseq).saturating_add(8));
        let with_modes = megatron.map(|length| length.saturating_add(s));
        let (is_fairseq, has_modes) = (bytes == fairseq, with_modes == Some(bytes) && sequences > 0);
        if !is_fairseq && !has_modes && megatron != Some(bytes) {
            let what = format!(
                "the index has {bytes} bytes, and needs {} for {sequences} sequences and {} documents (or \
                 {fairseq} in fairseq's form): it is damaged or cut",
                megatron.unwrap_or(fairseq),
                documents.unwrap_or_default()
            );
            return Err(FormatError::damaged(index.path(), what));
        }
        let dtype = dtype_of(code, is_fairseq).ok_or_else(|| {
            let what = format!(
                "the index has the unknown type code {code}; Megatron has 1 to 8, and fairseq 9 (uint32) and \
                 10 (uint64), too"
            );
            FormatError::damaged(index.path(), what).byte(17)
        })?;
        // The tables fit the file, so their offsets do.
        let lengths_at = if is_fairseq { HEADER } else { HEADER.saturating_add(8) };
        let pointers_at = lengths_at.saturating_add(sequences.saturating_mul(4));
        let documents_at = pointers_at.saturating_add(sequences.saturating_mul(8));
        let documents = if is_fairseq { None } else { documents };
        let modes_at =
            has_modes.then(|| documents_at.saturating_add(documents.unwrap_or_default().saturating_mul(8)));
        Ok(TokenLayout { dtype, sequences, documents, lengths_at, pointers_at, documents_at, modes_at })
    }

    fn token_bytes(&self) -> u64 {
        self.dtype.bytes() as u64
    }

    /// Compares lengths, pointers and the `.bin`.
    fn check_sequences(&self, index: &DataFile, data: &DataFile) -> Result<(), FormatError> {
        let (mut lengths, mut pointers) = (Vec::new(), Vec::new());
        let (mut begin, mut end) = (0_u64, 0_u64);
        while begin < self.sequences {
            let until = self.sequences.min(begin.saturating_add(STEP));
            let lengths = table(index, self.lengths_at, 4, begin..until, &mut lengths)?;
            let pointers = table(index, self.pointers_at, 8, begin..until, &mut pointers)?;
            let pairs = lengths.as_chunks::<4>().0.iter().zip(pointers.as_chunks::<8>().0);
            for (sequence, (length, pointer)) in (begin..until).zip(pairs) {
                let (length, pointer) = (i32::from_le_bytes(*length), i64::from_le_bytes(*pointer));
                let damaged = |what: String| Err(FormatError::damaged(index.path(), what).record(sequence));
                let Ok(length) = u64::try_from(length) else {
                    return damaged(format!("sequence {sequence} has the negative length {length}"));
                };
                if u64::try_from(pointer) != Ok(end) {
                    return damaged(format!(
                        "sequence {sequence} begins at byte {pointer} by its pointer, and at {end} by the \
                         lengths before it; the .bin has {} bytes",
                        data.bytes()
                    ));
                }
                // A length has 31 bits, and the end before it is inside the file.
                end = end.saturating_add(length.saturating_mul(self.token_bytes()));
                if end > data.bytes() {
                    return damaged(format!(
                        "sequence {sequence} of {length} tokens leaves the .bin: it ends at byte {end}, and \
                         {} bytes are there",
                        data.bytes()
                    ));
                }
            }
            begin = until;
        }
        if end != data.bytes() {
            let what = format!(
                "it has {} bytes, and the sequences of its index end at {end}: the index is of another file",
                data.bytes()
            );
            return Err(FormatError::damaged(data.path(), what));
        }
        Ok(())
    }

    /// Documents begin with 0, do not fall, and end at the number of sequences.
    fn check_documents(&self, index: &DataFile) -> Result<(), FormatError> {
        let Some(documents) = self.documents else { return Ok(()) };
        let (mut buffer, mut begin, mut last) = (Vec::new(), 0_u64, 0_i64);
        while begin < documents {
            let until = documents.min(begin.saturating_add(STEP));
            let entries = table(index, self.documents_at, 8, begin..until, &mut buffer)?;
            for (number, entry) in (begin..until).zip(entries.as_chunks::<8>().0) {
                let entry = i64::from_le_bytes(*entry);
                if entry < last || (number == 0 && entry != 0) {
                    let what = format!(
                        "document {number} begins with sequence {entry}, and the one before with {last}"
                    );
                    return Err(FormatError::damaged(index.path(), what));
                }
                last = entry;
            }
            begin = until;
        }
        if u64::try_from(last) != Ok(self.sequences) {
            let what = format!(
                "its documents end at sequence {last}, and do not end at the number of sequences, {}",
                self.sequences
            );
            return Err(FormatError::damaged(index.path(), what));
        }
        Ok(())
    }
}

/// Entries of a table of the index.
fn table<'a>(
    index: &'a DataFile,
    at: u64,
    entry_bytes: u64,
    entries: std::ops::Range<u64>,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], FormatError> {
    let byte = |entry: u64| at.saturating_add(entry.saturating_mul(entry_bytes));
    index.read(byte(entries.start)..byte(entries.end), buffer)
}

/// Both have the same codes up to 6, and 8.
fn dtype_of(code: u8, fairseq: bool) -> Option<ElementType> {
    Some(match code {
        1 => ElementType::U8,
        2 => ElementType::I8,
        3 => ElementType::I16,
        4 => ElementType::I32,
        5 => ElementType::I64,
        6 => ElementType::F64,
        7 if fairseq => ElementType::F64,
        7 => ElementType::F32,
        8 => ElementType::U16,
        9 if fairseq => ElementType::U32,
        10 if fairseq => ElementType::U64,
        _ => return None,
    })
}

/// A `.bin` and its `.idx`.
#[derive(Debug)]
struct TokenShard {
    data: DataFile,
    index: DataFile,
    layout: TokenLayout,
}

impl Shard for TokenShard {
    fn path(&self) -> &Path {
        self.data.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.data.path().to_owned(), self.index.path().to_owned()]
    }

    fn records(&self) -> Option<u64> {
        Some(self.layout.sequences)
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        let dtype = self.layout.dtype;
        match self.layout.modes_at {
            None => Arc::new(TokenGrammar { dtype }),
            Some(_) => {
                let tokens = ("tokens".to_owned(), format!("{}[n]", dtype.numpy()));
                Arc::new(PackedGrammar::new([tokens, ("mode".to_owned(), "int".to_owned())]))
            }
        }
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(TokenCursor { shard: self, at: 0, buffer: Vec::new(), packed: Vec::new() }))
    }
}

#[derive(Debug)]
struct TokenCursor {
    shard: Arc<TokenShard>,
    at: u64,
    buffer: Vec<u8>,
    packed: Vec<u8>,
}

impl Cursor for TokenCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let TokenShard { data, index, layout } = &*self.shard;
        let (at, place) = (self.at, [self.at, 0]);
        if at >= layout.sequences {
            return Ok(None);
        }
        let one = at..at.saturating_add(1);
        let entry = table(index, layout.lengths_at, 4, one.clone(), &mut self.buffer)?;
        let length = u64::from(entry.first_chunk().map_or(0, |length| u32::from_le_bytes(*length)));
        let entry = table(index, layout.pointers_at, 8, one.clone(), &mut self.buffer)?;
        let begin = entry.first_chunk().map_or(0, |pointer| u64::from_le_bytes(*pointer));
        let end = begin.saturating_add(length.saturating_mul(layout.token_bytes()));
        let Some(modes_at) = layout.modes_at else {
            let value = data.lend(begin..end, &mut self.buffer).map_err(|error| error.record(at))?;
            self.at = at.saturating_add(1);
            return Ok(Some(Record { key: Key::None, value, place }));
        };

        let mode = table(index, modes_at, 1, one, &mut self.buffer)?.first().copied().unwrap_or_default();
        let tokens = data.read(begin..end, &mut self.buffer).map_err(|error| error.record(at))?;
        let bytes = Cow::Borrowed(tokens);
        let tokens = Array { dtype: layout.dtype, shape: Shape::from_iter([length]), bytes };
        self.packed.clear();
        packed::pack(&Value::Array(tokens), &mut self.packed);
        packed::pack(&Value::Int(mode.cast_signed().into()), &mut self.packed);
        self.at = at.saturating_add(1);
        Ok(Some(Record { key: Key::None, value: Lent::Buffer(&self.packed), place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        let place = [self.at, 0];
        if self.at >= self.shard.layout.sequences {
            return Ok(None);
        }
        self.at = self.at.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        let ([at, _], sequences) = (place, self.shard.layout.sequences);
        if at >= sequences {
            let what = format!("sequence {at} is wanted, and there are {sequences}: the file has changed");
            return Err(FormatError::damaged(self.shard.index.path(), what));
        }
        self.at = at;
        Ok(())
    }
}

/// The tokens of a sequence.
#[derive(Debug)]
struct TokenGrammar {
    dtype: ElementType,
}

impl Grammar for TokenGrammar {
    fn description(&self) -> String {
        format!("tokens: {}[n]", self.dtype.numpy())
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(vec!["tokens".to_owned()])
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let tokens = self.part(value, "tokens")?;
        Ok(tokens.map(|tokens| (Cow::Borrowed("tokens"), tokens)).into_iter().collect())
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        if name != "tokens" {
            return Ok(None);
        }
        let dtype = self.dtype;
        let count = value.len().checked_div(dtype.bytes()).unwrap_or_default();
        if count.saturating_mul(dtype.bytes()) != value.len() {
            let what = format!("{} bytes are no tokens of {} bytes each", value.len(), dtype.bytes());
            return Err(Fault::new(what));
        }
        let shape = Shape::from_iter([count as u64]);
        Ok(Some(Value::Array(Array { dtype, shape, bytes: Cow::Borrowed(value) })))
    }
}
