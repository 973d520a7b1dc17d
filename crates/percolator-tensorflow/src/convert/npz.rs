//! NumPy's archives of arrays (`.npz`): a ZIP archive with a `.npy` member for each tensor.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::file::{InputFile, Part};
use super::npy::{self, Header, PREFIX_BYTES, Written};
use super::{ConvertError, Format, ModelTensor};
use crate::Tensor;

/// What each array's member ends with.
const ENDING: &str = ".npy";
/// The most bytes that a byte of deflated data yields.
const INFLATION_MAX: u64 = 1032;
/// The longest name, without its ending.
const NAME_BYTES_MAX: usize = 0xffff - 4;

/// An archive, open for reading.
#[derive(Debug)]
pub(super) struct NpzFile {
    file: Arc<InputFile>,
    archive: ZipArchive<Positioned>,
    arrays: Vec<Array>,
}

#[derive(Debug)]
struct Array {
    /// The member's number.
    member: usize,
    header: Header,
    header_bytes: usize,
}

impl NpzFile {
    /// Opens an archive, and returns what its tensors are, in the order of its directory. What it says twice
    /// must agree, and members must not share bytes: two readers could understand it differently.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<ModelTensor>), ConvertError> {
        let file = Arc::new(InputFile::open(path)?);
        let wrong = |name: Option<&str>, error| wrong(file.part(name, 0), error);
        let opened = ZipArchive::new(Positioned { file: Arc::clone(&file), at: 0 });
        let checked = opened.and_then(|mut archive| archive.validate_header_consistency().map(|()| archive));
        let mut archive = checked.map_err(|error| wrong(None, error))?;
        let (mut arrays, mut infos, mut names) = (Vec::new(), Vec::new(), HashSet::new());
        for member in 0..archive.len() {
            let name = archive.name_for_index(member).unwrap_or(Err(ZipError::FileNotFound));
            let member_name = name.map_err(|error| wrong(None, error))?.into_owned();
            let found = archive.by_index(member).map_err(|error| wrong(Some(&member_name), error))?;
            let part = file.part(Some(&member_name), found.header_start());
            let Some(name) = member_name.strip_suffix(ENDING) else {
                // A folder by itself, which some programs write, holds nothing.
                if found.is_dir() && found.size() == 0 {
                    continue;
                }
                return Err(part.damaged(0, "the member is no array", "an array's name ends with .npy"));
            };
            if !names.insert(name.to_owned()) {
                return Err(part.damaged(0, "two members have this name", "each name is there once"));
            }
            let (length, stored) = (found.size(), found.compressed_size());
            let allowed = match found.compression() {
                CompressionMethod::Stored => stored,
                _ => stored.saturating_mul(INFLATION_MAX),
            };
            if length > allowed {
                let found = format!("the member says that it has {length} bytes");
                let allowed = format!("the {stored} that are stored hold at most {allowed}");
                return Err(part.damaged(0, found, allowed));
            }
            let (header, header_bytes) = header(found, length, part)?;
            let (data_type, shape) = (header.data_type(), header.shape().to_vec());
            infos.push(ModelTensor { name: name.to_owned(), data_type, shape });
            arrays.push(Array { member, header, header_bytes });
        }
        Ok((NpzFile { file, archive, arrays }, infos))
    }

    /// Reads the tensor at this place of the list that [`open`](Self::open) returned, and verifies its
    /// checksum.
    pub(super) fn read(&self, place: usize, info: &ModelTensor) -> Result<Tensor<'static>, ConvertError> {
        let part = self.file.part(Some(&info.name), 0);
        let Some(Array { member, header, header_bytes }) = self.arrays.get(place) else {
            return Err(part.damaged(0, "there is no such array", "none is missing"));
        };
        let mut archive = self.archive.clone();
        let found = archive.by_index(*member).map_err(|error| wrong(part, error))?;
        let part = self.file.part(Some(&info.name), found.header_start());
        let length = found.size();
        let mut bytes = Vec::new();
        let room = bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX));
        room.map_err(|_| ConvertError::read(self.file.path())(io::ErrorKind::OutOfMemory.into()))?;
        // The checksum is verified at the end, of which a byte more tells.
        let read = found.take(length.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| wrong(part, error.into()))?;
        bytes.drain(..bytes.len().min(*header_bytes));
        header.tensor(bytes, part)
    }
}

/// Reads the header of a member of this length, and checks that the rest is as long as it says.
fn header(mut member: impl Read, length: u64, part: Part<'_>) -> Result<(Header, usize), ConvertError> {
    let mut bytes = Vec::new();
    let mut read_to = |bytes: &mut Vec<u8>, end: usize| {
        let more = end.saturating_sub(bytes.len()) as u64;
        let read = member.by_ref().take(more).read_to_end(bytes);
        read.map(drop).map_err(|error| wrong(part, error.into()))
    };
    read_to(&mut bytes, PREFIX_BYTES)?;
    let whole = npy::length(&bytes, part)?;
    read_to(&mut bytes, whole)?;
    let header = Header::parse(&bytes, part)?;
    if length.checked_sub(whole as u64) != Some(header.data_bytes() as u64) {
        let found = format!("an array of {length} bytes, header included");
        let allowed = format!("its type and shape need {} after the header's {whole}", header.data_bytes());
        return Err(part.damaged(0, found, allowed));
    }
    Ok((header, whole))
}

fn wrong(part: Part<'_>, error: ZipError) -> ConvertError {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};

    match error {
        ZipError::Io(error) if !matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) => {
            ConvertError::read(part.path)(error)
        }
        error => part.damaged(0, error.to_string(), "the archive has been cut or changed, or is not numpy's"),
    }
}

/// A file with a position, as archives are read.
#[derive(Clone, Debug)]
struct Positioned {
    file: Arc<InputFile>,
    at: u64,
}

impl Read for Positioned {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_some(buffer, self.at)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

impl Seek for Positioned {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.length().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
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

/// Appends a tensor to an archive.
pub(super) fn add<W: Write + Seek>(
    archive: &mut ZipWriter<W>,
    name: &str,
    array: &Written<'_>,
) -> io::Result<()> {
    // Not compressed, and with sizes of 64 bits, as `numpy.savez` writes them.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    archive.start_file(format!("{name}{ENDING}"), options)?;
    array.write(archive)
}
