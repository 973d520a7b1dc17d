//! The unpacked copy of a compressed file, from which its records are read in any order.
//!
//! Restart points would be smaller: a window of 32 KiB each. But with one per MiB, each record read costs
//! half a MiB of unpacking on average, some 2 ms. The copy costs the time to unpack the file once, and the
//! disk space; its records are lent from a map, like those of any plain file.
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

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percolator_table::checksum::crc32c;

use super::frame::{FOOT_BYTES, head_of};
use super::open_files;
use super::packed::Packed;
use super::packed_walk::PackedWalk;
use super::plain::Plain;
use crate::base::whole_file::{WholeFile, folder_of};
use crate::source::SourceError;
use crate::source::index::{IndexPlace, files};

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
    let copies = files(place, &file, EXTENSION);
    for copy in &copies {
        match open(packed, copy) {
            Ok(Some(plain)) => return Ok((Arc::new(plain), None)),
            Ok(None) => {}
            Err(why) => {
                let copy = copy.display();
                tracing::info!(%copy, why, "an unpacked copy cannot be used: making a new one");
            }
        }
    }
    for copy in &copies {
        match make(packed, copy) {
            Err(Failed::Read(error)) => return Err(error),
            Ok((offsets, bytes)) => {
                let plain = open(packed, copy).ok().flatten().ok_or_else(|| {
                    SourceError::io(
                        copy,
                        "read the unpacked copy",
                        &io::Error::other("it was removed at once"),
                    )
                })?;
                tracing::info!(copy = %copy.display(), bytes, "a compressed file was unpacked to a copy");
                return Ok((Arc::new(plain), Some(offsets)));
            }
            Err(Failed::Write(error)) => {
                let copy = copy.display();
                tracing::info!(%copy, %error, "no unpacked copy can be written there");
            }
        }
    }
    if *place != IndexPlace::Memory {
        tracing::warn!(
            file = %packed.path.display(),
            "the unpacked copy is kept in a file without a name, and each process makes it again; set a \
             folder for it with IndexPlace::Folder"
        );
    }
    make_without_name(packed)
}

/// Opens a copy. Returns `None` if there is none, and an error if it cannot be used.
fn open(packed: &Packed, copy: &Path) -> Result<Option<Plain>, String> {
    if !copy.exists() {
        return Ok(None);
    }
    let text = |error: SourceError| error.to_string();
    let (file, id, file_bytes) = open_files::open(copy).map_err(text)?;
    let trailer = read_trailer(&file, file_bytes).ok_or("it has no valid trailer")?;
    if trailer.packed_bytes != packed.bytes {
        return Err(format!("it is of a file of {} bytes", trailer.packed_bytes));
    }
    let (source, ..) = open_files::open(&packed.path).map_err(text)?;
    for (end, tail) in &trailer.members {
        let found = tail_at(&source, *end).map_err(|error| error.to_string())?;
        if found != *tail {
            return Err("it is of another file: the checksums in it differ".to_owned());
        }
    }
    let reading = packed.access.of(&file);
    let plain = Plain::open(copy, (&file, id, file_bytes), trailer.bytes, reading, Some(&packed.path));
    plain.map(Some).map_err(text)
}

struct Trailer {
    packed_bytes: u64,
    bytes: u64,
    members: Vec<(u64, [u8; TAIL_BYTES])>,
}

