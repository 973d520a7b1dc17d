//! Nothing in a page of an LMDB is trusted: whatever is damaged, reading gives an error or the records of the
//! undamaged file, each once. A child process does the reading, so that a signal would be noticed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lmdb::{Environment, Transaction as _, WriteFlags};
use percolator::Feed;
use percolator::source::{Access, Cursor, IndexPlace, Lmdb, Source, SourceError};
use tempfile::{TempDir, tempdir};

use crate::anatomy::Anatomy;
use crate::common;
use crate::common::indexed::{Records, Written, mixed, page_bytes, walked};
use crate::common::lmdb_forge::{Numbers, forge};
use crate::common::process::{check, child_command, role, this_test};

/// A data file, its records, and its index.
struct Whole {
    folder: TempDir,
    records: Records,
    bytes: Vec<u8>,
    modified: SystemTime,
    anatomy: Anatomy,
}

impl Whole {
    fn of(bytes: Vec<u8>) -> Self {
        let folder = tempdir().unwrap();
        let path = folder.path().join("lmdb");
        fs::create_dir(&path).unwrap();
        let data = path.join("data.mdb");
        fs::write(&data, &bytes).unwrap();
        let source = Lmdb::open_without_lock(&path).unwrap();
        let records = walked(&source);
        source.index(&IndexPlace::Beside).unwrap();
        let modified = fs::metadata(&data).unwrap().modified().unwrap();
        fs::copy(folder.path().join(SIDECAR), folder.path().join("kept")).unwrap();
        let anatomy = Anatomy::of(&bytes);
        Whole { folder, records, bytes, modified, anatomy }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("lmdb")
    }

    /// Replaces the file's bytes and keeps its modification time, with the index of the undamaged file beside
    /// it, or none.
    fn put(&self, bytes: &[u8], has_index: bool) {
        let data = self.path().join("data.mdb");
        // A new file, because the old one may still be mapped.
        fs::remove_file(&data).unwrap();
        fs::write(&data, bytes).unwrap();
        fs::File::options().write(true).open(&data).unwrap().set_modified(self.modified).unwrap();
        let sidecar = self.folder.path().join(SIDECAR);
        match has_index {
            true => drop(fs::copy(self.folder.path().join("kept"), sidecar).unwrap()),
            false => drop(fs::remove_file(sidecar)),
        }
    }
}

const SIDECAR: &str = "lmdb.percolator-index";

/// Files of small records, of large ones, of both in many commits, with holes, with deep trees, and with
/// pages of other lengths.
fn wholes() -> Vec<Whole> {
    let written = |folder: &Path| fs::read(folder.join("data.mdb")).unwrap();
    let value =
        |index: usize, bytes: usize| (0..bytes).map(|at| common::pixel(index, at)).collect::<Vec<u8>>();
    let small: Records = (0..700).map(|index| (common::key(index), value(index, 20 + index % 50))).collect();
    let large: Records = (0..40).map(|index| (common::key(index), value(index, 2100 + index * 97))).collect();
    let long_keys: Records = (0..400)
        .map(|index| (format!("{}{index:05}", "k".repeat(300)).into_bytes(), value(index, index % 30)))
        .collect();
    let mut files = Vec::new();
    for records in [&small, &large, &mixed(60)] {
        let folder = tempdir().unwrap();
        common::write_lmdb(folder.path(), records.iter().cloned());
        files.push(written(folder.path()));
    }
    let folder = tempdir().unwrap();
    let env = Environment::new().set_map_size(1 << 30).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    for round in 0..6 {
        let mut transaction = env.begin_rw_txn().unwrap();
        for index in (round..400).step_by(3) {
            let bytes = (index * 37 + round * 501) % 2600;
            transaction
                .put(database, &common::key(index), &value(index, bytes), WriteFlags::empty())
                .unwrap();
        }
        for index in (round..300).step_by(7) {
            let _ = transaction.del(database, &common::key(index), None);
        }
        transaction.commit().unwrap();
    }
    drop(env);
    files.push(written(folder.path()));
    files.push(forge(512, &small));
    files.push(forge(1024, &long_keys));
    files.push(forge(65536, &mixed(60)));
    files.into_iter().map(Whole::of).collect()
}

