//! A few of a data set's images, decoded and small, to be viewed.

use percolator::batch::ImageShape;
use percolator::decoder::{ImageFileDecoder, RecordCause};
use percolator::record::{Image, Pixels as Elements};

use crate::content::{ChannelOrder, Content, Label, Values, caught};
use crate::open::DataSet;
use crate::scan::{self, OnDamage, Progress, Scan, ScanError, Seen, Selection};

/// The most pictures that are shown together.
pub const PICTURES_MAX: u64 = 2000;

/// An image of red, green and blue bytes, pixel by pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Three bytes a pixel, row by row.
    pub rgb: Vec<u8>,
}

/// A record's image, as people see it.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct ShownPicture {
    /// The record's number.
    pub number: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its label, if it has one.
    pub label: Option<Label>,
    /// Its shape, before it was made smaller; `None` if it has no image.
    pub shape: Option<ImageShape>,
    /// Its image, if it has one, or what is wrong with it.
    pub pixels: Result<Option<Pixels>, String>,
}

/// Which pictures are made.
#[derive(Clone, Copy, Debug)]
pub struct PictureOptions {
    /// How many records are shown: at least 1, and at most [`PICTURES_MAX`].
    pub count: u64,
    /// The side of the square that each picture fits into, in pixels.
    pub side: usize,
    /// What values are; by default what [most records](Content::of) are.
    pub content: Option<Content>,
    /// The order of the channels of images that are not encoded.
    pub channels: ChannelOrder,
}

impl Default for PictureOptions {
    fn default() -> Self {
        PictureOptions { count: 64, side: 112, content: None, channels: ChannelOrder::Bgr }
    }
}

impl PictureOptions {
    /// What values are, and the records, evenly spread, whose images are shown.
    pub(super) fn chosen(&self, data: &DataSet, progress: &Progress) -> Result<(Values, Scan), ScanError> {
        let values = Values::find(data, self.content, progress)?;
        values.check_one_image(data)?;
        let records = scan::count(data, progress)?;
        let selection = Selection::Spread { wanted: self.count.clamp(1, PICTURES_MAX), records };
        Ok((values, Scan { selection, on_damage: OnDamage::End, ..Scan::default() }))
    }
}

/// Decodes images that are evenly spread over the data set. There are fewer if there are fewer records, and
/// none if no record has an image.
///
/// # Errors
///
/// [`ScanError`] if the data set cannot be read, or there is no memory to decode an image.
pub fn pictures(
    data: &DataSet,
    options: &PictureOptions,
    progress: &Progress,
) -> Result<Vec<ShownPicture>, ScanError> {
    let (values, scan) = options.chosen(data, progress)?;
    let mut pictures = Vec::new();
    scan.run(
        data,
        progress,
        ImageFileDecoder::default,
        |decoder, seen| ShownPicture::of(data, seen, &values, decoder, options),
        |event| {
            pictures.push(event.done()??);
            Ok::<_, ScanError>(())
        },
    )?;
    if pictures.iter().all(|picture| picture.pixels == Ok(None)) {
        pictures.clear();
    }
    Ok(pictures)
}

impl ShownPicture {
    fn of(
        data: &DataSet,
        seen: Seen<'_>,
        values: &Values,
        decoder: &mut ImageFileDecoder,
        options: &PictureOptions,
    ) -> Result<Self, ScanError> {
        let (number, key, side) = (seen.number, seen.key.to_owned(), options.side);
        let mut picture = ShownPicture { number, key, label: None, shape: None, pixels: Ok(None) };
        let look = |decoder: &mut ImageFileDecoder| -> Result<(), RecordCause> {
            let parts = values.parts(seen.value)?;
            picture.label = parts.label;
            if let Some(found) = parts.picture {
                let channels = found.channels(options.channels);
                let image = found.decode(decoder)?;
                picture.shape = Some(image.shape);
                picture.pixels = Ok(Some(Pixels::of(&image, channels).fitted(side, side)));
            }
            Ok(())
        };
        if let Err(cause) = caught(decoder, ImageFileDecoder::default, look) {
            if let Some(end) = ScanError::no_memory(data.path(), seen.number, seen.key, &cause) {
                return Err(end);
            }
            picture.pixels = Err(cause.to_string());
        }
        Ok(picture)
    }
}

