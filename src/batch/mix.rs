//! A complete batch is mixed: each image with the one before it, the first with the last.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::layout::Place;
use super::{BatchShape, Dtype, Filled, ImageShape, Layout};
use crate::transform::{Mixed, MixedPart, Mixing};

/// How much of the last row is kept while the others are mixed, so that nothing is allocated: a part of a
/// page, which stays in the first-level cache together with the parts of two rows.
const PART_BYTES: usize = 4096;

/// The fields that are mixed, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixedFields {
    /// The images.
    pub(crate) images: usize,
    /// A share of each class, if there is such a field.
    pub(crate) shares: Option<usize>,
    /// The label of the image that each was mixed with.
    pub(crate) others: usize,
    /// The share of the image's own label.
    pub(crate) weights: usize,
}

/// What an element becomes of its own value and that of the row before.
#[derive(Clone, Copy)]
enum Becomes {
    /// The other.
    Other,
    /// A sum with these shares, as torch computes it: two products and a sum, each rounded.
    Sum(Dtype, [f32; 2]),
}

impl Filled {
    /// Mixes the batch's records, but for the rows that pad it.
    pub(crate) fn mix(&mut self, mixing: &Mixing, seed: u64, fields: MixedFields) {
        let [first, ..] = *self.ids() else { return };
        let images = self.layout.fields()[fields.images].image_shape(1);
        let size = [images.image.height, images.image.width];
        if let Some(mixed) = mixing.draw(seed, first, size) {
            self.mix_as(mixed, images, fields);
        }
    }

    fn mix_as(&mut self, Mixed { weight, part }: Mixed, images: BatchShape, fields: MixedFields) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded to the nearest f32, as torch's scalars are"
        )]
        let shares = [weight as f32, (1.0 - weight) as f32];
        match part {
            MixedPart::Share => self.roll(fields.images, Becomes::Sum(images.dtype, shares)),
            MixedPart::Box { rows, columns } => {
                let ImageShape { channels, height, width } = images.image;
                let element = images.dtype.size();
                let (planes, pixel) = match images.layout {
                    Layout::Nchw => (channels, element),
                    Layout::Nhwc => (1, element * channels),
                };
                for row in
                    (0..planes).flat_map(|plane| (rows[0]..rows[1]).map(move |row| plane * height + row))
                {
                    let start = row * width;
                    let bytes = (start + columns[0]) * pixel..(start + columns[1]) * pixel;
                    self.roll_part(fields.images, bytes, Becomes::Other);
                }
            }
        }
        if let Some(classes) = fields.shares {
            self.roll(classes, Becomes::Sum(Dtype::F32, shares));
        }
        self.roll(fields.others, Becomes::Other);
        let (Place { values, row_bytes, .. }, records) = (*self.layout.place(fields.weights), self.records);
        let weights = &mut self.memory_mut()[values..values + row_bytes * records];
        weights
            .chunks_exact_mut(row_bytes)
            .for_each(|own| own.copy_from_slice(bytemuck::bytes_of(&shares[0])));
    }

    /// Changes all elements of a field.
    fn roll(&mut self, field: usize, becomes: Becomes) {
        let row_bytes = self.layout.place(field).row_bytes;
        self.roll_part(field, 0..row_bytes, becomes);
    }

    /// Changes these bytes of each row of a field, part by part: from the last row up, so that the row before
    /// still has its own.
    fn roll_part(&mut self, field: usize, bytes: Range<usize>, becomes: Becomes) {
        let (Place { values, row_bytes, .. }, records) = (*self.layout.place(field), self.records);
        let rows = &mut self.memory_mut()[values..values + row_bytes * records];
        let last = row_bytes * (records - 1);
        let mut page = [0_u64; PART_BYTES / size_of::<u64>()];
        for start in bytes.clone().step_by(PART_BYTES) {
            let len = PART_BYTES.min(bytes.end - start);
            let kept = &mut bytemuck::cast_slice_mut(&mut page)[..len];
            kept.copy_from_slice(&rows[last + start..][..len]);
            for row in (1..records).rev() {
                let (before, own) = rows.split_at_mut(row * row_bytes);
                let before = &before[(row - 1) * row_bytes + start..][..len];
                change(&mut own[start..][..len], before, becomes);
            }
            change(&mut rows[start..][..len], kept, becomes);
        }
    }
}

