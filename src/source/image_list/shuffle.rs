//! The order in which Caffe's `ImageData` layer shuffles its list.

use rand_mt::Mt;

/// Caffe's `shuffle`: from the last element to the second, swaps each with one at or before it.
pub(super) fn shuffle(order: &mut [usize], generator: &mut Mt) {
    for last in (1..order.len()).rev() {
        order.swap(last, uniform(generator, last));
    }
}

/// Boost's `uniform_int(0, max)`: divides the generator's range into `max + 1` equal buckets, and discards a
/// number past the last bucket.
fn uniform(generator: &mut Mt, max: usize) -> usize {
    let buckets = max as u64 + 1;
    let range = u64::from(u32::MAX);
    let bucket = range / buckets + u64::from(range % buckets == max as u64);
    loop {
        let choice = u64::from(generator.next_u32()) / bucket;
        if choice < buckets {
            return usize::try_from(choice).expect("the choice is no more than `max`, a usize");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shuffle_is_caffes() {
        let mut order = [0, 1, 2, 3, 4];
        shuffle(&mut order, &mut Mt::new(1701));
        assert_eq!(order, [3, 1, 4, 2, 0]);
    }

    #[test]
    fn buckets_cover_the_generators_range() {
        // 2^32 is a multiple of 2, so no number is discarded; it is not a multiple of 3.
        let mut generator = Mt::new(9);
        let (mut raw, mut halves) = (generator.clone(), Vec::new());
        for _ in 0..64 {
            halves.push(uniform(&mut generator, 1));
        }
        let expected: Vec<usize> = (0..64).map(|_| usize::from(raw.next_u32() >= 1 << 31)).collect();
        assert_eq!(halves, expected);
        assert!((0..1000).all(|_| uniform(&mut generator, 2) <= 2));
    }
}
