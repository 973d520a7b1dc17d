//! The entries of the data file: what each kind of key and value is made of.
//!
//! ```text
//! key                                 value, behind a checksum of 4 bytes
//! 0                                   the header's fields; magic, 8, and format, 4, precede the checksum
//! 1 | lease: 8                        end: 8 | time to live: 8, both in nanoseconds
//! 2 | lease: 8 | key of a record      nothing: the lease holds the record
//! 3 | key of a record                 created: 8 | modified: 8 | lease: 8, 0 if none | bytes
//! 4 | revision: 8 | key of a record   nothing: the record was removed then
//! ```
//!
//! Numbers are big-endian in keys, which are in their order, and little-endian in values.

use percolator_files::checksum::crc32c;

use super::boot::BootId;
use super::fault::Fault;
use crate::metadata::{LeaseId, Record, Revision};

/// The format of the entries. Another one is refused.
pub(super) const FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"PERCMETA";
const CHECKSUM_BYTES: usize = 4;

/// The kinds of entries: the first byte of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Header = 0,
    Lease = 1,
    Held = 2,
    Record = 3,
    Removed = 4,
}

impl Kind {
    /// The key of an entry of this kind.
    pub(super) fn key(self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = vec![self as u8];
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }
}

/// A lease's number in a key.
pub(super) fn lease_part(lease: LeaseId) -> [u8; 8] {
    lease.0.to_be_bytes()
}

/// A revision in a key. Revisions are not negative.
pub(super) fn revision_part(revision: i64) -> [u8; 8] {
    revision.max(0).to_be_bytes()
}

/// What a key has behind its kind: a number, and the key of a record.
pub(super) fn parts(key: &[u8]) -> Result<(i64, &str), Fault> {
    let parts = key.get(1..).and_then(|rest| rest.split_first_chunk());
    let Some((number, rest)) = parts else { return Err(broken(key, "is too short")) };
    Ok((i64::from_be_bytes(*number), text(key, rest)?))
}

/// What all transactions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The boot of the machine in which the leases were granted.
    pub(super) boot: BootId,
    /// When records were last changed.
    pub(super) revision: i64,
    /// The lease that was granted last.
    pub(super) last_lease: i64,
    /// No lease ends before this time, in nanoseconds.
    pub(super) next_end: u64,
    /// How many entries there are of removals.
    pub(super) removals: u64,
    /// The newest removal whose entry was dropped; lower than any if none was.
    pub(super) forgotten: i64,
}

impl Header {
    /// The header of a folder without records.
    pub(super) fn new(boot: BootId) -> Self {
        Header { boot, revision: 1, last_lease: 0, next_end: u64::MAX, removals: 0, forgotten: i64::MIN }
    }

    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(96);
        payload.extend_from_slice(MAGIC);
        payload.extend_from_slice(&FORMAT.to_le_bytes());
        let mut fields = self.boot.0.to_le_bytes().to_vec();
        for number in [self.revision, self.last_lease, self.forgotten] {
            fields.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.next_end, self.removals] {
            fields.extend_from_slice(&number.to_le_bytes());
        }
        payload.extend_from_slice(&sealed(&Kind::Header.key(&[]), &[&fields]));
        payload
    }

    /// The header, from the value of its entry, if there is one.
    pub(super) fn decoded(value: Option<&[u8]>) -> Result<Self, Fault> {
        let key = Kind::Header.key(&[]);
        let start = value.and_then(|value| value.strip_prefix(MAGIC)).and_then(<[u8]>::split_first_chunk);
        let Some((format, rest)) = start else {
            let message = "metadata.mdb is an LMDB of another program: use another folder";
            return Err(Fault::Damaged(message.to_owned()));
        };
        let format = u32::from_le_bytes(*format);
        if format != FORMAT {
            return Err(Fault::Damaged(format!(
                "metadata.mdb has the format {format}, and this program knows only {FORMAT}: use the \
                 version of the program that wrote it, or another folder"
            )));
        }
        let mut fields = Fields::of(&key, rest)?;
        let header = Header {
            boot: BootId(u128::from_le_bytes(fields.take()?)),
            revision: fields.number()?,
            last_lease: fields.number()?,
            forgotten: fields.number()?,
            next_end: u64::from_le_bytes(fields.take()?),
            removals: u64::from_le_bytes(fields.take()?),
        };
        fields.end()?;
        Ok(header)
    }
}

