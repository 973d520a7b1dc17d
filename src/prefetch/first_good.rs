//! The first good record of a batch, which decides its layout, and the bad ones before it.

use std::sync::Arc;

use super::Prefetcher;
use crate::batch::BatchLayout;
use crate::batch::fault::{BatchFault, RecordError};
use crate::error::FeedError;
use crate::reader::Lease;
use crate::record::StepEnd;
use crate::source::Record;

impl Prefetcher {
    /// Finds the layout of the batch that this run begins, which its first good record requires. A run
    /// without records keeps the current one. If all records are bad, returns why.
    pub(super) fn first_good(&mut self, run: &Lease) -> Result<Result<(), Vec<BatchFault>>, FeedError> {
        let (mut checksums, mut faults) = (run.deferred_checksums(), Vec::new());
        for (position, record) in run.iter().enumerate() {
            // Before the record decides how much room the batch takes.
            let verified = checksums.before(position).map_err(BatchFault::from);
            let layout = verified.and_then(|()| Ok(self.layout_of(&record)?));
            // Bytes that somebody wrote to in the meantime look wrong too.
            run.check_used()?;
            match layout {
                Ok(layout) => {
                    self.layout = layout;
                    return Ok(Ok(()));
                }
                Err(fault) if self.processor.is_bad(&fault) => faults.push(fault),
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(if faults.is_empty() { Ok(()) } else { Err(faults) })
    }

    /// The layout of the batch that a record starts. If it is not that of the source's first record, which is
    /// good, the record is tried before others have to fit it. What came before in this run makes no
    /// difference, for a resumed run does not know it.
    fn layout_of(&self, record: &Record<'_>) -> Result<Arc<BatchLayout>, Box<RecordError>> {
        let layout = self.processor.layout(record, &self.layout)?;
        if layout.rows() > 1 && layout != self.first_layout {
            self.processor.check_good(record, layout.fields())?;
        }
        Ok(layout)
    }

    /// Keeps the records of a run of which all are bad, until it is known what their batch is like.
    pub(super) fn put_early(&mut self, run: &Lease, faults: Vec<BatchFault>) {
        for (record, fault) in run.iter().zip(faults) {
            self.draws.next(record.id);
            match self.processor.bad(&record, fault) {
                Ok(bad) => self.state.early.push(bad),
                Err(fault) => return self.fail(fault.into()),
            }
        }
        if let Some(end) = run.step_end() {
            self.begin_and_close(Some(end));
        }
    }

    /// Makes a batch of bad records alone, with the layout that the source's first record requires: a run
    /// that resumes does not know what came before.
    pub(super) fn begin_and_close(&mut self, end: Option<StepEnd>) {
        self.layout = self.first_layout.clone();
        match self.begin() {
            Ok(()) => self.close_batch(end),
            Err(error) => self.fail(error),
        }
    }
}
