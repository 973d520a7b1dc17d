//! What is done to every record of a feed: parse, decode, check, transform, straight into its place.

use crate::batch::{Arrays, RecordPlace};
use crate::content::ContentHash;
use crate::datum::{Datum, Floats, Image, Pixels};
use crate::decode::{self, Decoder};
use crate::fault::{RecordCause, RecordError};
use crate::shape::{BatchShape, Dtype, ImageShape, Layout};
use crate::source::Record;
use crate::source::files::Files;
use crate::transform::{Cutter, Draw, Scratch, Transformer};

/// How the records of a feed become the rows of its batches.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Where the records come from, for messages.
    pub(crate) files: Files,
    pub(crate) transformer: Transformer,
    /// What is left of the transformer's work where a device does the rest.
    pub(crate) cutter: Option<Cutter>,
    pub(crate) target: Option<TargetRecipe>,
    /// Whether each record's bytes are hashed, for the receipts.
    pub(crate) hashes_contents: bool,
    /// Whether the feed's batches are larger than the caches, so that they are written past them.
    pub(crate) is_past_caches: bool,
}

/// How a second array of each batch comes about.
#[derive(Debug)]
pub(crate) struct TargetRecipe {
    pub(crate) from: TargetFrom,
    pub(crate) transformer: Transformer,
}

/// Where a record's target is.
#[derive(Debug)]
pub(crate) enum TargetFrom {
    /// In the record that goes with it, from the source of these files.
    Companion { files: Files },
    /// In the record itself: the `float_data` beside its pixels.
    FloatData,
}

/// What a worker keeps from record to record.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    decoder: Decoder,
    scratch: Scratch,
}

impl Tools {
    /// A worker's, whose batches stay in the caches or do not.
    pub(crate) fn new(is_past_caches: bool) -> Self {
        let scratch = if is_past_caches { Scratch::past_caches() } else { Scratch::default() };
        Tools { decoder: Decoder::default(), scratch }
    }
}

/// How much a worker's tools grow to: as large as the largest that they are used for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToolBytes {
    pub(crate) decoder: usize,
    pub(crate) scratch: usize,
}

impl ToolBytes {
    fn of(transformer: &Transformer, datum: &Datum<'_>, input: ImageShape) -> Result<Self, RecordCause> {
        let elements = input.checked_elements().unwrap_or(usize::MAX);
        let decoder = if datum.encoded {
            let pixels = decode::file_pixels(datum.data, transformer.decode())?;
            pixels.max(input.height * input.width).saturating_mul(decode::PIXEL_BYTES_MAX)
        } else if transformer.decode().resize.is_some() {
            elements
        } else {
            0
        };
        Ok(ToolBytes { decoder, scratch: elements.saturating_mul(size_of::<f32>()) })
    }

    fn max(self, other: Self) -> Self {
        ToolBytes { decoder: self.decoder.max(other.decoder), scratch: self.scratch.max(other.scratch) }
    }
}

/// What a record comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shapes {
    /// The record's image, decoded and resized.
    pub(crate) input: ImageShape,
    pub(crate) is_encoded: bool,
    /// What a worker keeps for it and for its target.
    pub(crate) tools: ToolBytes,
    /// A batch of one such record.
    pub(crate) arrays: Arrays,
}

impl Recipe {
    /// What the record comes to, which is what the batch that it begins is made of.
    pub(crate) fn shapes(&self, record: &Record<'_>) -> Result<Shapes, Box<RecordError>> {
        let shapes = || -> Result<Shapes, RecordCause> {
            let datum = Datum::parse(record.value)?;
            let input = image_shape(&self.transformer, &datum)?;
            let shape = batch_shape(&self.transformer, input)?;
            let (pixels, transformed) = match &self.cutter {
                None => (shape, None),
                Some(_) => {
                    let stored = if datum.data.is_empty() { Dtype::F32 } else { Dtype::U8 };
                    (BatchShape { dtype: stored, layout: Layout::Nchw, ..shape }, Some(shape))
                }
            };
            let mut tools = ToolBytes::of(&self.transformer, &datum, input)?;
            let mut target = None;
            if let Some(recipe) = &self.target {
                let (shape, its_tools) = recipe.shape(record, &datum)?;
                (target, tools) = (Some(shape), tools.max(its_tools));
            }
            Ok(Shapes {
                input,
                is_encoded: datum.encoded,
                tools,
                arrays: Arrays { pixels, target, transformed },
            })
        };
        shapes().map_err(|cause| self.error(record, cause))
    }

