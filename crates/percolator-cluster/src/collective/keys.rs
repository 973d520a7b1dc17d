//! Where the records of a group of processes are.
//!
//! ```text
//! /collective/JOB/group                          who is in the group: its generation, size and members
//! /collective/JOB/GENERATION/live/ranks/RANK     a process, under its lease
//! /collective/JOB/GENERATION/live/rounds/N/RANK  what it brings to a round, if that is little
//! /collective/JOB/GENERATION/live/left/RANK      a process that has left, and why
//! /collective/JOB/GENERATION/data/N/RANK/PART    what it brings to a round, if that is much
//! ```
//!
//! Each record is under the lease of a process, so none stays. Everything that a process must know in a round
//! is below `live/`, so one read gets it all, as it was at one moment.

use super::error::GroupError;

/// The most bytes of a job's name.
const NAME_BYTES_MAX: usize = 100;

/// The key of a job's group.
#[derive(Clone, Debug)]
pub(super) struct GroupKeys {
    pub(super) job: String,
}

/// The keys of one generation of a group.
#[derive(Clone, Debug)]
pub(super) struct GenerationKeys {
    folder: String,
}

impl GroupKeys {
    pub(super) fn new(job: &str) -> Result<Self, GroupError> {
        let is_good = |character: char| !character.is_control() && character != '/';
        if job.is_empty() || job.len() > NAME_BYTES_MAX || !job.chars().all(is_good) {
            return Err(GroupError::Name { name: job.to_owned(), allowed: NAME_BYTES_MAX });
        }
        Ok(GroupKeys { job: job.to_owned() })
    }

    pub(super) fn group(&self) -> String {
        format!("/collective/{}/group", self.job)
    }

    pub(super) fn generation(&self, generation: &str) -> GenerationKeys {
        GenerationKeys { folder: format!("/collective/{}/{generation}/", self.job) }
    }
}

impl GenerationKeys {
    pub(super) fn live(&self) -> String {
        format!("{}live/", self.folder)
    }

    pub(super) fn rank(&self, rank: usize) -> String {
        format!("{}ranks/{rank:06}", self.live())
    }

    pub(super) fn left(&self, rank: usize) -> String {
        format!("{}left/{rank:06}", self.live())
    }

    pub(super) fn mark(&self, round: u64, rank: usize) -> String {
        format!("{}rounds/{round:020}/{rank:06}", self.live())
    }

    /// The keys of the parts of all processes in a round.
    pub(super) fn data(&self, round: u64) -> String {
        format!("{}data/{round:020}/", self.folder)
    }

    /// The keys of the parts of one process in a round.
    pub(super) fn data_of(&self, round: u64, rank: usize) -> String {
        format!("{}{rank:06}/", self.data(round))
    }

    pub(super) fn part(&self, round: u64, rank: usize, part: usize) -> String {
        format!("{}{part:06}", self.data_of(round, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_rounds_ranks_and_parts() {
        let keys = GroupKeys::new("digits").unwrap().generation("s");
        assert_eq!(keys.mark(7, 2), "/collective/digits/s/live/rounds/00000000000000000007/000002");
        assert!(keys.mark(9, 0) < keys.mark(10, 0) && keys.mark(u64::MAX, 9) < keys.mark(u64::MAX, 10));
        let parts = [(0, 9, 0), (0, 10, 0), (1, 0, 9), (1, 0, 10)].map(|(round, rank, part)| {
            let key = keys.part(round, rank, part);
            assert!(key.starts_with(&keys.data_of(round, rank)) && !key.starts_with(&keys.live()));
            key
        });
        assert!(parts.is_sorted());
    }

    #[test]
    fn a_name_is_part_of_a_key() {
        assert!(GroupKeys::new("a job, 1").is_ok());
        for bad in ["", "a/b", "a\n", &"x".repeat(101)] {
            let error = GroupKeys::new(bad).unwrap_err().to_string();
            assert!(error.contains("cannot be the name of a job"), "{error}");
        }
    }
}
