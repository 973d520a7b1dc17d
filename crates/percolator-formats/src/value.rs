//! A part's value.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The extents of an array, outermost first.
pub type Shape = SmallVec<[u64; 4]>;

/// The value of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing is there: a null.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer that may exceed `i64`.
    UInt(u64),
    /// A number of a format whose numbers have no width of their own, such as JSON. A float of a stated
    /// width is an [`Array`] of no dimensions.
    Float(f64),
    /// A number that none of the others can hold, as it is written: a decimal, an integer beyond 64 bits.
    Number(Cow<'a, str>),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes whose meaning the format does not state, such as an image file.
    Bytes(Cow<'a, [u8]>),
    /// Numbers of one type.
    Array(Array<'a>),
    /// Integers or truth values of a list: of one type, but without a shape of their own.
    Listed(Array<'a>),
    /// Values in order.
    List(Vec<Value<'a>>),
    /// Named values, in the order in which they are stored.
    Struct(Vec<(Cow<'a, str>, Value<'a>)>),
}

impl Value<'_> {
    /// The same value, which borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Value::Null => Value::Null,
            Value::Bool(truth) => Value::Bool(truth),
            Value::Int(number) => Value::Int(number),
            Value::UInt(number) => Value::UInt(number),
            Value::Float(number) => Value::Float(number),
            Value::Number(number) => Value::Number(text(number)),
            Value::Text(value) => Value::Text(text(value)),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Array(array) => Value::Array(array.into_owned()),
            Value::Listed(array) => Value::Listed(array.into_owned()),
            Value::List(values) => Value::List(values.into_iter().map(Value::into_owned).collect()),
            Value::Struct(members) => Value::Struct(
                members.into_iter().map(|(name, value)| (text(name), value.into_owned())).collect(),
            ),
        }
    }
}

/// Numbers of one type: little-endian, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<'a> {
    /// The type of the numbers.
    pub dtype: ElementType,
    /// The extents; empty for a single number.
    pub shape: Shape,
    /// The numbers' bytes, not aligned: [`dtype`](Self::dtype)'s size times the product of the extents.
    pub bytes: Cow<'a, [u8]>,
}

impl Array<'_> {
    /// The same numbers, which borrow nothing.
    #[must_use]
    pub fn into_owned(self) -> Array<'static> {
        Array { bytes: Cow::Owned(self.bytes.into_owned()), ..self }
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// One byte that is 0 or 1.
    Bool,
    /// 8 bits, signed.
    I8,
    /// 16 bits, signed.
    I16,
    /// 32 bits, signed.
    I32,
    /// 64 bits, signed.
    I64,
    /// 8 bits, unsigned.
    U8,
    /// 16 bits, unsigned.
    U16,
    /// 32 bits, unsigned.
    U32,
    /// 64 bits, unsigned.
    U64,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an F32.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// Two F32: a complex number.
    C64,
    /// Two F64: a complex number.
    C128,
}

impl ElementType {
    /// The bytes of an element.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::Bool | ElementType::I8 | ElementType::U8 => 1,
            ElementType::I16 | ElementType::U16 | ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::I32 | ElementType::U32 | ElementType::F32 => 4,
            ElementType::I64 | ElementType::U64 | ElementType::F64 | ElementType::C64 => 8,
            ElementType::C128 => 16,
        }
    }

    /// The bytes of a number inside an element: half of a complex number. Swapping each of them turns
    /// big-endian elements into little-endian ones.
    #[must_use]
    pub const fn number_bytes(self) -> usize {
        match self {
            ElementType::C64 | ElementType::C128 => self.bytes() / 2,
            _ => self.bytes(),
        }
    }

    /// NumPy's name for it, little-endian: `<f4`. NumPy has none for bfloat16, which is `bfloat16` here.
    #[must_use]
    pub const fn numpy(self) -> &'static str {
        match self {
            ElementType::Bool => "|b1",
            ElementType::I8 => "|i1",
            ElementType::I16 => "<i2",
            ElementType::I32 => "<i4",
            ElementType::I64 => "<i8",
            ElementType::U8 => "|u1",
            ElementType::U16 => "<u2",
            ElementType::U32 => "<u4",
            ElementType::U64 => "<u8",
            ElementType::F16 => "<f2",
            ElementType::Bf16 => "bfloat16",
            ElementType::F32 => "<f4",
            ElementType::F64 => "<f8",
            ElementType::C64 => "<c8",
            ElementType::C128 => "<c16",
        }
    }
}
