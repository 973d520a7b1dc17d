//! Files that are compressed as a whole: gzip and zstd, unpacked in order.
//!
//! All members of a gzip file and all frames of a zstd file are one stream; skippable frames have no bytes.
//! Checksums are verified. A cut stream is an error, and so are bytes behind its end that belong to nothing.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::file::FileReader;
use crate::{DataFile, FormatError, Lent};

/// The most bytes of one record that is unpacked. A few bytes can unpack to any number, so the file's length
/// is no bound.
pub const RECORD_MAX: usize = 1 << 30;

/// Why a compressed file has no places, and what to do.
pub const IN_ORDER: &str = "it is compressed as a whole; unpack it, or compress many smaller files";

/// How a gzip member begins.
const MEMBER: [u8; 2] = [0x1f, 0x8b];

/// The error for bytes that begin none.
const NO_MEMBER: &str = "not 1f 8b";

/// The longest window that zstd has in its own tools (`--long=31`). Its memory is touched as far as it is
/// used.
const WINDOW_LOG_MAX: u32 = 31;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Gzip, of one or several members.
    Gzip,
    /// Zstandard, of one or several frames.
    Zstd,
}

impl Packing {
    /// Tells by a file's first bytes how it is compressed.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match *head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// Tells by a file's name how it is compressed: `.gz` or `.zst`, in any case.
    #[must_use]
    pub fn by_name(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        let is = |names: &[&str]| names.iter().any(|name| extension.eq_ignore_ascii_case(name));
        match () {
            () if is(&["gz", "gzip", "tgz"]) => Some(Packing::Gzip),
            () if is(&["zst", "zstd", "tzst"]) => Some(Packing::Zstd),
            () => None,
        }
    }

    /// Tells how an open file is compressed: by its first bytes, or by its name, whose stream is then
    /// damaged.
    ///
    /// # Errors
    ///
    /// [`FormatError::Io`] if it cannot be read.
    pub fn of_file(file: &DataFile) -> Result<Option<Self>, FormatError> {
        let mut head = Vec::new();
        let head = file.read(0..file.bytes().min(4), &mut head)?;
        Ok(Packing::of(head).or_else(|| Packing::by_name(file.path())))
    }

    /// The name of what is unpacked, without the compression's: `a.jsonl` of `a.jsonl.gz`, `a.tar` of
    /// `a.tgz`.
    #[must_use]
    pub fn inner_name(path: &Path) -> std::path::PathBuf {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match Packing::by_name(path) {
            None => path.to_owned(),
            Some(_) if ["tgz", "tzst"].iter().any(|tar| extension.eq_ignore_ascii_case(tar)) => {
                path.with_extension("tar")
            }
            Some(_) => path.with_extension(""),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        }
    }
}

/// The bytes that a compressed file unpacks to, in order.
pub struct Unpacked {
    file: Arc<DataFile>,
    packing: Packing,
    decoder: StreamDecoder,
    failed: Option<FormatError>,
}

enum StreamDecoder {
    /// Of the member that is being read.
    Gzip(GzDecoder<CountedReader>),
    Zstd(ZstdDecoder<'static, CountedReader>),
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacked")
            .field("file", &self.file)
            .field("packing", &self.packing)
            .finish_non_exhaustive()
    }
}

impl Unpacked {
    /// Begins with the first byte.
    ///
    /// # Errors
    ///
    /// [`FormatError::Damaged`] if the file is empty; [`FormatError::Io`] if there is no memory.
    pub fn new(file: &Arc<DataFile>, packing: Packing) -> Result<Self, FormatError> {
        if file.bytes() == 0 {
            let what = format!("it is empty, and no {} file is; copy it again", packing.name());
            return Err(FormatError::damaged(file.path(), what));
        }
        let counted =
            CountedReader { inner: BufReader::with_capacity(1 << 16, file.reader()), at: 0, failed: None };
        let decoder = match packing {
            Packing::Gzip => StreamDecoder::Gzip(GzDecoder::new(counted)),
            Packing::Zstd => ZstdDecoder::with_buffer(counted)
                .and_then(|mut decoder| {
                    decoder.window_log_max(WINDOW_LOG_MAX)?;
                    Ok(StreamDecoder::Zstd(decoder))
                })
                .map_err(|error| FormatError::io(file.path(), "prepare to unpack it", error))?,
        };
        Ok(Unpacked { file: Arc::clone(file), packing, decoder, failed: None })
    }

