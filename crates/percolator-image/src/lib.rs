//! Decodes an encoded file to the pixels that Caffe with OpenCV 4.6 gets from it.
//!
//! ```text
//! headers   format, size, orientation; whether the file is complete   format.rs, jpeg/, png/, exif.rs
//! pixels    of a JPEG by our own decoder, only those that are needed   jpeg/
//!           of a PNG interleaved, by a library                         png/pixels.rs
//!           of other formats alike, by a library or by us              still.rs: bmp, gif, pnm, tiff, webp
//! planes    in the order B, G, R, A, as in raw records, or R, G, B      jpeg/picture.rs, planes.rs, png/
//! turn      as the file's EXIF says                                    turn.rs
//! resize    as `cv::resize` does                                       resize.rs
//!
//! afterwards, as Pillow does: resizes, colours, warps                  resample/, colour/, warp/
//! ```
//!
//! Everything is exact, bit for bit: the channels, the orientation, grey from colour, the resize. A PNG's
//! pixels are exact by nature. A JPEG's are because every rounding is that of libjpeg-turbo, which OpenCV
//! uses; a WebP's, because the crate `image-webp` rounds as libwebp does. WebP, GIF, TIFF, BMP and PNM files
//! are read as OpenCV 5.0 reads them, which has more formats than 4.6, and in [`ColorMode::Rgb`] and
//! [`ColorMode::Upright`] as Pillow 13.0 does: the modules of the formats have tables of what that means.
//!
//! # Features
//!
//! JPEG, PNG, BMP and PNM are always read. The features `gif` (a file's first frame), `tiff` and `webp` bring
//! a crate each; without one, the error names it. What a file is is told by its bytes, never by its name.
//!
//! On request, a JPEG that a resize makes smaller is decoded to a half, a quarter or an eighth of its sides:
//! the smallest size that is enough for the resize. Those pixels are libjpeg-turbo's to the last bit, too.
//! But they are not Caffe's, which resizes the full-size image.
//!
//! If a part of an image is enough (a crop), and the image is neither turned nor resized, the JPEG decoder
//! transforms, upsamples and colour-converts only what that part needs. It still reads all codes.
//!
//! A file that is damaged or truncated is an error; OpenCV makes up the missing pixels. A panic of the
//! libraries that read GIF, TIFF and WebP files is caught and is an error, too, unless the program is built
//! with `panic = "abort"`.
//!
//! # Memory
//!
//! Our buffers grow to the largest image and are then reused. The PNG library allocates its own for each
//! image. A file that claims to be larger than it can be cannot make either allocate more: its claims are
//! checked against what its number of bytes can hold. A byte of a JPEG is at most 512 pixels. A byte of a PNG
//! is at most 1032 bytes of samples, which are 8256 pixels of one-bit samples. A lossless WebP, a GIF and a
//! BMP of runs can say with a few bytes that an image is blank: such a file may claim 2^22 pixels, plus 8,256
//! for each of its bytes. A pixel takes at most [`PIXEL_BYTES_MAX`] bytes, with a JPEG's pixels counted
//! in whole groups of blocks ([`file_pixels`]):
//!
//! | of a pixel | progressive JPEG | other JPEG | PNG of 8 bits, native | PNG of 16 bits | WebP | others |
//! |---|---|---|---|---|---|---|
//! | coefficients | 8 | | | | | |
//! | which of them are not zero | 1/2 | | | | | |
//! | samples, component by component | 4 | 4 | | | | |
//! | what the crate `image-webp` holds | | | | | 7 | |
//! | samples, interleaved | | | 4 | 8 | 8 | 8 |
//! | planes | 3 | 3 | 4 | 3 | 4 | 4 |
//! | planes, turned or resized | 3 | 3 | 4 | 3 | 4 | 4 |
//! | together | 18 1/2 | 10 | 12 | 14 | 23 | 16 |
//!
//! A decoder that reads all of these kinds keeps the largest buffer of each line: 28 1/2 in total, for it
//! gives back the buffers of JPEGs when it reads a WebP. A JPEG that is decoded at a reduced size is counted
//! with all its pixels: the next file of its size may not be a JPEG, and one that is slightly smaller may
//! need the full size.
//!
//! Not counted is what does not grow with the pixels: the data of a JPEG's scan, or of a WebP's image, of
//! which at most the file's length is copied; 16 MB that the crate `image-webp` allows for a part of such
//! data, and its tables of codes, which take up to 330 times the lossless data that they lie in (of which
//! there may be 64 KiB, and 8 bytes for each pixel); 32 times the values of a TIFF's directory, which lie in
//! the file; 40 KB of tables and blocks to read a JPEG with; a profile of at most 8 MB while a PNG with one
//! is read as grey; the few rows in progress; and 28 bytes for each column of a resize.

