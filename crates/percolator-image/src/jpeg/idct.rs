//! The inverse transform: from coefficients to samples.
//!
//! ```text
//! for each coefficient column: columns[..][x] = round(transform(coefficients[..][x] * steps[..][x]) * 4)
//! for each row of these:       samples[y][..] = clamp(round(transform(columns[y][..]) / 32) + 128, 0..=255)
//! ```
//!
//! `transform` is that of Loeffler, Ligtenberg and Moschytz with factors of 13 fractional bits, as in
//! libjpeg's accurate integer transform. What is rounded, and when, decides the last bit of a sample, so both
//! follow libjpeg. The integer widths follow libjpeg-turbo's vector code: an overflow of 16 bits wraps when
//! coefficients are multiplied or added, and saturates after the columns. No encoder makes coefficients that
//! large.
//!
//! Everything is plain arithmetic on arrays of eight, which the compiler turns into vectors: eight columns at
//! once, and then, after a transposition, eight rows at once. (It compiled two blocks at once, in arrays of
//! sixteen, to code half as fast.) A quarter of the work is enough if only the sixteen lowest frequencies are
//! present, and none if only the DC is.

use super::quantize::Block;

/// The number of samples on a side of a block.
pub(super) const SIDE: usize = 8;

/// The fractional bits of the factors, and of the values between columns and rows.
pub(super) const FACTOR_BITS: u32 = 13;
pub(super) const COLUMN_BITS: u32 = 2;

/// The number of first coefficients, in order of frequency, that are certain to be in the quarter of the
/// lowest.
pub(super) const QUARTER: usize = 10;

pub(super) type Words = [i16; SIDE];
pub(super) type Longs = [i32; SIDE];

/// The samples of a block, row after row.
type Samples = [[u8; SIDE]; SIDE];

/// A factor of the transform.
#[expect(clippy::cast_possible_truncation, reason = "less than 4 * 2^13")]
pub(super) const fn factor(value: f64) -> i32 {
    (value * (1 << FACTOR_BITS) as f64 + 0.5) as i32
}

const F_0_298: i32 = factor(0.298_631_336);
const F_0_390: i32 = factor(0.390_180_644);
const F_0_541: i32 = factor(0.541_196_100);
const F_0_765: i32 = factor(0.765_366_865);
const F_0_899: i32 = factor(0.899_976_223);
const F_1_175: i32 = factor(1.175_875_602);
const F_1_501: i32 = factor(1.501_321_110);
const F_1_847: i32 = factor(1.847_759_065);
const F_1_961: i32 = factor(1.961_570_560);
const F_2_053: i32 = factor(2.053_119_869);
const F_2_562: i32 = factor(2.562_915_447);
const F_3_072: i32 = factor(3.072_711_026);

/// Writes the samples of a block to the rows of `out`, which are `stride` apart. `coded` is greater than the
/// index, in order of frequency, of every nonzero coefficient.
#[inline(always)]
pub(super) fn inverse(block: &Block, steps: &Block, coded: usize, out: &mut [u8], stride: usize) {
    if coded <= 1 {
        let dc = block[0].wrapping_mul(steps[0]) << COLUMN_BITS;
        let sample = sample(descale(i32::from(dc) << FACTOR_BITS, FACTOR_BITS + COLUMN_BITS + 3));
        for row in out.chunks_mut(stride).take(SIDE) {
            row[..SIDE].fill(sample);
        }
        return;
    }
    let mut columns = [[0; SIDE]; SIDE];
    for y in 0..SIDE {
        for x in 0..SIDE {
            columns[y][x] = block[SIDE * y + x].wrapping_mul(steps[SIDE * y + x]);
        }
    }
    let samples = if coded <= QUARTER { transform::<true>(columns) } else { transform::<false>(columns) };
    for (row, samples) in out.chunks_mut(stride).zip(samples) {
        row[..SIDE].copy_from_slice(&samples);
    }
}