    /// Writes a record to its place in a batch.
    pub(crate) fn write(
        &self,
        record: &Record<'_>,
        batch: &Arrays,
        place: &mut RecordPlace<'_>,
        tools: &mut Tools,
    ) -> Result<(), Box<RecordError>> {
        self.try_write(record, batch, place, tools).map_err(|cause| self.error(record, cause))
    }

    fn try_write(
        &self,
        record: &Record<'_>,
        batch: &Arrays,
        place: &mut RecordPlace<'_>,
        tools: &mut Tools,
    ) -> Result<(), RecordCause> {
        let draw = place.draw();
        let datum = Datum::parse(record.value)?;
        let Tools { decoder, scratch } = tools;
        let image = image(&self.transformer, &datum, draw, decoder)?;
        let input = image.shape;
        match &self.cutter {
            None => apply(&self.transformer, &image, &batch.pixels, draw, place.pixels, scratch)?,
            Some(cutter) => self.cut(cutter, &image, &batch.pixels, draw, place, scratch)?,
        }
        if let (Some(target), Some(shape)) = (&self.target, &batch.target) {
            let target = target.of(record, &datum)?;
            target.write(input, shape, draw, place.target, tools)?;
        }
        // Last: the transform has brought most of it into a cache.
        if self.hashes_contents {
            place.leave_content(ContentHash::of(record));
        }
        place.tag(record.id, datum.label);
        Ok(())
    }

    /// Writes a record's window as it is stored, and leaves for the device what it has to know of it.
    fn cut(
        &self,
        cutter: &Cutter,
        image: &Image<'_>,
        batch: &BatchShape,
        draw: Draw,
        place: &mut RecordPlace<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), RecordCause> {
        place.leave_cut(self.transformer.cut(image, draw)?);
        if batch.dtype == Dtype::U8 && matches!(image.pixels, Pixels::F32(_)) {
            return Err(RecordCause::FloatsAmongBytes);
        }
        apply(cutter.to(batch.dtype), image, batch, draw, place.pixels, scratch)
    }

    /// How many elements the mean images have.
    pub(crate) fn mean_elements(&self) -> usize {
        let target = self.target.as_ref().map_or(0, |target| target.transformer.mean_elements());
        self.transformer.mean_elements().saturating_add(target)
    }

    /// What is wrong with a record, with all that is needed to find it.
    pub(crate) fn error(&self, record: &Record<'_>, cause: RecordCause) -> Box<RecordError> {
        RecordError::new(self.files.path_of(record.id.index), record, cause)
    }
}

/// The shape of a record's image, by what the record says of itself: no pixel is looked at.
fn image_shape(transformer: &Transformer, datum: &Datum<'_>) -> Result<ImageShape, RecordCause> {
    if datum.encoded {
        return Ok(decode::shape(datum.data, transformer.decode())?);
    }
    let image = datum.image()?;
    Ok(transformer.decode().resized(&image)?)
}

/// A record's image: decoded if it is encoded, resized if that was asked for, and where it lies otherwise. Of one
/// that is decoded, what the transform does not look at may be anything.
fn image<'a>(
    transformer: &Transformer,
    datum: &Datum<'a>,
    draw: Draw,
    decoder: &'a mut Decoder,
) -> Result<Image<'a>, RecordCause> {
    if datum.encoded {
        return Ok(decoder.decode(datum.data, transformer.decode(), |shape| transformer.part(shape, draw))?);
    }
    let image = datum.image()?;
    Ok(decoder.resize(image, transformer.decode())?)
}

/// A batch of one record whose image has the shape `input`.
fn batch_shape(transformer: &Transformer, input: ImageShape) -> Result<BatchShape, RecordCause> {
    Ok(transformer.batch_shape(transformer.output_shape(input)?))
}

