//! What a record's value holds: Caffe's Datum, TensorFlow's Example, or bytes that are neither.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use percolator::batch::ImageShape;
use percolator::decoder::{DecodeFailure, ImageFileDecoder, RecordCause};
use percolator::example::{Example, Feature, Kind as FeatureKind, SequenceExample};
use percolator::record::{Datum, Image};
use serde::Serialize;

use crate::open::{DataSet, Kind};
use crate::scan::{self, Progress, ScanError};

/// What the values of a data set are.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Caffe's `Datum`: an image with a label.
    Datum,
    /// TensorFlow's `tf.train.Example`.
    Example,
    /// TensorFlow's `tf.train.SequenceExample`.
    SequenceExample,
    /// Anything else.
    Bytes,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Content::Datum => "Datum",
            Content::Example => "tf.train.Example",
            Content::SequenceExample => "tf.train.SequenceExample",
            Content::Bytes => "bytes",
        })
    }
}

/// A record's label: a Datum's always, and an Example's if it has one.
pub type Label = i64;

/// How an image is stored in a record.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureEncoding {
    /// A byte for each element.
    Raw,
    /// A 32-bit float for each element.
    Float,
    /// A JPEG file.
    Jpeg,
    /// A PNG file.
    Png,
    /// A file of another kind.
    Other,
}

impl fmt::Display for PictureEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PictureEncoding::Raw => "raw bytes",
            PictureEncoding::Float => "raw floats",
            PictureEncoding::Jpeg => "JPEG",
            PictureEncoding::Png => "PNG",
            PictureEncoding::Other => "files of other kinds",
        })
    }
}

/// The order of three or four channels, of which alpha is the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelOrder {
    /// Blue, green, red: as OpenCV decodes, and so Caffe.
    #[default]
    Bgr,
    /// Red, green, blue: as in CIFAR's files.
    Rgb,
}

/// A record's image, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub enum Picture<'a> {
    /// A Datum's.
    Datum(Datum<'a>),
    /// An encoded file in an Example.
    File(&'a [u8]),
}

impl<'a> Picture<'a> {
    /// How it is stored.
    #[must_use]
    pub fn encoding(&self) -> PictureEncoding {
        match self {
            Picture::Datum(datum) if datum.encoded => encoding_of(datum.data),
            Picture::Datum(datum) if datum.data.is_empty() => PictureEncoding::Float,
            Picture::Datum(_) => PictureEncoding::Raw,
            Picture::File(file) => encoding_of(file),
        }
    }

    /// The order of its channels once it is decoded, if those of images that are not encoded have this one.
    #[must_use]
    pub fn channels(&self, order: ChannelOrder) -> ChannelOrder {
        match self.encoding() {
            PictureEncoding::Raw | PictureEncoding::Float => order,
            // A file says which of its channels is which; the decoder puts blue first.
            PictureEncoding::Jpeg | PictureEncoding::Png | PictureEncoding::Other => ChannelOrder::Bgr,
        }
    }

    /// Its shape, from the headers alone.
    ///
    /// # Errors
    ///
    /// [`RecordCause`] if the headers are not valid.
    pub fn shape(&self, decoder: &ImageFileDecoder) -> Result<ImageShape, RecordCause> {
        Ok(match self {
            Picture::Datum(datum) if datum.encoded => decoder.shape(datum.data)?,
            Picture::Datum(datum) => datum.image()?.shape,
            Picture::File(file) => decoder.shape(file)?,
        })
    }

    /// The image, decoded.
    ///
    /// # Errors
    ///
    /// [`RecordCause`] if it is damaged.
    pub fn decode<'d>(&'d self, decoder: &'d mut ImageFileDecoder) -> Result<Image<'d>, RecordCause> {
        Ok(match self {
            Picture::Datum(datum) => decoder.image(datum)?,
            Picture::File(file) => decoder.decode(file)?,
        })
    }
}

/// Works on a record, and makes a panic of a decoder the record's fault. The decoder is then a new one, made
/// by `renew`.
pub(crate) fn caught<D, T>(
    decoder: &mut D,
    renew: impl FnOnce() -> D,
    work: impl FnOnce(&mut D) -> Result<T, RecordCause>,
) -> Result<T, RecordCause> {
    catch_unwind(AssertUnwindSafe(|| work(decoder))).unwrap_or_else(|panic| {
        *decoder = renew();
        Err(RecordCause::Panicked { message: scan::panic_message(&*panic) })
    })
}

/// What a record's value is, taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) label: Option<Label>,
    pub(crate) picture: Option<Picture<'a>>,
}

impl Content {
    /// What the values of most records are. The first 64 decide. If they are all bytes, 64 spread over the
    /// data set do, because a data set whose front is damaged looks like bytes there. A record that is
    /// damaged has no vote.
    ///
    /// # Errors
    ///
    /// [`ScanError`] if the data set cannot be read.
    pub fn of(data: &DataSet) -> Result<Self, ScanError> {
        Content::find(data, None, &Progress::new())
    }

    /// What was stated, or else what most records are.
    pub(crate) fn find(
        data: &DataSet,
        stated: Option<Content>,
        progress: &Progress,
    ) -> Result<Self, ScanError> {
        if let Some(stated) = stated {
            return Ok(stated);
        }
        // A list's cursor makes a Datum of each file.
        if data.kind() == Kind::ImageList {
            return Ok(Content::Datum);
        }
        let mut votes = Votes::default();
        scan::look_at_first(data, progress, |seen| votes.add(seen.value))?;
        if votes.winner() == Content::Bytes {
            scan::look_at_spread(data, progress, |seen| votes.add(seen.value))?;
        }
        Ok(votes.winner())
    }

