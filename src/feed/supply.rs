//! Batches that somebody else makes: a feed whose rings are filled by suppliers of whole batches, in place of
//! a reader and workers. All else is the same: rings and devices, lanes and steps, snapshots and receipts.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::base::shape::ImageShape;
use crate::batch::field::Field;
use crate::batch::{BatchLayout, Filling, Pending};
use crate::record::{RecordId, StepEnd, StepId};
use crate::snapshot::Snapshot;
use percolator_files::shown;

/// What a feed of batches that are made elsewhere consists of: see
/// [`FeedBuilder::build_supplied`](crate::FeedBuilder::build_supplied).
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Supply {
    /// The start of the run, as [whoever makes the batches](super::ResolvedFeed::snapshot) says it: the data,
    /// and which record comes when.
    pub start: Snapshot,
    /// The fields of every batch.
    pub fields: Vec<Field>,
    /// The number of records of the data, if it is known.
    pub records: Option<u64>,
    /// The shape of the first record, before the transform, if records are images.
    pub input_shape: Option<ImageShape>,
    /// Who makes the batches.
    pub lanes: Arc<dyn SupplyLanes>,
}

impl Supply {
    /// Batches of these fields, in a run that starts like this.
    pub fn new(start: Snapshot, fields: impl Into<Vec<Field>>, lanes: Arc<dyn SupplyLanes>) -> Self {
        Supply { start, fields: fields.into(), records: None, input_shape: None, lanes }
    }
}

/// Whoever makes the batches of a feed, lane by lane.
pub trait SupplyLanes: Send + Sync + fmt::Debug {
    /// Begins to supply a lane, from this step on. It is asked when the feed is built and when it
    /// [seeks](super::Feed::seek), for one lane after the other; what may take long is left to the supplier's
    /// first batch.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn supplier(&self, lane: usize, from: StepId) -> Result<Box<dyn LaneSupplier>, SupplyError>;
}

/// Supplies the batches of one lane, in order.
pub trait LaneSupplier: Send {
    /// [Fills](BatchRoom::filled) the next batch, and waits until it is there; `None` if there are no more.
    /// It is called on a thread of the lane's own, and may pass the room to another one meanwhile.
    ///
    /// # Errors
    ///
    /// Why there is no batch. It ends the feed, after the batches before it, as an error of the data does.
    fn fill(&mut self, room: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError>;

    /// Returns what ends a [`fill`](Self::fill) that waits, soon: it is called, on another thread, when
    /// nothing more is wanted. What that fill then returns is for nobody.
    fn closer(&self) -> Box<dyn Fn() + Send>;
}

/// A batch's memory while a supplier fills it: that from which the device gets it.
pub struct BatchRoom(Filling);

/// A batch that a supplier has filled.
pub struct SuppliedBatch {
    room: BatchRoom,
    step: Option<StepEnd>,
    rows: usize,
    records: usize,
}

impl BatchRoom {
    pub(crate) fn of(filling: Filling) -> Self {
        BatchRoom(filling)
    }

    /// Says that the batch is filled: so many rows, of which the first are records, and padding after them.
    /// They are the lane's share of this step; `None` is for the short batch at the end of a single pass.
    #[must_use]
    pub fn filled(self, step: Option<StepEnd>, rows: usize, records: usize) -> SuppliedBatch {
        SuppliedBatch { room: self, step, rows, records }
    }

    /// Returns the fields, and the most rows.
    #[must_use]
    pub fn layout(&self) -> &BatchLayout {
        self.0.layout()
    }

    /// Returns the number of its arrays: those of [`Batch::arrays`](super::Batch::arrays).
    #[must_use]
    pub fn arrays(&self) -> usize {
        self.layout().arrays().len()
    }

    /// Returns the memory of an array, with room for all rows. What it has at its begin after the fill is the
    /// batch's: rows one after the other, the elements of a ragged field without gaps. The rest of it is what
    /// it was.
    ///
    /// # Panics
    ///
    /// If there are fewer [arrays](Self::arrays).
    pub fn array_mut(&mut self, number: usize) -> &mut [u8] {
        let range = self.0.layout().array_range(number);
        &mut self.0.memory_mut()[range]
    }

    /// Returns which record each row is, for all rows that there may be. The first of them count, as many as
    /// there are [records](Self::filled).
    pub fn records_mut(&mut self) -> &mut [RecordId] {
        self.0.ids_mut()
    }
}

impl SuppliedBatch {
    /// The batch in the room that was given for it, if it is one.
    pub(crate) fn finish(self, given: *const u8) -> Result<(Option<StepEnd>, Pending), SupplyError> {
        let SuppliedBatch { mut room, step, rows, records } = self;
        if room.0.memory_mut().as_ptr() != given {
            return Err(SupplyError::unfit("it is in the place of another batch".to_owned()));
        }
        let pending = room.0.finish_whole(rows, records).map_err(SupplyError::unfit)?;
        Ok((step, pending))
    }
}

impl fmt::Debug for BatchRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchRoom({})", self.layout())
    }
}

impl fmt::Debug for SuppliedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SuppliedBatch { room, step, rows, records } = self;
        write!(f, "SuppliedBatch({room:?}, {step:?}, {records} records in {rows} rows)")
    }
}

/// Why whoever makes a feed's batches supplies no more of them. It is that error, in its words and with its
/// causes.
#[derive(Clone)]
pub struct SupplyError(Arc<dyn Error + Send + Sync>);

impl SupplyError {
    /// The error of whoever makes the batches.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SupplyError(error.into().into())
    }

    /// The error itself, for whoever knows its type.
    #[must_use]
    pub fn inner(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }

    pub(crate) fn unfit(what: String) -> Self {
        Self::new(format!("a supplied batch is none: {what}"))
    }

    pub(crate) fn out_of_order(found: StepId, due: StepId) -> Self {
        Self::new(format!("a supplied batch is of {found}, where {due} was due"))
    }

    pub(crate) fn lost() -> Self {
        Self::new("a supplier ended without a word")
    }
}

impl fmt::Display for SupplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SupplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown::with_sources(self))
    }
}

impl Error for SupplyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl PartialEq for SupplyError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || shown::with_sources(self) == shown::with_sources(other)
    }
}
