//! LevelDB's log format, used by its write-ahead logs and its MANIFEST: records in blocks of 32 KiB.
//!
//! ```text
//! block:    fragment ... | up to 6 zeros, where no further header fits
//! fragment: masked crc32c of what follows the length: 4 bytes | length: 2 | kind: 1 | payload
//! ```
//!
//! A record is one fragment of kind `FULL`, or a `FIRST`, any number of `MIDDLE`s and a `LAST`.
//!
//! # Where a log ends
//!
//! A writer that died leaves a record without an end. That is not damage: LevelDB itself starts again from
//! the records before it. So if the file ends
//!
//! - inside a header or a payload, however long the header says the payload is, or in zeros that start there,
//!   or
//! - after a fragment whose record should continue,
//!
//! the log is cut: the records before the cut are good, and [`LogCut`](crate::LogCut) says where it is.
//! Everything else is damage, and an error: a wrong checksum, even in the last record, if all of the record's
//! bytes are there; a length for which a complete block has no room; an unknown kind; fragments out of order;
//! zeros with data after them in the same block. LevelDB with paranoid checks agrees on all but the last,
//! where it drops the data.
//!
//! Zeros instead of a header, up to the end of the block, are space that a writer reserved: LevelDB up to
//! 1.15 and its Java port write to mapped files, which are longer than what is in them until they are closed.
//! As in LevelDB, they are skipped. They look like data that did not reach the disk. So those at the end are
//! reported like a cut, and [`zeros`](LogReader::zeros) says where those before a record are: the sequence
//! numbers show whether a write is missing.
//!
//! One kind of damage looks like a cut: a length in the last block that became too large. It would hide every
//! record after it. So a cut counts as one only if no intact fragment starts in the bytes it drops. LevelDB
//! does not look for one; the log just ends. (A value that holds a piece of a LevelDB log, and is cut inside
//! that piece, is therefore taken for damage.) A damaged length of the last fragment itself cannot be
//! distinguished from a cut, and a cut is reported. The same holds for any damage of a last fragment that
//! ends in zeros and is followed by zeros: a write to reserved space that was cut short leaves the same, a
//! header whose checksum covers missing bytes. The search is done at most once per log, and takes the
//! checksum of at most [`SEARCHED_BYTES_MAX`]: bytes that look like headers everywhere would otherwise
//! require half a gigabyte.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::ops::Range;

use percolator_files::checksum::masked_crc32c;

use crate::coding::fixed32;

pub(crate) const BLOCK_BYTES: usize = 32_768;
pub(crate) const HEADER_BYTES: usize = 7;
/// Where the bytes covered by the checksum start: the kind, then the payload.
const KIND_OFFSET: usize = 6;

/// The most bytes that the search for fragments after a cut takes the checksum of. Noise needs about 1 MiB;
/// data made of small numbers only, such as pixel labels, needs some 10 MiB. If nothing is found within the
/// limit, the log counts as cut, which is reported.
const SEARCHED_BYTES_MAX: usize = 32 << 20;

const ZERO: u8 = 0;
pub(crate) const FULL: u8 = 1;
pub(crate) const FIRST: u8 = 2;
pub(crate) const MIDDLE: u8 = 3;
pub(crate) const LAST: u8 = 4;

/// What is wrong with a log, or with a MANIFEST, which has the same format.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFault {
    /// A fragment differs from what was written.
    #[error(
        "the fragment of {bytes} bytes has the masked crc32c {found:#010x}, but {stored:#010x} is stored"
    )]
    Checksum {
        /// The length of its payload.
        bytes: usize,
        /// The masked checksum of the bytes found.
        found: u32,
        /// The masked checksum stored in the file.
        stored: u32,
    },
    /// A fragment is longer than the rest of its block.
    #[error("a header gives a fragment {found} bytes, where the block has room for {allowed}")]
    Length {
        /// The length of its payload.
        found: usize,
        /// The room that the block has for one.
        allowed: usize,
    },
    /// A fragment's length extends past the end of the file, but there are intact fragments after its header.
    #[error(
        "a fragment of {found} bytes would extend past the end of the file, but one starts at byte {intact}"
    )]
    HidesRecords {
        /// The length of its payload.
        found: usize,
        /// Where the first of them starts.
        intact: usize,
    },
    /// A fragment is of a kind that LevelDB does not write.
    #[error("the fragment is of kind {found}: LevelDB writes 1 to 4")]
    Kind {
        /// Its kind.
        found: u8,
    },
    /// A record starts while another has not ended.
    #[error("a record starts, but the one before it, which starts at byte {unfinished}, is not complete")]
    NoEnd {
        /// Where the record without an end starts.
        unfinished: usize,
    },
    /// A record continues that has not started.
    #[error("a fragment continues a record, but no record was started")]
    NoStart,
    /// There are zeros instead of a header, and data after them.
    #[error("there are zeros instead of a header, but data follows them at byte {data}")]
    Zeros {
        /// The offset of the first byte that is not zero.
        data: usize,
    },
}

