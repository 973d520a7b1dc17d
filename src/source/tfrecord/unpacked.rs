//! The unpacked copy of a compressed file, from which its records are read in any order.
//!
//! Restart points would be smaller: a window of 32 KiB each. But with one per MiB, each record at random
//! costs half a MiB of unpacking on average, about 1 ms (docs/tried.md). The copy costs the time to unpack
//! the file once, and the disk space; its records are lent from a map, like those of any plain file.
//!
//! ```text
//! the records, as they unpack
//! for each member of the compressed file: where it ends: 8 bytes | its last 8 bytes
//! the compressed file's length: 8 | the records' bytes: 8 | members: 4 | crc32c of the trailer up to here: 4
//! magic: 8
//! ```
//!
//! A copy belongs to a compressed file that has the same length, and whose members end in the same places
//! with the same bytes. Both formats have checksums of the unpacked data there. File times are not used.
//!
//! Processes that need a copy at the same time make it once: one makes it, and the others wait for it
//! (`copy_lock.rs`). If the folder's file system has no locks, several make one, and the first that is
//! complete stays: a copy never replaces a file, because a process that uses a copy opens it again by its
//! path. A copy that belongs to no state of its file that is there any more is removed before another is
//! made.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use percolator_files::checksum::crc32c;

use super::Compression;
use super::copy_lock::CopyLock;
use super::error::TfRecordError;
use super::frame::{FOOT_BYTES, head_of};
use super::open_files::{self, open_again};
use super::packed::{ENDS_MAX, Packed};
use super::packed_walk::PackedWalk;
use super::plain::Plain;
use crate::source::SourceError;
use crate::source::index::{IndexPlace, file_in};
use percolator_files::file_id::{FileId, FileState};
use percolator_files::shown;
use percolator_files::whole_file::{self, WholeFile, folder_of};

const EXTENSION: &str = "percolator-unpacked";
const MAGIC: [u8; 8] = *b"PRCLunp\n";
/// The end of the trailer: two lengths, a count, a checksum and the magic.
const FIXED_BYTES: usize = 32;
/// Where a member ends, and the bytes there.
const MEMBER_BYTES: usize = 16;
/// The bytes kept of a member's end: GZIP has a checksum and the length of the unpacked data there, and ZLIB
/// a checksum.
const TAIL_BYTES: usize = 8;
const BUFFER_BYTES: usize = 256 << 10;

/// A copy; and, if it was made just now, where its records start.
type Found = (Arc<Plain>, Option<Vec<u64>>);

/// Finds the copy of a file in this place, or makes one.
pub(super) fn find_or_make(packed: &Packed, place: &IndexPlace) -> Result<Found, SourceError> {
    let file = packed.path.canonicalize().unwrap_or_else(|_| packed.path.clone());
    let Some(copy) = file_in(place, &file, EXTENSION) else {
        return Err(no_copy(packed, "the index is kept in memory".to_owned()));
    };
    if let Look::Valid(plain) = look(packed, &copy)? {
        return Ok((Arc::new(plain), None));
    }
    let write =
        |error: io::Error| no_copy(packed, format!("{} cannot be written: {error}", shown::path(&copy)));
    fs::create_dir_all(folder_of(&copy)).map_err(write)?;
    let _lock = CopyLock::take(&copy);
    // Another process may have made the copy meanwhile.
    match look(packed, &copy)? {
        Look::Valid(plain) => return Ok((Arc::new(plain), None)),
        Look::Missing | Look::Useless { is_copy: false, .. } if is_link(&copy) => {
            // Whoever made a data set may have put it there: neither may the file at its end be removed, nor
            // one be made there.
            let why = format!("{} is a symbolic link that leads to no copy: remove it", shown::path(&copy));
            return Err(no_copy(packed, why));
        }
        Look::Missing => {}
        Look::Useless { id, why, .. } => {
            let useless = shown::path(&copy);
            tracing::info!(copy = %useless, why, "an unpacked copy cannot be used: making a new one");
            remove(&copy, id).map_err(write)?;
        }
    }
    make(packed, &copy)
}

