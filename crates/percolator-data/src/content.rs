//! What a record's value holds: Caffe's Datum, TensorFlow's Example, the named parts of another library's
//! record, or bytes that are none of these.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use percolator::batch::ImageShape;
use percolator::decoder::{DecodeFailure, ImageFileDecoder, RecordCause, image_of};
use percolator::example::{Example, Feature, Kind as FeatureKind, SequenceExample};
use percolator::record::{Datum, Image, Pixels};
use percolator::source::{Part, PartFault, RecordParts};
use percolator_files::shown::{self, panic_message};
use percolator_files::what::ImageFormat;
use percolator_messages::{PixelOrder, Value};
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
    /// Named parts, as records of other libraries have them.
    Parts,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Content::Datum => "Datum",
            Content::Example => "tf.train.Example",
            Content::SequenceExample => "tf.train.SequenceExample",
            Content::Bytes => "bytes",
            Content::Parts => "records with named parts",
        })
    }
}

/// A record's label: a Datum's always, and that of others if they have one.
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
    /// An encoded file in an Example, or in a part.
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
            Picture::Datum(datum) => image_of(datum, decoder)?,
            Picture::File(file) => decoder.decode(file)?.into(),
        })
    }
}

/// Works on a record, and turns a panic of a decoder into the record's fault. The decoder is then replaced by
/// a new one, made by `renew`.
pub(crate) fn caught<D, T>(
    decoder: &mut D,
    renew: impl FnOnce() -> D,
    work: impl FnOnce(&mut D) -> Result<T, RecordCause>,
) -> Result<T, RecordCause> {
    catch_unwind(AssertUnwindSafe(|| work(decoder))).unwrap_or_else(|panic| {
        *decoder = renew();
        Err(RecordCause::Panicked { message: panic_message(&*panic) })
    })
}

/// What a record's value is, taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) label: Option<Label>,
    pub(crate) picture: Option<Picture<'a>>,
    /// The images beside that one, by their features: other views, masks, the frames of a video.
    more: Vec<(&'a str, &'a [u8])>,
}

impl Parts<'_> {
    /// Decodes all images, and keeps none.
    pub(crate) fn check(&self, decoder: &mut ImageFileDecoder) -> Result<(), RecordCause> {
        if let Some(picture) = &self.picture {
            picture.decode(decoder)?;
        }
        self.check_more(decoder)
    }

    /// Decodes the images beside the first.
    pub(crate) fn check_more(&self, decoder: &mut ImageFileDecoder) -> Result<(), RecordCause> {
        self.more.iter().try_for_each(|(feature, file)| match decoder.decode(file) {
            Ok(_) => Ok(()),
            Err(error) => match RecordCause::from(error) {
                cause if cause.is_lack_of_memory() => Err(cause),
                cause => {
                    let message = format!("the image in the feature {feature:?}: {cause}");
                    Err(DecodeFailure::new(message).into_cause())
                }
            },
        })
    }
}

/// What the values of a data set are, and which of their features are images.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) content: Content,
    /// The features of Examples and SequenceExamples whose strings are image files.
    pub(crate) images: Vec<String>,
    /// Whether the feature was stated, so that every record must have it.
    pub(crate) is_stated: bool,
    /// What most values are if they are bytes, as far as that is known.
    pub(crate) other: Option<Value>,
    /// Whether raw images seem to have the channels of a pixel side by side, unlike a Datum.
    pub(crate) is_interleaved: bool,
    /// What finds the parts of a record, and the name of the label.
    pub(crate) of_parts: Option<(Arc<dyn RecordParts>, Option<String>)>,
}

