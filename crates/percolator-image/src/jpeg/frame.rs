//! A JPEG's frame: its size, and the components that its scans contain.

use super::idct::SIDE;
use super::{FORMAT, damaged};
use crate::DecodeError;

/// The longest side that libjpeg reads, in pixels.
const SIDE_MAX: usize = 65_500;

/// The most components of an image: those of CMYK.
pub(super) const COMPONENTS_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) across: usize,
    pub(super) down: usize,
    /// Its quantization table.
    pub(super) quantizer: usize,
    /// The number of samples on a side of its transformed blocks: [`SIDE`] or fewer.
    pub(super) side: usize,
}

/// A frame with 1, 3 or 4 components of 8 bits, each side at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) height: usize,
    pub(super) width: usize,
    components: [Component; COMPONENTS_MAX],
    count: usize,
    /// The largest sampling factors.
    pub(super) across: usize,
    pub(super) down: usize,
    pub(super) progressive: bool,
    /// The number of pixels to which each [`SIDE`] pixels of a row or a column are decoded.
    side: usize,
}

impl Frame {
    /// Parses the segment of the marker `code`, which is at `offset`.
    pub(super) fn parse(code: u8, offset: usize, segment: &[u8]) -> Result<Self, DecodeError> {
        check_process(code)?;
        let Some((&[bits, h1, h0, w1, w0, count], triples)) = segment.split_first_chunk() else {
            return Err(damaged(
                offset,
                format!("a frame of {} bytes: allowed are 9 or more", segment.len()),
            ));
        };
        if bits != 8 {
            return Err(unsupported(format!("samples of {bits} bits"), "samples of 8 bits"));
        }
        let [height, width] = [[h1, h0], [w1, w0]].map(|side| usize::from(u16::from_be_bytes(side)));
        if ![height, width].iter().all(|side| (1..=SIDE_MAX).contains(side)) {
            return Err(unsupported(format!("sides of {height} and {width}"), "sides of 1 to 65500"));
        }
        let (triples, rest) = triples.as_chunks();
        if triples.len() != usize::from(count) || !rest.is_empty() {
            return Err(damaged(offset, format!("a frame of {count} components in {} bytes", segment.len())));
        }
        let progressive = code == 0xc2;
        let (components, side) = ([Component::default(); COMPONENTS_MAX], SIDE);
        let mut frame = Self { height, width, components, count: 0, across: 1, down: 1, progressive, side };
        if ![1, 3, 4].contains(&count) {
            return Err(unsupported(
                format!("{count} components"),
                "grey, colour and CMYK: 1, 3 or 4 components",
            ));
        }
        for (component, &[id, factors, quantizer]) in frame.components.iter_mut().zip(triples) {
            let (across, down) = (usize::from(factors >> 4), usize::from(factors & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) {
                return Err(damaged(offset, format!("sampling of {across}x{down}: allowed are 1 to 4")));
            }
            *component = Component { id, across, down, quantizer: quantizer.into(), side: SIDE };
            frame.count += 1;
            (frame.across, frame.down) = (frame.across.max(across), frame.down.max(down));
        }
        let whole = |component: &Component| {
            frame.across.is_multiple_of(component.across) && frame.down.is_multiple_of(component.down)
        };
        if !frame.components().iter().all(whole) {
            return Err(unsupported("sampling by fractions".to_owned(), "sampling by whole numbers"));
        }
        Ok(frame)
    }

    pub(super) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// Whether the components are named R, G and B, which identifies RGB if nothing else does.
    pub(super) fn is_named_rgb(&self) -> bool {
        self.components().iter().map(|component| component.id).eq(*b"RGB")
    }

    /// The same frame, decoded to `side` pixels for each [`SIDE`]: 8, 4, 2 or 1.
    ///
    /// A subsampled component is reduced less if that brings it closer to one sample per pixel, equally in
    /// rows and columns. So does libjpeg, and the transform that a block takes decides its samples.
    pub(super) fn reduced(mut self, side: usize) -> Self {
        self.side = side;
        let (down, across) = (self.down * side, self.across * side);
        for component in &mut self.components[..self.count] {
            let divides = |side| {
                down.is_multiple_of(component.down * side) && across.is_multiple_of(component.across * side)
            };
            let mut sides = [SIDE, SIDE / 2, SIDE / 4].into_iter();
            component.side = sides.find(|&more| more > side && divides(more)).unwrap_or(side);
        }
        self
    }

    /// The rows and columns of pixels of the image as decoded.
    pub(super) fn pixels(&self) -> [usize; 2] {
        [self.height, self.width].map(|pixels| (pixels * self.side).div_ceil(SIDE))
    }

    /// Whether subsampled components may be interpolated. libjpeg does not interpolate if it makes one sample
    /// of a block.
    pub(super) fn interpolates(&self) -> bool {
        self.side > 1
    }

    /// The rows and columns of decoded pixels per sample of a component.
    pub(super) fn steps(&self, component: &Component) -> [usize; 2] {
        [
            self.down * self.side / (component.down * component.side),
            self.across * self.side / (component.across * component.side),
        ]
    }

    /// The rows and columns of a component's samples that belong to the image.
    pub(super) fn samples(&self, component: &Component) -> [usize; 2] {
        [
            (self.height * component.down * component.side).div_ceil(self.down * SIDE),
            (self.width * component.across * component.side).div_ceil(self.across * SIDE),
        ]
    }

    /// The rows and columns of a component's blocks that belong to the image.
    pub(super) fn blocks(&self, component: &Component) -> [usize; 2] {
        self.samples(component).map(|samples| samples.div_ceil(component.side))
    }

    /// The rows and columns of groups of blocks, of all components, that belong to the image.
    pub(super) fn groups(&self) -> [usize; 2] {
        [self.height.div_ceil(SIDE * self.down), self.width.div_ceil(SIDE * self.across)]
    }

    /// The number of pixels in those groups, which no plane of samples exceeds at any decoded size.
    pub(super) fn group_pixels(&self) -> usize {
        let [rows, columns] = self.groups();
        [columns, SIDE * self.down, SIDE * self.across].into_iter().fold(rows, usize::saturating_mul)
    }
}

/// Fails if the frame's coding is not supported.
fn check_process(code: u8) -> Result<(), DecodeError> {
    let found = match code {
        0xc0..=0xc2 => return Ok(()),
        0xc3 | 0xc7 | 0xcb | 0xcf => "lossless coding",
        0xc9 | 0xca => "arithmetic coding",
        _ => "hierarchical or unknown coding",
    };
    Err(unsupported(found.to_owned(), "baseline, extended and progressive coding by Huffman"))
}

#[cold]
pub(super) fn unsupported(found: String, allowed: &'static str) -> DecodeError {
    DecodeError::Unsupported { format: FORMAT, found, allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame whose first component has these sampling factors, and the other two 1x1.
    fn frame(height: u8, width: u8, across: u8, down: u8) -> Frame {
        let segment = [8, 0, height, 0, width, 3, 1, across << 4 | down, 0, 2, 0x11, 0, 3, 0x11, 0];
        Frame::parse(0xc0, 0, &segment).unwrap()
    }

    #[test]
    fn components_that_are_sampled_less_are_reduced_less() {
        // Sampling, the requested side, the second component's side, and its steps down and across.
        for (sampling, side, other, steps) in [
            ((1, 1), 4, 4, [1, 1]),
            ((2, 2), 8, 8, [2, 2]),
            ((2, 2), 4, 8, [1, 1]),
            ((2, 2), 2, 4, [1, 1]),
            ((2, 2), 1, 2, [1, 1]),
            ((2, 1), 4, 4, [1, 2]),
            ((1, 2), 1, 1, [2, 1]),
            ((4, 1), 2, 2, [1, 4]),
            ((4, 2), 4, 8, [1, 2]),
            ((4, 4), 4, 8, [2, 2]),
            ((4, 4), 2, 8, [1, 1]),
            ((4, 4), 1, 4, [1, 1]),
            ((3, 3), 4, 4, [3, 3]),
        ] {
            let frame = frame(100, 75, sampling.0, sampling.1).reduced(side);
            let [first, second, third] = frame.components() else { unreachable!("there are three") };
            assert_eq!((first.side, frame.steps(first)), (side, [1, 1]), "{sampling:?} {side}");
            assert_eq!((second.side, third.side, frame.steps(second)), (other, other, steps), "{sampling:?}");
        }
    }

    #[test]
    fn sides_are_rounded_up_and_blocks_stay_as_many() {
        let whole = frame(33, 75, 2, 2);
        for (side, pixels, second) in
            [(8, [33, 75], [17, 38]), (4, [17, 38], [17, 38]), (2, [9, 19], [9, 19]), (1, [5, 10], [5, 10])]
        {
            let frame = whole.reduced(side);
            assert_eq!(frame.pixels(), pixels);
            assert_eq!(frame.samples(&frame.components()[1]), second);
            assert_eq!(frame.groups(), whole.groups());
            for (component, whole_one) in frame.components().iter().zip(whole.components()) {
                assert_eq!(frame.blocks(component), whole.blocks(whole_one));
            }
        }
    }
}
