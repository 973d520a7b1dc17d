//! Jobs that cannot be are refused: their processes were told different things, or the map of their workers
//! is wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::feed::ConfigError;
use percolator::order::{InputContext, OrderError, World};
use percolator::{Epochs, FeedBuilder, FeedError, Shuffle};
use percolator_distribute::{
    DistributeError, InputOptions, InputReplicationMode, InputWorker, InputWorkers, Process, distribute,
    distribute_from_fn,
};

use crate::jobs::{all_here, feed, hosts, images, name, processes, some_here};

#[test]
fn processes_that_were_told_different_things_are_refused() {
    let described = |_: InputContext| Ok::<_, OrderError>(feed(images("told", 8)).epochs(Epochs::OnePass));
    let found = processes(2, move |rank, end| {
        let workers = some_here(2, [1, 2][rank], rank..rank + 1).collective(end);
        distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err()
    });
    for error in &found {
        let due = "process 1 has 4 replica(s), and process 0 has 2: configure all processes alike";
        assert_eq!(error.to_string(), due);
    }
    let found = processes(2, move |_, end| {
        let workers = some_here(2, 1, 0..1).collective(end);
        distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err()
    });
    assert!(
        matches!(&found[1], DistributeError::NotFedOnce { worker, processes: 2, of: 2 } if *worker == name(0))
    );
    // Copies of a data set that differ.
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 1, rank..rank + 1).collective(end);
        let dataset = feed(images("copies", 8 + rank)).epochs(1);
        distribute(dataset, 4, &workers, InputOptions::new()).unwrap_err()
    });
    let due = DistributeError::NotOneJob { what: "step(s) in the first epoch", rank: 1, found: 3, wanted: 2 };
    assert_eq!(found[0].to_string(), due.to_string());
}

#[test]
fn processes_of_other_orders_or_ends_are_refused() {
    let other_seed: fn(usize) -> FeedBuilder =
        |rank| feed(images("orders", 8)).epochs(1).shuffle(Shuffle::Global).seed(rank as u64);
    let other_end: fn(usize) -> FeedBuilder = |rank| feed(images("orders", 8)).epochs(1 + rank as u64);
    for describe in [other_seed, other_end] {
        let found = processes(2, move |rank, end| {
            let workers = some_here(2, 1, rank..rank + 1).collective(end);
            distribute(describe(rank), 4, &workers, InputOptions::new()).unwrap_err()
        });
        assert!(
            matches!(&found[0], DistributeError::NotOneJob { what, rank: 1, .. } if what.contains("seed")),
            "{}",
            found[0]
        );
    }
}

#[test]
fn a_map_of_workers_that_cannot_be_is_refused() {
    let here = |name: &str, devices| InputWorker::here(name, hosts(0..devices));
    let refusal = |workers: Vec<InputWorker>| InputWorkers::new(workers).unwrap_err();
    assert!(matches!(refusal(vec![]), DistributeError::Order(OrderError::Zero { option: "workers" })));
    assert!(matches!(
        refusal(vec![here("a", 0)]),
        DistributeError::Order(OrderError::Zero { option: "replicas" })
    ));
    let said = refusal(vec![here("a", 1), here("b", 2)]).to_string();
    assert_eq!(
        said,
        "3 replicas cannot be divided evenly among 2 workers: every worker has the same number of replicas, \
         so give a multiple of 2 as the number of all replicas"
    );
    let said = refusal(vec![here("a", 1), InputWorker::elsewhere("b", 3)]).to_string();
    assert!(said.starts_with("worker \"b\" has 3 device(s), and worker \"a\" has 1"), "{said}");
    let said = refusal(vec![here("a", 1), here("a", 1)]).to_string();
    assert!(said.starts_with("two workers are named \"a\""), "{said}");
    let said = refusal(vec![InputWorker::elsewhere("a", 1)]).to_string();
    assert!(said.starts_with("none of the 1 worker(s) is in this process"), "{said}");
    let options = InputOptions::new().replication_mode(InputReplicationMode::PerReplica);
    let error = distribute(feed(images("refused", 4)), 2, &all_here(1, 1), options).unwrap_err();
    assert!(matches!(error, DistributeError::PerReplicaDataset));
    for order in [Epochs::RoundRobin, Epochs::OnePass] {
        let dataset = feed(images("dealt", 4)).epochs(order);
        let error = distribute(dataset, 2, &all_here(2, 1), InputOptions::new()).unwrap_err();
        let DistributeError::Worker { worker, error } = &error else { panic!("{error}") };
        let needs_epochs = matches!(&**error, FeedError::Config(ConfigError::NeedsEpochs { .. }));
        assert!(needs_epochs && *worker == name(0), "{worker}: {error}");
    }

    let process = Process { rank: 1, processes: 3, local_rank: None, local_processes: None };
    let workers = InputWorkers::of_process(&process, hosts(0..2)).unwrap();
    assert_eq!((workers.world(), workers.workers()[2].replicas()), (World::new(3, 6).unwrap(), 2));
    let job = distribute(feed(images("process", 4)).epochs(0), 6, &workers, InputOptions::new()).unwrap();
    assert_eq!(job.replicas(), [2, 3]);
    let process = Process { rank: 3, ..process };
    assert!(InputWorkers::of_process(&process, hosts(0..2)).is_err());
}