impl Values {
    /// What was stated, or else what most records are. An image is what the data set was
    /// [opened](crate::OpenOptions::image_feature) with, or else each feature whose strings begin like image
    /// files in most records.
    ///
    /// # Errors
    ///
    /// [`ScanError`] if the data set cannot be read, or the values have no features and one was stated.
    pub(crate) fn find(
        data: &DataSet,
        stated: Option<Content>,
        progress: &Progress,
    ) -> Result<Self, ScanError> {
        let content = Content::find(data, stated, progress)?;
        if let (Content::Parts, Some(parts)) = (content, data.record_parts()) {
            return Ok(Values::of_parts(parts, data.image_feature()));
        }
        let has_features = matches!(content, Content::Example | Content::SequenceExample);
        match data.image_feature() {
            Some(feature) if !has_features => {
                let message = format!(
                    "{feature:?} names the feature that has the image, and the values are of the kind \
                     {content}, which has no features: leave it out"
                );
                Err(ScanError::ImageFeature { path: data.path().to_owned(), message })
            }
            Some(feature) => {
                let images = vec![feature.to_owned()];
                Ok(Values { images, is_stated: true, ..Values::of(content) })
            }
            // If it is stated, the values are not inspected.
            None if content == Content::Bytes && stated.is_none() => {
                let mut votes = BTreeMap::<Option<Value>, usize>::new();
                scan::look_at_first(data, progress, |seen| {
                    *votes.entry(Value::of(seen.value)).or_default() += 1;
                })?;
                let records: usize = votes.values().sum();
                let other = votes.into_iter().find(|(_, found)| 2 * found > records);
                let other = other.and_then(|(value, _)| value);
                Ok(Values { other, ..Values::of(content) })
            }
            None if content == Content::Datum && data.kind() != Kind::ImageList => {
                let mut order = PixelOrder::default();
                scan::look_at_first(data, progress, |seen| {
                    let image = Datum::parse(seen.value).ok().and_then(|datum| datum.image().ok());
                    if let Some(Image { shape, pixels: Pixels::U8(bytes), .. }) = image {
                        order.add(shape, bytes);
                    }
                })?;
                Ok(Values { is_interleaved: order.is_interleaved(), ..Values::of(content) })
            }
            None => {
                let mut votes = ImageVotes::default();
                if has_features {
                    scan::look_at_first(data, progress, |seen| votes.add(content, seen.value))?;
                }
                if has_features && votes.0.is_empty() {
                    scan::look_at_spread(data, progress, |seen| votes.add(content, seen.value))?;
                }
                Ok(Values { images: votes.winners(), ..Values::of(content) })
            }
        }
    }

    fn of(content: Content) -> Self {
        Values {
            content,
            images: Vec::new(),
            is_stated: false,
            other: None,
            is_interleaved: false,
            of_parts: None,
        }
    }

    fn of_parts(parts: Arc<dyn RecordParts>, stated: Option<&str>) -> Self {
        let (image, label) = parts.image().map_or((None, None), |(image, label)| (Some(image), label));
        let image = stated.map(ToOwned::to_owned).or(image);
        Values {
            images: image.into_iter().collect(),
            is_stated: stated.is_some(),
            of_parts: Some((parts, label)),
            ..Values::of(Content::Parts)
        }
    }

    /// What one value of a data set is by itself.
    pub(crate) fn of_value(data: &DataSet, value: &[u8]) -> Self {
        let stated = data.image_feature();
        if let Some(parts) = data.record_parts() {
            return Values::of_parts(parts, stated);
        }
        Values::taken_for(Content::of_value(value), stated, value)
    }

    /// What one value is by itself if it is taken for this.
    pub(crate) fn taken_for(content: Content, stated: Option<&str>, value: &[u8]) -> Self {
        let mut votes = ImageVotes::default();
        votes.add(content, value);
        let images = stated.map_or_else(|| votes.winners(), |feature| vec![feature.to_owned()]);
        let other = Value::of(value).filter(|_| content == Content::Bytes);
        Values { images, is_stated: stated.is_some(), other, ..Values::of(content) }
    }

    /// The feature that is the image, if it is known which: by convention, or because there is no other.
    ///
    /// # Errors
    ///
    /// The features of which each may be meant.
    pub(crate) fn image(&self) -> Result<Option<&str>, &[String]> {
        match &self.images[..] {
            [] => Ok(None),
            [first, ..] if first == IMAGE => Ok(Some(first)),
            [only] => Ok(Some(only)),
            several => Err(several),
        }
    }

