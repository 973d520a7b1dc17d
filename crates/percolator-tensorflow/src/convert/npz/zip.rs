//! The ZIP archive around the arrays of a `.npz` file: which members it has, and where.
//!
//! Everything that the archive says twice must agree, members must not share bytes, and all of them must be
//! before the directory: an archive that two readers could understand differently is refused.

use std::ops::Range;

use super::super::file::InputFile;
use crate::convert::ConvertError;

/// The end of the directory: its signature, its bytes, and the most bytes of the comment after it.
pub(super) const END: u32 = 0x0605_4b50;
const END_BYTES: u64 = 22;
const COMMENT_BYTES_MAX: u64 = 0xffff;
/// The same with numbers of 64 bits, and what says where that is.
pub(super) const END_64: u32 = 0x0606_4b50;
const END_64_BYTES: u64 = 56;
pub(super) const LOCATOR_64: u32 = 0x0706_4b50;
const LOCATOR_64_BYTES: u64 = 20;
/// A member in the directory, and before its data.
pub(super) const CENTRAL: u32 = 0x0201_4b50;
pub(super) const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: u64 = 30;
/// The extra field that has numbers of 64 bits.
pub(super) const EXTRA_64: u16 = 1;
/// A number of 32 bits that is in the extra field instead.
pub(super) const IS_IN_EXTRA: u32 = u32::MAX;

/// Flags of a member.
const IS_ENCRYPTED: u16 = 1;
const IS_DESCRIBED_AFTER: u16 = 1 << 3;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// A member of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) is_deflated: bool,
    /// Where its data are in the file, as they are stored.
    pub(super) data: Range<u64>,
    /// Its length, inflated.
    pub(super) length: u64,
    /// The CRC-32 of its bytes, inflated.
    pub(super) crc: u32,
}

/// Takes little-endian numbers from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte)))
    }

    fn u16(&mut self) -> Option<u16> {
        self.number(2).and_then(|number| u16::try_from(number).ok())
    }

    fn u32(&mut self) -> Option<u32> {
        self.number(4).and_then(|number| u32::try_from(number).ok())
    }

    fn u64(&mut self) -> Option<u64> {
        self.number(8)
    }
}

/// Where the directory is, and how many members it has.
#[derive(Clone, Copy, Debug)]
struct Directory {
    offset: u64,
    bytes: u64,
    members: u64,
    /// How many of them are on the disk that this is read from. An archive is on one.
    members_here: u64,
}

impl Directory {
    /// Whether the end of 32 bits says what this one of 64 bits says, or by ones alone that it is there.
    fn agrees_with(&self, short: &Directory) -> bool {
        let agrees = |whole: u64, number: u64, ones: u64| number == whole || number == ones;
        agrees(self.members_here, short.members_here, u16::MAX.into())
            && agrees(self.members, short.members, u16::MAX.into())
            && agrees(self.bytes, short.bytes, u32::MAX.into())
            && agrees(self.offset, short.offset, u32::MAX.into())
    }
}

/// What a header says of a member, before its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    flags: u16,
    method: u16,
    crc: u32,
    stored: u64,
    length: u64,
}

/// Returns the members of an archive, in the order of its directory.
pub(super) fn members(file: &InputFile) -> Result<Vec<Member>, ConvertError> {
    let directory = directory(file)?;
    let end = directory.offset.saturating_add(directory.bytes);
    let bytes = file.read(None, directory.offset..end)?;
    let damaged = |at: usize, found: String, allowed: &str| {
        file.part(None, directory.offset).damaged(at as u64, found, allowed)
    };
    let mut fields = Fields(&bytes);
    let mut members = Vec::new();
    let mut places = Vec::new();
    while !fields.0.is_empty() {
        let at = bytes.len().saturating_sub(fields.0.len());
        let (said, name, offset) = central(&mut fields).ok_or_else(|| {
            damaged(at, "found no entry of a directory".to_owned(), "the archive has been cut or changed")
        })?;
        let name = std::str::from_utf8(name).map_err(|_| {
            let found = format!("the name {} is not UTF-8", name.escape_ascii());
            damaged(at, found, "save the arrays under other names")
        })?;
        let part = file.part(Some(name), directory.offset.saturating_add(at as u64));
        if said.flags & IS_ENCRYPTED != 0 {
            return Err(part.damaged(0, "the member is encrypted", "plain and deflated members are read"));
        }
        if !matches!(said.method, STORED | DEFLATED) {
            let found = format!("the member is compressed with method {}", said.method);
            return Err(part.damaged(
                0,
                found,
                "0 (stored) and 8 (deflated) are read: numpy.savez writes them",
            ));
        }
        let data = data(file, name, said, offset, directory.offset)?;
        places.push((offset, data.end, members.len()));
        members.push(Member {
            name: name.to_owned(),
            is_deflated: said.method == DEFLATED,
            data,
            length: said.length,
            crc: said.crc,
        });
    }
    if members.len() as u64 != directory.members {
        let found = format!("the directory has {} members", members.len());
        return Err(damaged(0, found, &format!("its end says {}", directory.members)));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if let [(_, end, one), (next, _, other)] = *pair
            && next < end
            && let (Some(one), Some(other)) = (members.get(one), members.get(other))
        {
            let found = format!("the member starts before byte {end}, where {:?} ends", one.name);
            return Err(file.part(Some(&other.name), next).damaged(0, found, "members do not share bytes"));
        }
    }
    Ok(members)
}