/// Both passes. With `LOW`, the four higher frequencies are zero in either direction.
#[inline(always)]
fn transform<const LOW: bool>(mut columns: [Words; SIDE]) -> Samples {
    let dc_only = columns[1..].iter().flatten().fold(0, |any, &word| any | word) == 0;
    if dc_only {
        // An overflow here wraps.
        let mut dc = columns[0];
        for word in &mut dc {
            *word <<= COLUMN_BITS;
        }
        columns = [dc; SIDE];
    } else {
        let passed = pass::<LOW>(&columns);
        for (words, longs) in columns.iter_mut().zip(&passed) {
            *words = narrow(longs, FACTOR_BITS - COLUMN_BITS);
        }
    }
    let passed = pass::<LOW>(&transpose(columns));
    let mut samples = [[0; SIDE]; SIDE];
    for (samples, longs) in samples.iter_mut().zip(&passed) {
        for (out, &long) in samples.iter_mut().zip(longs) {
            *out = sample(descale(long, FACTOR_BITS + COLUMN_BITS + 3));
        }
    }
    transpose_samples(samples)
}

/// One pass along the outer axis. The results have [`FACTOR_BITS`] more fractional bits.
#[inline(always)]
fn pass<const LOW: bool>(rows: &[Words; SIDE]) -> [Longs; SIDE] {
    let zero = [0; SIDE];
    let [in0, in1, in2, in3, ..] = rows.map(|row| row);
    let [in4, in5, in6, in7] = if LOW { [zero; 4] } else { [rows[4], rows[5], rows[6], rows[7]] };
    let mut out = [[0; SIDE]; SIDE];
    for at in 0..SIDE {
        // Sums of two still have 16 bits.
        let wide = i32::from;
        let (z2, z3) = (wide(in2[at]), wide(in6[at]));
        let even = [
            wide(in0[at].wrapping_add(in4[at])) << FACTOR_BITS,
            wide(in0[at].wrapping_sub(in4[at])) << FACTOR_BITS,
            z2 * F_0_541 + z3 * (F_0_541 - F_1_847),
            z2 * (F_0_541 + F_0_765) + z3 * F_0_541,
        ];
        let tmp10 = even[0].wrapping_add(even[3]);
        let tmp13 = even[0].wrapping_sub(even[3]);
        let tmp11 = even[1].wrapping_add(even[2]);
        let tmp12 = even[1].wrapping_sub(even[2]);

        let (a3, a4) = (wide(in7[at].wrapping_add(in3[at])), wide(in5[at].wrapping_add(in1[at])));
        let z3 = (a3 * (F_1_175 - F_1_961)).wrapping_add(a4 * F_1_175);
        let z4 = (a3 * F_1_175).wrapping_add(a4 * (F_1_175 - F_0_390));
        let (i7, i5, i3, i1) = (wide(in7[at]), wide(in5[at]), wide(in3[at]), wide(in1[at]));
        let tmp0 = (i7 * (F_0_298 - F_0_899)).wrapping_sub(i1 * F_0_899).wrapping_add(z3);
        let tmp1 = (i5 * (F_2_053 - F_2_562)).wrapping_sub(i3 * F_2_562).wrapping_add(z4);
        let tmp2 = (i3 * (F_3_072 - F_2_562)).wrapping_sub(i5 * F_2_562).wrapping_add(z3);
        let tmp3 = (i1 * (F_1_501 - F_0_899)).wrapping_sub(i7 * F_0_899).wrapping_add(z4);

        out[0][at] = tmp10.wrapping_add(tmp3);
        out[7][at] = tmp10.wrapping_sub(tmp3);
        out[1][at] = tmp11.wrapping_add(tmp2);
        out[6][at] = tmp11.wrapping_sub(tmp2);
        out[2][at] = tmp12.wrapping_add(tmp1);
        out[5][at] = tmp12.wrapping_sub(tmp1);
        out[3][at] = tmp13.wrapping_add(tmp0);
        out[4][at] = tmp13.wrapping_sub(tmp0);
    }
    out
}

/// Drops `bits` fractional bits, rounding half up.
#[inline(always)]
pub(super) fn descale(long: i32, bits: u32) -> i32 {
    long.wrapping_add(1 << (bits - 1)) >> bits
}