/// The keys that a cursor finds, in its order, or its error.
fn keys(cursor: &mut dyn Cursor) -> Result<Vec<Vec<u8>>, SourceError> {
    let mut keys = Vec::new();
    while let Some(entry) = cursor.advance()? {
        // Every byte is accessible.
        std::hint::black_box(entry.value().iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        keys.push(entry.key().to_vec());
    }
    Ok(keys)
}

/// The keys of the records at all positions, in another order.
fn shuffled(source: &Lmdb, place: &IndexPlace, records: usize) -> Result<Vec<Vec<u8>>, SourceError> {
    source.index(place)?;
    let mut cursor = source.cursor()?;
    let mut keys = vec![Vec::new(); records];
    for number in 0..records {
        let position = number * 7919 % records;
        cursor.seek(position as u64)?;
        match cursor.advance()? {
            Some(entry) => keys[position] = entry.key().to_vec(),
            None => panic!("there is no record {position} of {records}, and no error"),
        }
    }
    cursor.seek(records as u64)?;
    assert!(cursor.advance()?.is_none(), "there are more than {records} records");
    Ok(keys)
}

/// How many records a feed delivers.
fn fed(path: &Path, access: Access) -> Result<usize, String> {
    let source =
        Lmdb::options().without_lock().access(access).open(path).map_err(|error| error.to_string())?;
    let feed = Feed::builder().source(source).batch_size(16).threads(1).once().build();
    let mut records = 0;
    for step in feed.map_err(|error| error.to_string())?.steps() {
        records += step.map_err(|error| error.to_string())?.len();
    }
    Ok(records)
}

/// Reads a file, damaged or not; returns whether it gave all records, and not an error.
fn walks(whole: &Whole, mode: &str, access: Access, has_index: bool, what: &str) -> bool {
    let (path, due) = (whole.path(), whole.records.len());
    let place = if has_index { IndexPlace::Beside } else { IndexPlace::Memory };
    let open = || Lmdb::options().without_lock().access(access).open(&path);
    let walked = match mode {
        // Its values are not Caffe's: a feed reaches the first one at most.
        "fed" => return fed(&path, access).is_ok_and(|records| records == due),
        "in order" => open().and_then(|source| keys(&mut *source.cursor()?)),
        "shuffled" => open().and_then(|source| shuffled(&source, &place, due)),
        _ => open().and_then(|source| {
            source.index(&place)?;
            let mut cursor = source.cursor()?;
            cursor.seek(1)?;
            cursor.seek(0)?;
            keys(&mut *cursor)
        }),
    };
    match walked {
        Ok(keys) => {
            let expected = whole.records.iter().map(|(key, _)| key);
            assert!(keys.iter().eq(expected), "{what}: {} records of {due}", keys.len());
            true
        }
        Err(error) => {
            assert!(error.to_string().contains(path.to_str().unwrap()), "{what}: {error}");
            false
        }
    }
}

#[test]
fn damaged_files_are_errors_or_give_the_records_of_the_whole_file() {
    let name = this_test!();
    // The full number is run by hand: PERCOLATOR_DAMAGED_FILES=100000.
    let count = std::env::var("PERCOLATOR_DAMAGED_FILES").map_or(2000, |count| count.parse().unwrap());
    let Some(log) = role() else {
        let log = tempfile::NamedTempFile::new().unwrap();
        let output = child_command(name, log.path().to_str().unwrap()).output().unwrap();
        let last = fs::read_to_string(log.path()).unwrap();
        assert!(
            output.status.success(),
            "{last}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        return check(name, &output);
    };
    let mut log = fs::File::create(log).unwrap();
    let wholes = wholes();
    let mut numbers = Numbers(20_261_122);
    let mut found: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for number in 0..count {
        let whole = &wholes[number % wholes.len()];
        let mut bytes = whole.bytes.clone();
        let mut what = match numbers.below(20) {
            0 => String::new(),
            _ => whole.anatomy.damage(&mut bytes, &mut numbers),
        };
        if what.is_empty() || numbers.below(20) == 0 {
            bytes.truncate(numbers.below(bytes.len()));
            what += &format!(" cut at {}", bytes.len());
        }
        let (mode, has_index) = numbers.of(&[
            ("in order", false),
            ("in order", true),
            ("shuffled", false),
            ("shuffled", true),
            ("by the index", true),
            ("fed", false),
        ]);
        let access = numbers.of(&[Access::Mapped, Access::Mapped, Access::Read]);
        whole.put(&bytes, has_index);
        let what = format!(
            "{number} (file {}): {what}, {mode}, {access:?}, index {has_index}",
            number % wholes.len()
        );
        log.set_len(0).unwrap();
        log.write_all(what.as_bytes()).unwrap();
        let is_whole = walks(whole, mode, access, has_index, &what);
        found.entry(mode).or_default()[usize::from(is_whole)] += 1;
    }
    println!("errors and whole: {found:?}");
    let [refused, whole] = found.values().fold([0, 0], |sum, each| [sum[0] + each[0], sum[1] + each[1]]);
    assert!(refused > count / 2 && whole > count / 20, "{refused} refused, {whole} not");
}

#[test]
fn a_damaged_database_is_an_error_of_a_feed_and_loses_nothing_before_it() {
    let records: Records = (0..200).map(|index| common::image(index, 3, 40, 40)).collect();
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), records);
    let data = folder.path().join("data.mdb");
    let mut bytes = fs::read(&data).unwrap();
    let anatomy = Anatomy::of(&bytes);
    // The first page of the 101st record's value.
    let page = anatomy.overflows[100];
    bytes[page * anatomy.page_bytes + 10] = 0x02;
    fs::remove_file(&data).unwrap();
    fs::write(&data, bytes).unwrap();
    let mut feed = Feed::builder().lmdb(folder.path()).batch_size(10).threads(2).once().build().unwrap();
    let mut labels = Vec::new();
    let mut error = None;
    for step in feed.steps() {
        match step {
            Ok(batches) => labels.extend(batches.iter().flat_map(|batch| batch.labels().to_vec())),
            Err(found) => error = Some(found.to_string()),
        }
    }
    assert!(labels.into_iter().eq(0..100));
    let error = error.unwrap();
    assert!(
        error.contains(&format!("page {page} holds no value of a record: it has the flags 0x0002")),
        "{error}"
    );
}

