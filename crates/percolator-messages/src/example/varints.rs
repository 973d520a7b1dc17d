//! Packed integers, many at a time.
//!
//! In pseudocode:
//!
//! ```text
//! while there is room and bytes are left:
//!     take the bytes up to the first one below 128, each with seven bits of the value, the lowest first
//! ```
//!
//! Eight bytes are handled together: their top bits show where values end, and three shifts move the low
//! seven bits of the bytes next to each other. So the time does not depend on the sequence of lengths, which
//! no processor can predict. Values of one byte each are read eight at a time, others two at a time.

#![deny(clippy::indexing_slicing)]

use bytemuck::Pod;
use half::{bf16, f16};

use crate::wire::varint;

/// The top bit of each byte.
const TOPS: u64 = 0x8080_8080_8080_8080;

/// A type that a list's integers can be read as.
pub trait Integer: Pod {
    /// The value, if the type has it.
    fn of(value: i64) -> Option<Self>;
    /// A value below 128, which every type has.
    fn small(value: u8) -> Self;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Integer for $integer {
            #[inline]
            fn of(value: i64) -> Option<Self> {
                value.try_into().ok()
            }

            #[inline]
            fn small(value: u8) -> Self {
                value as $integer
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// A type that a list's floats can be read as.
pub trait Float: Pod {
    /// The nearest value of the type.
    fn of(value: f32) -> Self;
}

impl Float for f32 {
    #[inline]
    fn of(value: f32) -> Self {
        value
    }
}

impl Float for f64 {
    #[inline]
    fn of(value: f32) -> Self {
        value.into()
    }
}

impl Float for f16 {
    #[inline]
    fn of(value: f32) -> Self {
        f16::from_f32(value)
    }
}

impl Float for bf16 {
    #[inline]
    fn of(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

/// Why integers were not read to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// They were read to the end.
    End,
    /// There is no more room.
    Full,
    /// The next one does not end, or has more than 64 bits.
    Varint,
    /// The next one, given here, is not a value of the type.
    Range(i64),
}

/// How far integers were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// The number of values.
    pub(super) values: usize,
    /// The bytes they take.
    pub(super) bytes: usize,
    pub(super) stop: Stop,
}

/// Reads integers as long as there is room for them.
#[inline]
pub(super) fn unpack<T: Integer>(packed: &[u8], out: &mut [T]) -> Unpacked {
    let (mut bytes, mut values) = (0, 0);
    while let Some(eight) = packed.get(bytes..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        let ends = !word & TOPS;
        let room = out.get_mut(values..).unwrap_or_default();
        if ends == TOPS
            && let Some(room) = room.first_chunk_mut::<8>()
        {
            room.iter_mut().zip(eight).for_each(|(to, &byte)| *to = T::small(byte));
            (bytes, values) = (bytes + 8, values + 8);
            continue;
        }
        // Two values at a time, if both end in these eight bytes: the next round can start before their
        // values are known.
        let later = ends & ends.wrapping_sub(1);
        let (middle, end) = (ends.trailing_zeros() + 1, later.trailing_zeros() + 1);
        if later != 0
            && let Some([first, second]) = room.first_chunk_mut()
            && let (Some(one), Some(other)) =
                (T::of(between(word, 0, middle)), T::of(between(word, middle, end)))
        {
            (*first, *second) = (one, other);
            (bytes, values) = (bytes + (end / 8) as usize, values + 2);
            continue;
        }
        if ends != 0
            && let Some(first) = room.first_mut()
            && let Some(value) = T::of(between(word, 0, middle))
        {
            *first = value;
            (bytes, values) = (bytes + (middle / 8) as usize, values + 1);
            continue;
        }
        // A value of more than eight bytes, or one that does not fit.
        match one(packed, bytes, room.first_mut()) {
            Ok(taken) => (bytes, values) = (bytes + taken, values + 1),
            Err(stop) => return Unpacked { values, bytes, stop },
        }
    }
    // The last bytes, one value at a time.
    loop {
        match one(packed, bytes, out.get_mut(values)) {
            Ok(taken) => (bytes, values) = (bytes + taken, values + 1),
            Err(stop) => return Unpacked { values, bytes, stop },
        }
    }
}

/// The value whose bytes are the bits from `start` to `end`, which is at most 64.
#[inline]
fn between(word: u64, start: u32, end: u32) -> i64 {
    let above = u64::BITS - end;
    joined((word << above) >> (above + start)).cast_signed()
}

/// Moves the low seven bits of each byte next to each other.
#[inline]
fn joined(bytes: u64) -> u64 {
    let sevens = bytes & 0x7f7f_7f7f_7f7f_7f7f;
    let of_14 = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let of_28 = (of_14 & 0x0000_3fff_0000_3fff) | (of_14 & 0x3fff_0000_3fff_0000) >> 2;
    (of_28 & 0x0fff_ffff) | (of_28 & 0x0fff_ffff_0000_0000) >> 4
}

/// Reads the value that starts at byte `at`, and returns the bytes that it takes.
fn one<T: Integer>(packed: &[u8], at: usize, to: Option<&mut T>) -> Result<usize, Stop> {
    let rest = packed.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return Err(Stop::End);
    }
    let to = to.ok_or(Stop::Full)?;
    let (value, taken) = varint(rest).ok_or(Stop::Varint)?;
    let value = value.cast_signed();
    *to = T::of(value).ok_or(Stop::Range(value))?;
    Ok(taken)
}

/// Checks integers without keeping them. Returns their number, or the start of the first that does not end or
/// has more than 64 bits.
pub(super) fn check(packed: &[u8]) -> Result<usize, usize> {
    let (mut bytes, mut values) = (0, 0);
    while let Some(eight) = packed.get(bytes..).and_then(<[u8]>::first_chunk::<8>) {
        let ends = !u64::from_le_bytes(*eight) & TOPS;
        if ends == 0 {
            bytes += varint(packed.get(bytes..).unwrap_or_default()).ok_or(bytes)?.1;
            values += 1;
        } else {
            bytes += ((u64::BITS - ends.leading_zeros()) / 8) as usize;
            values += ends.count_ones() as usize;
        }
    }
    while let Some(rest) = packed.get(bytes..).filter(|rest| !rest.is_empty()) {
        bytes += varint(rest).ok_or(bytes)?.1;
        values += 1;
    }
    Ok(values)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Value by value, by the pseudocode.
    fn naive<T: Integer>(packed: &[u8], out: &mut [T]) -> Unpacked {
        let (mut bytes, mut values) = (0, 0);
        let stop = loop {
            let rest = &packed[bytes..];
            if rest.is_empty() {
                break Stop::End;
            }
            if values == out.len() {
                break Stop::Full;
            }
            let Some(last) = rest.iter().position(|&byte| byte < 0x80) else { break Stop::Varint };
            let wide = rest[..=last].iter().rev().try_fold(0_u128, |wide, byte| {
                wide.checked_mul(128).map(|wide| wide | u128::from(byte & 0x7f))
            });
            let Some(value) = wide.filter(|_| last < 10).and_then(|wide| u64::try_from(wide).ok()) else {
                break Stop::Varint;
            };
            let Some(value) = T::of(value.cast_signed()) else { break Stop::Range(value.cast_signed()) };
            out[values] = value;
            (bytes, values) = (bytes + last + 1, values + 1);
        };
        Unpacked { values, bytes, stop }
    }

    fn agrees<T: Integer + PartialEq + std::fmt::Debug>(
        packed: &[u8],
        room: usize,
    ) -> Result<(), TestCaseError> {
        let mut out = vec![T::small(7); room];
        let mut naively = out.clone();
        let unpacked = unpack(packed, &mut out);
        prop_assert_eq!(unpacked, naive(packed, &mut naively));
        prop_assert_eq!(&out[..unpacked.values], &naively[..unpacked.values]);
        Ok(())
    }

    /// Values of every length, and byte sequences that are not values.
    fn any_packed() -> impl Strategy<Value = Vec<u8>> {
        let value = prop_oneof![
            4 => (any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift),
            1 => 0..128_u64,
        ];
        let bytes = value.prop_map(|value| {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(value, &mut bytes);
            bytes
        });
        let padded = (0..8_usize).prop_map(|zeros| [vec![0x85; zeros], vec![0]].concat());
        let ones = vec(0..128_u8, 0..30);
        let whole =
            vec(prop_oneof![9 => bytes, 1 => padded, 1 => ones], 0..40).prop_map(|each| each.concat());
        prop_oneof![4 => whole, 1 => vec(any::<u8>(), 0..60), 1 => vec(0x70..=0xff_u8, 0..60)]
    }

    proptest! {
        #[test]
        fn integers_are_those_of_the_naive_way(packed in any_packed(), room in 0..50_usize) {
            agrees::<i64>(&packed, room)?;
            agrees::<u64>(&packed, room)?;
            agrees::<i32>(&packed, room)?;
            agrees::<u8>(&packed, room)?;
            agrees::<i8>(&packed, room)?;
        }

        #[test]
        fn a_check_finds_what_reading_finds(packed in any_packed()) {
            let mut out = vec![0_i64; packed.len()];
            let read = naive(&packed, &mut out);
            let found = match read.stop {
                Stop::End => Ok(read.values),
                _ => Err(read.bytes),
            };
            prop_assert_eq!(check(&packed), found);
        }
    }
}
