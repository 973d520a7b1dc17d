//! Records of a store that is damaged, and readers that are told to end.

use std::cell::Cell;
use std::fs;
use std::num::NonZeroU32;

use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator_data::convert::{Convert, Progress};
use percolator_data::input::{Input as _, InputError, Records as Stored};
use percolator_data::store::Backend;

use crate::{names, read};

/// A damaged record is skipped and listed. What is behind damage that takes an unknown number of records with
/// it cannot be converted, and the error says what can be done.
#[test]
fn damaged_records_of_a_store_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    (0..200u8).for_each(|number| writer.write(&[number; 50]).unwrap());
    writer.finish().unwrap();
    let whole = fs::read(&path).unwrap();
    let length = whole.len() / 200;
    let mut bytes = whole.clone();
    for number in [0, 70, 71, 199] {
        bytes[number * length + 20] ^= 1;
    }
    fs::write(&path, &bytes).unwrap();
    let shards = NonZeroU32::new(2).unwrap();
    for (name, shards) in [("one", None), ("two", Some(shards))] {
        let output = folder.path().join(name);
        let mut convert = Convert::new(Stored::open(&path).unwrap(), &output, Backend::Lmdb);
        if let Some(shards) = shards {
            convert = convert.shards(shards);
        }
        let summary = convert.run(&Progress::new()).unwrap();
        assert_eq!((summary.records, summary.skipped), (196, 4), "{name}");
        let items: Vec<_> = summary.first_skipped.iter().map(|skipped| skipped.item).collect();
        assert_eq!(items, [0, 70, 71, 199]);
        let skipped = &summary.first_skipped[1];
        assert_eq!(skipped.key, "00000070");
        assert!(skipped.reason.starts_with("it cannot be read: "), "{}", skipped.reason);
        let keys: Vec<_> = summary
            .outputs
            .iter()
            .flat_map(|output| read(Backend::Lmdb, output))
            .map(|(key, _)| key)
            .collect();
        let wanted = (0..200).filter(|number| !items.contains(number));
        assert_eq!(keys, wanted.map(|number| format!("{number:08}").into_bytes()).collect::<Vec<_>>());
    }
    // From anywhere on, the items are the same.
    let input = Stored::open(&path).unwrap();
    let from = |number| input.reader(number).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let all = from(0);
    assert_eq!(all.len(), 200);
    for number in [1usize, 70, 71, 72, 199, 200, 201] {
        assert!(from(number as u64) == all.get(number..).unwrap_or_default(), "{number}");
    }
    // A damaged length takes the rest of the file with it.
    bytes[100 * length + 2] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let convert = Convert::new(Stored::open(&path).unwrap(), folder.path().join("lost"), Backend::Lmdb);
    let said = convert.run(&Progress::new()).unwrap_err().to_string();
    assert!(said.contains("records from number 100 on cannot be converted"), "{said}");
    assert!(said.contains(&format!("`percolator verify {} --repair CLEAN`", path.display())), "{said}");
    assert!(said.contains("--resume"), "{said}");
    let said = Stored::open(&path).unwrap().count(&|| false).unwrap_err().to_string();
    assert!(said.contains("records from number 100 on"), "{said}");
}

/// Counting, and passing over what an earlier run did, end when they are told to.
#[test]
fn counting_and_passing_over_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    (0..20_000u32).for_each(|number| writer.write(&number.to_le_bytes()).unwrap());
    writer.finish().unwrap();
    let input = Stored::open(&path).unwrap();
    let asked = Cell::new(0);
    let third = || {
        asked.set(asked.get() + 1);
        asked.get() > 2
    };
    assert!(matches!(input.count(&third), Err(InputError::Stopped)));
    asked.set(0);
    assert!(matches!(input.reader_unless_stopped(19_000, &third).map(drop), Err(InputError::Stopped)));
    let progress = Progress::new();
    progress.stop();
    let shards = NonZeroU32::new(2).unwrap();
    let convert = Convert::new(input, folder.path().join("out"), Backend::Lmdb).shards(shards);
    // It ends while it counts, before there is any output.
    let ended = convert.run(&progress).unwrap_err();
    assert!(ended.is_stop(), "{ended}");
    assert_eq!(names(folder.path()), ["a.tfrecord"]);
    assert_eq!(Stored::open(&path).unwrap().count(&|| false).unwrap(), 20_000);
}
