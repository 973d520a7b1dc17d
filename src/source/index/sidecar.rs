//! The file that an index is kept in.
//!
//! ```text
//! magic: 8 bytes | version: 4 | kind: 4 | the file's length: 8 | numbers: 8 | identity's length: 4
//! identity | a crc32c for each part of the places: 4 bytes each | zeros, up to a multiple of 8
//! crc32c of all that: 4
//! the places: numbers of 8 bytes, one or more a record, in parts of 64 KiB
//! ```
//!
//! Numbers are little-endian. The file is read instead of mapped, because truncating a mapped file ends the
//! process. The head is read and verified when the file is opened, a part when a place in it is first needed.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;
use percolator_files::checksum::crc32c;

use crate::source::Identity;
use percolator_files::{input_file, shown, whole_file};

const MAGIC: [u8; 8] = *b"PRCLidx\n";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 36;
const NUMBER_BYTES: usize = size_of::<u64>();
const PART_BYTES: usize = 64 << 10;
const PART_NUMBERS: usize = PART_BYTES / NUMBER_BYTES;
/// More than the identity of any database: a LevelDB's names its tables.
const IDENTITY_BYTES_MAX: usize = 16 << 20;

/// The kind of database that an index is for, which determines what its places mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) enum Kind {
    Lmdb = 1,
    LevelDb = 2,
    TfRecord = 3,
    /// A source of another package, whose identity says what its places mean.
    Other = 4,
}

impl Kind {
    /// How many numbers make up a place: a power of two, so that a place is never split between parts.
    pub(super) fn numbers(self) -> u64 {
        match self {
            Kind::Lmdb | Kind::TfRecord => 1,
            Kind::LevelDb | Kind::Other => 2,
        }
    }
}

/// Why a sidecar cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// There is no sidecar.
    Missing,
    /// It is of another state of the database.
    Stale {
        /// The state that the sidecar is of.
        found: String,
        /// The state that the database is in.
        wanted: String,
    },
    Damaged(Damage),
}

/// What is wrong with a sidecar.
#[derive(Debug)]
pub(in crate::source) struct Damage(String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn damaged(what: impl Into<String>) -> Unusable {
    Unusable::Damaged(Damage(what.into()))
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Unusable::Missing,
            _ => damaged(format!("it cannot be read: {error}")),
        }
    }
}

/// A sidecar whose head is valid. It is open only while a part of it is read, because there may be one for
/// each of thousands of files. So another file may replace it meanwhile: the head has the checksum of each
/// part. If it is gone by then, the index is rebuilt.
#[derive(Debug)]
pub(super) struct Sidecar {
    path: PathBuf,
    /// The total count of numbers in the places.
    numbers: u64,
    /// Where the places begin.
    places_at: u64,
    parts: Box<[Part]>,
}

#[derive(Debug)]
struct Part {
    checksum: u32,
    places: OnceCell<Box<[u64]>>,
}

/// The fixed fields of the head, checked against the file's length.
struct Fixed {
    kind: u32,
    numbers: u64,
    identity_bytes: usize,
    parts: usize,
    head_bytes: usize,
}

impl Sidecar {
    /// Finds the file and verifies that it is of this kind and state of a database. Reads only the head.
    pub(super) fn open(path: &Path, kind: Kind, identity: &Identity) -> Result<Self, Unusable> {
        let (file, file_bytes) = input_file::open(path)?;
        let mut fixed = [0; FIXED_BYTES];
        if file_bytes < fixed.len() as u64 {
            return Err(damaged(format!("it has {file_bytes} bytes, fewer than a head")));
        }
        file.read_exact_at(&mut fixed, 0)?;
        let Fixed { kind: found_kind, numbers, identity_bytes, parts, head_bytes } =
            read_fixed(&fixed, file_bytes)?;
        let mut head = Vec::new();
        // A file may state a length that it really has, but that no memory holds: most of it is a hole.
        head.try_reserve_exact(head_bytes).map_err(io::Error::from)?;
        head.resize(head_bytes, 0);
        file.read_exact_at(&mut head, 0)?;
        let (checksums, found) = read_head(&head, identity_bytes, parts)?;
        if found_kind != kind as u32 {
            let (found, wanted) = (format!("kind {found_kind}"), format!("kind {}", kind as u32));
            return Err(Unusable::Stale { found, wanted });
        }
        if let Some((wanted, found)) = identity.difference(found) {
            return Err(Unusable::Stale { found, wanted });
        }
        let mut all = Vec::new();
        all.try_reserve_exact(parts).map_err(io::Error::from)?;
        all.extend(checksums.map(|checksum| Part { checksum, places: OnceCell::new() }));
        // The process may change its working directory before it reads a part.
        let (path, parts) = (std::path::absolute(path)?, all.into_boxed_slice());
        Ok(Sidecar { path, numbers, places_at: head_bytes as u64, parts })
    }

