//! The layout of a batch's memory.
//!
//! The arrays of all fields follow one another, so that one copy takes them all to a device. A padded or
//! ragged field has two arrays: its elements, and their lengths or offsets. If the device still has to
//! transform an image, a description of what it cuts out of each record follows all arrays.

use std::fmt;
use std::sync::Arc;

use crate::base::shape::{BatchShape, Dtype, Extents};
use crate::batch::field::{self, Field, FieldKind, FieldsError};
use crate::transform::Cut;

/// Arrays start at cache lines, which suit all vector instructions and copy engines.
pub(crate) const ARRAY_ALIGNMENT: usize = 64;

/// The type of offsets and lengths: the one that frameworks index with.
pub(super) type Count = i64;

/// The arrays of a batch and their positions in its memory: in order, each at a multiple of 64 bytes.
// Invariants:
// 1. Each array starts at a multiple of `ARRAY_ALIGNMENT`, none overlaps another, and all end by `bytes`,
//    which fits an `isize`.
// 2. `places` has one entry for each of `fields`; `row_bytes` is the size of a row of that field.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchLayout {
    fields: Arc<[Field]>,
    rows: usize,
    places: Vec<Place>,
    arrays: Vec<Array>,
    staged: Option<StagedPlace>,
    bytes: usize,
}

/// Where a field's arrays start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// The offset of its elements.
    pub(super) values: usize,
    /// The size of one record's row in bytes.
    pub(super) row_bytes: usize,
    /// The offset of its lengths or offsets; unused if it has none.
    pub(super) counts: usize,
    /// The bytes of the value that follows the elements of a padded row.
    pub(super) pad: [u8; 8],
}

/// One whole array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) name: Arc<str>,
    pub(crate) dtype: Dtype,
    pub(crate) offset: usize,
    /// The number of its field.
    pub(crate) field: usize,
    pub(crate) part: ArrayPart,
}

/// What an array holds of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayPart {
    Values,
    Lengths,
    Offsets,
}

/// The image field that the device transforms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StagedPlace {
    field: usize,
    /// The shape for one record.
    transformed: BatchShape,
    cuts: usize,
}

/// Why no batch can have these fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LayoutError {
    Fields(FieldsError),
    /// It is larger than any memory.
    TooLarge,
}

impl BatchLayout {
    /// The layout of a batch with this many rows.
    pub(crate) fn new(fields: impl Into<Arc<[Field]>>, rows: usize) -> Result<Self, LayoutError> {
        let fields = fields.into();
        field::check(&fields).map_err(LayoutError::Fields)?;
        Self::laid_out(fields, rows).ok_or(LayoutError::TooLarge)
    }

    fn laid_out(fields: Arc<[Field]>, rows: usize) -> Option<Self> {
        let mut end = 0_usize;
        let mut place = |bytes: usize| {
            let start = end.checked_next_multiple_of(ARRAY_ALIGNMENT)?;
            end = start.checked_add(bytes)?;
            Some(start)
        };
        let (mut places, mut arrays, mut staged) = (Vec::new(), Vec::new(), None);
        for (number, field) in fields.iter().enumerate() {
            // Strides are products of extents, also past axes of extent 0.
            let widest = field
                .extents(rows)
                .iter()
                .try_fold(1_usize, |all, &extent| all.checked_mul(extent.max(1)))?;
            isize::try_from(widest).ok()?;
            let row_bytes = field.row_elements()?.checked_mul(field.dtype().size())?;
            let values = place(row_bytes.checked_mul(rows)?)?;
            let name = field.shared_name();
            let mut add = |name: Arc<str>, dtype, offset, part| {
                arrays.push(Array { name, dtype, offset, field: number, part });
            };
            add(name.clone(), field.dtype(), values, ArrayPart::Values);
            let (counts, pad) = match field.kind() {
                FieldKind::Fixed(_) => (0, [0; 8]),
                FieldKind::Padded { pad, .. } => {
                    let counts = place(rows.checked_mul(size_of::<Count>())?)?;
                    add(format!("{name}.lengths").into(), Dtype::I64, counts, ArrayPart::Lengths);
                    (counts, field.pad_bytes(pad)?)
                }
                FieldKind::Ragged { .. } => {
                    let counts = place(rows.checked_add(1)?.checked_mul(size_of::<Count>())?)?;
                    add(format!("{name}.offsets").into(), Dtype::I64, counts, ArrayPart::Offsets);
                    (counts, [0; 8])
                }
            };
            places.push(Place { values, row_bytes, counts, pad });
            if let Some(shape) = field.made_on_device() {
                shape.image.checked_elements()?.checked_mul(shape.dtype.size())?.checked_mul(rows)?;
                staged = Some((number, shape));
            }
        }
        let staged = match staged {
            Some((field, shape)) => {
                let cuts = place(rows.checked_mul(size_of::<Cut>())?)?;
                Some(StagedPlace { field, transformed: BatchShape { records: 1, ..shape }, cuts })
            }
            None => None,
        };
        isize::try_from(end).ok()?;
        Some(BatchLayout { fields, rows, places, arrays, staged, bytes: end })
    }