/// Finds the directory, from the end of the file.
fn directory(file: &InputFile) -> Result<Directory, ConvertError> {
    let length = file.length();
    let from = length.saturating_sub(END_BYTES.saturating_add(COMMENT_BYTES_MAX));
    let tail = file.read(None, from..length)?;
    let end = (0..tail.len()).rev().find_map(|at| {
        let found = end_of_directory(tail.get(at..)?)?;
        Some((from.saturating_add(at as u64), found))
    });
    let Some((at, mut directory)) = end else {
        let found = "found no end of a ZIP archive's directory";
        return Err(file.part(None, from).damaged(0, found, "not a .npz file, or it has been cut"));
    };
    let mut limit = at;
    if let Some(locator) = at.checked_sub(LOCATOR_64_BYTES) {
        let bytes = file.read(None, locator..at)?;
        if let Some(offset) = locator_64(&bytes) {
            let whole = offset.checked_add(END_64_BYTES).filter(|end| *end <= locator);
            let found = match whole {
                Some(end) => end_of_directory_64(&file.read(None, offset..end)?),
                None => None,
            };
            let found = found.ok_or_else(|| {
                let found = format!("no end of a directory at byte {offset}, where it should be");
                file.part(None, locator).damaged(0, found, "the archive has been cut or changed")
            })?;
            if !found.agrees_with(&directory) {
                let found = "the two ends of the directory do not say the same";
                return Err(file.part(None, at).damaged(0, found, "the archive has been changed"));
            }
            directory = found;
            limit = offset;
        }
    }
    if directory.members_here != directory.members {
        let Directory { members, members_here, .. } = directory;
        let found = format!("the end of the directory says of one disk that it has {members_here} members");
        let allowed = format!("it says that there are {members}: the archive has been changed");
        return Err(file.part(None, at).damaged(0, found, allowed));
    }
    if directory.offset.checked_add(directory.bytes) != Some(limit) {
        let found = format!("the directory has {} bytes from byte {}", directory.bytes, directory.offset);
        return Err(file.part(None, at).damaged(
            0,
            found,
            format!("it must end at byte {limit}, before its end"),
        ));
    }
    Ok(directory)
}

/// The end of the directory, if these are its bytes, to the end of the file.
fn end_of_directory(bytes: &[u8]) -> Option<Directory> {
    let mut fields = Fields(bytes);
    let is_end = fields.u32()? == END && fields.take(4)?.len() == 4;
    let (members_here, members) = (fields.u16()?.into(), fields.u16()?.into());
    let (bytes, offset) = (fields.u32()?.into(), fields.u32()?.into());
    let comment = fields.u16()?;
    let is_whole = is_end && fields.0.len() == usize::from(comment);
    is_whole.then_some(Directory { offset, bytes, members, members_here })
}

fn locator_64(bytes: &[u8]) -> Option<u64> {
    let mut fields = Fields(bytes);
    (fields.u32()? == LOCATOR_64).then_some(())?;
    fields.u32()?;
    fields.u64()
}

