//! Decodes and transforms images and writes them directly to their row. A record is Caffe's Datum, or a
//! record with an image, an Example for instance, which stands for one.

use std::sync::Arc;

use super::example::Found;
use super::front::Front;
use super::image_step::ImageStep;
use super::labels::Labels;
use super::target::{TARGET, TargetDecoder, TargetValue};
use super::views::Views;
use super::{Decoded, RecordDecoder, WorkerSetup};
use crate::base::shape::{BatchShape, Dtype, ImageShape, Layout};
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::Field;
use crate::batch::mix::MixedFields;
use crate::source::Record;
use crate::transform::{Chain, ChainScratch, Cutter, Draw, Scratch, TransformError, Transformer};
use percolator_image::{DecodeError, Decoder, ImageFileDecoder, PIXEL_BYTES_MAX, Planes, Window};
use percolator_messages::{Datum, Image, Pixels, Value};

/// The names of an image record's fields.
pub(crate) mod name {
    /// Its pixels.
    pub(crate) const DATA: &str = "data";
    /// Its target, if the feed has targets.
    pub(crate) const TARGET: &str = "target";
    /// Its label, as an i32.
    pub(crate) const LABEL: &str = "label";
    /// Its label as an f32, as in Caffe's nets.
    pub(crate) const LABEL_F32: &str = "label_f32";
    /// Its label as an i64, if requested.
    pub(crate) const LABEL_I64: &str = "label_i64";
    /// A share of each class, as an f32, if requested.
    pub(crate) const LABEL_SOFT: &str = "label_soft";
    /// The label of the image that it is mixed with, as an i64, if batches are mixed.
    pub(crate) const LABEL_MIXED: &str = "label_mixed";
    /// The share of its own label, as an f32, if batches are mixed.
    pub(crate) const LABEL_WEIGHT: &str = "label_weight";
}

/// The number of the pixel field. The target, if any, and the labels follow it.
const DATA: usize = 0;

/// Decodes image records into rows.
#[derive(Debug)]
pub(crate) struct ImageDecoder {
    /// Presents a record as a Datum, if it is none.
    pub(crate) front: Option<Front>,
    pub(crate) transformer: Transformer,
    /// The host's part of the transform, if a device does the rest.
    pub(crate) cutter: Option<Cutter>,
    pub(crate) target: Option<TargetDecoder>,
    /// What the program does to each image before its transform.
    pub(crate) step: Option<Arc<ImageStep>>,
    pub(crate) labels: Labels,
    /// More crops of each image; then its own transform has operations, too.
    pub(crate) views: Vec<Views>,
}

/// What a worker keeps between records.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(super) decoder: Decoder,
    /// What the program's function makes.
    stepped: Vec<u8>,
    chain: ChainScratch,
    pub(super) scratch: Scratch,
    /// Where the features of a record are, if records are Examples.
    found: Option<Found>,
}

/// The bytes to which a worker's tools grow: those of the largest use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolBytes {
    pub(super) decoder: usize,
    pub(super) scratch: usize,
}

impl ToolBytes {
    /// `decoded` is the shape of the image once it is decoded and resized, `input` that before the transform.
    pub(super) fn of(
        transformer: &Transformer,
        datum: &Datum<'_>,
        decoded: ImageShape,
        input: ImageShape,
    ) -> Result<Self, RecordCause> {
        let elements = |shape: ImageShape| shape.checked_elements().unwrap_or(usize::MAX);
        let decoder = if datum.encoded {
            let pixels = percolator_image::file_pixels(datum.data, transformer.decode())?;
            pixels.max(decoded.height * decoded.width).saturating_mul(PIXEL_BYTES_MAX)
        } else if transformer.decode().resize.is_some() {
            elements(decoded)
        } else {
            0
        };
        let chain = chained_bytes(transformer, input);
        let scratch = elements(input).saturating_mul(size_of::<f32>());
        Ok(ToolBytes { decoder: decoder.saturating_add(chain), scratch })
    }

    fn max(self, other: Self) -> Self {
        ToolBytes { decoder: self.decoder.max(other.decoder), scratch: self.scratch.max(other.scratch) }
    }
}

/// The bytes to which the buffers of a transform's operations grow.
fn chained_bytes(transformer: &Transformer, input: ImageShape) -> usize {
    transformer.chain().map_or(0, |chain| chain.scratch_bytes(input))
}

