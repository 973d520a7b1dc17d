//! Encoded images: PNG, JPEG, and the EXIF in them.

use percolator::{ColorMode, batch::ImageShape};
use percolator_image::{ImageFileDecoder, Planes, Window};

use crate::accepted::accepted;
use crate::memory::{Budget, within};
use crate::repair;

/// A byte of a JPEG is at most 512 pixels, one of a PNG 8,256 (of one bit), and a pixel takes at most 29
/// bytes. Besides, a profile of 8 MB may be inflated, and the PNG library has tables.
pub(crate) const DECODED: Budget = Budget::mebibytes(32, 8_256 * 29);

const COLORS: [ColorMode; 5] =
    [ColorMode::Native, ColorMode::Color, ColorMode::Gray, ColorMode::Rgb, ColorMode::Upright];

/// As many, but a file of a blank image may have 2^22 pixels, however short it is.
const MAYBE_BLANK: Budget = Budget::mebibytes(32 + 4 * 29, 8_256 * 29);

/// Images of more pixels are decoded, but not resized and not cut, to save time.
const PIXELS_MAX: usize = 1 << 16;

/// A PNG.
pub(crate) fn png(bytes: &[u8]) {
    repair::both(bytes, repair::png, |bytes| decode(bytes, DECODED));
}

/// A JPEG.
pub(crate) fn jpeg(bytes: &[u8]) {
    decode(bytes, DECODED);
}

/// A BMP.
pub(crate) fn bmp(bytes: &[u8]) {
    decode(bytes, MAYBE_BLANK);
}

/// A GIF.
pub(crate) fn gif(bytes: &[u8]) {
    decode(bytes, MAYBE_BLANK);
}

/// A PBM, PGM or PPM.
pub(crate) fn pnm(bytes: &[u8]) {
    decode(bytes, DECODED);
}

/// A TIFF.
pub(crate) fn tiff(bytes: &[u8]) {
    decode(bytes, DECODED);
}

/// A WebP.
pub(crate) fn webp(bytes: &[u8]) {
    decode(bytes, MAYBE_BLANK);
}

/// A block of EXIF, in a JPEG and in a PNG of which each pixel is another: whatever it says, the image is one
/// of the eight that it can be, and both formats agree.
pub(crate) fn exif(bytes: &[u8]) {
    /// A segment of a JPEG has its length in two bytes.
    const BLOCK_BYTES_MAX: usize = 60_000;

    let block = &bytes[..bytes.len().min(BLOCK_BYTES_MAX)];
    let mut decoder = ImageFileDecoder::new(ColorMode::Color);
    let (jpeg, png) = (jpeg_with(block), png_with(block));
    let plain = planes(&mut decoder, &jpeg_with(b""));
    let turned = planes(&mut decoder, &jpeg);
    check_turned(&plain, &turned);
    if plain != turned {
        accepted();
    }
    // OpenCV drops a block of a PNG that does not begin with its byte order.
    if block.starts_with(b"II") || block.starts_with(b"MM") {
        let of_png = planes(&mut decoder, &png);
        check_turned(&planes(&mut decoder, &png_with(b"")), &of_png);
        assert_eq!(of_png.0.height > of_png.0.width, turned.0.height > turned.0.width, "another turn");
    }
}

fn planes(decoder: &mut ImageFileDecoder, file: &[u8]) -> (ImageShape, Vec<u8>) {
    let Planes { shape, bytes } = decoder.decode(file).expect("the image itself is whole");
    (shape, bytes.to_vec())
}

fn check_turned((shape, pixels): &(ImageShape, Vec<u8>), (turned_shape, turned): &(ImageShape, Vec<u8>)) {
    let sides = |shape: &ImageShape| [shape.height.min(shape.width), shape.height.max(shape.width)];
    assert_eq!((shape.channels, sides(shape)), (turned_shape.channels, sides(turned_shape)));
    let sorted = |pixels: &[u8]| {
        let mut pixels = pixels.to_vec();
        pixels.sort_unstable();
        pixels
    };
    assert_eq!(sorted(pixels), sorted(turned), "pixels come and go");
}

/// A JPEG of 27x16 pixels with this block of EXIF.
fn jpeg_with(block: &[u8]) -> Vec<u8> {
    const IMAGE: &[u8] = include_bytes!("../seeds/27x16.jpg");

    let bytes = u16::try_from(block.len() + 8).expect("a block is short enough");
    let segment = [&b"\xff\xe1"[..], &bytes.to_be_bytes(), b"Exif\0\0", block].concat();
    [&IMAGE[..2], if block.is_empty() { b"" } else { &segment[..] }, &IMAGE[2..]].concat()
}

/// A PNG of 3x2 grey pixels with this block of EXIF.
fn png_with(block: &[u8]) -> Vec<u8> {
    let chunk = |kind: &[u8], data: &[u8]| {
        let bytes = u32::try_from(data.len()).expect("a chunk is short enough");
        [&bytes.to_be_bytes(), kind, data, &[0; 4]].concat()
    };
    // Three pixels a row, after the row's filter; stored without compression.
    let rows = [0, 10, 20, 30, 0, 40, 50, 60];
    let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::none());
    std::io::Write::write_all(&mut deflated, &rows).expect("a vector takes all");
    let mut file = [
        &b"\x89PNG\r\n\x1a\n"[..],
        &chunk(b"IHDR", &[0, 0, 0, 3, 0, 0, 0, 2, 8, 0, 0, 0, 0]),
        &chunk(b"eXIf", block),
        &chunk(b"IDAT", &deflated.finish().expect("a vector takes all")),
        &chunk(b"IEND", b""),
    ]
    .concat();
    repair::png(&mut file);
    file
}

/// Decodes a file in every way. The head's shape is the image's, a decoder that is used again has the same
/// pixels as a new one, and a window has those of the whole.
fn decode(file: &[u8], budget: Budget) {
    for color in COLORS {
        let mut decoder = ImageFileDecoder::new(color);
        let shape = within(file, budget, || decoder.shape(file)).ok();
        let decoded = within(file, budget, || {
            decoder.decode(file).ok().map(|Planes { shape, bytes }| (shape, bytes.to_vec()))
        });
        let Some((found, pixels)) = decoded else { continue };
        accepted();
        assert_eq!(Some(found), shape);
        assert_eq!(found.channels * found.height * found.width, pixels.len());
        if found.height * found.width > PIXELS_MAX {
            continue;
        }
        let again = decoder.decode(file).expect("what was decoded once is decoded twice");
        assert!(again == (Planes { shape: found, bytes: &pixels }), "decoded twice, there are two images");
        check_window(file, color, found, &pixels);
        let resized = || ImageFileDecoder::new(color).resize(5, 7);
        for mut resized in [resized(), resized().scaled()] {
            let Planes { shape, .. } = resized.decode(file).expect("what is decoded can be resized");
            assert_eq!((shape.height, shape.width), (5, 7));
        }
    }
}

fn check_window(file: &[u8], color: ColorMode, shape: ImageShape, pixels: &[u8]) {
    let ImageShape { channels, height, width } = shape;
    let (top, left) = (height / 3, width / 3);
    let window = Window { top, left, height: (height - top).div_ceil(2), width: (width - left).div_ceil(2) };
    let mut decoder = ImageFileDecoder::new(color);
    let Planes { shape: found, bytes: part } =
        decoder.decode_window(file, window).expect("a part can be decoded as well");
    assert_eq!(found, shape);
    for channel in 0..channels {
        for row in top..top + window.height {
            let start = (channel * height + row) * width + left;
            assert!(part[start..start + window.width] == pixels[start..start + window.width], "row {row}");
        }
    }
}
