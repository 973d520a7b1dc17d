//! The labels of an image record: the same number in each type that somebody trains with.

use super::image::name;
use crate::base::shape::Dtype;
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::Field;
use crate::batch::mix::MixedFields;

/// Which label fields a batch of images has beside `label` and `label_f32`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Labels {
    /// As i64.
    pub(crate) wide: bool,
    /// As the share of each of so many classes.
    pub(crate) classes: Option<usize>,
    /// Those that images are mixed with, and the share of the own one.
    pub(crate) mixed: bool,
}

impl Labels {
    /// The number of fields.
    pub(crate) fn count(self) -> usize {
        2 + usize::from(self.wide) + usize::from(self.classes.is_some()) + 2 * usize::from(self.mixed)
    }

    pub(crate) fn fields(self) -> impl Iterator<Item = Field> {
        let scalar = |is: bool, name, dtype| is.then(|| Field::scalar(name, dtype));
        [
            scalar(true, name::LABEL, Dtype::I32),
            scalar(true, name::LABEL_F32, Dtype::F32),
            scalar(self.wide, name::LABEL_I64, Dtype::I64),
            self.classes.map(|classes| Field::new(name::LABEL_SOFT, Dtype::F32, [classes])),
            scalar(self.mixed, name::LABEL_MIXED, Dtype::I64),
            scalar(self.mixed, name::LABEL_WEIGHT, Dtype::F32),
        ]
        .into_iter()
        .flatten()
    }

    /// The fields of a batch whose labels begin with this one that a mixing changes, if batches are mixed.
    pub(crate) fn mixed_fields(self, images: usize, first: usize) -> Option<MixedFields> {
        let weights = first + self.count() - 1;
        let shares = self.classes.map(|_| weights - 2);
        self.mixed.then_some(MixedFields { images, shares, others: weights - 1, weights })
    }

    /// Writes a record's label to the fields from `first` on.
    #[inline]
    pub(crate) fn write(self, label: i32, row: &mut Row<'_>, first: usize) -> Result<(), RecordCause> {
        row.set(first, label)?;
        row.set(first + 1, as_caffe_label(label))?;
        let mut next = first + 2..;
        let mut field = || next.next().unwrap_or_default();
        if self.wide {
            row.set(field(), i64::from(label))?;
        }
        if let Some(classes) = self.classes {
            let own = usize::try_from(label).ok().filter(|&label| label < classes);
            let Some(own) = own else { return Err(RecordCause::Class { label, classes }) };
            let shares = row.values_mut(field())?;
            shares.fill(0.0);
            shares[own] = 1.0_f32;
        }
        if self.mixed {
            row.set(field(), i64::from(label))?;
            row.set(field(), 1.0_f32)?;
        }
        Ok(())
    }
}

/// Caffe's label: the integer as a float, exact up to 2^24.
#[expect(clippy::cast_precision_loss, reason = "Caffe's labels are floats; other fields have the exact ones")]
fn as_caffe_label(label: i32) -> f32 {
    label as f32
}
