//! NumPy's legacy generator.

use rand_mt::Mt;

/// `numpy.random.RandomState`, which is also what `numpy.random.seed`, `permutation` and the like use.
#[derive(Clone, Debug)]
pub struct NumpyRandom {
    twister: Mt,
}

impl NumpyRandom {
    /// The state after `numpy.random.seed(seed)`.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        NumpyRandom { twister: Mt::new(seed) }
    }

    /// `random_sample()`: a number in [0, 1).
    pub fn random_sample(&mut self) -> f64 {
        super::unit(&mut self.twister)
    }

    /// `shuffle(items)`, of a list or an array with one axis.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.at_most(last));
        }
    }

    /// `permutation(count)`: the numbers below `count`, shuffled.
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<_> = (0..count).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// `randint(bound)`, and `choice(bound)`, both of their default type int64: a number below `bound`. If
    /// there is only one such number, nothing is drawn.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        self.at_most(bound - 1)
    }

    /// `choice(len, p=probabilities)`, as an index, given the running sums of the probabilities. The index is
    /// the number of sums that do not exceed a random number. The last sum must be 1, so that it exceeds
    /// every random number.
    pub fn choice_by(&mut self, sums: &[f64]) -> usize {
        let drawn = self.random_sample();
        sums.iter().take_while(|sum| **sum <= drawn).count()
    }

    /// A number from 0 to `most`: draws as many bits as `most` has, until the result is not greater.
    fn at_most(&mut self, most: usize) -> usize {
        if most == 0 {
            return 0;
        }
        let mask = usize::MAX >> most.leading_zeros();
        loop {
            let drawn = if u32::try_from(most).is_ok() {
                self.twister.next_u32() as usize
            } else {
                let high = (self.twister.next_u32() as usize) << 32;
                high | self.twister.next_u32() as usize
            } & mask;
            if drawn <= most {
                return drawn;
            }
        }
    }
}

/// The running sums of probabilities as `choice` makes them: each probability is divided by their sum, and
/// each running sum by the last one.
///
/// `weights` are the probabilities before they are normalised.
pub(crate) fn running_sums<const N: usize>(weights: [f64; N]) -> [f64; N] {
    let total: f64 = weights.iter().sum();
    let mut so_far = 0.0;
    let sums = weights.map(|weight| {
        so_far += weight / total;
        so_far
    });
    sums.map(|sum| sum / so_far)
}
