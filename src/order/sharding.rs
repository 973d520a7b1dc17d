//! What of a data set each worker reads.

use std::fmt;

use super::OrderError;
use super::mixture::Mixture;
use super::plan::COUNTED_MAX;

/// How a data set is sharded over the workers of a job: TensorFlow's `AutoShardPolicy`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShardPolicy {
    /// [`File`](Self::File) where there are several files, and as many as workers at the least; otherwise
    /// [`Data`](Self::Data). Which it was, and why, [`Plan::policy`](super::Plan::policy) tells.
    #[default]
    Auto,
    /// Each worker has files (databases) of its own: worker `w` of `n` reads files `w`, `w + n`, `w + 2n` and so on.
    File,
    /// All workers share one stream, and each takes its part of what is batched.
    Data,
    /// Not at all: every worker reads everything.
    Off,
    /// Where the data set is read, before anything else is done to it: worker `w` of `n` reads records `w`, `w + n`,
    /// `w + 2n` and so on. In TensorFlow it is where the program says `shard(SHARD_HINT, SHARD_HINT)`.
    Hint,
}

impl AutoShardPolicy {
    /// Its name in TensorFlow.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AutoShardPolicy::Auto => "AUTO",
            AutoShardPolicy::File => "FILE",
            AutoShardPolicy::Data => "DATA",
            AutoShardPolicy::Off => "OFF",
            AutoShardPolicy::Hint => "HINT",
        }
    }

    /// What `AUTO` comes to, and why; any other policy is itself. `wants_one` says that all workers must read one stream.
    pub(super) fn resolve(
        self,
        files: usize,
        workers: usize,
        wants_one: bool,
    ) -> Result<(Self, &'static str), OrderError> {
        match self {
            AutoShardPolicy::Auto if wants_one => {
                Ok((AutoShardPolicy::Data, "Caffe's law, batches that wrap, and mixtures are of one stream"))
            }
            AutoShardPolicy::File if files < workers => Err(OrderError::TooFewFiles { files, workers }),
            AutoShardPolicy::Auto if files < 2 => {
                Ok((AutoShardPolicy::Data, "the data set is a single file"))
            }
            AutoShardPolicy::Auto if files < workers => {
                Ok((AutoShardPolicy::Data, "there are fewer files than workers"))
            }
            AutoShardPolicy::Auto => Ok((AutoShardPolicy::File, "there are files for all workers")),
            said => Ok((said, "it was asked for")),
        }
    }
}

impl fmt::Display for AutoShardPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The files of a data set, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// Where each begins, and where the last one ends: positions in the data set.
    bounds: Vec<u64>,
}

impl Files {
    pub(super) fn of(records: &[u64]) -> Result<Self, OrderError> {
        let mut end = 0_u64;
        let mut bounds = vec![0];
        for &records in records {
            end = end
                .checked_add(records)
                .filter(|&end| end <= COUNTED_MAX)
                .ok_or(OrderError::TooMany { what: "records", allowed: COUNTED_MAX })?;
            bounds.push(end);
        }
        Ok(Files { bounds })
    }

    pub(super) fn records(&self) -> u64 {
        self.bounds.last().copied().unwrap_or(0)
    }

