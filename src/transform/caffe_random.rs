//! Caffe's own random sequence: which number of which generator decides what.
//!
//! `Caffe::set_random_seed` seeds one mt19937, the parent. During net set-up the layers, in the order of the
//! file, draw numbers from the parent as seeds for their own generators. A layer that loads data draws, in
//! this order:
//!
//! | taken by | a `Data` layer today | a `Data` layer of 2015 to 2016 | an `ImageData` layer |
//! |---|---|---|---|
//! | the thread that reads the database | | 1 | |
//! | the transformer, if it mirrors or crops at random | 1 | 1 | 1 |
//! | the shuffle of the list, if it is shuffled | | | 1 |
//! | the number of lines skipped, if there is a `rand_skip` | | | 1 |
//! | the transformer once more: this number is the seed it keeps | 1 | 1 | 1 |
//! | the thread that prefetches | 1 | 1 | 1 |
//!
//! The transformer then draws for each record, in record order: mirror, if it mirrors; row and column of the
//! crop, if it crops in TRAIN. A choice among `n` is the number modulo `n`.

use rand_mt::Mt;

use super::random::{Draw, Reduction};

/// Which Caffe version's sequence to use. They differ in how many numbers a `Data` layer draws at set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum CaffeEra {
    /// Caffe's last release, and its master since 2016-11-22.
    #[default]
    Today,
    /// Caffe from 2015-05-18 to 2016-11-22, which read databases through a `DataReader`.
    DataReader,
}

/// Caffe's random sequence for one layer's transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaffeRandom {
    seed: u32,
    /// How many of the parent's numbers precede the one that seeds the transformer.
    before: usize,
}

impl CaffeRandom {
    /// The transformer's generator in a lane. The lane's parent is that of Caffe's solver of the same rank.
    pub(super) fn transformer(self, lane: usize) -> Mt {
        let lane = u32::try_from(lane).unwrap_or(u32::MAX);
        Mt::new(nth(self.seed.wrapping_add(lane), self.before))
    }
}

/// The numbers that a record draws from the transformer's generator, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) mirror: bool,
    /// Row and column.
    pub(crate) crop: bool,
}

impl Takes {
    /// Whether the transformer has a generator at all.
    pub(crate) fn any(self) -> bool {
        self.mirror || self.crop
    }

    /// Draws a record's numbers. Numbers that are not drawn are 0 and never used.
    pub(super) fn draw(self, generator: &mut Mt) -> Draw {
        let mut next = |is_drawn: bool| if is_drawn { generator.next_u32() } else { 0 };
        // The order of the fields is the order of the draws.
        Draw {
            mirror: next(self.mirror),
            height: next(self.crop),
            width: next(self.crop),
            reduction: Reduction::Modulo,
        }
    }
}

/// The properties of a data layer that decide how many random numbers its set-up draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetUp {
    pub(crate) kind: LayerKind,
    /// Whether its transformer mirrors, or crops at random.
    pub(crate) is_random: bool,
}

/// The kind of a data layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerKind {
    Data,
    ImageData { shuffles: bool, skips: bool },
}

impl SetUp {
    /// The random numbers that the layer draws from the parent with this seed, after the numbers in `taken`.
    pub(crate) fn seeds(self, seed: u32, era: CaffeEra, taken: Taken) -> LayerSeeds {
        let mut before = taken.by(era) + self.of_reader(era) + usize::from(self.is_random);
        let mut take_if = |is_taken: bool| {
            let number = is_taken.then(|| nth(seed, before));
            before += usize::from(is_taken);
            number
        };
        let (shuffles, skips) = self.of_list();
        let (shuffle, skip) = (take_if(shuffles), take_if(skips));
        LayerSeeds { transformer: CaffeRandom { seed, before }, shuffle, skip }
    }

    /// How many numbers the layer draws in total.
    fn takes(self, era: CaffeEra) -> usize {
        let (shuffles, skips) = self.of_list();
        // Two for the transformer, one for the prefetch thread.
        let others = 2 * usize::from(self.is_random) + 1;
        self.of_reader(era) + usize::from(shuffles) + usize::from(skips) + others
    }

    /// Whether the layer shuffles a list, and whether it skips lines of it.
    fn of_list(self) -> (bool, bool) {
        match self.kind {
            LayerKind::Data => (false, false),
            LayerKind::ImageData { shuffles, skips } => (shuffles, skips),
        }
    }

    /// How many numbers go to the thread that reads the database.
    fn of_reader(self, era: CaffeEra) -> usize {
        usize::from(self.kind == LayerKind::Data && era == CaffeEra::DataReader)
    }
}

/// How many of the parent's numbers a net's layers have drawn so far, for either era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub(crate) struct Taken {
    #[cfg_attr(feature = "serde", serde(deserialize_with = "few"))]
    today: usize,
    #[cfg_attr(feature = "serde", serde(deserialize_with = "few"))]
    data_reader: usize,
}

/// Reads how many numbers the layers of a net draw: they are drawn again, one by one.
#[cfg(feature = "serde")]
fn few<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    const ALLOWED: usize = 1 << 20;
    let found: usize = serde::Deserialize::deserialize(deserializer)?;
    if found <= ALLOWED {
        return Ok(found);
    }
    let message = format!(
        "the layers of a net draw at most {ALLOWED} random numbers when they are set up, found {found}"
    );
    Err(serde::de::Error::custom(message))
}

