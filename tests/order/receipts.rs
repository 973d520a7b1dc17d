//! Receipts of real feeds prove what was delivered: all of it, once, and nothing that was only prepared. A
//! receipt that is missing, comes twice, was cut or edited, or belongs to another run, is found and named.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use percolator::feed::{ConfigError, Receipts};
use percolator::order::{Assignment, AutoShardPolicy, JobWorker, World};
use percolator::receipt::{DataDigest, DigestDetail, EpochAccount, ReceiptError, TextFault};
use percolator::source::{
    Cursor, ImageList, IndexPlace, Joined, LevelDb, Lmdb, Matching, Source, SourceError,
};
use percolator::{
    ColorMode, Device, Feed, FeedBuilder, FeedError, LastBatch, Progress, Receipt, Shuffle, Target, Transform,
};
use percolator_proof::{ContentsVerdict, EpochState, Verdict, digest, digest_watched};
use proptest::prelude::*;

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn feed(source: impl Source + 'static, lanes: usize) -> FeedBuilder {
    let feed = Feed::builder().source(source).devices((0..lanes).map(Device::host));
    feed.receipts(true)
}

fn images(records: usize) -> MemorySource {
    MemorySource::images("receipts", records, 1, 2, 2)
}

/// The receipt of a feed that is run to its end, step by step.
fn run(feed: FeedBuilder) -> Receipt {
    must_end("a feed with receipts", || {
        let mut feed = feed.build().unwrap();
        for step in feed.steps() {
            step.unwrap();
        }
        feed.receipt().unwrap()
    })
}

fn verdict(receipts: &[Receipt]) -> Verdict {
    let names = ["first", "second", "third", "fourth"];
    Verdict::of(names.into_iter().zip(receipts)).unwrap()
}

fn delivered(receipt: &Receipt) -> u64 {
    receipt.epochs().map(|account| account.digest().records()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_receipts_of_all_workers_prove_a_run_and_those_of_some_do_not(
        records in 1_usize..40, workers in 1_usize..4, lanes in 1_usize..3, size in 1_usize..7,
        policy in 0_usize..3,
        is_caffe: bool, last in 0_usize..4, is_shuffled: bool, seed: u64,
    ) {
        let is_caffe = is_caffe && policy == 0;
        let world = World::new(workers, workers * lanes).unwrap();
        let policy = [AutoShardPolicy::Data, AutoShardPolicy::Off, AutoShardPolicy::Hint][policy];
        let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last];
        let of_worker = |worker| {
            let assignment = if is_caffe { Assignment::Caffe } else { Assignment::TensorFlow };
            let shuffle = if is_shuffled { Shuffle::Global } else { Shuffle::No };
            let feed = feed(images(records), lanes).batch_size(size).policy(policy).assignment(assignment);
            let feed = feed.share(JobWorker { world, number: worker }).epochs(2);
            feed.last_batch(last).shuffle(shuffle).seed(seed)
        };
        prop_assume!(of_worker(0).build().is_ok());
        let mut receipts: Vec<Receipt> = (0..workers).map(|worker| run(of_worker(worker))).collect();
        let whole = verdict(&receipts);
        prop_assert!(whole.is_sound() && whole.first_not_covered(1).is_none(), "{whole:?}");
        let sum: u64 = whole.epochs.iter().map(|epoch| epoch.delivered).sum();
        prop_assert_eq!(sum, receipts.iter().map(delivered).sum::<u64>());
        for epoch in &whole.epochs[..1] {
            let each = if policy == AutoShardPolicy::Off { workers } else { 1 };
            prop_assert_eq!(epoch.delivered + epoch.dropped, (each * records) as u64);
            prop_assert!(epoch.dropped == 0 || last == LastBatch::Drop);
        }
        // One of them twice, then none of it.
        let double = receipts[0].clone();
        if delivered(&double) > 0 {
            let doubled = verdict(&[&receipts[..], &[double][..]].concat());
            prop_assert!(!doubled.is_sound());
            prop_assert!(doubled.epochs.iter().map(|epoch| epoch.doubled.count).sum::<u64>() > 0);
        }
        if workers > 1 {
            receipts.remove(0);
            let lacking = verdict(&receipts);
            prop_assert!(!lacking.is_sound());
            prop_assert_eq!(lacking.absent_replicas[0].replicas.clone(), 0..lanes);
        }
    }
}

