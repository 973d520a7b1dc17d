//! How a job divides its data set: what `plan` and `feed` both let one choose.

use std::num::NonZeroU64;

use anyhow::bail;
use clap::{Args, ValueEnum};
use percolator::order::{Assignment, AutoShardPolicy, Job};
use percolator::{FeedBuilder, LastBatch, Shuffle};

#[derive(Debug, Args)]
pub(super) struct JobArgs {
    /// How the data set is sharded over the workers [default: auto].
    #[arg(long, value_enum, ignore_case = true)]
    policy: Option<PolicyArg>,
    /// Which of a step's records each replica gets [default: tensorflow].
    #[arg(long, value_enum)]
    assignment: Option<AssignmentArg>,
    /// What becomes of an epoch's last records, where they fill no batch [default: keep; wrap for --assignment caffe].
    #[arg(long, value_enum)]
    last_batch: Option<LastBatchArg>,
    /// How an epoch is shuffled: no, global, window:RECORDS, or in a feed window:SIZE, as 64MiB [default: no].
    #[arg(long, value_name = "HOW", value_parser = shuffle)]
    shuffle: Option<ShuffleArg>,
    /// Mix the files, or databases, in these exact proportions, a number each.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    mix: Vec<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyArg {
    /// FILE where there are files for all workers, else DATA.
    Auto,
    /// Each worker has files of its own.
    File,
    /// All workers share one stream of batches.
    Data,
    /// Every worker reads everything.
    Off,
    /// Each worker has every n-th record, before anything else is done.
    Hint,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AssignmentArg {
    /// Each global batch is divided contiguously.
    Tensorflow,
    /// Record g goes to replica g mod N.
    Caffe,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LastBatchArg {
    /// They come in a short batch.
    Keep,
    /// They are left out.
    Drop,
    /// They come in a batch as large as all others, with a mask.
    Pad,
    /// The next epoch's first records fill their batch.
    Wrap,
}

#[derive(Clone, Copy, Debug)]
enum ShuffleArg {
    By(Shuffle),
    WindowsOfBytes(u64),
}

impl JobArgs {
    pub(super) fn last_batch(&self) -> Option<LastBatch> {
        Some(match self.last_batch? {
            LastBatchArg::Keep => LastBatch::Keep,
            LastBatchArg::Drop => LastBatch::Drop,
            LastBatchArg::Pad => LastBatch::Pad,
            LastBatchArg::Wrap => LastBatch::Wrap,
        })
    }

    fn policy(&self) -> Option<AutoShardPolicy> {
        Some(match self.policy? {
            PolicyArg::Auto => AutoShardPolicy::Auto,
            PolicyArg::File => AutoShardPolicy::File,
            PolicyArg::Data => AutoShardPolicy::Data,
            PolicyArg::Off => AutoShardPolicy::Off,
            PolicyArg::Hint => AutoShardPolicy::Hint,
        })
    }

    fn assignment(&self) -> Option<Assignment> {
        Some(match self.assignment? {
            AssignmentArg::Tensorflow => Assignment::TensorFlow,
            AssignmentArg::Caffe => Assignment::Caffe,
        })
    }

    /// What was asked for, of a job.
    pub(super) fn of_job(&self, job: Job) -> anyhow::Result<Job> {
        let job = said(job, self.policy(), Job::policy);
        let job = said(job, self.assignment(), Job::assignment);
        let job = said(job, self.last_batch(), Job::last_batch);
        let job = match self.shuffle {
            None => job,
            Some(ShuffleArg::By(shuffle)) => job.shuffle(shuffle),
            Some(ShuffleArg::WindowsOfBytes(_)) => {
                bail!("how many records a window of bytes has, only a feed knows: say window:RECORDS")
            }
        };
        Ok(job.mix(&*self.mix))
    }

    /// What was asked for, of a feed.
    pub(super) fn of_feed(&self, feed: FeedBuilder) -> FeedBuilder {
        let feed = said(feed, self.policy(), FeedBuilder::policy);
        let feed = said(feed, self.assignment(), FeedBuilder::assignment);
        let feed = said(feed, self.last_batch(), FeedBuilder::last_batch);
        let feed = match self.shuffle {
            None => feed,
            Some(ShuffleArg::By(shuffle)) => feed.shuffle(shuffle),
            Some(ShuffleArg::WindowsOfBytes(bytes)) => feed.shuffle_in_windows_of_bytes(bytes),
        };
        feed.mix(self.mix.iter().copied())
    }
}

/// With what was said, if anything was.
fn said<B, T>(builder: B, value: Option<T>, say: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => say(builder, value),
        None => builder,
    }
}

fn shuffle(text: &str) -> Result<ShuffleArg, String> {
    let window = text.strip_prefix("window:");
    let records = window.and_then(|records| records.parse().ok()).and_then(NonZeroU64::new);
    match (text, records, window.and_then(bytes)) {
        ("no", ..) => Ok(ShuffleArg::By(Shuffle::No)),
        ("global", ..) => Ok(ShuffleArg::By(Shuffle::Global)),
        (_, Some(records), _) => Ok(ShuffleArg::By(Shuffle::Window { records })),
        (_, None, Some(bytes)) => Ok(ShuffleArg::WindowsOfBytes(bytes)),
        _ => Err("allowed are no, global, window:RECORDS with 1 or more records, and window:SIZE in KiB, MiB or GiB".to_owned()),
    }
}

/// A number of bytes with its unit.
fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (number, shift) =
        units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}
