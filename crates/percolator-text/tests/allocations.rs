//! A decoder that allocates for each record is slow in a way that no profile of one run shows. This test
//! counts the allocations of the worker's thread while the input function runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "../../../tests/common/allocator.rs"]
mod allocator;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator::decoder::{Decoded, WorkerSetup};
use percolator::source::Record;
use percolator::{Field, RecordDecoder, Row};
use percolator_text::xlnet::{Flags, Options, Progress, Split, XlnetData, XlnetDecoder, prepare};

/// Counts the records and the allocations of a decoder.
struct Counted {
    decoder: XlnetDecoder,
    records: Arc<AtomicUsize>,
    allocations: Arc<AtomicUsize>,
}

impl RecordDecoder for Counted {
    type Scratch = <XlnetDecoder as RecordDecoder>::Scratch;

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        self.decoder.fields(first)
    }

    fn scratch(&self, setup: WorkerSetup) -> Self::Scratch {
        self.decoder.scratch(setup)
    }

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut Self::Scratch) -> Decoded {
        let before = allocator::calls_here();
        let done = self.decoder.decode(record, row, scratch);
        self.allocations.fetch_add(allocator::calls_here() - before, Ordering::Relaxed);
        self.records.fetch_add(1, Ordering::Relaxed);
        done
    }
}

#[test]
fn no_record_allocates() {
    let data = |name: &str| format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    for num_predict in [Some(21), None] {
        let folder = tempfile::tempdir().unwrap();
        let flags = Flags {
            input_glob: data("text/part0.txt").into(),
            sp_path: data("spiece.model").into(),
            save_dir: folder.path().to_owned(),
            use_tpu: false,
            bsz_per_host: 8,
            num_core_per_host: 1,
            seq_len: 128,
            reuse_len: 64,
            num_predict,
            ..Flags::default()
        };
        prepare(&Options { flags, ..Options::default() }, &Progress::new()).unwrap();
        let data = XlnetData::open(folder.path(), Split::Train, None).unwrap();
        let (records, allocations) = (Arc::default(), Arc::default());
        let counted = Counted {
            decoder: data.decoder().unwrap(),
            records: Arc::clone(&records),
            allocations: Arc::clone(&allocations),
        };
        let feed = data.builder().unwrap().decoder(counted).epochs(2).build().unwrap();
        feed.into_iter().for_each(|batch| assert_eq!(batch.unwrap().len(), 8));
        assert_eq!(records.load(Ordering::Relaxed) as u64, 2 * 8 * data.num_batch());
        assert_eq!(allocations.load(Ordering::Relaxed), 0, "{num_predict:?}");
    }
}
