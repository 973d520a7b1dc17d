//! The decoders against OpenCV and libjpeg-turbo.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed"
)]

mod colour;
mod decode;
mod forge;
mod formats;
mod giant;
mod hostile_formats;
mod jpeg_progressive;
#[cfg(feature = "turbojpeg")]
mod jpeg_twin;
mod pillow;
#[allow(dead_code, reason = "shared by tests, each of which uses a part of it")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod variants;
mod warp;