impl Pixels {
    /// An image's pixels as a screen shows them. Three and four channels are colours in this order, and
    /// alpha, which is laid over white. Of any other number of channels, the first is shown as grey. Floats
    /// are stretched from the least to the greatest.
    #[must_use]
    pub fn of(image: &Image<'_>, channels: ChannelOrder) -> Self {
        let [red, green, blue] = match channels {
            ChannelOrder::Bgr => [2, 1, 0],
            ChannelOrder::Rgb => [0, 1, 2],
        };
        let ImageShape { channels, height, width } = image.shape;
        let bytes = bytes_of(image);
        let plane = height * width;
        let mut rgb = Vec::with_capacity(3 * plane);
        for place in 0..plane {
            let at = |channel: usize| bytes[channel * plane + place];
            rgb.extend_from_slice(&match channels {
                3 => [at(red), at(green), at(blue)],
                4 => [red, green, blue].map(|channel| over_white(at(channel), at(3))),
                _ => [at(0); 3],
            });
        }
        Pixels { width, height, rgb }
    }

    /// The same image, as large as fits so many columns and rows: smaller by the mean of the pixels that each
    /// new one covers, or larger by whole factors.
    #[must_use]
    pub fn fitted(&self, columns: usize, rows: usize) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let factor = (columns / self.width).min(rows / self.height);
        if factor >= 1 {
            return self.sampled(self.width * factor, self.height * factor);
        }
        // The longer side decides. Sides are below 2^31, so nothing overflows.
        let is_wide = self.width * rows >= self.height * columns;
        let (width, height) = match is_wide {
            true => (columns, (self.height * columns / self.width).max(1)),
            false => ((self.width * rows / self.height).max(1), rows),
        };
        self.sampled(width, height)
    }

    /// The image with other sides.
    fn sampled(&self, width: usize, height: usize) -> Self {
        // The first and the last source pixel of a new one, which covers at least one.
        let covered = |place: usize, new: usize, old: usize| {
            let first = place * old / new;
            first..((place + 1) * old).div_ceil(new).clamp(first + 1, old)
        };
        let mut rgb = Vec::with_capacity(3 * width * height);
        for row in 0..height {
            let rows = covered(row, height, self.height);
            for column in 0..width {
                let columns = covered(column, width, self.width);
                let mut sums = [0u64; 3];
                for y in rows.clone() {
                    let line = &self.rgb[3 * y * self.width..];
                    for pixel in line[3 * columns.start..3 * columns.end].chunks_exact(3) {
                        sums.iter_mut().zip(pixel).for_each(|(sum, &byte)| *sum += u64::from(byte));
                    }
                }
                let count = (rows.len() * columns.len()) as u64;
                rgb.extend(sums.map(|sum| u8::try_from((sum + count / 2) / count).unwrap_or(u8::MAX)));
            }
        }
        Pixels { width, height, rgb }
    }

    /// Puts pictures on a white sheet, row by row, each in the middle of a square cell that it fits into,
    /// with `gap` pixels around it.
    ///
    /// # Panics
    ///
    /// If a picture is wider or higher than a cell.
    #[must_use]
    pub fn sheet(rows: &[Vec<Pixels>], cell: usize, gap: usize) -> Self {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let side = |cells: usize| cells * (cell + gap) + gap;
        let (width, height) = (side(columns), side(rows.len()));
        let mut rgb = vec![255; 3 * width * height];
        for (row, pictures) in rows.iter().enumerate() {
            for (column, picture) in pictures.iter().enumerate() {
                let top = side(row) + (cell - picture.height) / 2;
                let left = side(column) + (cell - picture.width) / 2;
                for (line, pixels) in picture.rgb.chunks_exact(3 * picture.width).enumerate() {
                    rgb[3 * ((top + line) * width + left)..][..pixels.len()].copy_from_slice(pixels);
                }
            }
        }
        Pixels { width, height, rgb }
    }

    /// A PNG file of it.
    ///
    /// # Errors
    ///
    /// [`png::EncodingError`] if it is larger than a PNG file can be.
    pub fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, side(self.width), side(self.height));
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.rgb)?;
        writer.finish()?;
        Ok(file)
    }
}