    pub(super) fn numbers(&self) -> u64 {
        self.numbers
    }

    /// A checksum of all places, computed without reading them.
    pub(super) fn checksum(&self) -> u32 {
        of_parts(self.parts.iter().map(|part| part.checksum))
    }

    /// The numbers from index `at` to the end of its part; `None` past the last number.
    #[inline]
    pub(super) fn numbers_from(&self, at: usize) -> Result<Option<&[u64]>, Damage> {
        let number = at / PART_NUMBERS;
        let Some(part) = self.parts.get(number) else { return Ok(None) };
        let places = part.places.get_or_try_init(|| self.read_part(number, part.checksum))?;
        Ok(places.get(at % PART_NUMBERS..))
    }

    #[cold]
    fn read_part(&self, number: usize, checksum: u32) -> Result<Box<[u64]>, Damage> {
        let first = (number as u64).saturating_mul(PART_NUMBERS as u64);
        let numbers = self.numbers.saturating_sub(first).min(PART_NUMBERS as u64);
        let bytes = numbers.saturating_mul(NUMBER_BYTES as u64);
        let mut part = vec![0; usize::try_from(bytes).unwrap_or(PART_BYTES)];
        let at = self.places_at.saturating_add(first.saturating_mul(NUMBER_BYTES as u64));
        let read = input_file::open(&self.path).and_then(|(file, _)| file.read_exact_at(&mut part, at));
        read.map_err(|error| {
            let path = shown::path(&self.path);
            Damage(format!("the part of the places at byte {at} of {path} cannot be read: {error}"))
        })?;
        let found = crc32c(&part);
        if found != checksum {
            let message = format!(
                "the part of the places at byte {at} has the checksum {found:#010x} instead of \
                 {checksum:#010x}"
            );
            return Err(Damage(message));
        }
        let (places, _) = part.as_chunks();
        Ok(places.iter().map(|place| u64::from_le_bytes(*place)).collect())
    }
}

/// Takes a number off the front of some bytes; zero if they are too few, which `read_fixed` rules out.
fn number<const BYTES: usize>(bytes: &mut &[u8]) -> [u8; BYTES] {
    let Some((number, rest)) = bytes.split_first_chunk() else { return [0; BYTES] };
    *bytes = rest;
    *number
}

/// Reads the fixed fields from the front of a file of this length, and checks that they are consistent with
/// the length.
fn read_fixed(mut bytes: &[u8], file_bytes: u64) -> Result<Fixed, Unusable> {
    let bytes = &mut bytes;
    let magic: [u8; 8] = number(bytes);
    if magic != MAGIC {
        return Err(damaged(format!(
            "it begins with \"{}\": it is not a record index",
            magic.escape_ascii()
        )));
    }
    let version = u32::from_le_bytes(number(bytes));
    if version != VERSION {
        return Err(damaged(format!(
            "it has version {version} of the format, but this program reads {VERSION}"
        )));
    }
    let kind = u32::from_le_bytes(number(bytes));
    let declared_bytes = u64::from_le_bytes(number(bytes));
    if declared_bytes != file_bytes {
        return Err(damaged(format!("it has {file_bytes} bytes, but its head declares {declared_bytes}")));
    }
    let numbers = u64::from_le_bytes(number(bytes));
    let identity_bytes = u32::from_le_bytes(number(bytes)) as usize;
    if identity_bytes > IDENTITY_BYTES_MAX {
        return Err(damaged(format!(
            "its identity has {identity_bytes} bytes; at most {IDENTITY_BYTES_MAX} are allowed"
        )));
    }
    let fits = || {
        let places_bytes = numbers.checked_mul(NUMBER_BYTES as u64)?;
        let parts = usize::try_from(numbers.div_ceil(PART_NUMBERS as u64)).ok()?;
        let head_bytes = head_bytes(identity_bytes, parts)?;
        (file_bytes.checked_sub(places_bytes)? == head_bytes as u64).then_some((parts, head_bytes))
    };
    let (parts, head_bytes) = fits().ok_or_else(|| {
        damaged(format!(
            "{numbers} numbers and an identity of {identity_bytes} bytes do not add up to its \
             {file_bytes} bytes"
        ))
    })?;
    Ok(Fixed { kind, numbers, identity_bytes, parts, head_bytes })
}

/// The bytes before the first place, a multiple of 8.
fn head_bytes(identity_bytes: usize, parts: usize) -> Option<usize> {
    let checksums_bytes = parts.checked_add(1)?.checked_mul(size_of::<u32>())?;
    FIXED_BYTES
        .checked_add(identity_bytes)?
        .checked_add(checksums_bytes)?
        .checked_next_multiple_of(NUMBER_BYTES)
}

