//! A feed that clients share: it runs, and each of its lanes has a backlog.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_core::Stream;
use percolator::feed::{ConfigError, FeedHandle, FeedSpec, LimitSource, ResolvedFeed};
use percolator::reader::ReaderError;
use percolator::record::StepId;
use percolator::{FeedBuilder, FeedError, Field, Lane};
use percolator_files::shown;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::admission::Admitted;
use super::backlog::{Arrays, Backlog, Pace};
use super::confine::RootOpener;
use super::memory::Regions;
use crate::grpc::{Code, Status};
use crate::request::Share;

/// The batches of a ring that are not lent: one that is filled, one that is taken, and one between them.
const RING_BATCHES: usize = 3;

/// How long the others in step are waited for where a client goes on at a step. If the server was started
/// anew, they come as well, and a lane looks for its server more often than that.
const REJOIN_WITHIN: Duration = Duration::from_secs(5);

/// Which part of a feed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// All ranks, from the first step.
    Whole,
    /// One rank, from this step.
    Rank(usize, StepId),
}

/// What a feed is started with.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) spec: FeedSpec,
    /// Opens data of other libraries.
    pub(super) opener: Option<RootOpener>,
    /// Where the memory of its rings is.
    pub(super) regions: Regions,
    pub(super) share: Share,
    pub(super) part: Part,
    /// The most batches that a client holds.
    pub(super) window: usize,
    /// The most threads that it may ever have.
    pub(super) threads: usize,
    /// The memory that is free.
    pub(super) memory_limit: u64,
}

/// A feed that runs.
#[derive(Debug)]
pub(super) struct SharedFeed {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) share: Share,
    pub(super) part: Part,
    pub(super) fields: Arc<[Field]>,
    pub(super) handle: FeedHandle,
    backlogs: Vec<Arc<Backlog<Arrays>>>,
    pumps: Vec<JoinHandle<()>>,
    started: Instant,
    pub(super) admitted: Admitted,
}

impl Plan {
    /// The number of batches that a backlog keeps.
    fn room(&self) -> usize {
        match self.share {
            Share::Windowed { batches } => batches.get(),
            Share::Divided | Share::InStep { .. } => self.window,
        }
    }

    fn builder(&self) -> FeedBuilder {
        let mut spec = self.spec.clone();
        spec.prefetch = Some(spec.prefetch.unwrap_or(0).max(RING_BATCHES).saturating_add(self.room()));
        spec.threads = Some(self.threads);
        let limit = usize::try_from(self.memory_limit).unwrap_or(usize::MAX);
        spec.memory_limit = Some(spec.memory_limit.map_or(limit, |own| own.min(limit)));
        let ranks = spec.devices.len();
        let builder = FeedBuilder::from(spec).devices((0..ranks).map(|rank| self.regions.device(rank)));
        match self.opener.clone() {
            Some(opener) => builder.opener(opener),
            None => builder,
        }
    }

    /// Checks all that can be checked before the feed runs.
    pub(super) fn resolve(&self) -> Result<ResolvedFeed, FeedError> {
        match self.part {
            Part::Whole => self.builder().resolve(),
            Part::Rank(rank, _) => self.builder().only_lane(rank)?.resolve(),
        }
    }
}

impl SharedFeed {
    /// Starts a feed. It reads and allocates, so it may take long.
    pub(super) fn start(
        plan: &Plan,
        resolved: ResolvedFeed,
        name: String,
        admitted: Admitted,
        runtime: &Handle,
    ) -> Result<Self, FeedError> {
        let source = shown::path(resolved.source().path()).to_string();
        let fields = resolved.layout().fields().into();
        let mut feed = resolved.launch()?;
        if let Part::Rank(_, step) = plan.part
            && step != StepId::default()
        {
            feed.seek(step)?;
        }
        let handle = feed.handle();
        let (pace, awaited) = match plan.share {
            Share::Divided => (Pace::OfSlowest, 1),
            Share::InStep { clients } => (Pace::OfSlowest, clients.get()),
            Share::Windowed { .. } => (Pace::OfFastest, 1),
        };
        let begin = match plan.part {
            Part::Whole => StepId::default(),
            Part::Rank(_, step) => step,
        };
        let (mut backlogs, mut pumps) = (Vec::new(), Vec::new());
        for lane in feed.take_lanes()? {
            let backlog = Arc::new(Backlog::new(pace, plan.room(), awaited, begin));
            pumps.push(runtime.spawn(pump(lane, backlog.clone())));
            backlogs.push(backlog);
        }
        Ok(SharedFeed {
            name,
            source,
            share: plan.share,
            part: plan.part,
            fields,
            handle,
            backlogs,
            pumps,
            started: Instant::now(),
            admitted,
        })
    }

