//! What an instruction computes.
//!
//! Every register is a slot of 64 bits, whose upper bits are 0 if the register is narrower; a predicate is 0
//! or 1. Constants and special registers have slots too, so an operand is always a slot.

pub(super) type Slot = u16;

/// An instruction with everything in its text resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    One {
        what: One,
        to: Slot,
        from: Slot,
    },
    Two {
        what: Two,
        to: Slot,
        from: [Slot; 2],
    },
    Three {
        what: Three,
        to: Slot,
        from: [Slot; 3],
    },
    /// `ld.param`: this many bytes of the block of parameters.
    Parameter {
        to: Slot,
        at: u32,
        bytes: u8,
    },
    Load {
        to: Slot,
        base: Slot,
        offset: u32,
        bytes: u8,
    },
    Store {
        from: Slot,
        base: Slot,
        offset: u32,
        bytes: u8,
    },
    /// `%globaltimer`.
    Time {
        to: Slot,
    },
    Branch {
        to: u32,
        when: Option<Slot>,
    },
    Return,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum One {
    /// Also widens 32 bits to 64, because a slot's upper bits are 0; and `cvta`, because addresses of global
    /// memory equal the generic ones.
    Same,
    Low32,
    Not32,
    F32OfU16,
    F16OfF32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Two {
    Add32,
    Add64,
    Sub32,
    Sub64,
    Mul32,
    Mul64,
    MulWide32,
    Div32,
    Rem32,
    And32,
    Or32,
    Shl64,
    Shr32,
    SubF32,
    MulF32,
    Eq,
    Ne,
    Lt,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Three {
    Mad32,
    Select,
    Bfe32,
}

impl One {
    pub(super) fn of(self, a: u64) -> u64 {
        match self {
            One::Same => a,
            One::Low32 => u64::from(low32(a)),
            One::Not32 => u64::from(!low32(a)),
            One::F32OfU16 => bits(f32::from(low16(a))),
            One::F16OfF32 => u64::from(f16_of(low32(a))),
        }
    }
}

impl Two {
    /// Whether its result is a predicate.
    pub(super) fn is_comparison(self) -> bool {
        matches!(self, Two::Eq | Two::Ne | Two::Lt | Two::Gt | Two::Ge)
    }

    pub(super) fn of(self, a: u64, b: u64) -> u64 {
        let (a32, b32) = (low32(a), low32(b));
        match self {
            Two::Add32 => u64::from(a32.wrapping_add(b32)),
            Two::Add64 => a.wrapping_add(b),
            Two::Sub32 => u64::from(a32.wrapping_sub(b32)),
            Two::Sub64 => a.wrapping_sub(b),
            Two::Mul32 => u64::from(a32.wrapping_mul(b32)),
            Two::Mul64 => a.wrapping_mul(b),
            Two::MulWide32 => u64::from(a32) * u64::from(b32),
            // PTX leaves a division by 0 undefined: here the quotient is all ones, and the remainder is the
            // dividend.
            Two::Div32 => u64::from(a32.checked_div(b32).unwrap_or(u32::MAX)),
            Two::Rem32 => u64::from(a32.checked_rem(b32).unwrap_or(a32)),
            Two::And32 => a & b,
            Two::Or32 => a | b,
            // A shift by the width or more gives 0.
            Two::Shl64 => a.checked_shl(b32).unwrap_or(0),
            Two::Shr32 => u64::from(a32.checked_shr(b32).unwrap_or(0)),
            Two::SubF32 => bits(f32::from_bits(a32) - f32::from_bits(b32)),
            Two::MulF32 => bits(f32::from_bits(a32) * f32::from_bits(b32)),
            Two::Eq => u64::from(a == b),
            Two::Ne => u64::from(a != b),
            Two::Lt => u64::from(a < b),
            Two::Gt => u64::from(a > b),
            Two::Ge => u64::from(a >= b),
        }
    }
}

impl Three {
    pub(super) fn of(self, a: u64, b: u64, c: u64) -> u64 {
        match self {
            Three::Mad32 => u64::from(low32(a).wrapping_mul(low32(b)).wrapping_add(low32(c))),
            Three::Select => {
                if c == 1 {
                    a
                } else {
                    b
                }
            }
            // Position and length have 8 bits; bits beyond the number are 0.
            Three::Bfe32 => {
                let moved = low32(a).checked_shr(low32(b) & 0xff).unwrap_or(0);
                let kept = 1_u32.checked_shl(low32(c) & 0xff).map_or(u32::MAX, |bit| bit - 1);
                u64::from(moved & kept)
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is what the instruction says")]
pub(super) fn low32(value: u64) -> u32 {
    value as u32
}

#[expect(clippy::cast_possible_truncation, reason = "it is what the instruction says")]
fn low16(value: u64) -> u16 {
    value as u16
}

fn bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// The nearest f16, to even on a tie. It uses integers, so that comparing with an independent rounding tests
/// both.
fn f16_of(bits: u32) -> u16 {
    let sign = low16(u64::from(bits >> 16)) & 0x8000;
    let size = bits & 0x7fff_ffff;
    if size > 0x7f80_0000 {
        // The one NaN that the instruction makes.
        return 0x7fff;
    }
    // From here on it is nearer to 65536 than to the largest number, or as near.
    if size >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    let exponent = size >> 23;
    // The fraction with its leading one, and how many of its bits are below the result's last.
    let (fraction, lost) = match exponent {
        113.. => (size - (112 << 23), 13),
        102..=112 => (size & 0x007f_ffff | 0x0080_0000, 126 - exponent),
        // Less than half of the smallest.
        _ => return sign,
    };
    let half = 1 << (lost - 1);
    let rest = fraction & ((1 << lost) - 1);
    let down = fraction >> lost;
    let up = u32::from(rest > half || (rest == half && down & 1 == 1));
    sign | low16(u64::from(down + up))
}
