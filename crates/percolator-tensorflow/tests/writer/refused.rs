//! What cannot be written says why, and harms nothing that was written before.

use std::error::Error;
use std::io::{self, Write};

use percolator_leveldb::table::{TableBuilder, TableOptions};
use percolator_tensorflow::checkpoint::{Extent, ManagerOptions, StateFile, WriteError};
use percolator_tensorflow::{CheckpointManager, CheckpointWriter, DataType, Tensor};
use tempfile::tempdir;

use crate::bundle::{Content, read};

fn numbers(shape: &[usize]) -> Tensor<'static> {
    Tensor::new(DataType::Int8, shape, vec![1; shape.iter().product()]).unwrap()
}

#[test]
fn names_types_and_regions_are_checked_before_a_byte_is_written() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    let mut writer = CheckpointWriter::create(&prefix).unwrap();
    writer.add("a", &numbers(&[2])).unwrap();
    let part = |region: &[(usize, usize)]| -> Vec<Extent> {
        region.iter().map(|&(start, end)| Extent::from(start..end)).collect()
    };
    writer.add_slice("s", &[4, 3], &part(&[(0, 2), (0, 3)]), &numbers(&[2, 3])).unwrap();
    let mut check = |due: &str, done: &dyn Fn(&mut CheckpointWriter) -> Result<(), WriteError>| {
        let message = done(&mut writer).unwrap_err().to_string();
        assert!(message.contains(due) && message.contains("model"), "{message}");
    };
    check("tensor \"\": the empty key", &|writer| writer.add("", &numbers(&[])));
    let slice_key = [0, b's', 0, 1, 1, 2, 0x82, 0x82, 0x80, 0x83];
    check("keys of slices", &|writer| writer.add(slice_key, &numbers(&[])));
    check("\"\\xff\": it is not UTF-8", &|writer| writer.add([255], &numbers(&[])));
    check("\"a\": it is there already", &|writer| writer.add("a", &numbers(&[])));
    check("\"s\": it is there already", &|writer| writer.add("s", &numbers(&[4, 3])));
    check("\"a\": it is there already", &|writer| {
        writer.add_slice("a", &[4], &part(&[(0, 1)]), &numbers(&[1]))
    });
    check("the region 1,2:0,1 has elements in common with 0,2:0,3", &|writer| {
        writer.add_slice("s", &[4, 3], &part(&[(1, 3), (0, 1)]), &numbers(&[2, 1]))
    });
    check("earlier slices are of a tensor of type int8 and shape [4, 3]", &|writer| {
        writer.add_slice("s", &[5, 3], &part(&[(4, 5), (0, 3)]), &numbers(&[1, 3]))
    });
    check("the slice has the shape [1], and its region has [2]", &|writer| {
        writer.add_slice("t", &[4], &part(&[(1, 3)]), &numbers(&[1]))
    });
    check("the region 3,2 is not one of a tensor of shape [4]: an extent ends past its axis", &|writer| {
        writer.add_slice("t", &[4], &part(&[(3, 5)]), &numbers(&[2]))
    });
    check("one extent an axis", &|writer| writer.add_slice("t", &[4], &[], &numbers(&[4])));
    check("it is empty", &|writer| writer.add_slice("t", &[4], &part(&[(2, 2)]), &numbers(&[0])));
    check("type resource", &|writer| writer.add_strings("r", DataType::Resource, &[0], [] as [&str; 0]));
    check("write it with add or begin", &|writer| writer.add_strings("r", DataType::Int8, &[1], ["a"]));
    check("write it with add_strings", &|writer| writer.begin("r", DataType::String, &[]).map(drop));
    check("has 2 strings, not 1", &|writer| writer.add_strings("r", DataType::String, &[2], ["a"]));
    check("255 extents", &|writer| writer.begin("r", DataType::Int8, &[1; 255]).map(drop));
    check("more elements than memory can hold", &|writer| {
        writer.begin("r", DataType::Int64, &[usize::MAX >> 1, 2]).map(drop)
    });
    check("greater than 9223372036854775807", &|writer| {
        writer.begin("r", DataType::Int64, &[usize::MAX, 0]).map(drop)
    });
    check("1 is no number of a data file: there are 1", &|writer| writer.set_shard(1));
    writer.add_slice("s", &[4, 3], &part(&[(2, 4), (0, 3)]), &numbers(&[2, 3])).unwrap();
    // The whole of a tensor is no slice.
    writer.add_slice("whole", &[2, 2], &[(..).into(), (0..2).into()], &numbers(&[2, 2])).unwrap();
    assert_eq!(writer.finish().unwrap(), prefix);
    let (_, all) = read(&prefix);
    let found: Vec<_> = all.iter().map(|one| (&one.name[..], one.slice.is_some())).collect();
    assert_eq!(found, [(&b"a"[..], false), (b"s", true), (b"s", true), (b"whole", false)]);
}