mod bmp;
pub mod colour;
mod error;
mod exif;
mod format;
#[cfg(feature = "gif")]
mod gif;
mod jpeg;
mod luma;
mod planes;
mod png;
mod pnm;
pub mod resample;
mod resize;
mod shape;
pub mod simd;
mod still;
#[cfg(feature = "tiff")]
mod tiff;
mod turn;
pub mod warp;
#[cfg(feature = "webp")]
mod webp;

pub use error::DecodeError;
pub use shape::ImageShape;

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;

use exif::Orientation;
use format::Format;
use resize::Resizer;

/// The longest side of an image in pixels, and the maximum number of pixels: OpenCV's own limits.
const SIDE_MAX: usize = 1 << 20;
const PIXELS_MAX: usize = 1 << 30;

/// The maximum number of elements: Caffe counts a blob's in an `int`.
const ELEMENTS_MAX: usize = i32::MAX as usize;

/// The bytes that a decoder may hold for each pixel of the largest image that it reads or makes: as stored in
/// the file, or resized, whichever is larger.
pub const PIXEL_BYTES_MAX: usize = 29;

/// The channels that an encoded record is decoded to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ColorMode {
    /// As in the file: 1 for grey, 3 for colour, 4 with transparency. This is Caffe's default, OpenCV's
    /// `IMREAD_UNCHANGED`. EXIF orientation is not applied, but a TIFF's is, as in every mode.
    #[default]
    Native,
    /// Always 3: Caffe's `force_color`, OpenCV's `IMREAD_COLOR`. EXIF orientation is applied.
    Color,
    /// Always 1: Caffe's `force_gray`, OpenCV's `IMREAD_GRAYSCALE`. EXIF orientation is applied.
    Gray,
    /// Always 3, red first: what Pillow's `convert("RGB")` gives, and so torchvision's `ImageFolder`. EXIF
    /// orientation is not applied. Beside the order of the planes, CMYK differs from [`Color`](Self::Color)
    /// by up to 2 levels, and grey of 16 bits is cut at 255, as Pillow cuts it. The guide has what differs in
    /// other formats.
    Rgb,
    /// As [`Rgb`](Self::Rgb), but EXIF orientation is applied: what Pillow's
    /// `ImageOps.exif_transpose(image).convert("RGB")` gives.
    Upright,
}

impl ColorMode {
    /// The number of channels that a file with `native` channels is decoded to.
    fn channels(self, native: usize) -> usize {
        match self {
            ColorMode::Native => native,
            ColorMode::Color | ColorMode::Rgb | ColorMode::Upright => 3,
            ColorMode::Gray => 1,
        }
    }

    /// How to turn an image with this EXIF orientation.
    fn turn(self, orientation: Orientation) -> Orientation {
        match self {
            ColorMode::Native | ColorMode::Rgb => Orientation::default(),
            ColorMode::Color | ColorMode::Gray | ColorMode::Upright => orientation,
        }
    }

    /// Whether the pixels are Pillow's, with red first.
    #[must_use]
    pub fn is_rgb(self) -> bool {
        matches!(self, ColorMode::Rgb | ColorMode::Upright)
    }
}

/// A part of an image, in pixels. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first row.
    pub top: usize,
    /// Its first column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// An image of bytes: channel by channel and row by row. A decoded one has the channels blue, green, red and
/// alpha, or red, green and blue, or grey: [`ColorMode`] says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes<'a> {
    /// Channels, rows and columns, none of them zero.
    pub shape: ImageShape,
    /// As many bytes as the shape has elements.
    pub bytes: &'a [u8],
}

/// How an encoded file is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Decode {
    /// The channels.
    pub color: ColorMode,
    /// The rows and columns that the image is resized to, after it is turned: ImageData's `new_height` and
    /// `new_width`.
    pub resize: Option<(usize, usize)>,
    /// Whether a JPEG may be decoded at a reduced size, if the resize makes it smaller still.
    pub scaled: bool,
}

