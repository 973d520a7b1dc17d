//! Copies of files that change, or are made, while a copy is made of them.

use std::sync::Barrier;

use flate2::write::GzEncoder;

use super::*;
use crate::source::Source as _;
use crate::source::tfrecord::TfRecord;
use crate::source::tfrecord::frame::checksum_of;

/// A file of stored records, so that its length does not depend on them.
fn write_stored(path: &Path, seed: u8) {
    let mut file = GzEncoder::new(File::create(path).unwrap(), flate2::Compression::none());
    for number in 0..40_u8 {
        let data = vec![number ^ seed; 40_000];
        file.write_all(&head_of(40_000)).unwrap();
        file.write_all(&data).unwrap();
        file.write_all(&checksum_of(&data).to_le_bytes()).unwrap();
    }
    file.finish().unwrap();
}

fn packed(path: &Path) -> Packed {
    let (_, state) = open_files::open(path).unwrap();
    let (compression, access) = (Compression::Gzip, percolator_files::Access::Mapped);
    Packed { path: path.to_owned(), state, compression, access }
}

/// Does something at the first write.
struct AtFirst<F: FnOnce()>(Option<F>, Vec<u8>);

impl<F: FnOnce()> Write for AtFirst<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(first) = self.0.take() {
            first();
        }
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unpack_while(path: &Path, act: impl FnOnce()) -> Result<Vec<u8>, String> {
    let packed = packed(path);
    let file = open_again(path, packed.state).unwrap();
    let mut out = AtFirst(Some(act), Vec::new());
    match unpack(&packed, file, &mut out) {
        Ok(_) => Ok(out.1),
        Err(Failed::Read(error)) => Err(error.to_string()),
        Err(Failed::Write { error, .. }) => panic!("{error}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "it sets a file's time")]
fn a_file_that_changes_while_it_is_unpacked_gets_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let write = |name: &str, seed| {
        write_stored(&at(name), seed);
        File::options().write(true).open(at(name)).unwrap().set_modified(long_ago).unwrap();
    };
    write("file", 0);
    write("other", 99);
    let unchanged = unpack_while(&at("file"), || ()).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().len(), fs::metadata(at("other")).unwrap().len());
    let replaced = unpack_while(&at("file"), || fs::rename(at("other"), at("file")).unwrap()).unwrap_err();
    assert!(replaced.contains("another file has taken its place"), "{replaced}");
    // Its last bytes, which have been read, and its own bytes once more, with the time that it had.
    for (from, said) in [(1_500_000, "it was written to since"), (0, "it was written to while")] {
        write("file", 0);
        let bytes = fs::read(at("file")).unwrap();
        let rewrite = || {
            let file = File::options().write(true).open(at("file")).unwrap();
            file.write_all_at(&bytes[from..], from as u64).unwrap();
            if from == 0 {
                file.set_modified(long_ago).unwrap();
            }
        };
        let error = unpack_while(&at("file"), rewrite).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    write("file", 0);
    assert!(unpack_while(&at("file"), || ()).unwrap() == unchanged);
}

/// Without a lock, several processes unpack a file, and the first complete copy stays.
#[test]
#[cfg_attr(miri, ignore = "locks its temporary file")]
fn without_locks_the_first_copy_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("file"), folder.path().join("copy"));
    write_stored(&path, 0);
    let packed = packed(&path);
    let start = Barrier::new(6);
    let found: Vec<_> = std::thread::scope(|scope| {
        let make = || {
            start.wait();
            make(&packed, &copy).unwrap().0.state.id
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let stays = FileId::of(&fs::metadata(&copy).unwrap());
    assert!(found.iter().all(|id| *id == stays));
    assert!(make(&packed, &copy).unwrap().1.is_none());
    assert_eq!(FileId::of(&fs::metadata(&copy).unwrap()), stays);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left over");
    // Another file that has taken the place of a copy judged useless is not removed.
    let other = FileId::of(&fs::metadata(&path).unwrap());
    remove(&copy, other).unwrap();
    assert!(copy.exists());
    remove(&copy, stays).unwrap();
    assert!(!copy.exists());
    remove(&copy, stays).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri many minutes")]
fn a_copy_needs_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write_stored(&path, 0);
    let packed = packed(&path);
    let file = File::open(&path).unwrap();
    assert_eq!(least_bytes(&packed, &file), packed.bytes(), "what is stored takes as much");
    let zeros = folder.path().join("zeros");
    let mut out = GzEncoder::new(File::create(&zeros).unwrap(), flate2::Compression::fast());
    out.write_all(&[0; 300_000]).unwrap();
    out.finish().unwrap();
    assert_eq!(least_bytes(&self::packed(&zeros), &File::open(&zeros).unwrap()), 300_000, "as it states");
    check_room(&packed, folder.path(), 1).unwrap();
    if cfg!(target_os = "linux") {
        let error = check_room(&packed, folder.path(), u64::MAX).unwrap_err().to_string();
        let named = [
            &*path.to_string_lossy(),
            &folder.path().to_string_lossy(),
            "some 18446744073709551615 bytes or more",
        ];
        assert!(named.iter().all(|part| error.contains(part)) && error.contains("in order"), "{error}");
    }
    // A disk that is full.
    let full = unpack(&packed, file, &mut File::options().write(true).open("/dev/full").unwrap());
    let Err(Failed::Write { error, bytes }) = full else { panic!("/dev/full takes everything") };
    assert!(is_full(&error) && bytes > 0);
}

#[test]
#[cfg_attr(miri, ignore = "locks files")]
fn a_forged_member_behind_the_end_of_its_file_makes_a_new_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("file"), folder.path().join("file.percolator-unpacked"));
    write_stored(&path, 0);
    let packed = packed(&path);
    let mut trailer = Vec::new();
    trailer.extend_from_slice(&(packed.bytes() + 1).to_le_bytes());
    trailer.extend_from_slice(&[0; TAIL_BYTES]);
    trailer.extend_from_slice(&packed.bytes().to_le_bytes());
    trailer.extend_from_slice(&0_u64.to_le_bytes());
    trailer.extend_from_slice(&1_u32.to_le_bytes());
    trailer.extend_from_slice(&crc32c(&trailer).to_le_bytes());
    trailer.extend_from_slice(&MAGIC);
    fs::write(&copy, &trailer).unwrap();
    assert!(matches!(look(&packed, &copy).unwrap(), Look::Useless { .. }));
    let source = TfRecord::open(&path).unwrap();
    source.index(&IndexPlace::Beside).unwrap();
    assert_eq!(source.records(), Some(40));
}

#[test]
#[cfg_attr(miri, ignore = "locks files")]
fn a_forged_trailer_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("file"), folder.path().join("copy"));
    write_stored(&path, 0);
    let packed = packed(&path);
    let count = u32::MAX;
    let mut fixed = Vec::new();
    fixed.extend_from_slice(&packed.bytes().to_le_bytes());
    fixed.extend_from_slice(&0_u64.to_le_bytes());
    fixed.extend_from_slice(&count.to_le_bytes());
    fixed.extend_from_slice(&[0; 4]);
    fixed.extend_from_slice(&MAGIC);
    let file = File::create_new(&copy).unwrap();
    file.write_all_at(&fixed, u64::from(count) * MEMBER_BYTES as u64).unwrap();
    assert!(read_trailer(&File::open(&copy).unwrap(), file.metadata().unwrap().len()).unwrap().is_none());
    assert!(matches!(look(&packed, &copy).unwrap(), Look::Useless { .. }));
    let source = TfRecord::open(&path).unwrap();
    fs::rename(&copy, folder.path().join("file.percolator-unpacked")).unwrap();
    source.index(&IndexPlace::Beside).unwrap();
    assert_eq!(source.records(), Some(40));
}
