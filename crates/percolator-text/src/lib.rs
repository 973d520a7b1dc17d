//! Prepares text for training, as the public scripts do.

mod clean;
mod parallel;
mod python_text;
pub mod random;
pub mod sentencepiece;
mod tfrecord;
pub mod xlnet;

pub use clean::clean;
