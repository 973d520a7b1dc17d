//! Several files mixed in given proportions, as one stream.
//!
//! ```text
//! weights 3 and 1:   place   0 1 2 3 | 4 5 6 7 | ...     a round has 4 places
//!                    file    a a b a | a a b a | ...     every round has the same turns
//!                    record  0 1 0 2 | 3 4 1 5 | ...     counted through each file's own passes
//! ```
//!
//! The place in its round says whose it is, and the number of rounds before says which of that file's records
//! is due: [`locate`](Mixture::locate) is a division and a look at one round. So a mixture is entered at any
//! place in constant time, and its proportions are exact in every round.

use super::OrderError;
use super::plan::COUNTED_MAX;

/// The most places in a round, which bounds the memory for one.
const ROUND_MAX: u64 = 1 << 16;

/// A stream mixed from several files. In each round, a file has as many records as its weight, evenly spread.
/// Each file has its own passes, which continue through rounds and epochs, so that each record of a file
/// comes as often as any other.
///
/// An epoch is the smallest number of whole rounds in which every record comes at least once. The records of
/// the file that lasts longest come once, except that some come twice if its last round is not full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mixture {
    parts: Vec<Part>,
    round: Vec<RoundPlace>,
    rounds: u64,
}

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The position of its first record in the data set.
    pub(super) position: u64,
    pub(super) records: u64,
    weight: u64,
}

/// A place in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RoundPlace {
    /// The part that the place belongs to.
    part: usize,
    /// The number of earlier places of that part in the round.
    before: u64,
}

impl Mixture {
    pub(super) fn of(files: &[u64], weights: &[u64]) -> Result<Self, OrderError> {
        if weights.len() != files.len() {
            return Err(OrderError::Weights { found: weights.len(), files: files.len() });
        }
        let divisor = weights.iter().copied().fold(0, greatest_common_divisor);
        let mut position = 0;
        let mut parts = Vec::with_capacity(files.len());
        for (file, (&records, &weight)) in files.iter().zip(weights).enumerate() {
            if weight == 0 || records == 0 {
                return Err(OrderError::NothingToMix { file, records });
            }
            parts.push(Part { position, records, weight: weight / divisor });
            position += records;
        }
        let places = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.weight));
        if places > ROUND_MAX {
            return Err(OrderError::TooMany { what: "places of a round of the mixture", allowed: ROUND_MAX });
        }
        let rounds = parts.iter().map(|part| part.records.div_ceil(part.weight)).max().unwrap_or(0);
        if rounds.saturating_mul(places) > COUNTED_MAX {
            return Err(OrderError::TooMany { what: "records of an epoch", allowed: COUNTED_MAX });
        }
        Ok(Mixture { round: round(&parts), parts, rounds })
    }

    /// The number of places in an epoch.
    pub(super) fn len(&self) -> u64 {
        self.rounds * self.round.len() as u64
    }

    /// Resolves a place, counted across epochs: the part's number, the part, and how many of its records come
    /// before.
    pub(super) fn locate(&self, place: u64) -> (usize, Part, u64) {
        let places = self.round.len() as u64;
        let slot = usize::try_from(place % places).expect("it is less than the length of a list");
        let RoundPlace { part: number, before } = self.round[slot];
        let part = self.parts[number];
        (number, part, place / places * part.weight + before)
    }
}

/// The turns of a round: the `r`th turn of a part with weight `w` is nearest to the middle of the `r`th of
/// `w` equal divisions of the round.
fn round(parts: &[Part]) -> Vec<RoundPlace> {
    let turns = |(number, part): (usize, &Part)| {
        (0..part.weight).map(move |before| RoundPlace { part: number, before })
    };
    let mut round: Vec<RoundPlace> = parts.iter().enumerate().flat_map(turns).collect();
    // Compares fractions by their cross products, which are at most twice the square of a round.
    let middle_times =
        |turn: &RoundPlace, other: &RoundPlace| (2 * turn.before + 1) * parts[other.part].weight;
    round.sort_by(|one, other| middle_times(one, other).cmp(&middle_times(other, one)));
    round
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letters(mixture: &Mixture, places: u64) -> String {
        let letter = |place| char::from(b'a' + u8::try_from(mixture.locate(place).0).unwrap());
        (0..places).map(letter).collect()
    }

    #[test]
    fn a_round_is_spread_evenly() {
        let mixture = |weights: &[u64]| Mixture::of(&vec![10; weights.len()], weights).unwrap();
        assert_eq!(letters(&mixture(&[3, 1]), 8), "aabaaaba");
        assert_eq!(letters(&mixture(&[10, 20, 30]), 12), "cbacbccbacbc");
        assert_eq!(letters(&mixture(&[1]), 3), "aaa");
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        assert_eq!(Mixture::of(&[3, 4], &[1]), Err(OrderError::Weights { found: 1, files: 2 }));
        assert_eq!(Mixture::of(&[3, 4], &[1, 0]), Err(OrderError::NothingToMix { file: 1, records: 4 }));
        assert_eq!(Mixture::of(&[0, 4], &[1, 1]), Err(OrderError::NothingToMix { file: 0, records: 0 }));
        assert!(matches!(Mixture::of(&[3, 4], &[1, 1 << 16]), Err(OrderError::TooMany { .. })));
    }

    proptest! {
        #[test]
        fn proportions_are_exact_in_every_round_and_passes_go_on(
            files in prop::collection::vec((1_u64..20, 1_u64..9), 1..6), epochs in 1_u64..4,
        ) {
            let (records, weights): (Vec<u64>, Vec<u64>) = files.into_iter().unzip();
            let mixture = Mixture::of(&records, &weights).unwrap();
            let places = mixture.round.len() as u64;
            let mut drawn = vec![0; records.len()];
            for place in 0..epochs * mixture.len() {
                let (number, part, draw) = mixture.locate(place);
                prop_assert_eq!(draw, drawn[number], "one after the other");
                drawn[number] += 1;
                if (place + 1) % places == 0 {
                    let rounds = (place + 1) / places;
                    let mut parts = drawn.iter().zip(&mixture.parts);
                    prop_assert!(parts.all(|(&drawn, part)| drawn == rounds * part.weight));
                }
                // Never far from the proportion.
                let due = (place % places + 1) as f64 * part.weight as f64 / places as f64;
                let here = (drawn[number] - place / places * part.weight) as f64;
                prop_assert!((here - due).abs() <= 1.5, "{here} and not {due} at {place}");
            }
            prop_assert!(drawn.iter().zip(&records).all(|(drawn, records)| *drawn >= epochs * records));
        }
    }
}
