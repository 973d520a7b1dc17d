//! Caffe's `Datum` ([`Datum`]) and TensorFlow's `tf.train.Example` and `SequenceExample` ([`example`]), read
//! in place.
//!
//! The views copy nothing and allocate nothing: a record costs the same to parse whatever its size. They
//! accept and refuse exactly the messages that prost does, and read the same values from them. A
//! [`WireError`] says at which byte a record stops being a message, and why.
//!
//! It is built for Percolator, and does not depend on its feeds.

mod datum;
pub mod example;
mod pixel_order;
mod value;
mod wire;

pub use self::datum::{Datum, DatumError, Floats, IMAGE_ELEMENTS_MAX, Image, Pixels, Strided};
pub use self::pixel_order::PixelOrder;
pub use self::value::Value;
pub use self::wire::WireError;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
