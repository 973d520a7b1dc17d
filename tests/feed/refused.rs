//! A feed that cannot be is refused by name before it begins: counts, memory, devices and ranks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::feed::ConfigError;
use percolator::reader::ReaderError;
use percolator::{Device, DeviceError, Feed, FeedError};

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
        (Feed::builder(), "a feed needs a source: .lmdb(path), .leveldb(path), or .source(...)"),
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