/// Makes a copy, and opens it. If another process completes one first, that one is used.
fn make(packed: &Packed, copy: &Path) -> Result<Found, SourceError> {
    let write =
        |error: io::Error| no_copy(packed, format!("{} cannot be written: {error}", shown::path(copy)));
    let file = open_again(&packed.path, packed.state)?;
    let needed = least_bytes(packed, &file);
    check_room(packed, folder_of(copy), needed)?;
    let mut out = WholeFile::create(copy).map_err(write)?;
    let made = match unpack(packed, file, &mut out) {
        Ok(made) => made,
        Err(Failed::Read(error)) => return Err(error),
        Err(Failed::Write { error, bytes }) if is_full(&error) => {
            drop(out);
            let needed = needed.max(bytes);
            return Err(no_room(packed, folder_of(copy), needed, free_bytes(folder_of(copy)).unwrap_or(0)));
        }
        Err(Failed::Write { error, .. }) => return Err(write(error)),
    };
    let offsets = match out.finish_new() {
        Ok(()) => {
            let bytes = made.bytes;
            tracing::info!(copy = %shown::path(copy), bytes, "a compressed file was unpacked to a copy");
            Some(made.offsets)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        Err(error) => return Err(write(error)),
    };
    match look(packed, copy)? {
        Look::Valid(plain) => Ok((Arc::new(plain), offsets)),
        Look::Missing => Err(no_copy(packed, format!("{} was removed at once", shown::path(copy)))),
        Look::Useless { why, .. } => {
            Err(no_copy(packed, format!("{} was replaced at once: {why}", shown::path(copy))))
        }
    }
}

/// What is at a copy's path.
enum Look {
    Valid(Plain),
    Missing,
    /// The file there is no copy of this state of the compressed file.
    Useless {
        id: FileId,
        why: String,
        /// Whether it is a copy at all.
        is_copy: bool,
    },
}

/// Looks for the copy of a file. An error means that it cannot be known, or that the compressed file is not
/// the one that was opened.
fn look(packed: &Packed, copy: &Path) -> Result<Look, SourceError> {
    match fs::metadata(copy) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Missing),
        _ => {}
    }
    let (file, state) = open_files::open(copy)?;
    let id = state.id;
    let trailer = read_trailer(&file, state.bytes);
    let Some(trailer) = trailer.map_err(|error| SourceError::io(copy, "read the copy", &error))? else {
        return Ok(Look::Useless { id, why: "it has no valid trailer".to_owned(), is_copy: false });
    };
    let source = open_again(&packed.path, packed.state)?;
    if trailer.packed_bytes != packed.bytes() {
        let why = format!("it is of a file of {} bytes", trailer.packed_bytes);
        return Ok(Look::Useless { id, why, is_copy: true });
    }
    for (end, tail) in &trailer.members {
        let found = tail_at(&source, *end).map_err(|error| read_failed(packed, &error))?;
        if found != *tail {
            let why = "it is of another file: the checksums in it differ".to_owned();
            return Ok(Look::Useless { id, why, is_copy: true });
        }
    }
    let reading = packed.access.of(&file);
    let plain = Plain::open(copy, (&file, state), trailer.bytes, reading, Some(&packed.path))?;
    Ok(Look::Valid(plain))
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// Removes a copy that cannot be used, unless another file has taken its place.
fn remove(copy: &Path, id: FileId) -> io::Result<()> {
    match fs::metadata(copy) {
        Ok(found) if FileId::of(&found) == id => whole_file::remove(copy),
        _ => Ok(()),
    }
}

fn no_copy(packed: &Packed, why: String) -> SourceError {
    TfRecordError::NoCopy { file: packed.path.clone(), why }.into()
}