#[test]
fn what_was_made_and_not_taken_is_not_delivered() {
    must_end("a lane that is left with batches in its ring", || {
        let mut feed = feed(images(64), 2).batch_size(4).epochs(0).prefetch(4).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        assert_eq!(delivered(&feed.receipt().unwrap()), 0);
        lanes[0].next().unwrap().unwrap();
        while lanes[1].try_next().unwrap().batch().is_none() {
            std::thread::yield_now();
        }
        lanes[1].next().unwrap().unwrap();
        assert_eq!(delivered(&lanes[0].receipt().unwrap()), 4);
        assert_eq!(lanes[1].receipt().unwrap().replicas().collect::<Vec<_>>(), [1]);
        drop(lanes);
        let receipt = feed.receipt().unwrap();
        assert_eq!(delivered(&receipt), 12);
        let verdict = verdict(&[receipt]);
        assert!(verdict.is_sound());
        let epoch = &verdict.epochs[0];
        assert_eq!((epoch.state, epoch.pending), (EpochState::UnderWay, 52));
        assert_eq!(
            epoch.to_string(),
            "epoch 0: under way: steps 0..1 of 8 (some replicas 0..2), 12 of 64 records"
        );
        assert_eq!(verdict.first_not_covered(1), Some(0));
    });
}

/// A consumer that drives all lanes together gets no batch of a step in which one lane failed.
#[test]
fn a_step_that_fails_for_one_lane_is_delivered_by_none() {
    must_end("a bad record", || {
        let mut records: Vec<_> = (0..12).map(|index| common::image(index, 1, 2, 2)).collect();
        records[6].1 = vec![0xff; 3];
        let mut feed = feed(MemorySource::new("bad", records), 2).batch_size(2).epochs(1).build().unwrap();
        let steps: Vec<_> = feed.steps().collect();
        assert!(steps[0].is_ok() && steps[1].is_err());
        assert_eq!(delivered(&feed.receipt().unwrap()), 4);
    });
}

/// A source that has fewer records than it reports.
#[derive(Debug)]
struct Boasting(MemorySource);

