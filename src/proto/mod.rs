//! Caffe's messages, as prost generates them from `proto/caffe.proto`: for tools and tests.
//!
//! Records on their way to a batch are read through [`crate::record::Datum`] instead, which copies no pixel.
//! Fields that the schema does not have are skipped in reading and gone after writing.
//!
//! The generated code is checked in, so that a build compiles neither a protobuf compiler nor prost's
//! code generator. A test generates it again and compares.

#![allow(missing_docs, reason = "the schema comments only on fields whose names do not say it all")]

include!("caffe.rs");

#[cfg(test)]
mod tests;
