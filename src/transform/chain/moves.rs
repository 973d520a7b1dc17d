//! The random moves of an image's pixels, by torchvision's laws.

use percolator_image::warp::{Affine, Rotation, Warp, WarpFilter};

use super::{Operation, draws};
use crate::record::random::RecordRandom;

/// A move, how its pixels are found, and what comes in from outside.
pub(super) type Moved<'a> = (Warp, WarpFilter, &'a [u8]);

/// What an operation does to an image of this size, if it moves pixels.
pub(super) fn moved<'a>(
    operation: &'a Operation,
    size: [usize; 2],
    random: &mut RecordRandom,
) -> Option<Moved<'a>> {
    match operation {
        Operation::RandomRotation { degrees, filter, fill } => {
            let angle = draws::uniform(*degrees, random);
            Some((Warp::rotation(Rotation { angle, ..Rotation::default() }, size), *filter, fill))
        }
        Operation::RandomAffine { degrees, translate, scale, shear, filter, fill } => {
            let affine = affine(*degrees, *translate, *scale, *shear, size, random);
            Some((Warp::affine(affine, size), *filter, fill))
        }
        Operation::RandomPerspective { distortion, probability, filter, fill } => {
            if !draws::happens(*probability, random) {
                return None;
            }
            let corners = corners(size);
            let tilted = tilted(*distortion, size, random);
            // No perspective has corners that are one.
            let is_thin = size.contains(&1);
            (!is_thin).then(|| (Warp::tilt(corners, tilted, size), *filter, &**fill))
        }
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "sides are far below 2^53")]
fn affine(
    degrees: [f64; 2],
    translate: [f64; 2],
    scale: [f64; 2],
    [least_x, most_x, least_y, most_y]: [f64; 4],
    [rows, columns]: [usize; 2],
    random: &mut RecordRandom,
) -> Affine {
    let angle = draws::uniform(degrees, random);
    let mut moved = |part: f64, side: usize| {
        let most = part * side as f64;
        draws::uniform([-most, most], random).round_ties_even()
    };
    let translate = [moved(translate[0], columns), moved(translate[1], rows)];
    let scale = draws::uniform(scale, random);
    let shear = [draws::uniform([least_x, most_x], random), draws::uniform([least_y, most_y], random)];
    Affine { angle, translate, scale, shear, center: None }
}

/// The corners of an image, clockwise from the upper left one, as x, y.
#[expect(clippy::cast_precision_loss, reason = "sides are far below 2^53")]
fn corners([rows, columns]: [usize; 2]) -> [[f64; 2]; 4] {
    let [right, bottom] = [columns, rows].map(|side| (side - 1) as f64);
    [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]]
}

/// The same, each moved inwards at random.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^53, and the distortion is from 0 to 1"
)]
fn tilted(distortion: f64, size @ [rows, columns]: [usize; 2], random: &mut RecordRandom) -> [[f64; 2]; 4] {
    let most = |side: usize| (distortion * (side / 2) as f64) as usize;
    corners(size).map(|[x, y]| {
        let [across, down] = [most(columns), most(rows)].map(|most| draws::up_to(most, random) as f64);
        [if x > 0.0 { x - across } else { across }, if y > 0.0 { y - down } else { down }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordId;

    const DRAWS: u64 = 50_000;

    fn random(index: u64) -> RecordRandom {
        RecordRandom::new(1701, RecordId { epoch: 6, index })
    }

    /// The distance between the shares of draws up to some places and those of a uniform distribution. One
    /// good sequence in a thousand exceeds 1.95 / sqrt(draws).
    fn distance(mut drawn: Vec<f64>, [least, most]: [f64; 2]) -> f64 {
        drawn.sort_unstable_by(f64::total_cmp);
        let apart = (0..=40).map(|at| {
            let part = f64::from(at) / 40.0;
            let share = drawn.partition_point(|value| *value <= least + part * (most - least));
            (share as f64 / drawn.len() as f64 - part).abs()
        });
        apart.fold(0.0, f64::max)
    }

    #[test]
    fn numbers_of_an_affine_transform_are_uniform() {
        let allowed = 1.95 / (DRAWS as f64).sqrt();
        let shear = [-3.0, 9.0, -20.0, -4.0];
        let drawn: Vec<_> = (0..DRAWS)
            .map(|index| {
                affine([-30.0, 10.0], [0.25, 0.5], [0.5, 2.0], shear, [101, 240], &mut random(index))
            })
            .collect();
        let of = |number: fn(&Affine) -> f64| drawn.iter().map(number).collect::<Vec<_>>();
        for (name, drawn, range) in [
            ("angle", of(|affine| affine.angle), [-30.0, 10.0]),
            ("scale", of(|affine| affine.scale), [0.5, 2.0]),
            ("shear x", of(|affine| affine.shear[0]), [-3.0, 9.0]),
            ("shear y", of(|affine| affine.shear[1]), [-20.0, -4.0]),
        ] {
            let distance = distance(drawn, range);
            assert!(distance < allowed, "{name}: {distance} of {allowed}");
        }
        // Whole pixels up to a quarter of the columns: those at the ends come half as often, as in
        // torchvision, which rounds a uniform number.
        for (axis, most) in [(0, 60.0), (1, 50.5)] {
            let moved: Vec<f64> = drawn.iter().map(|affine| affine.translate[axis]).collect();
            assert!(moved.iter().all(|pixels| pixels.fract() == 0.0 && pixels.abs() <= most));
            let apart = (-50..50).map(|at| {
                let up_to = f64::from(at) + 0.5;
                let share = moved.iter().filter(|pixels| **pixels <= up_to).count() as f64 / DRAWS as f64;
                (share - (up_to + most) / (2.0 * most)).abs()
            });
            let distance = apart.fold(0.0, f64::max);
            assert!(distance < allowed, "{axis}: {distance} of {allowed}");
        }
        let off = drawn.iter().map(|affine| affine.angle * 0.97).collect();
        assert!(distance(off, [-30.0, 10.0]) > allowed, "a little off is found out");
    }

    #[test]
    fn corners_move_inwards_by_whole_pixels() {
        let (rows, columns) = (41, 60);
        let drawn: Vec<_> =
            (0..DRAWS).map(|index| tilted(0.5, [rows, columns], &mut random(index))).collect();
        for (at, [x, y]) in corners([rows, columns]).into_iter().enumerate() {
            for (axis, from, most) in [(0, x, 15_i32), (1, y, 10)] {
                let mut counts = vec![0_u32; 16];
                for moved in &drawn {
                    let inwards = if from > 0.0 { from - moved[at][axis] } else { moved[at][axis] };
                    let found = (0..=most).position(|pixels| f64::from(pixels) == inwards);
                    counts[found.unwrap()] += 1;
                }
                let each = DRAWS as f64 / f64::from(most + 1);
                let few = counts.iter().take(most as usize + 1);
                let chi: f64 = few.map(|count| (f64::from(*count) - each).powi(2) / each).sum();
                // Of 15 degrees of freedom, one good sequence in a thousand exceeds 37.7.
                assert!(chi < 37.7, "{at} {axis}: {chi} of {counts:?}");
            }
        }
    }

    #[test]
    fn images_without_corners_stay() {
        let tilt = Operation::RandomPerspective {
            distortion: 1.0,
            probability: 1.0,
            filter: WarpFilter::Bilinear,
            fill: vec![],
        };
        for size in [[1, 1], [1, 50], [50, 1]] {
            assert!(moved(&tilt, size, &mut random(1)).is_none());
        }
        for index in 0..100 {
            assert!(moved(&tilt, [2, 2], &mut random(index)).is_some());
        }
    }
}