/// A record before its transform.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    /// The shape of its image, decoded and resized.
    pub(crate) shape: ImageShape,
    pub(crate) is_encoded: bool,
}

/// The shapes of a batch of one record.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shapes {
    /// Of the image before its transform.
    input: ImageShape,
    pixels: BatchShape,
    /// What the device makes of the pixels, if it transforms them.
    transformed: Option<BatchShape>,
    target: Option<BatchShape>,
}

impl RecordDecoder for ImageDecoder {
    type Scratch = Tools;

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        if let Some(front) = &self.front {
            front.check(first.value)?;
        }
        self.fields_of(self.shapes(first)?)
    }

    /// Windows that the device transforms are of bytes or of floats, and a target has its own shape.
    fn may_reshape(&self) -> bool {
        let channels_are_fixed = self
            .front
            .as_ref()
            .is_some_and(|front| front.has_fixed_channels(self.transformer.decode().color))
            && self.step.is_none();
        let mut transformers =
            std::iter::once(&self.transformer).chain(self.views.iter().map(|views| &views.transformer));
        let have_one_shape = transformers.all(|transformer| transformer.has_one_shape(channels_are_fixed));
        self.cutter.is_some() || self.target.is_some() || !have_one_shape
    }

    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        let shapes = self.shapes(first)?;
        let data = &fields[DATA];
        let target = self.target.as_ref().map(|_| fields[TARGET].image_shape(1));
        let mut is_same = shapes
            == Shapes { pixels: data.image_shape(1), transformed: data.made_on_device(), target, ..shapes };
        for (views, field) in self.views.iter().zip(&fields[self.view()..]) {
            is_same = is_same && views.is_of(field, shapes.input).map_err(RecordCause::from)?;
        }
        if is_same { Ok(None) } else { self.fields_of(shapes).map(Some) }
    }

    fn scratch_bytes(&self, first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        let datum = self.first_datum(first)?;
        let (decoded, input) = (image_shape(&self.transformer, &datum)?, self.input_shape(&datum)?);
        let mut tools = ToolBytes::of(&self.transformer, &datum, decoded, input)?;
        // At most: views use the same buffers, each of which grows to its largest use.
        let of_views = self.views.iter().map(|views| chained_bytes(&views.transformer, input));
        tools.decoder = of_views.fold(tools.decoder, usize::saturating_add);
        if self.step.is_some() {
            tools.decoder = tools.decoder.saturating_add(input.checked_elements().unwrap_or(usize::MAX));
        }
        if self.is_interleaved() {
            tools.decoder = tools.decoder.saturating_add(datum.data.len());
        }
        if let Some(target) = &self.target {
            tools = tools.max(target.tool_bytes(first, &datum)?);
        }
        Ok(vec![("workers: one record as f32", tools.scratch), ("workers: a decoded image", tools.decoder)])
    }

    fn scratch(&self, setup: WorkerSetup) -> Tools {
        let scratch = if setup.is_past_caches { Scratch::past_caches() } else { Scratch::default() };
        let (decoder, chain) = (Decoder::default(), ChainScratch::default());
        Tools {
            decoder,
            stepped: Vec::new(),
            chain,
            scratch,
            found: self.front.as_ref().and_then(Front::scratch),
        }
    }

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, tools: &mut Tools) -> Decoded {
        Ok(self.write(record, row, tools)?)
    }
}

impl ImageDecoder {
    /// The Datum that the first record of a batch, or of the source, is or stands for.
    fn first_datum<'a>(&'a self, record: &Record<'a>) -> Result<Datum<'a>, RecordCause> {
        match &self.front {
            Some(front) => front.first_datum(record.value),
            None => parsed(record.value),
        }
    }

    /// The Datum that a record is, or stands for.
    #[inline]
    fn datum<'a>(&'a self, record: &'a [u8], found: &mut Option<Found>) -> Result<Datum<'a>, RecordCause> {
        match &self.front {
            Some(front) => front.datum(record, found),
            None => parsed(record),
        }
    }

    /// The record's image before its transform.
    pub(crate) fn input(&self, record: &Record<'_>) -> Result<Input, RecordCause> {
        let datum = self.first_datum(record)?;
        Ok(Input { shape: self.input_shape(&datum)?, is_encoded: datum.encoded })
    }

