//! Records: the image decoders against OpenCV and libjpeg-turbo, and the wire format of a `Datum`.

#[path = "../common/mod.rs"]
mod common;
mod datum_view;
mod decode;
mod forge;
mod jpeg_progressive;
mod jpeg_scaled;
#[cfg(feature = "turbojpeg")]
mod jpeg_twin;
mod jpeg_window;
mod variants;
