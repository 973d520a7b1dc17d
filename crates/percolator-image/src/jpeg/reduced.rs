//! The inverse transform to fewer samples: from a block of eight by eight to four, two or one on a side.
//!
//! ```text
//! for each coefficient column: columns[..][x] = round(transform(coefficients[..][x] * steps[..][x]) * 4)
//! for each row of these:       samples[y][..] = clamp(round(transform(columns[y][..]) / 32) + 128, 0..=255)
//! ```
//!
//! `transform` yields as many numbers as there will be samples. Each is the mean of those of the full
//! transform that it replaces. Some frequencies contribute nothing to these means and are ignored: the fifth
//! for four samples; for two, all even ones but the DC. The factors and the roundings are those of libjpeg's
//! reduced integer transforms. The integer widths are those of libjpeg-turbo's vector code, as in `idct`. The
//! transform to one sample has no vector code there. In its C code, a value far outside the range of a byte
//! wraps before it is clamped.

use super::idct::{
    COLUMN_BITS, FACTOR_BITS, Longs, SIDE, Words, descale, factor, narrow, sample, transpose,
    transpose_samples,
};
use super::quantize::Block;

const F_0_211: i32 = factor(0.211_164_243);
const F_0_509: i32 = factor(0.509_795_579);
const F_0_601: i32 = factor(0.601_344_887);
const F_0_720: i32 = factor(0.720_959_822);
const F_0_765: i32 = factor(0.765_366_865);
const F_0_850: i32 = factor(0.850_430_095);
const F_0_899: i32 = factor(0.899_976_223);
const F_1_061: i32 = factor(1.061_594_337);
const F_1_272: i32 = factor(1.272_758_580);
const F_1_451: i32 = factor(1.451_774_981);
const F_1_847: i32 = factor(1.847_759_065);
const F_2_172: i32 = factor(2.172_734_803);
const F_2_562: i32 = factor(2.562_915_447);
const F_3_624: i32 = factor(3.624_509_785);

/// Writes the `side` rows of `side` samples of a block, 4, 2 or 1, to the rows of `out`, which are `stride`
/// apart. `coded` is greater than the index, in order of frequency, of every nonzero coefficient.
#[inline(always)]
pub(super) fn inverse(
    side: usize,
    block: &Block,
    steps: &Block,
    coded: usize,
    out: &mut [u8],
    stride: usize,
) {
    match side {
        4 if coded <= 1 => fill::<4>(four_of_dc(block, steps), out, stride),
        4 => write(four(block, steps), out, stride),
        2 if coded <= 1 => fill::<2>(two_of_dc(block, steps), out, stride),
        2 => write(two(block, steps), out, stride),
        _ => out[0] = one(block, steps),
    }
}

#[inline(always)]
fn fill<const SAMPLES: usize>(sample: u8, out: &mut [u8], stride: usize) {
    write([[sample; SAMPLES]; SAMPLES], out, stride);
}

#[inline(always)]
fn write<const SAMPLES: usize>(samples: [[u8; SAMPLES]; SAMPLES], out: &mut [u8], stride: usize) {
    for (row, samples) in out.chunks_mut(stride).zip(samples) {
        row[..SAMPLES].copy_from_slice(&samples);
    }
}

/// The coefficients, multiplied by their quantization steps.
#[inline(always)]
fn scale(block: &Block, steps: &Block) -> [Words; SIDE] {
    let mut rows = [[0; SIDE]; SIDE];
    for y in 0..SIDE {
        for x in 0..SIDE {
            rows[y][x] = block[SIDE * y + x].wrapping_mul(steps[SIDE * y + x]);
        }
    }
    rows
}

#[inline(always)]
fn four_of_dc(block: &Block, steps: &Block) -> u8 {
    let mean = block[0].wrapping_mul(steps[0]) << COLUMN_BITS;
    sample(descale(i32::from(mean) << (FACTOR_BITS + 1), FACTOR_BITS + COLUMN_BITS + 4))
}

#[inline(always)]
fn four(block: &Block, steps: &Block) -> [[u8; 4]; 4] {
    let dc_only =
        block[SIDE..4 * SIDE].iter().chain(&block[5 * SIDE..]).fold(0, |any, &word| any | word) == 0;
    let rows = scale(block, steps);
    let mut columns = [[0; SIDE]; SIDE];
    if dc_only {
        // An overflow here wraps.
        let mut dc = rows[0];
        for word in &mut dc {
            *word <<= COLUMN_BITS;
        }
        columns[..4].fill(dc);
    } else {
        for (words, longs) in columns.iter_mut().zip(&four_pass(&rows)) {
            *words = narrow(longs, FACTOR_BITS - COLUMN_BITS + 1);
        }
    }
    // Half of each vector is unused, which costs less than building shorter ones.
    let passed = four_pass(&transpose(columns));
    let mut samples = [[0; SIDE]; SIDE];
    for (samples, longs) in samples.iter_mut().zip(&passed) {
        for (out, &long) in samples.iter_mut().zip(longs) {
            *out = sample(descale(long, FACTOR_BITS + COLUMN_BITS + 4));
        }
    }
    let [row0, row1, row2, row3, ..] = transpose_samples(samples);
    [row0, row1, row2, row3].map(|[at0, at1, at2, at3, ..]| [at0, at1, at2, at3])
}

