//! Compiles a kernel once per instruction set, and picks one when the program runs.
//!
//! A kernel is plain code, which the compiler turns into the vector instructions that the enclosing function
//! may use. Everything that a kernel calls must be `inline(always)`: code that is not inlined is compiled for
//! the baseline and is several times slower. For the same reason there are no closures, which cannot be
//! marked so.

#![expect(unsafe_code, reason = "code for instructions that not every processor has")]

/// Work that is compiled for every instruction set.
pub trait Kernel {
    /// The result of the work.
    type Output;

    /// Does the work. An implementation is `inline(always)`.
    fn run(self) -> Self::Output;
}

/// The instructions that a kernel may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Those of every processor of the target.
    Baseline,
    /// Those of x86-64-v3: AVX2.
    #[cfg(target_arch = "x86_64")]
    V3(Found),
    /// Those of x86-64-v4: AVX-512.
    #[cfg(target_arch = "x86_64")]
    V4(Found),
}

/// Shows that this processor has the instructions: only [`InstructionSet::all`] creates one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(());

impl InstructionSet {
    /// The widest that this processor has.
    #[inline]
    pub fn widest() -> Self {
        let [baseline, v3, v4] = Self::all();
        v4.or(v3).or(baseline).unwrap_or(InstructionSet::Baseline)
    }

    /// Those that this processor has, narrowest first.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn all() -> [Option<Self>; 3] {
        // The standard library asks the processor once, and then reads its own answer.
        let v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let found = Found(());
        let [v3, v4] = [v3.then_some(InstructionSet::V3(found)), v4.then_some(InstructionSet::V4(found))];
        [Some(InstructionSet::Baseline), v3, v4]
    }

    /// Those that this processor has, narrowest first.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub fn all() -> [Option<Self>; 3] {
        [Some(InstructionSet::Baseline), None, None]
    }

    /// Runs a kernel with these instructions.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            InstructionSet::Baseline => kernel.run(),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::V3(Found(())) => {
                // SAFETY: a `Found` of this variant exists only if the processor has all features of `v3`.
                unsafe { v3(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            InstructionSet::V4(Found(())) => {
                // SAFETY: a `Found` of this variant exists only if the processor has all features of `v4`.
                unsafe { v4(kernel) }
            }
        }
    }
}

/// Runs a kernel that is compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt")]
fn v3<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Runs a kernel that is compiled for AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn v4<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// The bytes of both, in turns. The compiler does not find these instructions by itself.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
pub(crate) fn interleaved(one: [u8; 16], other: [u8; 16]) -> [[u8; 16]; 2] {
    use std::arch::x86_64::{__m128i, _mm_unpackhi_epi8, _mm_unpacklo_epi8};

    let [one, other]: [__m128i; 2] = [bytemuck::cast(one), bytemuck::cast(other)];
    // SAFETY: it takes SSE2, for which all of this program is compiled: see `cfg`.
    let low = unsafe { _mm_unpacklo_epi8(one, other) };
    // SAFETY: as above.
    let high = unsafe { _mm_unpackhi_epi8(one, other) };
    [bytemuck::cast(low), bytemuck::cast(high)]
}

/// The bytes of both, in turns.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
#[inline(always)]
pub(crate) fn interleaved(one: [u8; 16], other: [u8; 16]) -> [[u8; 16]; 2] {
    let mut both = [[0; 16]; 2];
    for (at, (one, other)) in one.into_iter().zip(other).enumerate() {
        both[at / 8][2 * (at % 8)] = one;
        both[at / 8][2 * (at % 8) + 1] = other;
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum<'a>(&'a [u32]);

    impl Kernel for Sum<'_> {
        type Output = u32;

        #[inline(always)]
        fn run(self) -> u32 {
            self.0.iter().sum()
        }
    }

    #[test]
    fn a_kernel_gives_the_same_with_every_instruction_set() {
        let numbers: Vec<u32> = (0..1000).collect();
        for set in InstructionSet::all().into_iter().flatten() {
            assert_eq!(set.run(Sum(&numbers)), 499_500, "{set:?}");
        }
        assert!(InstructionSet::all().contains(&Some(InstructionSet::widest())));
    }
}
