//! Separates interleaved pixels into planes.
//!
//! ```text
//! for each plane c and each pixel i: planes[c][i] = interleaved[i * step + places[c]]
//! ```

use crate::simd::{InstructionSet, Kernel};

/// The layout of the pixels that a library has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interleaved {
    /// The number of bytes per pixel.
    pub(super) step: usize,
    /// For each plane, the byte of a pixel that it takes.
    pub(super) places: &'static [usize],
}

impl Interleaved {
    /// Separates the planes. `planes` has room for all pixels.
    pub(super) fn separate(self, interleaved: &[u8], planes: &mut [u8]) {
        let Self { step, places } = self;
        let pixels = interleaved.len() / step;
        let job = Job { interleaved, planes: planes.chunks_exact_mut(pixels) };
        match (step, places) {
            (3, [0, 1, 2]) => InstructionSet::widest().run(Separate::<_, 3, false>(job)),
            (3, [2, 1, 0]) => InstructionSet::widest().run(Separate::<_, 3, true>(job)),
            (4, [0, 1, 2]) => InstructionSet::widest().run(Separate::<_, 4, false>(job)),
            (4, [2, 1, 0, 3] | [2, 1, 0]) => InstructionSet::widest().run(Separate::<_, 4, true>(job)),
            _ => {
                for (&place, plane) in places.iter().zip(job.planes) {
                    pick(interleaved, step, place, plane);
                }
            }
        }
    }
}

/// Extracts one plane.
fn pick(interleaved: &[u8], step: usize, place: usize, plane: &mut [u8]) {
    if step == 1 {
        plane.copy_from_slice(interleaved);
        return;
    }
    for (pixel, out) in interleaved.chunks_exact(step).zip(plane) {
        *out = pixel[place];
    }
}

struct Job<'a, P> {
    interleaved: &'a [u8],
    planes: P,
}

/// Separates all planes in one pass, three or four of them. `SWAPPED` swaps the first and the third.
struct Separate<P, const STEP: usize, const SWAPPED: bool>(P);

impl<'a, P, const STEP: usize, const SWAPPED: bool> Kernel for Separate<Job<'a, P>, STEP, SWAPPED>
where
    P: Iterator<Item = &'a mut [u8]>,
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Job { interleaved, mut planes } = self.0;
        let (Some(mut first), Some(second), Some(mut third)) = (planes.next(), planes.next(), planes.next())
        else {
            return;
        };
        if SWAPPED {
            std::mem::swap(&mut first, &mut third);
        }
        let (pixels, _) = interleaved.as_chunks::<STEP>();
        let outs = first.iter_mut().zip(second).zip(third);
        let Some(fourth) = planes.next() else {
            for (pixel, ((a, b), c)) in pixels.iter().zip(outs) {
                (*a, *b, *c) = (pixel[0], pixel[1], pixel[2]);
            }
            return;
        };
        for (pixel, (((a, b), c), d)) in pixels.iter().zip(outs.zip(fourth)) {
            (*a, *b, *c, *d) = (pixel[0], pixel[1], pixel[2], pixel[STEP - 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUTS: [(usize, &[usize]); 13] = [
        (1, &[0]),
        (1, &[0, 0, 0]),
        (2, &[0]),
        (2, &[0, 0, 0]),
        (2, &[0, 0, 0, 1]),
        (3, &[0, 1, 2]),
        (3, &[2, 1, 0]),
        (4, &[0, 1, 2]),
        (4, &[2, 1, 0]),
        (4, &[2, 1, 0, 3]),
        (4, &[0, 0, 0]),
        (6, &[4, 2, 0]),
        (8, &[4, 2, 0]),
    ];

    proptest! {
        #[test]
        fn matches_naive(
            layout in 0..LAYOUTS.len(),
            bytes in proptest::collection::vec(any::<u8>(), 8..700),
        ) {
            let (step, places) = LAYOUTS[layout];
            let pixels = bytes.len() / step;
            let interleaved = &bytes[..pixels * step];
            let wanted: Vec<u8> = places
                .iter()
                .flat_map(|place| (0..pixels).map(move |pixel| interleaved[pixel * step + place]))
                .collect();
            let mut planes = vec![0; wanted.len()];
            Interleaved { step, places }.separate(interleaved, &mut planes);
            prop_assert_eq!(planes, wanted);
        }
    }
}