    /// Unpacks up to as many bytes as the buffer has; none at the end, where everything was verified.
    ///
    /// # Errors
    ///
    /// [`FormatError::Damaged`] if the stream is cut, does not match its checksum, or is followed by other
    /// bytes; the next call returns the same error.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FormatError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            let result = match &mut self.decoder {
                StreamDecoder::Gzip(decoder) => match decoder.read(buffer) {
                    Ok(0) if !buffer.is_empty() => match next_member(decoder, &self.file) {
                        Ok(true) => continue,
                        Ok(false) => Ok(0),
                        Err(error) => Err(error),
                    },
                    result => result,
                },
                StreamDecoder::Zstd(decoder) => decoder.read(buffer),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(&error)),
                Ok(bytes) => return Ok(bytes),
            }
        }
    }

    /// Appends up to `bytes` bytes to a buffer, fewer only at the end; returns how many.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). What was unpacked before the error is appended.
    pub fn append(&mut self, buffer: &mut Vec<u8>, bytes: usize) -> Result<usize, FormatError> {
        const STEP: usize = 1 << 16;

        let begin = buffer.len();
        let end = begin.saturating_add(bytes);
        while buffer.len() < end {
            let at = buffer.len();
            // The buffer grows by what is there, whatever a length said.
            buffer.resize(end.min(at.saturating_add(STEP)), 0);
            let read = self.read(buffer.get_mut(at..).unwrap_or_default());
            buffer.truncate(at.saturating_add(read.as_ref().copied().unwrap_or(0)));
            if read? == 0 {
                break;
            }
        }
        Ok(buffer.len().saturating_sub(begin))
    }

    fn fail(&mut self, error: &io::Error) -> FormatError {
        let counted = match &mut self.decoder {
            StreamDecoder::Gzip(decoder) => decoder.get_mut(),
            StreamDecoder::Zstd(decoder) => decoder.get_mut(),
        };
        let (at, path) = (counted.at, self.file.path());
        let failure = match counted.failed.take() {
            Some(cause) => FormatError::io(path, "read the file", cause),
            None => {
                FormatError::damaged(path, what_is_wrong(self.packing, at, self.file.bytes(), error)).byte(at)
            }
        };
        self.failed = Some(failure.clone());
        failure
    }
}

/// Goes on to the next member of a gzip file; false at the end.
fn next_member(decoder: &mut GzDecoder<CountedReader>, file: &Arc<DataFile>) -> io::Result<bool> {
    let is_member = match *decoder.get_mut().fill_buf()? {
        [] => return Ok(false),
        [first] => first == MEMBER[0],
        [first, second, ..] => [first, second] == MEMBER,
    };
    if !is_member {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_MEMBER));
    }
    // The decoder is reset by another reader alone.
    let reader = std::mem::replace(decoder.get_mut(), CountedReader::new(file, 0));
    decoder.reset(reader);
    Ok(true)
}

/// All bytes of a compressed file, which are as many as an index says. No more memory is taken, whatever the
/// file unpacks to.
pub(crate) fn whole(file: &Arc<DataFile>, packing: Packing, due: u64) -> Result<Vec<u8>, FormatError> {
    check_stated(file, due)?;
    let most = usize::try_from(due).unwrap_or(usize::MAX);
    let mut unpacked = Vec::new();
    // One more than there may be shows that there are more.
    Unpacked::new(file, packing)?.append(&mut unpacked, most.saturating_add(1))?;
    check_length(file, unpacked.len(), due)?;
    Ok(unpacked)
}

/// Refuses a shard that unpacks to more than its own offsets, of 4 bytes, can reach.
pub(crate) fn check_stated(file: &DataFile, due: u64) -> Result<(), FormatError> {
    if due <= u32::MAX.into() {
        return Ok(());
    }
    let what = format!("it is said to unpack to {due} bytes, and up to {} can be reached in it", u32::MAX);
    Err(FormatError::damaged(file.path(), what))
}