    /// What one value is. A Datum and an Example begin with fields of other types, so none is both.
    #[must_use]
    pub fn of_value(value: &[u8]) -> Self {
        let is_datum =
            |datum: &Datum<'_>| if datum.encoded { !datum.data.is_empty() } else { datum.image().is_ok() };
        if Datum::parse(value).as_ref().is_ok_and(is_datum) {
            return Content::Datum;
        }
        let has_lists = |example: &SequenceExample<'_>| example.feature_lists().entries().next().is_some();
        if SequenceExample::parse(value).as_ref().is_ok_and(has_lists) {
            return Content::SequenceExample;
        }
        // A SequenceExample's context looks like an Example, so this comes second.
        if Example::parse(value).is_ok_and(|example| example.features().entries().next().is_some()) {
            return Content::Example;
        }
        Content::Bytes
    }

    /// Takes a value of this kind apart.
    pub(crate) fn parts(self, value: &[u8]) -> Result<Parts<'_>, RecordCause> {
        match self {
            Content::Datum => {
                check_datum_bytes(value.len()).map_err(|message| DecodeFailure::new(message).into_cause())?;
                let datum = Datum::parse(value)?;
                Ok(Parts { label: Some(Label::from(datum.label)), picture: Some(Picture::Datum(datum)) })
            }
            Content::Example => {
                let features = Example::parse(value)?.features();
                let picture = features.get(IMAGE).and_then(only_bytes).map(Picture::File);
                let label = LABELS.iter().find_map(|name| features.get(name).and_then(only_int));
                Ok(Parts { label, picture })
            }
            Content::SequenceExample => {
                SequenceExample::parse(value)?;
                Ok(Parts { label: None, picture: None })
            }
            Content::Bytes => Ok(Parts { label: None, picture: None }),
        }
    }
}

/// How many records are of each kind.
#[derive(Debug, Default)]
struct Votes {
    kinds: [u64; 4],
    /// How many are bytes that look like a Datum whose image does not fit its shape.
    broken_datums: u64,
}

impl Votes {
    fn add(&mut self, value: &[u8]) {
        let kind = Content::of_value(value);
        self.kinds[kind as usize] += 1;
        let has_shape = |datum: &Datum<'_>| datum.channels > 0 && datum.height > 0 && datum.width > 0;
        self.broken_datums +=
            u64::from(kind == Content::Bytes && Datum::parse(value).as_ref().is_ok_and(has_shape));
    }

    /// The kind of most records that are more than bytes, if there are any. If there are none, but most look
    /// like Datums, they are Datums, all of which are damaged.
    fn winner(&self) -> Content {
        let [datum, example, sequence, bytes] = self.kinds;
        match datum.max(example).max(sequence) {
            0 if self.broken_datums > bytes / 2 => Content::Datum,
            0 => Content::Bytes,
            most if most == datum => Content::Datum,
            most if most == example => Content::Example,
            _ => Content::SequenceExample,
        }
    }
}

/// Refuses a Datum that no program can parse: protobuf's messages have no more bytes.
pub(crate) fn check_datum_bytes(bytes: usize) -> Result<(), String> {
    const BYTES_MAX: usize = i32::MAX as usize;

    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(format!("the record has {bytes} bytes, and a Datum may have {BYTES_MAX}"))
}

/// The feature that has an image's file, by the convention of TensorFlow's own data sets.
pub(crate) const IMAGE: &str = "image/encoded";
/// The features that have a label, the first one that a record has.
pub(crate) const LABELS: [&str; 2] = ["image/class/label", "label"];

/// A feature's bytes, if it has one string.
fn only_bytes(feature: Feature<'_>) -> Option<&[u8]> {
    let mut strings = feature.bytes()?.iter();
    let first = strings.next()?;
    strings.next().is_none().then_some(first)
}

/// A feature's number, if it has one integer.
fn only_int(feature: Feature<'_>) -> Option<i64> {
    let mut numbers = feature.ints()?.iter();
    let first = numbers.next()?;
    numbers.next().is_none().then_some(first)
}

fn encoding_of(file: &[u8]) -> PictureEncoding {
    match file {
        [0xff, 0xd8, ..] => PictureEncoding::Jpeg,
        [0x89, b'P', b'N', b'G', ..] => PictureEncoding::Png,
        _ => PictureEncoding::Other,
    }
}

/// A feature's kind as a word.
pub(crate) fn kind_name(feature: Feature<'_>) -> &'static str {
    match feature.kind() {
        Some(FeatureKind::Bytes) => "bytes",
        Some(FeatureKind::Float) => "float",
        Some(FeatureKind::Int64) => "int64",
        None => "empty",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datum_fits_a_message_of_protobuf() {
        assert_eq!(check_datum_bytes(0x7fff_ffff), Ok(()));
        let said = check_datum_bytes(1 << 31).unwrap_err();
        assert_eq!(said, "the record has 2147483648 bytes, and a Datum may have 2147483647");
    }

    #[test]
    fn a_panic_is_the_records_fault_and_the_decoder_is_renewed() {
        let mut decoder = 1;
        let panics = |decoder: &mut i32| -> Result<(), RecordCause> {
            *decoder = 2;
            panic!("out of bounds")
        };
        let cause = caught(&mut decoder, || 7, panics).unwrap_err();
        assert_eq!(cause, RecordCause::Panicked { message: "out of bounds".to_owned() });
        assert_eq!(decoder, 7);
        assert_eq!(caught(&mut decoder, || 0, |decoder| Ok(*decoder)), Ok(7));
    }
}
