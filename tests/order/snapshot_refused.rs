//! What is not a snapshot of the run is refused, and the difference is named: other data, another order,
//! other draws. So are texts and files that are cut, edited or forged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::feed::ConfigError;
use percolator::order::{Assignment, OrderError, World};
use percolator::receipt::TextFault;
use percolator::record::StepId;
use percolator::snapshot::SnapshotError;
use percolator::source::{ImageList, IndexPlace};
use percolator::transform::CaffeEra;
use percolator::{Feed, FeedBuilder, FeedError, Seed, Shuffle, Snapshot, Transform};

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;
use crate::runs::{check_cut, feed, hosts, images, take, unverified, window};

#[test]
fn what_is_no_snapshot_of_the_run_is_refused_with_the_difference() {
    must_end("snapshots of others", || {
        let of = |source| feed(source, 2).batch_size(3).epochs(0).seed(1).shuffle(Shuffle::Global);
        let describe = |records| of(images(records));
        let mut first = describe(20).build().unwrap();
        take(&mut first.take_lanes().unwrap(), &[2, 3]);
        let snapshot = first.snapshot().unwrap();
        let refused = |feed: FeedBuilder| match feed.resume(&snapshot).build().unwrap_err() {
            FeedError::Snapshot(error) => error,
            other => panic!("{other}"),
        };
        let other_data = refused(describe(21));
        assert!(matches!(
            &other_data,
            SnapshotError::OtherData { was, is, .. } if was == "records 20" && is == "records 21"
        ));
        let bytes = refused(of(MemorySource::images("other", 20, 1, 4, 5)));
        assert!(
            matches!(&bytes, SnapshotError::OtherData { was, .. } if was.starts_with("first record")),
            "{bytes}"
        );
        for other in [describe(20).seed(2), describe(20).shuffle(window(3))] {
            let error = refused(other);
            assert!(matches!(&error, SnapshotError::Order(OrderError::OtherOrder { .. })), "{error}");
        }
        let text = snapshot.to_string();
        let fault = |text: &str| match text.parse::<Snapshot>().unwrap_err() {
            SnapshotError::Text { path: None, fault } => fault,
            other => panic!("{other}"),
        };
        assert!(matches!(fault(&text[..text.len() / 2]), TextFault::Cut { .. }));
        assert!(matches!(fault(&text.replace("seed 1\n", "seed 2\n")), TextFault::Edited { .. }));
        let newer = text.replace("percolator snapshot 2\n", "percolator snapshot 3\n");
        assert_eq!(fault(&newer), TextFault::Newer { wanted: "snapshot", found: 3, allowed: 2 });
        assert!(matches!(fault("{}"), TextFault::Other { .. }));
    });
}

#[test]
fn a_database_that_grew_is_refused() {
    must_end("a database that grew", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        common::write_images(&path, 20, 1, 4, 4);
        let describe = || hosts(Feed::builder().lmdb(&path).batch_size(3).index(IndexPlace::Memory), 1);
        let snapshot = {
            let mut first = describe().build().unwrap();
            take(&mut first.take_lanes().unwrap(), &[2]);
            first.snapshot().unwrap()
        };
        common::write_lmdb(&path, [common::image(20, 1, 4, 4)]);
        let error = describe().resume(&snapshot).build().unwrap_err();
        let said = error.to_string();
        assert!(said.contains("it has \"records 20\", and here it is \"records 21\""), "{said}");
        let copy = folder.path().join("copy");
        common::write_images(&copy, 20, 1, 4, 4);
        let moved = hosts(Feed::builder().lmdb(&copy).batch_size(3).index(IndexPlace::Memory), 1);
        moved.resume(&snapshot).build().expect("a copy is the same data set");
    });
}