/// When a lease ends, and how long it lasts, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseEntry {
    pub(super) end: u64,
    pub(super) ttl: u64,
}

impl LeaseEntry {
    pub(super) fn encoded(&self, key: &[u8]) -> Vec<u8> {
        sealed(key, &[&self.end.to_le_bytes(), &self.ttl.to_le_bytes()])
    }

    pub(super) fn decoded(key: &[u8], value: &[u8]) -> Result<Self, Fault> {
        let mut fields = Fields::of(key, value)?;
        let entry =
            LeaseEntry { end: u64::from_le_bytes(fields.take()?), ttl: u64::from_le_bytes(fields.take()?) };
        fields.end()?;
        Ok(entry)
    }
}

/// The value of an entry that says all in its key.
pub(super) fn mark(key: &[u8]) -> Vec<u8> {
    sealed(key, &[])
}

/// Checks the value of such an entry.
pub(super) fn check_mark(key: &[u8], value: &[u8]) -> Result<(), Fault> {
    Fields::of(key, value)?.end()
}

/// A record, without its key, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordEntry<'a> {
    pub(super) created: i64,
    pub(super) modified: i64,
    pub(super) lease: Option<LeaseId>,
    pub(super) bytes: &'a [u8],
}

impl<'a> RecordEntry<'a> {
    pub(super) fn encoded(&self, key: &[u8]) -> Vec<u8> {
        let lease = self.lease.map_or(0, |lease| lease.0);
        let [created, modified, lease] = [self.created, self.modified, lease].map(i64::to_le_bytes);
        sealed(key, &[&created, &modified, &lease, self.bytes])
    }

    pub(super) fn decoded(key: &[u8], value: &'a [u8]) -> Result<Self, Fault> {
        let mut fields = Fields::of(key, value)?;
        let (created, modified, lease) = (fields.number()?, fields.number()?, fields.number()?);
        let lease = (lease != 0).then_some(LeaseId(lease));
        Ok(RecordEntry { created, modified, lease, bytes: fields.rest })
    }

    /// The record whose entry has this key.
    pub(super) fn with_key(&self, key: &[u8]) -> Result<Record, Fault> {
        Ok(Record {
            key: text(key, key.get(1..).unwrap_or_default())?.to_owned(),
            value: self.bytes.to_vec(),
            created: Revision(self.created),
            modified: Revision(self.modified),
            lease: self.lease,
        })
    }
}

/// These parts behind their checksum.
fn sealed(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut value = vec![0; CHECKSUM_BYTES];
    parts.iter().for_each(|part| value.extend_from_slice(part));
    let checksum = checksum(key, value.get(CHECKSUM_BYTES..).unwrap_or_default());
    value.splice(..CHECKSUM_BYTES, checksum.to_le_bytes());
    value
}

/// The key's own checksum takes part, so that no other key's value is taken for this one's.
fn checksum(key: &[u8], payload: &[u8]) -> u32 {
    crc32c(payload).rotate_left(1) ^ crc32c(key)
}

fn text<'a>(key: &[u8], text: &'a [u8]) -> Result<&'a str, Fault> {
    str::from_utf8(text).map_err(|_| broken(key, "is no text"))
}

fn broken(key: &[u8], what: &str) -> Fault {
    let key = key.escape_ascii();
    Fault::Damaged(format!("metadata.mdb is damaged: the entry \"{key}\" {what}; use another folder"))
}

/// What is left of a value whose checksum is right.
struct Fields<'k, 'v> {
    key: &'k [u8],
    rest: &'v [u8],
}