impl Decode {
    /// The rows and columns that an image needs before it is turned this way, if it may be decoded at a
    /// reduced size.
    fn least(&self, turn: Orientation) -> Option<[usize; 2]> {
        let (height, width) = self.resize.filter(|_| self.scaled)?;
        // A transposition is its own inverse.
        let ImageShape { height, width, .. } = turn.apply(ImageShape { channels: 1, height, width });
        Some([height, width])
    }

    /// The shape of a file's output.
    fn output(&self, file: &Contents) -> Result<ImageShape, DecodeError> {
        self.bounded(file.turn.apply(file.shape))
    }

    /// The shape of the output for an image of bytes that is not encoded.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Size`] if it is resized to a size that is not allowed.
    pub fn resized(&self, shape: ImageShape) -> Result<ImageShape, DecodeError> {
        if self.resize.is_some() { self.bounded(shape) } else { Ok(shape) }
    }

    /// The part of a file's image that is needed in its planes: what `choose` returns if the output is the
    /// image as decoded, and otherwise all of it.
    ///
    /// # Panics
    ///
    /// Panics if the chosen part is not within the image.
    fn window(
        &self,
        file: &Contents,
        choose: impl FnOnce(ImageShape) -> Option<Window>,
    ) -> Result<Window, DecodeError> {
        let (shape, output) = (file.shape, self.output(file)?);
        let as_it_lies = file.turn == Orientation::default() && output == shape;
        let chosen = if as_it_lies { choose(output) } else { None };
        if let Some(Window { top, left, height, width }) = chosen {
            let fits =
                |from: usize, len: usize, side: usize| from <= side && (1..=side - from).contains(&len);
            assert!(
                fits(top, height, shape.height) && fits(left, width, shape.width),
                "a window of the image"
            );
        }
        Ok(chosen.unwrap_or(Window { top: 0, left: 0, height: shape.height, width: shape.width }))
    }

    /// The shape after the resize, if there is one, which must be within the bounds.
    fn bounded(&self, mut shape: ImageShape) -> Result<ImageShape, DecodeError> {
        if let Some((height, width)) = self.resize {
            (shape.height, shape.width) = (height, width);
        }
        let sides = 1..=SIDE_MAX;
        let in_bounds = sides.contains(&shape.height)
            && sides.contains(&shape.width)
            && shape.checked_elements().is_some_and(|elements| elements <= ELEMENTS_MAX);
        if in_bounds { Ok(shape) } else { Err(DecodeError::Size { found: shape }) }
    }
}

/// What a file's headers say about its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    /// The shape of its pixels as decoded, in the requested channels, before they are turned.
    shape: ImageShape,
    /// The number of pixels by which buffers are counted. It is larger than the image's if samples come in
    /// whole blocks, or if the image is decoded at a reduced size.
    pixels: usize,
    /// How to turn them.
    turn: Orientation,
}

impl Contents {
    /// Fails if the image is larger than OpenCV reads.
    fn new(shape: ImageShape, held: usize, turn: Orientation) -> Result<Self, DecodeError> {
        let pixels = shape.height.checked_mul(shape.width);
        let sides = shape.height.max(shape.width);
        if sides > SIDE_MAX || pixels.is_none_or(|pixels| pixels > PIXELS_MAX) {
            return Err(DecodeError::Size { found: shape });
        }
        Ok(Self { shape, pixels: held, turn })
    }
}

/// The shape of a file's output, by its headers: no pixel is decoded.
///
/// # Errors
///
/// [`DecodeError`] if the headers are not those of a file that can be decoded.
pub fn shape(file: &[u8], wanted: &Decode) -> Result<ImageShape, DecodeError> {
    wanted.output(&contents(file, wanted)?)
}

/// Whether a file begins as one of the formats that are decoded, or may be, if they are [built
/// in](DecodeError::NotBuiltIn).
#[must_use]
pub fn is_image(file: &[u8]) -> bool {
    format::Format::of(file).is_ok()
}

/// The number of pixels of a file's own image, before it is turned and resized, in whole blocks if it has
/// any. No pixel is decoded.
///
/// # Errors
///
/// As [`shape`].
pub fn file_pixels(file: &[u8], wanted: &Decode) -> Result<usize, DecodeError> {
    Ok(contents(file, wanted)?.pixels)
}