/// Records whose count and first record are always the same, and everything else is not.
fn rebuilt(how: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let records = (0..50).map(|index| common::image(index, 1, 4, 4));
    let other = |index: usize| match how {
        "permuted" => (common::key(index), common::image(index % 49 + 1, 1, 4, 4).1),
        "replaced" => (common::key(index), common::image(index + 1000, 1, 4, 4).1),
        "permuted between" => {
            (common::key(index), common::image(if index == 49 { 49 } else { index % 48 + 1 }, 1, 4, 4).1)
        }
        "renamed" => (format!("{index:08}_").into_bytes(), common::image(index, 1, 4, 4).1),
        _ => common::image(index, 1, 4, 4),
    };
    records.take(1).chain((1..50).map(other)).collect()
}

/// A rebuilt database is another one, whatever parts of it are unchanged.
#[test]
fn rebuilt_databases_are_refused_by_resume_and_by_their_receipts() {
    must_end("rebuilt databases", || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for how in ["as it was", "permuted", "permuted between", "replaced", "renamed"] {
            common::write_lmdb(&path(&format!("{how}.lmdb")), rebuilt(how));
            let options = common::indexed::leveldb_options(0);
            common::leveldb::write(&path(&format!("{how}.leveldb")), options, rebuilt(how));
        }
        let lmdb = |how: &str| Feed::builder().lmdb(path(&format!("{how}.lmdb")));
        let leveldb = |how: &str| Feed::builder().leveldb(path(&format!("{how}.leveldb")));
        // In runs that follow a plan, with an index or without, and in round-robin order.
        let planned = |feed: FeedBuilder| feed.epochs(2).shuffle(Shuffle::Global).receipts(true);
        let in_order = |feed: FeedBuilder| feed.epochs(2).receipts(true);
        let round_robin = |feed: FeedBuilder| feed;
        let kinds: [&dyn Fn(&str) -> FeedBuilder; 2] = [&lmdb, &leveldb];
        let modes: [&dyn Fn(FeedBuilder) -> FeedBuilder; 3] = [&planned, &in_order, &round_robin];
        let others = ["permuted", "replaced", "renamed", "permuted between"];
        for (kind, (number, mode)) in
            kinds.into_iter().flat_map(|kind| modes.into_iter().enumerate().map(move |mode| (kind, mode)))
        {
            // If nothing finds records by position, only the last record is known, which the last case keeps.
            let others = if number == 0 { &others[..] } else { &others[..3] };
            let describe =
                |how: &str| mode(hosts(kind(how).batch_size(3).index(IndexPlace::Memory), 1).seed(9));
            let mut first = describe("as it was").build().unwrap();
            take(&mut first.take_lanes().unwrap(), &[5]);
            let snapshot: Snapshot = first.snapshot().unwrap().to_string().parse().unwrap();
            describe("as it was").resume(&snapshot).build().expect("it goes on with its own data");
            for &how in others {
                let error = describe(how).resume(&snapshot).build().unwrap_err();
                let is_refused = matches!(error, FeedError::Snapshot(SnapshotError::OtherData { .. }));
                assert!(is_refused, "{how}: {error}");
                let mut other = describe(how).build().unwrap();
                take(&mut other.take_lanes().unwrap(), &[5]);
                let Some((one, other)) = first.receipt().zip(other.receipt()) else { continue };
                let error = percolator_proof::Verdict::of([("one", &one), ("other", &other)]).unwrap_err();
                assert!(
                    error.to_string().contains("they do not belong to the same data set"),
                    "{how}: {error}"
                );
                assert!(one.clone().merge(&other).is_err(), "{how}");
            }
        }
    });
}

