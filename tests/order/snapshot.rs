//! A run resumes from a snapshot as if it had not been cut: bit for bit, in the same world or another,
//! whatever was prefetched. What is not a snapshot of the run is refused, and the difference is named.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use percolator::feed::ConfigError;
use percolator::order::{Assignment, AutoShardPolicy, OrderError, World};
use percolator::reader::Registry;
use percolator::receipt::TextFault;
use percolator::record::{RecordId, StepEnd, StepId};
use percolator::snapshot::SnapshotError;
use percolator::source::{ImageList, IndexPlace, LevelDb, Lmdb};
use percolator::transform::CaffeEra;
use percolator::{Batch, Device, Feed, FeedBuilder, FeedError, LastBatch, Shuffle, Snapshot, Transform};
use proptest::prelude::*;

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// Everything that a consumer sees of a batch.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    step: Option<StepEnd>,
    records: Vec<RecordId>,
    bytes: Vec<u8>,
    labels: Vec<i32>,
}

impl Seen {
    fn of(batch: &Batch) -> Self {
        let (records, labels) = (batch.records().to_vec(), batch.labels().to_vec());
        Seen { step: batch.step(), records, bytes: batch.bytes().to_vec(), labels }
    }
}

fn images(records: usize) -> MemorySource {
    MemorySource::images("snapshot", records, 1, 4, 4)
}

/// A feed whose pixels depend on the random numbers of each record.
fn feed(source: MemorySource, lanes: usize) -> FeedBuilder {
    let feed = Feed::builder().source(source).transform(Transform::new().crop(2).mirror(true));
    hosts(feed, lanes)
}

fn hosts(feed: FeedBuilder, lanes: usize) -> FeedBuilder {
    feed.devices((0..lanes).map(Device::host)).registry(&Registry::new())
}

/// What each lane delivers: this many batches, or all there are.
fn take(feed: &mut [percolator::Lane], batches: &[usize]) -> Vec<Vec<Seen>> {
    let lanes = feed.iter_mut().zip(batches);
    // In turns, so that none keeps the others waiting.
    let mut seen: Vec<Vec<Seen>> = lanes.map(|_| Vec::new()).collect();
    for turn in 0..batches.iter().copied().max().unwrap_or(0) {
        for ((lane, seen), &batches) in feed.iter_mut().zip(&mut seen).zip(batches) {
            if turn < batches
                && let Some(batch) = lane.next()
            {
                seen.push(Seen::of(&batch.unwrap()));
            }
        }
    }
    seen
}

fn window(records: u64) -> Shuffle {
    Shuffle::Window { records: NonZeroU64::new(records).unwrap() }
}

/// Cuts a run after this many batches of each lane, resumes it from its snapshot's text, and compares it with
/// a run that was not cut.
fn check_cut(describe: impl Fn() -> FeedBuilder, cut: &[usize], batches: usize) {
    let mut whole = describe().build().unwrap();
    let whole = take(&mut whole.take_lanes().unwrap(), &vec![batches; cut.len()]);
    let mut first = describe().build().unwrap();
    let mut lanes = first.take_lanes().unwrap();
    let mut seen = take(&mut lanes, cut);
    let snapshot: Snapshot = first.snapshot().unwrap().to_string().parse().unwrap();
    assert_eq!(snapshot, first.snapshot().unwrap());
    drop((first, lanes));
    let mut second = describe().resume(&snapshot).build().unwrap();
    let again = second.snapshot().unwrap();
    let next = |snapshot: &Snapshot| {
        (0..snapshot.replicas()).map(|replica| snapshot.next(replica)).collect::<Vec<_>>()
    };
    assert_eq!(next(&again), next(&snapshot), "nothing was delivered meanwhile");
    // A resumed run has an index, and may know more about its data.
    assert_eq!(Snapshot::join([&snapshot, &again]).unwrap().plan(), snapshot.plan());
    let rest: Vec<usize> = cut.iter().map(|cut| batches - cut).collect();
    for (seen, rest) in seen.iter_mut().zip(take(&mut second.take_lanes().unwrap(), &rest)) {
        seen.extend(rest);
    }
    assert_eq!(seen, whole);
}

#[derive(Clone, Debug)]
struct Course {
    records: usize,
    lanes: usize,
    size: usize,
    shuffle: Shuffle,
    last: LastBatch,
    is_caffe: bool,
    epochs: u64,
    threads: usize,
    prefetch: usize,
}

