//! The random numbers of a record.
//!
//! A record draws up to three: whether to mirror it, and the crop's first row and first column. They are
//! drawn as raw 32-bit numbers, in the order of a lane's records. The [`Draw`] carries the rule that reduces
//! them to choices, so the transform does not depend on their origin.

use rand_mt::Mt;

use super::caffe_random::{CaffeRandom, Takes};
use crate::base::splitmix::{self, SplitMix};
use crate::record::RecordId;

/// Where a feed's random numbers come from.
///
/// Invariant: a record's draw never depends on anything that varies between two runs over the same stream,
/// such as the number of threads or their timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Randomness {
    /// A pure function of the seed and the record: a stream can resume anywhere.
    Indexed {
        /// Selects the sequence.
        seed: u64,
    },
    /// Caffe's own sequence: one generator per lane, from which its records draw in turn.
    Caffe(CaffeRandom),
}

impl Randomness {
    /// The draws of one lane, before its first record.
    pub(crate) fn lane(self, lane: usize, takes: Takes) -> Draws {
        match self {
            Randomness::Indexed { seed } => Draws::Indexed { seed },
            Randomness::Caffe(random) => {
                Draws::Caffe { generator: Box::new(random.transformer(lane)), takes }
            }
        }
    }
}

/// The draws of one lane's records, to be taken in record order.
#[derive(Clone, Debug)]
pub(crate) enum Draws {
    Indexed { seed: u64 },
    Caffe { generator: Box<Mt>, takes: Takes },
}

impl Draws {
    /// Whether a record's draw depends on the number of draws before it.
    pub(crate) fn are_in_turn(&self) -> bool {
        matches!(self, Draws::Caffe { takes, .. } if takes.any())
    }

    /// Skips the draws of `records` records.
    pub(crate) fn pass(&mut self, records: u64) {
        if let Draws::Caffe { generator, takes } = self {
            for _ in 0..records {
                takes.draw(generator);
            }
        }
    }

    /// Returns the draw of the lane's next record.
    pub(crate) fn next(&mut self, record: RecordId) -> Draw {
        match self {
            Draws::Indexed { seed } => indexed(*seed, record),
            Draws::Caffe { generator, takes } => takes.draw(generator),
        }
    }
}

/// Folds the seed, the epoch and the index into a key, one `SplitMix64` step per word. The numbers are the
/// high halves of the first three outputs of a `SplitMix64` seeded with that key. A test pins them: a release
/// that changed them would change every resumed training run.
fn indexed(seed: u64, record: RecordId) -> Draw {
    let mut generator = SplitMix(splitmix::fold(seed, &[record.epoch, record.index]));
    let mut next = || (generator.next() >> 32) as u32;
    Draw { mirror: next(), height: next(), width: next(), reduction: Reduction::MultiplyShift }
}

/// The raw random numbers of one record, and the rule that reduces them to choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Draw {
    /// Decides whether the record is mirrored.
    pub(crate) mirror: u32,
    /// Decides the first row of the crop.
    pub(crate) height: u32,
    /// Decides the first column of the crop.
    pub(crate) width: u32,
    /// How `height` and `width` become offsets.
    pub(crate) reduction: Reduction,
}

/// How 32 random bits choose one of `n` positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Reduction {
    /// `(bits * n) >> 32`: no division, and a bias of at most `n` in 2^32.
    #[default]
    MultiplyShift,
    /// `bits % n`, Caffe's `Rand(n)`.
    Modulo,
}

impl Draw {
    /// Whether to mirror the record: the lowest bit, which is Caffe's `Rand(2)` too.
    pub(crate) fn mirrored(self) -> bool {
        self.mirror & 1 == 1
    }

    /// The first row of the crop, one of `positions`.
    pub(crate) fn top(self, positions: usize) -> usize {
        self.reduction.choose(self.height, positions)
    }

    /// The first column of the crop, one of `positions`.
    pub(crate) fn left(self, positions: usize) -> usize {
        self.reduction.choose(self.width, positions)
    }
}

impl Reduction {
    /// One of `0..positions`.
    fn choose(self, bits: u32, positions: usize) -> usize {
        debug_assert!(positions > 0, "a choice of none");
        let (bits, n) = (u128::from(bits), positions as u128);
        let choice = match self {
            Reduction::MultiplyShift => (bits * n) >> 32,
            Reduction::Modulo => bits % n,
        };
        usize::try_from(choice).expect("the choice is less than `positions`, a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, epoch: u64, index: u64) -> Draw {
        indexed(seed, RecordId { epoch, index })
    }

    #[test]
    fn a_release_never_changes_the_draws() {
        let numbers = |draw: Draw| [draw.mirror, draw.height, draw.width];
        assert_eq!(numbers(draw(0, 0, 0)), [556_823_690, 214_405_049, 2_879_038_426]);
        assert_eq!(numbers(draw(1701, 0, 0)), [2_886_790_183, 73_839_923, 2_050_230_184]);
        assert_eq!(numbers(draw(1701, 0, 1)), [1_883_029_472, 1_075_517_841, 3_846_924_567]);
        assert_eq!(numbers(draw(1701, 1, 0)), [2_940_493_798, 2_930_103_612, 2_314_176_999]);
        assert_eq!(numbers(draw(u64::MAX, u64::MAX, u64::MAX)), [1_330_365_849, 2_037_283_735, 818_499_410]);
    }

    /// Pearson's statistic for counts that ought to be equal.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
    }

    #[test]
    fn choices_are_even_and_independent() {
        const POSITIONS: usize = 30;
        let mut offsets = [[0; POSITIONS]; 2];
        let mut joint = [0; 8];
        for (epoch, index) in (0..10).flat_map(|epoch| (0..10_000).map(move |index| (epoch, index))) {
            let draw = draw(1701, epoch, index);
            let (top, left) = (draw.top(POSITIONS), draw.left(POSITIONS));
            offsets[0][top] += 1;
            offsets[1][left] += 1;
            let half = |offset: usize| usize::from(offset >= POSITIONS / 2);
            joint[usize::from(draw.mirrored()) * 4 + half(top) * 2 + half(left)] += 1;
        }
        // One good sequence in ten thousand exceeds these, for 29 and 7 degrees of freedom.
        assert!(chi_square(&offsets[0]) < 65.0, "{:?}", offsets[0]);
        assert!(chi_square(&offsets[1]) < 65.0, "{:?}", offsets[1]);
        assert!(chi_square(&joint) < 30.0, "{joint:?}");
    }

    #[test]
    fn neighbours_draw_apart() {
        // A record's mirror is independent of the next record's, the next epoch's, and the next seed's.
        for (seed, epoch, index) in [(0, 0, 1), (0, 1, 0), (1, 0, 0)] {
            let mut counts = [0; 4];
            for i in 0..10_000 {
                let (a, b) = (draw(3, 5, i), draw(3 + seed, 5 + epoch, i + index));
                counts[usize::from(a.mirrored()) * 2 + usize::from(b.mirrored())] += 1;
            }
            assert!(chi_square(&counts) < 21.0, "{counts:?}");
        }
    }

    #[test]
    fn choices_reach_both_ends_and_no_further() {
        let draw = |bits, reduction| Draw { mirror: bits, height: bits, width: bits, reduction };
        for positions in [1, 2, 30, 1 << 20] {
            assert_eq!(draw(0, Reduction::MultiplyShift).top(positions), 0);
            assert_eq!(draw(u32::MAX, Reduction::MultiplyShift).left(positions), positions - 1);
            assert!(draw(u32::MAX, Reduction::Modulo).left(positions) < positions);
        }
    }
}
