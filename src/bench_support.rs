//! What `benches/`, `tests/` and `percolator bench` reach of the inside. It is no part of the interface and may change at
//! any time.

use std::path::Path;

use crate::base::shape::{Dtype, ImageShape, Layout, Phase};
use crate::base::sync::{Receiver, Sender, bounded};
use crate::image::{ColorMode, Decode, DecodeError, Decoder, Window, shape};
use crate::order::Plan;
use crate::reader::queue_pair::{ConsumerEnd, ReaderEnd, queue_pair};
use crate::receipt::content::ContentHash;
use crate::receipt::{Ledger, Receipt};
use crate::record::datum::{Image, Pixels};
use crate::record::{RecordId, StepEnd};
pub use crate::source::VerifiesLater;
use crate::source::{Entry, Identity, Record};
use crate::transform::{Draws, Scratch, Transform, TransformError, Transformer};

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
    /// Fails where the transform cannot be made.
    pub fn new(transform: &Transform, dtype: Dtype, layout: Layout) -> Result<Self, TransformError> {
        Ok(Self {
            transformer: Transformer::new(transform, Path::new(""), Phase::Train, dtype, layout)?,
            draws: Draws::Indexed { seed: 1701 },
            scratch: Scratch::default(),
        })
    }

    /// Transforms the record `index` of bytes into `out`.
    ///
    /// # Errors
    ///
    /// Fails where the record does not suit the transform.
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

/// What a lane writes down of what it delivers.
#[derive(Debug)]
pub struct ReceiptBench<'a> {
    plan: &'a Plan,
    ledger: Ledger,
    /// What the records of a batch are taken to hold.
    contents: Vec<ContentHash>,
}

impl<'a> ReceiptBench<'a> {
    /// That of a plan's first replica.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        ReceiptBench { plan, ledger: Ledger::of(0), contents: Vec::new() }
    }

    /// Writes down a batch.
    pub fn fold(&mut self, step: StepEnd, records: &[RecordId]) {
        self.ledger.fold(Some(step), records, &[]);
    }

    /// Writes down a batch, and what its records hold, whatever that is.
    pub fn fold_contents(&mut self, step: StepEnd, records: &[RecordId]) {
        self.contents.resize(records.len(), ContentHash(1 << 77 | 1));
        self.ledger.fold(Some(step), records, &self.contents);
    }

    /// What a record's bytes come to, as a worker hashes them.
    #[must_use]
    pub fn content(key: &[u8], value: &[u8]) -> u128 {
        ContentHash::of(&Record { id: RecordId::default(), key, value, companion: None }).0
    }

    /// What it has come to.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::new("bench", &Identity::new(), self.plan);
        receipt.add(&self.ledger);
        receipt
    }
}

/// An image decoder as a worker has it.
#[derive(Debug, Default)]
pub struct DecodeBench {
    wanted: Decode,
    decoder: Decoder,
}

impl DecodeBench {
    /// A decoder to these channels, and to this height and width if any.
    #[must_use]
    pub fn new(color: ColorMode, resize: Option<(usize, usize)>) -> Self {
        Self { wanted: Decode { color, resize, scaled: false }, decoder: Decoder::default() }
    }

    /// The same, which decodes a JPEG as small as the resize allows.
    #[must_use]
    pub fn scaled(mut self) -> Self {
        self.wanted.scaled = true;
        self
    }

    /// The shape that a file comes to.
    ///
    /// # Errors
    ///
    /// Fails where the file's head cannot be read.
    pub fn shape(&self, file: &[u8]) -> Result<ImageShape, DecodeError> {
        shape(file, &self.wanted)
    }

    /// The shape and the pixels of a file.
    ///
    /// # Errors
    ///
    /// Fails where the file cannot be read.
    pub fn decode(&mut self, file: &[u8]) -> Result<(ImageShape, &[u8]), DecodeError> {
        let image = self.decoder.decode(file, &self.wanted, |_| None)?;
        let Pixels::U8(pixels) = image.pixels else { unreachable!("decoded pixels are bytes") };
        Ok((image.shape, pixels))
    }

    /// The same where a part of the image is enough, whose top, left, height and width these are. Beside it the
    /// pixels are anything.
    ///
    /// # Errors
    ///
    /// Fails where the file cannot be read.
    ///
    /// # Panics
    ///
    /// Panics if the part is not within the image.
    pub fn decode_window(
        &mut self,
        file: &[u8],
        [top, left, height, width]: [usize; 4],
    ) -> Result<(ImageShape, &[u8]), DecodeError> {
        let window = Window { top, left, height, width };
        let image = self.decoder.decode(file, &self.wanted, |_| Some(window))?;
        let Pixels::U8(pixels) = image.pixels else { unreachable!("decoded pixels are bytes") };
        Ok((image.shape, pixels))
    }
}

/// Both ends of a queue pair.
#[derive(Debug)]
pub struct QueuePairBench {
    reader: ReaderEnd,
    consumer: ConsumerEnd,
    run_records: usize,
    /// Never rings, for its other end is held.
    alarm: Receiver<()>,
    _armed: Sender<()>,
}

impl QueuePairBench {
    /// A pair with so many slots of so many records, of which as many go back together.
    #[must_use]
    pub fn new(slots: usize, run_records: usize, together: usize) -> Self {
        let (reader, consumer) = queue_pair(slots, run_records, together);
        let (_armed, alarm) = bounded(1);
        Self { reader, consumer, run_records, alarm, _armed }
    }

    /// The reader's part: takes a free slot, names its records, which have no bytes, and hands it over.
    ///
    /// # Panics
    ///
    /// Never: both ends are there.
    pub fn fill(&self) {
        let mut slot = self.reader.pop().expect("the consumer's end is there");
        for index in 0..self.run_records as u64 {
            slot.run.push(RecordId { epoch: 0, index }, Entry::borrowed(b"", b""));
        }
        self.reader.push(slot).expect("the consumer's end is there");
    }

    /// The consumer's part: takes a run, and gives it back.
    ///
    /// # Panics
    ///
    /// Never: both ends are there.
    pub fn drain(&self) -> usize {
        self.consumer.pop(&self.alarm).expect("the reader's end is there").len()
    }
}
