//! Which of burn's types an array's elements have.

use burn_core::tensor::{BoolStore, DType};
use percolator::Dtype;

/// The type of a tensor whose bytes are those of an array; `None` if burn has none.
pub(crate) fn of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::Bool => DType::Bool(BoolStore::Native),
        _ => return None,
    })
}

/// The kinds of burn's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Int,
    Bool,
}

impl Kind {
    pub(crate) fn of(dtype: DType) -> Self {
        match dtype {
            DType::Bool(_) => Kind::Bool,
            dtype if dtype.is_float() => Kind::Float,
            _ => Kind::Int,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Float => "float",
            Kind::Int => "int",
            Kind::Bool => "bool",
        }
    }

    /// The method that gives tensors of this kind.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Kind::Float => "get()",
            Kind::Int => "get_int()",
            Kind::Bool => "get_bool()",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Dtype; 13] = [
        Dtype::F32,
        Dtype::U8,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F64,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::U16,
        Dtype::U32,
        Dtype::U64,
        Dtype::Bool,
    ];

    #[test]
    fn a_type_keeps_its_size_and_its_name() {
        for dtype in ALL {
            let burns = of(dtype).expect("burn has all of them");
            assert_eq!(burns.size(), dtype.size(), "{dtype}");
            assert!(burns.name().starts_with(&dtype.to_string()), "{dtype} is {}", burns.name());
        }
    }

    #[test]
    fn every_type_has_a_kind() {
        let kinds: Vec<Kind> = ALL.into_iter().filter_map(of).map(Kind::of).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Float).count(), 4);
        assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Int).count(), 8);
        assert_eq!(kinds.last(), Some(&Kind::Bool));
    }
}
