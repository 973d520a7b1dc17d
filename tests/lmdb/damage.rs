//! LMDBs on the damage harness. Nothing in a page is trusted: whatever is damaged, reading gives an error or
//! the records of the undamaged file, each once.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use lmdb::{Cursor as _, Environment, Transaction as _, WriteFlags};
use percolator::order::{AutoShardPolicy, JobWorker, LastBatch, Shuffle, World};
use percolator::source::{Access, IndexPlace, Joined, Lmdb, LmdbError, Source, SourceError};
use percolator::{Epochs, Feed, FeedBuilder, FeedError, RawBytes};
use tempfile::{TempDir, tempdir};

use crate::anatomy::Anatomy;
use crate::common;
use crate::common::indexed::{Records, Written, mixed, page_bytes, shuffled, walked};
use crate::common::lmdb_forge::{Numbers, bytes_put, forge, whole};
use crate::common::process::this_test;
use crate::harness::{self, CHANGED_AFTER, Case, Format, Guard, Reading, Stated, Way};

/// One data file, whose parts are known.
struct Database {
    name: &'static str,
    bytes: Vec<u8>,
    anatomy: Anatomy,
    files: Vec<Stated>,
    /// Its records, in their order and in that of [`shuffled`].
    wholes: [Records; 2],
}

impl Database {
    fn of(name: &'static str, bytes: Vec<u8>) -> Self {
        let folder = tempdir().unwrap();
        let path = folder.path().join("lmdb");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data.mdb"), &bytes).unwrap();
        let file = fs::File::options().write(true).open(path.join("data.mdb")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + CHANGED_AFTER).unwrap();
        let source = Lmdb::open_without_lock(&path).unwrap();
        let mut wholes = [walked(&source), Records::new()];
        shuffled(&source, &mut wholes[1]).unwrap();
        let index = fs::read(folder.path().join(SIDECAR)).unwrap();
        let anatomy = Anatomy::of(&bytes);
        let mut file = Stated::of(DATA, bytes.clone(), BARE);
        anatomy.mark_heads(&mut file);
        Database { name, anatomy, bytes, files: vec![file, Stated::kept(SIDECAR, index)], wholes }
    }
}

const DATA: &str = "lmdb/data.mdb";
const SIDECAR: &str = "lmdb.percolator-index";

fn value(index: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| common::pixel(index, at)).collect()
}

fn small() -> Records {
    (0..700).map(|index| (common::key(index), value(index, 20 + index % 50))).collect()
}

fn large() -> Records {
    (0..40).map(|index| (common::key(index), value(index, 2100 + index * 97))).collect()
}

fn long_keys() -> Records {
    (0..400)
        .map(|index| (format!("{}{index:05}", "k".repeat(300)).into_bytes(), value(index, index % 30)))
        .collect()
}

/// As liblmdb writes them in one commit.
fn written(records: Records) -> Vec<u8> {
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), records);
    fs::read(folder.path().join("data.mdb")).unwrap()
}

/// In many commits, with holes.
fn rewritten() -> Vec<u8> {
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
    fs::read(folder.path().join("data.mdb")).unwrap()
}

const WAYS: [Way; 9] = [
    Way::of(IN_ORDER),
    Way::seldom(IN_ORDER_READ, 3),
    Way::seldom(SHUFFLED, 3),
    Way::seldom(SHUFFLED_READ, 6),
    Way::seldom(BY_OLD_INDEX, 3),
    Way::seldom(BY_OLD_INDEX_READ, 6),
    Way::seldom(FED, 8),
    Way::seldom(FED_READ, 16),
    Way::seldom(FED_BY_PLAN, 8),
];

const IN_ORDER: &str = "in order";
const IN_ORDER_READ: &str = "in order, read";
const SHUFFLED: &str = "shuffled";
const SHUFFLED_READ: &str = "shuffled, read";
/// With the index of the undamaged file beside it.
const BY_OLD_INDEX: &str = "shuffled, by an old index";
const BY_OLD_INDEX_READ: &str = "shuffled, by an old index, read";
const FED: &str = "fed";
const FED_READ: &str = "fed, read";
const FED_BY_PLAN: &str = "fed by a plan";

const BARE: Guard =
    Guard::Bare("LMDB has no checksums: what a key, a value and its length say, nobody can check");

impl Format for Database {
    type Item = (Vec<u8>, Vec<u8>);

    const BYTES_MAX: usize = 1500;
    const FORGED_MAX: usize = 5000;

    fn name(&self) -> String {
        format!("LMDB, {}", self.name)
    }

    fn files(&self) -> Vec<Stated> {
        self.files.clone()
    }

