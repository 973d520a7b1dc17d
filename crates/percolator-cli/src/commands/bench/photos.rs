//! The photographs from which records are cut.

use anyhow::Context as _;
use percolator::ColorMode;
use percolator::batch::ImageShape;
use percolator::decoder::ImageFileDecoder;

use super::dice::Dice;

/// They are part of the program, so that data can be made wherever it runs.
const FILES: [&[u8]; 4] = [
    include_bytes!("photos/astronaut.jpg"),
    include_bytes!("photos/chelsea.jpg"),
    include_bytes!("photos/coffee.jpg"),
    include_bytes!("photos/rocket.jpg"),
];

/// The photographs, decoded.
#[derive(Debug)]
pub(super) struct Photos(Vec<Photo>);

/// Planes, in the order B, G, R.
#[derive(Debug)]
struct Photo {
    shape: ImageShape,
    planes: Vec<u8>,
}

impl Photos {
    pub(super) fn open() -> anyhow::Result<Self> {
        let mut decoder = ImageFileDecoder::new(ColorMode::Color);
        let open = |file| {
            let image = decoder.decode(file).context("a photograph of this program's own")?;
            Ok(Photo { shape: image.shape, planes: image.bytes.to_owned() })
        };
        Ok(Photos(FILES.into_iter().map(open).collect::<anyhow::Result<_>>()?))
    }

    /// A hash of all pixels: decoders of different builds may differ by a few levels.
    pub(super) fn hash(&self) -> u64 {
        // FNV-1a, 64 bits.
        let bytes = self.0.iter().flat_map(|photo| &photo.planes);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Cuts planes of this height and width: a random window, at least three quarters as wide as the
    /// photograph allows, resized, and mirrored every second time on average.
    pub(super) fn cut(&self, dice: &mut Dice, height: usize, width: usize) -> Vec<u8> {
        let photo = &self.0[dice.below(self.0.len())];
        // The width of the largest window of the same aspect ratio.
        let widest = photo.shape.width.min(photo.shape.height * width / height);
        let narrowest = widest * 3 / 4;
        let window_width = narrowest + dice.below(widest - narrowest) + 1;
        let window_height = (window_width * height / width).clamp(1, photo.shape.height);
        let x = dice.below(photo.shape.width - window_width + 1);
        let y = dice.below(photo.shape.height - window_height + 1);
        let is_mirrored = dice.below(2) == 1;
        let (rows, mut columns) = (taps(window_height, height, y), taps(window_width, width, x));
        if is_mirrored {
            columns.reverse();
        }
        photo.resized(&rows, &columns)
    }
}

/// Two adjacent pixels, and the weight of the second, in 256ths.
#[derive(Clone, Copy, Debug)]
struct Tap {
    at: usize,
    next: usize,
    weight: u32,
}

/// The taps of each of `wanted` pixels, over `found` pixels from `from` on.
fn taps(found: usize, wanted: usize, from: usize) -> Vec<Tap> {
    let tap = |pixel: usize| {
        // In 256ths: the middle of the pixel, moved back by half a pixel.
        let middle = ((2 * pixel + 1) * found * 128 / wanted).saturating_sub(128);
        let at = (middle / 256).min(found - 1);
        let weight = u32::try_from(middle % 256).expect("it is less than 256");
        Tap { at: from + at, next: from + (at + 1).min(found - 1), weight }
    };
    (0..wanted).map(tap).collect()
}

impl Photo {
    fn resized(&self, rows: &[Tap], columns: &[Tap]) -> Vec<u8> {
        let ImageShape { channels, height, width } = self.shape;
        let mut planes = Vec::with_capacity(channels * rows.len() * columns.len());
        for plane in self.planes.chunks_exact(height * width) {
            for row in rows {
                let line = |row: usize| &plane[row * width..][..width];
                let (upper, lower) = (line(row.at), line(row.next));
                planes.extend(columns.iter().map(|column| {
                    let across =
                        |line: &[u8]| mixed(line[column.at].into(), line[column.next].into(), column.weight);
                    let mixed = mixed(across(upper), across(lower), row.weight) >> 16;
                    u8::try_from(mixed).expect("a mean of bytes is one")
                }));
            }
        }
        planes
    }
}

/// The weighted mean of two values, times 256.
fn mixed(first: u32, second: u32, weight: u32) -> u32 {
    first * (256 - weight) + second * weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_to_the_same_size_changes_nothing() {
        let shape = ImageShape { channels: 2, height: 3, width: 4 };
        let photo = Photo { shape, planes: (0..24).map(|at| at * 10).collect() };
        assert_eq!(photo.resized(&taps(3, 3, 0), &taps(4, 4, 0)), photo.planes);
        assert_eq!(photo.resized(&taps(1, 1, 2), &taps(2, 2, 1)), [90, 100, 210, 220], "a window of it");
    }

    #[test]
    fn a_cut_has_the_size_that_was_asked_for() {
        let photos = Photos::open().unwrap();
        let mut dice = Dice::new(3);
        for (height, width) in [(1, 1), (32, 32), (375, 500), (700, 20), (20, 700)] {
            for _ in 0..20 {
                assert_eq!(photos.cut(&mut dice, height, width).len(), 3 * height * width);
            }
        }
    }
}