/// Calls a function of [`still`] for the reader of a format. The one place that knows which are built in.
macro_rules! of_still {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            Format::Bmp => still::$function::<bmp::Bmp<'_>>($($argument),*),
            Format::Pnm => still::$function::<pnm::Pnm<'_>>($($argument),*),
            #[cfg(feature = "gif")]
            Format::Gif => still::$function::<gif::Gif<'_>>($($argument),*),
            #[cfg(not(feature = "gif"))]
            Format::Gif => Err(DecodeError::NotBuiltIn { format: "GIF", feature: "gif" }),
            #[cfg(feature = "tiff")]
            Format::Tiff => still::$function::<tiff::TiffFile<'_>>($($argument),*),
            #[cfg(not(feature = "tiff"))]
            Format::Tiff => Err(DecodeError::NotBuiltIn { format: "TIFF", feature: "tiff" }),
            #[cfg(feature = "webp")]
            Format::Webp => still::$function::<webp::Webp<'_>>($($argument),*),
            #[cfg(not(feature = "webp"))]
            Format::Webp => Err(DecodeError::NotBuiltIn { format: "WebP", feature: "webp" }),
            Format::Jpeg | Format::Png => unreachable!("these have readers of their own"),
        }
    };
}

fn contents(file: &[u8], wanted: &Decode) -> Result<Contents, DecodeError> {
    match Format::of(file)? {
        Format::Jpeg => jpeg::contents(file, wanted),
        Format::Png => png::contents(file, wanted.color),
        still => of_still!(still, contents(file, wanted.color)),
    }
}

/// Decodes files one after another, and keeps its buffers. Each worker has its own.
#[derive(Debug, Default)]
pub struct Decoder {
    jpeg: jpeg::Jpeg,
    /// A PNG without the chunks that its pixels do not need.
    essence: Vec<u8>,
    /// The pixels of a file that is no JPEG.
    interleaved: Vec<u8>,
    planes: Vec<u8>,
    /// The output of a turn or a resize; then the two buffers are swapped.
    spare: Vec<u8>,
    resizer: Resizer,
}

impl Decoder {
    /// Decodes a file. The pixels stay in this decoder until it decodes the next file.
    ///
    /// `window` receives the image's shape, and may return the part that is enough. The planes still have the
    /// shape of the whole image, with its pixels in that part and undefined content elsewhere. The file is
    /// still read to its end: damage outside the part is an error too.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the file is of no format that is read, or is damaged or truncated.
    ///
    /// # Panics
    ///
    /// Panics if the part is not within the image.
    pub fn decode(
        &mut self,
        file: &[u8],
        wanted: &Decode,
        window: impl FnOnce(ImageShape) -> Option<Window>,
    ) -> Result<Planes<'_>, DecodeError> {
        let contents = match Format::of(file)? {
            Format::Jpeg => self.jpeg.read(file, wanted, window, &mut self.planes)?,
            Format::Png => {
                png::read(file, wanted, &mut self.essence, &mut self.interleaved, &mut self.planes)?
            }
            still => {
                if still == Format::Webp {
                    // Its library takes the place of these buffers for as long as it reads.
                    self.jpeg = jpeg::Jpeg::default();
                }
                of_still!(still, read(file, wanted, &mut self.interleaved, &mut self.planes))?
            }
        };
        let output = wanted.output(&contents)?;
        let mut shape = contents.shape;
        if contents.turn != Orientation::default() {
            let turned = contents.turn.apply(shape);
            turn::turn(contents.turn, &self.planes, shape, room(&mut self.spare, elements(turned))?);
            std::mem::swap(&mut self.planes, &mut self.spare);
            shape = turned;
        }
        if shape != output {
            let resized = room(&mut self.spare, elements(output))?;
            self.resizer.resize(&self.planes, shape, resized, output);
            std::mem::swap(&mut self.planes, &mut self.spare);
        }
        Ok(Planes { shape: output, bytes: &self.planes[..elements(output)] })
    }

    /// The planes of an image that is not encoded, whose pixels have their channels side by side, resized if
    /// that is wanted.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if it cannot be resized, or there is no memory for it.
    pub fn planes_of(
        &mut self,
        shape: ImageShape,
        pixels: &[u8],
        wanted: &Decode,
    ) -> Result<Planes<'_>, DecodeError> {
        let output = wanted.resized(shape)?;
        let planes = room(&mut self.planes, elements(shape))?;
        for (channel, plane) in planes.chunks_exact_mut(shape.height * shape.width).enumerate() {
            let values = pixels.iter().skip(channel).step_by(shape.channels);
            plane.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
        }
        if shape != output {
            let resized = room(&mut self.spare, elements(output))?;
            self.resizer.resize(&self.planes, shape, resized, output);
            std::mem::swap(&mut self.planes, &mut self.spare);
        }
        Ok(Planes { shape: output, bytes: &self.planes[..elements(output)] })
    }

    /// The planes of an image that is not encoded: the original ones, unless it is resized.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if it cannot be resized, or there is no memory for it.
    pub fn resize<'a>(&'a mut self, image: Planes<'a>, wanted: &Decode) -> Result<Planes<'a>, DecodeError> {
        let output = wanted.resized(image.shape)?;
        if output == image.shape {
            return Ok(image);
        }
        let resized = room(&mut self.planes, elements(output))?;
        self.resizer.resize(image.bytes, image.shape, resized, output);
        Ok(Planes { shape: output, bytes: resized })
    }
}

