//! The records of a file, one after the other.

use std::path::Path;
use std::sync::Arc;

use crate::error::TfRecordError;
use crate::map::FileMap;
use crate::packed_walk::PackedWalk;
use crate::record_file::{Options, RecordFile};
use crate::walk::PlainWalk;

/// Reads the records of a file in order, and verifies every checksum.
///
/// ```no_run
/// use percolator_tfrecord::Reader;
///
/// let mut reader = Reader::open("train-00000-of-01024.tfrecord")?;
/// while let Some(record) = reader.advance()? {
///     println!("{} bytes", record.len());
/// }
/// # Ok::<(), percolator_tfrecord::TfRecordError>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    walk: Walk,
    /// What ended it, which is not the record's own.
    error: Option<TfRecordError>,
}

#[derive(Debug)]
enum Walk {
    Mapped(PlainWalk, Arc<FileMap>),
    Read(PlainWalk),
    Packed(PackedWalk),
}

impl Walk {
    fn advance(&mut self) -> Result<Option<&[u8]>, TfRecordError> {
        match self {
            Walk::Mapped(walk, map) => {
                let Some(frame) = walk.step(Some(map))? else { return Ok(None) };
                let data = map.data(frame);
                map.check(data)?;
                Ok(Some(data))
            }
            Walk::Read(walk) => {
                let Some(frame) = walk.step(None)? else { return Ok(None) };
                walk.read(frame)?;
                Ok(Some(walk.data()))
            }
            Walk::Packed(walk) => Ok(walk.step()?.map(|_| walk.data())),
        }
    }
}

