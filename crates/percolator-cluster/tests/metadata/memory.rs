//! The records in memory.

use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::clock::ManualClock;
use percolator_cluster::metadata::{Lease, MemoryMetadata, Metadata as _, Outcome, Transaction};

use crate::contract;

#[test]
fn memory_keeps_the_contract() {
    contract::check(&|| Arc::new(MemoryMetadata::new()));
}

#[test]
fn a_lease_that_is_not_kept_alive_ends_with_its_records() {
    let clock = ManualClock::new();
    let records = MemoryMetadata::with_clock(clock.clone());
    let lease = records.grant(Duration::from_secs(10)).unwrap();
    let put = Transaction::new().put_under(lease, "a", "1");
    assert!(matches!(records.transact(&put), Ok(Outcome::Committed(_))));
    clock.advance(Duration::from_secs(9));
    assert_eq!(records.keep_alive(lease).unwrap(), Duration::from_secs(10));
    clock.advance(Duration::from_secs(9));
    assert_eq!(records.read("").unwrap().records.len(), 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(records.read("").unwrap().records.len(), 0);
    assert!(records.keep_alive(lease).is_err());
    assert!(records.transact(&put).is_err());
}

#[test]
fn a_lease_is_kept_until_it_is_dropped() {
    let records = Arc::new(MemoryMetadata::new());
    let lease = Lease::keep(records.clone(), Duration::from_secs(30)).unwrap();
    let put = Transaction::new().put_under(lease.id(), "a", "1");
    assert!(matches!(records.transact(&put), Ok(Outcome::Committed(_))));
    assert!(lease.is_alive() && !lease.has_ended());
    drop(lease);
    assert_eq!(records.read("").unwrap().records.len(), 0);
    assert!(Lease::keep(records, Duration::MAX).unwrap().is_alive());
}

#[test]
fn a_lease_may_last_for_ever() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let records = Arc::new(MemoryMetadata::with_clock(clock));
    let lease = records.grant(Duration::MAX).unwrap();
    assert_eq!(records.keep_alive(lease).unwrap(), Duration::MAX);
    assert!(Lease::keep(records, Duration::MAX).unwrap().is_alive());
}
