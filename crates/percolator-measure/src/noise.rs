//! How two samples of a figure differ, and whether that is more than their noise.
//!
//! The ratio of two samples is the median of all ratios of one value of the new sample to one of the old: the
//! estimator of Hodges and Lehmann. Its confidence interval is between two of those ratios, whose ranks come
//! from the distribution of Mann and Whitney's U. The only assumption about the noise is that the rounds of a
//! sample are alike, so one disturbed round moves neither of the two much.

/// The probability that the interval does not hold the true ratio, at the most.
const ERROR: f64 = 0.01;
/// More values than this are thinned out evenly: the exact distribution takes the cube of it.
const VALUES_MAX: usize = 100;

/// A ratio of two samples, with its 99 % confidence interval.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of all ratios.
    pub middle: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

impl Ratio {
    /// So many values on each side suffice for an interval.
    pub const VALUES_MIN: usize = 5;

    /// Of the new sample to the old one. All values are positive. `None` if they are too few:
    /// [`VALUES_MIN`](Self::VALUES_MIN) on each side suffice.
    #[must_use]
    pub fn of(old: &[f64], new: &[f64]) -> Option<Self> {
        let [old, new] = [old, new].map(thinned);
        let ranks = outside(old.len(), new.len())?;
        let mut ratios: Vec<f64> = new.iter().flat_map(|new| old.iter().map(move |old| new / old)).collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len() - 1;
        Some(Ratio { middle: middle(&ratios), low: ratios[ranks], high: ratios[last - ranks] })
    }

    /// Whether the samples differ by more than their noise.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Returns the middle value, or the mean of the two middle values.
#[must_use]
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| middle(&sorted))
}

fn middle(sorted: &[f64]) -> f64 {
    let [lower, upper] = [(sorted.len() - 1) / 2, sorted.len() / 2].map(|rank| sorted[rank]);
    lower + (upper - lower) / 2.0
}

/// As many of the values as are used.
fn thinned(values: &[f64]) -> Vec<f64> {
    let used = values.len().min(VALUES_MAX);
    (0..used).map(|number| values[number * values.len() / used]).collect()
}

/// How many of the smallest ratios, and of the largest, are outside of the interval. `None` if an interval of
/// all ratios is not sure enough.
fn outside(old: usize, new: usize) -> Option<usize> {
    let ways = ways(old, new);
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let sure = ways.iter().take_while(|&&ways| {
        below += ways;
        2.0 * below <= ERROR * all
    });
    sure.count().checked_sub(1)
}

/// In how many ways the values of two samples can be mixed so that U, the number of pairs of which the new
/// value is the smaller one, has each value from 0 on.
fn ways(old: usize, new: usize) -> Vec<f64> {
    // They are the coefficients of the Gaussian binomial: a product and a quotient for each new value.
    let mut ways = vec![0.0; old * new + 1];
    ways[0] = 1.0;
    for value in 1..=new {
        for u in (old + value..ways.len()).rev() {
            ways[u] -= ways[u - old - value];
        }
        for u in value..ways.len() {
            ways[u] += ways[u - value];
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        let of = |values: &[f64]| median(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    /// U of a mix: each bit is a value in ascending order, and says whether it is a new one.
    fn u_of(mix: u32, values: usize) -> usize {
        let is_new = |at: usize| mix >> at & 1 == 1;
        let older = |at: usize| (at..values).filter(|&later| !is_new(later)).count();
        (0..values).filter(|&at| is_new(at)).map(older).sum()
    }

    fn mixes(old: usize, new: usize) -> impl Iterator<Item = u32> {
        (0..1_u32 << (old + new)).filter(move |mix| mix.count_ones() as usize == new)
    }

    #[test]
    fn the_ways_are_those_that_are_counted() {
        for (old, new) in [(1, 1), (2, 3), (3, 2), (4, 4), (5, 5), (7, 2), (1, 6)] {
            let mut counted = vec![0.0; old * new + 1];
            mixes(old, new).for_each(|mix| counted[u_of(mix, old + new)] += 1.0);
            assert_eq!(ways(old, new), counted, "{old} and {new}");
        }
    }

    #[test]
    fn many_values_have_ways_as_well() {
        let ways = ways(VALUES_MAX, VALUES_MAX);
        let all: f64 = ways.iter().sum();
        assert!((all / 9.054_851_465_610_329e58 - 1.0).abs() < 1e-6, "200 over 100 are {all}");
        // The normal distribution: 5000 - 2.576 * sqrt(100 * 100 * 201 / 12), half a step aside.
        let rank = outside(VALUES_MAX, VALUES_MAX).unwrap();
        assert!((3935..=3950).contains(&rank), "{rank}");
    }

    #[test]
    fn of_samples_alike_one_in_a_hundred_is_said_to_differ() {
        for (old, new) in [(5, 5), (5, 8), (6, 6), (9, 5)] {
            let (mut differ, mut all) = (0, 0);
            for mix in mixes(old, new) {
                let value = |at: usize| 1.0 + at as f64;
                let (news, olds): (Vec<_>, Vec<_>) = (0..old + new).partition(|at| mix >> at & 1 == 1);
                let [olds, news] = [olds, news].map(|at| at.into_iter().map(value).collect::<Vec<_>>());
                differ += u32::from(Ratio::of(&olds, &news).unwrap().differs());
                all += 1;
            }
            let share = f64::from(differ) / f64::from(all);
            assert!(share <= ERROR && differ > 0, "{old} and {new}: {differ} of {all}");
        }
    }

    #[test]
    fn few_values_tell_nothing() {
        assert_eq!(Ratio::of(&[1.0; 4], &[2.0; 5]), None);
        assert_eq!(Ratio::of(&[], &[2.0; 5]), None);
        let ratio = Ratio::of(&[1.0; Ratio::VALUES_MIN], &[2.0; Ratio::VALUES_MIN]).unwrap();
        assert_eq!(ratio, Ratio { middle: 2.0, low: 2.0, high: 2.0 });
        assert!(ratio.differs());
    }

    proptest! {
        #[test]
        fn the_ratio_follows_a_factor_and_the_order_of_values_does_not_matter(
            old in prop::collection::vec(0.5_f64..2.0, Ratio::VALUES_MIN..20),
            factor in prop::sample::select(vec![0.25_f64, 1.0, 8.0]),
        ) {
            let new: Vec<f64> = old.iter().rev().map(|value| value * factor).collect();
            let ratio = Ratio::of(&old, &new).unwrap();
            prop_assert!(ratio.low <= factor && factor <= ratio.high, "{ratio:?}");
            prop_assert!((ratio.middle / factor - 1.0).abs() < 1e-9, "{ratio:?}");
            prop_assert!(factor != 1.0 || !ratio.differs());
        }
    }
}
