//! What happens to etcd happens to all workers at once: they go on, and each record counts once.

use std::time::Duration;

use percolator_cluster::metadata::Lease;

use crate::process::{role, this_test};
use crate::random::Random;
use crate::role::{JobOptions, Place};
use crate::server::{Etcd, leader, until};
use crate::worker::work;
use crate::workers::Workers;

const WORKERS: u64 = 4;

/// Four workers that nobody touches, in etcd.
fn workers(test: &'static str, members: &[Etcd], random: &mut Random) -> Workers {
    let urls = members.iter().map(|member| member.url.clone()).collect();
    let place = Place::Etcd { urls, prefix: "/faults/".to_owned() };
    let seed = random.next();
    let job = JobOptions {
        seed,
        batch_size: 40,
        lanes: 1,
        steps_per_block: 10,
        ttl: Duration::from_secs(1),
        duplicates: random.once_in(2),
    };
    let mut workers = Workers::new(test, place, job);
    for number in 0..WORKERS {
        let mut role = workers.draw(random);
        role.leaves_after = None;
        role.confirm_every = (number == 0).then_some(7);
        role.step_time = Duration::from_millis(2);
        workers.start(role);
    }
    workers
}

/// Waits until the workers have been given so many more steps.
fn goes_on(workers: &mut Workers, what: &str) {
    const STEPS: usize = 100;
    let before = workers.steps();
    until(what, || {
        workers.look();
        workers.steps() > before + STEPS || workers.living().is_empty()
    });
    assert!(!workers.living().is_empty(), "{what}: it was over too early to see");
}

#[test]
fn etcd_is_stopped_for_longer_than_the_leases() {
    if let Some(role) = role() {
        return work(&role);
    }
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut random = Random::new(1);
    let mut workers = workers(this_test!(), std::slice::from_ref(&etcd), &mut random);
    goes_on(&mut workers, "etcd answers");
    let other = std::sync::Arc::new(etcd.records("/other/"));
    for _ in 0..2 {
        // It lasts longer than those of the workers, and all begin before etcd is stopped.
        let lease = Lease::keep(other.clone(), Duration::from_secs(2)).unwrap();
        etcd.pause();
        until("the leases may have ended", || !lease.is_alive());
        etcd.go_on();
        goes_on(&mut workers, "etcd goes on");
    }
    workers.end(&mut random);
}

#[test]
fn etcd_is_killed_and_started_again() {
    if let Some(role) = role() {
        return work(&role);
    }
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let mut random = Random::new(2);
    let mut workers = workers(this_test!(), std::slice::from_ref(&etcd), &mut random);
    goes_on(&mut workers, "etcd answers");
    for _ in 0..3 {
        etcd.kill();
        etcd.run();
        assert!(etcd.is_ready(&etcd.options()));
        goes_on(&mut workers, "etcd is there again");
    }
    workers.end(&mut random);
}

#[test]
fn the_leader_of_three_is_killed() {
    if let Some(role) = role() {
        return work(&role);
    }
    let Some(mut members) = Etcd::start_cluster::<3>() else { return };
    let mut random = Random::new(3);
    let mut workers = workers(this_test!(), &members, &mut random);
    goes_on(&mut workers, "all members are there");
    for _ in 0..2 {
        let first = leader(&members);
        members[first].kill();
        goes_on(&mut workers, "the leader is killed");
        members[first].run();
        let alone = members[first].options();
        assert!(members[first].is_ready(&alone));
        goes_on(&mut workers, "it is back");
    }
    workers.end(&mut random);
}
