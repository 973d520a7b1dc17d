//! The second image of a record: from a companion, or from the floats beside its pixels.

use super::image::{ToolBytes, Tools, apply, batch_shape, image, image_shape};
use crate::base::shape::{BatchShape, ImageShape};
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::source::{Files, Record};
use crate::transform::{Draw, Transformer};
use percolator_messages::{Datum, Floats, Image, Pixels};

/// The number of its field.
pub(super) const TARGET: usize = 1;

/// Decodes each record's second image.
#[derive(Debug)]
pub(crate) struct TargetDecoder {
    pub(crate) from: TargetValue,
    pub(crate) transformer: Transformer,
}

/// Where a record's target is.
#[derive(Debug)]
pub(crate) enum TargetValue {
    /// In the record's companion, from the source with these files.
    Companion { files: Files },
    /// In the record itself: the `float_data` beside its pixels.
    FloatData,
}

impl TargetDecoder {
    pub(super) fn shape(&self, record: &Record<'_>, datum: &Datum<'_>) -> Result<BatchShape, RecordCause> {
        let target = self.of(record, datum)?;
        target.with_origin(|| batch_shape(&self.transformer, target.look()?.0))
    }

    pub(super) fn tool_bytes(
        &self,
        record: &Record<'_>,
        datum: &Datum<'_>,
    ) -> Result<ToolBytes, RecordCause> {
        let target = self.of(record, datum)?;
        target.with_origin(|| Ok(target.look()?.1))
    }

    /// The target of a record.
    pub(super) fn of<'a>(
        &'a self,
        record: &Record<'a>,
        datum: &Datum<'a>,
    ) -> Result<TargetOf<'a>, RecordCause> {
        let TargetDecoder { from, transformer } = self;
        let content = match (from, record.companion) {
            (TargetValue::FloatData, _) if !datum.floats.is_empty() => Content::Floats(datum.floats),
            (TargetValue::Companion { files }, Some(value)) => {
                Content::Companion { files, position: record.id.index, value }
            }
            _ => return Err(RecordCause::NoTarget),
        };
        Ok(TargetOf { transformer, content })
    }
}

/// The target of one record.
pub(super) struct TargetOf<'a> {
    transformer: &'a Transformer,
    content: Content<'a>,
}

enum Content<'a> {
    Floats(Floats<'a>),
    /// `position` is the record's number over all files.
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
                Ok((input, ToolBytes::of(self.transformer, &datum, input, input)?))
            }
        }
    }

    /// Writes the target to its field. `input` is the shape of the record's own image.
    pub(super) fn write(
        &self,
        input: ImageShape,
        draw: Draw,
        row: &mut Row<'_>,
        tools: &mut Tools,
    ) -> Result<(), RecordCause> {
        let Tools { decoder, scratch, .. } = tools;
        self.with_origin(|| {
            let image = match self.content {
                Content::Floats(floats) => vector(floats),
                Content::Companion { value, .. } => {
                    let part = |shape| self.transformer.part(shape, draw);
                    image(self.transformer, &Datum::parse(value)?, part, false, decoder)?
                }
            };
            let sizes_differ = (image.shape.height, image.shape.width) != (input.height, input.width);
            if sizes_differ && self.transformer.crops() {
                return Err(RecordCause::TargetSize { target: image.shape, image: input });
            }
            apply(self.transformer, &image, draw, TARGET, row, scratch)
        })
    }

    /// Adds a companion's source to an error with the companion.
    fn with_origin<T>(&self, done: impl FnOnce() -> Result<T, RecordCause>) -> Result<T, RecordCause> {
        done().map_err(|cause| match self.content {
            Content::Floats(_) => cause,
            Content::Companion { files, position, .. } => {
                let path = files.path_of(position).to_owned();
                RecordCause::Companion { path, cause: Box::new(cause) }
            }
        })
    }
}

/// The floats as an image of one-pixel channels.
fn vector(floats: Floats<'_>) -> Image<'_> {
    let shape = ImageShape { channels: floats.len(), height: 1, width: 1 };
    Image { shape, pixels: Pixels::F32(floats) }
}
