//! The supported instructions, one line each. Those that access memory or jump are in `body`.

use super::steps::{One, Three, Two};

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Predicate,
    B16,
    B32,
    B64,
    F32,
}

impl Class {
    /// The class that a declaration names.
    pub(super) fn named(word: &str) -> Option<Class> {
        Some(match word {
            ".pred" => Class::Predicate,
            ".b16" => Class::B16,
            ".b32" => Class::B32,
            ".b64" => Class::B64,
            ".f32" => Class::F32,
            _ => return None,
        })
    }

    /// The width of a constant in its place, in bits; `None` if no constant is allowed.
    pub(super) fn constant_bits(self) -> Option<u32> {
        match self {
            Class::B32 => Some(32),
            Class::B64 => Some(64),
            Class::Predicate | Class::B16 | Class::F32 => None,
        }
    }

    /// Whether it may hold a loaded or stored element of this size: also in a wider register, if it is an
    /// unsigned number.
    pub(super) fn holds(self, element: Element) -> bool {
        match self {
            Class::Predicate => false,
            Class::F32 => element.is_float,
            Class::B16 => !element.is_float && element.bytes <= 2,
            Class::B32 => !element.is_float && element.bytes <= 4,
            Class::B64 => !element.is_float,
        }
    }
}

/// What a load or store moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) bytes: u8,
    is_float: bool,
}

impl Element {
    pub(super) fn named(word: &str) -> Option<Element> {
        let (bytes, is_float) = match word {
            "u8" => (1, false),
            "u16" => (2, false),
            "u32" => (4, false),
            "u64" => (8, false),
            "f32" => (4, true),
            _ => return None,
        };
        Some(Element { bytes, is_float })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    One(One),
    Two(Two),
    Three(Three),
}

/// What an instruction does, and the classes of its operands, with the result's first.
pub(super) fn form(opcode: &str) -> Option<(What, &'static [Class])> {
    FORMS.iter().find(|form| form.0 == opcode).map(|form| (form.1, form.2))
}

use Class::{B16, B32, B64, F32, Predicate};

const FORMS: &[(&str, What, &[Class])] = &[
    ("mov.u32", What::One(One::Same), &[B32, B32]),
    ("mov.b32", What::One(One::Same), &[B32, F32]),
    ("cvta.to.global.u64", What::One(One::Same), &[B64, B64]),
    ("cvt.u64.u32", What::One(One::Same), &[B64, B32]),
    ("cvt.u32.u64", What::One(One::Low32), &[B32, B64]),
    ("cvt.rn.f32.u16", What::One(One::F32OfU16), &[F32, B16]),
    ("cvt.rn.f16.f32", What::One(One::F16OfF32), &[B16, F32]),
    ("not.b32", What::One(One::Not32), &[B32, B32]),
    ("add.s32", What::Two(Two::Add32), &[B32, B32, B32]),
    ("add.s64", What::Two(Two::Add64), &[B64, B64, B64]),
    ("sub.s32", What::Two(Two::Sub32), &[B32, B32, B32]),
    ("sub.s64", What::Two(Two::Sub64), &[B64, B64, B64]),
    ("mul.lo.s32", What::Two(Two::Mul32), &[B32, B32, B32]),
    ("mul.lo.s64", What::Two(Two::Mul64), &[B64, B64, B64]),
    ("mul.wide.u32", What::Two(Two::MulWide32), &[B64, B32, B32]),
    ("div.u32", What::Two(Two::Div32), &[B32, B32, B32]),
    ("rem.u32", What::Two(Two::Rem32), &[B32, B32, B32]),
    ("and.b32", What::Two(Two::And32), &[B32, B32, B32]),
    ("or.b32", What::Two(Two::Or32), &[B32, B32, B32]),
    ("shl.b64", What::Two(Two::Shl64), &[B64, B64, B32]),
    ("shr.u32", What::Two(Two::Shr32), &[B32, B32, B32]),
    ("sub.rn.f32", What::Two(Two::SubF32), &[F32, F32, F32]),
    ("mul.rn.f32", What::Two(Two::MulF32), &[F32, F32, F32]),
    ("setp.eq.s32", What::Two(Two::Eq), &[Predicate, B32, B32]),
    ("setp.ne.s32", What::Two(Two::Ne), &[Predicate, B32, B32]),
    ("setp.lt.u32", What::Two(Two::Lt), &[Predicate, B32, B32]),
    ("setp.gt.u32", What::Two(Two::Gt), &[Predicate, B32, B32]),
    ("setp.ge.u32", What::Two(Two::Ge), &[Predicate, B32, B32]),
    ("setp.lt.u64", What::Two(Two::Lt), &[Predicate, B64, B64]),
    ("mad.lo.s32", What::Three(Three::Mad32), &[B32, B32, B32, B32]),
    ("selp.b32", What::Three(Three::Select), &[B32, B32, B32, Predicate]),
    ("selp.b64", What::Three(Three::Select), &[B64, B64, B64, Predicate]),
    ("bfe.u32", What::Three(Three::Bfe32), &[B32, B32, B32, B32]),
];