/// Of two databases, the second is another one.
#[test]
fn a_rebuilt_part_of_a_data_set_is_refused() {
    must_end("a rebuilt part", || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        common::write_lmdb(&path("front"), (0..20).map(|index| common::image(index, 1, 4, 4)));
        for how in ["as it was", "permuted"] {
            common::write_lmdb(&path(how), rebuilt(how));
        }
        let joined = |how: &str| Feed::builder().lmdb(path("front")).lmdb(path(how));
        let round_robin = |how: &str| hosts(joined(how).batch_size(3).index(IndexPlace::Memory), 1);
        for mode in [|feed: FeedBuilder| feed, |feed: FeedBuilder| feed.shuffle(Shuffle::Global).epochs(2)] {
            let snapshot = mode(round_robin("as it was")).build().unwrap().snapshot().unwrap();
            mode(round_robin("as it was")).resume(&snapshot).build().unwrap();
            let error = mode(round_robin("permuted")).resume(&snapshot).build().unwrap_err();
            assert!(matches!(error, FeedError::Snapshot(SnapshotError::OtherData { .. })), "{error}");
        }
    });
}

#[test]
fn a_list_whose_passes_differ_has_no_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["420.jpg", "422.jpg"];
    let images = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/images");
    let list = folder.path().join("list.txt");
    std::fs::write(&list, names.map(|name| format!("{name} 1\n")).concat()).unwrap();
    let list = || ImageList::open(&list).unwrap().relative_to(&images);
    let feed = |list: ImageList| {
        hosts(Feed::builder().source(list), 1)
            .transform(Transform::new().color(percolator::ColorMode::Color).resize(8, 8))
    };
    for list in [list().shuffled(1), list().skipping(1).unwrap()] {
        let error = feed(list).build().unwrap().snapshot().unwrap_err();
        assert!(matches!(error, SnapshotError::PassesDiffer { .. }), "{error}");
    }
    feed(list().skipping(1).unwrap()).epochs(1).build().unwrap().snapshot().expect("a plan knows positions");
    let shuffled = feed(list().shuffled(1)).epochs(1).build().unwrap_err();
    assert_eq!(shuffled, FeedError::Config(ConfigError::ShufflesItself));
}

#[test]
fn a_file_is_replaced_whole_and_its_errors_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.snapshot");
    let mut feed = feed(images(20), 1).epochs(1).build().unwrap();
    feed.snapshot().unwrap().save(&path).unwrap();
    take(&mut feed.take_lanes().unwrap(), &[3]);
    feed.snapshot().unwrap().save(&path).unwrap();
    let loaded = Snapshot::load(&path).unwrap();
    assert_eq!(loaded, feed.snapshot().unwrap());
    assert_eq!(loaded.next(0), Some(StepId { epoch: 0, step: 3 }));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, &text[..50]).unwrap();
    let said = Snapshot::load(&path).unwrap_err().to_string();
    assert!(said.starts_with(&format!("{}: ", path.display())) && said.contains("cut short"), "{said}");
    let none = folder.path().join("none/run.snapshot");
    assert!(matches!(Snapshot::load(&none), Err(SnapshotError::Io { action: "read", .. })));
    assert!(matches!(loaded.save(&none), Err(SnapshotError::Io { action: "write", .. })));
}

#[test]
fn what_crops_are_drawn_from_and_which_databases_come_first_is_known_by_a_snapshot() {
    must_end("draws and databases", || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, first: usize| {
            common::write_lmdb(&path(name), (first..first + 10).map(|index| common::image(index, 1, 4, 4)));
        };
        write("a", 0);
        write("b", 10);
        let joined = |one: &str, other: &str| {
            let feed =
                Feed::builder().lmdb(path(one)).lmdb(path(other)).index(IndexPlace::Memory).batch_size(3);
            hosts(feed.transform(Transform::new().crop(2)), 1)
        };
        check_cut(|| joined("a", "b").seed(4), &[5], 12);
        let mut first = joined("a", "b").seed(4).build().unwrap();
        take(&mut first.take_lanes().unwrap(), &[2]);
        let snapshot = first.snapshot().unwrap();
        let refused = |feed: FeedBuilder| match feed.resume(&snapshot).build().unwrap_err() {
            FeedError::Snapshot(error) => error,
            other => panic!("{other}"),
        };
        let swapped = refused(joined("b", "a").seed(4));
        assert!(matches!(swapped, SnapshotError::OtherData { .. }), "{swapped}");
        for (other, is) in [
            (joined("a", "b").seed(5), "seed 5"),
            (joined("a", "b").seed(Seed::Caffe { seed: 4, era: CaffeEra::Today }), "caffe 4"),
        ] {
            // Either difference is refused.
            let error = refused(other);
            let is_told = matches!(&error, SnapshotError::OtherDraws { is: found, .. } if found == is);
            assert!(is_told, "{error}");
        }
        joined("a", "b")
            .seed(4)
            .epochs(0)
            .assignment(Assignment::Caffe)
            .resume(&snapshot)
            .build()
            .expect("a round-robin run resumes as its plan");
    });
}

