//! Writes a `.npz` file as `numpy.savez` writes it, byte for byte: members that are not compressed, with
//! sizes of 64 bits, dated 1980.

use std::io::{self, Write};

use super::zip::{CENTRAL, END, END_64, EXTRA_64, IS_IN_EXTRA, LOCAL, LOCATOR_64};

/// The version that a reader needs for sizes of 64 bits: 4.5.
const VERSION: u16 = 45;
/// Made on Unix.
const SYSTEM: u16 = 3 << 8;
/// The name is not ASCII, but UTF-8.
const IS_UTF8: u16 = 1 << 11;
/// The first of January 1980, the day on which ZIP's time begins.
const DATE: u16 = 0x21;
/// A file that its owner may read and write.
const PERMISSIONS: u32 = 0o600 << 16;
/// Larger numbers are written in 64 bits by Python.
const NUMBER_MAX: u64 = (1 << 31) - 1;
const MEMBERS_MAX: u64 = 0xffff;
/// The longest name, without its ending.
pub(super) const NAME_BYTES_MAX: usize = 0xffff - 4;

/// An archive under construction.
#[derive(Debug)]
pub(super) struct ZipWriter<W> {
    out: W,
    written: u64,
    directory: Vec<u8>,
    members: u64,
}

/// Little-endian numbers, one after the other.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16s(mut self, numbers: &[u16]) -> Self {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn u32s(mut self, numbers: &[u32]) -> Self {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn u64s(mut self, numbers: &[u64]) -> Self {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A number in 32 bits, or what says that it is elsewhere.
fn or_elsewhere(number: u64, is_elsewhere: bool) -> u32 {
    u32::try_from(number).ok().filter(|_| !is_elsewhere).unwrap_or(IS_IN_EXTRA)
}

impl<W: Write> ZipWriter<W> {
    pub(super) fn new(out: W) -> Self {
        ZipWriter { out, written: 0, directory: Vec::new(), members: 0 }
    }

    /// Appends a member of this length and CRC-32, which `write` writes. Its name has at most
    /// [`NAME_BYTES_MAX`] bytes and the ending.
    pub(super) fn add(
        &mut self,
        name: &str,
        length: u64,
        crc: u32,
        write: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        let name_bytes = u16::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidFilename)?;
        let flags = if name.is_ascii() { 0 } else { IS_UTF8 };
        let local = Fields::default()
            .u32s(&[LOCAL])
            .u16s(&[VERSION, flags, 0, 0, DATE])
            .u32s(&[crc, IS_IN_EXTRA, IS_IN_EXTRA])
            .u16s(&[name_bytes, 20])
            .bytes(name.as_bytes())
            .u16s(&[EXTRA_64, 16])
            .u64s(&[length, length]);
        self.out.write_all(&local.0)?;
        write(&mut self.out)?;
        let offset = self.written;
        self.written = offset.saturating_add(local.0.len() as u64).saturating_add(length);
        self.directory.extend(entry(name, name_bytes, flags, [length, offset], crc));
        self.members = self.members.saturating_add(1);
        Ok(())
    }

    /// Writes the directory, and returns what the archive was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&self.directory)?;
        let (offset, bytes, members) = (self.written, self.directory.len() as u64, self.members);
        let end = offset.saturating_add(bytes);
        let is_large = members > MEMBERS_MAX || offset > NUMBER_MAX || bytes > NUMBER_MAX;
        if is_large {
            let fields = Fields::default()
                .u32s(&[END_64])
                .u64s(&[44])
                .u16s(&[VERSION, VERSION])
                .u32s(&[0, 0])
                .u64s(&[members, members, bytes, offset])
                .u32s(&[LOCATOR_64, 0])
                .u64s(&[end])
                .u32s(&[1]);
            self.out.write_all(&fields.0)?;
        }
        let members = u16::try_from(members).unwrap_or(u16::MAX);
        let fields = Fields::default()
            .u32s(&[END])
            .u16s(&[0, 0, members, members])
            .u32s(&[or_elsewhere(bytes, false), or_elsewhere(offset, false)])
            .u16s(&[0]);
        self.out.write_all(&fields.0)?;
        Ok(self.out)
    }
}

/// A member's entry in the directory.
fn entry(name: &str, name_bytes: u16, flags: u16, [length, offset]: [u64; 2], crc: u32) -> Vec<u8> {
    let is_long = length > NUMBER_MAX;
    let is_far = offset > NUMBER_MAX;
    let mut large = Fields::default();
    if is_long {
        large = large.u64s(&[length, length]);
    }
    if is_far {
        large = large.u64s(&[offset]);
    }
    let extra = match u16::try_from(large.0.len()) {
        Ok(bytes @ 1..) => Fields::default().u16s(&[EXTRA_64, bytes]).bytes(&large.0),
        _ => Fields::default(),
    };
    let extra_bytes = u16::try_from(extra.0.len()).unwrap_or(0);
    let length = or_elsewhere(length, is_long);
    Fields::default()
        .u32s(&[CENTRAL])
        .u16s(&[VERSION | SYSTEM, VERSION, flags, 0, 0, DATE])
        .u32s(&[crc, length, length])
        .u16s(&[name_bytes, extra_bytes, 0, 0, 0])
        .u32s(&[PERMISSIONS, or_elsewhere(offset, is_far)])
        .bytes(name.as_bytes())
        .bytes(&extra.0)
        .0
}
