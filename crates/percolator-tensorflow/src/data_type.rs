//! The types of elements that TensorFlow's files hold.

use std::fmt;
use std::str::FromStr;

use crate::proto;

/// The type of a tensor's elements. Its name is TensorFlow's (`float32`).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum DataType {
    Float16,
    Bfloat16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Bool,
    /// Two `f32`: the real part, the imaginary part.
    Complex64,
    /// Two `f64`: the real part, the imaginary part.
    Complex128,
    /// Byte strings of any length.
    String,
    Qint8,
    Quint8,
    Qint16,
    Quint16,
    Qint32,
    Float8E5m2,
    Float8E4m3fn,
    Float8E4m3fnuz,
    Float8E4m3b11fnuz,
    Float8E5m2fnuz,
    /// A byte an element in memory and in files, as are the other types of less than a byte.
    Int4,
    Uint4,
    Int2,
    Uint2,
    Float4E2m1fn,
    /// A handle of a resource; no file holds one.
    Resource,
    /// A value of any type, serialized.
    Variant,
}

/// Each type with TensorFlow's name for it, its number in messages, and the bytes of an element, if all
/// elements have as many.
const TYPES: [(DataType, &str, proto::DataType, Option<usize>); 33] = {
    use DataType as T;
    use proto::DataType as P;
    [
        (T::Float16, "float16", P::DtHalf, Some(2)),
        (T::Bfloat16, "bfloat16", P::DtBfloat16, Some(2)),
        (T::Float32, "float32", P::DtFloat, Some(4)),
        (T::Float64, "float64", P::DtDouble, Some(8)),
        (T::Int8, "int8", P::DtInt8, Some(1)),
        (T::Int16, "int16", P::DtInt16, Some(2)),
        (T::Int32, "int32", P::DtInt32, Some(4)),
        (T::Int64, "int64", P::DtInt64, Some(8)),
        (T::Uint8, "uint8", P::DtUint8, Some(1)),
        (T::Uint16, "uint16", P::DtUint16, Some(2)),
        (T::Uint32, "uint32", P::DtUint32, Some(4)),
        (T::Uint64, "uint64", P::DtUint64, Some(8)),
        (T::Bool, "bool", P::DtBool, Some(1)),
        (T::Complex64, "complex64", P::DtComplex64, Some(8)),
        (T::Complex128, "complex128", P::DtComplex128, Some(16)),
        (T::String, "string", P::DtString, None),
        (T::Qint8, "qint8", P::DtQint8, Some(1)),
        (T::Quint8, "quint8", P::DtQuint8, Some(1)),
        (T::Qint16, "qint16", P::DtQint16, Some(2)),
        (T::Quint16, "quint16", P::DtQuint16, Some(2)),
        (T::Qint32, "qint32", P::DtQint32, Some(4)),
        (T::Float8E5m2, "float8_e5m2", P::DtFloat8E5m2, Some(1)),
        (T::Float8E4m3fn, "float8_e4m3fn", P::DtFloat8E4m3fn, Some(1)),
        (T::Float8E4m3fnuz, "float8_e4m3fnuz", P::DtFloat8E4m3fnuz, Some(1)),
        (T::Float8E4m3b11fnuz, "float8_e4m3b11fnuz", P::DtFloat8E4m3b11fnuz, Some(1)),
        (T::Float8E5m2fnuz, "float8_e5m2fnuz", P::DtFloat8E5m2fnuz, Some(1)),
        (T::Int4, "int4", P::DtInt4, Some(1)),
        (T::Uint4, "uint4", P::DtUint4, Some(1)),
        (T::Int2, "int2", P::DtInt2, Some(1)),
        (T::Uint2, "uint2", P::DtUint2, Some(1)),
        (T::Float4E2m1fn, "float4_e2m1fn", P::DtFloat4E2m1fn, Some(1)),
        (T::Resource, "resource", P::DtResource, None),
        (T::Variant, "variant", P::DtVariant, None),
    ]
};

impl DataType {
    /// All types.
    pub fn all() -> impl Iterator<Item = DataType> {
        TYPES.into_iter().map(|(one, ..)| one)
    }

    /// Returns the bytes of an element, or `None` if elements differ in length.
    #[must_use]
    pub fn size(self) -> Option<usize> {
        TYPES[self as usize].3
    }

    /// Returns TensorFlow's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Returns how many of its bytes are one number: half an element of a complex type.
    #[must_use]
    pub fn number_size(self) -> Option<usize> {
        match self {
            DataType::Complex64 | DataType::Complex128 => self.size().map(|size| size / 2),
            _ => self.size(),
        }
    }

    /// Returns the type with this number in TensorFlow's messages, or `None` if there is none. The type of a
    /// variable by reference is that of its value.
    #[must_use]
    pub fn from_proto(number: i32) -> Option<Self> {
        /// Numbers above this are those of references.
        const REFERENCE: i32 = 100;
        let number = if number > REFERENCE { number - REFERENCE } else { number };
        TYPES.into_iter().find(|(_, _, proto, _)| *proto as i32 == number).map(|(one, ..)| one)
    }

    /// Returns the type's number in TensorFlow's messages.
    #[must_use]
    pub fn to_proto(self) -> i32 {
        TYPES[self as usize].2 as i32
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no type of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a TensorFlow type; examples: float32, int64, string")]
pub struct UnknownType(pub String);

impl FromStr for DataType {
    type Err = UnknownType;

    fn from_str(name: &str) -> Result<Self, UnknownType> {
        let found = TYPES.into_iter().find(|(_, known, ..)| *known == name).map(|(one, ..)| one);
        found.ok_or_else(|| UnknownType(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_found_by_its_name_and_its_number() {
        for (place, (one, name, proto, _)) in TYPES.into_iter().enumerate() {
            assert_eq!(one as usize, place);
            assert_eq!(name.parse(), Ok(one));
            assert_eq!(DataType::from_proto(proto as i32), Some(one));
            assert_eq!(DataType::from_proto(proto as i32 + 100), Some(one));
        }
        assert_eq!(DataType::from_proto(0), None);
        assert_eq!(DataType::from_proto(100), None);
        assert_eq!(DataType::from_proto(-1), None);
        assert_eq!("DT_FLOAT".parse::<DataType>(), Err(UnknownType("DT_FLOAT".to_owned())));
    }
}
