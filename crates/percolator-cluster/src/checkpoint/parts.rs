//! Several named states in one file.
//!
//! ```text
//! "percolator parts 1\n"
//! for each part:   1, length of its name (u16), its name
//!                  its bytes in pieces: length (u32, not 0), as many bytes
//!                  0 (u32), length of all pieces (u64), their CRC-32C (u32)
//! 0
//! ```
//!
//! Numbers are little-endian. Pieces allow a part to be written although its length is unknown before its
//! end.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufWriter, Read, Write};

use crc_fast::{CrcAlgorithm, Digest};

use super::{Checkpoint, error_within, invalid, read_array};

const MAGIC: &[u8] = b"percolator parts 1\n";
/// The most bytes of a part's name.
const NAME_BYTES_MAX: usize = 255;
/// What is written in small steps is gathered into pieces of so many bytes.
const GATHERED_BYTES: usize = 64 << 10;
/// So many bytes are summed and passed on at a time: they are still in a cache when they are copied. Where it
/// was measured, this takes 1.1 times as long as a copy; the other order, or longer pieces, take up to 1.3.
const SUMMED_BYTES: usize = 64 << 10;
/// What stands before a part, and after the last one.
const PART: u8 = 1;
const END: u8 = 0;

/// Writes states under names. [`read_parts`] finds them again, in any order.
///
/// # Errors
///
/// The error of a state, or of `to`; [`io::ErrorKind::InvalidInput`] if a name is empty, has more than 255
/// bytes, or comes twice.
pub fn write_parts(to: &mut dyn Write, parts: &[(&str, &dyn Checkpoint)]) -> io::Result<()> {
    let refused = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    for (place, (name, _)) in parts.iter().enumerate() {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return refused(format!(
                "the name of a part has 1 to {NAME_BYTES_MAX} bytes, and not {}",
                name.len()
            ));
        }
        if parts.iter().take(place).any(|(other, _)| other == name) {
            return refused(format!("two parts have the name {name:?}"));
        }
    }
    to.write_all(MAGIC)?;
    for (name, part) in parts {
        let length = u16::try_from(name.len()).map_err(io::Error::other)?;
        to.write_all(&[PART])?;
        to.write_all(&length.to_le_bytes())?;
        to.write_all(name.as_bytes())?;
        let mut gathered = BufWriter::with_capacity(GATHERED_BYTES, PieceWriter::new(to));
        let written = part.write(&mut gathered);
        // If the state cannot be written, neither is what is left of it.
        let (mut pieces, rest) = gathered.into_parts();
        written?;
        pieces.write_all(&rest.map_err(io::Error::other)?)?;
        pieces.finish()?;
    }
    to.write_all(&[END])
}

/// Reads states by their names, in whatever order they were written. There must be exactly these.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`], naming the part, if one is missing, is not known, comes twice, is damaged,
/// or has bytes left that its state does not read; the error of a state, or of `from`.
pub fn read_parts(from: &mut dyn Read, parts: &mut [(&str, &mut dyn Checkpoint)]) -> io::Result<()> {
    read_magic(from)?;
    let mut is_read = vec![false; parts.len()];
    while let Some(name) = name_of_next(from)? {
        let found = parts.iter_mut().zip(&mut is_read).find(|((known, _), _)| *known == name);
        let Some(((_, part), is_read)) = found else {
            let known: Vec<_> = parts.iter().map(|(known, _)| known).collect();
            return Err(invalid(format!("the part {name:?} is not known: there can be {known:?}")));
        };
        if std::mem::replace(is_read, true) {
            return Err(invalid(format!("the part {name:?} comes twice")));
        }
        let mut pieces = PartReader::new(from, &name);
        part.read(&mut pieces)
            .map_err(|error| io::Error::new(error.kind(), format!("part {name:?}: {error}")))?;
        pieces.finish()?;
    }
    let missing = parts.iter().zip(&is_read).find(|(_, is_read)| !**is_read);
    missing.map_or(Ok(()), |((name, _), _)| Err(invalid(format!("the part {name:?} is missing"))))
}