fn no_room(packed: &Packed, folder: &Path, needed: u64, free: u64) -> SourceError {
    TfRecordError::NoRoom { file: packed.path.clone(), folder: folder.to_owned(), needed, free }.into()
}

fn read_failed(packed: &Packed, error: &io::Error) -> SourceError {
    SourceError::io(&packed.path, "read the file", error)
}

/// The fewest bytes that a file can be expected to unpack to. How many they are is known only afterwards; but
/// a GZIP file ends with the length of its last member, modulo 2^32.
fn least_bytes(packed: &Packed, file: &File) -> u64 {
    let stated = match packed.compression {
        Compression::Gzip => tail_at(file, packed.bytes()).unwrap_or_default(),
        Compression::Zlib | Compression::Plain => [0; TAIL_BYTES],
    };
    let [.., b0, b1, b2, b3] = stated;
    packed.bytes().max(u64::from(u32::from_le_bytes([b0, b1, b2, b3])))
}

/// Checks that a folder has room for this many bytes, as far as the file system tells.
fn check_room(packed: &Packed, folder: &Path, needed: u64) -> Result<(), SourceError> {
    match free_bytes(folder) {
        Some(free) if free < needed => Err(no_room(packed, folder, needed, free)),
        _ => Ok(()),
    }
}

/// The bytes that can still be written to the file system of a folder; `None` if that is not known.
#[cfg(all(target_os = "linux", not(miri)))]
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    // Some network file systems do not count their blocks.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The most members in a trailer: those whose ends are kept, and the end of the file.
const MEMBERS_MAX: u64 = ENDS_MAX as u64 + 1;

struct Trailer {
    packed_bytes: u64,
    bytes: u64,
    members: Vec<(u64, [u8; TAIL_BYTES])>,
}

/// Reads the trailer at the end of a file, if there is one.
fn read_trailer(file: &File, file_bytes: u64) -> io::Result<Option<Trailer>> {
    let mut fixed = [0; FIXED_BYTES];
    let Some(fixed_at) = file_bytes.checked_sub(FIXED_BYTES as u64) else { return Ok(None) };
    file.read_exact_at(&mut fixed, fixed_at)?;
    let Some((bytes, members)) = members_in(&fixed, fixed_at) else { return Ok(None) };
    let mut trailer = vec![0; members];
    file.read_exact_at(&mut trailer, bytes)?;
    trailer.extend_from_slice(&fixed);
    Ok(trailer_in(&trailer))
}

/// Where the members begin in a file whose trailer ends like this, at this place, and how many bytes they
/// are.
fn members_in(fixed: &[u8; FIXED_BYTES], fixed_at: u64) -> Option<(u64, usize)> {
    let (numbers, rest) = fixed.split_at_checked(16)?;
    let bytes = u64::from_le_bytes(*numbers.last_chunk()?);
    let count = u64::from(u32::from_le_bytes(*rest.first_chunk()?));
    let members_bytes = fixed_at.checked_sub(bytes)?;
    // As many as `unpack` writes at most: the file may be forged.
    let is_stated = count <= MEMBERS_MAX && members_bytes == count.checked_mul(MEMBER_BYTES as u64)?;
    (rest.ends_with(&MAGIC) && is_stated).then_some((bytes, usize::try_from(members_bytes).ok()?))
}

/// Parses a trailer, and verifies its checksum.
fn trailer_in(trailer: &[u8]) -> Option<Trailer> {
    let (sealed, _magic) = trailer.split_last_chunk::<{ MAGIC.len() }>()?;
    let (summed, checksum) = sealed.split_last_chunk()?;
    if crc32c(summed) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (members, fixed) = trailer.split_at_checked(trailer.len().checked_sub(FIXED_BYTES)?)?;
    let (packed_bytes, rest) = fixed.split_first_chunk()?;
    let (packed_bytes, bytes) = (u64::from_le_bytes(*packed_bytes), u64::from_le_bytes(*rest.first_chunk()?));
    let members = members.as_chunks::<MEMBER_BYTES>().0.iter().map(|member| {
        let (end, tail) = (u64::from_le_bytes(*member.first_chunk()?), *member.last_chunk()?);
        // Only a forged one ends behind its file.
        (end <= packed_bytes).then_some((end, tail))
    });
    Some(Trailer { packed_bytes, bytes, members: members.collect::<Option<_>>()? })
}