/// Compares the number of unpacked bytes with what an index says.
pub(crate) fn check_length(file: &DataFile, found: usize, due: u64) -> Result<(), FormatError> {
    let found = found as u64;
    if found == due {
        return Ok(());
    }
    let more = if found > due { "more than " } else { "" };
    let what = format!("it unpacks to {more}{} bytes, and the index says {due}", due.min(found));
    Err(FormatError::damaged(file.path(), what))
}

/// The bytes of a shard: those of its file, or those that it unpacks to.
#[derive(Debug)]
pub(crate) enum Stored<'a> {
    File(&'a DataFile),
    Unpacked(&'a [u8]),
}

impl<'a> Stored<'a> {
    pub(crate) fn of(file: &'a DataFile, unpacked: Option<&'a [u8]>) -> Self {
        unpacked.map_or(Stored::File(file), Stored::Unpacked)
    }

    /// Their number.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Stored::File(file) => file.bytes(),
            Stored::Unpacked(bytes) => bytes.len() as u64,
        }
    }

    /// Lends a range, as [`DataFile::lend`] does; `file` is named if it is beyond the end.
    pub(crate) fn lend(
        &self,
        file: &DataFile,
        range: Range<u64>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Lent<'a>, FormatError> {
        match self {
            Stored::File(file) => file.lend(range, buffer),
            Stored::Unpacked(bytes) => {
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                bytes.get(index(range.start)..index(range.end)).map(Lent::Buffer).ok_or_else(|| {
                    let what =
                        format!("unpacked, it has {} bytes, and byte {} is wanted", bytes.len(), range.end);
                    FormatError::damaged(file.path(), what)
                })
            }
        }
    }

    /// As [`lend`](Self::lend), without the map.
    pub(crate) fn read(
        &self,
        file: &DataFile,
        range: Range<u64>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], FormatError> {
        self.lend(file, range, buffer).map(|lent| lent.bytes())
    }
}

/// What a decoder's error means, `at` being the byte up to which it has read.
fn what_is_wrong(packing: Packing, at: u64, bytes: u64, error: &io::Error) -> String {
    /// The longest beginning that a decoder has read of a first member or frame that it refuses.
    const BEGINNING: u64 = 18;

    let cut = error.kind() == io::ErrorKind::UnexpectedEof;
    let (name, error) = (packing.name(), error.to_string());
    let no_beginning = [NO_MEMBER, "invalid gzip header"].contains(&error.as_str())
        || error.contains("Unknown frame descriptor");
    if cut {
        format!(
            "the {name} stream ends early, after {bytes} bytes: it is cut; copy it again from where it came"
        )
    } else if no_beginning && at <= BEGINNING {
        format!("it does not begin as a {name} stream does ({error})")
    } else if no_beginning {
        format!(
            "bytes stand behind the end of the {name} stream that begin no {} ({error}); remove them, or \
             copy the file again",
            if packing == Packing::Gzip { "member" } else { "frame" }
        )
    } else if error.contains("too much memory") {
        format!(
            "the {name} stream wants a window of more than 2 GiB ({error}); compress it with --long=31 or \
            less"
        )
    } else {
        format!("the {name} stream is damaged ({error}); copy it again from where it came")
    }
}

/// Counts the bytes that the decoder has taken, and keeps the system's error apart from the decoder's.
struct CountedReader {
    inner: BufReader<FileReader>,
    at: u64,
    failed: Option<io::Error>,
}

impl CountedReader {
    fn new(file: &Arc<DataFile>, capacity: usize) -> Self {
        CountedReader { inner: BufReader::with_capacity(capacity, file.reader()), at: 0, failed: None }
    }

    fn note<T>(failed: &mut Option<io::Error>, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => {
                *failed = Some(error);
                io::Error::other("the file cannot be read")
            }
        })
    }
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = Self::note(&mut self.failed, self.inner.read(buffer))?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

impl BufRead for CountedReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let CountedReader { inner, failed, .. } = self;
        Self::note(failed, inner.fill_buf())
    }

    fn consume(&mut self, bytes: usize) {
        self.inner.consume(bytes);
        self.at = self.at.saturating_add(bytes as u64);
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "nothing hostile is read")]
mod tests {
    use std::io::Write as _;

