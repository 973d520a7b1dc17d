//! Feeds as plain data: a spec holds what a builder sets, and gives the feed that it describes.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::path::{Path, PathBuf};

use percolator::feed::{ConfigError, FeedSpec, Receipts, Seed, SourceSpec, TargetFrom};
use percolator::order::{BatchSize, JobWorker, Ranks, ShuffleSpec, World};
use percolator::source::{Lmdb, Matching};
use percolator::transform::CaffeEra;
use percolator::{
    Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Shuffle, Target, Transform,
};

use crate::common::log::Log;

fn database(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(name)
}

/// A batch: the epoch and index of each record, and every byte.
type Delivered = (Vec<(u64, u64)>, Vec<u8>);

/// All batches.
fn delivered(feed: Feed) -> Vec<Delivered> {
    let batch = |batch: Result<percolator::Batch, FeedError>| {
        let batch = batch.unwrap();
        let records = batch.records().iter().map(|record| (record.epoch, record.index)).collect();
        (records, batch.bytes().to_vec())
    };
    feed.into_iter().map(batch).collect()
}

fn masks() -> FeedBuilder {
    Feed::builder().lmdb(database("raw_lmdb")).transform(Transform::new().crop(3).mirror(true))
}

fn described() -> FeedBuilder {
    Feed::builder()
        .lmdb(database("raw_lmdb"))
        .transform(Transform::new().crop(3).mirror(true).mean_values([1.0, 2.0, 3.0]).scale(0.5))
        .target(Target::from_feed(masks(), Matching::Keys).dtype(Dtype::U8))
        .batch_size(4)
        .epochs(2)
        .shuffle(Shuffle::Global)
        .last_batch(LastBatch::Pad)
        .seed(7)
}

#[test]
fn a_spec_has_what_a_builder_sets() {
    let builder = Feed::builder()
        .lmdb("first")
        .data(SourceSpec::Lmdb { path: "second".into(), name: Some("name".into()) })
        .leveldb("third")
        .root("/data")
        .layer("images")
        .batch_size(BatchSize::Global(12))
        .seed(Seed::Caffe { seed: 5, era: CaffeEra::DataReader })
        .shuffle(ShuffleSpec::WindowsOfBytes(1 << 20))
        .mix([1, 2, 3])
        .epochs(6)
        .share(Ranks { first: 1, of: 3 })
        .share(JobWorker { world: World::new(2, 4).unwrap(), number: 1 })
        .devices([Device::host(0), Device::host(3)])
        .threads(2)
        .prefetch(3)
        .memory_limit(1 << 30)
        .receipts(Receipts::Contents)
        .give_up_after(None);
    let spec = builder.spec();
    assert_eq!(
        spec.sources,
        [
            SourceSpec::lmdb("first"),
            SourceSpec::Lmdb { path: "second".into(), name: Some("name".into()) },
            SourceSpec::leveldb("third")
        ]
    );
    assert_eq!((&*spec.root, &*spec.layer), (Path::new("/data"), "images"));
    assert_eq!(spec.batch_size, BatchSize::Global(12));
    assert_eq!(spec.seed, Seed::Caffe { seed: 5, era: CaffeEra::DataReader });
    let schedule = &spec.schedule;
    assert_eq!(schedule.shuffle, Some(ShuffleSpec::WindowsOfBytes(1 << 20)));
    assert_eq!((&*schedule.mix, schedule.once, schedule.epochs), (&[1, 2, 3][..], false, Some(6)));
    assert_eq!(schedule.worker, Some(JobWorker { world: World::new(2, 4).unwrap(), number: 1 }));
    assert_eq!(schedule.ranks, None);
    assert!(schedule.is_planned() && !FeedSpec::default().schedule.is_planned());
    assert_eq!(spec.devices, ["host:0", "host:3"]);
    assert_eq!((spec.threads, spec.prefetch, spec.memory_limit), (Some(2), Some(3), Some(1 << 30)));
    assert_eq!((spec.receipts, spec.give_up_after), (Receipts::Contents, None));
}

