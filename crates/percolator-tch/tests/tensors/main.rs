//! A feed's batches as torch's tensors: the values are the batch's, nothing is copied, and a batch returns to
//! its lane when nothing in libtorch refers to it any more.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod errors;
mod lifetime;
mod steps;
#[path = "../../../../tests/common/transforming.rs"]
mod transforming;
mod values;
