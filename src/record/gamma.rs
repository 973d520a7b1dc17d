//! Numbers of other distributions than the uniform one.

use std::f64::consts::TAU;

use super::random::RecordRandom;

impl RecordRandom {
    /// A number of the distribution Beta(a, b), both above 0.
    pub(crate) fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (one, other) = (self.ln_gamma(a), self.ln_gamma(b));
        1.0 / (1.0 + (other - one).exp())
    }

    /// The logarithm of a number of the distribution Gamma(a): for a small `a`, most are too small for an f64.
    ///
    /// The method is that of Marsaglia and Tsang, A Simple Method for Generating Gamma Variables (2000).
    pub(crate) fn ln_gamma(&mut self, a: f64) -> f64 {
        if a < 1.0 {
            let less = self.above_zero().ln() / a;
            return self.ln_gamma(a + 1.0) + less;
        }
        let d = a - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.above_zero().ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d.ln() + v.ln();
            }
        }
    }

    /// A number of the normal distribution with mean 0 and variance 1, by Box and Muller's transform.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.above_zero().ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// A number in (0, 1].
    fn above_zero(&mut self) -> f64 {
        1.0 - self.unit()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::record::RecordId;

    const COUNT: u64 = 20_000;

    /// The greatest distance between the distribution of draws and this one.
    fn distance(draw: impl Fn(&mut RecordRandom) -> f64, share_below: impl Fn(f64) -> f64) -> f64 {
        let mut random = RecordRandom::new(1701, RecordId { epoch: 1, index: 2 });
        let mut drawn: Vec<f64> = (0..COUNT).map(|_| draw(&mut random)).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let apart = drawn.iter().enumerate().map(|(at, &value)| {
            let (wanted, below) = (share_below(value), at as f64 / COUNT as f64);
            (wanted - below).abs().max((wanted - below - 1.0 / COUNT as f64).abs())
        });
        apart.fold(0.0, f64::max)
    }

    /// Whether draws are of a distribution: the distance is exceeded once in a thousand times.
    fn are_of(distance: f64) -> bool {
        distance < 1.95 / (COUNT as f64).sqrt()
    }

    #[test]
    #[cfg_attr(miri, ignore = "only many draws show how they are spread")]
    fn numbers_are_of_their_distributions() {
        let arcsine = |x: f64| x.sqrt().asin() * 2.0 / std::f64::consts::PI;
        assert!(are_of(distance(|random| random.beta(1.0, 1.0), |x| x)));
        assert!(are_of(distance(|random| random.beta(0.5, 0.5), arcsine)));
        assert!(are_of(distance(|random| random.beta(2.0, 1.0), |x| x * x)));
        assert!(are_of(distance(|random| random.beta(1.0, 3.0), |x| 1.0 - (1.0 - x).powi(3))));
        assert!(are_of(distance(|random| random.ln_gamma(1.0).exp(), |x| 1.0 - (-x).exp())));
        assert!(are_of(distance(|random| random.ln_gamma(2.0).exp(), |x| 1.0 - (1.0 + x) * (-x).exp())));
        // Another distribution is noticed.
        assert!(!are_of(distance(|random| random.beta(0.5, 0.55), arcsine)));
        assert!(!are_of(distance(|random| random.beta(1.0, 1.0), |x| x * x)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "only many draws show how they are spread")]
    fn normal_numbers_have_the_mean_and_the_spread_that_they_should() {
        let mut random = RecordRandom::new(3, RecordId { epoch: 0, index: 9 });
        let drawn: Vec<f64> = (0..COUNT).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / COUNT as f64;
        let moment = |power| drawn.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / COUNT as f64;
        assert!(mean.abs() < 0.025 && (moment(2) - 1.0).abs() < 0.035, "{mean}, {}", moment(2));
        assert!(moment(3).abs() < 0.07 && (moment(4) - 3.0).abs() < 0.25, "{}, {}", moment(3), moment(4));
    }

    #[test]
    fn a_tiny_alpha_gives_numbers_too() {
        let mut random = RecordRandom::new(0, RecordId::default());
        let drawn: Vec<f64> = (0..100).map(|_| random.beta(1e-6, 1e-6)).collect();
        assert!(drawn.iter().all(|x| (0.0..=1.0).contains(x)));
        assert!(drawn.iter().any(|&x| x < 0.01) && drawn.iter().any(|&x| x > 0.99));
    }
}
