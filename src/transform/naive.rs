//! The slow, obvious reference for the kernels, and the tests that compare them bit for bit.

use std::path::Path;

use half::{bf16, f16};
use proptest::prelude::*;
use prost::Message as _;

use super::random::Reduction;
use super::{Draw, MeanChoice, MeanImage, Scratch, Transform, Transformer};
use crate::base::shape::{Dtype, ImageShape, Layout, Phase};
use crate::proto::Datum;
use percolator_image::simd::InstructionSet;
use percolator_messages::{Image, Pixels};

/// How a record's pixels are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stored {
    Bytes,
    /// One float after another.
    Packed,
    /// A tag before every float.
    Unpacked,
    /// Some packed, some not.
    Irregular,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MeanKind {
    None,
    One,
    PerChannel,
    Image,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    shape: ImageShape,
    stored: Stored,
    dtype: Dtype,
    layout: Layout,
    phase: Phase,
    crop: u32,
    mirror: bool,
    mean: MeanKind,
    scale: f32,
    draw: Draw,
    /// Makes one record's pixels differ from another's.
    seed: u64,
}

const ORDINARY: Case = Case {
    shape: ImageShape { channels: 3, height: 5, width: 5 },
    stored: Stored::Bytes,
    dtype: Dtype::F32,
    layout: Layout::Nchw,
    phase: Phase::Train,
    crop: 0,
    mirror: false,
    mean: MeanKind::None,
    scale: 1.0,
    draw: Draw { mirror: 1, height: 0x9000_0000, width: 0x5000_0000, reduction: Reduction::MultiplyShift },
    seed: 1,
};

impl Case {
    /// This case, or `None` if it requests bytes where bytes cannot hold the result.
    fn allowed(self) -> Option<Self> {
        let bytes = self.stored == Stored::Bytes && self.mean == MeanKind::None && self.scale == 1.0;
        (self.dtype != Dtype::U8 || bytes).then_some(self)
    }

    fn elements(&self) -> usize {
        self.shape.checked_elements().unwrap()
    }

    /// Floats of every kind, including NaN and infinities, or bytes if the record stores bytes.
    fn pixels(&self) -> Vec<f32> {
        (0..self.elements() as u64)
            .map(|i| match self.stored {
                Stored::Bytes => f32::from(hash(self.seed, i).to_le_bytes()[0]),
                _ => float(hash(self.seed, i)),
            })
            .collect()
    }

    fn transform(&self) -> Transform {
        let transform = Transform::new().crop(self.crop).mirror(self.mirror).scale(self.scale);
        let floats = |n: usize| (0..n as u64).map(|i| float(hash(!self.seed, i))).collect::<Vec<f32>>();
        match self.mean {
            MeanKind::None => transform,
            MeanKind::One => transform.mean_value(104.3),
            MeanKind::PerChannel => transform.mean_values(floats(self.shape.channels)),
            MeanKind::Image => {
                transform.mean_image(MeanImage::new(self.shape, floats(self.elements())).unwrap())
            }
        }
    }
}

