//! The image of an Example, which is presented to the image decoder as a Datum.

use std::sync::PoisonError;

use super::fields::ExampleFields;
use super::lookup::{Found, Lookup};
use super::parse::{FeatureFields, StringError, missing, only_string, wrong_kind};
use crate::base::shape::{Dtype, ImageShape};
use crate::base::sync::std_locks::Mutex;
use crate::batch::fault::RecordCause;
use crate::record::FeatureError;
use percolator_image::ColorMode;
use percolator_messages::Value;
use percolator_messages::example::{ExampleError, Feature, IntError, Kind};
use percolator_messages::{Datum, Floats, IMAGE_ELEMENTS_MAX};

/// The image of an Example: the feature that it is in, its shape, and its label.
///
/// It is decoded and transformed as Caffe's image records are, and gives the same fields: the pixels in
/// `data`, the label in `label` and `label_f32`.
///
/// ```
/// use percolator::example::{ExampleImage, ImageShapeFrom};
/// use percolator::{Feed, Transform};
///
/// let jpeg = ExampleImage::encoded("image/encoded").label("image/class/label");
/// let feed = Feed::builder().example(jpeg).transform(Transform::new().crop(224));
///
/// let pixels = ExampleImage::raw("image/raw", ImageShapeFrom::Feature("image/shape".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct ExampleImage {
    feature: String,
    /// `None` if it is an encoded file.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    shape: Option<ImageShapeFrom>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    label: Option<String>,
    /// Whether raw pixels are stored one after another, each with all its channels.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    is_interleaved: bool,
}

/// Where the shape of raw pixels is from.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ImageShapeFrom {
    /// The feature of this name: three integers, which are channels, rows and columns, or of
    /// [interleaved](ExampleImage::interleaved) pixels rows, columns and channels.
    Feature(String),
    /// All images have this shape.
    Fixed(ImageShape),
}

impl ExampleImage {
    /// An encoded file, JPEG or PNG, in the feature of this name.
    #[must_use]
    pub fn encoded(feature: impl Into<String>) -> Self {
        ExampleImage { feature: feature.into(), shape: None, label: None, is_interleaved: false }
    }

    /// Raw pixels in the feature of this name, in the order in which a Datum has them: channel by channel,
    /// row by row. They are bytes, or floats.
    #[must_use]
    pub fn raw(feature: impl Into<String>, shape: ImageShapeFrom) -> Self {
        ExampleImage { feature: feature.into(), shape: Some(shape), label: None, is_interleaved: false }
    }

    /// Raw pixels in the feature of this name, of one byte per channel, in the order of NumPy and PIL: row by
    /// row, pixel by pixel, with a pixel's channels side by side. [`ImageShapeFrom::Feature`] has them in the
    /// same order: rows, columns and channels. The channels keep their order.
    #[must_use]
    pub fn interleaved(feature: impl Into<String>, shape: ImageShapeFrom) -> Self {
        ExampleImage { is_interleaved: true, ..Self::raw(feature, shape) }
    }

    /// Takes the label from the feature of this name, one integer (default: all labels are 0).
    #[must_use]
    pub fn label(self, feature: impl Into<String>) -> Self {
        ExampleImage { label: Some(feature.into()), ..self }
    }

    /// The name of the feature that has the image.
    #[must_use]
    pub fn feature_name(&self) -> &str {
        &self.feature
    }

    /// Whether the images are encoded files.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.shape.is_none()
    }

    /// Where the shape of raw pixels is from; `None` if the images are encoded files.
    #[must_use]
    pub fn shape_from(&self) -> Option<&ImageShapeFrom> {
        self.shape.as_ref()
    }

    /// Whether raw pixels have their channels side by side.
    #[must_use]
    pub fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }

    /// The name of the feature that has the label.
    #[must_use]
    pub fn label_name(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Whether the images have labels.
    #[must_use]
    pub fn has_labels(&self) -> bool {
        self.label.is_some()
    }

    /// The Datum that a record stands for, for tools: its label, and its image as it is stored. Pixels with
    /// their channels side by side stay so.
    ///
    /// # Errors
    ///
    /// [`RecordCause`] if the record is no Example, or its features are not those of such an image.
    pub fn datum<'a>(&self, record: &'a [u8]) -> Result<Datum<'a>, RecordCause> {
        ExampleFront::new(self, &ExampleFields::default()).first_datum(record)
    }
}