    fn shapes(&self, record: &Record<'_>) -> Result<Shapes, RecordCause> {
        let datum = self.first_datum(record)?;
        let input = self.input_shape(&datum)?;
        let shape = batch_shape(&self.transformer, input)?;
        let (pixels, transformed) = match &self.cutter {
            None => (shape, None),
            Some(_) => {
                let stored = if datum.data.is_empty() { Dtype::F32 } else { Dtype::U8 };
                (BatchShape { dtype: stored, layout: Layout::Nchw, ..shape }, Some(shape))
            }
        };
        let target = self.target.as_ref().map(|target| target.shape(record, &datum)).transpose()?;
        Ok(Shapes { input, pixels, transformed, target })
    }

    fn fields_of(&self, shapes: Shapes) -> Decoded<Vec<Field>> {
        let Shapes { input, pixels, transformed, target } = shapes;
        let data = Field::image(name::DATA, pixels);
        let mut fields = vec![match transformed {
            Some(transformed) => data.transformed(transformed),
            None => data,
        }];
        fields.extend(target.map(|shape| Field::image(name::TARGET, shape)));
        fields.extend(self.labels.fields());
        for views in &self.views {
            fields.push(views.field(input).map_err(RecordCause::from)?);
        }
        fields.extend(self.front.iter().flat_map(Front::fields));
        Ok(fields)
    }

    /// The shape of a record's image before its transform.
    fn input_shape(&self, datum: &Datum<'_>) -> Result<ImageShape, RecordCause> {
        let decoded = image_shape(&self.transformer, datum)?;
        self.step.as_ref().map_or(Ok(decoded), |step| step.shape_after(decoded))
    }

    /// Whether pixels that are not encoded have their channels side by side.
    fn is_interleaved(&self) -> bool {
        self.front.as_ref().is_some_and(Front::is_interleaved)
    }

    /// The number of the first label field.
    fn label(&self) -> usize {
        DATA + 1 + usize::from(self.target.is_some())
    }

    /// The number of the first field with more crops.
    fn view(&self) -> usize {
        self.label() + self.labels.count()
    }

    /// The fields that are mixed, if batches are.
    pub(crate) fn mixed_fields(&self) -> Option<MixedFields> {
        self.labels.mixed_fields(DATA, self.label())
    }

    fn write(&self, record: &Record<'_>, row: &mut Row<'_>, tools: &mut Tools) -> Result<(), RecordCause> {
        let draw = row.draw();
        let datum = self.datum(record.value, &mut tools.found)?;
        let Tools { found, .. } = tools;
        if let Some(front) = &self.front {
            front.write(record.value, found, row, self.view() + self.views.len())?;
        }
        if let Some(chain) = self.transformer.chain() {
            self.write_chained(chain, &datum, row, tools)?;
            return self.labels.write(datum.label, row, self.label());
        }
        let Tools { decoder, stepped, scratch, .. } = tools;
        let part = |shape| self.transformer.part(shape, draw);
        let image = self.decoded(&datum, part, row, decoder, stepped)?;
        let input = image.shape;
        match &self.cutter {
            None => apply(&self.transformer, &image, draw, DATA, row, scratch)?,
            Some(cutter) => self.cut(cutter, &image, draw, row, scratch)?,
        }
        if let Some(target) = &self.target {
            target.of(record, &datum)?.write(input, draw, row, tools)?;
        }
        self.labels.write(datum.label, row, self.label())
    }