    /// Checks that a command that shows or adds up images knows which are meant.
    pub(crate) fn check_one_image(&self, data: &DataSet) -> Result<(), ScanError> {
        self.image().map(drop).map_err(|features| ScanError::ImageFeature {
            path: data.path().to_owned(),
            message: format!(
                "there are images in the features {}: say which is meant (`--image FEATURE`; \
                 `OpenOptions::image_feature` in a program)",
                shown::message(&features.join(", "))
            ),
        })
    }

    /// Takes a value apart.
    pub(crate) fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Parts<'a>, RecordCause> {
        match self.content {
            Content::Datum => {
                check_datum_bytes(value.len()).map_err(|message| DecodeFailure::new(message).into_cause())?;
                let datum = Datum::parse(value)?;
                let picture = Some(Picture::Datum(datum));
                Ok(Parts { label: Some(Label::from(datum.label)), picture, more: Vec::new() })
            }
            Content::Example => {
                let features = Example::parse(value)?.features();
                let label = LABELS.iter().find_map(|name| features.get(name).and_then(only_int));
                self.with_images(features.entries(), Parts { label, ..Parts::default() })
            }
            Content::SequenceExample => {
                self.with_images(all_features(&SequenceExample::parse(value)?), Parts::default())
            }
            Content::Bytes if self.other.is_some_and(Value::is_image) => {
                Ok(Parts { picture: Some(Picture::File(value)), ..Parts::default() })
            }
            Content::Bytes => Ok(Parts::default()),
            Content::Parts => self.named_parts(value),
        }
    }

    /// The image and the label among a record's parts, which can all be read.
    fn named_parts<'a>(&'a self, value: &'a [u8]) -> Result<Parts<'a>, RecordCause> {
        let Some((parts, label)) = &self.of_parts else { return Ok(Parts::default()) };
        let fault = |fault: PartFault| DecodeFailure::new(fault.to_string()).into_cause();
        parts.check(value).map_err(fault)?;
        let mut found = Parts::default();
        if let Some(label) = label {
            found.label = parts.part(value, label).map_err(fault)?.as_ref().and_then(label_of);
        }
        let Some(image) = self.images.first() else { return Ok(found) };
        match parts.part(value, image).map_err(fault)? {
            // A text that had to be put together is no image.
            Some(Part::Bytes(Cow::Borrowed(file))) => found.picture = Some(Picture::File(file)),
            _ if self.is_stated => {
                let message = format!("there is no part {image:?} of bytes, which has the image");
                return Err(DecodeFailure::new(message).into_cause());
            }
            _ => {}
        }
        Ok(found)
    }

    fn with_images<'a>(
        &self,
        features: impl Iterator<Item = (&'a str, Feature<'a>)>,
        mut parts: Parts<'a>,
    ) -> Result<Parts<'a>, RecordCause> {
        let mut is_there = false;
        for (name, feature) in features {
            let Some(number) = self.images.iter().position(|image| image == name) else { continue };
            is_there = true;
            let Some(strings) = feature.bytes() else { continue };
            match only_bytes(feature) {
                Some(file) if number == 0 && self.content == Content::Example => {
                    parts.picture = Some(Picture::File(file));
                }
                _ => parts.more.extend(strings.iter().map(|file| (name, file))),
            }
        }
        if self.is_stated && !is_there {
            let message = format!("there is no feature {:?}, which has the image", self.images[0]);
            return Err(DecodeFailure::new(message).into_cause());
        }
        Ok(parts)
    }
}