/// Presents an Example with an image as a Datum, and makes further fields of its other features.
#[derive(Debug)]
pub(crate) struct ExampleFront {
    lookup: Lookup,
    image: usize,
    shape: Option<ShapeFrom>,
    is_interleaved: bool,
    label: Option<usize>,
    fields: FeatureFields,
    /// For the first record of each batch, which the prefetchers inspect: they have no scratch memory, and
    /// must not allocate. The standard library's lock does not allocate when two of them first contend for
    /// it.
    of_firsts: Mutex<Found>,
}

#[derive(Clone, Copy, Debug)]
enum ShapeFrom {
    Feature(usize),
    Fixed([i32; 3]),
}

impl ExampleFront {
    pub(crate) fn new(image: &ExampleImage, fields: &ExampleFields) -> Self {
        let mut lookup = Lookup::default();
        let number = lookup.number(&image.feature);
        let shape = image.shape.as_ref().map(|shape| match shape {
            ImageShapeFrom::Feature(name) => ShapeFrom::Feature(lookup.number(name)),
            // If the shape does not fit, it has too many elements anyway.
            ImageShapeFrom::Fixed(ImageShape { channels, height, width }) => ShapeFrom::Fixed(
                [channels, height, width].map(|&extent| i32::try_from(extent).unwrap_or(i32::MAX)),
            ),
        });
        let label = image.label.as_ref().map(|label| lookup.number(label));
        let fields = FeatureFields::new(fields, &mut lookup);
        let of_firsts = Mutex::new(lookup.scratch());
        let is_interleaved = image.is_interleaved;
        ExampleFront { lookup, image: number, shape, is_interleaved, label, fields, of_firsts }
    }

    /// The fields beside those of the image.
    pub(crate) fn fields(&self) -> &FeatureFields {
        &self.fields
    }

    /// Whether the pixels of the Datums have their channels side by side.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }

    pub(crate) fn scratch(&self) -> Found {
        self.lookup.scratch()
    }

    /// Whether all images have the same number of channels, if files are decoded in this mode.
    pub(crate) fn has_fixed_channels(&self, color: ColorMode) -> bool {
        match self.shape {
            None => color != ColorMode::Native,
            Some(ShapeFrom::Fixed(_)) => true,
            Some(ShapeFrom::Feature(_)) => false,
        }
    }

    /// Checks that the first record of a feed has what the fields beside the image need.
    pub(crate) fn check(&self, record: &[u8]) -> Result<(), RecordCause> {
        let mut found = self.lookup.scratch();
        let check = |found: &mut Found| -> Result<(), RecordCause> {
            self.lookup.find(record, found)?;
            // The image's own features are checked when its shape is read.
            self.feature(record, found, self.image, "the image")?;
            self.fields.check(record, found)
        };
        check(&mut found).map_err(|cause| RecordCause::instead(Value::Example, record, cause))
    }