#[inline(always)]
pub(super) fn narrow(longs: &Longs, bits: u32) -> Words {
    let mut words = [0; SIDE];
    for (word, &long) in words.iter_mut().zip(longs) {
        let cut = descale(long, bits).clamp(i16::MIN.into(), i16::MAX.into());
        #[expect(clippy::cast_possible_truncation, reason = "just clamped to this")]
        let narrowed = cut as i16;
        *word = narrowed;
    }
    words
}

#[inline(always)]
pub(super) fn sample(level: i32) -> u8 {
    (level + 128).clamp(0, 255) as u8
}

/// Transposes rows and columns by swapping ever larger parts of rows, which takes only shifts and masks.
#[inline(always)]
pub(super) fn transpose(rows: [Words; SIDE]) -> [Words; SIDE] {
    let mut twos: [[u32; 4]; SIDE] = bytemuck::cast(rows);
    for at in [0, 2, 4, 6] {
        let (upper, lower) = (twos[at], twos[at + 1]);
        for lane in 0..4 {
            twos[at][lane] = upper[lane] & 0xffff | lower[lane] << 16;
            twos[at + 1][lane] = upper[lane] >> 16 | lower[lane] & 0xffff_0000;
        }
    }
    let mut fours: [[u64; 2]; SIDE] = bytemuck::cast(twos);
    for at in [0, 1, 4, 5] {
        let (upper, lower) = (fours[at], fours[at + 2]);
        for lane in 0..2 {
            fours[at][lane] = upper[lane] & 0xffff_ffff | lower[lane] << 32;
            fours[at + 2][lane] = upper[lane] >> 32 | lower[lane] & 0xffff_ffff_0000_0000;
        }
    }
    for at in 0..4 {
        let (upper, lower) = (fours[at], fours[at + 4]);
        fours[at] = [upper[0], lower[0]];
        fours[at + 4] = [upper[1], lower[1]];
    }
    bytemuck::cast(fours)
}

