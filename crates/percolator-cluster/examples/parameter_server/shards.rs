//! Who has which part of the model: each shard is a range of its weights.

use std::fmt;
use std::ops::Range;

use crate::model::WEIGHTS;

/// The most shards. Each is a process.
pub(crate) const SHARDS_MAX: u32 = 64;

/// One shard of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) job: String,
    pub(crate) number: u32,
    /// How many there are.
    pub(crate) of: u32,
}

impl Shard {
    /// All shards of a job.
    pub(crate) fn all(job: &str, of: u32) -> impl Iterator<Item = Shard> {
        (0..of).map(move |number| Shard { job: job.to_owned(), number, of })
    }

    /// The weights that it has. The ranges of all shards follow one another, and their lengths differ by 1 at
    /// most.
    pub(crate) fn weights(&self) -> Range<usize> {
        let at = |number: u32| {
            let place = WEIGHTS as u64 * u64::from(number) / u64::from(self.of.max(1));
            usize::try_from(place).expect("it is not more than WEIGHTS")
        };
        at(self.number)..at(self.number.saturating_add(1))
    }

    /// The id of its checkpoints.
    pub(crate) fn id(&self) -> String {
        format!("{}-shard-{}", self.job, self.number)
    }

    /// The record that says where its server is.
    pub(crate) fn address_key(&self) -> String {
        format!("/parameter-servers/{}/{}", self.job, self.number)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {} of {}", self.number, self.of, percolator_files::shown::message(&self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_all_of_the_model_and_do_not_overlap() {
        for of in [1, 2, 3, 7, SHARDS_MAX] {
            let ranges: Vec<_> = Shard::all("job", of).map(|shard| shard.weights()).collect();
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, WEIGHTS));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
            let (least, most) =
                ranges.iter().map(Range::len).fold((usize::MAX, 0), |(l, m), n| (l.min(n), m.max(n)));
            assert!(least > 0 && most - least <= 1, "{ranges:?}");
        }
    }
}
