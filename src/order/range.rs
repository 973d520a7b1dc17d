//! Places in a stream at equal distances: what a replica gets at a step, and what a resumed epoch has left.
//!
//! Contiguous batches have the stride 1. Caffe's rule, by which a replica gets every n-th record, has the
//! stride n. A part of such a range, and a range within a range, are again such ranges. So what is left after
//! any number of resumes is a short list of them.

use std::ops::Range;

/// Places in the order in which they are dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StridedRange {
    pub(super) first: u64,
    pub(super) stride: u64,
    pub(super) len: u64,
}

impl StridedRange {
    /// Consecutive places, limited to those before `end`.
    pub(super) fn within(range: Range<u64>, end: u64) -> Self {
        let (first, last) = (range.start.min(end), range.end.min(end));
        StridedRange { first, stride: 1, len: last - first }
    }

    /// The number of its places before a place of the stream.
    pub(super) fn before(self, place: u64) -> u64 {
        place.saturating_sub(self.first).div_ceil(self.stride).min(self.len)
    }

    /// The range without its first `places` places.
    pub(super) fn without(self, places: u64) -> Self {
        let places = places.min(self.len);
        StridedRange { first: self.first + places * self.stride, stride: self.stride, len: self.len - places }
    }

    /// Only its first `places` places.
    pub(super) fn only(self, places: u64) -> Self {
        StridedRange { len: self.len.min(places), ..self }
    }

    /// Maps places that are counted from 0 in this range to places of the stream.
    pub(super) fn of(self, places: StridedRange) -> Self {
        let StridedRange { first, stride, len } = places;
        StridedRange { first: self.first + first * self.stride, stride: self.stride * stride, len }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(range: StridedRange) -> Vec<u64> {
        (0..range.len).map(|number| range.first + number * range.stride).collect()
    }

    fn range() -> impl Strategy<Value = StridedRange> {
        (0_u64..50, 1_u64..5, 0_u64..20).prop_map(|(first, stride, len)| StridedRange { first, stride, len })
    }

    proptest! {
        #[test]
        fn it_is_the_list_of_its_places(whole in range(), place in 0_u64..120, number in 0_u64..30) {
            let places = listed(whole);
            let at = usize::try_from(number).unwrap().min(places.len());
            let before = places.iter().filter(|&&other| other < place).count() as u64;
            prop_assert_eq!(whole.before(place), before);
            prop_assert_eq!(listed(whole.without(number)), &places[at..]);
            prop_assert_eq!(listed(whole.only(number)), &places[..at]);
        }

        #[test]
        fn places_of_places_are_places(whole in range(), part in range()) {
            let whole = StridedRange { len: 200, ..whole };
            let places = listed(whole);
            let place = |&number: &u64| places[usize::try_from(number).unwrap()];
            let due: Vec<u64> = listed(part).iter().map(place).collect();
            prop_assert_eq!(listed(whole.of(part)), due);
        }
    }
}
