//! Chooses the size at which a JPEG is decoded before it is resized to a smaller one.

use super::idct::SIDE;

/// The number of pixels, 8, 4, 2 or 1, to which each [`SIDE`] pixels of a row or a column are decoded: the
/// fewest with which an image of these sides is at least as large as `wanted` both ways. Of two numbers with
/// the same resulting size, it is the larger.
pub(super) fn side(image: [usize; 2], wanted: [usize; 2]) -> usize {
    let decoded = |side: usize| image.map(|pixels| pixels.div_ceil(SIDE / side));
    let mut side = SIDE;
    while side > 1 {
        let (now, [height, width]) = (decoded(side), decoded(side / 2));
        let [least_height, least_width] = wanted;
        if now == [height, width] || height < least_height || width < least_width {
            break;
        }
        side /= 2;
    }
    side
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_image_that_is_large_enough_is_decoded() {
        for (image, wanted, due) in [
            ([375, 500], [128, 128], 4),
            ([375, 500], [188, 250], 4),
            ([375, 500], [189, 250], 8),
            ([375, 500], [94, 125], 2),
            ([375, 500], [94, 126], 4),
            ([375, 500], [47, 63], 1),
            ([375, 500], [48, 63], 2),
            ([1500, 2000], [256, 256], 2),
            ([3000, 4000], [256, 256], 1),
            ([375, 500], [1, 1], 1),
            ([375, 500], [375, 500], 8),
            ([375, 500], [1, 400], 8),
            ([375, 500], [800, 800], 8),
        ] {
            assert_eq!(side(image, wanted), due, "{image:?} for {wanted:?}");
        }
    }

    #[test]
    fn a_reduction_that_changes_no_size_is_not_done() {
        assert_eq!(side([1, 1], [1, 1]), 8);
        assert_eq!(side([2, 1], [1, 1]), 4);
        assert_eq!(side([3, 4], [1, 1]), 2);
        assert_eq!(side([5, 1], [1, 1]), 1);
    }
}