impl Course {
    fn describe(&self) -> FeedBuilder {
        let assignment = if self.is_caffe { Assignment::Caffe } else { Assignment::TensorFlow };
        let feed = feed(images(self.records), self.lanes).batch_size(self.size).shuffle(self.shuffle);
        let feed = feed.last_batch(self.last).assignment(assignment).epochs(self.epochs).seed(3);
        feed.threads(self.threads).prefetch(self.prefetch)
    }
}

fn course() -> impl Strategy<Value = Course> {
    let shape = (1_usize..40, 1_usize..4, 1_usize..6, 0_usize..4, 0_usize..3);
    (shape, any::<bool>(), 1_u64..4, 1_usize..17, 1_usize..5).prop_map(
        |((records, lanes, size, last, shuffle), is_caffe, epochs, threads, prefetch)| Course {
            records: records.max(lanes * size),
            lanes,
            size,
            shuffle: [Shuffle::No, Shuffle::Global, window(5)][shuffle],
            last: [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last],
            is_caffe,
            epochs,
            threads,
            prefetch,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_run_that_was_cut_anywhere_equals_one_that_was_not(
        course in course(), cut in 0_usize..12, ahead in prop::collection::vec(0_usize..2, 3),
    ) {
        must_end("a run that was cut", move || {
            let cut: Vec<usize> = ahead[..course.lanes].iter().map(|ahead| cut + ahead).collect();
            check_cut(|| course.describe(), &cut, 40);
        });
    }

    #[test]
    fn a_round_robin_run_that_was_cut_anywhere_equals_one_that_was_not(
        records in 1_usize..30, lanes in 1_usize..4, size in 1_usize..6, once: bool, cut in 0_usize..9,
        ahead in prop::collection::vec(0_usize..2, 3),
        others in 0_usize..3,
    ) {
        must_end("a round-robin run that was cut", move || {
            let cut: Vec<usize> = ahead[..lanes].iter().map(|ahead| cut + ahead).collect();
            let describe = || {
                let round_robin = feed(images(records), lanes).batch_size(size).seed(3);
                let round_robin =
                    if others > 0 { round_robin.ranks(others - 1, lanes + others) } else { round_robin };
                if once { round_robin.once() } else { round_robin }
            };
            check_cut(describe, &cut, 20);
        });
    }

    /// Each record of a finished epoch comes once, whatever worlds the run goes through.
    #[test]
    fn a_run_that_changes_its_world_delivers_every_record_once(
        records in 1_usize..60,
        worlds in prop::collection::vec(
            (1_usize..4, 1_usize..3, 1_usize..6, 0_usize..6, any::<bool>()), 1..4
        ),
        is_shuffled: bool,
        policy in 0_usize..2,
    ) {
        must_end("a run that changes its world", move || {
            let policy = [AutoShardPolicy::Data, AutoShardPolicy::Hint][policy];
            let shuffle = if is_shuffled { Shuffle::Global } else { Shuffle::No };
            let mut given: BTreeMap<RecordId, usize> = BTreeMap::new();
            let mut snapshot: Option<Snapshot> = None;
            let last = worlds.len() - 1;
            for (leg, (workers, lanes, size, steps, is_uneven)) in worlds.into_iter().enumerate() {
                let world = World::new(workers, workers * lanes).unwrap();
                let mut taken = Vec::new();
                for worker in 0..workers {
                    let feed =
                        feed(images(records), lanes).batch_size(size).worker(world, worker).policy(policy);
                    let mut feed = feed.shuffle(shuffle).epochs(2);
                    if let Some(snapshot) = &snapshot {
                        feed = feed.resume(snapshot);
                    }
                    let mut feed = feed.build().unwrap();
                    let uneven = |lane: usize| usize::from(is_uneven && (lane + worker).is_multiple_of(2));
                    let batches = |lane| if leg == last { 1000 } else { steps + uneven(lane) };
                    let batches: Vec<usize> = (0..lanes).map(batches).collect();
                    for seen in take(&mut feed.take_lanes().unwrap(), &batches).concat() {
                        for id in seen.records {
                            *given.entry(id).or_insert(0) += 1;
                        }
                    }
                    taken.push(feed.snapshot().unwrap());
                }
                snapshot = Some(Snapshot::join(&taken).unwrap());
            }
            assert!(given.values().all(|&count| count == 1), "{given:?}");
            assert_eq!(given.len(), 2 * records);
        });
    }
}

fn golden(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name)
}

#[test]
fn databases_are_resumed_in_round_robin_order_and_shuffled() {
    must_end("databases", || {
        let lmdb = || Feed::builder().source(Lmdb::open(golden("raw_lmdb")).unwrap());
        let log = || Feed::builder().source(LevelDb::open(golden("raw_leveldb_log")).unwrap());
        let tables = || Feed::builder().source(LevelDb::open(golden("raw_leveldb_ldb")).unwrap());
        let databases: [&dyn Fn() -> FeedBuilder; 3] = [&lmdb, &log, &tables];
        for database in databases {
            let round_robin = || hosts(database().batch_size(5).index(IndexPlace::Memory), 2);
            check_cut(round_robin, &[9, 9], 20);
            check_cut(|| round_robin().shuffle(Shuffle::Global).epochs(3), &[9, 10], 30);
        }
    });
}

#[test]
fn caffes_random_sequence_goes_on_where_it_was() {
    must_end("Caffe's sequence", || {
        let round_robin = || feed(images(23), 2).batch_size(3).caffe_random(1701, CaffeEra::Today);
        check_cut(round_robin, &[7, 8], 20);
        check_cut(|| round_robin().ranks(1, 3), &[5, 5], 12);
        check_cut(|| round_robin().shuffle(Shuffle::Global).epochs(4), &[9, 9], 30);
        check_cut(|| round_robin().assignment(Assignment::Caffe), &[9, 9], 30);
        let snapshot = {
            let mut first = round_robin().build().unwrap();
            take(&mut first.take_lanes().unwrap(), &[2, 2]);
            first.snapshot().unwrap()
        };
        let other = hosts(round_robin(), 3).resume(&snapshot).build().unwrap_err();
        assert_eq!(other, FeedError::Snapshot(SnapshotError::CaffeRandom));

        // Drawing the numbers of so many records again would take hours.
        let planned = || round_robin().shuffle(Shuffle::Global);
        let text = planned().build().unwrap().snapshot().unwrap().to_string();
        let (body, _) = text.split_at(text.rfind("checksum ").unwrap());
        let far = body.replace("next epoch 0 ", "next epoch 1000000000 ");
        assert_ne!(far, body);
        let error = planned().resume(&unverified(&far).parse().unwrap()).resolve().unwrap_err();
        let FeedError::Config(ConfigError::Order(error)) = error else { panic!("{error}") };
        assert!(matches!(error, OrderError::TooMany { .. }), "{error}");
    });
}

#[test]
fn steps_tell_where_they_are() {
    must_end("steps", || {
        let mut feed = feed(images(20), 2).batch_size(3).epochs(2).build().unwrap();
        let mut steps = feed.steps();
        let at = |snapshot: Snapshot| (snapshot.next(0), snapshot.next(1), snapshot.next(2));
        let both = |epoch, step| (Some(StepId { epoch, step }), Some(StepId { epoch, step }), None);
        assert_eq!(at(steps.snapshot().unwrap()), both(0, 0));
        for due in [both(0, 1), both(0, 2), both(0, 3), both(1, 0), both(1, 1)] {
            steps.next().unwrap().unwrap();
            assert_eq!(at(steps.snapshot().unwrap()), due);
        }
    });
}

#[test]
fn a_lane_speaks_for_those_beside_it() {
    must_end("a lane", || {
        let describe = || feed(images(20), 2).batch_size(3).epochs(2);
        let mut first = describe().build().unwrap();
        let mut lanes = first.take_lanes().unwrap();
        take(&mut lanes, &[2, 2]);
        let snapshot = lanes[1].snapshot().unwrap();
        assert_eq!(snapshot.next(0), Some(StepId { epoch: 0, step: 2 }));
        let due = take(&mut lanes, &[3, 3]);
        let mut second = describe().resume(&snapshot).build().unwrap();
        assert_eq!(take(&mut second.take_lanes().unwrap(), &[3, 3]), due);
    });
}

#[test]
fn a_run_that_has_ended_stays_ended() {
    must_end("a run at its end", || {
        for describe in
            [|| feed(images(7), 2).batch_size(2).epochs(1), || feed(images(7), 2).batch_size(2).once()]
        {
            let mut first = describe().build().unwrap();
            let given: usize =
                first.steps().map(|step| step.unwrap().iter().map(Batch::len).sum::<usize>()).sum();
            assert_eq!(given, 7);
            let mut second = describe().resume(&first.snapshot().unwrap()).build().unwrap();
            assert!(second.steps().next().is_none());
        }
    });
}

#[test]
fn a_feed_goes_to_any_step_and_back() {
    must_end("seek", || {
        let planned: fn() -> FeedBuilder = || feed(images(31), 2).batch_size(3).shuffle(Shuffle::Global);
        let round_robin: fn() -> FeedBuilder = || feed(images(31), 2).batch_size(3);
        for (describe, steps_of_epoch) in [(planned, 6), (round_robin, u64::MAX)] {
            let mut feed = describe().build().unwrap();
            let whole = take(&mut feed.take_lanes().unwrap(), &[40, 40]);
            for step in [39, 0, 17, 18] {
                let at = usize::try_from(step).unwrap();
                feed.seek((step / steps_of_epoch, step % steps_of_epoch)).unwrap();
                let seen = take(&mut feed.take_lanes().unwrap(), &[1, 1]);
                assert_eq!(seen, [vec![whole[0][at].clone()], vec![whole[1][at].clone()]], "step {step}");
            }
        }
    });
}

#[test]
fn lanes_that_were_handed_over_end_when_their_feed_goes_elsewhere() {
    must_end("lanes of another step", || {
        let mut feed = feed(images(31), 1).batch_size(3).build().unwrap();
        let mut old = feed.take_lanes().unwrap();
        take(&mut old, &[2]);
        feed.seek((0, 1)).unwrap();
        let last = old.remove(0).find_map(Result::err);
        assert_eq!(last, Some(FeedError::Cancelled));
        let no_step = feed.seek((u64::MAX, 0)).unwrap_err();
        assert!(matches!(no_step, FeedError::Snapshot(SnapshotError::Order(_))), "{no_step}");
        assert_eq!(
            take(&mut feed.take_lanes().unwrap(), &[1])[0][0].step.unwrap().step,
            1,
            "a seek in vain leaves it as it is"
        );
    });
}

#[test]
fn any_batch_of_any_replica_is_made_again_alone() {
    must_end("replay", || {
        let world = World::new(2, 4).unwrap();
        let worker = |number| {
            let feed = feed(images(41), 2).batch_size(3).shuffle(Shuffle::Global).epochs(2);
            feed.worker(world, number).build().unwrap()
        };
        let mut feeds = [worker(0), worker(1)];
        let mut lanes: Vec<Vec<_>> = feeds.iter_mut().map(|feed| feed.take_lanes().unwrap()).collect();
        let seen: Vec<Vec<Seen>> = lanes.iter_mut().flat_map(|lanes| take(lanes, &[8, 8])).collect();
        for (replica, seen) in seen.iter().enumerate() {
            for seen in seen {
                let step = seen.step.unwrap().id();
                assert_eq!(
                    Seen::of(&feeds[0].replay(step, replica).unwrap()),
                    *seen,
                    "{step}, replica {replica}"
                );
            }
        }
        let none = feeds[0].replay((0, 0), 4).unwrap_err();
        let due = SnapshotError::Order(OrderError::NoSuchMember { kind: "replica", found: 4, of: 4 });
        assert_eq!(none, FeedError::Snapshot(due));
        let none = feeds[0].replay((0, 4), 0).unwrap_err();
        let due = SnapshotError::Order(OrderError::NoSuchStep { epoch: 0, step: 4, steps: 4 });
        assert_eq!(none, FeedError::Snapshot(due));
        let round_robin = || feed(images(41), 2).batch_size(3).ranks(1, 4);
        let mut whole = round_robin().build().unwrap();
        let whole = take(&mut whole.take_lanes().unwrap(), &[20, 20]);
        let batch = round_robin().build().unwrap().replay((0, 17), 2).unwrap();
        assert_eq!(Seen::of(&batch), whole[1][17]);
    });
}

#[test]
fn what_is_no_snapshot_of_the_run_is_refused_with_the_difference() {
    must_end("snapshots of others", || {
        let describe = |records| feed(images(records), 2).batch_size(3).seed(1).shuffle(Shuffle::Global);
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
        let bytes = refused(describe(20).source(MemorySource::images("other", 20, 1, 4, 5)));
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
                let error = percolator::receipt::Verdict::of([("one", &one), ("other", &other)]).unwrap_err();
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
        let joined = |how: &str| Feed::builder().lmdb(path("front")).and_lmdb(path(how));
        let round_robin = |how: &str| hosts(joined(how).batch_size(3).index(IndexPlace::Memory), 1);
        for mode in [|feed: FeedBuilder| feed, |feed: FeedBuilder| feed.shuffle(Shuffle::Global).epochs(2)] {
            let snapshot = mode(round_robin("as it was")).build().unwrap().snapshot().unwrap();
            mode(round_robin("as it was")).resume(&snapshot).build().unwrap();
            let error = mode(round_robin("permuted")).resume(&snapshot).build().unwrap_err();
            assert!(matches!(error, FeedError::Snapshot(SnapshotError::OtherData { .. })), "{error}");
        }
    });
}

/// Snapshots of earlier releases hold fewer facts about their data.
#[test]
fn snapshots_of_the_first_version_are_gone_on_from() {
    must_end("a snapshot of the first version", || {
        let describe = || hosts(Feed::builder().lmdb(golden("raw_lmdb")).batch_size(3), 1);
        let describe = || describe().index(IndexPlace::Memory).epochs(2).shuffle(Shuffle::Global);
        let mut first = describe().build().unwrap();
        let whole = take(&mut first.take_lanes().unwrap(), &[9]);
        let text = describe().build().unwrap().snapshot().unwrap().to_string();
        assert!(text.contains("\nclue last ") && text.contains("\nclue index "), "{text}");
        let facts = text.lines().filter(|line| !line.starts_with("clue ") && !line.starts_with("checksum "));
        let body: String = facts.map(|line| format!("{line}\n")).collect();
        let snapshot: Snapshot = unverified(&body.replacen("snapshot 2", "snapshot 1", 1)).parse().unwrap();
        let mut again = describe().resume(&snapshot).build().unwrap();
        assert_eq!(take(&mut again.take_lanes().unwrap(), &[9]), whole);
    });
}

#[test]
fn snapshots_of_workers_at_different_steps_are_joined_or_refused() {
    must_end("workers at different steps", || {
        let world = World::new(2, 4).unwrap();
        let worker = |number| feed(images(40), 2).batch_size(2).epochs(1).worker(world, number);
        let after = |number, batches: [usize; 2]| {
            let mut feed = worker(number).build().unwrap();
            take(&mut feed.take_lanes().unwrap(), &batches);
            feed.snapshot().unwrap()
        };
        let (first, second) = (after(0, [2, 3]), after(1, [2, 2]));
        let unknown = feed(images(40), 1).batch_size(2).epochs(1).resume(&first).build().unwrap_err();
        assert_eq!(unknown, FeedError::Snapshot(SnapshotError::Unknown { known: 2, replicas: 4 }));
        worker(0).resume(&first).build().expect("it goes on as the worker that it was");
        let joined = Snapshot::join([&first, &second]).unwrap();
        assert_eq!(joined.next(1), Some(StepId { epoch: 0, step: 3 }));
        let mut alone = feed(images(40), 1).batch_size(2).epochs(1).resume(&joined).build().unwrap();
        let rest: usize =
            take(&mut alone.take_lanes().unwrap(), &[100])[0].iter().map(|seen| seen.records.len()).sum();
        assert_eq!(rest, 40 - 9 * 2);
        let twice = Snapshot::join([&first, &after(0, [1, 1])]).unwrap_err();
        assert_eq!(twice, SnapshotError::NotOfOne { what: "the steps of one replica" });
    });
}

#[test]
fn a_list_whose_passes_differ_has_no_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["420.jpg", "422.jpg"];
    let images = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/images");
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
fn a_batch_of_caffes_sequence_is_made_again_with_its_own_draws() {
    must_end("replay in Caffe's sequence", || {
        let round_robin = || feed(images(41), 2).batch_size(3).caffe_random(1701, CaffeEra::Today);
        let described: [&dyn Fn() -> FeedBuilder; 3] = [&round_robin, &|| round_robin().ranks(1, 4), &|| {
            round_robin().shuffle(Shuffle::Global).epochs(9)
        }];
        for (number, describe) in described.into_iter().enumerate() {
            let mut feed = describe().build().unwrap();
            let whole = take(&mut feed.take_lanes().unwrap(), &[12, 12]);
            let first = if number == 1 { 1 } else { 0 };
            for (lane, seen) in whole.iter().enumerate() {
                for seen in [&seen[0], &seen[5], &seen[11]] {
                    let step = seen.step.unwrap().id();
                    assert_eq!(
                        Seen::of(&feed.replay(step, first + lane).unwrap()),
                        *seen,
                        "{number}: {step}, lane {lane}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_round_robin_run_resumed_in_another_world_is_replayed_and_resumed_again() {
    must_end("a round-robin run in another world", || {
        let snapshot = {
            let mut two = feed(images(23), 2).batch_size(3).build().unwrap();
            take(&mut two.take_lanes().unwrap(), &[1, 1]);
            two.snapshot().unwrap()
        };
        let three = || feed(images(23), 3).batch_size(3).resume(&snapshot);
        let mut whole = three().build().unwrap();
        let seen = take(&mut whole.take_lanes().unwrap(), &[12, 12, 12]);
        for (lane, seen) in seen.iter().enumerate() {
            for seen in seen {
                let step = seen.step.unwrap().id();
                assert_eq!(Seen::of(&whole.replay(step, lane).unwrap()), *seen, "{step}, lane {lane}");
            }
        }
        let mut first = three().build().unwrap();
        take(&mut first.take_lanes().unwrap(), &[5, 5, 5]);
        let again = feed(images(23), 3).batch_size(3).resume(&first.snapshot().unwrap());
        let rest = take(&mut again.build().unwrap().take_lanes().unwrap(), &[7, 7, 7]);
        for (seen, rest) in seen.iter().zip(rest) {
            assert_eq!(rest, seen[5..]);
        }
    });
}

#[test]
fn a_canceller_ends_what_a_feed_that_went_elsewhere_has_now() {
    must_end("a canceller", || {
        let mut feed = feed(images(31), 1).batch_size(3).build().unwrap();
        let canceller = feed.canceller();
        feed.seek((0, 5)).unwrap();
        assert!(feed.steps().next().unwrap().is_ok());
        canceller.cancel();
        assert!(feed.steps().any(|step| step.err() == Some(FeedError::Cancelled)));
        feed.seek((0, 5)).unwrap();
        assert!(feed.steps().any(|step| step.err() == Some(FeedError::Cancelled)), "it is final");
    });
}

#[test]
fn a_step_that_fails_for_one_lane_is_the_last_and_comes_again() {
    must_end("a step that failed", || {
        let mut records: Vec<_> = (0..40).map(|index| common::image(index, 1, 4, 4)).collect();
        // In the second lane's share of the fourth step.
        records[21].1.truncate(3);
        // An error ends the other lane too, after what is complete. With one batch a lane, that is every step
        // before: the next is begun only once the consumer has dropped it.
        let describe = |records: Vec<_>| {
            feed(MemorySource::new("damaged", records), 2).batch_size(3).prefetch(1).epochs(1)
        };
        let mut feed = describe(records).build().unwrap();
        assert_eq!(feed.steps().filter(Result::is_ok).count(), 3);
        assert!(feed.steps().next().is_none(), "nothing comes behind it");
        assert_eq!(feed.snapshot().unwrap().next(0), Some(StepId { epoch: 0, step: 3 }));
    });
}

#[test]
fn steps_behind_the_end_are_none() {
    must_end("the end", || {
        let no_step =
            |error| matches!(error, FeedError::Snapshot(SnapshotError::Order(OrderError::NoSuchStep { .. })));
        let mut planned = feed(images(20), 2).batch_size(3).epochs(2).build().unwrap();
        assert!(
            no_step(planned.seek((2, 0)).unwrap_err()) && no_step(planned.replay((2, 0), 1).unwrap_err())
        );
        assert_eq!(planned.steps().count(), 8, "it is as it was");
        let round_robin = feed(images(20), 2).batch_size(3).once().build().unwrap();
        assert!(
            no_step(round_robin.replay((0, 100), 0).unwrap_err())
                && no_step(round_robin.replay((1, 0), 0).unwrap_err())
        );
    });
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
                Feed::builder().lmdb(path(one)).and_lmdb(path(other)).index(IndexPlace::Memory).batch_size(3);
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
            (joined("a", "b").caffe_random(4, CaffeEra::Today), "caffe 4"),
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
fn a_run_resumed_past_its_last_epoch_is_reported() {
    let describe = |epochs| feed(images(20), 2).batch_size(3).epochs(epochs);
    let mut first = describe(4).build().unwrap();
    take(&mut first.take_lanes().unwrap(), &[13, 13]);
    let log = common::log::Log::default();
    log.listen(|| {
        let mut second = describe(2).resume(&first.snapshot().unwrap()).build().unwrap();
        assert!(second.steps().next().is_none());
    });
    assert!(log.text().contains("resumes past its last epoch"), "{}", log.text());
}

/// A text with a valid checksum, whatever its body.
fn unverified(body: &str) -> String {
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
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
