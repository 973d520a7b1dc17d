//! Feeds of images: encoded records beside the pixels that they are decoded to, and the wire format of a
//! `Datum`.

#[path = "../common/mod.rs"]
mod common;
mod datum_view;
#[path = "../../crates/percolator-image/tests/image/forge.rs"]
mod forge;
mod jpeg_scaled;
mod jpeg_window;
