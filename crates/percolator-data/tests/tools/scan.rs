//! A scan has every record once and in order, whatever the kind and the threads, and ends when asked to.

use std::num::NonZeroUsize;
use std::path::Path;

use percolator_data::scan::{self, Event, OnDamage, Progress, Scan, ScanError, Selection};
use percolator_data::{DataSet, Kind};

use crate::common::{data, golden, golden_databases};

type Records = Vec<(u64, Vec<u8>, Vec<u8>)>;

fn scanned(data: &DataSet, scan: Scan) -> Result<Records, ScanError> {
    let mut records = Vec::new();
    let copy = |(): &mut (), seen: scan::Seen<'_>| (seen.number, seen.key.to_vec(), seen.value.to_vec());
    scan.run(
        data,
        &Progress::new(),
        || (),
        copy,
        |event| {
            match event {
                Event::Done(record) => records.push(record),
                Event::Unreadable(unreadable) => panic!("{unreadable:?}"),
            }
            Ok::<_, ScanError>(())
        },
    )?;
    Ok(records)
}

/// The records as a cursor has them.
fn walked(data: &DataSet) -> Records {
    let mut records = Vec::new();
    for source in data.sources() {
        let mut cursor = source.cursor().unwrap();
        while let Some(entry) = cursor.advance().unwrap() {
            records.push((records.len() as u64, entry.key().to_vec(), entry.value().to_vec()));
        }
    }
    records
}

fn all_kinds() -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = golden_databases().iter().map(|name| golden(name)).collect();
    paths.extend(
        ["examples", "examples.gz", "examples.zlib", "odd"]
            .map(|name| data(&format!("tensorflow/{name}.tfrecord"))),
    );
    paths.extend(["big_values", "levels", "deleted", "snappy"].map(|name| data(&format!("leveldb/{name}"))));
    paths
}

#[test]
fn every_record_comes_once_and_in_order() {
    for path in all_kinds() {
        let data = DataSet::open(&path).unwrap();
        let wanted = walked(&data);
        assert_eq!(scan::count(&data, &Progress::new()).unwrap(), wanted.len() as u64);
        for threads in [1, 3] {
            for on_damage in [OnDamage::End, OnDamage::GoOn] {
                let threads = NonZeroUsize::new(threads);
                let found = scanned(&data, Scan { threads, on_damage, ..Scan::default() }).unwrap();
                assert!(found == wanted, "{}", path.display());
            }
        }
        let records = wanted.len() as u64;
        let spread = Selection::Spread { wanted: 5, records };
        let found = scanned(&data, Scan { selection: spread, ..Scan::default() }).unwrap();
        let chosen: Records = (0..records.min(5))
            .map(|place| wanted[usize::try_from(place * records / records.min(5)).unwrap()].clone())
            .collect();
        assert!(found == chosen, "{}", path.display());
    }
}

#[test]
fn several_files_and_lists_are_scanned_as_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.tfrecord", "b.tfrecord"] {
        std::fs::copy(data("tensorflow/raw.tfrecord"), folder.path().join(name)).unwrap();
    }
    let both = DataSet::open(folder.path()).unwrap();
    let one = DataSet::open(folder.path().join("a.tfrecord")).unwrap();
    assert_eq!((both.kind(), both.sources().len()), (Kind::TfRecord, 2));
    let (all, half) = (scanned(&both, Scan::default()).unwrap(), walked(&one));
    assert_eq!(all.len(), 2 * half.len());
    assert_eq!(all, walked(&both));
    let pattern = DataSet::open(folder.path().join("?.tfrecord")).unwrap();
    assert_eq!(scanned(&pattern, Scan::default()).unwrap(), all);

    // A list of images is read by all threads.
    let images: Vec<String> = (0..50)
        .map(|number| {
            format!(
                "{} {number}",
                data(if number % 2 == 0 { "images/1x1.jpg" } else { "images/rgb.jpg" }).display()
            )
        })
        .collect();
    let list = folder.path().join("list.txt");
    std::fs::write(&list, images.join("\n")).unwrap();
    let listed = DataSet::open(&list).unwrap();
    assert!(listed.kind() == Kind::ImageList && listed.sources()[0].is_seekable());
    let wanted = walked(&listed);
    for threads in [1, 4] {
        let threads = NonZeroUsize::new(threads);
        assert!(scanned(&listed, Scan { threads, ..Scan::default() }).unwrap() == wanted);
        let selection = Selection::Spread { wanted: 10, records: 50 };
        let found = scanned(&listed, Scan { threads, selection, ..Scan::default() }).unwrap();
        assert_eq!(
            found.iter().map(|record| record.0).collect::<Vec<_>>(),
            (0..10).map(|n| n * 5).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_scan_ends_when_it_is_told_to() {
    let data = DataSet::open(golden("raw_lmdb")).unwrap();
    let progress = Progress::new();
    progress.stop();
    let stopped = Scan::default().run(&data, &progress, || (), |(), _| (), |_| Ok::<_, ScanError>(()));
    assert!(matches!(stopped, Err(ScanError::Stopped)), "{stopped:?}");
    // The caller's own error ends it, too.
    let mut taken = 0;
    let refused = Scan::default().run(
        &data,
        &Progress::new(),
        || (),
        |(), _| (),
        |_| {
            taken += 1;
            if taken == 3 { Err(Refused) } else { Ok(()) }
        },
    );
    assert!(refused.is_err() && taken == 3);
}

/// Neither a chunk nor a turn is lost with a worker that panics: the scan ends, and names the record.
#[test]
fn a_panic_of_the_work_ends_the_scan_and_names_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    std::fs::write(&list, format!("{} 1\n", data("images/rgb.jpg").display()).repeat(200)).unwrap();
    for path in [golden("raw_lmdb"), list] {
        let data = DataSet::open(&path).unwrap();
        for threads in [1, 3] {
            let scan = Scan { threads: NonZeroUsize::new(threads), ..Scan::default() };
            let work = |(): &mut (), seen: scan::Seen<'_>| assert!(seen.number != 20, "a bug of a decoder");
            let ended = scan.run(&data, &Progress::new(), || (), work, |_| Ok::<_, ScanError>(()));
            let said = ended.unwrap_err().to_string();
            assert!(said.contains("record 20, key \""), "{said}");
            assert!(said.contains("panicked: a bug of a decoder; this is a bug"), "{said}");
        }
    }
}

#[test]
fn too_many_threads_are_refused() {
    let data = DataSet::open(golden("raw_lmdb")).unwrap();
    for threads in [1025, usize::MAX] {
        let said = scanned(&data, Scan { threads: NonZeroUsize::new(threads), ..Scan::default() });
        let said = said.unwrap_err().to_string();
        assert_eq!(said, format!("{threads} threads are too many; at most 1024 are allowed"));
    }
}

#[derive(Debug)]
struct Refused;

impl From<ScanError> for Refused {
    fn from(_: ScanError) -> Self {
        Refused
    }
}

#[test]
fn progress_counts_records_or_bytes() {
    let count = |path: &Path| {
        let (data, progress) = (DataSet::open(path).unwrap(), Progress::new());
        let _: Result<_, ScanError> = Scan::default().run(&data, &progress, || (), |(), _| (), |_| Ok(()));
        progress
    };
    let lmdb = count(&golden("raw_lmdb"));
    assert_eq!((lmdb.total(), lmdb.done()), (lmdb.records(), lmdb.records()));
    let file = count(&data("tensorflow/raw.tfrecord"));
    assert!(file.total() > 0 && file.records() > 0);
    assert_eq!(file.done(), file.bytes().min(file.total()));
}
