//! The random choices of operations, by torchvision's laws. Its uniform numbers are of 24 bits, these of 53;
//! what is computed from them, and rounded how, is the same.

use percolator_image::Window;

use super::Operation;
use crate::record::random::RecordRandom;

/// How often a part of an image is drawn before the middle is taken.
const TRIES: usize = 10;

/// The part of an image of this size that an operation cuts out first, if it does: all else is not read.
pub(super) fn cut(operation: &Operation, size: [usize; 2], random: &mut RecordRandom) -> Option<Window> {
    match *operation {
        Operation::RandomResizedCrop { scale, ratio, .. } => Some(area(size, scale, ratio, random)),
        Operation::CenterCrop { height, width } => {
            let [rows, columns] = size;
            Some(centre(size, [rows.min(height as usize), columns.min(width as usize)]))
        }
        Operation::RandomCrop { height, width, .. } if operation.padding(size) == [0; 4] => {
            let to = [height as usize, width as usize];
            (to[0] <= size[0] && to[1] <= size[1]).then(|| place(size, to, random))
        }
        _ => None,
    }
}

/// Whether something happens, this often.
pub(super) fn happens(probability: f64, random: &mut RecordRandom) -> bool {
    random.unit() < probability
}

pub(super) fn uniform([least, most]: [f64; 2], random: &mut RecordRandom) -> f64 {
    least + (most - least) * random.unit()
}

/// One of `0..=most`.
pub(super) fn up_to(most: usize, random: &mut RecordRandom) -> usize {
    usize::try_from(random.below(most as u64 + 1)).expect("it is at most `most`, a usize")
}

/// The part that `RandomResizedCrop` cuts out.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^53, and not negative"
)]
fn area([rows, columns]: [usize; 2], scale: [f64; 2], ratio: [f64; 2], random: &mut RecordRandom) -> Window {
    let all = (rows * columns) as f64;
    let logs = ratio.map(f64::ln);
    for _ in 0..TRIES {
        let area = all * uniform(scale, random);
        let ratio = uniform(logs, random).exp();
        let [width, height] = [area * ratio, area / ratio].map(|side| side.sqrt().round_ties_even() as usize);
        if (1..=columns).contains(&width) && (1..=rows).contains(&height) {
            return place([rows, columns], [height, width], random);
        }
    }
    let whole = columns as f64 / rows as f64;
    let [least, most] = ratio;
    let (height, width) = if whole < least {
        ((columns as f64 / least).round_ties_even() as usize, columns)
    } else if whole > most {
        (rows, (rows as f64 * most).round_ties_even() as usize)
    } else {
        (rows, columns)
    };
    // A ratio that no image of this size has leaves at least a pixel.
    let (height, width) = (height.clamp(1, rows), width.clamp(1, columns));
    Window { top: (rows - height) / 2, left: (columns - width) / 2, height, width }
}

/// The part that `RandomErasing` erases, if one is found. Its ratio is that of height to width.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "sides are far below 2^53, and not negative"
)]
pub(super) fn erased(
    [rows, columns]: [usize; 2],
    scale: [f64; 2],
    ratio: [f64; 2],
    random: &mut RecordRandom,
) -> Option<Window> {
    let all = (rows * columns) as f64;
    let logs = ratio.map(f64::ln);
    for _ in 0..TRIES {
        let area = all * uniform(scale, random);
        let ratio = uniform(logs, random).exp();
        let [height, width] = [area * ratio, area / ratio].map(|side| side.sqrt().round_ties_even() as usize);
        if height < rows && width < columns {
            return Some(place([rows, columns], [height, width], random));
        }
    }
    None
}

/// A random order of the numbers below `N`.
pub(super) fn order<const N: usize>(random: &mut RecordRandom) -> [usize; N] {
    let mut order = std::array::from_fn(|at| at);
    for last in (1..N).rev() {
        order.swap(last, up_to(last, random));
    }
    order
}

/// A random place for a part of this size.
pub(super) fn place(
    [rows, columns]: [usize; 2],
    [height, width]: [usize; 2],
    random: &mut RecordRandom,
) -> Window {
    let top = up_to(rows - height, random);
    let left = up_to(columns - width, random);
    Window { top, left, height, width }
}

/// The place of `CenterCrop`, in an image that is not smaller: halves are rounded to even.
fn centre([rows, columns]: [usize; 2], [height, width]: [usize; 2]) -> Window {
    let middle = |left: usize| left / 2 + usize::from(left % 4 == 3);
    Window { top: middle(rows - height), left: middle(columns - width), height, width }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::approx_constant, reason = "a test of small numbers")]