    /// Beside each, the index of this database stays: of one with values of the same lengths, of one whose
    /// pages hold other records, and of a smaller one.
    fn others(&self) -> Vec<Vec<Stated>> {
        let records = &self.wholes[0];
        let other_bytes = |value: &[u8]| value.iter().map(|byte| !byte).collect();
        let renewed = records.iter().map(|(key, value)| (key.clone(), other_bytes(value))).collect();
        let values = records.iter().map(|(_, value)| value.clone());
        let keys = records.iter().map(|(key, _)| key.clone());
        let shifted = keys.zip(values.cycle().skip(1)).collect();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/gray_lmdb/data.mdb");
        [written(renewed), written(shifted), fs::read(golden).unwrap()]
            .into_iter()
            .map(|bytes| vec![Stated::of(DATA, bytes, BARE), self.files[1].clone()])
            .collect()
    }

    /// What liblmdb reads of it.
    fn whole_of(&self, other: &[Stated], way: &'static str) -> Records {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), &other[0].bytes).unwrap();
        let env = Environment::new().open(folder.path()).unwrap();
        let database = env.open_db(None).unwrap();
        let transaction = env.begin_ro_txn().unwrap();
        let mut cursor = transaction.open_ro_cursor(database).unwrap();
        let records = cursor.iter().map(|entry| entry.unwrap());
        let records: Records = records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        match way {
            FED | FED_READ | FED_BY_PLAN => {
                records.into_iter().map(|(_, value)| (Vec::new(), value)).collect()
            }
            IN_ORDER | IN_ORDER_READ => records,
            _ => (0..records.len()).map(|number| records[number * 7919 % records.len()].clone()).collect(),
        }
    }

    fn ways(&self) -> Vec<Way> {
        WAYS.to_vec()
    }

