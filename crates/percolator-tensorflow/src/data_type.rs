//! The types of elements that TensorFlow's files hold.

use std::fmt;
use std::str::FromStr;

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
const TYPES: [(DataType, &str, i32, Option<usize>); 33] = {
    use DataType as T;
    [
        (T::Float16, "float16", 19, Some(2)),
        (T::Bfloat16, "bfloat16", 14, Some(2)),
        (T::Float32, "float32", 1, Some(4)),
        (T::Float64, "float64", 2, Some(8)),
        (T::Int8, "int8", 6, Some(1)),
        (T::Int16, "int16", 5, Some(2)),
        (T::Int32, "int32", 3, Some(4)),
        (T::Int64, "int64", 9, Some(8)),
        (T::Uint8, "uint8", 4, Some(1)),
        (T::Uint16, "uint16", 17, Some(2)),
        (T::Uint32, "uint32", 22, Some(4)),
        (T::Uint64, "uint64", 23, Some(8)),
        (T::Bool, "bool", 10, Some(1)),
        (T::Complex64, "complex64", 8, Some(8)),
        (T::Complex128, "complex128", 18, Some(16)),
        (T::String, "string", 7, None),
        (T::Qint8, "qint8", 11, Some(1)),
        (T::Quint8, "quint8", 12, Some(1)),
        (T::Qint16, "qint16", 15, Some(2)),
        (T::Quint16, "quint16", 16, Some(2)),
        (T::Qint32, "qint32", 13, Some(4)),
        (T::Float8E5m2, "float8_e5m2", 24, Some(1)),
        (T::Float8E4m3fn, "float8_e4m3fn", 25, Some(1)),
        (T::Float8E4m3fnuz, "float8_e4m3fnuz", 26, Some(1)),
        (T::Float8E4m3b11fnuz, "float8_e4m3b11fnuz", 27, Some(1)),
        (T::Float8E5m2fnuz, "float8_e5m2fnuz", 28, Some(1)),
        (T::Int4, "int4", 29, Some(1)),
        (T::Uint4, "uint4", 30, Some(1)),
        (T::Int2, "int2", 31, Some(1)),
        (T::Uint2, "uint2", 32, Some(1)),
        (T::Float4E2m1fn, "float4_e2m1fn", 33, Some(1)),
        (T::Resource, "resource", 20, None),
        (T::Variant, "variant", 21, None),
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
        TYPES.into_iter().find(|(_, _, known, _)| *known == number).map(|(one, ..)| one)
    }

    /// Returns the type's number in TensorFlow's messages.
    #[must_use]
    pub fn to_proto(self) -> i32 {
        TYPES[self as usize].2
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
            assert_eq!(DataType::from_proto(proto), Some(one));
            assert_eq!(DataType::from_proto(proto + 100), Some(one));
        }
        assert_eq!(DataType::from_proto(0), None);
        assert_eq!(DataType::from_proto(100), None);
        assert_eq!(DataType::from_proto(-1), None);
        assert_eq!("DT_FLOAT".parse::<DataType>(), Err(UnknownType("DT_FLOAT".to_owned())));
    }

    #[test]
    fn the_numbers_are_those_of_the_schema() {
        let field = crate::proto::descriptor("TensorProto").get_field_by_name("dtype").unwrap();
        let kind = field.kind();
        for value in kind.as_enum().unwrap().values() {
            let name = value.name().trim_start_matches("DT_").trim_end_matches("_REF").to_lowercase();
            let name = match &*name {
                "half" => "float16",
                "float" => "float32",
                "double" => "float64",
                other => other,
            };
            assert_eq!(DataType::from_proto(value.number()), name.parse().ok(), "{}", value.name());
        }
    }
}
