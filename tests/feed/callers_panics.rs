//! A panic of anything that a caller implements comes out of no call of a feed: it is an error that says what
//! panicked, and how. One method of each public trait panics at one of its calls, so at any moment: while the
//! feed is built, while it runs, and while it seeks, resumes, replays or makes a digest.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use percolator::batch::Field;
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::order::{Block, Blocks, Plan};
use percolator::reader::{DataReader, ReaderError, Registry};
use percolator::receipt::DigestDetail;
use percolator::source::{Cursor, Entry, Identity, IndexPlace, Passes, Source, SourceError};
use percolator::transform::{DeviceTransform, TransformPlace};
use percolator::{
    Device, DeviceError, Dtype, Epochs, Feed, FeedBuilder, FeedError, RecordDecoder, Row, Shuffle, Snapshot,
};

use crate::common;
use crate::common::process::must_end;

const MESSAGE: &str = "a panic of the test";

/// The method that panics, and at which of its calls.
#[derive(Debug)]
struct Strikes {
    method: &'static str,
    left: AtomicU64,
    has_struck: AtomicBool,
}

impl Strikes {
    fn at(method: &'static str, calls: u64) -> Arc<Self> {
        Arc::new(Strikes { method, left: AtomicU64::new(calls), has_struck: AtomicBool::new(false) })
    }

    /// From its call on, the method panics each time.
    fn strike(&self, method: &str) {
        if method != self.method {
            return;
        }
        let passed = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if passed.is_err() {
            self.has_struck.store(true, Ordering::SeqCst);
            // Not `panic!`: hundreds of these are expected, and need not be printed.
            std::panic::resume_unwind(Box::new(MESSAGE));
        }
    }
}

/// Eight images, or numbers.
#[derive(Clone, Debug)]
struct Struck(Arc<Strikes>);

impl Source for Struck {
    fn path(&self) -> &Path {
        self.0.strike("Source::path");
        Path::new("struck")
    }

    fn records(&self) -> Option<u64> {
        self.0.strike("Source::records");
        Some(8)
    }

    fn identity(&self) -> Identity {
        self.0.strike("Source::identity");
        Identity::new().with("records", 8)
    }

    fn passes(&self) -> Passes {
        self.0.strike("Source::passes");
        Passes::Alike
    }

    fn file_records(&self) -> Option<Vec<u64>> {
        self.0.strike("Source::file_records");
        Some(vec![8])
    }

    fn held_bytes(&self) -> usize {
        self.0.strike("Source::held_bytes");
        0
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.strike("Source::cursor");
        Ok(Box::new(StruckCursor { source: self.clone(), next: 0, record: Default::default() }))
    }

    fn is_seekable(&self) -> bool {
        self.0.strike("Source::is_seekable");
        true
    }

    fn index(&self, _place: &IndexPlace) -> Result<(), SourceError> {
        self.0.strike("Source::index");
        Ok(())
    }
}

struct StruckCursor {
    source: Struck,
    next: usize,
    record: (Vec<u8>, Vec<u8>),
}

impl Cursor for StruckCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        self.source.0.strike("Cursor::advance");
        if self.next >= 8 {
            return Ok(None);
        }
        self.record = common::image(self.next, 1, 2, 2);
        self.next += 1;
        Ok(Some(Entry::borrowed(&self.record.0, &self.record.1)))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        self.source.0.strike("Cursor::skip");
        self.next += 1;
        Ok(self.next <= 8)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.source.0.strike("Cursor::rewind");
        self.next = 0;
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.source.0.strike("Cursor::seek");
        self.next = usize::try_from(position).unwrap();
        Ok(())
    }
}

impl RecordDecoder for Struck {
    type Scratch = ();

    fn fields(&self, _first: &percolator::source::Record<'_>) -> Decoded<Vec<Field>> {
        self.0.strike("RecordDecoder::fields");
        Ok(vec![Field::new("bytes", Dtype::U8, [4])])
    }

    fn scratch(&self, _setup: WorkerSetup) {
        self.0.strike("RecordDecoder::scratch");
    }

    fn decode(
        &self,
        record: &percolator::source::Record<'_>,
        row: &mut Row<'_>,
        _scratch: &mut (),
    ) -> Decoded {
        self.0.strike("RecordDecoder::decode");
        row.write("bytes", &record.key[..4])?;
        Ok(())
    }

    fn reshape(
        &self,
        _first: &percolator::source::Record<'_>,
        _fields: &[Field],
    ) -> Decoded<Option<Vec<Field>>> {
        self.0.strike("RecordDecoder::reshape");
        Ok(None)
    }

    fn scratch_bytes(&self, _first: &percolator::source::Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        self.0.strike("RecordDecoder::scratch_bytes");
        Ok(Vec::new())
    }