impl Source for Boasting {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        Some(12)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

#[test]
fn a_source_that_lied_leaves_an_epoch_that_is_not_covered() {
    must_end("a source that lied", || {
        let mut feed = feed(Boasting(images(10)), 1).batch_size(4).epochs(1).build().unwrap();
        let lane = feed.take_lanes().unwrap().remove(0);
        assert_eq!(lane.filter(Result::is_err).count(), 1);
        let verdict = verdict(&[feed.receipt().unwrap()]);
        assert_eq!(verdict.first_not_covered(1), Some(0));
        assert_eq!((verdict.epochs[0].delivered, verdict.epochs[0].pending), (8, 4));
    });
}

#[test]
fn receipts_are_of_feeds_that_go_by_a_plan() {
    let error = feed(images(8), 1).batch_size(2).build().unwrap_err();
    assert_eq!(error, FeedError::Config(ConfigError::ReceiptsOfRoundRobin));
    assert!(error.to_string().contains(".epochs(0).assignment(Assignment::Caffe)"), "{error}");
    must_end("a feed without receipts", || {
        let mut feed = feed(images(8), 1).batch_size(2).epochs(1).receipts(false).build().unwrap();
        assert_eq!(feed.receipt(), None);
        assert_eq!(feed.take_lanes().unwrap()[0].receipt(), None);
    });
}

/// The naive twin: the digest of a source's records, in a plain pass.
fn naive_sum(source: &dyn Source) -> (u128, u64) {
    let (mut sum, mut index) = (0_u128, 0_u64);
    let mut cursor = source.cursor().unwrap();
    while let Some(entry) = cursor.advance().unwrap() {
        let parts = [entry.key(), entry.value(), entry.companion().unwrap_or_default()];
        let companion_bytes = entry.companion().map_or(u64::MAX, |companion| companion.len() as u64);
        let mut head = index.to_le_bytes().to_vec();
        for bytes in [parts[0].len() as u64, parts[1].len() as u64, companion_bytes] {
            head.extend(bytes.to_le_bytes());
        }
        for part in parts {
            head.extend(twox_hash::XxHash3_128::oneshot(part).to_le_bytes());
        }
        sum = sum.wrapping_add(twox_hash::XxHash3_128::oneshot(&head));
        index += 1;
    }
    (sum, index)
}

fn prove(digest: &DataDigest, receipts: &[Receipt]) -> Verdict {
    let names = ["first", "second", "third", "fourth"];
    Verdict::with_digest(("digest", digest), names.into_iter().zip(receipts)).unwrap()
}

fn contents_of(receipts: &[Receipt], epoch: u64) -> String {
    let of_epoch = receipts.iter().filter_map(|receipt| receipt.epoch(epoch));
    let contents = of_epoch.map(EpochAccount::contents);
    contents.fold(percolator::receipt::Digest::default(), |sum, one| sum + one).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Padded rows and empty batches hold nothing; wrapped batches hold records of two epochs.
    #[test]
    fn what_was_delivered_holds_what_the_data_set_does_in_any_division(
        records in 1_usize..40, workers in 1_usize..4, lanes in 1_usize..3, size in 1_usize..7,
        policy in 0_usize..3,
        is_caffe: bool, last in 0_usize..4, is_shuffled: bool, threads in 1_usize..5, cut in 0_usize..5,
    ) {
        must_end("feeds whose contents are hashed", move || {
            let is_caffe = is_caffe && policy == 0;
            let world = World::new(workers, workers * lanes).unwrap();
            let policy = [AutoShardPolicy::Data, AutoShardPolicy::Off, AutoShardPolicy::Hint][policy];
            let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last];
            let of_worker = |worker| {
                let assignment = if is_caffe { Assignment::Caffe } else { Assignment::TensorFlow };
                let shuffle = if is_shuffled { Shuffle::Global } else { Shuffle::No };
                let feed =
                    feed(images(records), lanes).batch_size(size).policy(policy).assignment(assignment);
                let feed = feed.receipts(Receipts::Contents).threads(threads).epochs(2);
                feed.last_batch(last).shuffle(shuffle).share(JobWorker { world, number: worker })
            };
            if of_worker(0).build().is_err() {
                return;
            }
            let (sum, count) = naive_sum(&images(records));
            let digest = digest(&of_worker(0), DigestDetail::EachRecord).unwrap();
            assert_eq!(digest.contents().to_string(), format!("{sum:032x} of {count}"));
            // Each worker stops after some steps, and resumes.
            let mut receipts: Vec<Receipt> = Vec::new();
            for worker in 0..workers {
                let mut first = of_worker(worker).build().unwrap();
                first.steps().take(cut).for_each(|step| drop(step.unwrap()));
                let mut whole = first.receipt().unwrap();
                whole.merge(&run(of_worker(worker).resume(&first.snapshot().unwrap()))).unwrap();
                receipts.push(whole);
            }
            let proven = prove(&digest, &receipts);
            assert!(proven.is_sound(), "{proven:?}");
            assert!(proven.epochs.iter().all(|epoch| epoch.contents == Some(ContentsVerdict::Proven)));
            if last != LastBatch::Drop {
                let times = if policy == AutoShardPolicy::Off { workers as u64 } else { 1 };
                let due = format!("{:032x} of {}", sum.wrapping_mul(times.into()), count * times);
                assert_eq!(contents_of(&receipts, 0), due);
                assert!(prove(&digest.sum(), &receipts).is_sound());
            }
        });
    }
}