fn hash(seed: u64, i: u64) -> u64 {
    let z = (seed ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (z ^ (z >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 16
}

fn float(hash: u64) -> f32 {
    const SPECIAL: [f32; 8] =
        [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, f32::MAX, 1e-42];
    let [kind, low @ .., _, _, _] = hash.to_le_bytes();
    match kind {
        0..16 => SPECIAL[usize::from(kind) % SPECIAL.len()],
        16..64 => f32::from_le_bytes(low),
        _ => f32::from(low[0]) + f32::from(low[1]) / 256.0,
    }
}

/// The transform by its definition, one pixel at a time.
fn naive(case: &Case, pixels: &[f32]) -> Vec<u8> {
    let Case { shape: ImageShape { channels, height, width }, draw, .. } = *case;
    let transform = case.transform();
    let (out_height, out_width) = match case.crop as usize {
        0 => (height, width),
        crop => (crop, crop),
    };
    let (top, left) = match case.phase {
        Phase::Train => (draw.top(height - out_height + 1), draw.left(width - out_width + 1)),
        Phase::Test => ((height - out_height) / 2, (width - out_width) / 2),
    };
    let mut out = vec![0; channels * out_height * out_width * case.dtype.size()];
    for c in 0..channels {
        for y in 0..out_height {
            for x in 0..out_width {
                let from = (c * height + top + y) * width + left + x;
                let mean = match (&transform.mean_image, transform.mean_values.as_slice()) {
                    (Some(MeanChoice::Image(image)), _) => image.pixels()[from],
                    (Some(MeanChoice::File(_)), _) => unreachable!("no case has a mean file"),
                    (None, []) => 0.0,
                    (None, &[value]) => value,
                    (None, values) => values[c],
                };
                let difference = pixels[from] - mean;
                let value = difference * transform.scale;
                let x = if case.mirror && draw.mirrored() { out_width - 1 - x } else { x };
                let to = match case.layout {
                    Layout::Nchw => (c * out_height + y) * out_width + x,
                    Layout::Nhwc => (y * out_width + x) * channels + c,
                };
                let to = &mut out[to * case.dtype.size()..][..case.dtype.size()];
                match case.dtype {
                    Dtype::F32 => to.copy_from_slice(bytemuck::bytes_of(&value)),
                    Dtype::F16 => to.copy_from_slice(bytemuck::bytes_of(&f16::from_f32(value))),
                    Dtype::Bf16 => to.copy_from_slice(bytemuck::bytes_of(&bf16::from_f32(value))),
                    #[expect(clippy::cast_possible_truncation, reason = "the value was a byte")]
                    #[expect(clippy::cast_sign_loss, reason = "the value was a byte")]
                    Dtype::U8 => to[0] = value as u8,
                    dtype => unreachable!("no image is made of {dtype}"),
                }
            }
        }
    }
    out
}

/// The wire bytes of a record that holds these floats: packed, one by one, or half and half.
fn float_record(case: &Case, pixels: &[f32]) -> Vec<u8> {
    let packed = |floats: &[f32]| -> Vec<u8> {
        let mut wire = vec![0x32];
        prost::encoding::encode_varint(4 * floats.len() as u64, &mut wire);
        wire.extend(floats.iter().flat_map(|value| value.to_le_bytes()));
        wire
    };
    let unpacked = |floats: &[f32]| -> Vec<u8> {
        floats.iter().flat_map(|value| [&[0x35][..], &value.to_le_bytes()].concat()).collect()
    };
    let extent = |extent: usize| i32::try_from(extent).ok();
    let ImageShape { channels, height, width } = case.shape;
    let (channels, height, width) = (extent(channels), extent(height), extent(width));
    let head = Datum { channels, height, width, ..Datum::default() }.encode_to_vec();
    let (first, second) = pixels.split_at(pixels.len() / 2);
    let floats = match case.stored {
        Stored::Packed => packed(pixels),
        Stored::Unpacked => unpacked(pixels),
        Stored::Irregular => [packed(first), unpacked(second)].concat(),
        Stored::Bytes => unreachable!("bytes are no floats"),
    };
    [head, floats].concat()
}

/// Calls `body` with the image stored as the case says.
fn with_image(case: &Case, pixels: &[f32], body: &mut dyn FnMut(&Image<'_>)) {
    if case.stored == Stored::Bytes {
        #[expect(clippy::cast_possible_truncation, reason = "the values are bytes")]
        #[expect(clippy::cast_sign_loss, reason = "the values are bytes")]
        let bytes: Vec<u8> = pixels.iter().map(|&pixel| pixel as u8).collect();
        return body(&Image { shape: case.shape, pixels: Pixels::U8(&bytes) });
    }
    let wire = float_record(case, pixels);
    body(&percolator_messages::Datum::parse(&wire).unwrap().image().unwrap());
}

/// Whether all elements have equal bits or are both NaN: which NaN two NaNs produce is not specified.
fn same(dtype: Dtype, a: &[u8], b: &[u8]) -> bool {
    fn same_floats<T: bytemuck::Pod>(a: &[u8], b: &[u8], is_nan: fn(T) -> bool) -> bool {
        let size = size_of::<T>();
        a.len() == b.len()
            && a.chunks_exact(size).zip(b.chunks_exact(size)).all(|(a, b)| {
                let nan = |bytes: &[u8]| is_nan(bytemuck::pod_read_unaligned(bytes));
                a == b || nan(a) && nan(b)
            })
    }
    match dtype {
        Dtype::U8 => a == b,
        Dtype::F32 => same_floats(a, b, f32::is_nan),
        Dtype::F16 => same_floats(a, b, f16::is_nan),
        Dtype::Bf16 => same_floats(a, b, bf16::is_nan),
        dtype => unreachable!("no image is made of {dtype}"),
    }
}

/// The content of batches before anything is written.
const UNTOUCHED: u32 = 0xa5a5_a5a5;

/// The scratch of a worker whose batches stay in the caches, and of one whose batches do not.
fn scratches() -> [Scratch; 2] {
    [Scratch::default(), Scratch::past_caches()]
}

/// Compares the kernels with the reference on every instruction set, with writes through the caches and past
/// them.
fn check(case: &Case, scratches: &mut [Scratch; 2]) {
    let pixels = case.pixels();
    let expected = naive(case, &pixels);
    let mut transformer =
        Transformer::new(&case.transform(), Path::new(""), case.phase, case.dtype, case.layout).unwrap();
    let output = transformer.output_shape(case.shape).unwrap();
    assert_eq!(output.checked_elements().unwrap() * case.dtype.size(), expected.len(), "{case:?}");
    with_image(case, &pixels, &mut |image| {
        // A place in a batch is aligned for the batch's type, and may start anywhere in a cache line.
        let start = usize::try_from(case.seed % 64).unwrap() / case.dtype.size() * case.dtype.size();
        for (set, scratch) in InstructionSet::all().into_iter().flatten().flat_map(|set| [(set, 0), (set, 1)])
        {
            transformer.instructions = set;
            let mut batch = vec![UNTOUCHED; (start + expected.len()).div_ceil(4) + 32];
            let batch: &mut [u8] = bytemuck::cast_slice_mut(&mut batch);
            let (before, rest) = batch.split_at_mut(start);
            let (out, after) = rest.split_at_mut(expected.len());
            transformer.apply(image, case.draw, out, &mut scratches[scratch]).unwrap();
            assert!(same(case.dtype, out, &expected), "{set:?} {scratch} {case:?}\n{out:?}\n{expected:?}");
            let untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0xa5);
            assert!(untouched(before) && untouched(after), "{set:?} {scratch} {case:?}");
        }
    });
}

/// Every combination of `variants` with each of `cases`.
fn cross<T: Copy>(cases: Vec<Case>, variants: &[T], set: impl Fn(&mut Case, T)) -> Vec<Case> {
    let vary = |case: Case| variants.iter().map(move |&variant| (case, variant));
    let set = |(mut case, variant)| {
        set(&mut case, variant);
        case
    };
    cases.into_iter().flat_map(vary).map(set).collect()
}

const DTYPES: [Dtype; 4] = [Dtype::F32, Dtype::U8, Dtype::F16, Dtype::Bf16];
const LAYOUTS: [Layout; 2] = [Layout::Nchw, Layout::Nhwc];
const STORED: [Stored; 4] = [Stored::Bytes, Stored::Packed, Stored::Unpacked, Stored::Irregular];
const MEANS: [MeanKind; 4] = [MeanKind::None, MeanKind::One, MeanKind::PerChannel, MeanKind::Image];

#[test]
fn every_combination_matches_naive() {
    let shape = |channels, height, width| ImageShape { channels, height, width };
    // Rows of one pixel, and rows of less than, exactly, and a little more than one step of the kernels.
    let shapes = [shape(3, 5, 5), shape(1, 7, 1), shape(2, 1, 16), shape(3, 17, 17), shape(4, 9, 35)];
    let cases = cross(vec![ORDINARY], &shapes, |case, shape| case.shape = shape);
    // No crop, a crop of the smaller side, and one of a pixel less, if there is one.
    let cases = cross(cases, &[None, Some(0), Some(1)], |case, less: Option<u32>| {
        let side = u32::try_from(case.shape.height.min(case.shape.width)).unwrap();
        case.crop = less.map_or(0, |less| side.saturating_sub(less).max(1));
    });
    let cases = cross(cases, &[Phase::Train, Phase::Test], |case, phase| case.phase = phase);
    let cases = cross(cases, &[false, true], |case, mirror| case.mirror = mirror);
    let cases = cross(cases, &DTYPES, |case, dtype| case.dtype = dtype);
    let cases = cross(cases, &LAYOUTS, |case, layout| case.layout = layout);
    let cases = cross(cases, &STORED, |case, stored| case.stored = stored);
    let cases = cross(cases, &MEANS, |case, mean| case.mean = mean);
    let cases = cross(cases, &[1.0, 0.017], |case, scale| case.scale = scale);

    let mut scratches = scratches();
    let allowed: Vec<Case> = cases.into_iter().filter_map(Case::allowed).collect();
    assert_eq!(allowed.len(), 5 * 3 * 2 * 2 * 2 * (3 * 4 * 4 * 2 + 1));
    // Of each value of each of these, some case is among the few that Miri runs.
    for case in allowed.iter().step_by(if cfg!(miri) { 503 } else { 1 }) {
        check(case, &mut scratches);
    }
}

fn any_draw() -> impl Strategy<Value = Draw> {
    let reduction = prop_oneof![Just(Reduction::MultiplyShift), Just(Reduction::Modulo)];
    (any::<[u32; 3]>(), reduction).prop_map(|([mirror, height, width], reduction)| Draw {
        mirror,
        height,
        width,
        reduction,
    })
}

fn any_case() -> impl Strategy<Value = Case> {
    // Some rows are longer than the number of floats that are narrowed at a time.
    let width = prop_oneof![4 => 1_usize..=70, 1 => 250_usize..=530];
    let shape = (1_usize..=5, 1_usize..=24, width).prop_map(|(channels, height, width)| ImageShape {
        channels,
        height,
        width,
    });
    let crop = prop_oneof![Just(0), 1_u32..=24];
    let kinds = (
        prop::sample::select(&STORED),
        prop::sample::select(&DTYPES),
        prop::sample::select(&LAYOUTS),
        prop::sample::select(&MEANS),
        prop_oneof![Just(Phase::Train), Just(Phase::Test)],
    );
    let scale = prop_oneof![Just(1.0), Just(0.003_906_25), any::<f32>()];
    (shape, crop, kinds, any::<bool>(), scale, any_draw(), any::<u64>()).prop_map(
        |(shape, crop, (stored, dtype, layout, mean, phase), mirror, scale, draw, seed)| {
            let side = u32::try_from(shape.height.min(shape.width)).unwrap();
            let crop = crop.min(side);
            let case = Case { shape, stored, dtype, layout, phase, crop, mirror, mean, scale, draw, seed };
            let bytes = Case { stored: Stored::Bytes, mean: MeanKind::None, scale: 1.0, ..case };
            case.allowed().unwrap_or(bytes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_case_matches_naive(case in any_case()) {
        check(&case, &mut scratches());
    }
}