    fn rest(&self, _scratch: &mut ()) {
        self.0.strike("RecordDecoder::rest");
    }
}

impl Backend for Struck {
    fn name(&self) -> String {
        self.0.strike("Backend::name");
        "struck:0".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        self.0.strike("Backend::host_memory");
        Ok(Box::new(PageMemory::new(bytes).unwrap()))
    }

    fn transfer(&self, _capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        self.0.strike("Backend::transfer");
        Ok(Box::new(self.clone()))
    }

    fn transforming(&self, _transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        self.0.strike("Backend::transforming");
        Ok(Arc::new(self.clone()))
    }

    fn has_own_memory(&self) -> bool {
        self.0.strike("Backend::has_own_memory");
        false
    }

    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        self.0.strike("Backend::free_bytes");
        Ok(None)
    }

    fn numa_node(&self) -> Option<usize> {
        self.0.strike("Backend::numa_node");
        None
    }
}

impl Transfer for Struck {
    fn submit(&mut self, _batch: HostBatch<'_>) -> Result<(), DeviceError> {
        self.0.strike("Transfer::submit");
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        self
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        self.0.strike("Transfer::release");
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        self.0.strike("Transfer::last_use");
        self
    }
}

impl Event for Struck {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        self.0.strike("Event::is_complete");
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Blocks for Struck {
    fn next(
        &mut self,
        plan: &Plan,
        _is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        self.0.strike("Blocks::next");
        let steps = plan.steps(0)?;
        Ok(Some(Block { first: (0, 0).into(), steps }))
    }
}

const METHODS: [(&str, u64); 29] = [
    ("Source::path", 8),
    ("Source::records", 8),
    ("Source::identity", 4),
    ("Source::passes", 6),
    ("Source::file_records", 4),
    ("Source::held_bytes", 4),
    ("Source::cursor", 8),
    ("Source::is_seekable", 8),
    ("Source::index", 3),
    ("Cursor::advance", 24),
    ("Cursor::skip", 4),
    ("Cursor::rewind", 4),
    ("Cursor::seek", 8),
    ("RecordDecoder::fields", 3),
    ("RecordDecoder::scratch", 6),
    ("RecordDecoder::decode", 16),
    ("RecordDecoder::reshape", 6),
    ("RecordDecoder::scratch_bytes", 3),
    ("RecordDecoder::rest", 6),
    ("Backend::name", 24),
    ("Backend::host_memory", 8),
    ("Backend::transfer", 8),
    ("Backend::transforming", 4),
    ("Backend::has_own_memory", 4),
    ("Backend::free_bytes", 4),
    ("Backend::numa_node", 4),
    ("Transfer::submit", 6),
    ("Transfer::release", 6),
    ("Event::is_complete", 8),
];

/// What a program does with a feed. Only the calls of the builder that take what panics are left out: they
/// ask for names.
fn use_it(builder: &FeedBuilder, planned: bool) -> Result<(), FeedError> {
    let mut feed = builder.clone().build()?;
    for step in feed.steps().take(3) {
        step?;
    }
    let snapshot: Snapshot = feed.snapshot()?;
    feed.seek((0, 1))?;
    for step in feed.steps().take(1) {
        step?;
    }
    if planned {
        feed.replay((0, 0), 0)?;
    }
    drop(feed);
    let mut resumed = builder.clone().resume(&snapshot).build()?;
    for step in resumed.steps() {
        step?;
    }
    percolator_proof::digest(builder, DigestDetail::default())?;
    Ok(())
}

fn check(method: &'static str, calls: u64, uses: impl FnOnce(&Struck) -> Result<(), FeedError>) -> bool {
    let struck = Struck(Strikes::at(method, calls));
    let used = catch_unwind(AssertUnwindSafe(|| uses(&struck)));
    let used = used.unwrap_or_else(|_| panic!("the panic of {method}, after {calls} calls, came out"));
    match used {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(MESSAGE), "{method}, {calls}: {text}");
            if let FeedError::BuildPanicked { who, .. } = &error {
                let due = match method.split("::").next() {
                    Some("Source" | "Cursor") => "the source",
                    Some("Backend") => "the device of lane",
                    _ => "",
                };
                assert!(who.starts_with(due), "{method}, {calls}: {who}");
            }
        }
        // What panics on a thread of the feed, behind the last step that was taken, concerns nobody.
        Ok(()) => assert!(
            !struck.0.has_struck.load(Ordering::SeqCst)
                || ["Cursor::", "RecordDecoder::", "Transfer::", "Event::"]
                    .iter()
                    .any(|of| method.starts_with(of)),
            "{method}, {calls}: nobody was told"
        ),
    }
    struck.0.has_struck.load(Ordering::SeqCst)
}