#[test]
fn what_is_set_last_counts_in_each_of_its_forms() {
    let builder = Feed::builder().batch_size(BatchSize::Global(12)).batch_size(4);
    assert_eq!(builder.spec().batch_size, BatchSize::PerReplica(4));
    let builder = builder.batch_size(BatchSize::Global(12));
    assert_eq!(builder.spec().batch_size, BatchSize::Global(12));

    let caffe = Seed::Caffe { seed: 5, era: CaffeEra::Today };
    assert_eq!(Feed::builder().seed(caffe).seed(7).spec().seed, Seed::Indexed(7));
    assert_eq!(Feed::builder().seed(7).seed(caffe).spec().seed, caffe);

    let builder = Feed::builder().shuffle(ShuffleSpec::WindowsOfBytes(1 << 20)).shuffle(Shuffle::Files);
    assert_eq!(builder.spec().schedule.shuffle, Some(ShuffleSpec::By(Shuffle::Files)));

    let worker = JobWorker { world: World::new(2, 4).unwrap(), number: 1 };
    let ranks = Ranks { first: 1, of: 3 };
    let shares = |feed: FeedBuilder| (feed.spec().schedule.worker, feed.spec().schedule.ranks);
    assert_eq!(shares(Feed::builder().share(ranks).share(worker)), (Some(worker), None));
    assert_eq!(shares(Feed::builder().share(worker).share(ranks)), (None, Some(ranks)));

    let kept = |feed: FeedBuilder| feed.spec().receipts;
    assert_eq!(kept(Feed::builder().receipts(true)), Receipts::Positions);
    assert_eq!(kept(Feed::builder().receipts(Receipts::Contents).receipts(true)), Receipts::Positions);
    assert_eq!(kept(Feed::builder().receipts(true).receipts(Receipts::Contents)), Receipts::Contents);
    assert_eq!(kept(Feed::builder().receipts(Receipts::Contents).receipts(false)), Receipts::Off);
}

#[test]
fn a_spec_gives_the_feed_that_its_builder_gives() {
    let spec = described().spec().clone();
    let (by_builder, by_spec) = (described().build().unwrap(), FeedBuilder::from(spec).build().unwrap());
    let batches = delivered(by_builder);
    assert!(batches.len() > 2);
    assert_eq!(delivered(by_spec), batches);
}

#[test]
fn what_would_run_is_known_before_it_runs() {
    let resolved = described().resolve().unwrap();
    let plan = resolved.plan().unwrap().clone();
    let (layout, sizing) = (resolved.layout().to_string(), resolved.sizing());
    let bytes = resolved.memory_budget().total_bytes();
    assert_eq!(resolved.source().path(), database("raw_lmdb"));
    assert_eq!(resolved.spec(), described().spec());
    assert!(resolved.input_shape().is_some());
    let feed = resolved.launch().unwrap();
    assert_eq!(feed.plan(), Some(&plan));
    assert_eq!((feed.layout().to_string(), feed.sizing()), (layout, sizing));
    assert_eq!(feed.memory_budget().total_bytes(), bytes);
    let round_robin = Feed::builder().lmdb(database("raw_lmdb")).resolve().unwrap();
    assert!(round_robin.plan().is_none());
}

#[test]
fn what_was_attached_must_be_attached_again() {
    let source = || Lmdb::open(database("raw_lmdb")).unwrap();
    let builder =
        Feed::builder().source(source()).lmdb(database("raw_lmdb")).batch_size(2).epochs(Epochs::OnePass);
    let spec = builder.spec().clone();
    assert_eq!(spec.sources[0], SourceSpec::Attached { path: database("raw_lmdb") });
    let error = FeedBuilder::from(spec.clone()).build().unwrap_err();
    let FeedError::Config(ConfigError::NotAttached { what: "source", name, method: ".source(...)" }) = &error
    else {
        panic!("{error}");
    };
    assert_eq!(name.as_deref(), database("raw_lmdb").to_str());
    // The spec itself has the other one.
    let again = FeedBuilder::from(spec).source(source());
    assert_eq!(again.spec(), builder.spec());
    assert_eq!(delivered(again.build().unwrap()), delivered(builder.build().unwrap()));

    let paired = Feed::builder().lmdb("a").target(Target::paired(source(), Matching::Order));
    let target = paired.spec().target.as_ref().unwrap();
    let sources = vec![SourceSpec::Attached { path: database("raw_lmdb") }];
    assert_eq!(target.from, TargetFrom::Paired { sources, matching: Matching::Order });

    let paired = Feed::builder()
        .lmdb(database("raw_lmdb"))
        .target(Target::paired(source(), Matching::Keys))
        .epochs(Epochs::OnePass);
    let spec = paired.spec().clone();
    let error = FeedBuilder::from(spec.clone()).build().unwrap_err();
    assert!(error.to_string().contains("Target::source("), "{error}");
    let target = Target::from(spec.target.clone().unwrap()).source(source());
    let again = FeedBuilder::from(spec).target(target);
    assert_eq!(again.spec(), paired.spec());
    assert_eq!(delivered(again.build().unwrap()), delivered(paired.build().unwrap()));

    let decoded = Feed::builder().lmdb(database("raw_lmdb")).decoder(percolator::RawBytes::up_to(1 << 16));
    let error = FeedBuilder::from(decoded.spec().clone()).build().unwrap_err();
    assert!(error.to_string().contains("decoder"), "{error}");
}