    use percolator_files::Access;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A frame with a checksum.
    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(packed: &[u8], packing: Packing, access: Access) -> Result<Vec<u8>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), packed).unwrap();
        let file = Arc::new(DataFile::open(file.path(), access).unwrap());
        let shown = |error: FormatError| error.to_string();
        let mut unpacked = Unpacked::new(&file, packing).map_err(shown)?;
        let mut bytes = Vec::new();
        let result = unpacked.append(&mut bytes, usize::MAX);
        if let Err(error) = &result {
            assert_eq!(unpacked.read(&mut [0; 8]).as_ref(), Err(error), "the same error");
        }
        result.map(|_| bytes).map_err(shown)
    }

    fn text() -> Vec<u8> {
        (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn members_and_frames_are_one_stream() {
        let bytes = text();
        let (first, second) = bytes.split_at(300_001);
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"aside"].concat();
        for access in [Access::Mapped, Access::Read] {
            let packed = [gzip(first), gzip(b""), gzip(second)].concat();
            assert_eq!(unpack(&packed, Packing::Gzip, access).unwrap(), bytes);
            let packed =
                [skippable.clone(), zstd(first), zstd(b""), skippable.clone(), zstd(second)].concat();
            assert_eq!(Packing::of(&packed), Some(Packing::Zstd));
            assert_eq!(unpack(&packed, Packing::Zstd, access).unwrap(), bytes);
        }
    }

    #[test]
    fn a_cut_at_any_byte_is_an_error_unless_between() {
        let (gzip, zstd) = (gzip(b"text text text text"), zstd(b"text text text text"));
        for (packed, packing) in [(&gzip, Packing::Gzip), (&zstd, Packing::Zstd)] {
            let two = [&packed[..], packed].concat();
            for length in 1..two.len() {
                let result = unpack(&two[..length], packing, Access::Read);
                if length == packed.len() {
                    assert!(result.is_ok());
                } else {
                    let error = result.unwrap_err();
                    assert!(error.contains("ends early"), "{packing:?} of {length}: {error}");
                }
            }
            let error = unpack(b"", packing, Access::Read).unwrap_err();
            assert!(error.contains("empty"), "{error}");
        }
    }

    #[test]
    fn bytes_behind_the_end_are_an_error() {
        for (packed, packing, what) in
            [(gzip(&text()), Packing::Gzip, "no member"), (zstd(&text()), Packing::Zstd, "no frame")]
        {
            for more in [&b"garbage bytes behind"[..], b"garb", &[0; 512]] {
                let error = unpack(&[&packed[..], more].concat(), packing, Access::Mapped).unwrap_err();
                assert!(error.contains(what), "{error}");
            }
            let error = unpack(b"neither of the two formats", packing, Access::Mapped).unwrap_err();
            assert!(error.contains("does not begin as"), "{error}");
        }
    }

    #[test]
    fn a_changed_byte_of_the_data_is_noticed() {
        for (packed, packing) in [(gzip(&text()), Packing::Gzip), (zstd(&text()), Packing::Zstd)] {
            for at in (20..packed.len()).step_by(packed.len() / 50) {
                let mut packed = packed.clone();
                packed[at] ^= 0x10;
                let error = unpack(&packed, packing, Access::Mapped).unwrap_err();
                assert!(error.contains("stream"), "{error}");
            }
        }
    }

    #[test]
    fn names_tell_the_compression_where_bytes_do_not() {
        let of = |name: &str| Packing::by_name(Path::new(name));
        assert_eq!(of("a.jsonl.GZ"), Some(Packing::Gzip));
        assert_eq!(of("a.tar.zst"), Some(Packing::Zstd));
        assert_eq!(of("a.tar"), None);
        let inner = |name: &str| Packing::inner_name(Path::new(name));
        assert_eq!(inner("b/a.tgz"), Path::new("b/a.tar"));
        assert_eq!(inner("b/a.jsonl.zst"), Path::new("b/a.jsonl"));
        assert_eq!(inner("b/a.jsonl"), Path::new("b/a.jsonl"));
    }
}