#[test]
fn forged_snapshots_are_refused_and_never_a_panic() {
    must_end("forgeries", || {
        let head = "percolator snapshot 1\nsource x\ndata records 20\n";
        let job = "files 20\nbatch replica 3\nworkers 1\nreplicas 2\npolicy auto\nassignment \
         tensorflow\nlast-batch keep\nshuffle no\nseed 0\n";
        let next = "next epoch 0 step 2 replicas 0 to 1\n";
        let read = |body: String| unverified(&body).parse::<Snapshot>();
        assert!(read(format!("{head}{job}draws seed 0\n{next}")).is_ok());
        let round_robin =
            |facts: &str, passes: u64| format!("{head}ring {facts}\npasses {passes}\ndraws seed 0\n{next}");
        assert!(read(round_robin("3 records 2 ranks", 0)).is_ok());
        for body in [
            round_robin("3 records 30000000000 ranks", 0),
            round_robin("0 records 2 ranks", 0),
            round_robin("3 records 0 ranks", 0),
            round_robin("3 records 2 ranks", 7),
            format!("{head}{job}draws seed 0\n"),
            format!("{head}{job}draws seed 0\n{next}{next}"),
            format!("{head}{job}draws dice 0\n{next}"),
            format!("{head}{job}draws seed 0\nnext epoch 0 step 2 replicas 0 to 2\n"),
            format!("{head}{job}rest 0\nleft hint 30 31 0 1 3\ndraws seed 0\n{next}"),
            format!("{head}{job}rest 0\nleft file 5 9 0 1 3\ndraws seed 0\n{next}"),
            format!("{head}{job}rest 0\nleft data 0 1 0 8796093022208 8796093022208\ndraws seed 0\n{next}"),
        ] {
            assert!(matches!(read(body.clone()), Err(SnapshotError::Text { .. })), "{body}");
        }
        // Positions that are well formed but do not exist.
        let wraps = job.replace("keep", "wrap");
        for (body, builder) in [
            (format!("{head}{job}draws seed 0\nnext epoch 18446744073709551615 step 0 replicas 0 to 1\n"), 2),
            (format!("{head}{job}draws seed 0\nnext epoch 0 step 9999 replicas 0 to 1\n"), 2),
            (format!("{head}{wraps}rest 8796093022207\nleft data 0 1 0 1 3\ndraws seed 0\n{next}"), 3),
            (
                format!(
                    "{head}{job}draws seed 0\nnext epoch 9 step 0 replicas 0 to 0\nnext epoch 40000000 step \
                     0 replicas 1 to 1\n"
                ),
                3,
            ),
        ] {
            let snapshot = read(body.clone()).unwrap();
            let identity = format!("{snapshot}");
            assert!(identity.starts_with("percolator snapshot 2\n"));
            let plan = snapshot.plan().unwrap();
            let next: Vec<StepId> = (0..2).map(|replica| snapshot.next(replica).unwrap()).collect();
            let job = plan.job().clone().world(World::new(1, builder).unwrap());
            assert!(plan.resumed(&job, &next).is_err(), "{body}");
        }
    });
}
