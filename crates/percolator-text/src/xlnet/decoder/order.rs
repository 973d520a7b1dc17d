//! The order in which a row's tokens are predicted: a permutation drawn from the record's own random numbers.

/// The odd constant of `SplitMix64`: 2^64 over the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// `SplitMix64`, seeded from the record's random numbers and the host. Hosts number the records of their own
/// files, so records of several hosts have the same number; each host still has a sequence of its own.
#[derive(Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(of_record: u64, host: u64) -> Self {
        Draws(of_record ^ mix(host.wrapping_mul(GAMMA)))
    }

    /// A number below `end`, with a bias of at most `end` in 2^64.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(GAMMA);
        let product = u128::from(mix(self.0)) * end as u128;
        usize::try_from(product >> 64).expect("it is less than `end`")
    }

    /// Writes the numbers from 0 on, shuffled. All orders are equally likely.
    pub(super) fn permutation(&mut self, out: &mut [i32]) {
        out.iter_mut().zip(0..).for_each(|(to, number)| *to = number);
        for last in (1..out.len()).rev() {
            out.swap(last, self.below(last + 1));
        }
    }
}

/// The finaliser of `SplitMix64`. It maps 0 to 0.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_is_as_likely_as_any_other() {
        let mut counts = std::collections::BTreeMap::new();
        for record in 0..24_000_u64 {
            let mut order = [0; 4];
            Draws::new(mix(record), 0).permutation(&mut order);
            *counts.entry(order).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn hosts_draw_their_own() {
        let of_host = |host| {
            let mut order = [0; 64];
            Draws::new(7, host).permutation(&mut order);
            order
        };
        let mut orders: Vec<_> = (0..50).map(of_host).collect();
        assert_eq!(orders[3], of_host(3));
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 50);
        let mut sorted = orders[0];
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..64));
        Draws::new(0, 0).permutation(&mut []);
    }
}