/// The bytes that end here; zeros if there are too few.
fn tail_at(file: &File, end: u64) -> io::Result<[u8; TAIL_BYTES]> {
    let mut tail = [0; TAIL_BYTES];
    if let Some(start) = end.checked_sub(TAIL_BYTES as u64) {
        file.read_exact_at(&mut tail, start)?;
    }
    Ok(tail)
}

/// Why there is no copy.
enum Failed {
    /// The compressed file cannot be read or unpacked, or it changed meanwhile.
    Read(SourceError),
    /// The copy cannot be written; `bytes` of it were made so far.
    Write { error: io::Error, bytes: u64 },
}

/// What was written.
struct Made {
    /// Where its records start.
    offsets: Vec<u64>,
    /// Their bytes.
    bytes: u64,
}

/// Writes what a file unpacks to, and the trailer. Both checksums of each record are verified. Everything is
/// read from this one open file, which must not change meanwhile.
fn unpack(packed: &Packed, file: File, out: &mut dyn Write) -> Result<Made, Failed> {
    let read = |error: io::Error| Failed::Read(read_failed(packed, &error));
    let source = file.try_clone().map_err(read)?;
    let before = state_of(&source.metadata().map_err(read)?);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut walk = PackedWalk::of(packed, file);
    let mut offsets = Vec::new();
    while let Some(frame) = walk.step().map_err(Failed::Read)? {
        offsets.push(frame.offset);
        let data = walk.place(frame.length);
        let written = out
            .write_all(&head_of(frame.length))
            .and_then(|()| out.write_all(walk.bytes(data.start..data.end.saturating_add(FOOT_BYTES))));
        written.map_err(|error| Failed::Write { error, bytes: walk.offset })?;
    }
    let trailer = trailer_of(packed, &source, &walk).map_err(read)?;
    let after = state_of(&source.metadata().map_err(read)?);
    open_again(&packed.path, packed.state).map_err(Failed::Read)?;
    if after != before {
        let found = "it was written to while it was unpacked".to_owned();
        let error = TfRecordError::Changed { file: packed.path.clone(), was: packed.bytes(), found };
        return Err(Failed::Read(error.into()));
    }
    let bytes = walk.offset;
    out.write_all(&trailer).and_then(|()| out.flush()).map_err(|error| Failed::Write { error, bytes })?;
    Ok(Made { offsets, bytes })
}

/// The trailer of a copy of a file that was unpacked to its end.
fn trailer_of(packed: &Packed, source: &File, walk: &PackedWalk) -> io::Result<Vec<u8>> {
    let mut trailer = Vec::new();
    let ends: Vec<u64> = walk.member_ends().iter().copied().chain([packed.bytes()]).collect();
    for end in &ends {
        trailer.extend_from_slice(&end.to_le_bytes());
        trailer.extend_from_slice(&tail_at(source, *end)?);
    }
    trailer.extend_from_slice(&packed.bytes().to_le_bytes());
    trailer.extend_from_slice(&walk.offset.to_le_bytes());
    trailer.extend_from_slice(&u32::try_from(ends.len()).unwrap_or(u32::MAX).to_le_bytes());
    let checksum = crc32c(&trailer);
    trailer.extend_from_slice(&checksum.to_le_bytes());
    trailer.extend_from_slice(&MAGIC);
    Ok(trailer)
}

/// What differs once an open file was written to, also by somebody who then sets back its time.
fn state_of(file: &Metadata) -> (FileState, [i64; 2]) {
    (FileState::of(file), [file.ctime(), file.ctime_nsec()])
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
#[path = "unpacked_tests.rs"]
mod tests;