fn over_white(byte: u8, alpha: u8) -> u8 {
    let mixed = (u32::from(byte) * u32::from(alpha) + 255 * (255 - u32::from(alpha)) + 127) / 255;
    u8::try_from(mixed).unwrap_or(u8::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
fn bytes_of<'a>(image: &Image<'a>) -> std::borrow::Cow<'a, [u8]> {
    match image.pixels {
        Elements::U8(bytes) => bytes.into(),
        Elements::F32(floats) => {
            let mut values = Vec::with_capacity(floats.len());
            floats.gather(&mut values);
            let finite = || values.iter().copied().filter(|value| value.is_finite());
            let (min, max) =
                (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max));
            let scale = if max > min { 255.0 / (max - min) } else { 0.0 };
            values.iter().map(|value| ((value - min) * scale) as u8).collect::<Vec<u8>>().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image(channels: usize, height: usize, width: usize, bytes: &[u8]) -> Pixels {
        ordered(ChannelOrder::Bgr, channels, height, width, bytes)
    }

    fn ordered(order: ChannelOrder, channels: usize, height: usize, width: usize, bytes: &[u8]) -> Pixels {
        let shape = ImageShape { channels, height, width };
        Pixels::of(&Image { shape, pixels: Elements::U8(bytes) }, order)
    }

    #[test]
    fn channels_become_colours() {
        assert_eq!(image(3, 1, 1, &[1, 2, 3]).rgb, [3, 2, 1]);
        assert_eq!(image(1, 1, 2, &[7, 9]).rgb, [7, 7, 7, 9, 9, 9]);
        assert_eq!(image(4, 1, 1, &[10, 20, 30, 255]).rgb, [30, 20, 10]);
        assert_eq!(image(4, 1, 1, &[10, 20, 30, 0]).rgb, [255, 255, 255]);
        assert_eq!(image(5, 1, 1, &[4, 9, 9, 9, 9]).rgb, [4, 4, 4]);
        assert_eq!(ordered(ChannelOrder::Rgb, 3, 1, 1, &[1, 2, 3]).rgb, [1, 2, 3]);
        assert_eq!(ordered(ChannelOrder::Rgb, 4, 1, 1, &[10, 20, 30, 255]).rgb, [10, 20, 30]);
    }

    #[test]
    fn a_sheet_has_each_picture_in_its_cell() {
        let picture = |width, height, level| Pixels { width, height, rgb: vec![level; 3 * width * height] };
        let sheet = Pixels::sheet(&[vec![picture(2, 1, 7), picture(2, 2, 8)], vec![picture(1, 2, 9)]], 2, 1);
        assert_eq!((sheet.width, sheet.height), (7, 7));
        let levels: Vec<u8> = sheet.rgb.chunks_exact(3).map(|pixel| pixel[0]).collect();
        let rows: Vec<&[u8]> = levels.chunks_exact(7).collect();
        const NO: u8 = 255;
        assert_eq!(rows[0], [NO; 7]);
        assert_eq!(rows[1], [NO, 7, 7, NO, 8, 8, NO]);
        assert_eq!(rows[2], [NO, NO, NO, NO, 8, 8, NO]);
        assert_eq!(rows[4], [NO, 9, NO, NO, NO, NO, NO]);
        assert_eq!(Pixels::sheet(&[], 2, 1).rgb, [NO; 3]);
    }

    #[test]
    fn images_fit_and_keep_their_form() {
        let sides = |width, height, columns, rows| {
            let rgb = vec![5; 3 * width * height];
            let fitted = Pixels { width, height, rgb }.fitted(columns, rows);
            assert!(fitted.rgb.iter().all(|&byte| byte == 5));
            (fitted.width, fitted.height)
        };
        assert_eq!(sides(28, 28, 96, 96), (84, 84));
        assert_eq!(sides(500, 250, 96, 96), (96, 48));
        assert_eq!(sides(250, 500, 96, 96), (48, 96));
        assert_eq!(sides(97, 1, 96, 96), (96, 1));
        assert_eq!(sides(1, 5000, 40, 20), (1, 20));
        assert_eq!(image(1, 1, 4, &[0, 10, 20, 31]).sampled(2, 1).rgb, [5, 5, 5, 26, 26, 26]);
    }

    proptest! {
        #[test]
        fn a_png_has_the_pixels(width in 1usize..20, height in 1usize..20, seed in any::<u8>()) {
            let bytes = (0..=u8::MAX).cycle().map(|n| n.wrapping_mul(31) ^ seed);
            let rgb: Vec<u8> = bytes.take(3 * width * height).collect();
            let file = Pixels { width, height, rgb: rgb.clone() }.to_png().unwrap();
            let mut decoder = ImageFileDecoder::default();
            let image = decoder.decode(&file).unwrap().into();
            prop_assert_eq!(Pixels::of(&image, ChannelOrder::Bgr), Pixels { width, height, rgb });
        }

        #[test]
        fn any_fit_fits(sides in [1usize..300, 1usize..300], columns in 1usize..200, rows in 1usize..200) {
            let [width, height] = sides;
            let fitted = Pixels { width, height, rgb: vec![0; 3 * width * height] }.fitted(columns, rows);
            prop_assert!(fitted.width <= columns && fitted.height <= rows);
            prop_assert_eq!(fitted.rgb.len(), 3 * fitted.width * fitted.height);
        }
    }
}