#[test]
fn a_digest_says_how_far_it_is_and_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    common::write_lmdb(folder.path(), (0..3000).map(|index| (common::key(index), vec![1; 10])));
    let feed = feed(Lmdb::open(folder.path()).unwrap(), 1).batch_size(1);
    let progress = Progress::new();
    let watched = digest_watched(&feed, DigestDetail::Sum, &progress).unwrap().unwrap();
    assert_eq!(watched, digest(&feed, DigestDetail::Sum).unwrap());
    assert_eq!((progress.total(), progress.done(), progress.records()), (3000, 3000, 3000));
    assert_eq!(progress.bytes(), 30_000);
    progress.stop();
    assert_eq!(digest_watched(&feed, DigestDetail::Sum, &progress).unwrap(), None);
    assert_eq!(progress.done(), 0, "it ends before the first run is hashed");
}

/// Where a data set is stored, and in how many databases, does not matter.
#[test]
fn all_kinds_of_data_sets_are_proven_and_copies_have_one_digest() {
    must_end("all kinds of data sets", || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let records = |range: std::ops::Range<usize>| range.map(|index| common::image(index, 1, 20, 30));
        let leveldb = |compressor| common::indexed::leveldb_options(compressor);
        common::write_lmdb(&path("lmdb"), records(0..40));
        common::leveldb::write(&path("plain"), leveldb(0), records(0..40));
        common::leveldb::write(&path("packed"), leveldb(1), records(0..40));
        common::write_lmdb(&path("front"), records(0..17));
        common::leveldb::write(&path("back"), leveldb(0), records(17..40));
        let lmdb = |name| Lmdb::open(path(name)).unwrap();
        let level = |name| LevelDb::open(path(name)).unwrap();
        let list = std::fs::write(path("list.txt"), "420.jpg 1\n422.jpg 2\n420.jpg 3\n");
        list.unwrap();
        let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/images");
        let list = ImageList::open(path("list.txt")).unwrap().relative_to(&files);
        let small = Transform::new().color(ColorMode::Color).resize(8, 8);
        let described = [
            feed(lmdb("lmdb"), 2),
            feed(level("plain"), 2),
            feed(level("packed"), 2),
            feed(Joined::new(lmdb("front")).and(level("back")), 2),
            feed(images(40), 2).target(Target::paired(lmdb("lmdb"), Matching::Order)),
            feed(images(40), 2).target(Target::paired(level("plain"), Matching::Order)),
            feed(list, 2).transform(small),
        ];
        let digests = described.map(|feed| {
            let feed = feed.batch_size(3).epochs(2).shuffle(Shuffle::Global).index(IndexPlace::Memory);
            let digest = digest(&feed, DigestDetail::Sum).unwrap();
            let receipts = [run(feed.with_digest(&digest).receipts(Receipts::Contents))];
            let verdict = prove(&digest, &receipts);
            assert!(verdict.is_sound() && verdict.first_not_covered(2).is_none(), "{verdict:?}");
            digest
        });
        let of_images = naive_sum(&MemorySource::images("receipts", 40, 1, 20, 30));
        assert_eq!(digests[0].contents().to_string(), format!("{:032x} of {}", of_images.0, of_images.1));
        for same in [1, 2, 3] {
            assert_eq!(digests[same].contents(), digests[0].contents());
        }
        assert_eq!(digests[4].contents(), digests[5].contents());
        let without = digest(&feed(images(40), 2), DigestDetail::Sum).unwrap();
        assert_ne!(digests[4].contents(), without.contents());
        // Without its targets, a data set is another one.
        let alone = run(feed(images(40), 2).batch_size(3).epochs(1).receipts(Receipts::Contents));
        let error = Verdict::with_digest(("pairs", &digests[4]), [("alone", &alone)]).unwrap_err();
        assert!(error.to_string().contains("they do not belong to the same data set"), "{error}");
    });
}