/// Checks that an image is of its batch's shape, and transforms it into `out`.
fn apply(
    transformer: &Transformer,
    image: &Image<'_>,
    batch: &BatchShape,
    draw: Draw,
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Result<(), RecordCause> {
    let found = transformer.output_shape(image.shape)?;
    if found != batch.image {
        return Err(RecordCause::Shape { found, batch: batch.image });
    }
    Ok(transformer.apply(image, draw, out, scratch)?)
}

impl TargetRecipe {
    /// Whether each target comes with its record from a second source.
    pub(crate) fn is_paired(&self) -> bool {
        matches!(self.from, TargetFrom::Companion { .. })
    }

    fn shape(&self, record: &Record<'_>, datum: &Datum<'_>) -> Result<(BatchShape, ToolBytes), RecordCause> {
        let target = self.of(record, datum)?;
        target.said_of_it(|| {
            let (input, tools) = target.look()?;
            Ok((batch_shape(&self.transformer, input)?, tools))
        })
    }

    /// The target of a record.
    fn of<'a>(&'a self, record: &Record<'a>, datum: &Datum<'a>) -> Result<TargetOf<'a>, RecordCause> {
        let TargetRecipe { from, transformer } = self;
        let content = match (from, record.companion) {
            (TargetFrom::FloatData, _) if !datum.floats.is_empty() => Content::Floats(datum.floats),
            (TargetFrom::Companion { files }, Some(value)) => {
                Content::Companion { files, position: record.id.index, value }
            }
            _ => return Err(RecordCause::NoTarget),
        };
        Ok(TargetOf { transformer, content })
    }
}

/// The target of one record.
struct TargetOf<'a> {
    transformer: &'a Transformer,
    content: Content<'a>,
}

enum Content<'a> {
    Floats(Floats<'a>),
    /// `position` is the record's over all of the files.
    Companion {
        files: &'a Files,
        position: u64,
        value: &'a [u8],
    },
}

impl TargetOf<'_> {
    fn look(&self) -> Result<(ImageShape, ToolBytes), RecordCause> {
        match self.content {
            Content::Floats(floats) => {
                let scratch = floats.len().saturating_mul(size_of::<f32>());
                Ok((vector(floats).shape, ToolBytes { decoder: 0, scratch }))
            }
            Content::Companion { value, .. } => {
                let datum = Datum::parse(value)?;
                let input = image_shape(self.transformer, &datum)?;
                Ok((input, ToolBytes::of(self.transformer, &datum, input)?))
            }
        }
    }

    /// Writes it to its place, beside that of a record whose image has the shape `input`.
    fn write(
        &self,
        input: ImageShape,
        batch: &BatchShape,
        draw: Draw,
        out: &mut [u8],
        tools: &mut Tools,
    ) -> Result<(), RecordCause> {
        let Tools { decoder, scratch } = tools;
        self.said_of_it(|| {
            let image = match self.content {
                Content::Floats(floats) => vector(floats),
                Content::Companion { value, .. } => {
                    image(self.transformer, &Datum::parse(value)?, draw, decoder)?
                }
            };
            let sizes_differ = (image.shape.height, image.shape.width) != (input.height, input.width);
            if sizes_differ && self.transformer.crops() {
                return Err(RecordCause::TargetSize { target: image.shape, image: input });
            }
            apply(self.transformer, &image, batch, draw, out, scratch)
        })
    }

    /// Says of what goes wrong with a companion where it came from.
    fn said_of_it<T>(&self, done: impl FnOnce() -> Result<T, RecordCause>) -> Result<T, RecordCause> {
        done().map_err(|cause| match self.content {
            Content::Floats(_) => cause,
            Content::Companion { files, position, .. } => {
                let path = files.path_of(position).to_owned();
                RecordCause::Companion { path, cause: Box::new(cause) }
            }
        })
    }
}

/// As many channels of one pixel as there are floats.
fn vector(floats: Floats<'_>) -> Image<'_> {
    let shape = ImageShape { channels: floats.len(), height: 1, width: 1 };
    Image { shape, pixels: Pixels::F32(floats) }
}
