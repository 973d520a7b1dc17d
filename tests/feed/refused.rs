//! A feed that cannot be is refused by name before it begins: counts, memory, devices and ranks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::decoder::Decoded;
use percolator::example::ExampleFields;
use percolator::feed::{ConfigError, SourceSpec};
use percolator::order::{Assignment, AutoShardPolicy, JobWorker, Ranks, ShuffleSpec, World};
use percolator::reader::ReaderError;
use percolator::source::{Matching, Record};
use percolator::{
    BadRecords, Device, DeviceError, Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, LastBatch, RawBytes,
    Row, Shuffle, Target,
};

use crate::common::source::MemorySource;
use crate::lanes::{hosts, images, over};

/// An option of a feed.
type Sets = fn(FeedBuilder) -> FeedBuilder;

#[test]
fn the_budget_is_a_limit() {
    let feed = || over(images("budget", 10)).batch_size(8).prefetch(4).devices(hosts(2));
    let budget = feed().build().unwrap().memory_budget().clone();
    let pixels = &budget.lines[0];
    assert_eq!((pixels.count, pixels.bytes_each), (8, 8 * 432 * 4));
    feed().memory_limit(budget.total_bytes()).build().unwrap();
    let error = feed().memory_limit(budget.total_bytes() - 1).build().unwrap_err();
    assert!(matches!(
        error,
        FeedError::Config(ConfigError::OverBudget { needed, .. }) if needed == budget.total_bytes()
    ));
    for line in &budget.lines {
        assert!(error.to_string().contains(line.holder), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let feed = || over(images("refused", 10));
    let cases = [
        (feed().batch_size(0), "batch_size is 0; it must be at least 1"),
        (feed().prefetch(0), "prefetch is 0; it must be at least 1"),
        (feed().threads(0), "threads is 0; it must be at least 1"),
        (feed().devices([]), "a feed needs at least 1 device: name one with .devices(...)"),
        (feed().threads(1_000_000), "1000000 threads are too many; at most 1024 are allowed"),
        (feed().devices(hosts(2000)), "2000 devices are too many; at most 1024 are allowed"),
        (
            Feed::builder(),
            "a feed needs a source: .lmdb(path), .leveldb(path), .tfrecord(path), or .source(...)",
        ),
    ];
    for (builder, text) in cases {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    let error = feed().batch_size(usize::MAX / 2).build().unwrap_err();
    assert!(matches!(error, FeedError::Reader(ReaderError::PoolTooLarge { .. })), "{error}");
}

#[test]
fn devices_are_read_from_text() {
    assert_eq!("host".parse::<Device>().unwrap().name(), "host:0");
    assert_eq!("host:3".parse::<Device>().unwrap().name(), "host:3");
    for text in ["cuda:0", "cuda"] {
        match text.parse::<Device>() {
            Ok(device) => assert_eq!(device.name(), "cuda:0"),
            // The device may not exist, or the driver may be missing.
            Err(error) if cfg!(feature = "cuda") => {
                let is_known = matches!(&error, DeviceError::NoDriver | DeviceError::NoSuchDevice { .. });
                assert!(is_known, "{error}");
            }
            Err(error) => {
                assert!(matches!(&error, DeviceError::NotBuilt { device } if device == text), "{error}");
            }
        }
    }
    for text in ["", "gpu", "host:", "host:x", "host:-1", "host:0:1", "cuda:x", "HOST", "host: 1"] {
        let error = text.parse::<Device>().unwrap_err();
        assert!(matches!(&error, DeviceError::Unknown { device } if device == text), "{error}");
    }
}

#[test]
fn a_rank_that_the_job_does_not_have_is_refused() {
    let error = Feed::builder()
        .source(MemorySource::images("ranks", 7, 1, 2, 2))
        .devices([Device::host(0), Device::host(1)])
        .share(Ranks { first: 2, of: 3 })
        .build()
        .unwrap_err();
    assert_eq!(error.to_string(), "there is no rank 3 in a job of 3: ranks are counted from 0");
}

/// Of two options that exclude each other, none is dropped in silence, in either order.
#[test]
fn an_option_that_would_drop_another_is_refused_with_both_names() {
    fn decode(_: &Record<'_>, _: &mut Row<'_>) -> Decoded {
        Ok(())
    }
    let decoders: [(&'static str, Sets); 3] = [
        (".decoder(...)", |feed| feed.decoder(RawBytes::fixed())),
        (".decode(...)", |feed| feed.decode([Field::scalar("x", Dtype::F32)], decode)),
        (".example(...)", |feed| feed.example("x:f32".parse::<ExampleFields>().unwrap())),
    ];
    for (one, set_one) in decoders {
        for (other, set_other) in decoders {
            let built = set_other(set_one(over(images("decoders", 3)))).build();
            let is_refused =
                built.is_err_and(|error| error == FeedError::Config(ConfigError::TwoDecoders { one, other }));
            assert_eq!(is_refused, one != other, "{one} and {other}");
        }
    }

    // What a program has attached, and the target does not name.
    let spare = || images("spare", 3);
    let paired = Target::paired(images("masks", 3), Matching::Keys);
    for target in [paired.source(spare()), Target::float_data().source(spare())] {
        let error = over(images("named", 3)).target(target).build().unwrap_err();
        assert!(matches!(&error, FeedError::Config(ConfigError::AttachedTooMany { .. })), "{error}");
        assert!(error.to_string().contains("memory/spare was attached with Target::source(...)"), "{error}");
    }

    // Limits of what never happens.
    for policy in [BadRecords::fail().at_most(3), BadRecords::fail().at_most_rate(0.5)] {
        let error = over(images("limits", 3)).bad_records(policy).build().unwrap_err();
        assert!(matches!(error, FeedError::Config(ConfigError::UselessLimit)), "{error}");
    }
}

#[test]
fn what_only_a_plan_has_needs_epochs() {
    let options: [(&'static str, Sets); 7] = [
        (".shuffle(...)", |feed| feed.shuffle(Shuffle::Global)),
        (".shuffle(...)", |feed| feed.shuffle(ShuffleSpec::WindowsOfBytes(1 << 20))),
        (".mix(...)", |feed| feed.mix([1, 2])),
        (".last_batch(...)", |feed| feed.last_batch(LastBatch::Drop)),
        (".assignment(...)", |feed| feed.assignment(Assignment::Caffe)),
        (".policy(...)", |feed| feed.policy(AutoShardPolicy::Data)),
        (".share(JobWorker { .. })", |feed| feed.share(JobWorker { world: World::ALONE, number: 0 })),
    ];
    let orders = [
        (
            Epochs::RoundRobin,
            "the feed deals in Caffe's round-robin order, which has none: set .epochs(n), or .epochs(0) for \
             no end",
        ),
        (
            Epochs::OnePass,
            "Epochs::OnePass delivers one pass in Caffe's order, which has none: set .epochs(1) instead",
        ),
    ];
    for (option, set) in options {
        for (order, why) in orders {
            // Before anything is opened.
            let error = set(Feed::builder().lmdb("nowhere")).epochs(order).build().unwrap_err();
            assert_eq!(error, FeedError::Config(ConfigError::NeedsEpochs { option, order }));
            assert_eq!(error.to_string(), format!("{option} needs epochs, and {why}"));
            let alone = set(Feed::builder().lmdb("nowhere")).epochs(order).only_lane(0).unwrap_err();
            assert_eq!(alone, error);
            // Whoever says it in plain data is told the same.
            let spec = set(Feed::builder().lmdb("nowhere").epochs(order)).spec().clone();
            assert_eq!(FeedBuilder::from(spec).build().unwrap_err(), error);
        }
        for epochs in [0, 2] {
            let feed = set(over(images("planned", 9)).source(images("joined", 9))).epochs(epochs);
            assert!(feed.build().unwrap().plan().is_some(), "{option}");
        }
    }
    // Neither has a plan by itself, nor by what it does anyway.
    for epochs in [Epochs::RoundRobin, Epochs::OnePass] {
        assert!(over(images("dealt", 9)).epochs(epochs).build().unwrap().plan().is_none());
        let in_order = over(images("in order", 9)).epochs(epochs).shuffle(Shuffle::No);
        assert!(in_order.build().unwrap().plan().is_none());
    }
}

#[test]
fn sources_add_up() {
    let named = SourceSpec::Lmdb { path: "b".into(), name: Some("train".into()) };
    let sources: [(SourceSpec, Sets); 5] = [
        (SourceSpec::lmdb("a"), |feed| feed.lmdb("a")),
        (named, |feed| feed.data(SourceSpec::Lmdb { path: "b".into(), name: Some("train".into()) })),
        (SourceSpec::leveldb("c"), |feed| feed.leveldb("c")),
        (SourceSpec::tfrecord("d"), |feed| feed.tfrecord("d")),
        (SourceSpec::Attached { path: "memory/e".into() }, |feed| feed.source(images("e", 3))),
    ];
    for (first, add_first) in &sources {
        for (second, add_second) in &sources {
            let feed = add_second(add_first(Feed::builder()));
            assert_eq!(feed.spec().sources, [first.clone(), second.clone()]);
        }
    }
    let joined = over(images("one", 3)).source(images("other", 4)).source(images("last", 5));
    assert_eq!(records(joined), 12);
}

/// The number of records that one pass delivers.
fn records(feed: FeedBuilder) -> usize {
    let feed = feed.epochs(Epochs::OnePass).build().unwrap();
    feed.into_iter().map(|batch| batch.unwrap().len()).sum()
}

#[test]
fn the_sources_of_a_spec_may_be_replaced() {
    let spec = Feed::builder().lmdb("of the spec").leveldb("of the spec too").spec().clone();
    let feed = FeedBuilder::from(spec.clone()).source(images("of the program", 3));
    assert_eq!(feed.spec().sources.len(), 1);
    assert_eq!(records(feed), 3);
    let several = FeedBuilder::from(spec).lmdb("another").tfrecord("more");
    assert_eq!(several.spec().sources, [SourceSpec::lmdb("another"), SourceSpec::tfrecord("more")]);
    // Those that it only names as well.
    let spec = over(images("one", 3)).source(images("other", 4)).spec().clone();
    let replaced = FeedBuilder::from(spec).lmdb("another").source(images("more", 5));
    let attached = SourceSpec::Attached { path: "memory/more".into() };
    assert_eq!(replaced.spec().sources, [SourceSpec::lmdb("another"), attached]);
}

#[test]
fn sources_that_a_spec_only_names_are_attached_one_by_one() {
    let spec = over(images("one", 3)).source(images("other", 4)).spec().clone();
    let begun = FeedBuilder::from(spec.clone()).source(images("one", 3));
    let error = begun.clone().build().unwrap_err();
    let missing = ConfigError::NotAttached {
        what: "source",
        name: Some("memory/other".to_owned()),
        method: ".source(...)",
    };
    assert_eq!(error, FeedError::Config(missing));
    let whole = begun.source(images("other", 4));
    assert_eq!(whole.spec(), &spec);
    assert_eq!(records(whole.clone()), 7);
    // Nothing is left to be attached: one more is added.
    let more = whole.source(images("more", 5));
    assert_eq!(more.spec().sources[..2], spec.sources);
    assert_eq!(more.spec().sources[2], SourceSpec::Attached { path: "memory/more".into() });
    assert_eq!(records(more), 12);
}
