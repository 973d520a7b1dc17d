//! Random numbers of other distributions than the uniform one: normal, gamma, beta and Dirichlet.
//!
//! ```text
//! normal(word)      = sqrt(2) erfinv(1 - 2 q), q of 31 bits, and a sign                   M. Giles, in f32
//! gamma(a >= 1)     = d v, v = (1 + x / sqrt(9 d))^3, d = a - 1/3, x normal, taken or not  Marsaglia, Tsang
//! gamma(a < 1)      = gamma(a + 1) u^(1 / a)
//! dirichlet(a, ...) = gammas, divided by their sum                  beta(a, b): the first of dirichlet(a, b)
//! ```
//!
//! Gammas are kept as logarithms: those of small shapes are too small for a float.

use super::random::RecordRandom;

/// A number of the standard normal distribution, of 32 random bits: up to 5 within 2e-6 of what belongs to
/// them, at the ends, 6.34 away from 0, within 0.003. It is computed with additions, multiplications,
/// divisions and roots alone, which are the same on every processor, and is vector code in a loop.
#[inline(always)]
pub(crate) fn normal(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / (1_u64 << 31) as f32;
    // The share beyond it on its side, above 0 and at most a half. Signed numbers convert as vector code.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "rounded, of 31 bits")]
    let beyond = ((word >> 1) as i32 as f32 + 0.5) * (0.5 * UNIT);
    let (number, odds) = (1.0 - 2.0 * beyond, 4.0 * beyond * (1.0 - beyond));
    let w = -ln(odds);
    let (near, far) = (w - 2.5, w.sqrt() - 3.0);
    let [mut of_near, mut of_far] = [NEAR[0], FAR[0]];
    let mut at = 1;
    while at < NEAR.len() {
        of_near = NEAR[at] + of_near * near;
        of_far = FAR[at] + of_far * far;
        at += 1;
    }
    let magnitude = number * std::f32::consts::SQRT_2 * if w < 5.0 { of_near } else { of_far };
    f32::from_bits(magnitude.to_bits() | word << 31)
}

/// M. Giles, Approximating the erfinv function (2010): for most of the distribution, and for its ends.
const NEAR: [f32; 9] = [
    2.810_226_4e-8,
    3.432_739_4e-7,
    -3.523_387_7e-6,
    -4.391_506_5e-6,
    0.000_218_580_87,
    -0.001_253_725,
    -0.004_177_681_6,
    0.246_640_73,
    1.501_409_4,
];
const FAR: [f32; 9] = [
    -0.000_200_214_26,
    0.000_100_950_56,
    0.001_349_343_2,
    -0.003_673_428_4,
    0.005_739_508,
    -0.007_622_461,
    0.009_438_87,
    1.001_674,
    2.832_976_8,
];

/// The natural logarithm of a normal number from 0 to 1.
#[inline(always)]
fn ln(number: f32) -> f32 {
    /// Those of sqrt(1/2), from which on the mantissa is counted.
    const ROOT: u32 = 0x3f35_04f3;
    let bits = number.to_bits().wrapping_sub(ROOT);
    #[expect(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "an exponent")]
    let exponent = ((bits as i32) >> 23) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(ROOT)) - 1.0;
    // ln(1 + m) = 2 artanh(s), s = m / (2 + m).
    let s = m / (2.0 + m);
    let z = s * s;
    let series = 2.0 * s * (1.0 + z * (1.0 / 3.0 + z * (0.2 + z * (1.0 / 7.0 + z * (1.0 / 9.0)))));
    series + exponent * std::f32::consts::LN_2
}

impl RecordRandom {
    /// A number of the standard normal distribution.
    pub(crate) fn normal(&mut self) -> f64 {
        let [.., a, b, c, d] = self.next_u64().to_le_bytes();
        normal(u32::from_le_bytes([a, b, c, d])).into()
    }

    /// The logarithm of a number of the gamma distribution of this shape, which is positive.
    fn ln_gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.ln_gamma(shape + 1.0) + (1.0 - self.unit()).ln() / shape;
        }
        let d = shape - 1.0 / 3.0;
        loop {
            let x = self.normal();
            let root = 1.0 + x / (9.0 * d).sqrt();
            if root <= 0.0 {
                continue;
            }
            let ln_v = 3.0 * root.ln();
            if (1.0 - self.unit()).ln() < 0.5 * x * x + d - d * ln_v.exp() + d * ln_v {
                return d.ln() + ln_v;
            }
        }
    }

    /// Fills `shares` with numbers of the symmetric Dirichlet distribution of this parameter, which is
    /// positive: they add up to 1.
    pub(crate) fn dirichlet(&mut self, alpha: f64, shares: &mut [f64]) {
        shares.fill_with(|| self.ln_gamma(alpha));
        let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shares.iter_mut().for_each(|share| *share = (*share - most).exp());
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
    }

    /// A number of the beta distribution of these parameters, which are positive.
    pub(crate) fn beta(&mut self, a: f64, b: f64) -> f64 {
        let [a, b] = [self.ln_gamma(a), self.ln_gamma(b)];
        1.0 / (1.0 + (b - a).exp())
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "a test of small numbers")]
mod tests {
    use super::*;
    use crate::record::RecordId;

    const DRAWS: u64 = 100_000;

    fn random(index: u64) -> RecordRandom {
        RecordRandom::new(1701, RecordId { epoch: 5, index })
    }

