//! How a job divides its data set: what `plan` and `feed` both let one choose.

use std::num::NonZeroU64;

use clap::{Args, ValueEnum};
use percolator::{Assignment, AutoShardPolicy, FeedBuilder, Job, LastBatch, Shuffle};

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
    /// How an epoch is shuffled: no, global, or window:RECORDS [default: no].
    #[arg(long, value_name = "HOW", value_parser = shuffle)]
    shuffle: Option<Shuffle>,
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
    pub(super) fn of_job(&self, job: Job) -> Job {
        let job = said(job, self.policy(), Job::policy);
        let job = said(job, self.assignment(), Job::assignment);
        let job = said(job, self.last_batch(), Job::last_batch);
        said(job, self.shuffle, Job::shuffle).mix(&*self.mix)
    }

    /// What was asked for, of a feed.
    pub(super) fn of_feed(&self, feed: FeedBuilder) -> FeedBuilder {
        let feed = said(feed, self.policy(), FeedBuilder::policy);
        let feed = said(feed, self.assignment(), FeedBuilder::assignment);
        let feed = said(feed, self.last_batch(), FeedBuilder::last_batch);
        said(feed, self.shuffle, FeedBuilder::shuffle).mix(self.mix.iter().copied())
    }
}

/// With what was said, if anything was.
fn said<B, T>(builder: B, value: Option<T>, say: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => say(builder, value),
        None => builder,
    }
}

fn shuffle(text: &str) -> Result<Shuffle, String> {
    let window = |records: &str| records.parse().ok().and_then(NonZeroU64::new);
    match (text, text.strip_prefix("window:").and_then(window)) {
        ("no", _) => Ok(Shuffle::No),
        ("global", _) => Ok(Shuffle::Global),
        (_, Some(records)) => Ok(Shuffle::Window { records }),
        _ => Err("allowed are no, global, and window:RECORDS with 1 or more records".to_owned()),
    }
}