/// A fault, and its offset in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogError {
    pub(crate) offset: usize,
    pub(crate) fault: LogFault,
}

impl LogError {
    /// The block of the fault, counted from 0.
    pub(crate) fn block(&self) -> usize {
        self.offset / BLOCK_BYTES
    }
}

/// A log's cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Where the record without an end starts.
    pub(crate) offset: usize,
    /// The number of bytes from there to the end of the file.
    pub(crate) dropped_bytes: usize,
    pub(crate) tail: LogTail,
}

/// What a cut log ends with.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTail {
    /// Part of a record, and possibly zeros.
    PartOfARecord,
    /// Nothing but zeros: space that its writer reserved, or data that did not reach the disk.
    Zeros,
}

impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogTail::PartOfARecord => "a part of a record",
            LogTail::Zeros => "zeros",
        })
    }
}

/// Reads a log's records, front to back.
pub(crate) struct LogReader<'a> {
    bytes: &'a [u8],
    /// The offset of the next fragment's header, or of the end of its block.
    at: usize,
    /// Where the header of the last record starts, and its payloads' ranges.
    record: usize,
    payloads: Vec<Range<usize>>,
    /// Where zeros were skipped since the record before.
    zeros: Option<usize>,
    cut: Option<Cut>,
}

struct Fragment {
    kind: u8,
    /// Where its header starts.
    offset: usize,
    payload: Range<usize>,
}