    /// A record's image, as [`image`] has it, after what the program does to it.
    fn decoded<'a>(
        &self,
        datum: &Datum<'a>,
        part: impl FnOnce(ImageShape) -> Option<Window>,
        row: &Row<'_>,
        decoder: &'a mut Decoder,
        stepped: &'a mut Vec<u8>,
    ) -> Result<Image<'a>, RecordCause> {
        let Some(step) = &self.step else {
            return image(&self.transformer, datum, part, self.is_interleaved(), decoder);
        };
        let whole = image(&self.transformer, datum, |_| None, self.is_interleaved(), decoder)?;
        Ok(step.made(bytes_of(whole, "functions of images")?, &row.random(), stepped)?.into())
    }

    /// Runs the operations on a record's image, and writes what they make.
    fn write_chained(
        &self,
        chain: &Chain,
        datum: &Datum<'_>,
        row: &mut Row<'_>,
        tools: &mut Tools,
    ) -> Result<(), RecordCause> {
        let Tools { decoder, stepped, chain: scratch, scratch: last, .. } = tools;
        let random = row.random();
        // More crops read other parts.
        let part = |shape| if self.views.is_empty() { chain.part(shape, &random) } else { None };
        let decoded = self.decoded(datum, part, row, decoder, stepped)?;
        let planes = bytes_of(decoded, "operations")?;
        let image = planes.shape;
        let found = self.transformer.output_shape(image)?;
        let batch = row.fields()[DATA].image_shape(1).image;
        if found != batch {
            return Err(RecordCause::Shape { found, batch });
        }
        let made = chain.run(planes, &random, scratch)?;
        self.transformer.finish(made, row.bytes_mut(DATA), last)?;
        for (number, views) in self.views.iter().enumerate() {
            views.write(planes, number, self.view() + number, row, (scratch, last))?;
        }
        Ok(())
    }

    /// Writes the window of a record as it is stored, and the cut that tells the device how to transform it.
    fn cut(
        &self,
        cutter: &Cutter,
        image: &Image<'_>,
        draw: Draw,
        row: &mut Row<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), RecordCause> {
        row.set_cut(self.transformer.cut(image, draw)?);
        let stored = row.fields()[DATA].dtype();
        if stored == Dtype::U8 && matches!(image.pixels, Pixels::F32(_)) {
            return Err(RecordCause::FloatsAmongBytes);
        }
        apply(cutter.to(stored), image, draw, DATA, row, scratch)
    }

    /// The number of elements of the mean images.
    pub(crate) fn mean_elements(&self) -> usize {
        let target = self.target.as_ref().map_or(0, |target| target.transformer.mean_elements());
        self.transformer.mean_elements().saturating_add(target)
    }

    /// Whether each target is a companion from a second source.
    pub(crate) fn is_paired(&self) -> bool {
        self.target.as_ref().is_some_and(|target| matches!(target.from, TargetValue::Companion { .. }))
    }
}

/// The Datum that a record is.
#[inline]
fn parsed(record: &[u8]) -> Result<Datum<'_>, RecordCause> {
    let datum = Datum::parse(record).map_err(|error| RecordCause::instead(Value::Datum, record, error))?;
    // Other bytes may parse as a Datum without any of its fields.
    if datum.channels == 0 && !datum.encoded && datum.data.is_empty() {
        return no_image(record, datum);
    }
    Ok(datum)
}

#[cold]
fn no_image<'a>(record: &[u8], datum: Datum<'a>) -> Result<Datum<'a>, RecordCause> {
    match datum.image() {
        Ok(_) => Ok(datum),
        Err(error) => Err(RecordCause::instead(Value::Datum, record, error)),
    }
}

/// The shape of a record's image, from its header only; reads no pixels.
pub(super) fn image_shape(transformer: &Transformer, datum: &Datum<'_>) -> Result<ImageShape, RecordCause> {
    if datum.encoded {
        return Ok(percolator_image::shape(datum.data, transformer.decode())?);
    }
    let Image { shape, pixels } = datum.image()?;
    let wanted = transformer.decode();
    match pixels {
        Pixels::U8(_) => Ok(wanted.resized(shape)?),
        Pixels::F32(_) if wanted.resize.is_none() => Ok(shape),
        Pixels::F32(_) => Err(DecodeError::ResizeOfFloats.into()),
    }
}

/// The planes of an image of bytes, which `what` takes alone.
fn bytes_of<'a>(image: Image<'a>, what: &'static str) -> Result<Planes<'a>, TransformError> {
    let Image { shape, pixels: Pixels::U8(bytes) } = image else {
        return Err(TransformError::OfFloats { what });
    };
    if shape.checked_elements() != Some(bytes.len()) {
        return Err(TransformError::PixelCount { image: shape, found: bytes.len() });
    }
    Ok(Planes { shape, bytes })
}

