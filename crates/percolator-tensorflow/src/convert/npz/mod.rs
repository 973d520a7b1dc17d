//! NumPy's archives of arrays (`.npz`): a ZIP archive with a `.npy` member for each tensor.
//!
//! The crates that read and write ZIP archives bring ten others, and none writes the bytes of `numpy.savez`.
//! Such a file needs little: stored members, and deflated ones (by `flate2`) for reading.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod write;
mod zip;

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::Path;

use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use flate2::read::DeflateDecoder;

use self::write::{NAME_BYTES_MAX, ZipWriter};
use self::zip::Member;
use super::file::{InputFile, Part};
use super::npy::{self, HEADER_BYTES_MAX, Header, PREFIX_BYTES, Written};
use super::{ConvertError, Format, TensorInfo};
use crate::Tensor;

/// What each array's member ends with.
const ENDING: &str = ".npy";
/// The most bytes that a byte of deflated data yields.
const INFLATION_MAX: u64 = 1032;

/// An archive, open for reading.
#[derive(Debug)]
pub(super) struct NpzFile {
    file: InputFile,
    arrays: Vec<Array>,
}

#[derive(Debug)]
struct Array {
    member: Member,
    header: Header,
    header_bytes: usize,
}

impl NpzFile {
    /// Opens an archive, and returns what its tensors are, in the order of its directory.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<TensorInfo>), ConvertError> {
        let file = InputFile::open(path)?;
        let mut arrays = Vec::new();
        let mut infos = Vec::new();
        let mut names = HashSet::new();
        for member in zip::members(&file)? {
            let part = file.part(Some(&member.name), member.data.start);
            let Some(name) = member.name.strip_suffix(ENDING) else {
                // A folder by itself, which some programs write, holds nothing.
                if member.name.ends_with('/') && member.length == 0 {
                    continue;
                }
                return Err(part.damaged(0, "the member is no array", "an array's name ends with .npy"));
            };
            let name = name.to_owned();
            if !names.insert(name.clone()) {
                return Err(part.damaged(0, "two members have this name", "each name is there once"));
            }
            check_length(&member, part)?;
            let (header, header_bytes) = header(&file, &member, part)?;
            let (data_type, shape) = (header.data_type(), header.shape().to_vec());
            infos.push(TensorInfo { name, data_type, shape });
            arrays.push(Array { member, header, header_bytes });
        }
        Ok((NpzFile { file, arrays }, infos))
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads the tensor at this place of the list that [`open`](Self::open) returned, and verifies its
    /// checksum.
    pub(super) fn read(&self, place: usize, info: &TensorInfo) -> Result<Tensor<'static>, ConvertError> {
        let Some(Array { member, header, header_bytes }) = self.arrays.get(place) else {
            return Err(self.file.part(Some(&info.name), 0).damaged(
                0,
                "there is no such array",
                "none is missing",
            ));
        };
        let part = self.file.part(Some(&info.name), member.data.start);
        let mut bytes = match member.is_deflated {
            false => self.file.read(Some(&info.name), member.data.clone())?,
            true => inflated(&self.file, member, part)?,
        };
        let found = crc(&bytes);
        if found != member.crc {
            let found = format!("the CRC-32 of its bytes is {found:#010x}");
            return Err(part.damaged(0, found, format!("{:#010x} is stored: it is damaged", member.crc)));
        }
        bytes.drain(..*header_bytes);
        header.tensor(bytes, part)
    }
}

/// The CRC-32 that ZIP archives store.
fn crc(bytes: &[u8]) -> u32 {
    // The algorithm's sums have 32 bits.
    u32::try_from(crc_fast::checksum(Crc32IsoHdlc, bytes)).unwrap_or(0)
}

/// Checks that a member's data can be as long as it says.
fn check_length(member: &Member, part: Part<'_>) -> Result<(), ConvertError> {
    let stored = member.data.end.saturating_sub(member.data.start);
    let allowed = if member.is_deflated { stored.saturating_mul(INFLATION_MAX) } else { stored };
    if member.length > allowed || (!member.is_deflated && member.length != stored) {
        let found = format!("the member says that it has {} bytes", member.length);
        return Err(part.damaged(0, found, format!("the {stored} that are stored hold at most {allowed}")));
    }
    Ok(())
}

