//! What part of a data set each worker reads.

use std::fmt;
use std::sync::Arc;

use super::file_order::{FileOrder, KeptOrders};
use super::mixture::Mixture;
use super::plan::COUNTED_MAX;
use super::shuffle::key_of;
use super::{EpochOrder, OrderError, Shuffle};

/// How a data set is sharded over the workers of a job: TensorFlow's `AutoShardPolicy`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum AutoShardPolicy {
    /// [`File`](Self::File) if there are several files and at least as many as workers; otherwise
    /// [`Data`](Self::Data). [`Plan::policy`](super::Plan::policy) returns the choice and the reason.
    #[default]
    Auto,
    /// Each worker reads its own files (databases): worker `w` of `n` reads files `w`, `w + n`, `w + 2n` and
    /// so on.
    File,
    /// All workers share one stream, and each takes its part of the batches.
    Data,
    /// No sharding: every worker reads everything.
    Off,
    /// Shards the data set before anything else is done to it: worker `w` of `n` reads records `w`, `w + n`,
    /// `w + 2n` and so on. In TensorFlow this is the place of `shard(SHARD_HINT, SHARD_HINT)` in the program.
    Hint,
}

impl AutoShardPolicy {
    /// The policy's name in TensorFlow.
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

    /// Resolves `AUTO`, with the reason; any other policy is itself. `wants_one` is whether all workers must
    /// read one stream.
    pub(super) fn resolve(
        self,
        files: usize,
        workers: usize,
        wants_one: bool,
    ) -> Result<(Self, &'static str), OrderError> {
        match self {
            AutoShardPolicy::Auto if wants_one => {
                Ok((AutoShardPolicy::Data, "Caffe's order, wrapping batches and mixtures need one stream"))
            }
            AutoShardPolicy::File if files < workers => Err(OrderError::TooFewFiles { files, workers }),
            AutoShardPolicy::Auto if files < 2 => {
                Ok((AutoShardPolicy::Data, "the data set is a single file"))
            }
            AutoShardPolicy::Auto if files < workers => {
                Ok((AutoShardPolicy::Data, "there are fewer files than workers"))
            }
            AutoShardPolicy::Auto => Ok((AutoShardPolicy::File, "there are enough files for all workers")),
            requested => Ok((requested, "it was requested")),
        }
    }
}

impl fmt::Display for AutoShardPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The consecutive files of a data set, which its shards share.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// Where each file begins, and where the last one ends: positions in the data set.
    bounds: Arc<[u64]>,
    /// The orders in which shards have shuffled them.
    orders: Arc<KeptOrders>,
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
        Ok(Files { bounds: bounds.into(), orders: Arc::default() })
    }

    pub(super) fn records(&self) -> u64 {
        self.bounds.last().copied().unwrap_or(0)
    }

    /// The shard with this name.
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
                let what = What::Pieces(pieces.collect());
                Shard { name, records: end, what, files: self.clone() }
            }
            AutoShardPolicy::Hint => {
                let records = self.records().saturating_sub(worker).div_ceil(workers);
                let what = What::Every { first: worker, stride: workers };
                Shard { name, records, what, files: self.clone() }
            }
            _ => {
                let (records, what) = (self.records(), What::Every { first: 0, stride: 1 });
                Shard { name, records, what, files: self.clone() }
            }
        }
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Identifies a shard of a data set: what `worker` of `workers` workers reads by itself under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShardName {
    pub(super) policy: AutoShardPolicy,
    pub(super) worker: u64,
    pub(super) workers: u64,
}

impl ShardName {
    /// Everything, in one stream: what all workers share, or what a single worker reads.
    pub(super) const ALL: ShardName = ShardName { policy: AutoShardPolicy::Data, worker: 0, workers: 1 };
}

/// The records of a stream that one or all workers read, in the order of their positions.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) name: ShardName,
    pub(super) records: u64,
    what: What,
    /// Those of the data set. A job may have 65,536 shards, so none has a list of its own.
    files: Files,
}

/// Of one data set: its files are compared once, and not with each shard.
impl PartialEq for Shard {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.records) == (other.name, other.records) && self.what == other.what
    }
}

impl Eq for Shard {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Every { first: u64, stride: u64 },
    Pieces(Vec<Piece>),
    Mixed(Mixture),
}