/// Copies one part's bytes, and reads the others to verify them. Returns how many bytes it has.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] if these are no parts, one is damaged or comes twice, or none has this
/// name: then it says which there are; the error of `from`, or of `to`.
pub fn copy_part(from: &mut dyn Read, name: &str, to: &mut dyn Write) -> io::Result<u64> {
    read_magic(from)?;
    let (mut names, mut copied) = (BTreeSet::new(), None);
    while let Some(found) = name_of_next(from)? {
        if names.contains(&found) {
            return Err(invalid(format!("the part {found:?} comes twice")));
        }
        let mut pieces = PartReader::new(from, &found);
        match found == name {
            true => copied = Some(io::copy(&mut pieces, to)?),
            false => _ = io::copy(&mut pieces, &mut io::sink())?,
        }
        pieces.finish()?;
        names.insert(found);
    }
    copied.ok_or_else(|| invalid(format!("there is no part {name:?}: there are {names:?}")))
}

fn read_magic(from: &mut dyn Read) -> io::Result<()> {
    let magic: [u8; MAGIC.len()] = read_array(from, "the file of parts ends within its first line")?;
    if magic != MAGIC {
        let found = magic.escape_ascii();
        return Err(invalid(format!(
            "parts begin with \"percolator parts 1\", and this begins with \"{found}\""
        )));
    }
    Ok(())
}

fn name_of_next(from: &mut dyn Read) -> io::Result<Option<String>> {
    const CUT: &str = "the file of parts ends within the head of a part";

    match read_array::<1>(from, CUT)? {
        [END] => return Ok(None),
        [PART] => {}
        [other] => {
            return Err(invalid(format!("a part begins with {PART}, or the end with {END}, not {other}")));
        }
    }
    let length = usize::from(u16::from_le_bytes(read_array(from, CUT)?));
    if length == 0 || length > NAME_BYTES_MAX {
        return Err(invalid(format!("the name of a part has 1 to {NAME_BYTES_MAX} bytes, and not {length}")));
    }
    let mut name = vec![0; length];
    from.read_exact(&mut name).map_err(|error| error_within(error, CUT))?;
    String::from_utf8(name).map(Some).map_err(|error| {
        invalid(format!("the name of a part is no UTF-8: {}", error.as_bytes().escape_ascii()))
    })
}

/// Writes a part in pieces, each of them what is written at once: a state that flushes ends one.
struct PieceWriter<'a> {
    to: &'a mut dyn Write,
    sum: Digest,
    bytes: u64,
}

impl<'a> PieceWriter<'a> {
    fn new(to: &'a mut dyn Write) -> Self {
        PieceWriter { to, sum: Digest::new(CrcAlgorithm::Crc32Iscsi), bytes: 0 }
    }

    fn finish(self) -> io::Result<()> {
        self.to.write_all(&0_u32.to_le_bytes())?;
        self.to.write_all(&self.bytes.to_le_bytes())?;
        self.to.write_all(&crc(&self.sum).to_le_bytes())
    }
}

impl Write for PieceWriter<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        /// A piece's length has 32 bits.
        const PIECE_BYTES_MAX: usize = 1 << 30;

        let piece = piece.get(..PIECE_BYTES_MAX).unwrap_or(piece);
        let length = u32::try_from(piece.len()).map_err(io::Error::other)?;
        self.to.write_all(&length.to_le_bytes())?;
        for bytes in piece.chunks(SUMMED_BYTES) {
            self.sum.update(bytes);
            self.to.write_all(bytes)?;
        }
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The sum of 32 bits.
fn crc(sum: &Digest) -> u32 {
    u32::try_from(sum.finalize()).expect("it has 32 bits")
}

/// Reads a part's pieces, as one.
struct PartReader<'a> {
    from: &'a mut dyn Read,
    name: &'a str,
    /// What is left of the piece.
    left: u64,
    is_at_end: bool,
    sum: Digest,
    bytes: u64,
}

impl<'a> PartReader<'a> {
    fn new(from: &'a mut dyn Read, name: &'a str) -> Self {
        let sum = Digest::new(CrcAlgorithm::Crc32Iscsi);
        PartReader { from, name, left: 0, is_at_end: false, sum, bytes: 0 }
    }

