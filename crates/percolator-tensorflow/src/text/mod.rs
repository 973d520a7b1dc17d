//! Protobuf's text form, from and to its binary form, as TensorFlow writes and reads it.
//!
//! The fields that the schema does not have are written under their numbers (`42: 7`), and read back from
//! there: numbers as decimals, 4 bytes as `0x` and 8 digits, 8 bytes as `0x` and 16 digits, bytes as strings,
//! groups in braces. protobuf prints them similarly (it tries to print bytes as a message), but does not read
//! them.
//!
//! prost-reflect has its own text form, which is unsuitable: it writes floating-point numbers and maps in
//! another way than TensorFlow does in any style, it does not read fields by their numbers, and its errors
//! have no line and column.

mod lex;
mod parse;
mod print;
mod style;
mod tokens;

pub(crate) use lex::{TextFault, Token};
pub(crate) use parse::{Parsed, first_name, parse};
pub(crate) use print::print;
pub(crate) use style::Style;
pub(crate) use tokens::Tokens;

#[cfg(test)]
mod tests;
