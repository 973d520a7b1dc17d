//! Servers that come and go under one name: who finds which, and what becomes of the lanes of one that ends.

use std::num::NonZeroUsize;
use std::sync::Arc;

use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, MemoryMetadata, Metadata, Transaction};
use percolator_files::shown;
use percolator_serve::{Client, Discover as _, Fleet, Member, Share};
use serde_json::json;

use crate::common::data::images;
use crate::common::served::Served;
use crate::etcd::Etcd;
use crate::seen::{only_lane, spec};
use crate::together::{all, request, rest, some, until};

fn fleet() -> (Arc<MemoryMetadata>, Fleet) {
    let metadata = Arc::new(MemoryMetadata::new());
    (metadata.clone(), Fleet::new(metadata, "digits").unwrap())
}

/// A server of the same data and the same key as its like, and its place in the fleet.
fn member(fleet: &Fleet, key: &std::path::Path) -> (Served, Member) {
    let served = Served::start(|builder, _| builder.key_file(key));
    let member = fleet.join(&served.url()).unwrap();
    (served, member)
}

/// How many feeds a server has.
fn feeds(served: &Served) -> usize {
    served.server.status().feeds.len()
}

/// Clients in step find the servers by themselves, and take a feed while its server goes and another comes.
fn lanes_outlive_their_servers(fleet: &Fleet) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let mut members: Vec<_> = (0..3).map(|_| member(fleet, &key)).collect();
    let feed = spec(images(json!({"schedule": {"epochs": 3, "shuffle": {"by": "global"}}})));
    let due = only_lane(&members[0].0.root(), &feed);
    let request = request(&feed).share(Share::InStep { clients: NonZeroUsize::new(2).unwrap() });
    let client = || Client::discover(Arc::new(fleet.clone())).connect().unwrap();
    let mut lanes = [client(), client()].map(|client| client.open(&request).unwrap().lane(0).unwrap());
    let mut seen = all_some(&mut lanes, 2);
    // They met at one server.
    assert_eq!(members.iter().map(|(served, _)| feeds(served)).sum::<usize>(), 1);
    for _ in 0..2 {
        let at = members.iter().position(|(served, _)| feeds(served) > 0).unwrap();
        members.push(member(fleet, &key));
        // It ends without notice: its record stays for a while.
        let (served, place) = members.remove(at);
        drop(served);
        for (seen, more) in seen.iter_mut().zip(all_some(&mut lanes, 3)) {
            seen.extend(more);
        }
        drop(place);
    }
    for (seen, more) in seen.iter_mut().zip(all(lanes, usize::MAX)) {
        seen.extend(more);
        assert_eq!(*seen, due);
    }
}

/// The next batches of lanes in step.
fn all_some(lanes: &mut [percolator_serve::RemoteLane; 2], count: usize) -> Vec<Vec<crate::seen::Seen>> {
    std::thread::scope(|scope| {
        let taking = lanes.each_mut().map(|lane| scope.spawn(move || some(lane, count)));
        taking.into_iter().map(|seen| seen.join().unwrap()).collect()
    })
}

#[test]
fn a_feeds_clients_meet_at_one_server_and_outlive_it() {
    lanes_outlive_their_servers(&fleet().1);
}

#[test]
fn servers_are_found_in_etcd() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let metadata = EtcdMetadata::connect(&EtcdOptions::new([&*etcd.url]).prefix("/p/")).unwrap();
    lanes_outlive_their_servers(&Fleet::new(Arc::new(metadata), "digits").unwrap());
}

#[test]
fn who_leaves_gets_no_new_clients_and_keeps_those_it_has() {
    let (_, fleet) = fleet();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let (first, place) = member(&fleet, &key);
    let feed = spec(images(json!({})));
    let due = only_lane(&first.root(), &feed);
    let client = Client::discover(Arc::new(fleet.clone())).connect().unwrap();
    let mut lane = client.open(&request(&feed)).unwrap().lane(0).unwrap();
    let mut seen = some(&mut lane, 1);
    let (second, _stays) = member(&fleet, &key);
    drop(place);
    assert_eq!(fleet.servers().unwrap(), [second.url()]);
    // Who asks now asks the second one.
    let client = Client::discover(Arc::new(fleet.clone())).connect().unwrap();
    let mut other = client.open(&request(&feed)).unwrap().lane(0).unwrap();
    let mut seen_there = some(&mut other, 1);
    assert_eq!((feeds(&first), feeds(&second)), (1, 1));
    seen_there.extend(rest(other));
    seen.extend(rest(lane));
    assert_eq!([&seen, &seen_there], [&due, &due]);
}

#[test]
fn a_server_whose_lease_has_ended_registers_again() {
    let (metadata, fleet) = fleet();
    let _member = fleet.join("grpc://127.0.0.1:1").unwrap();
    let lease = || metadata.read("").unwrap().records.first().and_then(|record| record.lease);
    let first = lease().unwrap();
    metadata.revoke(first).unwrap();
    until("another lease", lease, |lease| lease.is_some_and(|lease| lease != first));
    assert_eq!(fleet.servers().unwrap(), ["grpc://127.0.0.1:1"]);
}

#[test]
fn what_is_wrong_with_a_fleet_is_said() {
    let (metadata, fleet) = fleet();
    let refused = || {
        let error = Client::discover(Arc::new(fleet.clone())).connect().unwrap_err();
        shown::with_sources(&error).to_string()
    };
    let nobody = refused();
    assert!(nobody.starts_with("there is no server in the fleet \"digits\" of"), "{nobody}");
    assert!(nobody.contains("percolator serve --join"), "{nobody}");
    for name in ["", "a/b", "a b", "\u{e9}"] {
        let error = Fleet::new(metadata.clone(), name).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name:?} is no name of a fleet")), "{error}");
    }
    assert!(fleet.join("127.0.0.1:1").unwrap_err().to_string().contains("it has no scheme"));
    for (value, due) in
        [("{\"version\":2,\"url\":\"grpc://h:1\"}", "it is of version 2"), ("x", "expected value")]
    {
        metadata.transact(&Transaction::new().put("servers/digits/1", value)).unwrap();
        let said = refused();
        assert!(said.starts_with("cannot find out from the fleet \"digits\""), "{said}");
        assert!(said.contains("the record servers/digits/1 in") && said.contains(due), "{said}");
    }
    // Beside others, it is left out.
    let _member = fleet.join("grpc://127.0.0.1:1").unwrap();
    assert_eq!(fleet.servers().unwrap(), ["grpc://127.0.0.1:1"]);
}
