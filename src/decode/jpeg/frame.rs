//! A JPEG's frame: its size, and the components that its scans bring.

use super::idct::SIDE;
use super::{FORMAT, damaged};
use crate::decode::DecodeError;

/// The longest side that libjpeg reads.
const SIDE_MAX: usize = 65_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) across: usize,
    pub(super) down: usize,
    /// Which table its coefficients are multiplied by.
    pub(super) quantizer: usize,
}

/// A frame of 1 or 3 components of 8 bits, each side at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) height: usize,
    pub(super) width: usize,
    components: [Component; 3],
    count: usize,
    /// The largest sampling factors.
    pub(super) across: usize,
    pub(super) down: usize,
    pub(super) progressive: bool,
}

impl Frame {
    /// Reads the segment of the marker `code`, which lies at `offset`.
    pub(super) fn parse(code: u8, offset: usize, segment: &[u8]) -> Result<Self, DecodeError> {
        check_process(code)?;
        let Some((&[bits, h1, h0, w1, w0, count], components)) = segment.split_first_chunk() else {
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
        let (triples, rest) = components.as_chunks();
        if triples.len() != usize::from(count) || !rest.is_empty() {
            return Err(damaged(offset, format!("a frame of {count} components in {} bytes", segment.len())));
        }
        let components_none = [Component::default(); 3];
        let progressive = code == 0xc2;
        let mut frame =
            Self { height, width, components: components_none, count: 0, across: 1, down: 1, progressive };
        if count != 1 && count != 3 {
            let kind = if count == 4 { " (CMYK)" } else { "" };
            return Err(unsupported(
                format!("{count} components{kind}"),
                "grey and colour, 1 or 3 components",
            ));
        }
        for (component, &[id, factors, quantizer]) in frame.components.iter_mut().zip(triples) {
            let (across, down) = (usize::from(factors >> 4), usize::from(factors & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) {
                return Err(damaged(offset, format!("sampling of {across}x{down}: allowed are 1 to 4")));
            }
            *component = Component { id, across, down, quantizer: quantizer.into() };
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

    /// Whether the components are called R, G and B, by which they are recognised where nothing else says.
    pub(super) fn is_named_rgb(&self) -> bool {
        self.components().iter().map(|component| component.id).eq(*b"RGB")
    }

    /// Rows and columns of samples of a component that have to do with the image.
    pub(super) fn samples(&self, component: &Component) -> [usize; 2] {
        [
            (self.height * component.down).div_ceil(self.down),
            (self.width * component.across).div_ceil(self.across),
        ]
    }

    /// Rows and columns of blocks of a component that have to do with the image.
    pub(super) fn blocks(&self, component: &Component) -> [usize; 2] {
        self.samples(component).map(|samples| samples.div_ceil(SIDE))
    }

    /// Rows and columns of groups of blocks, of all components, that have to do with the image.
    pub(super) fn groups(&self) -> [usize; 2] {
        [self.height.div_ceil(SIDE * self.down), self.width.div_ceil(SIDE * self.across)]
    }

    /// Pixels of those groups: what no plane of samples is larger than.
    pub(super) fn group_pixels(&self) -> usize {
        let [rows, columns] = self.groups();
        [columns, SIDE * self.down, SIDE * self.across].into_iter().fold(rows, usize::saturating_mul)
    }
}

/// Fails where the frame is coded in a way that is not read.
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
