//! The first good record of a batch, which decides its layout, and the bad ones before it.

use std::sync::Arc;

use super::{BatchInput, Prefetcher};
use crate::bad::BadRecord;
use crate::batch::BatchLayout;
use crate::batch::fault::{BatchFault, RecordError};
use crate::device::DeviceError;
use crate::feed::FeedError;
use crate::reader::Lease;
use crate::record::StepEnd;
use crate::source::Record;
use crate::workers::processor::Processor;

/// What a run begins its batch with.
pub(super) enum Front {
    /// These bad records, and then a good one, which has the current layout; or no records at all.
    Good(Vec<BadRecord>),
    /// Only bad records: the whole run.
    Bad(Vec<BadRecord>),
}

impl Prefetcher {
    /// Finds the layout of the batch that this run begins, which its first good record requires. A run
    /// without records takes that of the source's first: a resumed run does not know what came before. Needed
    /// only if the decoder may reshape. There is only one such thread per lane, so it verifies and parses
    /// only records that decide something.
    pub(super) fn front(&mut self, processor: &Processor, run: &Lease) -> Result<Front, FeedError> {
        let (mut checksums, mut bad) = (run.deferred_checksums(), Vec::new());
        for (position, record) in run.iter().enumerate() {
            // Before the record decides how much room the batch takes.
            let verified = checksums.before(position).map_err(BatchFault::from);
            match verified.and_then(|()| Ok(self.layout_of(processor, &record)?)) {
                // It decides nothing. The worker detects whether it was written to in the meantime.
                Ok(layout) if Arc::ptr_eq(&layout, &self.batches.layout) => return Ok(Front::Good(bad)),
                Ok(layout) => {
                    run.check_used()?;
                    self.batches.layout = layout;
                    return Ok(Front::Good(bad));
                }
                Err(fault) => {
                    // Bytes that were overwritten in the meantime look wrong too.
                    run.check_used()?;
                    bad.push(processor.bad(&record, run.number(position), fault)?);
                }
            }
        }
        if bad.is_empty() {
            self.batches.layout = self.batches.first_layout.clone();
            return Ok(Front::Good(bad));
        }
        Ok(Front::Bad(bad))
    }

    /// The layout of the batch that a record starts. If it is not that of the source's first good record,
    /// this record is tried before others have to fit it. Earlier batches make no difference, because a
    /// resumed run does not know them.
    fn layout_of(
        &self,
        processor: &Processor,
        record: &Record<'_>,
    ) -> Result<Arc<BatchLayout>, Box<RecordError>> {
        let layout = processor.layout(record, &self.batches.layout)?;
        if layout.rows() > 1 && layout != self.batches.first_layout {
            processor.check_good(record, layout.fields())?;
        }
        Ok(layout)
    }

    /// Why a batch could not begin. If there is no memory for it, the record in the run that decided its
    /// layout is tried: the wrong size of a damaged record must not be reported as the device's fault.
    pub(super) fn why_no_room(
        &self,
        processor: &Processor,
        run: &Lease,
        decided: usize,
        error: FeedError,
    ) -> FeedError {
        let is_memory = matches!(error, FeedError::Device(DeviceError::OutOfMemory { .. }));
        let Some(record) =
            run.get(decided).filter(|_| is_memory && self.batches.layout != self.batches.first_layout)
        else {
            return error;
        };
        let tried = processor.try_alone(&record, self.batches.layout.fields());
        match (run.check_used(), tried) {
            (Err(changed), _) => changed.into(),
            (Ok(()), Err(damage)) if damage.cause.is_of_record() => damage.into(),
            (Ok(()), _) => error,
        }
    }

    /// Keeps the records of a run of only bad records until the layout of their batch is known.
    pub(super) fn put_early(&mut self, run: &Lease, bad: Vec<BadRecord>) {
        if let BatchInput::Dealt(dealt) = &mut self.input {
            for bad in &bad {
                dealt.draws.next(bad.id);
            }
        }
        self.state.early.extend(bad);
        if let Some(end) = run.step_end() {
            self.begin_and_close(Some(end));
        }
    }

    /// Makes a batch of only bad records, with the layout of the source's first.
    pub(super) fn begin_and_close(&mut self, end: Option<StepEnd>) {
        self.batches.layout = self.batches.first_layout.clone();
        match self.begin() {
            Ok(()) => self.close_batch(end),
            Err(error) => self.fail(error),
        }
    }
}