fn end_of_directory_64(bytes: &[u8]) -> Option<Directory> {
    let mut fields = Fields(bytes);
    (fields.u32()? == END_64).then_some(())?;
    // Its length, two versions, two numbers of disks.
    fields.take(20)?;
    let (members_here, members) = (fields.u64()?, fields.u64()?);
    let (bytes, offset) = (fields.u64()?, fields.u64()?);
    Some(Directory { offset, bytes, members, members_here })
}

/// Takes an entry of the directory: what it says, its name, and where the member starts.
fn central<'a>(fields: &mut Fields<'a>) -> Option<(Said, &'a [u8], u64)> {
    (fields.u32()? == CENTRAL).then_some(())?;
    fields.take(4)?;
    let (flags, method) = (fields.u16()?, fields.u16()?);
    fields.take(4)?;
    let (crc, stored, length) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (name, extra, comment) = (fields.u16()?, fields.u16()?, fields.u16()?);
    fields.take(8)?;
    let offset = fields.u32()?;
    let (name, extra) = (fields.take(name.into())?, fields.take(extra.into())?);
    fields.take(comment.into())?;
    let [length, stored, offset] = with_extra([length, stored, offset], extra)?;
    Some((Said { flags, method, crc, stored, length }, name, offset))
}

/// Numbers of 32 bits, or those of the extra field if they are there.
fn with_extra<const N: usize>(numbers: [u32; N], extra: &[u8]) -> Option<[u64; N]> {
    let mut fields = Fields(extra);
    let mut large = Fields(&[]);
    while !fields.0.is_empty() {
        let (id, length) = (fields.u16()?, fields.u16()?);
        let bytes = fields.take(length.into())?;
        if id == EXTRA_64 {
            large = Fields(bytes);
        }
    }
    let mut whole = [0; N];
    for (whole, number) in whole.iter_mut().zip(numbers) {
        *whole = if number == IS_IN_EXTRA { large.u64()? } else { number.into() };
    }
    Some(whole)
}

/// Returns where a member's data are, from the header before them, which must agree with the directory.
fn data(
    file: &InputFile,
    name: &str,
    said: Said,
    offset: u64,
    directory: u64,
) -> Result<Range<u64>, ConvertError> {
    let part = file.part(Some(name), offset);
    let changed = |found: &str| part.damaged(0, found, "the archive has been cut or changed");
    if offset.checked_add(LOCAL_BYTES).is_none_or(|end| end > directory) {
        return Err(changed("the member starts behind the directory"));
    }
    let header = file.read(Some(name), offset..offset.saturating_add(LOCAL_BYTES))?;
    let (mut local, lengths) = local(&header).ok_or_else(|| changed("found no header of a member"))?;
    let start = offset.saturating_add(LOCAL_BYTES);
    let data = start.saturating_add(u64::from(lengths[0])).saturating_add(u64::from(lengths[1]));
    let end = data.checked_add(said.stored).filter(|end| *end <= directory);
    let Some(end) = end else {
        let found = format!("the member's {} bytes end behind the directory", said.stored);
        return Err(changed(&found));
    };
    let mut rest = file.read(Some(name), start..data)?;
    let extra = rest.split_off(usize::from(lengths[0]).min(rest.len()));
    let numbers = [local.length, local.stored].map(|number| u32::try_from(number).unwrap_or(IS_IN_EXTRA));
    let whole = with_extra(numbers, &extra).ok_or_else(|| changed("the member's lengths are missing"))?;
    [local.length, local.stored] = whole;
    if local.flags & IS_DESCRIBED_AFTER != 0 {
        // Sizes and checksum follow the data, and the directory has them.
        local = Said { crc: said.crc, stored: said.stored, length: said.length, ..local };
    }
    if local != said || rest != name.as_bytes() {
        return Err(changed("the member's header does not say what the directory says"));
    }
    Ok(data..end)
}

/// Takes a member's header apart: what it says, and the lengths of its name and its extra field.
fn local(bytes: &[u8]) -> Option<(Said, [u16; 2])> {
    let mut fields = Fields(bytes);
    (fields.u32()? == LOCAL).then_some(())?;
    fields.take(2)?;
    let (flags, method) = (fields.u16()?, fields.u16()?);
    fields.take(4)?;
    let crc = fields.u32()?;
    let (stored, length) = (fields.u32()?.into(), fields.u32()?.into());
    Some((Said { flags, method, crc, stored, length }, [fields.u16()?, fields.u16()?]))
}
