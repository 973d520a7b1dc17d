//! A feed that cannot be is refused by name before it begins: counts, memory, devices and ranks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::decoder::Decoded;
use percolator::example::ExampleImage;
use percolator::feed::ConfigError;
use percolator::reader::ReaderError;
use percolator::source::Record;
use percolator::{
    BadRecords, Device, DeviceError, Dtype, Feed, FeedBuilder, FeedError, Field, RawBytes, Row,
};

use crate::common::source::MemorySource;
use crate::lanes::{hosts, images, over};

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
            Err(error) if cfg!(feature = "cuda-driver") => {
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
        .ranks(2, 3)
        .build()
        .unwrap_err();
    assert_eq!(error.to_string(), "there is no rank 3 in a job of 3: ranks are counted from 0");
}

/// Of two options that exclude each other, none is dropped in silence, in either order.
#[test]
fn an_option_that_would_drop_another_is_refused_with_both_names() {
    type Option = (&'static str, fn(FeedBuilder) -> FeedBuilder);

    fn decode(_: &Record<'_>, _: &mut Row<'_>) -> Decoded {
        Ok(())
    }
    let sources: [Option; 5] = [
        ("the LMDB a", |feed| feed.lmdb("a")),
        ("the LMDB b", |feed| feed.lmdb_named("b", "train")),
        ("the LevelDB c", |feed| feed.leveldb("c")),
        ("the TFRecord files d", |feed| feed.tfrecord("d")),
        ("the source memory/e", |feed| feed.source(images("e", 3))),
    ];
    let joined: [Option; 5] = [
        (".and_lmdb(", |feed| feed.and_lmdb("a")),
        (".and_lmdb_named(", |feed| feed.and_lmdb_named("b", "train")),
        (".and_leveldb(", |feed| feed.and_leveldb("c")),
        (".and_tfrecord(", |feed| feed.and_tfrecord("d")),
        (".and_source(", |feed| feed.and_source(images("e", 3))),
    ];
    for (first, set_first) in sources.into_iter() {
        for ((second, set_second), (join, _)) in sources.into_iter().zip(joined) {
            let error = set_second(set_first(Feed::builder())).build().unwrap_err();
            assert!(matches!(error, FeedError::Config(ConfigError::SourceReplaced { .. })), "{error}");
            let said = error.to_string();
            assert!([first, second, join].iter().all(|part| said.contains(part)), "{said}");
        }
    }
    // What joined the first one would be dropped with it.
    for (_, join) in joined {
        let error = join(Feed::builder().lmdb("first")).lmdb("last").build().unwrap_err();
        assert!(
            error.to_string().contains("the LMDB last are each set as the feed's only source"),
            "{error}"
        );
    }

    let decoders: [Option; 5] = [
        (".decoder(...)", |feed| feed.decoder(RawBytes::fixed())),
        (".fields(...)", |feed| feed.fields([Field::scalar("x", Dtype::F32)])),
        (".decode(...)", |feed| feed.decode(decode)),
        (".example(...)", |feed| feed.example("x:f32".parse().unwrap())),
        (".example_image(...)", |feed| feed.example_image(ExampleImage::encoded("image"))),
    ];
    for (first, (one, set_one)) in decoders.into_iter().enumerate() {
        for (second, (other, set_other)) in decoders.into_iter().enumerate() {
            // The closure and its fields go together, and an Example's image and its other fields.
            let kind = |number: usize| number.div_ceil(2);
            let built = set_other(set_one(over(images("decoders", 3)))).build();
            let is_refused =
                built.is_err_and(|error| error == FeedError::Config(ConfigError::TwoDecoders { one, other }));
            assert_eq!(is_refused, kind(first) != kind(second), "{one} and {other}");
        }
    }

    // What a program has attached, and nothing names.
    let spare = over(images("named", 3)).attach_source(images("spare", 3)).build().unwrap_err();
    assert!(matches!(&spare, FeedError::Config(ConfigError::AttachedTooMany { .. })), "{spare}");
    assert!(spare.to_string().contains("memory/spare was attached with .attach_source(...)"), "{spare}");

    // Limits of what never happens.
    for policy in [BadRecords::fail().at_most(3), BadRecords::fail().at_most_rate(0.5)] {
        let error = over(images("limits", 3)).bad_records(policy).build().unwrap_err();
        assert!(matches!(error, FeedError::Config(ConfigError::UselessLimit)), "{error}");
    }
}

#[test]
fn the_source_of_a_spec_may_be_replaced() {
    let spec = Feed::builder().lmdb("of the spec").spec().clone();
    let feed = FeedBuilder::from(spec.clone()).source(images("of the program", 3));
    assert_eq!(feed.spec().sources.len(), 1);
    feed.build().unwrap();
    let joined = FeedBuilder::from(spec).and_lmdb("another");
    assert_eq!(joined.spec().sources.len(), 2);
}