    /// The Datum that the first record of a batch stands for.
    pub(crate) fn first_datum<'a>(&self, record: &'a [u8]) -> Result<Datum<'a>, RecordCause> {
        let mut found = self.of_firsts.lock().unwrap_or_else(PoisonError::into_inner);
        self.datum(record, &mut found)
    }

    /// The Datum that the record stands for. Notes in `found` where its features are.
    pub(crate) fn datum<'a>(&self, record: &'a [u8], found: &mut Found) -> Result<Datum<'a>, RecordCause> {
        self.lookup.find(record, found)?;
        let label = match self.label {
            Some(label) => self.label(record, found, label)?,
            None => 0,
        };
        let feature = self.feature(record, found, self.image, "the image")?;
        let Some(shape) = self.shape else {
            return Ok(Datum { label, encoded: true, data: self.string(feature)?, ..Datum::default() });
        };
        let (data, floats) = match feature {
            Feature::Floats(list) => (&[][..], list.floats()),
            other => (self.string(other)?, Floats::default()),
        };
        let [channels, height, width] = match shape {
            ShapeFrom::Fixed(shape) => shape,
            ShapeFrom::Feature(number) => match (self.shape(record, found, number)?, self.is_interleaved) {
                ([height, width, channels], true) => [channels, height, width],
                (shape, false) => shape,
            },
        };
        let elements = [channels, height, width]
            .iter()
            .try_fold(1_usize, |elements, &extent| elements.checked_mul(usize::try_from(extent).ok()?));
        let (pixels, elements) = (data.len().max(floats.len()), elements.unwrap_or(usize::MAX));
        if pixels != elements {
            return Err(FeatureError::Count {
                feature: self.lookup.name(self.image).to_owned(),
                wanted: format!("an image of {channels}x{height}x{width}"),
                found: pixels,
                allowed: elements,
                is_most: false,
            }
            .into());
        }
        Ok(Datum { channels, height, width, label, encoded: false, data, floats })
    }

    /// The feature of this number, which must be there.
    fn feature<'a>(
        &self,
        record: &'a [u8],
        found: &Found,
        number: usize,
        wanted: &str,
    ) -> Result<Feature<'a>, RecordCause> {
        match found.feature(record, number)? {
            None | Some(Feature::Unset) => {
                Err(missing(record, found, number, self.lookup.name(number), wanted)?.into())
            }
            Some(feature) => Ok(feature),
        }
    }

    /// The bytes of the image.
    fn string<'a>(&self, feature: Feature<'a>) -> Result<&'a [u8], RecordCause> {
        const WANTED: &str = "the image";

        let name = self.lookup.name(self.image);
        let Feature::Bytes(list) = feature else {
            return Err(wrong_kind(name, WANTED.to_owned(), feature, Kind::Bytes).into());
        };
        only_string(list).map_err(|error| match error {
            StringError::Wire(error) => error.into(),
            StringError::Count(found) => {
                let (feature, wanted) = (name.to_owned(), WANTED.to_owned());
                FeatureError::Count { feature, wanted, found, allowed: 1, is_most: false }.into()
            }
        })
    }

    fn label(&self, record: &[u8], found: &Found, number: usize) -> Result<i32, RecordCause> {
        let mut label = [0_i32];
        match self.ints(record, found, number, "the label", &mut label)? {
            1 => Ok(label[0]),
            other => Err(self.wrong_count(number, "the label", other, 1).into()),
        }
    }

    fn shape(&self, record: &[u8], found: &Found, number: usize) -> Result<[i32; 3], RecordCause> {
        const WANTED: &str = "the image's shape";

        let mut shape = [0_i32; 3];
        let values = self.ints(record, found, number, WANTED, &mut shape)?;
        if values != shape.len() {
            return Err(self.wrong_count(number, WANTED, values, shape.len()).into());
        }
        let elements = shape.iter().try_fold(1_usize, |elements, &extent| {
            elements.checked_mul(usize::try_from(extent).ok().filter(|&extent| extent > 0)?)
        });
        if elements.is_none_or(|elements| elements > IMAGE_ELEMENTS_MAX) {
            return Err(FeatureError::ImageShape {
                feature: self.lookup.name(number).to_owned(),
                found: shape.map(i64::from).to_vec(),
                elements_max: IMAGE_ELEMENTS_MAX,
            }
            .into());
        }
        Ok(shape)
    }

    /// Reads the integers of a feature, and returns how many it has.
    fn ints(
        &self,
        record: &[u8],
        found: &Found,
        number: usize,
        wanted: &str,
        out: &mut [i32],
    ) -> Result<usize, RecordCause> {
        let feature = self.lookup.name(number);
        let list = match self.feature(record, found, number, wanted)? {
            Feature::Ints(list) => list,
            other => return Err(wrong_kind(feature, wanted.to_owned(), other, Kind::Int64).into()),
        };
        match list.copy_to(out) {
            Ok(values) => Ok(values),
            Err(IntError::Wire(error)) => Err(ExampleError::Wire(error).into()),
            Err(IntError::TooMany) => Ok(list.count().map_err(ExampleError::Wire)?),
            Err(IntError::Range { index, value }) => Err(FeatureError::Range {
                feature: feature.to_owned(),
                wanted: wanted.to_owned(),
                index,
                found: value,
                dtype: Dtype::I32,
            }
            .into()),
        }
    }

    fn wrong_count(&self, number: usize, wanted: &str, found: usize, allowed: usize) -> FeatureError {
        let (feature, wanted) = (self.lookup.name(number).to_owned(), wanted.to_owned());
        FeatureError::Count { feature, wanted, found, allowed, is_most: false }
    }
}