    /// What the file's anatomy knows: nodes, children, pages and metas that say something else.
    fn forged(&self, number: usize) -> Option<(Vec<Stated>, String)> {
        let mut numbers = Numbers(20_261_122 + number as u64 * 7919);
        let mut bytes = self.bytes.clone();
        let mut what = self.anatomy.damage(&mut bytes, &mut numbers);
        if numbers.below(20) == 0 {
            bytes.truncate(numbers.below(bytes.len()));
            what += &format!(" cut at {}", bytes.len());
        }
        let mut files = self.files.clone();
        files[0].bytes = bytes;
        Some((files, what))
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Self::Item> {
        let path = folder.join("lmdb");
        let is_read = [IN_ORDER_READ, SHUFFLED_READ, BY_OLD_INDEX_READ, FED_READ].contains(&way);
        let access = if is_read { Access::Read } else { Access::Mapped };
        if ![BY_OLD_INDEX, BY_OLD_INDEX_READ].contains(&way) {
            fs::remove_file(folder.join(SIDECAR)).unwrap();
        }
        let open = || Lmdb::options().without_lock().access(access).open(&path);
        match way {
            FED | FED_READ => Reading::of(|items| fed(open(), |feed| feed.epochs(Epochs::OnePass), items)),
            FED_BY_PLAN => Reading::of(|items| fed(open(), |feed| feed.epochs(1), items)),
            IN_ORDER | IN_ORDER_READ => Reading::of(|items| {
                let source = open()?;
                let mut cursor = source.cursor()?;
                while let Some(entry) = cursor.advance()? {
                    items.push((entry.key().to_vec(), entry.value().to_vec()));
                }
                Ok::<(), SourceError>(())
            }),
            _ => Reading::of(|items| shuffled(&open()?, items)),
        }
    }

    /// One record says something else: its key or its value, and everything else is as it was.
    fn allows(&self, _case: &Case, way: &'static str, found: &Reading<Self::Item>) -> bool {
        let due = &self.wholes[if way.starts_with("shuffled") { 1 } else { 0 }];
        let is_fed = [FED, FED_READ, FED_BY_PLAN].contains(&way);
        let pairs = found.items.iter().zip(due);
        let others = pairs.filter(|(one, other)| one.1 != other.1 || !is_fed && one.0 != other.0).count();
        others <= 1 && (found.error.is_some() || found.items.len() == due.len())
    }
}

/// What a feed delivers: values, without keys.
fn fed(
    source: Result<Lmdb, SourceError>,
    passes: impl FnOnce(FeedBuilder) -> FeedBuilder,
    items: &mut Records,
) -> Result<(), FeedError> {
    let source = source.map_err(|error| FeedError::Reader(error.into()))?;
    let feed = Feed::builder().source(source).decoder(RawBytes::up_to(200_000)).batch_size(8).threads(1);
    for batch in passes(feed).build()? {
        items.extend(batch?.ragged::<u8>(0)?.rows().map(|value| (Vec::new(), value.to_vec())));
    }
    Ok(())
}

macro_rules! databases {
    ($($name:ident: $bytes:expr;)*) => {
        $(
            #[test]
            fn $name() {
                harness::check(this_test!(), 120, || Database::of(stringify!($name), $bytes));
            }
        )*
    };
}

databases! {
    small_records: written(small());
    large_records: written(large());
    small_and_large_records: written(mixed(60));
    many_commits: rewritten();
    small_pages: forge(512, &small());
    deep_trees: forge(1024, &long_keys());
    large_pages: forge(65536, &mixed(60));
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
    let mut feed = Feed::builder()
        .lmdb(folder.path())
        .batch_size(10)
        .threads(2)
        .epochs(Epochs::OnePass)
        .build()
        .unwrap();
    let mut labels = Vec::new();
    let mut error = None;
    for step in feed.steps() {
        match step {
            Ok(batches) => labels.extend(batches.iter().flat_map(|batch| batch.labels().unwrap().to_vec())),
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
        assert!(matches!(error, SourceError::Lmdb(LmdbError::BrokenPage { .. })), "{what}: {error}");
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

/// Where a meta page has the number of its tree's records, and that of its transaction.
const ENTRIES: usize = 120;
const TRANSACTION: usize = 144;

/// A database that states fewer records than it has, and the number that it states. That ends with a leaf, so
/// that a walk which stops there meets no leaf that has more.
fn understated() -> (TempDir, usize) {
    let mut bytes = forge(512, &small());
    let anatomy = Anatomy::of(&bytes);
    let hidden: usize =
        anatomy.leaves.iter().rev().take(20).map(|&leaf| anatomy.nodes(&bytes, leaf).len()).sum();
    let stated = small().len() - hidden;
    let newest = (0..2).max_by_key(|page| whole(&bytes, page * anatomy.page_bytes + TRANSACTION)).unwrap();
    bytes_put(&mut bytes, newest * anatomy.page_bytes + ENTRIES, &(stated as u64).to_le_bytes());
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("data.mdb"), &bytes).unwrap();
    (folder, stated)
}

#[test]
fn a_feed_by_a_plan_notices_that_a_database_has_more_records_than_it_states() {
    let (folder, stated) = understated();
    let open = || Lmdb::open_without_lock(folder.path());
    let end = |fed: Result<(), FeedError>| fed.unwrap_err().to_string();
    let once = end(fed(open(), |feed| feed.epochs(Epochs::OnePass), &mut Vec::new()));
    assert!(once.contains(&format!("comes after the last of {stated} records")), "{once}");
    for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Wrap] {
        for shuffle in [Shuffle::No, Shuffle::Files] {
            for epochs in [1, 2] {
                let mut items = Vec::new();
                let by_plan = |feed: FeedBuilder| feed.epochs(epochs).last_batch(last_batch).shuffle(shuffle);
                let error = end(fed(open(), by_plan, &mut items));
                let what = format!("{last_batch:?}, {shuffle:?}, {epochs} epochs: {error}");
                assert!(error.contains("comes after the last of"), "{what}");
                assert!(items.len() <= stated + 8, "a second epoch began: {what}");
            }
        }
    }
}

/// Of joined databases too, wherever one is in the order of an epoch, and whichever worker reads it.
#[test]
fn a_feed_by_a_plan_notices_that_a_joined_database_has_more_records_than_it_states() {
    let whole = tempdir().unwrap();
    common::write_lmdb(whole.path(), small());
    let (folder, stated) = understated();
    let is_told = |place: usize, options: &dyn Fn(FeedBuilder) -> FeedBuilder| {
        let open = |number: usize| match number == place {
            true => Lmdb::open_without_lock(folder.path()).unwrap(),
            false => Lmdb::open_without_lock(whole.path()).unwrap(),
        };
        let joined = Joined::new(open(0)).and(open(1)).and(open(2));
        let feed = Feed::builder().source(joined).decoder(RawBytes::up_to(200)).batch_size(8);
        let error = match options(feed.threads(1).epochs(1)).build() {
            Ok(feed) => feed.into_iter().find_map(Result::err),
            Err(error) => Some(error),
        };
        error.map(|error| error.to_string())
    };
    for place in 0..3 {
        let check = |what: &str, options: &dyn Fn(FeedBuilder) -> FeedBuilder| {
            let error = is_told(place, options).unwrap_or_else(|| panic!("database {place}, {what}"));
            assert!(error.contains(&format!("comes after the last of {stated}")), "{what}: {error}");
        };
        check("in order", &|feed| feed);
        for seed in 0..8 {
            check(&format!("seed {seed}"), &|feed| feed.shuffle(Shuffle::Files).seed(seed));
        }
        let world = World::new(3, 3).unwrap();
        check("of one of three workers", &|feed| {
            feed.policy(AutoShardPolicy::File).share(JobWorker { world, number: place })
        });
    }
}