mod tests {
    use super::*;
    use crate::record::RecordId;

    fn windows(rows: usize, columns: usize, count: u64) -> Vec<Window> {
        let draw = |index| {
            let mut random = RecordRandom::new(1701, RecordId { epoch: 3, index });
            area([rows, columns], [0.08, 1.0], [3.0 / 4.0, 4.0 / 3.0], &mut random)
        };
        (0..count).map(draw).collect()
    }

    /// The distance between the distribution of some draws and one of 200,000 of torchvision, at some places.
    fn distance(drawn: impl Iterator<Item = usize>, places: &[usize], shares: &[f64]) -> f64 {
        let mut drawn: Vec<_> = drawn.collect();
        drawn.sort_unstable();
        let share = |place: usize| drawn.partition_point(|value| *value <= place) as f64 / drawn.len() as f64;
        let apart = places.iter().zip(shares).map(|(place, wanted)| (share(*place) - wanted).abs());
        apart.fold(0.0, f64::max)
    }

    #[test]
    fn parts_are_distributed_as_torchvisions() {
        const DRAWS: u64 = 20_000;
        // One good sequence in a thousand exceeds this.
        let allowed = 1.95 * (1.0 / 200_000.0 + 1.0 / DRAWS as f64).sqrt();
        let windows = windows(375, 500, DRAWS);
        let of = |side: fn(&Window) -> usize| windows.iter().map(side).collect::<Vec<_>>().into_iter();
        for (name, drawn, places, shares) in [
            ("left", of(|window| window.left), LEFT_AT, LEFT),
            ("top", of(|window| window.top), TOP_AT, TOP),
            ("width", of(|window| window.width), WIDTH_AT, WIDTH),
            ("height", of(|window| window.height), HEIGHT_AT, HEIGHT),
        ] {
            let distance = distance(drawn, &places, &shares);
            assert!(distance < allowed, "{name}: {distance} of {allowed}");
        }
        let erased: Vec<_> = (0..DRAWS)
            .filter_map(|index| {
                let mut random = RecordRandom::new(1701, RecordId { epoch: 4, index });
                erased([224, 224], [0.02, 0.33], [0.3, 3.3], &mut random)
            })
            .collect();
        assert_eq!(erased.len(), DRAWS as usize);
        let of = |side: fn(&Window) -> usize| erased.iter().map(side).collect::<Vec<_>>().into_iter();
        for (name, drawn, places, shares) in [
            ("left", of(|window| window.left), ERASED_LEFT_AT, ERASED_LEFT),
            ("top", of(|window| window.top), ERASED_TOP_AT, ERASED_TOP),
            ("width", of(|window| window.width), ERASED_SIDE_AT, ERASED_WIDTH),
            ("height", of(|window| window.height), ERASED_SIDE_AT, ERASED_HEIGHT),
        ] {
            let distance = distance(drawn, &places, &shares);
            assert!(distance < allowed, "erased {name}: {distance} of {allowed}");
        }
        // A law that is a little off is found out: a ratio that is uniform, and not its logarithm.
        let off = (0..DRAWS).map(|index| {
            let mut random = RecordRandom::new(1701, RecordId { epoch: 3, index });
            let area = 375.0 * 500.0 * uniform([0.08, 1.0], &mut random);
            (area * uniform([3.0 / 4.0, 4.0 / 3.0], &mut random)).sqrt() as usize
        });
        assert!(distance(off, &WIDTH_AT, &WIDTH) > allowed);
    }

    #[test]
    fn what_no_try_finds_is_the_middle() {
        // The widest part of so flat an image is as high as that, and 4/3 of it wide.
        let flat = windows(3, 4000, 50);
        assert!(
            flat.iter().all(|window| *window == Window { top: 0, left: 1998, height: 3, width: 4 }),
            "{flat:?}"
        );
        let high = windows(4000, 3, 50);
        assert!(high.iter().all(|window| *window == Window { top: 1998, left: 0, height: 4, width: 3 }));
        assert_eq!(windows(1, 1, 3), [Window { top: 0, left: 0, height: 1, width: 1 }; 3]);
    }

