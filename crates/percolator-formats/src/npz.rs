//! Arrays of one ZIP file, as NumPy's `savez` and `savez_compressed` write them: `.npz`.
//!
//! A part is a member, without `.npy`. Records are the rows on the first axes, which are equal: of arrays
//! that differ, those that belong together are to be [named](Options::parts). A stored member is read in
//! place, and its CRC is verified after a pass over all records. A deflated one is unpacked as a whole,
//! verified, and kept for as long as a cursor is open.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ffi::OsStr;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::known_settings::KnownSettings;
use crate::npy::{
    ArrayTable, NpySource, PackedColumn, TableColumn, TableSource, check_names, header_of, header_of_reader,
};
use crate::{DataFile, FormatError, Options, Shard};

/// A deflated byte unpacks to no more than this.
const DEFLATE_MAX: u64 = 1032;

/// Tells an NPZ file: a ZIP file of that name.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    let zip = head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06");
    zip && path.extension().and_then(OsStr::to_str).is_some_and(|name| name.eq_ignore_ascii_case("npz"))
}

/// Opens the arrays as one shard. It has no settings; [`Options::parts`] names the arrays that are wanted.
///
/// # Errors
///
/// [`FormatError::Damaged`] if the directory or an array's header is damaged;
/// [`FormatError::Refused`] if a member is no array, or the first axes differ.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "npz", options, &[])?;
    let file = Arc::new(DataFile::open(path, options.access)?);
    let failed = |error| failure(path, None, error);
    let mut archive = ZipArchive::new(ZipReader::new(&file)).map_err(failed)?;
    if archive.has_duplicate_names() {
        return Err(FormatError::damaged(path, "two members of the ZIP file have one name"));
    }
    if archive.has_overlapping_files().map_err(failed)? {
        return Err(FormatError::damaged(
            path,
            "members of the ZIP file share bytes, or those of its directory",
        ));
    }

    let members = (0..archive.len()).map(|index| NpzMember::of(path, &mut archive, index));
    let members = members.collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = members.iter().map(|member| member.part.clone()).collect();
    check_names(path, &names)?;
    let wanted = |member: &NpzMember| options.wants(&member.part);
    let columns = members.into_iter().filter(wanted).map(|member| member.column(path, &file, &archive));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(vec![Arc::new(ArrayTable::new(path, columns, vec![path.to_owned()])?)])
}

/// A member as the ZIP file's directory states it.
#[derive(Debug)]
struct NpzMember {
    index: usize,
    name: String,
    part: String,
    method: CompressionMethod,
    encrypted: bool,
    /// Where its bytes are in the file, as they are stored.
    stored: Range<u64>,
    bytes: u64,
    crc: u32,
}

impl NpzMember {
    fn of(path: &Path, archive: &mut ZipArchive<ZipReader>, index: usize) -> Result<Self, FormatError> {
        let failed = |error| failure(path, None, error);
        let member = archive.by_index_raw(index).map_err(failed)?;
        let name = member.name().map_err(failed)?.into_owned();
        let damaged = || FormatError::damaged(path, format!("{name} is stated to lie outside the file"));
        let begin = member.data_start().ok_or_else(damaged)?;
        let end = begin.checked_add(member.compressed_size()).ok_or_else(damaged)?;
        Ok(NpzMember {
            index,
            part: name.strip_suffix(".npy").unwrap_or(&name).to_owned(),
            method: member.compression(),
            encrypted: member.encrypted(),
            stored: begin..end,
            bytes: member.size(),
            crc: member.crc32(),
            name,
        })
    }

    fn column(
        self,
        path: &Path,
        file: &Arc<DataFile>,
        archive: &ZipArchive<ZipReader>,
    ) -> Result<TableColumn, FormatError> {
        let refused = |what: &str| FormatError::refused(path, format!("{} {what}", self.name));
        if !self.name.ends_with(".npy") {
            return Err(refused(
                "is no array: its name does not end in .npy; name the parts that are wanted",
            ));
        }
        if self.encrypted {
            return Err(refused("is encrypted"));
        }
        match self.method {
            CompressionMethod::Stored => self.stored(path, file),
            CompressionMethod::Deflated => self.deflated(path, archive),
            other => Err(refused(&format!("is compressed with {other}, and NumPy stores or deflates"))),
        }
    }

