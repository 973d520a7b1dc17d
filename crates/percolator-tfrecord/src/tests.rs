//! Walks over files of both forms: to a place, past records, from a file to the next with the same buffers.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use percolator_files::{Access, SpareBuffers};

use crate::{
    Compression, LARGE_BYTES, Options, PackedWalk, PlainWalk, RecordFile, TfRecordError, TfRecordWriter,
};

/// Bytes that a walk leaves to its caller.
const ROOM: usize = 20;

fn records() -> Vec<Vec<u8>> {
    let lengths = [3, LARGE_BYTES + 7, 0, 700, LARGE_BYTES, 1 << 20, 12];
    lengths.iter().map(|bytes| (0..=250_u8).cycle().skip(bytes % 7).take(*bytes).collect()).collect()
}

fn write(path: &Path, compression: Compression) {
    let mut writer = TfRecordWriter::create(path, compression).unwrap();
    records().iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
}

fn open(path: &Path, access: Access) -> RecordFile {
    RecordFile::open(path, &Options { access, ..Options::default() }).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "needs the system's files")]
fn a_record_is_read_by_its_place_and_its_buffer_can_be_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write(&path, Compression::Plain);
    for access in [Access::Mapped, Access::Read] {
        let file = open(&path, access);
        let plain = file.plain().unwrap();
        let mut places = PlainWalk::scan(plain).unwrap();
        places.push(plain.state().bytes);
        let map = plain.map_by_position().unwrap().cloned();
        assert_eq!(map.is_some(), access == Access::Mapped);
        let mut walk = PlainWalk::new(plain, ROOM);
        for (number, due) in records().iter().enumerate().rev() {
            walk.jump(number as u64, (places[number], places[number + 1]));
            let frame = walk.step(map.as_deref()).unwrap().unwrap();
            assert_eq!((frame.end(), walk.position()), (places[number + 1], number as u64 + 1));
            let data = match &map {
                Some(map) => {
                    map.check(map.data(frame)).unwrap();
                    map.data(frame)
                }
                None => {
                    walk.read(frame).unwrap();
                    walk.data()
                }
            };
            assert!(data == due, "record {number}, {access:?}");
            if map.is_none() {
                assert_eq!(walk.alone().is_some(), due.len() >= LARGE_BYTES);
                if let Some(place) = walk.alone() {
                    assert_eq!(place.start, ROOM);
                    let taken = std::mem::take(walk.buffer());
                    assert!(taken[place] == *due);
                }
            }
        }
        // A wrong place is noticed, or it is one of a record that ends elsewhere.
        walk.jump(1, (places[1] + 1, places[2]));
        assert!(matches!(walk.step(map.as_deref()), Err(TfRecordError::Length { .. })));
        walk.rewind();
        assert_eq!(walk.step(map.as_deref()).unwrap().unwrap().offset, 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs the system's files")]
fn a_compressed_file_is_gone_on_with_after_it_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for compression in [Compression::Gzip, Compression::Zlib] {
        write(&path, compression);
        let file = open(&path, Access::Auto);
        assert!(matches!(file.plain(), Err(TfRecordError::InOrderAlone { .. })));
        let RecordFile::Packed(packed) = &file else { panic!("{file:?}") };
        assert_eq!(PackedWalk::scan(packed).unwrap().len(), records().len());
        let mut walk = PackedWalk::new(packed, ROOM);
        let spare = Rc::default();
        walk.share_buffers(&spare);
        for _ in 0..2 {
            for (number, due) in records().iter().enumerate() {
                if number % 3 == 2 {
                    walk.skip().unwrap().unwrap();
                    continue;
                }
                walk.step().unwrap().unwrap();
                assert!(walk.data() == due, "record {number}, {compression:?}");
                assert_eq!(walk.alone().is_some(), due.len() >= LARGE_BYTES);
                walk.close();
                assert!(walk.data().is_empty() && spare.take().value.len() >= ROOM + due.len());
            }
            assert_eq!((walk.step(), walk.position()), (Ok(None), records().len() as u64));
            walk.rewind();
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs the system's files")]
fn walks_over_several_files_share_their_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["one", "two"].map(|name| {
        let path = folder.path().join(name);
        write(&path, Compression::Plain);
        open(&path, Access::Read)
    });
    let spare: Rc<SpareBuffers> = Rc::default();
    let mut walks = files.each_ref().map(|file| PlainWalk::new(file.plain().unwrap(), 0));
    assert!(!walks[0].put_buffers(), "it shares none yet");
    walks.iter_mut().for_each(|walk| walk.share_buffers(&spare));
    let mut buffers = Vec::new();
    for due in records() {
        for walk in &mut walks {
            let frame = walk.step(None).unwrap().unwrap();
            walk.read(frame).unwrap();
            assert!(walk.data() == due);
            assert!(walk.put_buffers() && walk.data().is_empty());
            let kept = spare.take();
            buffers.push(kept.window.as_ptr());
            spare.put(kept);
        }
    }
    // They are the same for all, once they are large enough.
    buffers.dedup();
    assert!(buffers.len() <= 2, "{buffers:?}");
}

#[test]
#[cfg_attr(miri, ignore = "needs the system's files")]
fn a_file_that_another_one_has_replaced_is_not_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for compression in [Compression::Plain, Compression::Gzip] {
        write(&path, compression);
        let file = open(&path, Access::Read);
        write(&path, compression);
        let found = match &file {
            RecordFile::Plain(plain) => PlainWalk::new(plain, 0).step(None),
            RecordFile::Packed(packed) => PackedWalk::new(packed, 0).step(),
        };
        assert!(matches!(found, Err(TfRecordError::Changed { .. })), "{found:?}");
    }
    let none = RecordFile::open(&folder.path().join("none"), &Options::default()).unwrap_err();
    assert!(matches!(none, TfRecordError::Io { action: "open the file", .. }), "{none}");
    let folder = RecordFile::open(folder.path(), &Options::default()).unwrap_err();
    assert!(matches!(folder, TfRecordError::NoFile { found: "a folder", .. }), "{folder}");
    fs::write(&path, "<!DOCTYPE html>\n<html>").unwrap();
    let page = RecordFile::open(&path, &Options::default()).unwrap_err();
    assert!(matches!(page, TfRecordError::Instead { wanted: "a TFRecord file", .. }), "{page}");
}