/// One pass along the outer axis, without the fifth frequency. The results have [`FACTOR_BITS`] + 1 more
/// fractional bits.
#[inline(always)]
fn four_pass(rows: &[Words; SIDE]) -> [Longs; 4] {
    let [in0, in1, in2, in3, _, in5, in6, in7] = rows.map(|row| row);
    let mut out = [[0; SIDE]; 4];
    for at in 0..SIDE {
        let wide = i32::from;
        let (mean, even) =
            (wide(in0[at]) << (FACTOR_BITS + 1), wide(in2[at]) * F_1_847 - wide(in6[at]) * F_0_765);
        let (even0, even1) = (mean.wrapping_add(even), mean.wrapping_sub(even));
        let (i1, i3, i5, i7) = (wide(in1[at]), wide(in3[at]), wide(in5[at]), wide(in7[at]));
        let odd0 = (i1 * F_2_562 + i3 * F_0_899).wrapping_sub(i5 * F_0_601 + i7 * F_0_509);
        let odd1 = (i1 * F_1_061 - i3 * F_2_172).wrapping_add(i5 * F_1_451 - i7 * F_0_211);
        out[0][at] = even0.wrapping_add(odd0);
        out[3][at] = even0.wrapping_sub(odd0);
        out[1][at] = even1.wrapping_add(odd1);
        out[2][at] = even1.wrapping_sub(odd1);
    }
    out
}

#[inline(always)]
fn two_of_dc(block: &Block, steps: &Block) -> u8 {
    let mean = i32::from(block[0].wrapping_mul(steps[0])) << COLUMN_BITS;
    sample(descale(mean << (FACTOR_BITS + 2), FACTOR_BITS + COLUMN_BITS + 5))
}

#[inline(always)]
fn two(block: &Block, steps: &Block) -> [[u8; 2]; 2] {
    let [in0, in1, _, in3, _, in5, _, in7] = scale(block, steps);
    let mut columns = [[0; SIDE]; 2];
    for at in 0..SIDE {
        let mean = i32::from(in0[at]) << (FACTOR_BITS + 2);
        let odd = two_odd(in1[at], in3[at], in5[at], in7[at]);
        columns[0][at] = mean.wrapping_add(odd);
        columns[1][at] = mean.wrapping_sub(odd);
    }
    columns.map(|longs| {
        let bits = FACTOR_BITS - COLUMN_BITS + 2;
        let words = narrow(&longs, bits);
        // The DC is not narrowed, but its upper bits are shifted out.
        let mean = descale(longs[0], bits) << (FACTOR_BITS + 2);
        let odd = two_odd(words[1], words[3], words[5], words[7]);
        [mean.wrapping_add(odd), mean.wrapping_sub(odd)]
            .map(|long| sample(descale(long, FACTOR_BITS + COLUMN_BITS + 5)))
    })
}

/// How much the first of two numbers exceeds their mean, from the odd frequencies.
#[inline(always)]
fn two_odd(in1: i16, in3: i16, in5: i16, in7: i16) -> i32 {
    let wide = i32::from;
    (wide(in1) * F_3_624 - wide(in3) * F_1_272).wrapping_add(wide(in5) * F_0_850 - wide(in7) * F_0_720)
}