    /// The shard of a name.
    pub(super) fn shard(&self, name: ShardName) -> Shard {
        let ShardName { policy, worker, workers } = name;
        match policy {
            AutoShardPolicy::File => {
                let files = self.bounds.windows(2).skip(slot(worker)).step_by(slot(workers));
                let mut end = 0;
                let pieces = files.map(|bounds| {
                    let begin = end;
                    end += bounds[1] - bounds[0];
                    Piece { begin, position: bounds[0] }
                });
                let pieces: Vec<_> = pieces.collect();
                Shard { name, records: end, what: What::Pieces(pieces) }
            }
            AutoShardPolicy::Hint => {
                let records = self.records().saturating_sub(worker).div_ceil(workers);
                Shard { name, records, what: What::Every { first: worker, stride: workers } }
            }
            _ => Shard { name, records: self.records(), what: What::Every { first: 0, stride: 1 } },
        }
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Which shard of a data set: what a worker of so many reads by itself under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardName {
    pub(super) policy: AutoShardPolicy,
    pub(super) worker: u64,
    pub(super) workers: u64,
}

impl ShardName {
    /// Everything, in one stream: what all workers read together, where they share, or the only one.
    pub(super) const ALL: ShardName = ShardName { policy: AutoShardPolicy::Data, worker: 0, workers: 1 };
}

/// The records of a stream that one or all workers read, in the order of their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) name: ShardName,
    pub(super) records: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Every { first: u64, stride: u64 },
    Pieces(Vec<Piece>),
    Mixed(Mixture),
}

/// A file of a shard's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Which number of the shard is its first record.
    begin: u64,
    /// Where that record is in the data set.
    position: u64,
}

impl Shard {
    /// Everything, in one stream, in given proportions.
    pub(super) fn mixed(mixture: Mixture) -> Self {
        Shard { name: ShardName::ALL, records: mixture.len(), what: What::Mixed(mixture) }
    }

    /// The mixture, if it is one. What comes at a place of it is said by the passes over its parts, and not by its own.
    pub(super) fn mixture(&self) -> Option<&Mixture> {
        match &self.what {
            What::Mixed(mixture) => Some(mixture),
            What::Every { .. } | What::Pieces(_) => None,
        }
    }

    /// How many records, from that of a number on, lie one behind the other in the data set; `None` where they lie apart.
    pub(super) fn neighbours(&self, number: u64) -> Option<u64> {
        match &self.what {
            What::Every { stride: 1, .. } => Some(self.records - number),
            What::Every { .. } | What::Mixed(_) => None,
            What::Pieces(pieces) => {
                let next = pieces.get(pieces.partition_point(|piece| piece.begin <= number));
                Some(next.map_or(self.records, |piece| piece.begin) - number)
            }
        }
    }

    /// Where the shard's record of a number is in the data set.
    pub(super) fn position(&self, number: u64) -> u64 {
        match &self.what {
            What::Every { first, stride } => first + number * stride,
            What::Mixed(mixture) => {
                let (_, part, draw) = mixture.locate(number);
                part.position + draw % part.records
            }
            What::Pieces(pieces) => {
                // Of files that begin at the same number all but the last are empty.
                let piece = &pieces[pieces.partition_point(|piece| piece.begin <= number) - 1];
                piece.position + (number - piece.begin)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(shard: &Shard) -> Vec<u64> {
        (0..shard.records).map(|number| shard.position(number)).collect()
    }

    #[test]
    fn files_are_read_whole_and_in_turn() {
        let files = Files::of(&[3, 0, 2, 4]).unwrap();
        assert_eq!(files.records(), 9);
        let listed = |policy, worker, workers| listed(&files.shard(ShardName { policy, worker, workers }));
        assert_eq!(listed(AutoShardPolicy::File, 0, 2), [0, 1, 2, 3, 4]);
        assert_eq!(listed(AutoShardPolicy::File, 1, 2), [5, 6, 7, 8]);
        assert_eq!(listed(AutoShardPolicy::Hint, 1, 4), [1, 5]);
        assert_eq!(listed(AutoShardPolicy::Off, 1, 4), (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn auto_takes_files_where_it_can() {
        let taken = |files, workers| AutoShardPolicy::Auto.resolve(files, workers, false).unwrap().0;
        assert_eq!(taken(1, 1), AutoShardPolicy::Data);
        assert_eq!(taken(3, 4), AutoShardPolicy::Data);
        assert_eq!(taken(4, 4), AutoShardPolicy::File);
        let too_few = OrderError::TooFewFiles { files: 3, workers: 4 };
        assert_eq!(AutoShardPolicy::File.resolve(3, 4, false), Err(too_few));
        assert_eq!(AutoShardPolicy::Auto.resolve(4, 4, true).unwrap().0, AutoShardPolicy::Data);
    }
}
