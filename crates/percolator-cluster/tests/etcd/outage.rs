//! An etcd that is not there, or does not answer.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, Lease, Metadata, MetadataError, Revision, Transaction};

use crate::server::{Etcd, until};

const SHORT: Duration = Duration::from_millis(300);

fn is_unreachable<T: std::fmt::Debug>(result: Result<T, MetadataError>, deadline: Duration, due: &str) {
    let error = result.unwrap_err();
    let MetadataError::Unreachable { waited, .. } = &error else { panic!("{error:?}") };
    assert!(*waited >= deadline || due.contains("refused"), "it did not wait: {error:?}");
    let message = format!("{error}: {}", error.source().unwrap());
    assert!(message.contains(due), "{message}");
}

#[test]
fn nobody_listens() {
    // Nobody has ports this low.
    let options = EtcdOptions::new(["http://127.0.0.1:1", "http://127.0.0.1:2"]).deadline(SHORT);
    let error = EtcdMetadata::connect(&options).unwrap_err();
    let message = format!("{error}: {}", error.source().unwrap());
    assert!(matches!(&error, MetadataError::Unreachable { .. }), "{message}");
    assert!(
        message.starts_with("etcd at http://127.0.0.1:1, http://127.0.0.1:2 did not answer"),
        "{message}"
    );
    for port in ["http://127.0.0.1:1: ", "http://127.0.0.1:2: ", "efused"] {
        assert!(message.contains(port), "{message}");
    }
    let unknown = EtcdOptions::new(["http://nobody.invalid:2379"]).deadline(SHORT);
    let error = EtcdMetadata::connect(&unknown).unwrap_err();
    assert!(matches!(&error, MetadataError::Unreachable { .. }), "{error:?}");
    let wrong = EtcdMetadata::connect(&EtcdOptions::new(["127.0.0.1"])).unwrap_err();
    assert!(matches!(&wrong, MetadataError::Options { .. }), "{wrong:?}");
}

#[test]
fn calls_end_while_etcd_is_paused_and_work_again_after_it() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let options = etcd.options().deadline(SHORT);
    let records = Arc::new(EtcdMetadata::connect(&options).unwrap());
    let put = Transaction::new().put("a", "1");
    records.transact(&put).unwrap();
    let lease = Lease::keep(records.clone(), Duration::from_secs(1)).unwrap();
    let id = lease.id();
    records.transact(&Transaction::new().put_under(id, "held", "")).unwrap();
    assert!(lease.is_alive());

    etcd.pause();
    is_unreachable(records.read(""), SHORT, "no answer within");
    is_unreachable(records.transact(&put), SHORT, "no answer within");
    is_unreachable(records.grant(SHORT), SHORT, "no answer within");
    is_unreachable(records.keep_alive(id), SHORT, "no answer within");
    is_unreachable(records.revoke(id), SHORT, "no answer within");
    is_unreachable(records.wait("", Revision(0), Duration::ZERO), SHORT, "no answer within");
    is_unreachable(EtcdMetadata::connect(&options), SHORT, "no answer within");
    until("the lease is not alive for certain", || !lease.is_alive());
    // Two names of one etcd: what may have been taken under one is not tried under the other.
    let two = EtcdOptions::new([&*etcd.url, &*etcd.url.replace("127.0.0.1", "localhost")]).deadline(SHORT);
    etcd.go_on();
    let by_two = EtcdMetadata::connect(&two).unwrap();
    etcd.pause();
    let attempts = |result: Result<(), MetadataError>| result.unwrap_err().source().unwrap().to_string();
    let of_one = attempts(by_two.transact(&put).map(drop));
    assert!(of_one.contains("127.0.0.1") && !of_one.contains("localhost"), "{of_one}");
    let of_both = attempts(by_two.read("").map(drop));
    assert!(of_both.contains("127.0.0.1") && of_both.contains("localhost"), "{of_both}");

    etcd.go_on();
    until("it answers", || records.read("").is_ok());
    records.transact(&put).unwrap();
    // The lease was revoked while nobody knew whether it was.
    until("the lease's end is known", || lease.has_ended());
    assert!(records.read("held").unwrap().get("held").is_none());
    drop(lease);
}

/// A connection that stays, and says nothing, is noticed: a wait does not go on to its end, nor say that
/// nothing has changed.
#[test]
fn a_long_wait_notices_that_etcd_is_silent() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let records = EtcdMetadata::connect(&etcd.options().deadline(SHORT)).unwrap();
    let now = records.read("").unwrap().revision;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| records.wait("", now, Duration::from_secs(60)));
        until("the wait has begun", || etcd.counts("etcd_debugging_mvcc_watcher_total 1"));
        etcd.pause();
        is_unreachable(waits.join().unwrap(), SHORT, "no ");
    });
}

#[test]
fn a_wait_survives_a_restart() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let records = Arc::new(EtcdMetadata::connect(&etcd.options().deadline(Duration::from_secs(60))).unwrap());
    records.transact(&Transaction::new().put("a", "1")).unwrap();
    let before = records.read("").unwrap().revision;
    let waits = std::thread::spawn({
        let records = records.clone();
        move || {
            while records.read("b").unwrap().records.is_empty() {
                records.wait("b", before, Duration::from_secs(60)).unwrap();
            }
        }
    });
    etcd.kill();
    etcd.run();
    assert!(etcd.is_ready(&etcd.options()));
    records.transact(&Transaction::new().put("b", "1")).unwrap();
    waits.join().unwrap();
}

/// The first of two endpoints is paused: what may be done twice is done by the other within the deadline, and
/// what may not is at least not asked of the first again.
#[test]
fn another_endpoint_is_asked() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    // Nobody accepts here, so what connects waits.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let deadline = Duration::from_secs(4);
    let options = EtcdOptions::new([&*silent, "http://127.0.0.1:1", &*etcd.url]).deadline(deadline);
    let records = EtcdMetadata::connect(&options).unwrap();
    records.transact(&Transaction::new().put("a", "1")).unwrap();
    assert_eq!(records.read("").unwrap().records.len(), 1);
}
