//! What a worker process is told, as text on its way there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percolator::source::FnSource;
use percolator::{Device, Feed, FeedBuilder, LastBatch, RawBytes, Shuffle};
use percolator_cluster::leases::{Confirm, Leases};
use percolator_cluster::metadata::{FolderMetadata, Metadata};
use serde::{Deserialize, Serialize};

use crate::random::Random;

pub(crate) const RECORDS: u64 = 100_000;
/// The name of each run's job.
pub(crate) const JOB: &str = "numbers";

/// Where the records of a job are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    Folder(PathBuf),
    Etcd { urls: Vec<String>, prefix: String },
}

impl Place {
    pub(crate) fn open(&self) -> Arc<dyn Metadata> {
        match self {
            Place::Folder(folder) => Arc::new(FolderMetadata::open(folder).unwrap()),
            #[cfg(feature = "etcd")]
            Place::Etcd { urls, prefix } => {
                use percolator_cluster::etcd::EtcdOptions;
                use percolator_cluster::metadata::EtcdMetadata;

                let options = EtcdOptions::new(urls).prefix(prefix).deadline(Duration::from_secs(2));
                // The first endpoint may be the one that was killed, or etcd may be paused.
                let connect = || EtcdMetadata::connect(&options).ok();
                Arc::new((0..30).find_map(|_| connect()).expect("etcd answers within a minute"))
            }
            #[cfg(not(feature = "etcd"))]
            Place::Etcd { .. } => unreachable!("only tests with etcd say so"),
        }
    }
}

/// What all workers of a job have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobOptions {
    pub(crate) seed: u64,
    pub(crate) batch_size: usize,
    pub(crate) lanes: usize,
    pub(crate) steps_per_block: u64,
    pub(crate) ttl: Duration,
    /// Slow blocks go to a second worker as well.
    pub(crate) duplicates: bool,
}

impl JobOptions {
    pub(crate) fn draw(random: &mut Random, seed: u64) -> Self {
        JobOptions {
            seed,
            batch_size: usize::try_from(random.within(20..50)).unwrap(),
            lanes: random.one_of(&[1, 1, 2, 3]),
            steps_per_block: random.one_of(&[1, 2, 5, 10, 20, 50, 100]),
            // etcd has whole seconds.
            ttl: Duration::from_secs(random.one_of(&[1, 1, 1, 2])),
            duplicates: random.once_in(3),
        }
    }

    /// Records that say their number, shuffled.
    fn feed(&self, prefetch: usize) -> FeedBuilder {
        let source = FnSource::new("numbers", RECORDS, |position, value| {
            value.extend(position.to_le_bytes());
            Ok(())
        });
        Feed::builder()
            .source(source)
            .decoder(RawBytes::fixed())
            .batch_size(self.batch_size)
            .devices((0..self.lanes).map(Device::host))
            .shuffle(Shuffle::Global)
            .last_batch(LastBatch::Keep)
            .epochs(1)
            .seed(self.seed)
            .threads(1)
            .prefetch(prefetch)
    }
}

/// What one worker process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) place: Place,
    /// Where it writes down what happens to it.
    pub(crate) notes: PathBuf,
    pub(crate) name: String,
    pub(crate) job: JobOptions,
    pub(crate) acknowledge_every: Option<u64>,
    /// After how many steps it calls `confirm`; none if it confirms by asking.
    pub(crate) confirm_every: Option<u64>,
    pub(crate) prefetch: usize,
    /// How long it trains on a step.
    pub(crate) step_time: Duration,
    /// After how many steps it leaves of its own accord.
    pub(crate) leaves_after: Option<u64>,
}

impl Role {
    pub(crate) fn draw(random: &mut Random, place: &Place, notes: PathBuf, job: &JobOptions) -> Self {
        let is_slow = random.once_in(5);
        let step_time = random.within(if is_slow { 10_000..30_000 } else { 0..6000 });
        Role {
            place: place.clone(),
            name: notes.file_name().unwrap().to_string_lossy().into_owned(),
            notes,
            job: job.clone(),
            acknowledge_every: random.once_in(2).then(|| random.within(1..10)),
            confirm_every: random.once_in(3).then(|| random.within(1..60)),
            prefetch: usize::try_from(random.within(1..5)).unwrap(),
            step_time: Duration::from_micros(step_time),
            leaves_after: random.once_in(6).then(|| random.within(0..200)),
        }
    }

    /// The same, for one that stays until the job is done.
    pub(crate) fn stays(mut self) -> Self {
        self.leaves_after = None;
        self.confirm_every = None;
        self.step_time = Duration::ZERO;
        self
    }

    pub(crate) fn leases(&self, metadata: Arc<dyn Metadata>) -> Leases {
        let mut leases = Leases::of(metadata, JOB)
            .worker(&self.name)
            .steps_per_block(self.job.steps_per_block)
            .ttl(self.job.ttl)
            .patience(Duration::from_secs(60));
        if self.job.duplicates {
            leases = leases.duplicate_slow();
        }
        if self.confirm_every.is_some() {
            leases = leases.confirm(Confirm::ByCall);
        }
        match self.acknowledge_every {
            Some(steps) => leases.acknowledge_every(steps),
            None => leases,
        }
    }

    pub(crate) fn feed(&self) -> FeedBuilder {
        self.job.feed(self.prefetch)
    }

    /// The most blocks that such a worker has at one time: one that it trains on, those that it has not
    /// confirmed, those that its feed reads ahead from, and two of which it is said meanwhile that they are
    /// done.
    pub(crate) fn blocks_held_max(&self) -> u64 {
        // What is in the ring, in the reader's queue, and under way between the two.
        let ahead = self.prefetch as u64 + 3;
        let not_confirmed = self.confirm_every.unwrap_or(1);
        4 + (ahead + not_confirmed).div_ceil(self.job.steps_per_block)
    }
}