#[inline(always)]
fn one(block: &Block, steps: &Block) -> u8 {
    let level = descale(i32::from(block[0]) * i32::from(steps[0]), 3);
    // Keeps 10 bits: two more than a sample has, one of them the sign.
    sample(level << 22 >> 22)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpeg::idct::tests::block;
    use crate::jpeg::quantize::ZIGZAG;
    use crate::jpeg::scan::COEFFICIENTS;
    use crate::simd::{InstructionSet, Kernel};
    use proptest::prelude::*;

    /// The factor of each frequency of a line in each of its numbers. The second half mirrors the first, with
    /// the opposite sign for odd frequencies.
    fn factors(side: usize) -> Vec<[i64; 8]> {
        let one = 1 << FACTOR_BITS;
        let half = if side == 4 {
            vec![
                [2 * one, F_2_562, F_1_847, F_0_899, 0, -F_0_601, -F_0_765, -F_0_509],
                [2 * one, F_1_061, -F_1_847, -F_2_172, 0, F_1_451, F_0_765, -F_0_211],
            ]
        } else {
            vec![[4 * one, F_3_624, 0, -F_1_272, 0, F_0_850, 0, -F_0_720]]
        };
        let mirrored = half.iter().rev().map(|row| {
            let mut row = *row;
            row.iter_mut().skip(1).step_by(2).for_each(|factor| *factor = -*factor);
            row
        });
        half.iter().copied().chain(mirrored).map(|row| row.map(i64::from)).collect()
    }

    /// Columns, then rows, one number at a time, in integers that never overflow.
    fn naive(side: usize, block: &Block, steps: &Block) -> Vec<u8> {
        let coefficient = |y: usize, x: usize| i64::from(block[8 * y + x]) * i64::from(steps[8 * y + x]);
        let cut = |level: i64| u8::try_from((level + 128).clamp(0, 255)).unwrap();
        if side == 1 {
            return vec![cut((coefficient(0, 0) + 4) >> 3)];
        }
        let rounded = |sum: i64, bits: u32| (sum + (1 << (bits - 1))) >> bits;
        let (factors, more) = (factors(side), side.ilog2());
        let mut out = Vec::new();
        for y in 0..side {
            let column = |x: usize| {
                let sum = (0..8).map(|at| factors[y][at] * coefficient(at, x)).sum();
                rounded(sum, FACTOR_BITS - COLUMN_BITS + 3 - more)
            };
            let columns: Vec<i64> = (0..8).map(column).collect();
            for factors in &factors {
                let sum = factors.iter().zip(&columns).map(|(factor, column)| factor * column).sum();
                out.push(cut(rounded(sum, FACTOR_BITS + COLUMN_BITS + 6 - more)));
            }
        }
        out
    }

    /// The samples of the block in floating point, averaged over each group that becomes one sample.
    fn exact(side: usize, block: &Block, steps: &Block) -> Vec<f64> {
        let basis = |frequency: usize, at: usize| {
            let angle = (2 * at + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0;
            angle.cos() * if frequency == 0 { 0.5f64.sqrt() } else { 1.0 } / 2.0
        };
        let sample = |y: usize, x: usize| -> f64 {
            let part = |at: usize| {
                let level = f64::from(block[at]) * f64::from(steps[at]);
                level * basis(at / 8, y) * basis(at % 8, x)
            };
            (0..COEFFICIENTS).map(part).sum()
        };
        let step = 8 / side;
        let mean = |y: usize, x: usize| {
            let sum: f64 =
                (0..step * step).map(|at| sample(step * y + at / step, step * x + at % step)).sum();
            (sum / (step * step) as f64 + 128.0).clamp(0.0, 255.0)
        };
        (0..side * side).map(|at| mean(at / side, at % side)).collect()
    }

    struct Job<'a>(usize, [&'a Block; 2], usize, &'a mut [u8], usize);

    impl Kernel for Job<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            inverse(self.0, self.1[0], self.1[1], self.2, self.3, self.4);
        }
    }

    proptest! {
        #[test]
        fn matches_naive(
            lowest in prop::collection::vec(-40..40i16, 0..=COEFFICIENTS),
            few in prop_oneof![Just(COEFFICIENTS), 0..12usize],
            step in 1..4i16,
            mean in -300..300i16,
            side in prop::sample::select(vec![4, 2, 1usize]),
            stride in 4..20usize,
        ) {
            let lowest = &lowest[..lowest.len().min(few)];
            let [block, steps] = block(lowest, mean, step);
            let mut out = vec![1; (side - 1) * stride + side];
            let job = Job(side, [&block, &steps], lowest.len().max(1), &mut out, stride);
            InstructionSet::widest().run(job);
            let wanted = naive(side, &block, &steps);
            for (row, wanted) in out.chunks(stride).zip(wanted.chunks(side)) {
                prop_assert_eq!(&row[..side], wanted);
                prop_assert!(row[side..].iter().all(|&byte| byte == 1), "a byte outside the block");
            }
        }

        #[test]
        fn a_sample_is_the_mean_of_those_it_replaces(
            lowest in prop::collection::vec(-40..40i16, 0..=COEFFICIENTS),
            mean in -300..300i16,
            side in prop::sample::select(vec![4, 2, 1usize]),
        ) {
            let [block, steps] = block(&lowest, mean, 3);
            let mut out = vec![0; side * side];
            inverse(side, &block, &steps, COEFFICIENTS, &mut out, side);
            for (&found, wanted) in out.iter().zip(exact(side, &block, &steps)) {
                prop_assert!((f64::from(found) - wanted).abs() < 1.0, "{} for {}", found, wanted);
            }
        }
    }

    /// Coefficients that no encoder makes do not cause a panic.
    #[test]
    fn any_coefficients_are_transformed() {
        for (side, level) in
            [4, 2, 1].into_iter().flat_map(|side| [i16::MIN, -1, 1, i16::MAX].map(|level| (side, level)))
        {
            for (coded, step) in [(1, i16::MIN), (10, i16::MAX), (COEFFICIENTS, level)] {
                let mut block = [0; COEFFICIENTS];
                for &at in &ZIGZAG[..coded] {
                    block[usize::from(at)] = level;
                }
                inverse(side, &block, &[step; COEFFICIENTS], coded, &mut [0; 16], side);
            }
        }
    }
}
