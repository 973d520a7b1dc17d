//! An encoded file, into the pixels that Caffe with OpenCV 4.6 has of it.
//!
//! ```text
//! file     what it is, how large, which way up, and whether all of it is there   jpeg.rs, png.rs, exif.rs
//! pixels   of a JPEG by a decoder of our own, as far as they are needed          jpeg/
//!          of a PNG interleaved, by a library                                    png/pixels.rs
//! planes   in the order B, G, R, A, as a record that is not encoded has them     jpeg/picture.rs, planes.rs, png/grey.rs
//! turned   as the file's EXIF says                                               turn.rs
//! resized  as `cv::resize` does                                                  resize.rs
//! ```
//!
//! Everything is exact, bit for bit: which channels, which orientation, grey from colour, the resize; a PNG's pixels
//! by their nature; a JPEG's because every rounding is libjpeg-turbo's, with which OpenCV reads them.
//!
//! Where it is asked for, and a resize makes an image smaller, a JPEG is decoded to a half, a quarter or an eighth of its
//! sides, as small as the resize still finds enough. Those pixels are libjpeg-turbo's to the last bit, too, but not those
//! that Caffe has, which resizes the whole image.
//!
//! Where a part of an image is enough (a crop), and the image is neither turned nor resized, of a JPEG only what that
//! part is made of is transformed, interpolated and coloured. All of its codes are read even so.
//!
//! A file that is damaged or cut short is an error, where OpenCV makes up what is missing.
//!
//! # Memory
//!
//! Our buffers grow to the largest image and are then reused. The PNG library allocates its own for each image.
//! Neither can be made to ask for more by a file that claims to be larger than it could be: what is claimed is
//! checked against what so many bytes can hold ([`jpeg::PIXELS_PER_BYTE_MAX`], [`png::INFLATED_PER_BYTE_MAX`]). A
//! byte of a JPEG is at most 512 pixels; a byte of a PNG is at most 1032 bytes of samples, which are 8256 pixels where
//! a sample is one bit. A pixel takes at most [`PIXEL_BYTES_MAX`], where those of a JPEG are counted in whole groups of
//! blocks ([`file_pixels`]):
//!
//! | of a pixel | progressive JPEG | other JPEG | PNG of 8 bits, native | PNG of 16 bits |
//! |---|---|---|---|---|
//! | coefficients | 6 | | | |
//! | which of them are not zero | 3/8 | | | |
//! | samples, component by component | 3 | 3 | | |
//! | samples, interleaved | | | 4 | 8 |
//! | planes | 3 | 3 | 4 | 3 |
//! | planes, turned or resized | 3 | 3 | 4 | 3 |
//! | together | 15 3/8 | 9 | 12 | 14 |
//!
//! A decoder that meets all of them keeps the most of each line: 25 3/8. A JPEG that is decoded to fewer pixels than it
//! has is counted with all of them: the next of its size may be no JPEG, and one that is a little smaller may have to be
//! decoded whole.
//!
//! What does not grow with the pixels is left out: the data of a JPEG's scan, of which no more are copied than the file
//! is long, 40 KB of tables and blocks to read a JPEG with, a profile of at most 8 MB while a PNG is read that has one
//! and of which grey is wanted, the few rows that are worked on, and 28 bytes for each column of a resize.

mod error;
mod exif;
mod jpeg;
mod planes;
mod png;
mod resize;
mod turn;

pub use error::DecodeError;

use crate::base::shape::ImageShape;
use crate::record::datum::{Image, Pixels};
use exif::Orientation;
use resize::Resizer;

/// The longest side of an image, and the most pixels: OpenCV's own limits.
const SIDE_MAX: usize = 1 << 20;
const PIXELS_MAX: usize = 1 << 30;

/// The most elements: Caffe counts a blob's in an `int`.
const ELEMENTS_MAX: usize = i32::MAX as usize;

/// Bytes that a decoder may hold for each pixel of the largest image that it reads or makes: as the file has it, or
/// resized, whichever is more.
pub(crate) const PIXEL_BYTES_MAX: usize = 26;