/// A record's image: decoded if it is encoded, put in planes, resized if requested, and otherwise in place.
/// In a decoded image, what is not in the `part` that is read of it is unspecified.
pub(super) fn image<'a>(
    transformer: &Transformer,
    datum: &Datum<'a>,
    part: impl FnOnce(ImageShape) -> Option<Window>,
    is_interleaved: bool,
    decoder: &'a mut Decoder,
) -> Result<Image<'a>, RecordCause> {
    let wanted = transformer.decode();
    if datum.encoded {
        return Ok(decoder.decode(datum.data, wanted, part)?.into());
    }
    let image = datum.image()?;
    match image.pixels {
        Pixels::U8(bytes) if is_interleaved => Ok(decoder.planes_of(image.shape, bytes, wanted)?.into()),
        Pixels::U8(bytes) => Ok(decoder.resize(Planes { shape: image.shape, bytes }, wanted)?.into()),
        Pixels::F32(_) if is_interleaved => Err(DecodeError::InterleavedFloats.into()),
        Pixels::F32(_) if wanted.resize.is_some() => Err(DecodeError::ResizeOfFloats.into()),
        Pixels::F32(_) => Ok(image),
    }
}

/// A record's image for tools: decoded if it is encoded, resized if that is wanted, otherwise in place. A raw
/// image keeps its channels.
///
/// # Errors
///
/// [`RecordCause`] if the record has no image, or one that cannot be decoded or resized.
pub fn image_of<'a>(datum: &Datum<'a>, decoder: &'a mut ImageFileDecoder) -> Result<Image<'a>, RecordCause> {
    if datum.encoded {
        return Ok(decoder.decode(datum.data)?.into());
    }
    let image = datum.image()?;
    match image.pixels {
        Pixels::U8(bytes) => Ok(decoder.planes(Planes { shape: image.shape, bytes })?.into()),
        Pixels::F32(_) if decoder.resizes() => Err(DecodeError::ResizeOfFloats.into()),
        Pixels::F32(_) => Ok(image),
    }
}

/// The shape of a batch of one record whose image has the shape `input`.
pub(super) fn batch_shape(transformer: &Transformer, input: ImageShape) -> Result<BatchShape, RecordCause> {
    Ok(transformer.batch_shape(transformer.output_shape(input)?))
}

/// Checks that an image has its batch's shape, and transforms it into its field.
pub(super) fn apply(
    transformer: &Transformer,
    image: &Image<'_>,
    draw: Draw,
    field: usize,
    row: &mut Row<'_>,
    scratch: &mut Scratch,
) -> Result<(), RecordCause> {
    let found = transformer.output_shape(image.shape)?;
    let batch = row.fields()[field].image_shape(1).image;
    if found != batch {
        return Err(RecordCause::Shape { found, batch });
    }
    Ok(transformer.apply(image, draw, row.bytes_mut(field), scratch)?)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::base::shape::Phase;
    use crate::decoder::example::{ExampleFields, ExampleFront, ExampleImage, ImageShapeFrom};
    use crate::transform::{MeanImage, Transform};
    use percolator_image::ColorMode;

    #[test]
    fn only_pictures_whose_shape_may_differ_decide_that_of_their_batch() {
        let shape = ImageShape { channels: 3, height: 4, width: 4 };
        let mean = MeanImage::new(shape, vec![0.0; 48]).expect("as many values as pixels");
        let encoded = ExampleImage::encoded("image");
        let fixed = ExampleImage::raw("image", ImageShapeFrom::Fixed(shape));
        let told = ExampleImage::raw("image", ImageShapeFrom::Feature("shape".to_owned()));
        let crop = || Transform::new().crop(2);
        let cases: [(bool, Transform, Option<&ExampleImage>); 10] = [
            (true, Transform::new(), None),
            // Raw Datums of one channel may be among others of three.
            (true, crop(), None),
            (true, crop().color(ColorMode::Color), None),
            (false, crop().mean_values([1.0, 2.0, 3.0]), None),
            (false, Transform::new().resize(4, 4).mean_values([1.0, 2.0, 3.0]), None),
            (false, Transform::new().mean_image(mean), None),
            (true, crop(), Some(&encoded)),
            (false, crop().color(ColorMode::Gray), Some(&encoded)),
            (false, crop(), Some(&fixed)),
            (true, crop(), Some(&told)),
        ];
        for (may_reshape, transform, front) in cases {
            let transformer =
                Transformer::new(&transform, "".as_ref(), Phase::Train, Dtype::F32, Layout::Nchw);
            let decoder = ImageDecoder {
                front: front.map(|image| Front::Example(ExampleFront::new(image, &ExampleFields::default()))),
                transformer: transformer.expect("the transform is possible"),
                cutter: None,
                target: None,
                step: None,
                labels: Labels::default(),
                views: Vec::new(),
            };
            assert_eq!(decoder.may_reshape(), may_reshape, "{transform:?}, {front:?}");
        }
    }
}
