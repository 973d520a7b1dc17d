//! How a job divides its data set: options of both `plan` and `feed`.

use std::num::NonZeroU64;

use anyhow::bail;
use clap::Args;
use percolator::order::{Assignment, AutoShardPolicy, Job, ShuffleSpec};
use percolator::{FeedBuilder, LastBatch, Shuffle};

use crate::args::{choices, sizes, with};

#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// How the data set is sharded over the workers [default: auto].
    #[arg(long, value_enum, ignore_case = true)]
    policy: Option<PolicyArg>,
    /// Which of a step's records each replica gets [default: tensorflow].
    #[arg(long, value_enum)]
    assignment: Option<AssignmentArg>,
    /// What to do with an epoch's last records if they do not fill a batch [default: keep; wrap for
    /// --assignment caffe].
    #[arg(long, value_enum)]
    last_batch: Option<LastBatchArg>,
    /// How to shuffle an epoch: no, global, files (the order of the files alone), window:RECORDS or, in a
    /// feed, window:SIZE, such as 64MiB [default: no].
    #[arg(long, value_name = "HOW", value_parser = shuffle)]
    shuffle: Option<ShuffleArg>,
    /// Mix the files, or databases, in these exact proportions, one number each.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    mix: Vec<u64>,
}

choices! {
    enum PolicyArg for AutoShardPolicy {
        /// FILE if there are several files, and enough for all workers; otherwise DATA.
        Auto,
        /// Each worker has its own files.
        File,
        /// All workers share one stream of batches.
        Data,
        /// Every worker reads everything.
        Off,
        /// Each of n workers has every n-th record, before they are shuffled or batched.
        Hint,
    }
}

choices! {
    enum AssignmentArg for Assignment {
        /// Each global batch is divided contiguously.
        #[value(name = "tensorflow")]
        TensorFlow,
        /// Record g goes to replica g mod N.
        Caffe,
    }
}

choices! {
    enum LastBatchArg for LastBatch {
        /// Deliver them in a short batch.
        Keep,
        /// Leave them out.
        Drop,
        /// Pad their batch to full size, with a mask.
        Pad,
        /// Fill their batch with the next epoch's first records.
        Wrap,
    }
}

#[derive(Clone, Copy, Debug)]
enum ShuffleArg {
    By(Shuffle),
    WindowsOfBytes(u64),
}

impl JobArgs {
    /// Whether any option was given: all of them are about epochs.
    pub(crate) fn needs_plan(&self) -> bool {
        self.policy.is_some()
            || self.assignment.is_some()
            || self.last_batch.is_some()
            || self.shuffle.is_some()
            || !self.mix.is_empty()
    }

    /// Applies the options to a job.
    pub(crate) fn of_job(&self, job: Job) -> anyhow::Result<Job> {
        let job = with(job, self.policy.map(Into::into), Job::policy);
        let job = with(job, self.assignment.map(Into::into), Job::assignment);
        let job = with(job, self.last_batch.map(Into::into), Job::last_batch);
        let job = match self.shuffle {
            None => job,
            Some(ShuffleArg::By(shuffle)) => job.shuffle(shuffle),
            Some(ShuffleArg::WindowsOfBytes(_)) => {
                bail!("only a feed knows how many records a window of bytes has: use window:RECORDS")
            }
        };
        Ok(job.mix(&*self.mix))
    }

    /// Applies the options to a feed.
    pub(crate) fn of_feed(&self, feed: FeedBuilder) -> FeedBuilder {
        let feed = with(feed, self.policy.map(Into::into), FeedBuilder::policy);
        let feed = with(feed, self.assignment.map(Into::into), FeedBuilder::assignment);
        let feed = with(feed, self.last_batch.map(Into::into), FeedBuilder::last_batch);
        let feed = match self.shuffle {
            None => feed,
            Some(ShuffleArg::By(shuffle)) => feed.shuffle(shuffle),
            Some(ShuffleArg::WindowsOfBytes(bytes)) => feed.shuffle(ShuffleSpec::WindowsOfBytes(bytes)),
        };
        feed.mix(self.mix.iter().copied())
    }
}

fn shuffle(text: &str) -> Result<ShuffleArg, String> {
    let window = text.strip_prefix("window:");
    let records = window.and_then(|records| records.parse().ok()).and_then(NonZeroU64::new);
    match (text, records, window.and_then(sizes::with_unit)) {
        ("no", ..) => Ok(ShuffleArg::By(Shuffle::No)),
        ("global", ..) => Ok(ShuffleArg::By(Shuffle::Global)),
        ("files", ..) => Ok(ShuffleArg::By(Shuffle::Files)),
        (_, Some(records), _) => Ok(ShuffleArg::By(Shuffle::Window { records })),
        (_, None, Some(bytes)) => Ok(ShuffleArg::WindowsOfBytes(bytes)),
        _ => Err("must be no, global, files, window:RECORDS (1 or more), or window:SIZE in KiB, MiB or GiB"
            .to_owned()),
    }
}
