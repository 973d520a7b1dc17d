//! The photographs from which records are cut.

use anyhow::Context as _;
use percolator::ColorMode;
use percolator::batch::ImageShape;
use percolator::decoder::ImageFileDecoder;
use percolator_image::{Decode, Decoder, Planes};

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
    pub(super) fn cut(&self, dice: &mut Dice, height: usize, width: usize) -> anyhow::Result<Vec<u8>> {
        let Photo { shape: whole, planes } = &self.0[dice.below(self.0.len())];
        // The width of the largest window of the same aspect ratio.
        let widest = whole.width.min(whole.height * width / height);
        let narrowest = widest * 3 / 4;
        let part_width = narrowest + dice.below(widest - narrowest) + 1;
        let part_height = (part_width * height / width).clamp(1, whole.height);
        let (left, top) =
            (dice.below(whole.width - part_width + 1), dice.below(whole.height - part_height + 1));
        let is_mirrored = dice.below(2) == 1;
        let rows = planes
            .chunks_exact(whole.height * whole.width)
            .flat_map(|plane| plane.chunks_exact(whole.width).skip(top).take(part_height));
        let part: Vec<u8> = rows.flat_map(|row| &row[left..][..part_width]).copied().collect();
        let shape = ImageShape { height: part_height, width: part_width, ..*whole };
        let wanted = Decode { resize: Some((height, width)), ..Decode::default() };
        let mut decoder = Decoder::default();
        let mut planes = decoder.resize(Planes { shape, bytes: &part }, &wanted)?.bytes.to_owned();
        if is_mirrored {
            planes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        Ok(planes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_has_the_size_that_was_asked_for() {
        let photos = Photos::open().unwrap();
        let mut dice = Dice::new(3);
        for (height, width) in [(1, 1), (32, 32), (375, 500), (700, 20), (20, 700)] {
            for _ in 0..20 {
                assert_eq!(photos.cut(&mut dice, height, width).unwrap().len(), 3 * height * width);
            }
        }
    }
}
