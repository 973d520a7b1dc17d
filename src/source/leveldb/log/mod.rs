//! LevelDB's log format, which both its write-ahead logs and its MANIFEST have: records in blocks of 32 KiB.
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
//! A writer that died leaves a record whose end is missing. That is no damage: LevelDB itself starts again
//! from the records before it. So, where the file ends
//!
//! - inside a header or a payload, however long the header says that is, or
//! - behind a fragment whose record is to go on, or
//! - in zeros only, from a header on (space that was set aside, or data that did not reach the disk),
//!
//! the log has been cut: the records before the cut are good, and [`LogCut`](super::LogCut) tells where it
//! lies. Everything else is damage, and an error: a wrong checksum, also in the last record, whose length is
//! all there; a length that a block, all of which is there, has no room for; an unknown kind; fragments out of
//! order; zeros with data behind them. LevelDB, asked to be paranoid, agrees on all but the last.
//!
//! One damage looks like a cut: a length in the last block that became too large. It would hide every record
//! behind it, so a cut counts as one only if no intact fragment starts in what it drops; here LevelDB looks for
//! none, and the log just ends. (A value that holds a piece of a LevelDB log, cut in just that piece, is
//! therefore taken for damage.) The length of the last fragment itself cannot be told from a cut; that, too, is
//! reported. The search is done at most once a log, and takes the checksum of [`SEARCHED_BYTES_MAX`] at the
//! most: bytes that hold what could be headers everywhere would ask for half a gigabyte.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::ops::Range;

use percolator_table::checksum::masked_crc32c;
use percolator_table::coding::fixed32;

pub(super) const BLOCK_BYTES: usize = 32_768;
const HEADER_BYTES: usize = 7;
/// Where the checksum's cover starts: the kind, then the payload.
const KIND_OFFSET: usize = 6;

/// What the search for fragments in a cut may take the checksum of. Noise asks for about 1 MiB; what is all
/// small numbers, such as labels of pixels, for some 10 MiB. When nothing has been found by then, the log counts
/// as cut, which is reported.
const SEARCHED_BYTES_MAX: usize = 32 << 20;

const ZERO: u8 = 0;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// What is wrong with a log, or with a MANIFEST, which has the same format.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFault {
    /// A fragment is not what was written.
    #[error(
        "the fragment of {bytes} bytes has the masked crc32c {found:#010x}, and {stored:#010x} was written"
    )]
    Checksum {
        /// The length of its payload.
        bytes: usize,
        /// The masked checksum of what is there.
        found: u32,
        /// The masked checksum that the file has.
        stored: u32,
    },
    /// A fragment is longer than what is left of its block.
    #[error("a fragment of {found} bytes is said to be there, where the block has room for {allowed}")]
    Length {
        /// The length of its payload.
        found: usize,
        /// The room that the block has for one.
        allowed: usize,
    },
    /// A fragment's length leads past the end of the file, but there are intact fragments behind it.
    #[error(
        "a fragment of {found} bytes would go on past the end of the file, but at byte {intact} starts another"
    )]
    HidesRecords {
        /// The length of its payload.
        found: usize,
        /// Where the first intact fragment behind it starts.
        intact: usize,
    },
    /// A fragment is of a kind that LevelDB does not write.
    #[error("the fragment is of kind {found}: LevelDB writes 1 to 4")]
    Kind {
        /// Its kind.
        found: u8,
    },
    /// A record starts while another has not ended.
    #[error("a record starts there, but the one before it, which starts at byte {unfinished}, has no end")]
    NoEnd {
        /// Where the record without an end starts.
        unfinished: usize,
    },
    /// A record goes on that has not started.
    #[error("a record goes on there that has no start")]
    NoStart,
    /// There are zeros where a header should be, and data behind them.
    #[error("there are zeros, and data behind them, at byte {data}")]
    Zeros {
        /// Where the first byte lies that is not zero.
        data: usize,
    },
}

/// A fault, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogError {
    pub(super) offset: usize,
    pub(super) fault: LogFault,
}

impl LogError {
    /// The block of the fault, counted from 0.
    pub(super) fn block(&self) -> usize {
        self.offset / BLOCK_BYTES
    }
}

/// Where a log has been cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Where the record starts that has no end.
    pub(super) offset: usize,
    /// From there to the end of the file.
    pub(super) dropped_bytes: usize,
    pub(super) tail: LogTail,
}

/// What a log that was cut ends with.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTail {
    /// A part of a record.
    PartOfARecord,
    /// Zeros, maybe after a part of a record.
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
pub(super) struct LogReader<'a> {
    bytes: &'a [u8],
    /// Where the next fragment's header, or the end of its block, lies.
    at: usize,
    /// Where the header of the last record starts, and where its payloads lie.
    record: usize,
    payloads: Vec<Range<usize>>,
    cut: Option<Cut>,
}

