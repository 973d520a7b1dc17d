//! Caffe's messages, as prost generates them from `proto/caffe.proto`: for tools and tests.
//!
//! Records on their way to a batch are read through [`crate::Datum`] instead, which copies no pixel.
//! Fields that the schema does not have are skipped in reading and gone after writing.

#![allow(missing_docs, reason = "the schema comments only on fields whose names do not say it all")]

include!(concat!(env!("OUT_DIR"), "/caffe.rs"));