#[test]
fn damaged_pages_are_errors_or_make_no_difference() {
    let name = this_test!();
    if role().is_none() {
        return check(name, &child_command(name, "alone").output().unwrap());
    }
    let records: Records =
        (0..150_usize).map(|index| (common::key(index), vec![index as u8; index * 40 % 2500])).collect();
    let database = Written::with(records.clone());
    let whole = fs::read(database.path().join("data.mdb")).unwrap();
    let (mut refused, mut found) = (0, 0);
    let mut numbers = 12345_u64;
    let page_bytes = page_bytes(&whole);
    for page in 2..whole.len() / page_bytes {
        let is_tree = matches!(whole[page * page_bytes + 10], 1 | 2);
        // The header and offsets of each page of the tree, bytes of its nodes, and a few others.
        let nodes = (0..40).map(|_| {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (numbers >> 33) as usize % page_bytes
        });
        let places: Vec<usize> =
            if is_tree { (0..40).chain(nodes).collect() } else { nodes.take(2).collect() };
        for at in places {
            let mut damaged = whole.clone();
            damaged[page * page_bytes + at] ^= [0x01, 0x80, 0xff][at % 3];
            let path = database.folder.path().join(format!("damaged {page} {at}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("data.mdb"), damaged).unwrap();
            let Ok(source) = Lmdb::open_without_lock(&path) else {
                refused += 1;
                continue;
            };
            match source.index(&IndexPlace::Memory) {
                Err(
                    SourceError::BrokenPage { .. }
                    | SourceError::NoPositions { .. }
                    | SourceError::HoldsDatabases { .. },
                ) => refused += 1,
                Err(error) => panic!("page {page}, byte {at}: {error}"),
                Ok(()) => {
                    found += 1;
                    let mut cursor = source.cursor().unwrap();
                    let mut differ = 0;
                    for position in (0..records.len()).rev() {
                        cursor.seek(position as u64).unwrap();
                        let entry = cursor.advance().unwrap().unwrap();
                        differ += usize::from(entry.value() != records[position].1);
                    }
                    assert!(differ < 60, "page {page}, byte {at}: {differ} records differ");
                }
            }
            fs::remove_dir_all(&path).unwrap();
        }
    }
    println!("{refused} refused, {found} not");
    assert!(refused > 500 && found > 100, "{refused} refused, {found} not");
}

#[test]
fn a_tree_that_leads_back_to_itself_or_twice_to_a_page_is_an_error() {
    let database = Written::of(1000);
    let whole = fs::read(database.path().join("data.mdb")).unwrap();
    let page_bytes = page_bytes(&whole);
    let branches: Vec<usize> =
        (2..whole.len() / page_bytes).filter(|page| whole[page * page_bytes + 10] == 1).collect();
    let root = *branches.last().unwrap();
    // Where the offset of a node on the root says that the node starts.
    let node = |number: usize| {
        let at = root * page_bytes + 16 + 2 * number;
        root * page_bytes + usize::from(u16::from_le_bytes([whole[at], whole[at + 1]]))
    };
    let second = u16::from_le_bytes([whole[node(1)], whole[node(1) + 1]]);
    for (what, child) in
        [("itself", root as u16), ("another's page", second), ("a meta page", 1), ("no page", 0xfff0)]
    {
        let mut changed = whole.clone();
        changed[node(0)..][..2].copy_from_slice(&child.to_le_bytes());
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), changed).unwrap();
        let source = Lmdb::open_without_lock(folder.path()).unwrap();
        let error = source.index(&IndexPlace::Memory).unwrap_err();
        println!("{what}: {error}");
        assert!(matches!(error, SourceError::BrokenPage { .. }), "{what}: {error}");
    }
}

#[test]
fn a_page_that_is_damaged_after_it_was_indexed_is_an_error() {
    let database = Written::with(mixed(300));
    let records = walked(&database.open());
    drop(database.indexed());
    let data = database.path().join("data.mdb");
    let modified = fs::metadata(&data).unwrap().modified().unwrap();
    let mut damaged = fs::read(&data).unwrap();
    let page_bytes = page_bytes(&damaged);
    for page in (2 * page_bytes..damaged.len()).step_by(page_bytes) {
        if damaged[page + 10] == 2 {
            damaged[page + 8..][..8].fill(0xee);
        }
    }
    // Replaces the file but keeps its length and time, so that the index seems to match.
    fs::write(&data, damaged).unwrap();
    fs::File::options().write(true).open(&data).unwrap().set_modified(modified).unwrap();
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    for position in 0..records.len() {
        cursor.seek((position * 7 % records.len()) as u64 + 1).unwrap();
        cursor.seek((position * 7 % records.len()) as u64).unwrap();
        let error = cursor.advance().unwrap_err();
        assert!(error.to_string().contains("is not a leaf"), "{error}");
    }
}
