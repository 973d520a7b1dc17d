//! Rounds f32 to 16-bit floats, to nearest even, in branchless integer arithmetic. The compiler turns this
//! into vector instructions on every processor, with or without hardware support for halves. The bits equal
//! those of the crate `half`, including NaNs.

use bytemuck::Pod;
use half::{bf16, f16};

/// A float type that f32 are rounded to.
pub(super) trait Float: Pod {
    /// Rounds to nearest, ties to even.
    fn round(value: f32) -> Self;

    /// Rounds each value.
    #[inline(always)]
    fn round_all<const N: usize>(values: [f32; N]) -> [Self; N] {
        // Not a closure, which would be compiled for the baseline.
        let mut rounded = [Self::zeroed(); N];
        for i in 0..N {
            rounded[i] = Self::round(values[i]);
        }
        rounded
    }
}

impl Float for f32 {
    #[inline(always)]
    fn round(value: f32) -> f32 {
        value
    }
}

impl Float for f16 {
    #[inline(always)]
    fn round(value: f32) -> f16 {
        f16::from_bits(f16_bits(value.to_bits()))
    }
}

impl Float for bf16 {
    #[inline(always)]
    fn round(value: f32) -> bf16 {
        bf16::from_bits(bf16_bits(value.to_bits()))
    }
}

const INFINITE: u32 = 0x7f80_0000;
/// The position of an f32's exponent, and its bias minus a half's.
const EXPONENT_BIT: u32 = 23;
const BIAS: u32 = 127 - 15;
/// The mantissa bits that a half has no room for.
const LOST_BITS: u32 = 13;
/// From the first value on, a float is too large for a half, even rounded. Below the second it is subnormal
/// as a half.
const TOO_LARGE: u32 = (127 + 16) << EXPONENT_BIT;
const SUBNORMAL: u32 = (127 - 14) << EXPONENT_BIT;
/// A half's infinity, and the bit that makes a NaN quiet.
const HALF_INFINITE: u32 = 0x7c00;
const HALF_QUIET: u32 = 0x0200;

#[inline(always)]
fn f16_bits(bits: u32) -> u16 {
    let magnitude = bits & !(1 << 31);
    // Add half a unit of the last kept place, or one less if that place is even: a carry rounds up, to
    // infinity at most.
    let odd = (magnitude >> LOST_BITS) & 1;
    let half_of_lost = (1 << (LOST_BITS - 1)) - 1;
    let normal = magnitude.wrapping_sub(BIAS << EXPONENT_BIT).wrapping_add(half_of_lost + odd) >> LOST_BITS;
    // Below its normal numbers a half has a constant spacing, which is that of an f32 from 0.5 on. So adding
    // 0.5 rounds to the steps of a half.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let nan = HALF_INFINITE | HALF_QUIET | (magnitude >> LOST_BITS);
    let large = if magnitude > INFINITE { nan } else { HALF_INFINITE };
    let small = if magnitude < SUBNORMAL { subnormal } else { normal };
    let rounded = if magnitude >= TOO_LARGE { large } else { small };
    low_half((bits >> 16) & 0x8000 | rounded & 0x7fff)
}

#[inline(always)]
fn bf16_bits(bits: u32) -> u16 {
    let odd = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + odd) >> 16;
    let nan = (bits >> 16) | 0x0040;
    low_half(if bits & !(1 << 31) > INFINITE { nan } else { rounded })
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is none of the result")]
fn low_half(bits: u32) -> u16 {
    bits as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(bits: u32) {
        let value = f32::from_bits(bits);
        assert_eq!(f16::round(value).to_bits(), f16::from_f32_const(value).to_bits(), "{bits:#010x} to f16");
        assert_eq!(
            bf16::round(value).to_bits(),
            bf16::from_f32_const(value).to_bits(),
            "{bits:#010x} to bf16"
        );
    }

    #[test]
    fn every_number_of_16_bits_and_what_lies_beside_it_and_between_two_is_rounded_as_half_does() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 97 } else { 1 }) {
            for value in [f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()] {
                for middle in [0, 1 << (LOST_BITS - 1), 1 << 15] {
                    for beside in [-1_i32, 0, 1] {
                        compare(value.to_bits().wrapping_add(middle).wrapping_add_signed(beside));
                    }
                }
            }
        }
    }

    #[test]
    fn any_bits_are_rounded_as_half_does() {
        let mut bits = 1_u32;
        for _ in 0..if cfg!(miri) { 3_000 } else { 3_000_000 } {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            compare(bits ^ (bits >> 15));
        }
        let values = [0.1, -70_000.0, f32::NAN, 1e-7, 65_519.9, 65_520.0];
        assert_eq!(
            f16::round_all(values).map(f16::to_bits),
            values.map(|value| f16::from_f32_const(value).to_bits())
        );
    }
}
