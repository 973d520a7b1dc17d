//! Data sets for training: made from images, looked at, checked and mended.
//!
//! - [`convert`]: stores from images, and from other stores.
//! - [`input`]: what they are made from.
//! - [`store`]: writers of LMDBs, LevelDBs and TFRecord files.

pub mod store;

pub mod input;

pub mod convert;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/datasets.md")]
pub struct Datasets;
