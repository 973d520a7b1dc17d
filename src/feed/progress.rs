//! How far the lanes of a feed are, and what a snapshot says beside that.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::builder::FeedBuilder;
use crate::config::ConfigError;
use crate::reader::itinerary::Itinerary;
use crate::record::StepId;
use crate::snapshot::{Course, Snapshot, SnapshotError};
use crate::source::{Identity, Passes, Source};

/// What all snapshots of a feed say.
#[derive(Debug)]
pub(super) struct About {
    pub(super) source: PathBuf,
    pub(super) identity: Identity,
    pub(super) passes: Passes,
    pub(super) course: Course,
}

impl About {
    pub(super) fn of(source: &dyn Source, identity: Identity, course: Course) -> Self {
        About { source: source.path().to_owned(), identity, passes: source.passes(), course }
    }

    /// The snapshot of replicas that come to these steps next.
    pub(super) fn snapshot(
        &self,
        next: impl IntoIterator<Item = (usize, StepId)>,
    ) -> Result<Snapshot, SnapshotError> {
        if matches!(self.course, Course::Ring(_)) && self.passes != Passes::Alike {
            return Err(SnapshotError::PassesDiffer { source_path: self.source.clone() });
        }
        Ok(Snapshot::new(&self.source, self.identity.clone(), self.course.clone(), next))
    }
}

/// How far a lane is: what its consumer was handed.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) about: Arc<About>,
    pub(super) replica: usize,
    next: Mutex<StepId>,
}

impl Progress {
    pub(super) fn new(about: &Arc<About>, replica: usize, next: StepId) -> Arc<Self> {
        Arc::new(Progress { about: about.clone(), replica, next: Mutex::new(next) })
    }

    /// The consumer was handed all of its share before this step.
    pub(super) fn comes_to(&self, next: StepId) {
        *self.next.lock() = next;
    }

    /// The consumer was handed the short batch at the end of a single pass, behind which there is nothing.
    pub(super) fn ends(&self) {
        self.next.lock().step += 1;
    }

    pub(super) fn next(&self) -> (usize, StepId) {
        (self.replica, *self.next.lock())
    }
}

impl FeedBuilder {
    /// By what law the records come.
    pub(super) fn law(&self) -> Course {
        match &self.itinerary {
            Some(itinerary) if !itinerary.is_ring => Course::Plan(itinerary.plan.clone()),
            _ => Course::Ring(self.ring()),
        }
    }

    /// Where the lanes begin.
    pub(super) fn progress(&self, about: &Arc<About>) -> Result<Vec<Arc<Progress>>, ConfigError> {
        let of_ring = || self.ranks_of_job().map_or(0, |share| share.first);
        let first_replica = self.itinerary.as_ref().map_or_else(of_ring, |itinerary| itinerary.first_replica);
        let start = |lane: usize| match &self.itinerary {
            Some(Itinerary { plan, starts, is_ring: true, .. }) => {
                Ok(StepId { epoch: 0, step: plan.step_number(starts[lane])? })
            }
            Some(itinerary) => Ok(itinerary.starts[lane]),
            None => Ok::<_, ConfigError>(StepId::default()),
        };
        let lanes = 0..self.devices.len();
        lanes.map(|lane| Ok(Progress::new(about, first_replica + lane, start(lane)?))).collect()
    }
}

/// The snapshot of lanes of one feed.
pub(super) fn snapshot<'a>(
    lanes: impl IntoIterator<Item = &'a Arc<Progress>>,
) -> Result<Snapshot, SnapshotError> {
    let mut lanes = lanes.into_iter().peekable();
    let about = lanes.peek().expect("a feed has a lane").about.clone();
    about.snapshot(lanes.map(|lane| lane.next()))
}