/// Reads the header of an array, and checks that the rest is as long as it says.
fn header(file: &InputFile, member: &Member, part: Part<'_>) -> Result<(Header, usize), ConvertError> {
    let front = front(file, member, PREFIX_BYTES)?;
    let whole = npy::length(&front, part)?.min(HEADER_BYTES_MAX);
    let header = Header::parse(&self::front(file, member, whole)?, part)?;
    let rest = member.length.checked_sub(whole as u64);
    if rest != Some(header.data_bytes() as u64) {
        let found = format!("an array of {} bytes, header included", member.length);
        let allowed = format!("its type and shape need {} after the header's {whole}", header.data_bytes());
        return Err(part.damaged(0, found, allowed));
    }
    Ok((header, whole))
}

/// Reads up to as many bytes of the front of a member.
fn front(file: &InputFile, member: &Member, bytes: usize) -> Result<Vec<u8>, ConvertError> {
    let mut front = Vec::new();
    let data = Data::new(file, member);
    let read = match member.is_deflated {
        false => data.take(bytes as u64).read_to_end(&mut front),
        true => DeflateDecoder::new(data).take(bytes as u64).read_to_end(&mut front),
    };
    match read {
        Ok(_) => Ok(front),
        Err(error) => Err(not_read(file, member, error)),
    }
}

/// Reads and inflates a member.
fn inflated(file: &InputFile, member: &Member, part: Part<'_>) -> Result<Vec<u8>, ConvertError> {
    let exact = usize::try_from(member.length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    // One byte more than is needed tells that there are more.
    let room =
        bytes.try_reserve_exact(exact.saturating_add(1)).map_err(|_| io::ErrorKind::OutOfMemory.into());
    room.map_err(ConvertError::read(file.path()))?;
    let mut decoder = DeflateDecoder::new(Data::new(file, member));
    let read = decoder.by_ref().take(member.length.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| not_read(file, member, error))?;
    let stored = member.data.end.saturating_sub(member.data.start);
    if bytes.len() != exact || decoder.total_in() != stored {
        let (from, to) = (decoder.total_in(), bytes.len());
        let found = format!("{from} deflated bytes yield {to} or more");
        let allowed = format!("{stored} should yield {}: the archive has been changed", member.length);
        return Err(part.damaged(0, found, allowed));
    }
    Ok(bytes)
}

fn not_read(file: &InputFile, member: &Member, error: io::Error) -> ConvertError {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            let name = member.name.strip_suffix(ENDING);
            let found = format!("the deflated data are damaged ({error})");
            file.part(name, member.data.start).damaged(0, found, "get the file anew")
        }
        _ => ConvertError::read(file.path())(error),
    }
}

/// The data of a member, as they are stored.
struct Data<'a> {
    file: &'a InputFile,
    at: u64,
    end: u64,
}

impl<'a> Data<'a> {
    fn new(file: &'a InputFile, member: &Member) -> Self {
        Data { file, at: member.data.start, end: member.data.end }
    }
}

impl Read for Data<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let read = self.file.read_some(buffer.get_mut(..count).unwrap_or_default(), self.at)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

/// An archive under construction.
#[derive(Debug)]
pub(super) struct NpzWriter<W> {
    zip: ZipWriter<W>,
}

/// Computes the CRC-32 of what is written to it.
struct Crc(crc_fast::Digest);

impl Write for Crc {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that a tensor can have this name in an archive.
pub(super) fn check_name(name: &str) -> Result<(), ConvertError> {
    let found = match name {
        _ if name.len() > NAME_BYTES_MAX => format!("its name has {} bytes", name.len()),
        _ if name.contains('\0') => "its name has a zero byte".to_owned(),
        _ => return Ok(()),
    };
    let remedy = format!("names have at most {NAME_BYTES_MAX} bytes and no zero: rename the tensor");
    Err(ConvertError::Unfit { tensor: name.to_owned(), format: Format::Npz, found, remedy })
}

impl<W: Write> NpzWriter<W> {
    pub(super) fn new(out: W) -> Self {
        NpzWriter { zip: ZipWriter::new(out) }
    }

    /// Appends a tensor.
    pub(super) fn add(&mut self, name: &str, array: &Written<'_>) -> io::Result<()> {
        let mut sum = Crc(crc_fast::Digest::new(Crc32IsoHdlc));
        array.write(&mut sum)?;
        let crc = u32::try_from(sum.0.finalize()).unwrap_or(0);
        let length = array.length().ok_or(io::ErrorKind::FileTooLarge)?;
        self.zip.add(&format!("{name}{ENDING}"), length, crc, |out| array.write(out))
    }

    /// Writes the directory, and returns what the archive was written to.
    pub(super) fn finish(self) -> io::Result<W> {
        self.zip.finish()
    }
}
