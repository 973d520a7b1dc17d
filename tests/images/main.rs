//! Feeds of images: encoded records beside the pixels that they are decoded to.

#[path = "../common/mod.rs"]
mod common;
mod erasing;
#[path = "../../crates/percolator-image/tests/image/forge.rs"]
mod forge;
mod jpeg_scaled;
mod jpeg_window;
mod mixing;
mod operations;
mod own_steps;
mod pillow;
mod views;
