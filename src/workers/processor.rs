//! Processes every record of a feed: decodes it into its row, hashes it if requested, and stores its id.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bad::{BadAction, BadRecord, Quarantine};
use crate::base::sync::{bounded, panic_message};
use crate::batch::fault::{BatchFault, RecordCause, RecordError};
use crate::batch::field::{Field, FieldError};
use crate::batch::memory::PageMemory;
use crate::batch::{BatchLayout, Frame, LayoutError, Places, Row};
use crate::decoder::{DecodeFailure, Decoded, ErasedDecoder, ErasedScratch, WorkerSetup};
use crate::receipt::content::ContentHash;
use crate::record::Key;
use crate::source::Files;
use crate::source::Record;

/// Decodes the records of a feed into the rows of its batches.
pub(crate) struct Processor {
    /// The files that the records come from, for messages.
    pub(crate) files: Files,
    pub(crate) decoder: Arc<dyn ErasedDecoder>,
    /// What the program does to each row that the decoder has written.
    pub(crate) change_row: Option<ChangeRow>,
    /// Whether each record's bytes are hashed, for the receipts.
    pub(crate) hashes_contents: bool,
    /// What becomes of bad records.
    pub(crate) on_bad: OnBad,
    /// The seed of the records' own random numbers.
    pub(crate) seed: u64,
    /// The conditions for which the workers' scratch memory is made.
    pub(crate) setup: WorkerSetup,
}

/// A function of the program that changes a row.
pub(crate) type ChangeRow = Arc<dyn Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync>;

/// What becomes of bad records.
#[derive(Debug, Default)]
pub(crate) struct OnBad {
    pub(crate) action: BadAction,
    /// Where they are named.
    pub(crate) quarantine: Option<Arc<Quarantine>>,
    /// How many were logged.
    said: AtomicU64,
}

impl OnBad {
    pub(crate) fn new(action: BadAction, quarantine: Option<Arc<Quarantine>>) -> Self {
        OnBad { action, quarantine, said: AtomicU64::new(0) }
    }

    /// Logs a bad record: the first few as warnings, because there may be many, again in each epoch.
    #[cold]
    fn say(&self, bad: &BadRecord) {
        const WARNINGS: u64 = 10;

        let (said, action) = (self.said.fetch_add(1, Relaxed) + 1, self.action);
        if said > WARNINGS {
            tracing::debug!(record = %bad, %action, "a bad record");
        } else if said == WARNINGS {
            tracing::warn!(record = %bad, %action, "a bad record; further ones are logged at debug");
        } else {
            tracing::warn!(record = %bad, %action, "a bad record");
        }
    }
}

impl Processor {
    /// Creates a worker's scratch memory.
    pub(crate) fn scratch(&self) -> ErasedScratch {
        self.decoder.scratch(self.setup)
    }

    /// The fields of a batch and the size of a worker's scratch memory, given the source's first record.
    pub(crate) fn fields(&self, first: &Record<'_>) -> Result<(Vec<Field>, ScratchBytes), Box<RecordError>> {
        let look = || Ok((self.decoder.fields(first)?, self.decoder.scratch_bytes(first)?));
        self.caught(first, look)
    }

    /// The layout of the batch that a record starts: that of the previous batch, or one with other extents.
    pub(crate) fn layout(
        &self,
        first: &Record<'_>,
        layout: &Arc<BatchLayout>,
    ) -> Result<Arc<BatchLayout>, Box<RecordError>> {
        let look = || -> Result<Arc<BatchLayout>, DecodeFailure> {
            let Some(fields) = self.decoder.reshape(first, layout.fields())? else {
                return Ok(layout.clone());
            };
            let is_same = |(found, known): (&Field, &Field)| {
                let has_its_type = found.dtype() == known.dtype() || known.made_on_device().is_some();
                found.name() == known.name() && has_its_type && found.is_kind_of(known)
            };
            if fields.len() != layout.fields().len() || !fields.iter().zip(layout.fields()).all(is_same) {
                return Err(DecodeFailure::not_of_record(format!(
                    "its decoder changed the fields from {} to {}; only extents may change",
                    listed(layout.fields()),
                    listed(&fields)
                )));
            }
            match BatchLayout::new(fields, layout.rows()) {
                Ok(layout) => Ok(Arc::new(layout)),
                Err(LayoutError::Fields(error)) => Err(error.into()),
                Err(LayoutError::TooLarge) => {
                    Err(RecordCause::BatchTooLarge { records: layout.rows() }.into())
                }
            }
        };
        self.caught(first, look)
    }

    /// If a feed goes on after bad records, checks that a record is not bad before its shape is used for
    /// others: its header may be good and its pixels bad. Writes the record to scratch memory. Errors of the
    /// decoder that are not the record's are ignored here: a worker will meet them, and they end the feed. A
    /// lack of memory is returned, as an error that is not the record's.
    pub(crate) fn check_good(&self, record: &Record<'_>, fields: &[Field]) -> Result<(), Box<RecordError>> {
        if self.on_bad.action == BadAction::Fail {
            return Ok(());
        }
        let Some(place) = self.place_of_its_own(record, fields)? else { return Ok(()) };
        self.written_alone(record, place)
            .or_else(|error| if error.cause.is_of_record() { Err(error) } else { Ok(()) })
    }

    /// Writes a record to scratch memory. An error is what its decoder reports, or a lack of memory.
    pub(crate) fn try_alone(&self, record: &Record<'_>, fields: &[Field]) -> Result<(), Box<RecordError>> {
        let place = self.place_of_its_own(record, fields)?;
        place.map_or(Ok(()), |place| self.written_alone(record, place))
    }