/// Decodes files of one kind, one after another. Its buffers are reused from image to image.
///
/// ```no_run
/// use percolator_image::{ColorMode, ImageFileDecoder};
///
/// let mut decoder = ImageFileDecoder::new(ColorMode::Color).resize(256, 256);
/// let image = decoder.decode(&std::fs::read("cat.jpg")?)?;
/// assert_eq!(image.shape.channels, 3); // blue, green, red: a plane each
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ImageFileDecoder {
    wanted: Decode,
    decoder: Decoder,
}

impl ImageFileDecoder {
    /// A decoder to these channels.
    #[must_use]
    pub fn new(color: ColorMode) -> Self {
        ImageFileDecoder { wanted: Decode { color, ..Decode::default() }, decoder: Decoder::default() }
    }

    /// Resizes each image to this many rows and columns.
    #[must_use]
    pub fn resize(mut self, height: usize, width: usize) -> Self {
        self.wanted.resize = Some((height, width));
        self
    }

    /// Decodes a JPEG at the smallest size that is enough for the resize.
    #[must_use]
    pub fn scaled(mut self) -> Self {
        self.wanted.scaled = true;
        self
    }

    /// Returns the shape of a file's image after decoding and resizing. It reads the file's headers.
    ///
    /// # Errors
    ///
    /// As [`shape`].
    pub fn shape(&self, file: &[u8]) -> Result<ImageShape, DecodeError> {
        shape(file, &self.wanted)
    }

    /// Decodes a file.
    ///
    /// # Errors
    ///
    /// As [`Decoder::decode`].
    pub fn decode(&mut self, file: &[u8]) -> Result<Planes<'_>, DecodeError> {
        self.decoder.decode(file, &self.wanted, |_| None)
    }

    /// Decodes a file of whose image a part is enough: the other pixels are undefined.
    ///
    /// # Errors
    ///
    /// As [`Decoder::decode`].
    ///
    /// # Panics
    ///
    /// Panics if the part is not within the image.
    pub fn decode_window(&mut self, file: &[u8], window: Window) -> Result<Planes<'_>, DecodeError> {
        self.decoder.decode(file, &self.wanted, |_| Some(window))
    }

    /// Returns an image that is not encoded: resized if that is wanted, otherwise as it is.
    ///
    /// # Errors
    ///
    /// As [`Decoder::resize`].
    pub fn planes<'a>(&'a mut self, image: Planes<'a>) -> Result<Planes<'a>, DecodeError> {
        self.decoder.resize(image, &self.wanted)
    }

    /// Whether images are resized.
    #[must_use]
    pub fn resizes(&self) -> bool {
        self.wanted.resize.is_some()
    }
}

/// Returns the first `len` elements of a buffer that only grows, and never beyond what was requested. Its
/// content may be lost.
///
/// # Errors
///
/// [`DecodeError::Memory`] if there is no memory for it.
pub fn room<T: Zeroable>(buffer: &mut Vec<T>, len: usize) -> Result<&mut [T], DecodeError> {
    if buffer.len() < len {
        // The old buffer is freed before the new one is allocated.
        drop(std::mem::take(buffer));
        // Where a window is decoded, what it leaves out stays untouched, and takes no memory.
        let bytes = len.saturating_mul(size_of::<T>());
        *buffer = try_zeroed_vec(len).map_err(|()| DecodeError::Memory { bytes })?;
    }
    Ok(&mut buffer[..len])
}

/// The number of elements of a shape that has been checked.
fn elements(shape: ImageShape) -> usize {
    shape.channels * shape.height * shape.width
}

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