/// Verifies the head, and returns the checksums of the parts and the identity.
fn read_head(
    head: &[u8],
    identity_bytes: usize,
    parts: usize,
) -> Result<(impl Iterator<Item = u32>, &[u8]), Unusable> {
    let split = || {
        let (head, checksum) = head.split_last_chunk()?;
        let (identity, rest) = head.get(FIXED_BYTES..)?.split_at_checked(identity_bytes)?;
        let (checksums, _zeros) = rest.as_chunks();
        Some((head, u32::from_le_bytes(*checksum), identity, checksums.get(..parts)?))
    };
    let (head, wanted, identity, checksums) = split().ok_or_else(|| damaged("its head is too short"))?;
    let found = crc32c(head);
    if found != wanted {
        return Err(damaged(format!("its head has the checksum {found:#010x} instead of {wanted:#010x}")));
    }
    Ok((checksums.iter().map(|checksum| u32::from_le_bytes(*checksum)), identity))
}

/// Builds the head of a file with these places.
fn head_of(kind: Kind, identity: &Identity, places: &[u8]) -> Option<Vec<u8>> {
    let parts = places.chunks(PART_BYTES);
    let head_bytes = head_bytes(identity.as_bytes().len(), parts.len())?;
    let identity_bytes = u32::try_from(identity.as_bytes().len()).ok()?;
    if identity.as_bytes().len() > IDENTITY_BYTES_MAX {
        return None;
    }
    let mut head = Vec::with_capacity(head_bytes);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&(kind as u32).to_le_bytes());
    head.extend_from_slice(&(head_bytes as u64).checked_add(places.len() as u64)?.to_le_bytes());
    head.extend_from_slice(&(places.len().div_ceil(NUMBER_BYTES) as u64).to_le_bytes());
    head.extend_from_slice(&identity_bytes.to_le_bytes());
    head.extend_from_slice(identity.as_bytes());
    parts.for_each(|part| head.extend_from_slice(&crc32c(part).to_le_bytes()));
    head.resize(head_bytes.checked_sub(size_of::<u32>())?, 0);
    head.extend_from_slice(&crc32c(&head).to_le_bytes());
    Some(head)
}

/// The combined checksum of the parts' checksums.
fn of_parts(checksums: impl Iterator<Item = u32>) -> u32 {
    crc32c(&checksums.flat_map(u32::to_le_bytes).collect::<Vec<_>>())
}

/// The combined checksum that a sidecar with these places has.
pub(super) fn checksum_of(places: &[u64]) -> u32 {
    let bytes = |part: &[u64]| part.iter().flat_map(|place| place.to_le_bytes()).collect::<Vec<_>>();
    of_parts(places.chunks(PART_NUMBERS).map(|part| crc32c(&bytes(part))))
}

/// Whether a path is a symbolic link that does not lead to an index. The author of a data set may have put it
/// there: writing through it would replace a file that has nothing to do with the data set.
fn is_link_elsewhere(path: &Path) -> bool {
    let begins_as_one = || {
        let mut magic = [0; MAGIC.len()];
        input_file::open(path).is_ok_and(|(file, _)| file.read_exact_at(&mut magic, 0).is_ok())
            && magic == MAGIC
    };
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) && !begins_as_one()
}

/// Writes a sidecar. It need not be on the disk when this returns: a truncated one, or one with missing
/// bytes, fails its checksums and is rebuilt.
pub(super) fn write(path: &Path, kind: Kind, identity: &Identity, places: &[u64]) -> io::Result<()> {
    if is_link_elsewhere(path) {
        let message = "a symbolic link is there that leads to no index: remove it";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    let places: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    let head = head_of(kind, identity, &places).ok_or(io::ErrorKind::FileTooLarge)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    whole_file::write_unsynced(path, &[&head, &places])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A data set that somebody else made has whatever they like beside it.
    #[test]
    fn no_index_is_written_through_a_link_that_leads_to_none() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("x.percolator-index"), folder.path().join("letter"));
        symlink(&target, &path).unwrap();
        let written = || write(&path, Kind::Lmdb, &Identity::new(), &[1, 2, 3]);
        for text in [Some("dear all"), Some(""), None] {
            match text {
                Some(text) => fs::write(&target, text).unwrap(),
                None => fs::remove_file(&target).unwrap(),
            }
            assert_eq!(written().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&target).ok().as_deref(), text);
        }
        // An index may be elsewhere.
        write(&target, Kind::Lmdb, &Identity::new(), &[7]).unwrap();
        written().unwrap();
        assert_eq!(Sidecar::open(&path, Kind::Lmdb, &Identity::new()).unwrap().numbers(), 3);
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    }
}