impl Reader {
    /// Opens a file, plain or compressed, before its first record. It is mapped, unless it is compressed or
    /// on a network file system ([`Access`](percolator_files::Access)).
    ///
    /// # Errors
    ///
    /// As [`RecordFile::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TfRecordError> {
        Ok(Reader::new(&RecordFile::open(path.as_ref(), &Options::default())?))
    }

    /// Returns a reader of an open file, before its first record.
    #[must_use]
    pub fn new(file: &RecordFile) -> Self {
        let walk = match file {
            RecordFile::Plain(plain) => match plain.map() {
                Some(map) => Walk::Mapped(PlainWalk::new(plain, 0), map.clone()),
                None => Walk::Read(PlainWalk::new(plain, 0)),
            },
            RecordFile::Packed(packed) => Walk::Packed(PackedWalk::new(packed, 0)),
        };
        Reader { walk, error: None }
    }

    /// Reads the next record; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Data`] if the checksum of the record's data is wrong: the next call reads the record
    /// behind it. Any other error is returned again.
    pub fn advance(&mut self) -> Result<Option<&[u8]>, TfRecordError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Reader { walk, error } = self;
        walk.advance().inspect_err(|found| {
            if !matches!(found, TfRecordError::Data { .. }) {
                *error = Some(found.clone());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use flate2::read::{GzDecoder, ZlibDecoder};
    use percolator_files::Access;

    use super::*;
    use crate::{Compression, FRAME_BYTES, HEAD_BYTES, LARGE_BYTES, TfRecordWriter, write_record};

    /// The records of a file up to an error that is returned again, those with damaged data as `None`.
    fn read(path: &Path, options: &Options) -> (Vec<Option<Vec<u8>>>, Option<TfRecordError>) {
        let mut reader = Reader::new(&RecordFile::open(path, options).unwrap());
        let mut records = Vec::new();
        loop {
            match reader.advance() {
                Ok(Some(record)) => records.push(Some(record.to_vec())),
                Ok(None) => return (records, None),
                Err(TfRecordError::Data { at, .. }) => {
                    assert_eq!(at.record, Some(records.len() as u64));
                    records.push(None);
                }
                Err(error) => {
                    assert_eq!(reader.advance().map(drop), Err(error.clone()));
                    return (records, Some(error));
                }
            }
        }
    }

    /// How a file of this compression can be opened.
    fn all_options(compression: Compression) -> Vec<Options> {
        let mut all = Vec::new();
        for access in [Access::Mapped, Access::Read] {
            for compression in [None, Some(compression)] {
                all.push(Options { access, compression });
            }
        }
        all
    }

    const COMPRESSIONS: [Compression; 3] = [Compression::Plain, Compression::Gzip, Compression::Zlib];

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn what_was_written_is_read_in_every_way() {
        let folder = tempfile::tempdir().unwrap();
        let lengths = [0, 1, 1000, LARGE_BYTES - 1, LARGE_BYTES, 3 << 20, 5, 0];
        let due: Vec<Vec<u8>> =
            lengths.iter().map(|bytes| (0_u8..=250).cycle().take(*bytes).collect()).collect();
        for compression in COMPRESSIONS {
            let path = folder.path().join(compression.to_string());
            let mut writer = TfRecordWriter::create(&path, compression).unwrap();
            due.iter().for_each(|record| writer.write(record).unwrap());
            assert_eq!(writer.records(), due.len() as u64);
            writer.finish().unwrap();
            for options in all_options(compression) {
                let (records, error) = read(&path, &options);
                assert_eq!(error, None, "{options:?}");
                assert!(records.iter().flatten().eq(&due), "{options:?}");
            }
        }
    }

    /// The records of a plain file, by their lengths alone.
    fn naive(mut bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut records = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<8>() {
            let (record, rest) = rest[4..].split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
            records.push(Some(record.to_vec()));
            bytes = &rest[4..];
        }
        records
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn what_tensorflow_wrote_is_what_another_library_unpacks() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tensorflow");
        for name in ["examples.tfrecord", "examples.gz.tfrecord", "examples.zlib.tfrecord"] {
            let path = data.join(name);
            let file = fs::read(&path).unwrap();
            let mut bytes = Vec::new();
            match name {
                "examples.gz.tfrecord" => GzDecoder::new(&file[..]).read_to_end(&mut bytes).unwrap(),
                "examples.zlib.tfrecord" => ZlibDecoder::new(&file[..]).read_to_end(&mut bytes).unwrap(),
                _ => (&file[..]).read_to_end(&mut bytes).unwrap(),
            };
            let due = naive(&bytes);
            assert_eq!(due.len(), 50);
            assert!(read(&path, &Options::default()) == (due, None), "{name}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn a_damaged_byte_costs_its_record_or_is_an_error_that_is_returned_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let due = [&b"first"[..], b"", b"the last one"];
        let mut file = Vec::new();
        due.iter().for_each(|record| write_record(&mut file, record).unwrap());
        let whole = file.clone();
        let mut start = 0;
        for (number, record) in due.iter().enumerate() {
            let end = start + usize::try_from(FRAME_BYTES).unwrap() + record.len();
            for at in start..end {
                file.copy_from_slice(&whole);
                file[at] ^= 0x40;
                fs::write(&path, &file).unwrap();
                for access in [Access::Mapped, Access::Read] {
                    let options = Options { access, compression: Some(Compression::Plain) };
                    let (records, error) = read(&path, &options);
                    let is_whole = |at: usize, found: &Option<Vec<u8>>| {
                        found.as_deref() == (at != number).then_some(due[at])
                    };
                    let as_due = records.iter().enumerate().all(|(at, found)| is_whole(at, found));
                    match error {
                        None => assert!(as_due && records.len() == due.len(), "byte {at}: {records:?}"),
                        Some(error) => {
                            assert!(at < start + HEAD_BYTES, "byte {at}: {error}");
                            assert!(as_due && records.len() == number, "byte {at}: {records:?}");
                            assert!(matches!(error, TfRecordError::Length { .. }), "byte {at}: {error}");
                        }
                    }
                }
            }
            start = end;
        }
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let options = Options { compression: Some(Compression::Plain), ..Options::default() };
            let (records, error) = read(&path, &options);
            let is_cut = matches!(error, Some(TfRecordError::Cut { .. }));
            assert!(is_cut || error.is_none() && [0, 21, 37].contains(&end), "{end}: {error:?}");
            assert!(records.iter().zip(due).all(|(found, due)| found.as_deref() == Some(due)), "{end}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn damage_to_a_compressed_file_never_makes_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let due: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number; usize::from(number) * 9]).collect();
        for compression in [Compression::Gzip, Compression::Zlib] {
            let mut writer = TfRecordWriter::create(&path, compression).unwrap();
            due.iter().for_each(|record| writer.write(record).unwrap());
            writer.finish().unwrap();
            let whole = fs::read(&path).unwrap();
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                for file in [&damaged[..], &whole[..at]] {
                    fs::write(&path, file).unwrap();
                    let options = Options { compression: Some(compression), ..Options::default() };
                    let (records, _) = read(&path, &options);
                    let mut found = records.iter().zip(&due);
                    assert!(
                        found.all(|(found, due)| found.as_ref().is_none_or(|found| found == due)),
                        "{at}"
                    );
                    assert!(records.len() <= due.len(), "{at}");
                }
            }
        }
    }
}