impl<'k, 'v> Fields<'k, 'v> {
    fn of(key: &'k [u8], value: &'v [u8]) -> Result<Self, Fault> {
        let Some((stored, rest)) = value.split_first_chunk() else {
            return Err(broken(key, &format!("has only {} bytes", value.len())));
        };
        if checksum(key, rest) != u32::from_le_bytes(*stored) {
            return Err(broken(key, "does not have its checksum"));
        }
        Ok(Fields { key, rest })
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Fault> {
        let Some((field, rest)) = self.rest.split_first_chunk() else {
            return Err(broken(self.key, &format!("ends {} bytes too early", BYTES - self.rest.len())));
        };
        self.rest = rest;
        Ok(*field)
    }

    fn number(&mut self) -> Result<i64, Fault> {
        Ok(i64::from_le_bytes(self.take()?))
    }

    fn end(self) -> Result<(), Fault> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(broken(self.key, &format!("has {} bytes too many", self.rest.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(found: Result<T, Fault>) -> String {
        match found {
            Err(Fault::Damaged(message)) => message,
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn entries_come_back() {
        let header = Header { revision: 7, last_lease: 3, next_end: 9, ..Header::new(BootId(5)) };
        assert_eq!(Header::decoded(Some(&header.encoded())).unwrap(), header);
        let key = Kind::Lease.key(&[&lease_part(LeaseId(3))]);
        let lease = LeaseEntry { end: 17, ttl: u64::MAX };
        assert_eq!(LeaseEntry::decoded(&key, &lease.encoded(&key)).unwrap(), lease);
        let key = Kind::Record.key(&[b"/a"]);
        let record = RecordEntry { created: 1, modified: 2, lease: Some(LeaseId(3)), bytes: b"four" };
        let value = record.encoded(&key);
        assert_eq!(RecordEntry::decoded(&key, &value).unwrap(), record);
        assert_eq!(record.with_key(&key).unwrap().key, "/a");
        let key = Kind::Removed.key(&[&revision_part(300), b"/b"]);
        assert_eq!(parts(&key).unwrap(), (300, "/b"));
        check_mark(&key, &mark(&key)).unwrap();
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_seen() {
        let key = Kind::Record.key(&[b"/a"]);
        let value = RecordEntry { created: 1, modified: 2, lease: None, bytes: b"abc" }.encoded(&key);
        for bit in 0..value.len() * 8 {
            let mut changed = value.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            message(RecordEntry::decoded(&key, &changed));
        }
        for end in 0..value.len() {
            message(RecordEntry::decoded(&key, &value[..end]));
        }
        message(RecordEntry::decoded(&Kind::Record.key(&[b"/b"]), &value));
        let header = Header::new(BootId(1)).encoded();
        for bit in 0..header.len() * 8 {
            let mut changed = header.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            message(Header::decoded(Some(&changed)));
        }
    }

    #[test]
    fn other_programs_and_other_formats_are_named() {
        assert!(message(Header::decoded(None)).contains("another program"));
        assert!(message(Header::decoded(Some(b"PERC"))).contains("another program"));
        let mut next = Header::new(BootId(1)).encoded();
        next[8] = 2;
        assert!(
            message(Header::decoded(Some(&next))).contains("has the format 2, and this program knows only 1")
        );
    }

    #[test]
    fn sizes_and_texts_are_checked() {
        let key = Kind::Lease.key(&[]);
        assert!(
            message(LeaseEntry::decoded(&key, &sealed(&key, &[&[0; 12]]))).contains("ends 4 bytes too early")
        );
        assert!(message(LeaseEntry::decoded(&key, &sealed(&key, &[&[0; 17]]))).contains("1 bytes too many"));
        assert!(message(LeaseEntry::decoded(&key, b"abc")).contains("has only 3 bytes"));
        assert!(message(parts(&[4, 1, 2])).contains("too short"));
        assert!(message(parts(&[4, 0, 0, 0, 0, 0, 0, 0, 1, 0xff])).contains("is no text"));
    }
}