#[test]
fn a_tensor_in_pieces_is_whole_or_the_checkpoint_is_not_written() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    for pieces in [&[3_usize, 0, 5][..], &[8], &[1; 8], &[7], &[], &[4, 5]] {
        let mut writer = CheckpointWriter::create(&prefix).unwrap();
        let mut tensor = writer.begin("a", DataType::Int16, &[4]).unwrap();
        let added = pieces.iter().try_for_each(|&length| tensor.add(&vec![9; length]));
        let sum: usize = pieces.iter().sum();
        assert_eq!(added.is_ok(), sum <= 8);
        let finished = if added.is_ok() { tensor.finish() } else { added };
        if sum == 8 {
            finished.unwrap();
            writer.finish().unwrap();
            let (_, all) = read(&prefix);
            assert!(matches!(&all[0].content, Content::Bytes(bytes) if *bytes == [9; 8]));
            continue;
        }
        if sum < 8 {
            let message = finished.unwrap_err().to_string();
            assert!(message.contains(&format!("shape [4] has 8 bytes, not {sum}")), "{message}");
        }
        let message = writer.add("b", &numbers(&[1])).unwrap_err().to_string();
        assert!(message.contains("the tensor \"a\" was not written whole"), "{message}");
        assert!(matches!(writer.finish(), Err(WriteError::Failed { .. })));
    }
    // What was there is there still, and nothing else.
    assert_eq!(read(&prefix).1.len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn slices_that_do_not_cover_their_tensor_are_refused() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    let rows = |first: usize| [Extent::from(first..first + 2), Extent::All];
    for slices in 1..=3 {
        let mut writer = CheckpointWriter::create(&prefix).unwrap();
        for slice in 0..slices {
            writer.add_slice("s", &[6, 5], &rows(2 * slice), &numbers(&[2, 5])).unwrap();
        }
        let finished = writer.finish();
        if slices == 3 {
            finished.unwrap();
            continue;
        }
        let message = finished.unwrap_err().to_string();
        let due =
            format!("\"s\": its shape [6, 5] has 30 elements, and its {slices} slices have {}", 10 * slices);
        assert!(message.contains(&due) && message.contains("model"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    assert_eq!(read(&prefix).1.len(), 3);
}

#[test]
fn prefixes_and_numbers_of_files_are_checked() {
    let folder = tempdir().unwrap();
    for prefix in ["", "/", "..", "a/..", "a/"] {
        let error = CheckpointWriter::create(folder.path().join(prefix)).unwrap_err();
        let is_refused = prefix.is_empty() || matches!(error, WriteError::Refused { .. });
        assert!(is_refused, "{prefix}: {error}");
    }
    for shards in [0, 100_000] {
        let error = CheckpointWriter::create_sharded(folder.path().join("a"), shards).unwrap_err();
        assert!(matches!(error, WriteError::Refused { .. }), "{error}");
    }
    let writer = CheckpointWriter::create(folder.path().join("new/folders/model")).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&folder.path().join("new/folders/model")).1.len(), 0);
}

/// A disk that is full.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn each_cause_is_said_once() {
    let folder = tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("file"), "").unwrap();
    std::fs::create_dir(path.join("checkpoint")).unwrap();
    let unwritable = || CheckpointWriter::create(path.join("file/model")).unwrap_err();
    let of_table =
        TableBuilder::new(Full, TableOptions::default()).finish().map(drop).expect_err("the disk is full");
    let index = WriteError::Index { path: path.join("model.index"), source: of_table };
    let of_index = format!("{index}");
    assert!(of_index.ends_with("model.index: the index cannot be written"), "{of_index}");
    let errors: [(Box<dyn Error>, &str); 4] = [
        (unwritable().into(), "file"),
        (Box::new(index), "no storage space"),
        (StateFile::of(path).read().unwrap_err().into(), "checkpoint"),
        (
            CheckpointManager::open(path.join("file"), ManagerOptions::saver())
                .map_err(Box::<dyn Error>::from)
                .expect_err("it is no folder"),
            "file",
        ),
    ];
    for (error, due) in errors {
        let causes = std::iter::successors(Some(&*error as &dyn Error), |&cause| cause.source());
        let said: Vec<_> = causes.map(ToString::to_string).collect();
        assert!(said.len() > 1 && said.join(": ").contains(due), "{said:?}");
        for (number, one) in said.iter().enumerate() {
            assert!(!said[..number].iter().any(|before| before.contains(one)), "{said:?}");
        }
    }
}
