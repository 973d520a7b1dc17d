//! Tests against what operations are by definition.

use super::*;

/// An image with smooth and with sharp parts.
fn image(height: usize, width: usize) -> Vec<u8> {
    let level = |y: usize, x: usize| [x * y, x * 3 + y * 2, x * 3 + y][(x / 5 + y / 7) % 3] % 256;
    (0..height * width).map(|at| u8::try_from(level(at / width, at % width)).unwrap()).collect()
}

/// The sum of the 2-d kernel at every pixel.
#[test]
fn a_blur_by_two_passes_is_the_exact_one() {
    for (kernel, sigma) in [([1, 1], 1.0), ([3, 5], 0.6), ([9, 9], 1.7), ([23, 23], 0.1), ([23, 23], 2.0)] {
        let (height, width) = (41, 53);
        let before = image(height, width);
        let mut after = before.clone();
        let mut scratch = Scratch::default();
        let shape = ImageShape { channels: 1, height, width };
        Picture::new(shape, &mut after).gaussian_blur(kernel, [sigma; 2], &mut scratch).unwrap();
        let [across, down] = &scratch.weights;
        let place = |at: usize, side: usize, border: usize| {
            let at = at.abs_diff(border);
            at.min(2 * (side - 1) - at)
        };
        for y in 0..height {
            for x in 0..width {
                let mut sum = 0.0_f32;
                for (j, down) in down.iter().enumerate() {
                    for (i, across) in across.iter().enumerate() {
                        let from = [place(y + j, height, kernel[1] / 2), place(x + i, width, kernel[0] / 2)];
                        sum += down * across * f32::from(before[from[0] * width + from[1]]);
                    }
                }
                let level = sum.round_ties_even();
                assert_eq!(f32::from(after[y * width + x]), level, "{kernel:?}, {sigma}: {y}, {x}");
            }
        }
    }
}