    /// Memory for one record with these fields; `None` if such fields are impossible. The builder of the feed
    /// reports why.
    fn place_of_its_own(
        &self,
        record: &Record<'_>,
        fields: &[Field],
    ) -> Result<Option<Places>, Box<RecordError>> {
        let Ok(layout) = BatchLayout::new(fields, 1).map(Arc::new) else { return Ok(None) };
        let memory = PageMemory::new(layout.bytes()).map_err(|error| {
            let message = format!("there is no memory to try it in: {error}");
            self.error(record, RecordCause::NotOfRecord { message })
        })?;
        Ok(Some(Frame::new(Box::new(memory), 1, bounded(1).0).begin(&layout).take(1)))
    }

    fn written_alone(&self, record: &Record<'_>, mut place: Places) -> Result<(), Box<RecordError>> {
        self.caught(record, || {
            let mut row = place.get(0, self.seed);
            row.set_id(record.id);
            self.decode(record, &mut row, &mut self.scratch())?;
            Ok(row.check_written()?)
        })
    }

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut ErasedScratch) -> Decoded {
        self.decoder.decode(record, row, scratch)?;
        match &self.change_row {
            None => Ok(()),
            Some(change) => change(record, row),
        }
    }

    /// Lets a decoder inspect a record; a panic becomes the record's error.
    fn caught<T>(
        &self,
        record: &Record<'_>,
        look: impl FnOnce() -> Result<T, DecodeFailure>,
    ) -> Result<T, Box<RecordError>> {
        let looked = catch_unwind(AssertUnwindSafe(look))
            .unwrap_or_else(|panic| Err(RecordCause::Panicked { message: panic_message(&*panic) }.into()));
        looked.map_err(|failure| self.error(record, failure.into_cause()))
    }

    /// Writes a record to its row.
    #[inline]
    pub(crate) fn write(
        &self,
        record: &Record<'_>,
        row: &mut Row<'_>,
        scratch: &mut ErasedScratch,
    ) -> Result<(), Box<RecordError>> {
        row.set_id(record.id);
        let written = self.decode(record, row, scratch);
        let written = written.map_err(DecodeFailure::into_cause);
        let written = written.and_then(|()| row.check_written().map_err(RecordCause::Field));
        written.map_err(|cause| self.unwritten(record, cause, row.fields()))?;
        // Last, because decoding has brought most of the record into a cache.
        if self.hashes_contents {
            row.set_content(ContentHash::of(record));
        }
        Ok(())
    }

    /// Why a record could not be written to a row of these fields. If the fields are another record's, and a
    /// feed goes on after bad records, this one is tried in its own: whether it is bad depends only on its
    /// bytes.
    #[cold]
    fn unwritten(&self, record: &Record<'_>, cause: RecordCause, fields: &[Field]) -> Box<RecordError> {
        let is_of_length = matches!(cause, RecordCause::Field(FieldError::Length { .. }));
        if !is_of_length || self.on_bad.action == BadAction::Fail {
            return self.error(record, cause);
        }
        let own = match self.caught(record, || self.decoder.reshape(record, fields)) {
            Ok(Some(own)) if own != fields => own,
            Ok(_) => return self.error(record, cause),
            Err(error) => return error,
        };
        if let Err(error) = self.check_good(record, &own) {
            return error;
        }
        let message = format!(
            "{cause}: by itself it would start a batch of {}, but the first record of its batch has {}; all \
             records of a batch have the same fields (use batches of 1)",
            listed(&own),
            listed(fields)
        );
        self.error(record, RecordCause::NotOfRecord { message })
    }

    /// Whether a record with this fault is a bad one, with which the feed goes on.
    pub(crate) fn is_bad(&self, fault: &BatchFault) -> bool {
        self.on_bad.action != BadAction::Fail && fault.reason().is_some()
    }

    /// A bad record, which has been written to the quarantine file if there is one; or the fault, if that
    /// ends the feed. Its `number` is [that in the data set](crate::source::Run::number).
    #[cold]
    pub(crate) fn bad(
        &self,
        record: &Record<'_>,
        number: u64,
        fault: BatchFault,
    ) -> Result<BadRecord, BatchFault> {
        let OnBad { action, quarantine, .. } = &self.on_bad;
        let Some(reason) = fault.reason().filter(|_| *action != BadAction::Fail) else { return Err(fault) };
        let (path, key) = (self.files.path_of(record.id.index).to_owned(), Key(record.key.to_owned()));
        let bad = BadRecord { path, id: record.id, key, reason, replaced_by: None, row: 0 };
        self.on_bad.say(&bad);
        if let Some(quarantine) = quarantine {
            quarantine.note(&bad, number, record).map_err(|error| BatchFault::Quarantine(Box::new(error)))?;
        }
        Ok(bad)
    }

    /// An error with everything that is needed to find the record.
    #[cold]
    pub(crate) fn error(&self, record: &Record<'_>, cause: RecordCause) -> Box<RecordError> {
        RecordError::new(self.files.path_of(record.id.index), record, cause)
    }
}

/// Fields, for messages.
fn listed(fields: &[Field]) -> String {
    fields.iter().map(Field::to_string).collect::<Vec<_>>().join(", ")
}

/// A worker's scratch memory: for each part, the holder with what it holds, and the bytes.
pub(crate) type ScratchBytes = Vec<(&'static str, usize)>;

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor")
            .field("files", &self.files)
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}