/// Which channels an encoded record is read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ColorMode {
    /// As the file has them: grey 1, colour 3, with transparency 4. Caffe's own choice, OpenCV's
    /// `IMREAD_UNCHANGED`. EXIF orientation is not applied.
    #[default]
    Native,
    /// Always 3: Caffe's `force_color`, `IMREAD_COLOR`. EXIF orientation is applied.
    Color,
    /// Always 1: Caffe's `force_gray`, `IMREAD_GRAYSCALE`. EXIF orientation is applied.
    Gray,
}

impl ColorMode {
    /// How many channels a file of so many comes to.
    fn channels(self, native: usize) -> usize {
        match self {
            ColorMode::Native => native,
            ColorMode::Color => 3,
            ColorMode::Gray => 1,
        }
    }

    /// Which way an image is to be turned whose EXIF says `orientation`.
    fn turn(self, orientation: Orientation) -> Orientation {
        if self == ColorMode::Native { Orientation::default() } else { orientation }
    }
}

/// A part of an image, in pixels. It is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) top: usize,
    pub(crate) left: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

/// What is wanted of an encoded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Decode {
    pub(crate) color: ColorMode,
    /// Rows and columns that the image is resized to, after it was turned: ImageData's `new_height` and `new_width`.
    pub(crate) resize: Option<(usize, usize)>,
    /// Whether a JPEG may be decoded to fewer pixels than it has, where the resize leaves fewer still.
    pub(crate) scaled: bool,
}

impl Decode {
    /// Rows and columns that an image which is to be turned so needs to have as it lies, if it may be smaller than it is.
    fn least(&self, turn: Orientation) -> Option<[usize; 2]> {
        let (height, width) = self.resize.filter(|_| self.scaled)?;
        // A transposition is undone by another.
        let ImageShape { height, width, .. } = turn.apply(ImageShape { channels: 1, height, width });
        Some([height, width])
    }

    /// The shape of what a file comes to.
    fn output(&self, file: &Contents) -> Result<ImageShape, DecodeError> {
        self.resized_shape(file.turn.apply(file.shape))
    }

    /// The shape that an image which is not encoded comes to.
    pub(crate) fn resized(&self, image: &Image<'_>) -> Result<ImageShape, DecodeError> {
        match image.pixels {
            _ if self.resize.is_none() => Ok(image.shape),
            Pixels::U8(_) => self.resized_shape(image.shape),
            Pixels::F32(_) => Err(DecodeError::ResizeOfFloats),
        }
    }

    /// The part of a file's image that its planes are needed of: what `choose` says, if the output is the image as
    /// it is decoded, or else all of it.
    ///
    /// # Panics
    ///
    /// Panics if the part that was chosen is not within the image.
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

