//! Numbers that CPython 3.11 and NumPy 2.4 printed. Fractions are given as the bits of the f64.

use super::*;

/// What `random.Random(seed)` returned, one call after the other.
struct Python {
    seed: i64,
    random: [u64; 3],
    /// `choice(range(n))` for [`CHOICES`].
    choices: [usize; 8],
    /// `randint(0, n)` for [`INTEGERS`].
    integers: [usize; 9],
    /// `random()` after 700 more calls, during which the twister's state is renewed twice.
    late: u64,
}

const CHOICES: [usize; 8] = [1, 1, 2, 3, 7, 64, 100, 1000];
const INTEGERS: [usize; 9] = [0, 1, 5, 31, 32, 1_000_000, (1 << 32) - 1, 1 << 32, 1 << 40];

#[rustfmt::skip]
const PYTHON: [Python; 7] = [
    Python {
        seed: 0,
        random: [0x3feb0580f98a7dbe, 0x3fe84129978f9c1a, 0x3fdaeaa51052e978],
        choices: [0, 0, 1, 1, 3, 45, 74, 913],
        integers: [0, 0, 2, 8, 6, 648406, 3433407905, 631194409, 1036505304606],
        late: 0x3f7d346847e36c80,
    },
    Python {
        seed: 1,
        random: [0x3fc132d8f91b7584, 0x3feb1e2d5b3584f8, 0x3fe870d778409f13],
        choices: [0, 0, 1, 1, 3, 48, 26, 96],
        integers: [0, 0, 3, 27, 0, 729633, 1912923437, 4059906722, 699656303417],
        late: 0x3fef3eb2ec62e280,
    },
    Python {
        seed: -1000,
        random: [0x3fe8e01b09b745df, 0x3fe56f36030a9ebe, 0x3fb961368c987188],
        choices: [0, 0, 1, 0, 4, 55, 16, 227],
        integers: [0, 1, 5, 31, 12, 714061, 2861300225, 1967370155, 315626306418],
        late: 0x3fe67c212c5cd3d6,
    },
    Python {
        seed: 1000,
        random: [0x3fe8e01b09b745df, 0x3fe56f36030a9ebe, 0x3fb961368c987188],
        choices: [0, 0, 1, 0, 4, 55, 16, 227],
        integers: [0, 1, 5, 31, 12, 714061, 2861300225, 1967370155, 315626306418],
        late: 0x3fe67c212c5cd3d6,
    },
    Python {
        seed: 4294967296,
        random: [0x3fbced31cb3df170, 0x3fdabdb5477a4f26, 0x3f91139c02ebd380],
        choices: [0, 0, 0, 0, 0, 55, 64, 321],
        integers: [0, 1, 3, 29, 10, 951434, 3816158461, 3045747055, 616585486145],
        late: 0x3fedd69b80c01045,
    },
    Python {
        seed: i64::MAX,
        random: [0x3fd443e8e5409ca6, 0x3fe43346b887de9d, 0x3fe9b6b765f6b847],
        choices: [0, 0, 1, 2, 6, 35, 21, 724],
        integers: [0, 0, 4, 7, 3, 816550, 4147837457, 2392893938, 901088815538],
        late: 0x3fef76bfdcdc9957,
    },
    Python {
        seed: i64::MIN,
        random: [0x3fe1b5fa2193586f, 0x3fee198384d65bb9, 0x3fcef9ab7f81e664],
        choices: [0, 0, 1, 2, 2, 58, 83, 685],
        integers: [0, 0, 0, 5, 22, 573948, 797394150, 2850392418, 736006970871],
        late: 0x3fd5a4c6c15553e0,
    },
];

/// What `numpy.random` returned after `seed`, one call after the other.
struct Numpy {
    seed: u32,
    random: [u64; 2],
    /// `permutation(10)`, after `permutation(0)` and `permutation(1)`.
    permutation: [usize; 10],
    /// `choice(n)` for [`BOUNDS_OF_CHOICE`].
    choices: [usize; 7],
    /// `choice(5, p=...)`, with probabilities in the proportions 1/1 to 1/5.
    weighted: [usize; 12],
    /// `randint(n)` for [`BOUNDS`].
    integers: [usize; 10],
    /// `range(7)` after `shuffle`.
    shuffled: [usize; 7],
    /// `random_sample()` after 700 more calls.
    late: u64,
}

const BOUNDS_OF_CHOICE: [usize; 7] = [1, 2, 3, 6, 12, 30, 1];
const BOUNDS: [usize; 10] = [1, 64, 64, 65, 256, 1_000_000, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 40];

