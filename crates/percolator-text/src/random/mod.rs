//! The random numbers of CPython's `random` and of NumPy's legacy generator (`numpy.random.*`), number for
//! number.
//!
//! Both are the Mersenne Twister MT19937. They differ in how they seed it, and in how they turn its 32-bit
//! words into numbers within a range. A sequence is a function of the seed and of the calls made, in their
//! order.

mod numpy;
mod python;
#[cfg(test)]
mod tests;

pub use numpy::NumpyRandom;
pub(crate) use numpy::running_sums;
pub use python::PythonRandom;

use rand_mt::Mt;

/// A number in [0, 1) with 53 random bits, from two words of the twister. Both generators make their floats
/// this way.
#[expect(clippy::cast_lossless, reason = "numbers of 27 and 26 bits, as in the C code")]
fn unit(twister: &mut Mt) -> f64 {
    let high = twister.next_u32() >> 5;
    let low = twister.next_u32() >> 6;
    (high as f64 * 67_108_864.0 + low as f64) / 9_007_199_254_740_992.0
}
