//! Data sets for training: creates them from images, inspects, checks and repairs them.
//!
//! - [`convert`]: stores from images, and from other stores.
//! - [`input`]: what they are made from.
//! - [`store`]: writers of LMDBs, LevelDBs and TFRecord files.
//! - [`DataSet`]: detects what a path is, and opens it.
//! - [`scan`]: every record of a source on all cores, with the results in order.
//! - [`mean`](mod@mean): mean images, as Caffe computes them.
//! - [`inspect`](mod@inspect): what a data set holds: labels, keys, shapes, duplicates, pictures.
//! - [`verify`](mod@verify): which records are wrong, and a copy without them.

pub mod convert;
pub mod input;
pub mod store;

mod content;
mod open;
mod workers;

pub mod inspect;
pub mod mean;
pub mod scan;
pub mod verify;

pub use self::content::{ChannelOrder, Content, Label, Picture, PictureEncoding};
pub use self::open::{DataSet, Found, Kind, OpenError, OpenOptions};

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/datasets.md")]
pub struct Datasets;