    /// The same fields in a batch with `rows` rows, or `None` if that is larger than any memory.
    pub(crate) fn with_rows(&self, rows: usize) -> Option<Self> {
        Self::laid_out(self.fields.clone(), rows)
    }

    /// The fields, in declaration order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The most records that a batch can have.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The size of its memory in bytes, up to the end of the last array.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(super) fn place(&self, field: usize) -> &Place {
        &self.places[field]
    }

    pub(crate) fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Where an array is in the memory, with room for all rows.
    pub(crate) fn array_range(&self, number: usize) -> std::ops::Range<usize> {
        let array = &self.arrays[number];
        let each = match array.part {
            ArrayPart::Values => self.places[array.field].row_bytes,
            ArrayPart::Lengths | ArrayPart::Offsets => size_of::<Count>(),
        };
        let rows = self.rows + usize::from(array.part == ArrayPart::Offsets);
        array.offset..array.offset + rows * each
    }

    /// The size in bytes of the first field's elements.
    pub(crate) fn first_field_bytes(&self) -> usize {
        self.places.first().map_or(0, |place| place.row_bytes * self.rows)
    }

    /// One of the arrays of a field.
    pub(crate) fn array_of(&self, field: usize, part: ArrayPart) -> Option<&Array> {
        self.arrays.iter().find(|array| array.field == field && array.part == part)
    }

    /// The extents of an array in a batch of `rows` rows. `ragged` returns the number of elements of a ragged
    /// field.
    pub(crate) fn extents(&self, array: &Array, rows: usize, ragged: impl FnOnce() -> usize) -> Extents {
        let field = &self.fields[array.field];
        match (array.part, field.kind()) {
            (ArrayPart::Values, FieldKind::Ragged { .. }) => Extents::new(&[ragged()]),
            (ArrayPart::Values, _) => field.extents(rows),
            (ArrayPart::Lengths, _) => Extents::new(&[rows]),
            (ArrayPart::Offsets, _) => Extents::new(&[rows + 1]),
        }
    }

    /// Checks what readers rely on in the memory of a batch that somebody else wrote: that lengths and
    /// offsets are those of `rows` rows, and that booleans are 0 or 1.
    pub(crate) fn check_whole(&self, memory: &[u8], rows: usize) -> Result<(), String> {
        for array in &self.arrays {
            let (field, place) = (&self.fields[array.field], &self.places[array.field]);
            let wrong = |what: &str| Err(format!("{what} in {}", array.name));
            let count_at = |at: usize| -> Count {
                let start = place.counts + at * size_of::<Count>();
                bytemuck::pod_read_unaligned(&memory[start..start + size_of::<Count>()])
            };
            let max = field.row_elements().and_then(|max| Count::try_from(max).ok()).unwrap_or(Count::MAX);
            let elements = match (array.part, field.kind()) {
                (ArrayPart::Lengths, _) if (0..rows).any(|row| !(0..=max).contains(&count_at(row))) => {
                    return wrong("a length that no row can have");
                }
                (ArrayPart::Offsets, _) => {
                    let is_row = |row| (0..=max).contains(&count_at(row + 1).wrapping_sub(count_at(row)));
                    if count_at(0) != 0 || !(0..rows).all(is_row) {
                        return wrong("offsets that do not follow one another");
                    }
                    continue;
                }
                (ArrayPart::Lengths, _) => continue,
                // Checked by its offsets, of which the last is the number of all elements.
                (ArrayPart::Values, FieldKind::Ragged { .. }) => usize::try_from(count_at(rows)).unwrap_or(0),
                (ArrayPart::Values, _) => rows * field.row_elements().unwrap_or(0),
            };
            let end = array.offset + elements.min(rows * place.row_bytes);
            if array.dtype == Dtype::Bool && memory[array.offset..end].iter().any(|&byte| byte > 1) {
                return wrong("booleans that are neither 0 nor 1");
            }
        }
        Ok(())
    }

    /// The field that the device transforms, the shape it makes of `rows` rows, and the offset of the cuts.
    pub(crate) fn staged(&self, rows: usize) -> Option<(usize, BatchShape, usize)> {
        let StagedPlace { field, transformed, cuts } = self.staged?;
        Some((field, BatchShape { records: rows, ..transformed }, cuts))
    }

    /// The shape of the first field as the consumer gets it, in a batch of `rows` rows viewed as images.
    pub(crate) fn image_shape(&self, rows: usize) -> BatchShape {
        match self.staged(rows) {
            Some((_, transformed, _)) => transformed,
            None => self.fields[0].image_shape(rows),
        }
    }

    /// The memory that the batch takes.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity {
            bytes: self.bytes,
            transformed_bytes: self.staged(self.rows).map_or(0, |(_, shape, _)| shape.bytes()),
            records: self.rows,
        }
    }
}