#[test]
fn a_panic_of_what_a_caller_implements_comes_out_of_no_call() {
    must_end("feeds of which something panics", || {
        for (method, most) in METHODS {
            let mut has_struck = 0;
            for calls in 0..most {
                for (planned, transforms) in [(false, false), (true, false), (true, true)] {
                    let uses = |struck: &Struck| {
                        // The builder asks for names; there is no call of a feed yet.
                        let named = catch_unwind(AssertUnwindSafe(|| {
                            let devices = [0, 1].map(|_| Device::from_backend(Arc::new(struck.clone())));
                            let builder = Feed::builder().source(struck.clone()).devices(devices);
                            builder.batch_size(2).threads(1).prefetch(2)
                        }));
                        let Ok(builder) = named else {
                            assert!(["Source::path", "Backend::name"].contains(&method));
                            return Err(FeedError::BuildPanicked {
                                who: if method == "Source::path" {
                                    "the source"
                                } else {
                                    "the device of lane"
                                }
                                .to_owned(),
                                message: MESSAGE.to_owned(),
                            });
                        };
                        let builder =
                            if planned { builder.epochs(1) } else { builder.epochs(Epochs::OnePass) };
                        let builder = match transforms {
                            true => builder.transform_on(TransformPlace::Device),
                            false => builder.decoder(struck.clone()),
                        };
                        use_it(&builder, planned)
                    };
                    has_struck += u64::from(check(method, calls, uses));
                }
            }
            // One pass goes back nowhere, a source that seeks needs no index, and few machines have nodes.
            let may_be_unused =
                ["Cursor::rewind", "Source::index", "Source::file_records", "Backend::numa_node"]
                    .contains(&method);
            assert!(has_struck > 0 || may_be_unused, "{method} is never called");
        }
    });
}

/// Its panic says which record it decoded last.
struct PanicsAtRest;

impl RecordDecoder for PanicsAtRest {
    type Scratch = String;

    fn fields(&self, _first: &percolator::source::Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::scalar("index", Dtype::I64)])
    }

    fn scratch(&self, _setup: WorkerSetup) -> String {
        String::new()
    }

    fn decode(
        &self,
        record: &percolator::source::Record<'_>,
        row: &mut Row<'_>,
        last: &mut String,
    ) -> Decoded {
        *last = record.id.to_string();
        row.write("index", &[i64::try_from(record.id.index).unwrap()])?;
        Ok(())
    }

    fn rest(&self, last: &mut String) {
        std::panic::resume_unwind(Box::new(last.clone()));
    }
}

/// All records of the run are good.
#[test]
fn a_panic_of_a_decoder_that_rests_is_blamed_on_no_record() {
    for shuffle in [None, Some(Shuffle::Global)] {
        let source = Struck(Strikes::at("nothing", 0));
        let builder = Feed::builder().source(source).decoder(PanicsAtRest);
        let builder = builder.batch_size(4).epochs(1).threads(1);
        let builder = shuffle.into_iter().fold(builder, FeedBuilder::shuffle);
        let error = builder.build().unwrap().steps().next().unwrap().unwrap_err();
        assert_eq!((error.record(), error.key()), (None, None), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("the thread worker panicked: "), "{text}");
        let mut records = (0..8).map(|index| format!("epoch 0, record {index}"));
        let names = |last: String| text.contains(&format!("rest() of its decoder, after {last}: {last}"));
        assert!(records.any(names), "{text}");
    }
}

#[test]
fn a_panic_while_a_reader_is_opened_is_its_error() {
    for method in ["Source::path", "Source::cursor", "Cursor::advance"] {
        let open = || DataReader::builder("data", Struck(Strikes::at(method, 0))).open_in(&Registry::new());
        let error = catch_unwind(AssertUnwindSafe(open)).expect("it comes out of nothing").unwrap_err();
        assert!(matches!(&error, ReaderError::Panicked { message, .. } if message == MESSAGE), "{error}");
    }
}

#[test]
fn a_panic_of_what_hands_out_blocks_ends_the_feed() {
    let struck = Struck(Strikes::at("Blocks::next", 1));
    let source = Struck(Strikes::at("nothing", 0));
    let builder = Feed::builder().source(source.clone()).decoder(source);
    let mut feed = builder.batch_size(2).blocks(struck).build().unwrap();
    let mut steps = feed.steps();
    assert_eq!(steps.by_ref().take(4).filter(Result::is_ok).count(), 4);
    let error = steps.next().unwrap().unwrap_err();
    assert!(matches!(&error, FeedError::Reader(ReaderError::Panicked { message, .. }) if message == MESSAGE));
}