impl<'a> LogReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        LogReader { bytes, at: 0, record: 0, payloads: Vec::new(), zeros: None, cut: None }
    }

    /// Returns where the log is cut, once its end is reached.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Returns where zeros were skipped before the last record.
    pub(crate) fn zeros(&self) -> Option<usize> {
        self.zeros
    }

    /// Returns where the last record starts or, at the end, where the log ends.
    pub(crate) fn offset(&self) -> usize {
        self.record
    }

    /// Returns the next record: the ranges of its pieces in the log, in order. Returns `None` at the end, cut
    /// or not.
    pub(crate) fn next(&mut self) -> Result<Option<&[Range<usize>]>, LogError> {
        self.payloads.clear();
        self.zeros = None;
        // Where the record being assembled started.
        let mut started = None;
        while let Some(Fragment { kind, offset, payload }) = self.fragment()? {
            let fault = |fault| LogError { offset, fault };
            // A FIRST without a payload, then a new record: early versions of LevelDB wrote that.
            let unfinished = started.filter(|_| self.payloads.iter().any(|payload| !payload.is_empty()));
            if let Some(zeros) = self.zeros.filter(|_| unfinished.is_some()) {
                return Err(LogError { offset: zeros, fault: LogFault::Zeros { data: offset } });
            }
            match (kind, started, unfinished) {
                (FULL | FIRST, _, Some(unfinished)) => return Err(fault(LogFault::NoEnd { unfinished })),
                (MIDDLE | LAST, None, _) => return Err(fault(LogFault::NoStart)),
                (FULL | FIRST, ..) => {
                    self.payloads.clear();
                    self.record = offset;
                    started = Some(offset);
                }
                (MIDDLE | LAST, ..) => {}
                (found, ..) => return Err(fault(LogFault::Kind { found })),
            }
            self.payloads.push(payload);
            if kind == FULL || kind == LAST {
                return Ok(Some(&self.payloads));
            }
        }
        if let Some(offset) = started {
            self.end(offset, Some(LogTail::PartOfARecord));
        }
        Ok(None)
    }

    /// Returns the next fragment, checked. Returns `None` at the end, and then `cut` is known.
    fn fragment(&mut self) -> Result<Option<Fragment>, LogError> {
        loop {
            let offset = self.at;
            let block_end = offset.saturating_sub(offset % BLOCK_BYTES).saturating_add(BLOCK_BYTES);
            let room = block_end.saturating_sub(offset);
            let rest = self.bytes.get(offset..).unwrap_or_default();
            if rest.is_empty() {
                let zeros = self.zeros.map(|_| LogTail::Zeros);
                return Ok(self.end(self.zeros.unwrap_or(offset), zeros));
            }
            if room < HEADER_BYTES && rest.len() >= room {
                self.at = block_end;
                continue;
            }
            let block = rest.get(..room).unwrap_or(rest);
            if are_zeros(block) {
                self.zeros.get_or_insert(offset);
                self.at = offset.saturating_add(block.len());
                continue;
            }
            let Some((length, kind)) = header(rest) else {
                return Ok(self.end(offset, Some(LogTail::PartOfARecord)));
            };
            let fault = |fault| LogError { offset, fault };
            if kind == ZERO && length == 0 {
                let after = rest.get(HEADER_BYTES..).unwrap_or_default();
                return match after.iter().position(|&byte| byte != 0) {
                    // The start of a header.
                    None => Ok(self.end(offset, Some(LogTail::PartOfARecord))),
                    Some(at) => {
                        let data = offset.saturating_add(HEADER_BYTES).saturating_add(at);
                        Err(fault(LogFault::Zeros { data }))
                    }
                };
            }
            let allowed = room.saturating_sub(HEADER_BYTES);
            // In an incomplete block, such a length extends past the end of the file.
            if length > allowed && rest.len() >= room {
                return Err(fault(LogFault::Length { found: length, allowed }));
            }
            let Some((found, stored)) = checksums(rest, length) else {
                return match find_fragment(rest) {
                    None => Ok(self.end(offset, Some(LogTail::PartOfARecord))),
                    Some(at) => {
                        let intact = offset.saturating_add(at);
                        Err(fault(LogFault::HidesRecords { found: length, intact }))
                    }
                };
            };
            if found != stored && is_torn(rest, length) {
                return Ok(self.end(offset, Some(LogTail::PartOfARecord)));
            }
            if found != stored {
                return Err(fault(LogFault::Checksum { bytes: length, found, stored }));
            }
            let start = offset.saturating_add(HEADER_BYTES);
            self.at = start.saturating_add(length);
            return Ok(Some(Fragment { kind, offset, payload: start..self.at }));
        }
    }

    /// Ends the log; it is cut at `offset` if there is a `tail`.
    fn end(&mut self, offset: usize, tail: Option<LogTail>) -> Option<Fragment> {
        self.at = self.bytes.len();
        self.record = offset;
        let dropped_bytes = self.at.saturating_sub(offset);
        self.cut = tail.map(|tail| Cut { offset, dropped_bytes, tail });
        None
    }
}

/// Returns the length and the kind of the fragment at the front.
fn header(rest: &[u8]) -> Option<(usize, u8)> {
    let header = rest.first_chunk::<HEADER_BYTES>()?;
    let [_, _, _, _, low, high, kind] = *header;
    Some((usize::from(u16::from_le_bytes([low, high])), kind))
}

/// Returns the masked checksum of the fragment at the front, and the one in its header; `None` if its end is
/// missing.
fn checksums(rest: &[u8], length: usize) -> Option<(u32, u32)> {
    let covered = rest.get(KIND_OFFSET..HEADER_BYTES.checked_add(length)?)?;
    Some((masked_crc32c(covered, &[]), fixed32(rest, 0)?))
}

/// Returns where the first intact fragment after the header at the front starts, if there is one. `rest` is
/// shorter than a block.
fn find_fragment(rest: &[u8]) -> Option<usize> {
    let mut budget = SEARCHED_BYTES_MAX;
    for at in 1..rest.len() {
        let rest = rest.get(at..)?;
        // Past the last place for a header there are no fragments.
        let (length, kind) = header(rest)?;
        let fits = HEADER_BYTES.saturating_add(length) <= rest.len();
        if length == 0 || !fits || !(FULL..=LAST).contains(&kind) {
            continue;
        }
        budget = budget.checked_sub(length)?;
        if checksums(rest, length).is_some_and(|(found, stored)| found == stored) {
            return Some(at);
        }
    }
    None
}

/// Whether the fragment at the front ends in zeros, and nothing but zeros follows it: a write to reserved
/// space that was cut short, or damage that looks the same.
fn is_torn(rest: &[u8], length: usize) -> bool {
    let end = HEADER_BYTES.saturating_add(length);
    rest.len() > end && end.checked_sub(1).and_then(|last| rest.get(last..)).is_some_and(are_zeros)
}

fn are_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