#[rustfmt::skip]
const NUMPY: [Numpy; 5] = [
    Numpy {
        seed: 0,
        random: [0x3fe18fe1565f12a8, 0x3fe6e2d4cf608733],
        permutation: [6, 5, 4, 0, 2, 8, 1, 7, 9, 3],
        choices: [0, 0, 0, 2, 1, 6, 0],
        weighted: [3, 1, 0, 3, 0, 1, 0, 4, 0, 3, 1, 2],
        integers: [0, 29, 19, 19, 142, 745895, 2748439840, 2499755969, 2034098327, 700879960574],
        shuffled: [1, 6, 0, 5, 4, 2, 3],
        late: 0x3fc9aa823ae86824,
    },
    Numpy {
        seed: 1,
        random: [0x3fdab07d0ffa3c06, 0x3fe70ce5f3baf051],
        permutation: [2, 3, 4, 8, 1, 6, 0, 7, 5, 9],
        choices: [0, 0, 1, 2, 4, 5, 0],
        weighted: [2, 0, 3, 0, 2, 0, 1, 0, 0, 2, 4, 0],
        integers: [0, 22, 57, 1, 128, 323900, 3561158865, 365262088, 167739021, 494650655151],
        shuffled: [4, 5, 3, 6, 0, 1, 2],
        late: 0x3fe788eb4101adb0,
    },
    Numpy {
        seed: 100,
        random: [0x3fe16392c2af436c, 0x3fd1d0cdd34bdefa],
        permutation: [3, 8, 5, 1, 9, 4, 6, 2, 0, 7],
        choices: [0, 0, 2, 1, 0, 24, 0],
        weighted: [0, 1, 1, 1, 0, 0, 4, 0, 0, 0, 1, 2],
        integers: [0, 7, 49, 47, 193, 207165, 753382158, 2442743479, 2287386626, 522468561513],
        shuffled: [0, 4, 1, 5, 2, 3, 6],
        late: 0x3fed957838259bfe,
    },
    Numpy {
        seed: u32::MAX,
        random: [0x3fb8fe69a3924820, 0x3fed323d824032b1],
        permutation: [9, 5, 7, 3, 8, 1, 2, 6, 0, 4],
        choices: [0, 1, 2, 3, 6, 23, 0],
        weighted: [4, 0, 0, 0, 4, 3, 3, 1, 0, 4, 0, 1],
        integers: [0, 23, 9, 61, 1, 877416, 2116043223, 2197459028, 3774452015, 743489226642],
        shuffled: [4, 6, 2, 5, 3, 0, 1],
        late: 0x3f8eca18a503f900,
    },
    Numpy {
        seed: 12345,
        random: [0x3fedbf6a3f8f84b7, 0x3fd43f7f410bb044],
        permutation: [0, 9, 7, 3, 6, 1, 8, 2, 5, 4],
        choices: [0, 1, 2, 0, 2, 9, 0],
        weighted: [0, 0, 0, 3, 1, 3, 1, 3, 0, 3, 4, 0],
        integers: [0, 5, 15, 14, 115, 497771, 3166259589, 3396556834, 115316741, 974100172908],
        shuffled: [4, 1, 2, 0, 6, 3, 5],
        late: 0x3f89e68e43b801c0,
    },
];

#[test]
fn python_numbers_are_cpythons() {
    for printed in &PYTHON {
        let mut random = PythonRandom::new(printed.seed);
        assert_eq!([(); 3].map(|()| random.random().to_bits()), printed.random, "seed {}", printed.seed);
        assert_eq!(CHOICES.map(|count| random.choice(count)), printed.choices, "seed {}", printed.seed);
        assert_eq!(INTEGERS.map(|high| random.randint(0, high)), printed.integers, "seed {}", printed.seed);
        (0..700).for_each(|_| assert!(random.random() < 1.0));
        assert_eq!(random.random().to_bits(), printed.late, "seed {}", printed.seed);
    }
}

#[test]
fn numpy_numbers_are_those_of_its_legacy_generator() {
    let sums = numpy::running_sums([1.0, 1.0 / 2.0, 1.0 / 3.0, 1.0 / 4.0, 1.0 / 5.0]);
    let printed =
        [0x3fdc077975b8fe22, 0x3fe5059b184abe9a, 0x3fe9b184abe993a0, 0x3fed3273daa0b364, 0x3ff0000000000000];
    assert_eq!(sums.map(f64::to_bits), printed);
    for printed in &NUMPY {
        let mut random = NumpyRandom::new(printed.seed);
        let seed = printed.seed;
        assert_eq!([(); 2].map(|()| random.random_sample().to_bits()), printed.random, "seed {seed}");
        assert_eq!(random.permutation(0), [0; 0]);
        assert_eq!(random.permutation(1), [0]);
        assert_eq!(random.permutation(10), printed.permutation, "seed {seed}");
        assert_eq!(BOUNDS_OF_CHOICE.map(|bound| random.below(bound)), printed.choices, "seed {seed}");
        assert_eq!([(); 12].map(|()| random.choice_by(&sums)), printed.weighted, "seed {seed}");
        assert_eq!(BOUNDS.map(|bound| random.below(bound)), printed.integers, "seed {seed}");
        let mut items = [0, 1, 2, 3, 4, 5, 6];
        random.shuffle(&mut items);
        assert_eq!(items, printed.shuffled, "seed {seed}");
        (0..700).for_each(|_| assert!(random.random_sample() < 1.0));
        assert_eq!(random.random_sample().to_bits(), printed.late, "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "nothing to choose from")]
fn a_choice_from_nothing_is_a_bug() {
    PythonRandom::new(1).choice(0);
}