    #[test]
    fn each_order_comes_as_often() {
        let mut counts = std::collections::BTreeMap::<[usize; 4], u32>::new();
        for index in 0..24_000 {
            let mut random = RecordRandom::new(9, RecordId { epoch: 0, index });
            *counts.entry(order(&mut random)).or_default() += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn halves_of_a_centre_are_even() {
        let lefts = [4, 5, 6, 7, 8, 9, 10, 11].map(|columns| centre([4, columns], [4, 4]).left);
        assert_eq!(lefts, [0, 0, 1, 2, 2, 2, 3, 4]);
    }

    // Of 200,000 draws of torchvision 0.29.2, of an image of 375x500: the share up to each place.
    const LEFT_AT: [usize; 17] =
        [0, 24, 48, 73, 97, 121, 146, 170, 194, 218, 242, 267, 291, 315, 340, 364, 388];
    const LEFT: [f64; 17] = [
        0.006175, 0.14955, 0.281265, 0.407655, 0.51532, 0.613725, 0.702035, 0.774925, 0.83692, 0.88641,
        0.92443, 0.954025, 0.97366, 0.98683, 0.995365, 0.999225, 1.0,
    ];
    const TOP_AT: [usize; 17] =
        [0, 17, 33, 50, 66, 83, 100, 116, 133, 150, 166, 183, 200, 216, 233, 249, 266];
    const TOP: [f64; 17] = [
        0.03256, 0.31891, 0.48072, 0.60509, 0.69519, 0.77073, 0.829685, 0.873435, 0.91019, 0.938485,
        0.958745, 0.974875, 0.98632, 0.993505, 0.99793, 0.999655, 1.0,
    ];
    const WIDTH_AT: [usize; 17] =
        [106, 131, 155, 180, 204, 229, 254, 278, 303, 328, 352, 377, 402, 426, 451, 475, 500];
    const WIDTH: [f64; 17] = [
        1e-05, 0.02162, 0.07364, 0.140365, 0.21259, 0.298385, 0.394245, 0.4959, 0.604105, 0.69786, 0.776395,
        0.845825, 0.90253, 0.944175, 0.97524, 0.99344, 1.0,
    ];
    const HEIGHT_AT: [usize; 17] =
        [106, 123, 140, 156, 173, 190, 207, 224, 240, 257, 274, 291, 308, 325, 341, 358, 375];
    const HEIGHT: [f64; 17] = [
        5e-06, 0.010635, 0.039525, 0.076245, 0.120095, 0.169175, 0.222745, 0.27996, 0.339075, 0.406545,
        0.47918, 0.554775, 0.63661, 0.72291, 0.807505, 0.901105, 1.0,
    ];

    // The same of what is erased of 224x224, in draws that erase.
    const ERASED_LEFT_AT: [usize; 17] =
        [0, 13, 26, 38, 51, 64, 77, 90, 102, 115, 128, 141, 154, 167, 179, 192, 205];
    const ERASED_LEFT: [f64; 17] = [
        0.01027, 0.13839, 0.25521, 0.35593, 0.45655, 0.551, 0.63647, 0.714635, 0.77831, 0.83992, 0.892215,
        0.934695, 0.965855, 0.984995, 0.99478, 0.999185, 1.0,
    ];
    const ERASED_TOP_AT: [usize; 17] =
        [0, 13, 26, 39, 52, 64, 77, 90, 103, 116, 129, 142, 154, 167, 180, 193, 206];
    const ERASED_TOP: [f64; 17] = [
        0.01018, 0.13742, 0.25526, 0.363435, 0.463655, 0.550925, 0.637295, 0.71526, 0.78422, 0.84507,
        0.89711, 0.93803, 0.96619, 0.9856, 0.9957, 0.99935, 1.0,
    ];
    const ERASED_SIDE_AT: [usize; 17] =
        [18, 31, 44, 56, 69, 82, 95, 108, 120, 133, 146, 159, 172, 185, 197, 210, 223];
    const ERASED_WIDTH: [f64; 17] = [
        0.00026, 0.028765, 0.09943, 0.193845, 0.325285, 0.45959, 0.571065, 0.66434, 0.735495, 0.80011,
        0.853555, 0.89724, 0.93256, 0.959465, 0.977685, 0.99174, 1.0,
    ];
    const ERASED_HEIGHT: [f64; 17] = [
        0.00019, 0.029045, 0.099515, 0.194125, 0.326935, 0.460715, 0.572955, 0.666515, 0.73821, 0.802045,
        0.855495, 0.89904, 0.93324, 0.960765, 0.97916, 0.99272, 1.0,
    ];
}
