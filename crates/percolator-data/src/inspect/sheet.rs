//! A contact sheet: pictures in rows, each with its label and its record's number below it.

use super::font;
use super::pictures::{Pixels, ShownPicture};

/// The side of a picture's square, in pixels.
pub(crate) const SIDE: usize = 112;
const GAP: usize = 6;
/// The room of a line of text below a picture.
const TEXT: usize = font::ROWS + 5;
const PAPER: [u8; 3] = [24, 26, 30];
const INK: [u8; 3] = [235, 235, 235];
const FAINT: [u8; 3] = [140, 145, 155];
const DAMAGE: [u8; 3] = [150, 40, 40];

/// Lays pictures out in a sheet that is about as wide as it is high. The label is on the left below each
/// picture, `#` and the record's number on the right. A record whose image cannot be decoded is a red square.
#[must_use]
pub fn sheet(pictures: &[ShownPicture]) -> Pixels {
    let columns = (1..).find(|columns| columns * columns >= pictures.len()).unwrap_or(1);
    let rows = pictures.len().div_ceil(columns);
    let (width, height) = (GAP + columns * (SIDE + GAP), GAP + rows * (SIDE + TEXT + GAP));
    let mut sheet = Pixels { width, height, rgb: PAPER.repeat(width * height) };
    for (place, picture) in pictures.iter().enumerate() {
        let left = GAP + place % columns * (SIDE + GAP);
        let top = GAP + place / columns * (SIDE + TEXT + GAP);
        match &picture.pixels {
            Ok(Some(pixels)) => {
                let fitted = pixels.fitted(SIDE, SIDE);
                let (x, y) = (left + (SIDE - fitted.width) / 2, top + (SIDE - fitted.height) / 2);
                sheet.paste(x, y, &fitted);
            }
            Ok(None) => {}
            Err(_) => sheet.fill(left, top, SIDE, SIDE, DAMAGE),
        }
        let number = format!("#{}", picture.number);
        let label = picture.label.map(|label| label.to_string()).unwrap_or_default();
        let line = top + SIDE + 3;
        sheet.write(left, line, &label, INK);
        // A number that would touch the label is left out: the label matters more.
        let taken = |text: &str| text.chars().count() * (font::COLUMNS + 1);
        if taken(&label) + taken(&number) < SIDE {
            sheet.write(left + SIDE + 1 - taken(&number), line, &number, FAINT);
        }
    }
    sheet
}

impl Pixels {
    fn set(&mut self, x: usize, y: usize, color: [u8; 3]) {
        if x < self.width && y < self.height {
            let at = 3 * (y * self.width + x);
            self.rgb[at..at + 3].copy_from_slice(&color);
        }
    }

    fn fill(&mut self, left: usize, top: usize, width: usize, height: usize, color: [u8; 3]) {
        for y in top..top + height {
            (left..left + width).for_each(|x| self.set(x, y, color));
        }
    }

    fn paste(&mut self, left: usize, top: usize, other: &Pixels) {
        for (y, row) in other.rgb.chunks_exact(3 * other.width).enumerate() {
            for (x, pixel) in row.chunks_exact(3).enumerate() {
                self.set(left + x, top + y, [pixel[0], pixel[1], pixel[2]]);
            }
        }
    }

    fn write(&mut self, left: usize, top: usize, text: &str, color: [u8; 3]) {
        for (place, character) in text.chars().enumerate() {
            let left = left + place * (font::COLUMNS + 1);
            for (y, row) in font::rows(character).into_iter().enumerate() {
                for x in 0..font::COLUMNS {
                    if row >> (font::COLUMNS - 1 - x) & 1 == 1 {
                        self.set(left + x, top + y, color);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use percolator::batch::ImageShape;

    use super::*;

    fn picture(number: u64, pixels: Result<Option<Pixels>, String>) -> ShownPicture {
        let has_image = pixels.as_ref().is_ok_and(Option::is_some);
        let shape = has_image.then_some(ImageShape { channels: 3, height: 1, width: 1 });
        ShownPicture { number, key: Vec::new(), label: Some(7), shape, pixels }
    }

    #[test]
    fn each_picture_is_in_its_place() {
        let colour = |byte: u8| Ok(Some(Pixels { width: 1, height: 1, rgb: vec![byte; 3] }));
        let pictures: Vec<_> = (0..5u8).map(|number| picture(u64::from(number), colour(number))).collect();
        let sheet = sheet(&pictures);
        assert_eq!((sheet.width, sheet.height), (GAP + 3 * (SIDE + GAP), GAP + 2 * (SIDE + TEXT + GAP)));
        let at = |x: usize, y: usize| sheet.rgb[3 * (y * sheet.width + x)];
        for place in 0..5 {
            let (x, y) = (place % 3 * (SIDE + GAP), place / 3 * (SIDE + TEXT + GAP));
            assert_eq!(usize::from(at(GAP + x + 50, GAP + y + 50)), place);
        }
        assert_eq!(at(GAP + 2 * (SIDE + GAP) + 50, GAP + SIDE + TEXT + GAP + 50), PAPER[0]);
    }

    #[test]
    fn labels_are_drawn() {
        let sheet = sheet(&[picture(12, Err("damaged".to_owned())), picture(13, Ok(None))]);
        let at = |x: usize, y: usize| {
            let at = 3 * (y * sheet.width + x);
            [sheet.rgb[at], sheet.rgb[at + 1], sheet.rgb[at + 2]]
        };
        assert_eq!(at(GAP + 5, GAP + 5), DAMAGE);
        assert_eq!(at(2 * GAP + SIDE + 5, GAP + 5), PAPER, "a record without an image is not damaged");
        // The upper bar of the 7.
        assert!((0..5).all(|x| at(GAP + x, GAP + SIDE + 3) == INK));
        assert_eq!(at(GAP, GAP + SIDE + 4), PAPER);
        assert!(sheet.rgb.chunks(3).any(|pixel| pixel == FAINT));
    }
}