    fn resized_shape(&self, mut shape: ImageShape) -> Result<ImageShape, DecodeError> {
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

/// What a file holds, by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    /// The shape of its pixels as they are decoded, in the channels that are wanted, before they are turned.
    shape: ImageShape,
    /// The pixels that buffers are counted by: more than the image's where samples come in whole blocks, and where it is
    /// decoded to fewer than it has.
    pixels: usize,
    /// Which way they are to be turned.
    turn: Orientation,
}

impl Contents {
    /// Fails where the image is larger than OpenCV reads.
    fn new(shape: ImageShape, held: usize, turn: Orientation) -> Result<Self, DecodeError> {
        let pixels = shape.height.checked_mul(shape.width);
        let sides = shape.height.max(shape.width);
        if sides > SIDE_MAX || pixels.is_none_or(|pixels| pixels > PIXELS_MAX) {
            return Err(DecodeError::Size { found: shape });
        }
        Ok(Self { shape, pixels: held, turn })
    }
}

/// The formats that are read.
enum Format {
    Jpeg,
    Png,
}

impl Format {
    /// The format by the first bytes, as OpenCV tells it.
    fn of(file: &[u8]) -> Result<Self, DecodeError> {
        if file.starts_with(jpeg::SIGNATURE) {
            Ok(Format::Jpeg)
        } else if file.starts_with(png::SIGNATURE) {
            Ok(Format::Png)
        } else {
            Err(DecodeError::Format { found: error::format_name(file) })
        }
    }
}

/// The shape that a file comes to, by what it says of itself: no pixel is read.
pub(crate) fn shape(file: &[u8], wanted: &Decode) -> Result<ImageShape, DecodeError> {
    wanted.output(&contents(file, wanted)?)
}

/// The pixels of a file's own image, before it is turned and resized, in whole blocks where it has any: none is read.
pub(crate) fn file_pixels(file: &[u8], wanted: &Decode) -> Result<usize, DecodeError> {
    Ok(contents(file, wanted)?.pixels)
}

fn contents(file: &[u8], wanted: &Decode) -> Result<Contents, DecodeError> {
    match Format::of(file)? {
        Format::Jpeg => jpeg::contents(file, wanted),
        Format::Png => png::contents(file, wanted.color),
    }
}

/// Reads files one after another, in buffers that are kept. A worker has one of its own.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    jpeg: jpeg::Jpeg,
    /// What the PNG library writes to.
    interleaved: Vec<u8>,
    planes: Vec<u8>,
    /// Where the planes are turned or resized to; then the two change places.
    spare: Vec<u8>,
    resizer: Resizer,
}

impl Decoder {
    /// The pixels of a file. They lie in this decoder until it reads the next.
    ///
    /// `window` is given the image's shape, and may say which part of it is enough. The planes have the shape of the
    /// whole image even so, and hold the whole image's pixels in that part; beside it they hold anything. The file is
    /// read to its end all the same: damage outside of the part is an error too.
    ///
    /// # Panics
    ///
    /// Panics if the part is not within the image.
    pub(crate) fn decode(
        &mut self,
        file: &[u8],
        wanted: &Decode,
        window: impl FnOnce(ImageShape) -> Option<Window>,
    ) -> Result<Image<'_>, DecodeError> {
        let contents = match Format::of(file)? {
            Format::Jpeg => self.jpeg.read(file, wanted, window, &mut self.planes)?,
            Format::Png => png::read(file, wanted, &mut self.interleaved, &mut self.planes)?,
        };
        let output = wanted.output(&contents)?;
        let mut shape = contents.shape;
        if contents.turn != Orientation::default() {
            let turned = contents.turn.apply(shape);
            turn::turn(contents.turn, &self.planes, shape, room(&mut self.spare, elements(turned)));
            std::mem::swap(&mut self.planes, &mut self.spare);
            shape = turned;
        }
        if shape != output {
            let resized = room(&mut self.spare, elements(output));
            self.resizer.resize(&self.planes, shape, resized, output);
            std::mem::swap(&mut self.planes, &mut self.spare);
        }
        Ok(Image { shape: output, pixels: Pixels::U8(&self.planes[..elements(output)]) })
    }

    /// The pixels of an image that is not encoded: where they lie, unless it is to be resized.
    pub(crate) fn resize<'a>(
        &'a mut self,
        image: Image<'a>,
        wanted: &Decode,
    ) -> Result<Image<'a>, DecodeError> {
        let output = wanted.resized(&image)?;
        match image.pixels {
            Pixels::U8(planes) if output != image.shape => {
                let resized = room(&mut self.planes, elements(output));
                self.resizer.resize(planes, image.shape, resized, output);
                Ok(Image { shape: output, pixels: Pixels::U8(resized) })
            }
            _ => Ok(image),
        }
    }
}

/// The first `len` bytes of a buffer that only grows, and to no more than was asked for. What was in it may be gone.
fn room(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        // Not both at once.
        drop(std::mem::take(buffer));
        *buffer = vec![0; len];
    }
    &mut buffer[..len]
}

/// As many as a shape has that was checked.
fn elements(shape: ImageShape) -> usize {
    shape.channels * shape.height * shape.width
}

#[cfg(test)]
mod tests;
