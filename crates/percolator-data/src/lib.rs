//! Data sets for training: made from images, looked at, checked and mended.

pub mod store;

pub mod input;

pub mod convert;
