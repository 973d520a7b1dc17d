//! Internals that benches, `percolator-fuzz` and the tests of `percolator-proof` use by themselves. Not part
//! of the interface; may change at any time.

use std::path::Path;
use std::sync::Arc;

use crate::bad::BadAction;
use crate::base::shape::{Dtype, ImageShape, Layout, Phase};
use crate::base::sync::{Receiver, Sender, bounded};
use crate::batch::memory::PageMemory;
use crate::batch::{BatchLayout, Frame};
use crate::decoder::example::{ExampleDecoder, ExampleFields, Found};
use crate::decoder::{Decoded, RecordDecoder as _, WorkerSetup};
use crate::order::Plan;
use crate::reader::queue_pair::{ConsumerEnd, ReaderEnd, queue_pair};
use crate::receipt::content::ContentHash;
use crate::receipt::{Ledger, Receipt};
use crate::record::{RecordId, StepEnd};
use crate::source::{Entry, Identity, Record};
use crate::transform::{Draws, Scratch, Transform, TransformError, Transformer};
use percolator_messages::{Image, Pixels};

/// A transform as a worker runs it.
#[derive(Debug)]
pub struct TransformBench {
    transformer: Transformer,
    draws: Draws,
    scratch: Scratch,
}

impl TransformBench {
    /// A worker's transform for TRAIN.
    ///
    /// # Errors
    ///
    /// Fails if the transform is not possible.
    pub fn new(transform: &Transform, dtype: Dtype, layout: Layout) -> Result<Self, TransformError> {
        Ok(Self {
            transformer: Transformer::new(transform, Path::new(""), Phase::Train, dtype, layout)?,
            draws: Draws::Indexed { seed: 1701 },
            scratch: Scratch::default(),
        })
    }

    /// Transforms the `u8` record `index` into `out`.
    ///
    /// # Errors
    ///
    /// Fails if the transform cannot be applied to the record.
    pub fn apply(
        &mut self,
        shape: ImageShape,
        pixels: &[u8],
        index: u64,
        out: &mut [u8],
    ) -> Result<(), TransformError> {
        let draw = self.draws.next(RecordId { epoch: 0, index });
        self.transformer.apply(&Image { shape, pixels: Pixels::U8(pixels) }, draw, out, &mut self.scratch)
    }
}

/// A lane's bookkeeping for its receipt.
#[derive(Debug)]
pub struct ReceiptBench<'a> {
    plan: &'a Plan,
    ledger: Ledger,
    /// The assumed content hashes of a batch's records.
    contents: Vec<ContentHash>,
}

impl<'a> ReceiptBench<'a> {
    /// The bookkeeping of one of a plan's replicas.
    #[must_use]
    pub fn new(plan: &'a Plan, replica: usize) -> Self {
        ReceiptBench { plan, ledger: Ledger::of(replica), contents: Vec::new() }
    }

    /// Records a batch.
    pub fn fold(&mut self, step: Option<StepEnd>, records: &[RecordId]) {
        self.ledger.fold(step, records, &[], &[]);
    }

    /// Records a batch with a content hash for each record.
    pub fn fold_contents(&mut self, step: StepEnd, records: &[RecordId], content: impl Fn(RecordId) -> u128) {
        self.contents.clear();
        self.contents.extend(records.iter().map(|&record| ContentHash(content(record))));
        self.ledger.fold(Some(step), records, &self.contents, &[]);
    }

    /// The content hash of a record's bytes, as a worker computes it.
    #[must_use]
    pub fn content(key: &[u8], value: &[u8]) -> u128 {
        ContentHash::of(&Record { id: RecordId::default(), key, value, companion: None }).0
    }

    /// The receipt of all batches so far.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::new("made/up", &Identity::new(), self.plan);
        receipt.add(&self.ledger);
        receipt
    }
}

/// An Example's decoder as a worker has it, with the places of a batch.
pub struct ExampleBench {
    decoder: ExampleDecoder,
    scratch: Found,
    layout: Arc<BatchLayout>,
    /// Taken for each batch, and put back.
    frame: Option<Frame>,
}

impl std::fmt::Debug for ExampleBench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExampleBench").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl ExampleBench {
    /// Batches of `records` records with these fields. `None` if there is no such batch, or no memory for it.
    #[must_use]
    pub fn new(fields: &ExampleFields, records: usize) -> Option<Self> {
        let decoder = ExampleDecoder::new(fields);
        let record = Record { id: RecordId::default(), key: b"", value: b"", companion: None };
        let layout = BatchLayout::new(decoder.fields(&record).ok()?, records).ok()?;
        let scratch = decoder.scratch(WorkerSetup { is_past_caches: false });
        let (done, _) = bounded(1);
        let frame = Frame::new(Box::new(PageMemory::new(layout.bytes()).ok()?), records, done);
        Some(ExampleBench { decoder, scratch, layout: Arc::new(layout), frame: Some(frame) })
    }

    /// Writes the next batch: each record to its row.
    ///
    /// # Errors
    ///
    /// What is wrong with a record.
    ///
    /// # Panics
    ///
    /// If there are more records than a batch has.
    pub fn decode(&mut self, records: &[Vec<u8>]) -> Decoded {
        let mut filling = self.frame.take().expect("it is put back").begin(&self.layout);
        let mut places = filling.take(records.len());
        for (position, value) in records.iter().enumerate() {
            let record = Record { id: RecordId::default(), key: b"", value, companion: None };
            self.decoder.decode(&record, &mut places.get(position, 0), &mut self.scratch)?;
        }
        places.finish();
        self.frame = Some(filling.finish().filled(BadAction::Fail).recycle());
        Ok(())
    }
}

/// Both ends of a queue pair.
#[derive(Debug)]
pub struct QueuePairBench {
    reader: ReaderEnd,
    consumer: ConsumerEnd,
    run_records: usize,
    /// Never disconnects, because its other end is held.
    alarm: Receiver<()>,
    _armed: Sender<()>,
}

impl QueuePairBench {
    /// A pair with `slots` slots of `run_records` records, which return in groups of `together`.
    #[must_use]
    pub fn new(slots: usize, run_records: usize, together: usize) -> Self {
        let (reader, consumer) = queue_pair(slots, run_records, together);
        let (_armed, alarm) = bounded(1);
        Self { reader, consumer, run_records, alarm, _armed }
    }

    /// The reader's part: takes a free slot, fills it with records without bytes, and hands it over.
    ///
    /// # Panics
    ///
    /// Never: both ends are alive.
    pub fn fill(&self) {
        let mut slot = self.reader.pop().expect("the consumer's end is there");
        for index in 0..self.run_records as u64 {
            slot.run.push(RecordId { epoch: 0, index }, Entry::borrowed(b"", b""));
        }
        self.reader.push(slot).expect("the consumer's end is there");
    }

    /// The consumer's part: takes a run and returns its slot.
    ///
    /// # Panics
    ///
    /// Never: both ends are alive.
    pub fn drain(&self) -> usize {
        self.consumer.pop(&self.alarm).expect("the reader's end is there").len()
    }
}
