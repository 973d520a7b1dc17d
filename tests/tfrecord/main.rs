//! TensorFlow's records: TFRecord files, and the Examples in them.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod example;
mod example_view;
