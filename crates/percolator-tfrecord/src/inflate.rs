//! Unpacks one GZIP or ZLIB member after the other.
//!
//! All bytes before damage are returned, up to the last valid symbol. `flate2` is not used, because its
//! decompressor holds back up to 32 KiB, and drops them when it fails. GZIP's head and foot are therefore
//! read here.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, BufRead, ErrorKind};
use std::ops::Range;

use flate2::Crc;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// Deflate refers to at most this many bytes back, so they are kept.
const WINDOW_BYTES: usize = 32 << 10;
/// The longest file name or comment of a GZIP member.
const TEXT_BYTES_MAX: usize = 65_535;

/// The decompressor, for one member at a time.
pub(crate) struct Inflate {
    core: Box<DecompressorOxide>,
    /// What was unpacked last: a ring.
    window: Box<[u8]>,
    /// The part of the window that has not been handed out.
    pending: Range<usize>,
    /// How the member's deflated data ended, once they have.
    ended: Option<End>,
    is_gzip: bool,
    /// The checksum of what was handed out, for GZIP.
    crc: Crc,
}

/// How a member's deflated data end.
#[derive(Clone, Copy)]
enum End {
    Whole,
    /// The file ends within them.
    Cut,
    Damaged(&'static str),
}

impl Inflate {
    pub(crate) fn new() -> Self {
        Inflate {
            core: Box::default(),
            window: vec![0; WINDOW_BYTES].into(),
            pending: 0..0,
            ended: None,
            is_gzip: false,
            crc: Crc::new(),
        }
    }

    /// Begins a member. Reads its head, if it is GZIP.
    pub(crate) fn begin(&mut self, file: &mut impl BufRead, is_gzip: bool) -> io::Result<()> {
        if is_gzip {
            read_gzip_head(file)?;
        }
        self.core.init();
        (self.pending, self.ended, self.is_gzip) = (0..0, None, is_gzip);
        self.crc.reset();
        Ok(())
    }

    /// Unpacks into a buffer that is not empty; returns how many bytes there were, 0 at the member's end. The
    /// member's checksum is verified there.
    pub(crate) fn read(&mut self, file: &mut impl BufRead, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.pending.is_empty() {
                return Ok(self.hand_out(into));
            }
            match self.ended {
                None => self.unpack(file)?,
                Some(End::Whole) if self.is_gzip => {
                    self.check_gzip_foot(file)?;
                    return Ok(0);
                }
                Some(End::Whole) => return Ok(0),
                Some(End::Cut) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(End::Damaged(message)) => return Err(invalid(message)),
            }
        }
    }

    fn hand_out(&mut self, into: &mut [u8]) -> usize {
        let pending = self.window.get(self.pending.clone()).unwrap_or_default();
        let bytes = pending.len().min(into.len());
        if let (Some(into), Some(from)) = (into.get_mut(..bytes), pending.get(..bytes)) {
            into.copy_from_slice(from);
            if self.is_gzip {
                self.crc.update(from);
            }
        }
        self.pending.start = self.pending.start.saturating_add(bytes);
        bytes
    }

    /// Unpacks more into the window, all of which was handed out.
    fn unpack(&mut self, file: &mut impl BufRead) -> io::Result<()> {
        let input = file.fill_buf()?;
        let is_at_end = input.is_empty();
        let mut flags = if self.is_gzip { 0 } else { TINFL_FLAG_PARSE_ZLIB_HEADER };
        if !is_at_end {
            flags |= TINFL_FLAG_HAS_MORE_INPUT;
        }
        let at = self.pending.end % WINDOW_BYTES;
        let (status, taken, made) = decompress(&mut self.core, input, &mut self.window, at, flags);
        file.consume(taken);
        self.pending = at..at.saturating_add(made);
        self.ended = match status {
            TINFLStatus::Done => Some(End::Whole),
            TINFLStatus::HasMoreOutput => None,
            TINFLStatus::NeedsMoreInput if !is_at_end => None,
            TINFLStatus::NeedsMoreInput | TINFLStatus::FailedCannotMakeProgress => Some(End::Cut),
            TINFLStatus::Adler32Mismatch => Some(End::Damaged("the checksum of the unpacked data is wrong")),
            _ => Some(End::Damaged("the deflated data are corrupt")),
        };
        Ok(())
    }

    fn check_gzip_foot(&self, file: &mut impl BufRead) -> io::Result<()> {
        let mut foot = [0; 8];
        file.read_exact(&mut foot)?;
        let [c0, c1, c2, c3, l0, l1, l2, l3] = foot;
        let found = (u32::from_le_bytes([c0, c1, c2, c3]), u32::from_le_bytes([l0, l1, l2, l3]));
        match found == (self.crc.sum(), self.crc.amount()) {
            true => Ok(()),
            false => Err(invalid("the checksum or the length of the unpacked data is wrong")),
        }
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// Reads the head of a GZIP member (RFC 1952).
fn read_gzip_head(file: &mut impl BufRead) -> io::Result<()> {
    const HAS_CRC: u8 = 1 << 1;
    const HAS_EXTRA: u8 = 1 << 2;
    const HAS_NAME: u8 = 1 << 3;
    const HAS_COMMENT: u8 = 1 << 4;
    const RESERVED: u8 = 0xe0;

    let mut crc = Crc::new();
    let mut next = |bytes: &mut [u8]| -> io::Result<()> {
        file.read_exact(bytes)?;
        crc.update(bytes);
        Ok(())
    };
    let mut head = [0; 10];
    next(&mut head)?;
    let [0x1f, 0x8b, 8, flags, ..] = head else { return Err(invalid("a GZIP member's head is wrong")) };
    if flags & RESERVED != 0 {
        return Err(invalid("a GZIP member's head is wrong"));
    }
    if flags & HAS_EXTRA != 0 {
        let mut length = [0; 2];
        next(&mut length)?;
        next(&mut vec![0; u16::from_le_bytes(length).into()])?;
    }
    for _ in 0..(flags & (HAS_NAME | HAS_COMMENT)).count_ones() {
        let mut byte = [0];
        let mut bytes = 0..TEXT_BYTES_MAX;
        loop {
            next(&mut byte)?;
            match byte {
                [0] => break,
                _ if bytes.next().is_some() => {}
                _ => return Err(invalid("a GZIP member's name or comment is too long")),
            }
        }
    }
    if flags & HAS_CRC != 0 {
        let mut stored = [0; 2];
        file.read_exact(&mut stored)?;
        let [low, high, ..] = crc.sum().to_le_bytes();
        if stored != [low, high] {
            return Err(invalid("the checksum of a GZIP member's head is wrong"));
        }
    }
    Ok(())
}