/// A file of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// The number in the shard of the file's first record.
    begin: u64,
    /// The position of that record in the data set.
    position: u64,
}

impl Shard {
    /// Everything, in one stream, in given proportions.
    pub(super) fn mixed(mixture: Mixture) -> Self {
        let (records, what) = (mixture.len(), What::Mixed(mixture));
        Shard { name: ShardName::ALL, records, what, files: Files::default() }
    }

    /// The number of files of the data set.
    pub(super) fn files(&self) -> usize {
        self.files.bounds.len().saturating_sub(1)
    }

    /// The number of entries that it keeps in memory for its files.
    pub(super) fn pieces(&self) -> usize {
        if let What::Pieces(pieces) = &self.what { pieces.len() } else { 0 }
    }

    /// The numbers in the shard at which its files begin.
    fn firsts(&self) -> Vec<u64> {
        let firsts = self.files.bounds.iter().take(self.files());
        match &self.what {
            What::Pieces(pieces) => pieces.iter().map(|piece| piece.begin).collect(),
            // The first of its records that is not before the file.
            What::Every { first, stride } => {
                firsts.map(|file| file.saturating_sub(*first).div_ceil(*stride).min(self.records)).collect()
            }
            What::Mixed(_) => Vec::new(),
        }
    }

    /// The mixture, if it is one. The record at a place of a mixture depends on the passes over its parts,
    /// not on passes of its own.
    pub(super) fn mixture(&self) -> Option<&Mixture> {
        match &self.what {
            What::Mixed(mixture) => Some(mixture),
            What::Every { .. } | What::Pieces(_) => None,
        }
    }

    /// The order of a pass over the shard, which is not a mixture.
    pub(super) fn order(&self, shuffle: Shuffle, seed: u64, epoch: u64) -> EpochOrder {
        let stream = self.name.worker;
        let files = if let What::Pieces(pieces) = &self.what { pieces.len() } else { self.files() };
        if shuffle != Shuffle::Files || files < 2 {
            return shuffle.order(self.records, seed, epoch, stream);
        }
        let key = key_of(seed, epoch, stream);
        let make = || FileOrder::new(&self.firsts(), self.records, key);
        let order = self.files.orders.get(self.name, key, make);
        EpochOrder::of_files(self.records, order)
    }

    /// The number of records from this number on that are consecutive in the data set; `None` if they are not
    /// consecutive.
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

    /// The position in the data set of the shard's record with this number.
    pub(super) fn position(&self, number: u64) -> u64 {
        match &self.what {
            What::Every { first, stride } => first + number * stride,
            What::Mixed(mixture) => {
                let (_, part, draw) = mixture.locate(number);
                part.position + draw % part.records
            }
            What::Pieces(pieces) => {
                // Of the files that begin at the same number, all but the last are empty.
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
    fn shuffled_files_are_read_whole_under_every_policy() {
        let bounds = [0, 3, 3, 5, 9, 14];
        let files = Files::of(&[3, 0, 2, 4, 5]).unwrap();
        let policies =
            [AutoShardPolicy::Data, AutoShardPolicy::Off, AutoShardPolicy::File, AutoShardPolicy::Hint];
        for (policy, worker, workers) in policies
            .into_iter()
            .flat_map(|policy| (1..7).flat_map(move |n| (0..n).map(move |w| (policy, w, n))))
        {
            let shard = files.shard(ShardName { policy, worker, workers });
            let mut plain = listed(&shard);
            let mut order = shard.order(Shuffle::Files, 7, 3);
            let mut shuffled: Vec<u64> =
                (0..shard.records).map(|place| shard.position(order.number_at(place))).collect();
            let file = |position: u64| bounds.partition_point(|&bound| bound <= position);
            let mut seen: Vec<usize> = shuffled.iter().map(|&position| file(position)).collect();
            assert!(shuffled.windows(2).all(|pair| file(pair[0]) != file(pair[1]) || pair[0] < pair[1]));
            seen.dedup();
            let whole = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), whole, "no file is interrupted: {policy} {worker} of {workers}");
            shuffled.sort_unstable();
            plain.sort_unstable();
            assert_eq!(shuffled, plain);
        }
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
