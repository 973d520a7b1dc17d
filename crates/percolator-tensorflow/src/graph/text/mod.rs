//! Protobuf's text form, from and to its binary form, as TensorFlow writes and reads it.
//!
//! The fields that the schema does not have are written under their numbers (`42: 7`), and read back from
//! there: numbers as decimals, 4 bytes as `0x` and 8 digits, 8 bytes as `0x` and 16 digits, bytes as strings,
//! groups in braces. protobuf prints them nearly so (it tries to print bytes as a message), and reads none of
//! them.

mod lex;
mod parse;
mod print;
mod style;

pub(super) use parse::{Parsed, first_name, parse};
pub(super) use print::print;
pub(super) use style::Style;

#[cfg(test)]
mod tests;
