//! The rate of the decoder alone.

use std::hint::black_box;
use std::time::{Duration, Instant};

use percolator::decoder::{RecordCause, RecordError};
use percolator::record::{Datum, Key, RecordId};
use percolator::source::{Entry, Source, SourceError};
use percolator::{ColorMode, FeedError};
use percolator_image::{Decode, Decoder};

/// Measures how many of a source's encoded records one thread decodes a second, whole and without a
/// transform. It reads the source for about `time`, from the start again when it ends. `None` if the first
/// record is not encoded.
///
/// # Errors
///
/// [`FeedError`] if the source cannot be read, or a record cannot be decoded.
pub fn decodes_per_second(
    source: &dyn Source,
    color: ColorMode,
    time: Duration,
) -> Result<Option<f64>, FeedError> {
    let wanted = Decode { color, ..Decode::default() };
    let mut decoder = Decoder::default();
    let mut is_decoded = |index, entry: &Entry<'_>| {
        decode(&mut decoder, &wanted, entry).map_err(|cause| error_at(source, index, entry, cause))
    };
    let mut cursor = source.cursor()?;
    // The first record grows the decoder's buffers.
    match cursor.advance()? {
        Some(entry) if is_decoded(0, &entry)? => {}
        _ => return Ok(None),
    }
    cursor.rewind()?;
    let (start, mut records) = (Instant::now(), 0_u32);
    let mut index = 0;
    loop {
        let Some(entry) = cursor.advance()? else {
            if index == 0 {
                return Err(SourceError::Empty { path: source.path().to_owned() }.into());
            }
            cursor.rewind()?;
            index = 0;
            continue;
        };
        records += u32::from(is_decoded(index, &entry)?);
        index += 1;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(Some(f64::from(records) / elapsed.as_secs_f64()));
        }
    }
}

/// Decodes a record if it is encoded; returns whether it is.
fn decode(decoder: &mut Decoder, wanted: &Decode, entry: &Entry<'_>) -> Result<bool, RecordCause> {
    let datum = Datum::parse(entry.value())?;
    if datum.encoded {
        black_box(decoder.decode(datum.data, wanted, |_| None)?);
    }
    Ok(datum.encoded)
}

/// Adds to an error which record it concerns.
fn error_at(source: &dyn Source, index: u64, entry: &Entry<'_>, cause: RecordCause) -> FeedError {
    let (path, key) = (source.path().to_owned(), Key(entry.key().to_owned()));
    Box::new(RecordError { path, id: RecordId { epoch: 0, index }, key, cause }).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use percolator::proto;
    use percolator::source::Cursor;
    use prost::Message as _;

    use super::*;

    /// One encoded record in the first pass, and none in the second.
    #[derive(Debug)]
    struct Once(Vec<u8>);

    struct OnceCursor(Vec<u8>, bool);

    impl Source for Once {
        fn path(&self) -> &Path {
            Path::new("once")
        }

        fn records(&self) -> Option<u64> {
            None
        }

        fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
            Ok(Box::new(OnceCursor(self.0.clone(), false)))
        }
    }

    impl Cursor for OnceCursor {
        fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
            let is_over = std::mem::replace(&mut self.1, true);
            Ok((!is_over).then(|| Entry::borrowed(b"0", &self.0)))
        }

        fn rewind(&mut self) -> Result<(), SourceError> {
            Ok(())
        }
    }

    #[test]
    fn a_pass_without_a_record_is_an_error() {
        let mut file = Vec::new();
        let encoder = png::Encoder::new(&mut file, 1, 1);
        encoder.write_header().unwrap().write_image_data(&[1]).unwrap();
        let record = proto::Datum { data: Some(file), encoded: Some(true), ..proto::Datum::default() };
        let source = Once(record.encode_to_vec());
        let error = decodes_per_second(&source, ColorMode::default(), Duration::MAX).unwrap_err();
        assert!(error.to_string().contains("once"), "{error}");
    }
}
