//! Records that are made on the spot, and what the tests do with their batches.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use percolator::decoder::Decoded;
use percolator::half::{bf16, f16};
use percolator::record::RecordId;
use percolator::source::{FnSource, Record};
use percolator::{DecodeFailure, Dtype, Feed, FeedBuilder, Field};
use percolator_burn::{FeedLoader, Tensors};

/// Far longer than any test takes: what has not ended by then hangs.
const HUNG_AFTER: Duration = Duration::from_secs(120);

/// Runs what must end, and panics instead of hanging the suite if it does not.
pub(crate) fn must_end<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(run());
    });
    match result.recv_timeout(HUNG_AFTER) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it ended without a result"))
        }
    }
}

/// A source of which the record at a position is that position; at `damaged`, it is cut short.
pub(crate) fn source(records: u64, damaged: Option<u64>) -> FnSource {
    FnSource::new("made", records, move |position, to| {
        let bytes = position.to_le_bytes();
        to.extend(if damaged == Some(position) { &bytes[..3] } else { &bytes[..] });
        Ok(())
    })
}

pub(crate) fn position(record: &Record<'_>) -> Result<u64, DecodeFailure> {
    let bytes = record.value.try_into();
    bytes.map(u64::from_le_bytes).map_err(|_| DecodeFailure::new("a record of 8 bytes is wanted"))
}

/// A feed with a field of each type that burn has: element `e` of record `p` is `p + e`.
pub(crate) fn all_types(records: u64) -> FeedBuilder {
    let fields = [
        Field::new("f32", Dtype::F32, [2, 3]),
        Field::new("f64", Dtype::F64, [2]),
        Field::new("f16", Dtype::F16, [2]),
        Field::new("bf16", Dtype::Bf16, [2]),
        Field::new("i8", Dtype::I8, [2]),
        Field::new("i16", Dtype::I16, [2]),
        Field::new("i32", Dtype::I32, [2]),
        Field::scalar("i64", Dtype::I64),
        Field::new("u8", Dtype::U8, [3]),
        Field::new("u16", Dtype::U16, [2]),
        Field::new("u32", Dtype::U32, [2]),
        Field::new("u64", Dtype::U64, [2]),
        Field::new("bool", Dtype::Bool, [2]),
        Field::ragged("ragged", Dtype::I32, 4),
        Field::padded("padded", Dtype::F32, 4, -1.0_f32),
    ];
    let decode = |record: &Record<'_>, row: &mut percolator::Row<'_>| -> Decoded {
        let at = position(record)?;
        let small = u8::try_from(at % 100).unwrap();
        let float = |element: u8| f32::from(small + element);
        row.write("f32", &[0, 1, 2, 3, 4, 5].map(float))?;
        row.write("f64", &[0, 1].map(|element| f64::from(float(element))))?;
        row.write("f16", &[0, 1].map(|element| f16::from_f32(float(element))))?;
        row.write("bf16", &[0, 1].map(|element| bf16::from_f32(float(element))))?;
        row.write("i8", &[small, small + 1].map(|value| value.cast_signed()))?;
        row.write("i16", &[small, small + 1].map(i16::from))?;
        row.write("i32", &[small, small + 1].map(i32::from))?;
        row.set("i64", i64::from(small))?;
        row.write("u8", &[small, small + 1, small + 2])?;
        row.write("u16", &[small, small + 1].map(u16::from))?;
        row.write("u32", &[small, small + 1].map(u32::from))?;
        row.write("u64", &[small, small + 1].map(u64::from))?;
        row.write("bool", &[small % 2 == 0, small % 3 == 0])?;
        let some = usize::from(small % 5);
        row.write("ragged", &[i32::from(small); 4][..some])?;
        row.write("padded", &[float(0); 4][..some])?;
        Ok(())
    };
    Feed::builder().source(source(records, None)).decode(fields, decode).batch_size(4)
}

/// A feed of records that are their positions, as one i64 each.
pub(crate) fn numbers(records: u64, damaged: Option<u64>) -> FeedBuilder {
    let decode = |record: &Record<'_>, row: &mut percolator::Row<'_>| -> Decoded {
        let at = position(record)?;
        row.set("number", i64::try_from(at).unwrap())?;
        Ok(())
    };
    let fields = [Field::scalar("number", Dtype::I64)];
    Feed::builder().source(source(records, damaged)).decode(fields, decode).batch_size(4)
}

/// What came of a batch: its numbers, which records they are, and on which device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) numbers: Vec<i64>,
    pub(crate) records: Vec<RecordId>,
    pub(crate) rows: usize,
    pub(crate) device: Device,
}

pub(crate) fn given(batch: &Tensors) -> Given {
    let numbers = batch.get_int::<1>("number").unwrap();
    let device = numbers.device();
    let numbers = numbers.into_data().as_slice::<i64>().unwrap().to_vec();
    Given { numbers, records: batch.records().to_vec(), rows: batch.rows(), device }
}

pub(crate) fn loader(feed: FeedBuilder) -> FeedLoader<Given> {
    FeedLoader::new(feed, &Device::flex(), |batch| Ok(given(&batch))).unwrap()
}

/// One epoch of a loader. Checks its progress, batch by batch.
pub(crate) fn epoch(loader: &dyn DataLoader<Given>) -> Vec<Given> {
    let due = loader.num_items();
    let mut items = loader.iter();
    let before = items.progress().items_processed;
    let (mut seen, mut batches) = (before, Vec::new());
    while let Some(batch) = items.next() {
        let batch = batch.unwrap();
        seen += batch.records.len();
        let progress = items.progress();
        assert_eq!((progress.items_processed, progress.items_total), (seen, due));
        batches.push(batch);
    }
    assert_eq!(seen, due, "the progress does not reach the end");
    assert!(items.progress().is_completed());
    assert!(items.next().is_none());
    batches
}

/// The positions of all records of these batches, sorted.
pub(crate) fn sorted<'a>(batches: impl IntoIterator<Item = &'a Given>) -> Vec<u64> {
    let records = batches.into_iter().flat_map(|batch| &batch.records);
    let mut positions: Vec<u64> = records.map(|record| record.index).collect();
    positions.sort_unstable();
    positions
}
