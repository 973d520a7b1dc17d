//! Prepares text for training, as the models' public scripts do, and feeds the result through Percolator.

mod clean;
mod python_text;
pub mod random;
pub mod sentencepiece;
pub mod xlnet;

pub use clean::clean;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/xlnet.md")]
pub struct Guide;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