/// The number that a part is: an integer, or a text of decimal digits.
pub(crate) fn label_of(part: &Part<'_>) -> Option<Label> {
    match part {
        Part::Int(number) => Some(*number),
        Part::Bytes(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// The features of a SequenceExample: those of its context, and each of its lists.
fn all_features<'a>(example: &SequenceExample<'a>) -> impl Iterator<Item = (&'a str, Feature<'a>)> + use<'a> {
    let of_lists = example.feature_lists().entries();
    let each = of_lists.flat_map(|(name, list)| {
        let features: Vec<_> = list.iter().map(|feature| (name, feature)).collect();
        features
    });
    example.context().entries().chain(each)
}

/// How many strings of each feature begin like an image file, and how many do not.
#[derive(Debug, Default)]
struct ImageVotes(BTreeMap<String, [u64; 2]>);

impl ImageVotes {
    fn add(&mut self, content: Content, value: &[u8]) {
        match content {
            Content::Example => {
                if let Ok(example) = Example::parse(value) {
                    self.add_features(example.features().entries());
                }
            }
            Content::SequenceExample => {
                if let Ok(example) = SequenceExample::parse(value) {
                    self.add_features(all_features(&example));
                }
            }
            Content::Datum | Content::Bytes | Content::Parts => {}
        }
    }

    fn add_features<'a>(&mut self, features: impl Iterator<Item = (&'a str, Feature<'a>)>) {
        for (name, feature) in features {
            let strings = feature.bytes().into_iter().flat_map(|list| list.iter());
            for string in strings.filter(|string| !string.is_empty()) {
                // By its name it is a file, whatever its first bytes are.
                let is_file = name == IMAGE || ImageFormat::of(string).is_some();
                self.0.entry(name.to_owned()).or_default()[usize::from(!is_file)] += 1;
            }
        }
    }

    /// The features most of whose strings are image files: the conventional one, then the others by name.
    fn winners(self) -> Vec<String> {
        let is_image = |(name, [files, others]): (String, [u64; 2])| (files > others).then_some(name);
        let mut names: Vec<String> = self.0.into_iter().filter_map(is_image).collect();
        names.sort_by_key(|name| name != IMAGE);
        names
    }
}

impl Content {
    /// What the values of most records are. The first 64 decide. If they are all bytes, 64 spread over the
    /// data set do, because a data set whose front is damaged looks like bytes there. Damaged records do not
    /// count.
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
        if data.record_parts().is_some() {
            return Ok(Content::Parts);
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
        match Value::of(value) {
            Some(Value::Datum) => Content::Datum,
            Some(Value::Example) => Content::Example,
            Some(Value::SequenceExample) => Content::SequenceExample,
            Some(Value::Other(_)) | None => Content::Bytes,
        }
    }
}

/// How many records are of each kind.
#[derive(Debug, Default)]
struct Votes {
    /// Parts are none of the kinds that a value tells.
    kinds: [u64; 4],
    /// How many are bytes that look like a Datum whose image does not fit its shape, or is a file that the
    /// Datum calls pixels.
    broken_datums: u64,
}

impl Votes {
    fn add(&mut self, value: &[u8]) {
        let kind = Content::of_value(value);
        self.kinds[kind as usize] += 1;
        let is_meant = |datum: &Datum<'_>| {
            let has_shape = datum.channels > 0 && datum.height > 0 && datum.width > 0;
            has_shape || ImageFormat::of(datum.data).is_some()
        };
        self.broken_datums +=
            u64::from(kind == Content::Bytes && Datum::parse(value).as_ref().is_ok_and(is_meant));
    }

    /// The kind of most records that are more than bytes, if there are any. If there are none, but most look
    /// like Datums, they are Datums that are all damaged.
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
pub(crate) fn only_bytes(feature: Feature<'_>) -> Option<&[u8]> {
    only(feature.bytes()?.iter())
}

/// A feature's number, if it has one integer.
pub(crate) fn only_int(feature: Feature<'_>) -> Option<i64> {
    only(feature.ints()?.iter())
}

fn only<T>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

fn encoding_of(file: &[u8]) -> PictureEncoding {
    match ImageFormat::of(file) {
        Some(ImageFormat::Jpeg) => PictureEncoding::Jpeg,
        Some(ImageFormat::Png) => PictureEncoding::Png,
        None => PictureEncoding::Other,
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