    /// The number of ranks that run here.
    pub(super) fn ranks(&self) -> usize {
        self.backlogs.len()
    }

    /// The backlog of a rank of the job, if it runs here.
    pub(super) fn backlog(&self, rank: usize) -> Option<&Arc<Backlog<Arrays>>> {
        match self.part {
            Part::Whole => self.backlogs.get(rank),
            Part::Rank(only, _) => self.backlogs.first().filter(|_| only == rank),
        }
    }

    /// Lets go of clients that keep others, or memory, waiting.
    pub(super) fn look(&self, now: Instant, patience: Duration, join_within: Duration) {
        let open_after = match self.part {
            Part::Whole => join_within,
            Part::Rank(..) => join_within.min(REJOIN_WITHIN),
        };
        let is_late = now.saturating_duration_since(self.started) > open_after;
        for backlog in &self.backlogs {
            if is_late {
                backlog.open();
            }
            backlog.look(now, patience);
            if self.ranks() > 1 && backlog.is_deserted(now, join_within) {
                // The other ranks wait for a lane as long as it is there.
                backlog.dismiss(&Status::new(Code::Unavailable, "nobody came for this rank in time"));
            }
        }
    }

    /// A client of this rank has left. Nobody goes on in its place where each rank is one client's.
    pub(super) fn left(&self, rank: usize) {
        if let (Share::Divided, Some(backlog)) = (self.share, self.backlog(rank)) {
            backlog.dismiss(&Status::new(Code::Cancelled, "this rank's client has left"));
        }
    }

    /// Ends it, and tells its clients why.
    pub(super) fn end(&self, status: &Status) {
        self.handle.cancel();
        self.backlogs.iter().for_each(|backlog| backlog.dismiss(status));
        self.pumps.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for SharedFeed {
    fn drop(&mut self) {
        self.end(&Status::new(Code::Cancelled, "the feed has no clients"));
    }
}

/// A lane that is dropped where that may take time: its drop joins a thread, which may be reading.
struct Pumped(Option<Lane>);

impl Drop for Pumped {
    fn drop(&mut self) {
        let lane = self.0.take();
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(lane)));
        }
    }
}

/// Moves a lane's batches to its backlog, until either ends.
async fn pump(lane: Lane, backlog: Arc<Backlog<Arrays>>) {
    let mut lane = Pumped(Some(lane));
    while let Some(lane) = &mut lane.0 {
        poll_fn(|context| backlog.poll_room(context)).await;
        if !backlog.is_live() {
            return;
        }
        match poll_fn(|context| Pin::new(&mut *lane).poll_next(context)).await {
            Some(Ok(batch)) => match batch.into_bytes() {
                Ok(arrays) => backlog.put(arrays.into()),
                Err(error) => return backlog.end(Err(of_feed(&error.into()))),
            },
            Some(Err(error)) => return backlog.end(Err(of_feed(&error))),
            None => return backlog.end(Ok(())),
        }
    }
}

fn code_of(error: &FeedError) -> Code {
    match error {
        FeedError::Layer { error, .. } => code_of(error),
        FeedError::Config(ConfigError::OverBudget { .. }) => Code::ResourceExhausted,
        FeedError::Config(_) | FeedError::Net(_) | FeedError::Snapshot(_) => Code::InvalidArgument,
        FeedError::Reader(ReaderError::Source(_)) | FeedError::Record(_) | FeedError::TooManyBad(_) => {
            Code::DataLoss
        }
        FeedError::Reader(_) => Code::InvalidArgument,
        FeedError::Device(_) | FeedError::Thread { .. } => Code::ResourceExhausted,
        FeedError::Cancelled => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// An error of a feed, in its own words.
pub(super) fn of_feed(error: &FeedError) -> Status {
    Status::new(code_of(error), shown::with_sources(error))
}

/// The bytes that a feed needs, and those that are free, if it was refused because the latter are fewer.
pub(super) fn over_budget(error: &FeedError) -> Option<(u64, u64)> {
    match error {
        FeedError::Layer { error, .. } => over_budget(error),
        FeedError::Config(ConfigError::OverBudget {
            needed, allowed, set_by: LimitSource::Option, ..
        }) => Some((*needed as u64, *allowed as u64)),
        _ => None,
    }
}
