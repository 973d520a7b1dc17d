//! Prepares text for training, as the public scripts do.

mod clean;
mod python_text;
pub mod random;
pub mod sentencepiece;
pub mod xlnet;

pub use clean::clean;