    fn stored(self, path: &Path, file: &Arc<DataFile>) -> Result<TableColumn, FormatError> {
        let there = self.stored.end.saturating_sub(self.stored.start);
        if there != self.bytes || self.stored.end > file.bytes() {
            let what = format!(
                "{} is stated to have {} bytes, and {there} are stated to be stored in a file of {} bytes",
                self.name,
                self.bytes,
                file.bytes()
            );
            return Err(FormatError::damaged(path, what));
        }
        let source = NpySource::File(Arc::clone(file), self.stored);
        let header = header_of(&source, path, Some(&self.name))?;
        let source = TableSource::Summed { source, crc: self.crc, verified: AtomicBool::new(false) };
        Ok(TableColumn { name: self.part, path: path.to_owned(), header, source })
    }

    fn deflated(self, path: &Path, archive: &ZipArchive<ZipReader>) -> Result<TableColumn, FormatError> {
        let there = self.stored.end.saturating_sub(self.stored.start);
        if self.bytes > there.saturating_mul(DEFLATE_MAX) {
            let what = format!(
                "{} is stated to have {} bytes, and {there} deflated ones cannot unpack to so many",
                self.name, self.bytes
            );
            return Err(FormatError::damaged(path, what));
        }
        let mut archive = archive.clone();
        let mut reader =
            archive.by_index(self.index).map_err(|error| failure(path, Some(&self.name), error))?;
        let header = header_of_reader(&mut reader, self.bytes, path, &self.name, &|error| {
            failure(path, Some(&self.name), error.into())
        })?;
        drop(reader);
        let part = self.part.clone();
        let owner = path.to_owned();
        let source = PackedColumn::new(move || self.unpack(&owner, archive.clone()));
        Ok(TableColumn { name: part, path: path.to_owned(), header, source: TableSource::Packed(source) })
    }

    /// Unpacks it. The bytes grow as they come, up to the stated number, which the stored ones allow.
    fn unpack(&self, path: &Path, mut archive: ZipArchive<ZipReader>) -> Result<Arc<Vec<u8>>, FormatError> {
        let failed = |error| failure(path, Some(&self.name), error);
        let member = archive.by_index(self.index).map_err(failed)?;
        let mut bytes = Vec::new();
        // One more shows whether there are more; the CRC is verified where they end.
        let most = self.bytes.saturating_add(1);
        member.take(most).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
        if bytes.len() as u64 != self.bytes {
            let what = format!(
                "{} is stated to have {} bytes, and unpacks to {}{}",
                self.name,
                self.bytes,
                bytes.len(),
                if bytes.len() as u64 == most { " or more" } else { "" }
            );
            return Err(FormatError::damaged(path, what));
        }
        Ok(Arc::new(bytes))
    }
}

/// What the crate `zip` says, about a member or the directory.
fn failure(path: &Path, member: Option<&str>, error: ZipError) -> FormatError {
    let named = member.unwrap_or("the ZIP file");
    match error {
        ZipError::Io(error) if error.kind() == io::ErrorKind::Other => {
            FormatError::io(path, "read the file", error)
        }
        ZipError::Io(error) if error.to_string().contains("checksum") => {
            let what = format!("{named} has a CRC mismatch: its bytes are not those that were stored");
            FormatError::damaged(path, what)
        }
        ZipError::Io(error) => FormatError::damaged(path, format!("{named} cannot be unpacked: {error}")),
        ZipError::UnsupportedArchive(what) => FormatError::refused(path, format!("{named}: {what}")),
        error => {
            let what = format!("{named} is damaged or cut: {error}; copy it again from where it came");
            FormatError::damaged(path, what)
        }
    }
}

/// Reads a file from any byte on.
#[derive(Clone, Debug)]
struct ZipReader {
    file: Arc<DataFile>,
    at: u64,
    buffer: Vec<u8>,
}

impl ZipReader {
    fn new(file: &Arc<DataFile>) -> Self {
        ZipReader { file: Arc::clone(file), at: 0, buffer: Vec::new() }
    }
}

impl Read for ZipReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let end = self.at.saturating_add(into.len() as u64).min(self.file.bytes());
        if end <= self.at {
            return Ok(0);
        }
        let bytes = self.file.read(self.at..end, &mut self.buffer).map_err(io::Error::other)?;
        let read = bytes.len().min(into.len());
        if let (Some(place), Some(bytes)) = (into.get_mut(..read), bytes.get(..read)) {
            place.copy_from_slice(bytes);
        }
        self.at = end;
        Ok(read)
    }
}

impl Seek for ZipReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.file.bytes().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