impl Taken {
    /// Counts the next layer's numbers.
    pub(crate) fn add(&mut self, layer: SetUp) {
        self.today += layer.takes(CaffeEra::Today);
        self.data_reader += layer.takes(CaffeEra::DataReader);
    }

    fn by(self, era: CaffeEra) -> usize {
        match era {
            CaffeEra::Today => self.today,
            CaffeEra::DataReader => self.data_reader,
        }
    }
}

/// The random numbers that a layer draws at set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerSeeds {
    pub(crate) transformer: CaffeRandom,
    /// The seed of the generator that shuffles the list.
    pub(crate) shuffle: Option<u32>,
    /// The number that is taken modulo `rand_skip`.
    pub(crate) skip: Option<u32>,
}

/// The `number`th output, from 0, of the generator with this seed.
fn nth(seed: u32, number: usize) -> u32 {
    let mut generator = Mt::new(seed);
    for _ in 0..number {
        generator.next_u32();
    }
    generator.next_u32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_caffes() {
        let mut parent = Mt::new(1701);
        let numbers = [384_112_814, 2_227_967_492, 495_543_390, 3_464_664_558];
        assert_eq!(numbers.map(|_| parent.next_u32()), numbers);
        // From Caffe's own test of its threads: the first number of a parent seeds the child.
        for (seed, child, first) in
            [(9_658_361, 2_807_902_913, 4_244_559_767), (3_435_563, 2_507_970_537, 1_726_478_280)]
        {
            assert_eq!((nth(seed, 0), Mt::new(child).next_u32()), (child, first));
        }
    }

    const DATA: SetUp = SetUp { kind: LayerKind::Data, is_random: true };

    fn first_layer(seed: u32, era: CaffeEra) -> CaffeRandom {
        DATA.seeds(seed, era, Taken::default()).transformer
    }

    /// Mirror, row and column of a crop of 1 out of 3x4, as both Caffes choose them after
    /// `set_random_seed(1701)`.
    #[test]
    fn both_eras_choose_as_they_did() {
        let today = [
            (0, 2, 0),
            (1, 0, 0),
            (0, 1, 0),
            (0, 2, 2),
            (0, 2, 0),
            (1, 0, 3),
            (1, 2, 3),
            (0, 1, 3),
            (0, 1, 0),
            (0, 2, 2),
        ];
        let data_reader = [
            (1, 1, 3),
            (0, 2, 3),
            (0, 1, 0),
            (0, 1, 2),
            (1, 1, 0),
            (1, 2, 2),
            (1, 1, 0),
            (1, 1, 3),
            (0, 1, 3),
            (0, 0, 2),
        ];
        for (era, choices) in [(CaffeEra::Today, today), (CaffeEra::DataReader, data_reader)] {
            let mut generator = first_layer(1701, era).transformer(0);
            let takes = Takes { mirror: true, crop: true };
            for choice in choices {
                let draw = takes.draw(&mut generator);
                assert_eq!((u8::from(draw.mirrored()), draw.top(3), draw.left(4)), choice, "{era:?}");
            }
        }
    }

    #[test]
    fn only_what_is_drawn_is_taken() {
        let (mut all, mut some) = (Mt::new(5), Mt::new(5));
        let numbers: Vec<u32> = (0..6).map(|_| all.next_u32()).collect();
        let mirror = Takes { mirror: true, crop: false };
        assert_eq!([0; 2].map(|_| mirror.draw(&mut some).mirror), numbers[..2]);
        let draw = Takes { mirror: false, crop: true }.draw(&mut some);
        assert_eq!([draw.mirror, draw.height, draw.width], [0, numbers[2], numbers[3]]);
    }

    #[test]
    fn layers_take_their_seeds_one_after_the_other() {
        let still = SetUp { is_random: false, ..DATA };
        let before = |era| {
            let mut taken = Taken::default();
            [DATA, DATA, still, DATA].map(|layer| {
                let before = layer.seeds(1, era, taken).transformer.before;
                taken.add(layer);
                before
            })
        };
        // A layer without randomness has no generator, and draws only its thread's number.
        assert_eq!(before(CaffeEra::Today), [1, 4, 6, 8]);
        assert_eq!(before(CaffeEra::DataReader), [2, 6, 9, 12]);
    }

    #[test]
    fn a_list_is_shuffled_and_skipped_between_the_transformers_two_numbers() {
        let list =
            |shuffles, is_random| SetUp { kind: LayerKind::ImageData { shuffles, skips: true }, is_random };
        let seeds = list(true, true).seeds(7, CaffeEra::Today, Taken::default());
        assert_eq!((seeds.shuffle, seeds.skip), (Some(nth(7, 1)), Some(nth(7, 2))));
        assert_eq!(seeds.transformer.before, 3);
        let seeds = list(false, false).seeds(7, CaffeEra::DataReader, Taken::default());
        assert_eq!((seeds.shuffle, seeds.skip), (None, Some(nth(7, 0))));
        let mut taken = Taken::default();
        taken.add(list(true, true));
        taken.add(DATA);
        // The numbers of the transformer, the shuffle, the skip, the transformer again and the thread, and
        // then those of a Data layer, which in the DataReader era had a reader as well.
        assert_eq!((taken.today, taken.data_reader), (5 + 3, 5 + 4));
    }

    #[test]
    fn each_lane_has_the_seed_of_its_rank() {
        let first = |random: CaffeRandom, lane| random.transformer(lane).next_u32();
        let [random, next] = [41, 42].map(|seed| first_layer(seed, CaffeEra::Today));
        assert_eq!(first(random, 1), first(next, 0));
    }
}