fn read_trailer(file: &File, file_bytes: u64) -> Option<Trailer> {
    let mut fixed = [0; FIXED_BYTES];
    let fixed_at = file_bytes.checked_sub(FIXED_BYTES as u64)?;
    file.read_exact_at(&mut fixed, fixed_at).ok()?;
    let (numbers, rest) = fixed.split_at_checked(16)?;
    let (packed_bytes, bytes) = (numbers.first_chunk()?, numbers.last_chunk()?);
    let (packed_bytes, bytes) = (u64::from_le_bytes(*packed_bytes), u64::from_le_bytes(*bytes));
    let (count, rest) = rest.split_first_chunk()?;
    let (checksum, magic) = rest.split_first_chunk()?;
    if magic != MAGIC {
        return None;
    }
    let members_bytes = fixed_at.checked_sub(bytes)?;
    let count = u64::from(u32::from_le_bytes(*count));
    if members_bytes != count.checked_mul(MEMBER_BYTES as u64)? {
        return None;
    }
    let mut trailer = vec![0; usize::try_from(members_bytes).ok()?];
    file.read_exact_at(&mut trailer, bytes).ok()?;
    let members = trailer.as_chunks::<MEMBER_BYTES>().0.iter().map(|member| {
        let (end, tail) = (member.first_chunk()?, member.last_chunk()?);
        Some((u64::from_le_bytes(*end), *tail))
    });
    let members = members.collect::<Option<Vec<_>>>()?;
    trailer.extend_from_slice(fixed.get(..20)?);
    (crc32c(&trailer) == u32::from_le_bytes(*checksum)).then_some(Trailer { packed_bytes, bytes, members })
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
    /// The compressed file cannot be read or unpacked.
    Read(SourceError),
    /// The copy cannot be written there.
    Write(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Write(error)
    }
}

/// Makes a copy, which is either complete or absent. Returns where its records start, and their bytes.
fn make(packed: &Packed, copy: &Path) -> Result<(Vec<u64>, u64), Failed> {
    fs::create_dir_all(folder_of(copy))?;
    let mut file = WholeFile::create(copy)?;
    let made = unpack(packed, &mut file)?;
    file.finish()?;
    Ok(made)
}

/// Makes a copy in a file without a name, which disappears with this process.
fn make_without_name(packed: &Packed) -> Result<Found, SourceError> {
    static MADE: AtomicU64 = AtomicU64::new(0);

    let folder = std::env::temp_dir();
    let failed = |error: &io::Error| SourceError::io(&folder, "write an unpacked copy", error);
    let name = format!("percolator-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let path = folder.join(name);
    let mut file =
        File::options().read(true).write(true).create_new(true).open(&path).map_err(|e| failed(&e))?;
    fs::remove_file(&path).map_err(|error| failed(&error))?;
    let (offsets, bytes) = unpack(packed, &mut file).map_err(|error| match error {
        Failed::Read(error) => error,
        Failed::Write(error) => failed(&error),
    })?;
    let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let found = file.metadata().map_err(|error| failed(&error))?;
    let id = crate::source::file_id::FileId::of(&found);
    let reading = packed.access.of(&file);
    let plain = Plain::open(&open, (&file, id, found.len()), bytes, reading, Some(&packed.path))?;
    Ok((Arc::new(plain.keeping(file)), Some(offsets)))
}

/// Writes what a file unpacks to, and the trailer. Both checksums of each record are verified.
fn unpack(packed: &Packed, out: &mut dyn Write) -> Result<(Vec<u64>, u64), Failed> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut walk = PackedWalk::new(packed);
    let mut offsets = Vec::new();
    while let Some(frame) = walk.step().map_err(Failed::Read)? {
        offsets.push(frame.offset);
        let data = walk.place(frame);
        out.write_all(&head_of(frame.length))?;
        out.write_all(walk.bytes(data.start..data.end.saturating_add(FOOT_BYTES)))?;
    }
    let mut trailer = Vec::new();
    let (source, ..) = open_files::open(&packed.path).map_err(Failed::Read)?;
    let ends: Vec<u64> = walk.member_ends().iter().copied().chain([packed.bytes]).collect();
    for end in &ends {
        trailer.extend_from_slice(&end.to_le_bytes());
        let tail = tail_at(&source, *end);
        let tail =
            tail.map_err(|error| Failed::Read(SourceError::io(&packed.path, "read the file", &error)))?;
        trailer.extend_from_slice(&tail);
    }
    trailer.extend_from_slice(&packed.bytes.to_le_bytes());
    trailer.extend_from_slice(&walk.offset.to_le_bytes());
    trailer.extend_from_slice(&u32::try_from(ends.len()).unwrap_or(u32::MAX).to_le_bytes());
    let checksum = crc32c(&trailer);
    trailer.extend_from_slice(&checksum.to_le_bytes());
    trailer.extend_from_slice(&MAGIC);
    out.write_all(&trailer)?;
    out.flush()?;
    Ok((offsets, walk.offset))
}
