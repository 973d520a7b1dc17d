//! Several crops of one image, which is decoded once.

use std::sync::Arc;

use crate::base::shape::{BatchShape, Dtype, Extents, ImageShape, Layout};
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::{Field, FieldKind};
use crate::transform::{ChainScratch, Scratch, TransformError, Transformer};
use percolator_image::Planes;

/// Separates the random numbers of views from those of the image itself.
const OF_VIEWS: u64 = 0x7669_6577_735f_5f21;

/// A field with so many crops of each image, all drawn by one list of operations.
#[derive(Debug)]
pub(crate) struct Views {
    pub(crate) name: Arc<str>,
    pub(crate) count: usize,
    /// It has operations, and decodes to the channels that the image itself is decoded to.
    pub(crate) transformer: Transformer,
}

impl Views {
    /// The field, of images of this shape.
    pub(crate) fn field(&self, input: ImageShape) -> Result<Field, TransformError> {
        let (dtype, extents) = self.crops(input)?;
        Ok(Field::new(self.name.clone(), dtype, &*extents))
    }

    /// Whether this is the field of images of this shape.
    pub(crate) fn is_of(&self, field: &Field, input: ImageShape) -> Result<bool, TransformError> {
        Ok(field.kind() == FieldKind::Fixed(self.crops(input)?.1))
    }

    /// What one record has: crops first, then the axes of an image.
    fn crops(&self, input: ImageShape) -> Result<(Dtype, Extents), TransformError> {
        let BatchShape { image: ImageShape { channels, height, width }, layout, dtype, .. } =
            self.transformer.batch_shape(self.transformer.output_shape(input)?);
        let extents = match layout {
            Layout::Nchw => [self.count, channels, height, width],
            Layout::Nhwc => [self.count, height, width, channels],
        };
        Ok((dtype, Extents::new(&extents)))
    }

    /// Writes the crops of an image to this field, the `number`th of all views.
    pub(crate) fn write(
        &self,
        image: Planes<'_>,
        number: usize,
        field: usize,
        row: &mut Row<'_>,
        (chained, last): (&mut ChainScratch, &mut Scratch),
    ) -> Result<(), RecordCause> {
        if !self.is_of(&row.fields()[field], image.shape)? {
            let (found, batch) = (self.field(image.shape)?.to_string(), row.fields()[field].to_string());
            return Err(RecordCause::View { found, batch });
        }
        let Some(chain) = self.transformer.chain() else { return Ok(()) };
        let random = row.random().fork(OF_VIEWS).fork(number as u64);
        let places = row.bytes_mut(field);
        let bytes = places.len() / self.count;
        for (crop, place) in places.chunks_exact_mut(bytes.max(1)).enumerate() {
            let made = chain.run(image, &random.fork(crop as u64), chained)?;
            self.transformer.finish(made, place, last)?;
        }
        Ok(())
    }
}