/// The same for bytes, with each row as one integer.
#[inline(always)]
pub(super) fn transpose_samples(rows: Samples) -> Samples {
    let mut rows = rows.map(u64::from_le_bytes);
    for (step, mask) in
        [(1, 0x00ff_00ff_00ff_00ff), (2, 0x0000_ffff_0000_ffff), (4, 0x0000_0000_ffff_ffffu64)]
    {
        for at in (0..SIDE).filter(|at| at & step == 0) {
            let (upper, lower, shift) = (rows[at], rows[at + step], 8 * step);
            rows[at] = upper & mask | (lower & mask) << shift;
            rows[at + step] = upper >> shift & mask | lower & !mask;
        }
    }
    rows.map(u64::to_le_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::jpeg::quantize::ZIGZAG;
    use crate::jpeg::scan::COEFFICIENTS;
    use crate::simd::{InstructionSet, Kernel};
    use proptest::prelude::*;

    /// The transform of eight numbers, in integers that never overflow.
    fn line(input: [i64; 8], bits: u32) -> [i64; 8] {
        let [f0, f1, f2, f3, f4, f5] = [F_0_298, F_0_390, F_0_541, F_0_765, F_0_899, F_1_175].map(i64::from);
        let [g0, g1, g2, g3, g4, g5] = [F_1_501, F_1_847, F_1_961, F_2_053, F_2_562, F_3_072].map(i64::from);
        let z1 = (input[2] + input[6]) * f2;
        let (even2, even3) = (z1 - input[6] * g1, z1 + input[2] * f3);
        let (even0, even1) = ((input[0] + input[4]) << FACTOR_BITS, (input[0] - input[4]) << FACTOR_BITS);
        let evens = [even0 + even3, even1 + even2, even1 - even2, even0 - even3];
        let z5 = (input[7] + input[3] + input[5] + input[1]) * f5;
        let z1 = -(input[7] + input[1]) * f4;
        let z2 = -(input[5] + input[3]) * g4;
        let z3 = -(input[7] + input[3]) * g2 + z5;
        let z4 = -(input[5] + input[1]) * f1 + z5;
        let odds = [
            input[1] * g0 + z1 + z4,
            input[3] * g5 + z2 + z3,
            input[5] * g3 + z2 + z4,
            input[7] * f0 + z1 + z3,
        ];
        let mut out = [0; 8];
        for at in 0..4 {
            out[at] = (evens[at] + odds[at] + (1 << (bits - 1))) >> bits;
            out[7 - at] = (evens[at] - odds[at] + (1 << (bits - 1))) >> bits;
        }
        out
    }

    /// Columns, then rows, one number at a time.
    fn naive(block: &Block, steps: &Block) -> [u8; COEFFICIENTS] {
        let mut columns = [[0; 8]; 8];
        for x in 0..8 {
            let column =
                [0, 1, 2, 3, 4, 5, 6, 7].map(|y| i64::from(block[8 * y + x]) * i64::from(steps[8 * y + x]));
            columns[x] = line(column, 11);
        }
        let mut out = [0; COEFFICIENTS];
        for y in 0..8 {
            let row = line([0, 1, 2, 3, 4, 5, 6, 7].map(|x| columns[x][y]), 18);
            for x in 0..8 {
                out[8 * y + x] = u8::try_from((row[x] + 128).clamp(0, 255)).unwrap();
            }
        }
        out
    }

    struct Job<'a>([&'a Block; 2], usize, &'a mut [u8], usize);

    impl Kernel for Job<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            inverse(self.0[0], self.0[1], self.1, self.2, self.3);
        }
    }

    /// A block of these coefficients, in order of frequency, and its quantization steps.
    pub(in crate::jpeg) fn block(lowest: &[i16], mean: i16, step: i16) -> [Block; 2] {
        let (mut block, mut steps) = ([0; COEFFICIENTS], [step; COEFFICIENTS]);
        for (&at, &level) in ZIGZAG.iter().zip(lowest) {
            block[usize::from(at)] = level;
            steps[usize::from(at)] += i16::from(at % 5);
        }
        block[0] = mean;
        [block, steps]
    }

    proptest! {
        #[test]
        fn matches_naive(
            lowest in prop::collection::vec(-40..40i16, 0..=COEFFICIENTS),
            few in prop_oneof![Just(COEFFICIENTS), 0..12usize],
            step in 1..4i16,
            mean in -300..300i16,
            stride in 8..20usize,
        ) {
            let lowest = &lowest[..lowest.len().min(few)];
            let [block, steps] = block(lowest, mean, step);
            let mut out = vec![1; 7 * stride + 8];
            InstructionSet::widest().run(Job([&block, &steps], lowest.len().max(1), &mut out, stride));
            let wanted = naive(&block, &steps);
            for (row, wanted) in out.chunks(stride).zip(wanted.chunks(SIDE)) {
                prop_assert_eq!(&row[..SIDE], wanted);
                prop_assert!(row[SIDE..].iter().all(|&byte| byte == 1), "a byte outside the block");
            }
        }

        #[test]
        fn transposition_swaps_rows_and_columns(rows in any::<[Words; SIDE]>(), bytes in any::<Samples>()) {
            let (turned, turned_bytes) = (transpose(rows), transpose_samples(bytes));
            for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
                prop_assert_eq!(turned[x][y], rows[y][x]);
                prop_assert_eq!(turned_bytes[x][y], bytes[y][x]);
            }
        }
    }

    /// Coefficients that no encoder makes: nothing panics, all instruction sets yield the same samples, and
    /// those without overflow equal the naive ones.
    #[test]
    fn any_coefficients_are_transformed() {
        for level in [i16::MIN, -1, 1, i16::MAX] {
            for coded in [1, QUARTER, COEFFICIENTS] {
                let mut block = [0; COEFFICIENTS];
                for &at in &ZIGZAG[..coded] {
                    block[usize::from(at)] = level;
                }
                let steps = [level; COEFFICIENTS];
                let [mut plain, mut dispatched] = [[7; COEFFICIENTS]; 2];
                inverse(&block, &steps, coded, &mut plain, SIDE);
                InstructionSet::widest().run(Job([&block, &steps], coded, &mut dispatched, SIDE));
                assert_eq!(plain, dispatched, "{coded} of {level}");
                if level.abs_diff(0) == 1 {
                    assert_eq!(plain, naive(&block, &steps), "{coded} of {level}");
                }
                if coded == 1 {
                    assert_eq!(plain, [plain[0]; COEFFICIENTS], "a DC alone is flat: {level}");
                }
            }
        }
    }
}