    fn array<const BYTES: usize>(&mut self) -> io::Result<[u8; BYTES]> {
        read_array(self.from, format_args!("the file of parts ends within the part {:?}", self.name))
    }

    /// Goes on to the next piece, if this one is used up; at the last, compares length and sum.
    fn advance(&mut self) -> io::Result<()> {
        if self.left > 0 || self.is_at_end {
            return Ok(());
        }
        self.left = u64::from(u32::from_le_bytes(self.array()?));
        if self.left > 0 {
            return Ok(());
        }
        let (stated, sum) = (u64::from_le_bytes(self.array()?), u32::from_le_bytes(self.array()?));
        self.is_at_end = true;
        if stated != self.bytes {
            let (name, found) = (self.name, self.bytes);
            return Err(invalid(format!("the part {name:?} has {found} bytes, and states {stated}")));
        }
        let found = crc(&self.sum);
        if sum != found {
            let name = self.name;
            return Err(invalid(format!(
                "the part {name:?} is damaged: its CRC is {found:08x}, not {sum:08x}"
            )));
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.advance()?;
        match self.is_at_end {
            true => Ok(()),
            false => Err(invalid(format!(
                "the part {:?} has more bytes than its state: they begin at byte {}",
                self.name, self.bytes
            ))),
        }
    }
}

impl Read for PartReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.advance()?;
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let wanted = bytes.get_mut(..most).unwrap_or_default();
        if wanted.is_empty() {
            return Ok(0);
        }
        let read = self.from.read(wanted)?;
        if read == 0 {
            return Err(invalid(format!("the file of parts ends within the part {:?}", self.name)));
        }
        self.sum.update(wanted.get(..read).unwrap_or_default());
        self.left = self.left.saturating_sub(read as u64);
        self.bytes = self.bytes.saturating_add(read as u64);
        Ok(read)
    }
}

trait Part: Checkpoint + Any + Send + Sync {}

impl<T: Checkpoint + Any + Send + Sync> Part for T {}

/// Several states under names, as one: a model and the place of its feed, for one.
///
/// ```
/// use percolator::Snapshot;
/// use percolator_cluster::checkpoint::{Checkpoint as _, Parts, Tensors};
///
/// let parts = || Parts::new().with("model", Tensors::new()).with("feed", None::<Snapshot>);
/// let mut training = parts();
/// let model = training.get_mut::<Tensors>("model").unwrap();
/// model.insert("bias", &[2], &[0.5_f32, 0.25])?;
/// let mut file = Vec::new();
/// training.write(&mut file)?;
///
/// let mut restored = parts();
/// restored.read(&mut &file[..])?;
/// assert_eq!(restored.get::<Tensors>("model").unwrap().values::<f32>("bias")?, [0.5, 0.25]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Parts {
    parts: BTreeMap<String, Box<dyn Part>>,
}

impl Parts {
    /// Returns no parts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part, and replaces the one that has this name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, part: impl Checkpoint + Any + Send + Sync) -> Self {
        self.parts.insert(name.into(), Box::new(part));
        self
    }

    /// Returns a part, if there is one of this name and type.
    #[must_use]
    pub fn get<T: Checkpoint + Any>(&self, name: &str) -> Option<&T> {
        let part: &dyn Any = &**self.parts.get(name)?;
        part.downcast_ref()
    }

    /// Returns a part to be changed, if there is one of this name and type.
    #[must_use]
    pub fn get_mut<T: Checkpoint + Any>(&mut self, name: &str) -> Option<&mut T> {
        let part: &mut dyn Any = &mut **self.parts.get_mut(name)?;
        part.downcast_mut()
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.parts.keys()).finish()
    }
}

impl Checkpoint for Parts {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let parts: Vec<_> =
            self.parts.iter().map(|(name, part)| (name.as_str(), &**part as &dyn Checkpoint)).collect();
        write_parts(to, &parts)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut parts: Vec<_> = self
            .parts
            .iter_mut()
            .map(|(name, part)| (name.as_str(), &mut **part as &mut dyn Checkpoint))
            .collect();
        read_parts(from, &mut parts)
    }
}