struct Fragment {
    kind: u8,
    /// Where its header starts.
    offset: usize,
    payload: Range<usize>,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        LogReader { bytes, at: 0, record: 0, payloads: Vec::new(), cut: None }
    }

    /// Where the log has been cut, once its end is reached.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Where the last record starts, or the log ends.
    pub(super) fn offset(&self) -> usize {
        self.record
    }

    /// The next record: where its pieces lie in the log, in order. `None` at the end, cut or not.
    pub(super) fn next(&mut self) -> Result<Option<&[Range<usize>]>, LogError> {
        self.payloads.clear();
        // Where the record started that is being put together.
        let mut started = None;
        while let Some(Fragment { kind, offset, payload }) = self.fragment()? {
            let fault = |fault| LogError { offset, fault };
            // A FIRST without a payload, then a new record: early versions of LevelDB wrote that.
            let unfinished = started.filter(|_| self.payloads.iter().any(|payload| !payload.is_empty()));
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
            let tail = self.cut.map_or(LogTail::PartOfARecord, |cut| cut.tail);
            self.end(offset, Some(tail));
        }
        Ok(None)
    }

    /// The next fragment, checked; `None` at the end, and then `cut` is known.
    fn fragment(&mut self) -> Result<Option<Fragment>, LogError> {
        loop {
            let offset = self.at;
            let block_end = offset.saturating_sub(offset % BLOCK_BYTES).saturating_add(BLOCK_BYTES);
            let room = block_end.saturating_sub(offset);
            let rest = self.bytes.get(offset..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(self.end(offset, None));
            }
            if room < HEADER_BYTES && rest.len() >= room {
                self.at = block_end;
                continue;
            }
            let Some((length, kind)) = header(rest) else {
                return Ok(self.end(offset, Some(tail_of(rest))));
            };
            let fault = |fault| LogError { offset, fault };
            if kind == ZERO && length == 0 {
                return match rest.iter().position(|&byte| byte != 0) {
                    None => Ok(self.end(offset, Some(LogTail::Zeros))),
                    Some(at) => Err(fault(LogFault::Zeros { data: offset.saturating_add(at) })),
                };
            }
            let allowed = room.saturating_sub(HEADER_BYTES);
            // In a block that is not all there, it leads past the end of the file.
            if length > allowed && rest.len() >= room {
                return Err(fault(LogFault::Length { found: length, allowed }));
            }
            let Some((found, stored)) = checksums(rest, length) else {
                return match find_fragment(rest) {
                    None => Ok(self.end(offset, Some(tail_of(rest)))),
                    Some(at) => {
                        let intact = offset.saturating_add(at);
                        Err(fault(LogFault::HidesRecords { found: length, intact }))
                    }
                };
            };
            if found != stored {
                return Err(fault(LogFault::Checksum { bytes: length, found, stored }));
            }
            let start = offset.saturating_add(HEADER_BYTES);
            self.at = start.saturating_add(length);
            return Ok(Some(Fragment { kind, offset, payload: start..self.at }));
        }
    }

    /// Ends the log, cut at `offset` if it ends with a `tail`.
    fn end(&mut self, offset: usize, tail: Option<LogTail>) -> Option<Fragment> {
        self.at = self.bytes.len();
        self.record = offset;
        let dropped_bytes = self.at.saturating_sub(offset);
        self.cut = tail.map(|tail| Cut { offset, dropped_bytes, tail });
        None
    }
}

/// The length and the kind of the fragment at the front.
fn header(rest: &[u8]) -> Option<(usize, u8)> {
    let header = rest.first_chunk::<HEADER_BYTES>()?;
    let [_, _, _, _, low, high, kind] = *header;
    Some((usize::from(u16::from_le_bytes([low, high])), kind))
}

/// The masked checksum of the fragment at the front, and the one in its header; `None` if the end is missing.
fn checksums(rest: &[u8], length: usize) -> Option<(u32, u32)> {
    let covered = rest.get(KIND_OFFSET..HEADER_BYTES.checked_add(length)?)?;
    Some((masked_crc32c(covered, &[]), fixed32(rest, 0)?))
}

/// Where the first intact fragment behind the header at the front starts, if there is one. What is searched is
/// shorter than a block.
fn find_fragment(rest: &[u8]) -> Option<usize> {
    let mut budget = SEARCHED_BYTES_MAX;
    for at in 1..rest.len() {
        let rest = rest.get(at..)?;
        // Past the last place of a header there is none.
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

fn tail_of(rest: &[u8]) -> LogTail {
    if rest.iter().all(|&byte| byte == 0) { LogTail::Zeros } else { LogTail::PartOfARecord }
}

#[cfg(test)]
mod tests;