    /// The distance between the shares of draws up to some places and the true ones. One good sequence in a
    /// thousand exceeds 1.95 / sqrt(draws).
    fn distance(mut drawn: Vec<f64>, places: impl IntoIterator<Item = (f64, f64)>) -> f64 {
        drawn.sort_unstable_by(f64::total_cmp);
        let share = |place: f64| drawn.partition_point(|value| *value <= place) as f64 / drawn.len() as f64;
        places.into_iter().map(|(place, wanted)| (share(place) - wanted).abs()).fold(0.0, f64::max)
    }

    fn allowed() -> f64 {
        1.95 / (DRAWS as f64).sqrt()
    }

    const SHARES: [f64; 11] = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

    /// The places of these shares in the standard normal distribution, from 0.5 up.
    const NORMAL: [f64; 6] = [
        0.0,
        0.674_489_750_196_081_7,
        1.281_551_565_544_600_4,
        1.644_853_626_951_472_7,
        2.326_347_874_040_840_8,
        3.090_232_306_167_813,
    ];

    #[test]
    fn a_normal_number_is_that_of_its_share() {
        for (share, wanted) in SHARES[5..].iter().zip(NORMAL) {
            let beyond = (((1.0 - share) * 2_f64.powi(32)) as u32).min(u32::MAX >> 1);
            for (word, wanted) in [(beyond << 1, wanted), (beyond << 1 | 1, -wanted)] {
                let found = f64::from(normal(word));
                assert!((found - wanted).abs() < 2e-6, "{share}: {found} {wanted}");
            }
        }
        assert!((6.33..6.35).contains(&normal(0)), "{}", normal(0));
        assert_eq!(normal(1), -normal(0));
        let ordered: Vec<_> = (0..=u16::MAX).map(|at| normal(u32::from(at) << 16)).collect();
        assert!(ordered.is_sorted_by(|a, b| a > b));
    }

    #[test]
    #[cfg_attr(miri, ignore = "only many draws show how they are spread")]
    fn normal_numbers_are_spread_normally() {
        let drawn: Vec<f64> = (0..DRAWS).map(|index| random(index).normal()).collect();
        let places = NORMAL.iter().rev().map(|place| -place).chain(NORMAL[1..].iter().copied());
        let far = distance(drawn, places.zip(SHARES));
        assert!(far < allowed(), "{far} of {}", allowed());
    }

    /// Of scipy: where the distribution reaches these shares, up to the middle. It is symmetric.
    const BETAS: [(f64, [f64; 6]); 2] = [
        (
            0.2,
            [
                2.478_056_244_863_435e-14,
                2.478_056_240_769_629_3e-9,
                7.743_885_786_452_429e-6,
                0.000_247_764_691_908_146_75,
                0.023_814_718_768_253_692,
                0.5,
            ],
        ),
        (1.0, [0.001, 0.01, 0.05, 0.1, 0.25, 0.5]),
    ];

    #[test]
    #[cfg_attr(miri, ignore = "only many draws show how they are spread")]
    fn betas_are_those_of_their_parameters() {
        for (alpha, places) in BETAS {
            let places = || places.into_iter().zip(SHARES);
            let betas = (0..DRAWS).map(|index| random(index).beta(alpha, alpha)).collect();
            let far = distance(betas, places());
            assert!(far < allowed(), "{alpha}: {far} of {}", allowed());
            let others = (0..DRAWS).map(|index| random(index).beta(alpha, alpha * 1.05)).collect();
            assert!(distance(others, places()) > allowed(), "{alpha}: a little off is found out");
            let shares = (0..DRAWS).map(|index| {
                let mut shares = [0.0; 2];
                random(index).dirichlet(alpha, &mut shares);
                shares[1]
            });
            let far = distance(shares.collect(), places());
            assert!(far < allowed(), "{alpha}: {far} of {}", allowed());
        }
        // P(x <= s) of beta(1, b) is 1 - (1 - s)^b, of beta(a, 1) it is s^a.
        for (a, b) in [(1.0, 3.0), (0.3, 1.0), (7.5, 1.0)] {
            let share = |s: f64| if a == 1.0 { 1.0 - (1.0 - s).powf(b) } else { s.powf(a) };
            let places = (1..20).map(|at| f64::from(at) / 20.0).map(|place| (place, share(place)));
            let far = distance((0..DRAWS).map(|index| random(index).beta(a, b)).collect(), places);
            assert!(far < allowed(), "{a} {b}: {far} of {}", allowed());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "only many draws show how they are spread")]
    fn shares_of_a_dirichlet_are_betas() {
        // Each of n has the distribution beta(alpha, (n - 1) alpha): of 1 and 3, P(x <= s) is 1 - (1 - s)^2.
        for which in 0..3 {
            let shares = (0..DRAWS).map(|index| {
                let mut shares = [0.0; 3];
                random(index).dirichlet(1.0, &mut shares);
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                shares[which]
            });
            let places = (1..20).map(|at| f64::from(at) / 20.0).map(|s: f64| (s, 1.0 - (1.0 - s).powi(2)));
            let far = distance(shares.collect(), places);
            assert!(far < allowed(), "{which}: {far} of {}", allowed());
        }
        // Of a tiny parameter, one is about everything.
        let mut shares = [0.0; 4];
        random(0).dirichlet(0.001, &mut shares);
        assert!(shares.iter().any(|share| *share > 0.99) && shares.iter().all(|share| share.is_finite()));
    }
}
