//! The nearest pixel, by three laws.

use super::{Filter, Resampling, ResizeLaw, planes_of};
use crate::{Planes, Window};

/// Fills the output with the nearest pixels of a window.
pub(super) fn resize(
    image: Planes<'_>,
    window: Window,
    how: Resampling,
    to: [usize; 2],
    places: &mut [Vec<usize>; 2],
    out: &mut [u8],
) {
    let sides = [(window.height, to[0], window.top), (window.width, to[1], window.left)];
    for (places, (from, to, start)) in places.iter_mut().zip(sides) {
        places.clear();
        fill(places, how, from, to);
        places.iter_mut().for_each(|place| *place += start);
    }
    let [rows, columns] = &*places;
    for (plane, out) in planes_of(image).zip(out.chunks_exact_mut(to[0] * to[1])) {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(to[1])) {
            let row = &plane[row * image.shape.width..][..image.shape.width];
            out.iter_mut().zip(columns).for_each(|(out, column)| *out = row[*column]);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "places are truncated, and sides are far below 2^24"
)]
fn fill(places: &mut Vec<usize>, how: Resampling, from: usize, to: usize) {
    if how.law != ResizeLaw::Torch {
        // Added up, as Pillow does it, and not multiplied.
        let scale = from as f64 / to as f64;
        let mut place = scale * 0.5;
        places.extend((0..to).map(|_| {
            let nearest = (place as usize).min(from - 1);
            place += scale;
            nearest
        }));
        return;
    }
    let scale = from as f32 / to as f32;
    let shift = if how.filter == Filter::NearestExact { 0.5 } else { 0.0 };
    places.extend((0..to).map(|index| (((index as f32 + shift) * scale) as usize).min(from - 1)));
}