fn change(own: &mut [u8], other: &[u8], becomes: Becomes) {
    match becomes {
        Becomes::Other => own.copy_from_slice(other),
        Becomes::Sum(Dtype::F16, shares) => sum_halves::<f16>(own, other, shares),
        Becomes::Sum(Dtype::Bf16, shares) => sum_halves::<bf16>(own, other, shares),
        Becomes::Sum(_, shares) => sum(bytemuck::cast_slice_mut(own), bytemuck::cast_slice(other), shares),
    }
}

/// The shares of both, in f32.
fn sum(own: &mut [f32], other: &[f32], [of_own, of_other]: [f32; 2]) {
    for (own, other) in own.iter_mut().zip(other) {
        *own = other * of_other + *own * of_own;
    }
}

/// The same of 16-bit elements, each rounded once.
fn sum_halves<E: bytemuck::Pod>(own: &mut [u8], other: &[u8], shares: [f32; 2])
where
    [E]: HalfFloatSliceExt,
{
    const AT_ONCE: usize = 256;

    let (own, other): (&mut [E], &[E]) = (bytemuck::cast_slice_mut(own), bytemuck::cast_slice(other));
    let (mut wide, mut wide_other) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
    for (own, other) in own.chunks_mut(AT_ONCE).zip(other.chunks(AT_ONCE)) {
        let (wide, wide_other) = (&mut wide[..own.len()], &mut wide_other[..own.len()]);
        own.convert_to_f32_slice(wide);
        other.convert_to_f32_slice(wide_other);
        sum(wide, wide_other, shares);
        own.convert_from_f32_slice(wide);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[cfg_attr(miri, allow(unused_imports, dead_code, reason = "files are read"))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::bad::BadAction;
    use crate::base::sync::bounded;
    use crate::batch::field::Field;
    use crate::batch::memory::PageMemory;
    use crate::batch::{BatchLayout, Frame};
    use crate::record::RecordId;

    const IMAGE: ImageShape = ImageShape { channels: 3, height: 10, width: 12 };
    const LABELS: [i64; 4] = [3, 1, 4, 2];
    const CLASSES: usize = 5;
    const FIELDS: MixedFields = MixedFields { images: 0, shares: Some(1), others: 2, weights: 3 };

    /// What torchvision made, or was given.
    fn golden(name: &str) -> Vec<f32> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/mix").join(name);
        let file = std::fs::read(path).unwrap();
        file[128..].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    /// A batch of these images, each with its label, and `pads` rows of padding.
    fn batch(images: &[Vec<f32>], shape: BatchShape, pads: usize) -> Filled {
        let fields = [
            Field::image("data", shape),
            Field::new("label_soft", Dtype::F32, [CLASSES]),
            Field::scalar("label_mixed", Dtype::I64),
            Field::scalar("label_weight", Dtype::F32),
        ];
        let layout = Arc::new(BatchLayout::new(fields, images.len() + pads).unwrap());
        let memory = PageMemory::new(layout.bytes()).unwrap();
        let mut filling = Frame::new(Box::new(memory), layout.rows(), bounded(1).0).begin(&layout);
        let mut places = filling.take(images.len());
        for (at, image) in images.iter().enumerate() {
            let (mut row, label) = (places.get(at, 0), LABELS[at % LABELS.len()]);
            row.set_id(RecordId { epoch: 0, index: at as u64 });
            match shape.dtype {
                Dtype::F16 => row.write(0, &image.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()),
                Dtype::Bf16 => row.write(0, &image.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>()),
                _ => row.write(0, image),
            }
            .unwrap();
            let shares = std::array::from_fn(|class| f32::from(u8::from(label == class as i64)));
            row.write::<f32>(1, &shares as &[f32; CLASSES]).unwrap();
            row.set(2, label).unwrap();
            row.set(3, 1.0_f32).unwrap();
        }
        places.finish();
        let pending = if pads > 0 { filling.finish_padded() } else { filling.finish() };
        pending.filled(BadAction::Fail)
    }

    fn shape(dtype: Dtype, layout: Layout) -> BatchShape {
        BatchShape { records: 1, image: IMAGE, layout, dtype }
    }

    fn values<T: bytemuck::Pod>(filled: &Filled, field: usize) -> Vec<T> {
        let arrays = filled.layout().arrays();
        bytemuck::cast_slice(filled.array_bytes(&arrays[field])).to_vec()
    }

    fn pictures() -> Vec<Vec<f32>> {
        golden("mix_in.npy").chunks_exact(360).map(<[f32]>::to_vec).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it reads files")]
    fn batches_are_mixed_as_torchvision_mixes_them() {
        let of_box = |rows, columns| MixedPart::Box { rows, columns };
        for (name, weight, part) in [
            ("mixup", 0.52, MixedPart::Share),
            ("cutmix0", 0.85, of_box([0, 3], [2, 8])),
            ("cutmix1", 0.9, of_box([0, 3], [2, 6])),
            ("cutmix2", 2.0 / 3.0, of_box([0, 5], [4, 12])),
        ] {
            for pads in [0, 2] {
                let shape = shape(Dtype::F32, Layout::Nchw);
                let mut filled = batch(&pictures(), shape, pads);
                filled.mix_as(Mixed { weight, part }, shape, FIELDS);
                let with_pads = |mut values: Vec<f32>, row: usize| {
                    values.resize(values.len() + pads * row, 0.0);
                    values
                };
                assert_eq!(
                    values::<f32>(&filled, 0),
                    with_pads(golden(&format!("{name}_x.npy")), 360),
                    "{name}"
                );
                assert_eq!(values::<f32>(&filled, 1), with_pads(golden(&format!("{name}_y.npy")), CLASSES));
                assert_eq!(values::<i64>(&filled, 2)[..4], [2, 3, 1, 4]);
                #[expect(clippy::cast_possible_truncation, reason = "rounded to f32")]
                let weight = weight as f32;
                assert_eq!(values::<f32>(&filled, 3), with_pads(vec![weight; 4], 1));
            }
        }
    }

    /// Of each layout and type, and of rows that are longer than what is kept of one.
    #[test]
    #[cfg_attr(miri, ignore = "it reads files")]
    fn every_kind_of_batch_is_mixed_as_a_naive_one() {
        let large = ImageShape { channels: 3, height: 50, width: 41 };
        let of_large: Vec<Vec<f32>> = (0..3)
            .map(|at| (0..3 * 50 * 41).map(|i| ((i * 31 + at * 7) % 255) as f32 / 8.0).collect())
            .collect();
        for (image, pictures) in [(IMAGE, pictures()), (large, of_large)] {
            for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                for layout in [Layout::Nchw, Layout::Nhwc] {
                    let shape = BatchShape { records: 1, image, layout, dtype };
                    for part in [MixedPart::Share, MixedPart::Box { rows: [2, 9], columns: [0, 11] }] {
                        let mut filled = batch(&pictures, shape, 0);
                        filled.mix_as(Mixed { weight: 0.3, part }, shape, FIELDS);
                        let found: Vec<f32> = match dtype {
                            Dtype::F16 => values::<f16>(&filled, 0).into_iter().map(f32::from).collect(),
                            Dtype::Bf16 => values::<bf16>(&filled, 0).into_iter().map(f32::from).collect(),
                            _ => values(&filled, 0),
                        };
                        assert!(found == naive(&pictures, shape, part), "{shape:?}, {part:?}");
                    }
                }
            }
        }
    }

    fn naive(pictures: &[Vec<f32>], shape: BatchShape, part: MixedPart) -> Vec<f32> {
        let BatchShape { image: ImageShape { channels, height, width }, layout, dtype, .. } = shape;
        let round = |x: f32| match dtype {
            Dtype::F16 => f16::from_f32(x).into(),
            Dtype::Bf16 => bf16::from_f32(x).into(),
            _ => x,
        };
        let mut made = Vec::new();
        for (at, own) in pictures.iter().enumerate() {
            let other = &pictures[(at + pictures.len() - 1) % pictures.len()];
            made.extend(own.iter().zip(other).enumerate().map(|(i, (&own, &other))| {
                let [y, x] = match layout {
                    Layout::Nchw => [i / width % height, i % width],
                    Layout::Nhwc => [i / channels / width, i / channels % width],
                };
                let (own, other) = (round(own), round(other));
                match part {
                    MixedPart::Share => round(other * 0.7 + own * 0.3),
                    MixedPart::Box { rows, columns } => {
                        let is_in = (rows[0]..rows[1]).contains(&y) && (columns[0]..columns[1]).contains(&x);
                        if is_in { other } else { own }
                    }
                }
            }));
        }
        made
    }

    #[test]
    fn a_batch_of_one_record_stays() {
        let shape = shape(Dtype::F32, Layout::Nchw);
        let picture = vec![(0..360_u16).map(f32::from).collect::<Vec<_>>()];
        let mut filled = batch(&picture, shape, 1);
        filled.mix_as(Mixed { weight: 0.25, part: MixedPart::Share }, shape, FIELDS);
        assert_eq!(values::<f32>(&filled, 0)[..360], picture[0]);
    }
}