#[test]
fn devices_are_found_by_their_names() {
    let mut spec = described().spec().clone();
    spec.devices = vec!["host:1".into(), "host:1".into(), "host".into()];
    let feed = FeedBuilder::from(spec.clone()).build().unwrap();
    let names: Vec<_> = feed.stats().lanes.iter().map(|lane| lane.device.clone()).collect();
    assert_eq!(names, ["host:1", "host:1", "host:0"]);
    let resolved = FeedBuilder::from(spec.clone()).resolve().unwrap();
    assert_eq!(resolved.spec().devices, ["host:1", "host:1", "host:0"]);
    // What needs no device is checked before one is looked for.
    let mut nothing = FeedSpec::default();
    nothing.devices = vec!["abacus".into(); 2000];
    let error = FeedBuilder::from(nothing).build().unwrap_err();
    assert!(matches!(error, FeedError::Config(ConfigError::TooMany { option: "devices", .. })), "{error}");
    spec.devices[2] = "abacus".into();
    let error = FeedBuilder::from(spec).build().unwrap_err();
    let FeedError::Config(ConfigError::NoSuchDevice { device }) = &error else { panic!("{error}") };
    assert!(device == "abacus" && error.to_string().contains(".devices("), "{error}");
}

/// The data layer of a net in which a field is ignored.
fn net_layer() -> FeedBuilder {
    let net = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/nets/v0_imagenet.prototxt");
    let net = percolator::Net::open(net).unwrap();
    Feed::layers_of(&net, &percolator::Phase::Train.into()).unwrap().remove(0)
}

#[test]
fn what_is_ignored_in_a_nets_layer_is_logged_for_its_spec_too() {
    for feed in [net_layer(), FeedBuilder::from(net_layer().spec().clone())] {
        let log = Log::default();
        let error = log.listen(|| feed.resolve().unwrap_err());
        assert!(matches!(error, FeedError::Layer { .. }), "its database is not here: {error}");
        assert!(log.text().contains("data_param.rand_skip"), "{}", log.text());
    }
}

#[test]
fn a_place_in_a_job_is_checked_before_anything_is_opened() {
    let nowhere = || Feed::builder().lmdb("nowhere").batch_size(2).epochs(1);
    let error = nowhere().share(Ranks { first: 1, of: 4 }).build().unwrap_err();
    assert!(matches!(error, FeedError::Config(ConfigError::RanksInPlan { .. })), "{error}");
    let error =
        nowhere().share(JobWorker { world: World::new(2, 4).unwrap(), number: 0 }).build().unwrap_err();
    assert!(matches!(error, FeedError::Config(ConfigError::Replicas { devices: 1, .. })), "{error}");
}

#[test]
fn a_spec_is_written_and_read() {
    let mean = percolator::transform::MeanImage::new(
        percolator::batch::ImageShape { channels: 1, height: 1, width: 2 },
        [0.5, 1.5],
    );
    let with_mean = Feed::builder().transform(Transform::new().mean_image(mean.unwrap()));
    let several = Feed::builder()
        .lmdb("a")
        .leveldb("b")
        .share(JobWorker { world: World::new(2, 4).unwrap(), number: 1 });
    for builder in [described(), with_mean, several, Feed::builder(), net_layer()] {
        let text = serde_json::to_string(builder.spec()).unwrap();
        assert_eq!(&serde_json::from_str::<FeedSpec>(&text).unwrap(), builder.spec(), "{text}");
    }
    let text = serde_json::to_string(described().spec()).unwrap();
    let read = FeedBuilder::from(serde_json::from_str::<FeedSpec>(&text).unwrap());
    assert_eq!(delivered(read.build().unwrap()), delivered(described().build().unwrap()));

    // What is left out has its default; what is misspelt or invalid is an error.
    let short: FeedSpec = serde_json::from_str(r#"{"sources": [{"leveldb": {"path": "a"}}]}"#).unwrap();
    assert_eq!(
        {
            let mut none = short.clone();
            none.sources.clear();
            none
        },
        FeedSpec::default()
    );
    assert_eq!(short.sources, [SourceSpec::leveldb("a")]);
    for wrong in [
        r#"{"batchsize": 3}"#,
        r#"{"schedule": {"epoch": 3}}"#,
        r#"{"schedule": {"worker": {"world": {"workers": 2, "replicas": 3}, "number": 0}}}"#,
        r#"{"transform": {"mean_file": "mean.binaryproto"}}"#,
        r#"{"sources": [{"lmdb": {"path": "a", "nmae": "train"}}]}"#,
        r#"{"net": {"taken": {"today": 18446744073709551615, "data_reader": 0}, "preceded_by_other": false,
            "title": "x"}}"#,
    ] {
        assert!(serde_json::from_str::<FeedSpec>(wrong).is_err(), "{wrong}");
    }
}