/// 30 images, one of them wrong.
fn with_one_wrong(at: usize, wrong: fn(usize) -> (Vec<u8>, Vec<u8>)) -> MemorySource {
    let record = move |index| if index == at { wrong(index) } else { common::image(index, 1, 2, 2) };
    MemorySource::new("receipts", (0..30).map(record))
}

fn with_another_byte(index: usize) -> (Vec<u8>, Vec<u8>) {
    let (key, mut value) = common::image(index, 1, 2, 2);
    *value.last_mut().unwrap() ^= 8;
    (key, value)
}

/// What a damaged tree once gave: one leaf twice, and another never.
fn the_one_before_again(index: usize) -> (Vec<u8>, Vec<u8>) {
    common::image(index - 1, 1, 2, 2)
}

fn with_another_key(index: usize) -> (Vec<u8>, Vec<u8>) {
    (format!("{index:08}_").into_bytes(), common::image(index, 1, 2, 2).1)
}

#[test]
fn one_record_that_differs_is_found_in_the_epoch_and_the_receipt_that_had_it() {
    must_end("one record", || {
        let describe = |source, worker| {
            let feed = feed(source, 1).batch_size(4).shuffle(Shuffle::Global).receipts(Receipts::Contents);
            feed.share(JobWorker { world: World::new(2, 2).unwrap(), number: worker }).epochs(2)
        };
        let right = |worker| describe(MemorySource::images("receipts", 30, 1, 2, 2), worker);
        let due = digest(&right(0), DigestDetail::EachRecord).unwrap();
        for wrong in [with_another_byte, the_one_before_again, with_another_key] {
            let describe_wrong = |worker| describe(with_one_wrong(17, wrong), worker);
            let wrong = digest(&describe_wrong(0), DigestDetail::Sum).unwrap();
            assert_ne!(wrong.contents(), due.contents());
            // In each epoch one of the workers has it, whichever that is.
            let receipts = [run(describe_wrong(0)), run(describe_wrong(1))];
            assert!(verdict(&receipts).is_sound(), "the positions are right");
            for digest in [due.clone(), due.sum()] {
                let verdict = prove(&digest, &receipts);
                assert!(!verdict.is_sound() && verdict.first_not_covered(2).is_none());
                for epoch in &verdict.epochs {
                    let Some(ContentsVerdict::Differ(differ)) = &epoch.contents else { panic!("{epoch:?}") };
                    let [differ] = &differ[..] else { panic!("{differ:?}") };
                    assert_eq!(differ.found.records(), differ.due.records());
                    let having = if digest.detail() == DigestDetail::EachRecord { 1 } else { 2 };
                    assert_eq!(differ.receipts.len(), having, "{differ}");
                }
            }
            // Only one of the workers reads a wrong record, and had it in at least one epoch.
            let receipts = [run(describe_wrong(0)), run(right(1))];
            for epoch in prove(&due, &receipts).epochs {
                match epoch.contents {
                    Some(ContentsVerdict::Proven) => {}
                    Some(ContentsVerdict::Differ(differ)) => assert_eq!(differ[0].receipts, ["first"]),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
}

#[test]
fn a_digest_of_other_data_is_refused_before_anything_is_fed() {
    let known = digest(&feed(images(12), 1), DigestDetail::Sum).unwrap();
    let refused = |source: MemorySource| {
        let error = feed(source, 1).batch_size(2).epochs(1).with_digest(&known).build().unwrap_err();
        assert!(matches!(error, FeedError::Config(ConfigError::OtherDigest { .. })), "{error}");
        error.to_string()
    };
    let said = refused(images(13));
    assert!(said.contains("it says \"12 records\", but this data set has \"13 records\""), "{said}");
    let said = refused(MemorySource::images("receipts", 12, 1, 2, 3));
    assert!(
        said.contains("it says \"first \"00000000\": 14 bytes") && said.contains("\"00000000\": 16 bytes"),
        "{said}"
    );
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    std::fs::write(&list, "420.jpg 1\n").unwrap();
    let list = ImageList::open(list).unwrap().shuffled(1);
    let error = digest(&feed(list, 1), DigestDetail::Sum).unwrap_err();
    assert_eq!(error, FeedError::Config(ConfigError::ShufflesItself));
}

/// A digest covers what records hold, not what is made of them.
#[test]
fn a_digest_needs_nothing_but_the_data() {
    let plain = feed(images(12), 1).target(Target::paired(images(12), Matching::Keys));
    let target = Target::paired(images(12), Matching::Keys);
    let target = target.transform(Transform::new().mean_file("no/such/mean.binaryproto"));
    let described = feed(images(12), 1).target(target);
    let described = described.transform(Transform::new().mean_file("nor/this.binaryproto"));
    let [one, other] = [&described, &plain].map(|feed| digest(feed, DigestDetail::Sum).unwrap());
    assert_eq!(one, other);
    let refused = described.batch_size(2).receipts(false).build().unwrap_err().to_string();
    assert!(refused.contains("nor/this.binaryproto"), "{refused}");
}

/// A file with the receipt of 12 records.
fn saved(folder: &Path, name: &str, seed: u64) -> PathBuf {
    let path = folder.join(name);
    run(feed(images(12), 2).batch_size(2).shuffle(Shuffle::Global).seed(seed).epochs(1)).save(&path).unwrap();
    path
}

#[test]
fn a_file_is_read_as_it_was_written_and_not_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "0.receipt", 7);
    let receipt = Receipt::load(&path).unwrap();
    assert_eq!(
        (receipt.source(), receipt.to_string()),
        ("memory/receipts", std::fs::read_to_string(&path).unwrap())
    );
    // Replaces the file, and leaves nothing beside it.
    receipt.save(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    let text = receipt.to_string();
    let fault = |text: &[u8]| {
        std::fs::write(&path, text).unwrap();
        let error = Receipt::load(&path).unwrap_err();
        assert!(error.to_string().contains("0.receipt"), "{error}");
        match error {
            ReceiptError::Text { fault, .. } => fault,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(fault(&text.as_bytes()[..text.len() - 20]), TextFault::Cut { .. }));
    assert!(matches!(fault(text.replace("seed 7", "seed 8").as_bytes()), TextFault::Edited { .. }));
    assert!(matches!(
        fault(text.replace("receipt 2", "receipt 3").as_bytes()),
        TextFault::Newer { found: 3, .. }
    ));
    assert!(matches!(fault(b"\xff\xfe\0"), TextFault::Other { .. }));
    let missing = Receipt::load(folder.path().join("1.receipt")).unwrap_err();
    assert!(missing.to_string().contains("1.receipt: cannot read this receipt"), "{missing}");
    let nowhere = receipt.save(folder.path().join("no/such/folder")).unwrap_err();
    assert!(nowhere.to_string().contains("cannot write the receipt"), "{nowhere}");
}

/// Every line is well formed, but no feed would write these.
#[test]
fn lines_that_cannot_be_are_named() {
    let text = run(feed(images(12), 2).batch_size(2).epochs(1)).to_string();
    let said = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        let body = text.replace(from, to);
        let body = &body[..body.rfind("checksum").unwrap()];
        let unverified = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
        unverified.parse::<Receipt>().unwrap_err().to_string()
    };
    let refused = |from, to, due: &str| {
        let said = said(from, to);
        assert!(said.contains(due), "{said}");
    };
    refused(
        "steps 1 0..3",
        "steps 1 0..4",
        "\"1 0..4\", expected \"steps ...\" with one of its replicas and steps of 0..3",
    );
    refused("steps 1 0..3", "steps 2 0..3", "\"2 0..3\"");
    refused("steps 1 0..3", "steps 0 0..3", "each replica once in an epoch");
    refused("replicas 0..2", "replicas 0..3", "replicas of this job");
    refused("batch replica 2", "batch replica 0", "a job that can be divided");
    refused(" of 12\n", " of twelve\n", "a sum and how many records it is of");
    refused("epoch 0\n", "epoch x\n", "\"epoch ...\" with a number");
    refused("sketch ", "sketch x", "the sums of its cells");
}