/// Writes `256 records of data: f32 [3x227x227], label: i32, label_f32: f32`.
impl fmt::Display for BatchLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of ", self.rows)?;
        for (number, field) in self.fields.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{field}")?;
        }
        Ok(())
    }
}

/// The memory that a batch takes in transfer and on its device.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of host memory, all of which are sent.
    pub bytes: usize,
    /// Bytes that the device's transform makes of the pixels; 0 if the device transforms nothing.
    pub transformed_bytes: usize,
    /// The number of records in a batch.
    pub records: usize,
}

impl Capacity {
    /// Whether a batch of the other capacity fits.
    pub(crate) fn holds(self, other: Capacity) -> bool {
        self.or(other) == self
    }

    /// The capacity for either.
    pub(crate) fn or(self, other: Capacity) -> Self {
        Capacity {
            bytes: self.bytes.max(other.bytes),
            transformed_bytes: self.transformed_bytes.max(other.transformed_bytes),
            records: self.records.max(other.records),
        }
    }

    /// The size in bytes of `batches` such batches on the device.
    pub(crate) fn checked_device_bytes(self, batches: usize) -> Option<usize> {
        let bytes = self.bytes.checked_next_multiple_of(ARRAY_ALIGNMENT)?;
        bytes.checked_add(self.transformed_bytes)?.checked_mul(batches)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::shape::{ImageShape, Layout};

    fn fields() -> impl Strategy<Value = Vec<Field>> {
        let dtype = || prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::I32, Dtype::F64, Dtype::Bool]);
        let shape = prop::collection::vec(0_usize..5, 0..4);
        let field = prop_oneof![
            (dtype(), shape).prop_map(|(dtype, shape)| Field::new("", dtype, shape)),
            (dtype(), 0_usize..70).prop_map(|(dtype, max)| Field::padded("", dtype, max, 0)),
            (dtype(), 0_usize..70).prop_map(|(dtype, max)| Field::ragged("", dtype, max)),
        ];
        let named = |(number, field): (usize, Field)| field.renamed(format!("f{number}"));
        prop::collection::vec(field, 1..6)
            .prop_map(move |fields| fields.into_iter().enumerate().map(named).collect())
    }

    proptest! {
        #[test]
        fn arrays_begin_at_cache_lines_and_do_not_overlap(fields in fields(), rows in 0_usize..40) {
            let layout = BatchLayout::new(fields, rows).unwrap();
            let mut end = 0;
            for array in layout.arrays() {
                let field = &layout.fields()[array.field];
                let capacity = || layout.extents(array, rows, || rows * field.row_elements().unwrap());
                prop_assert!(array.offset.is_multiple_of(ARRAY_ALIGNMENT) && array.offset >= end);
                end = array.offset + capacity().checked_elements().unwrap() * array.dtype.size();
            }
            prop_assert_eq!(end, layout.bytes());
            prop_assert_eq!(layout.with_rows(rows), Some(layout.clone()));
        }
    }

    #[test]
    fn what_the_device_transforms_takes_room_there() {
        let image = ImageShape { channels: 3, height: 5, width: 7 };
        let stored = BatchShape { records: 1, image, layout: Layout::Nchw, dtype: Dtype::U8 };
        let made = BatchShape { dtype: Dtype::F32, ..stored };
        let layout = BatchLayout::new(vec![Field::image("data", stored).transformed(made)], 4).unwrap();
        let capacity = layout.capacity();
        assert_eq!((capacity.transformed_bytes, capacity.records), (4 * 3 * 5 * 7 * 4, 4));
        let (field, shape, cuts) = layout.staged(2).unwrap();
        assert_eq!((field, shape.records, cuts), (0, 2, 448));
        assert_eq!(capacity.bytes, 448 + 4 * size_of::<Cut>());
    }

    #[test]
    fn what_no_memory_can_hold_is_refused() {
        let field = Field::new("f", Dtype::F64, [usize::MAX / 8]);
        assert_eq!(BatchLayout::new(vec![field.clone()], 2), Err(LayoutError::TooLarge));
        assert_eq!(BatchLayout::new(vec![field], 1), Err(LayoutError::TooLarge));
        assert!(BatchLayout::new(vec![Field::ragged("f", Dtype::I8, 1)], usize::MAX).is_err());
        for shape in [[0, usize::MAX, 2], [usize::MAX, 2, 0]] {
            assert_eq!(
                BatchLayout::new(vec![Field::new("f", Dtype::I8, shape)], 1),
                Err(LayoutError::TooLarge)
            );
        }
    }
}
