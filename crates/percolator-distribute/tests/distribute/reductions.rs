//! A reduction over the replicas of a job weighs each by its records, and is the same in every process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::order::{InputContext, OrderError};
use percolator::{Batch, Epochs, Shuffle};
use percolator_distribute::{
    DistributeError, InputOptions, PerReplica, ReduceOp, distribute, distribute_from_fn,
};

use crate::common::process::must_end;
use crate::jobs::{all_here, feed, images, processes, some_here};

#[test]
fn a_reduction_weighs_each_replica_by_its_records() {
    must_end("a reduction", || {
        // 5 records for 3 replicas: 2, 2 and 1; the last step has one record, and two replicas have none.
        let mut job =
            distribute(feed(images("reduced", 6)).epochs(1), 5, &all_here(3, 1), InputOptions::new())
                .unwrap();
        let step = job.next().unwrap().unwrap();
        assert_eq!(step.weights.counts(), [2, 2, 1]);
        assert_eq!((0..3).map(|replica| step.weights.weight(replica)).collect::<Vec<_>>(), [0.4, 0.4, 0.2]);
        let losses = [1.0_f32, 2.0, 9.0];
        let mut next = losses.into_iter();
        let losses = step.batches.map(|_| next.next().unwrap());
        assert_eq!(step.weights.reduce(ReduceOp::Mean, &losses).unwrap(), 3.0);
        assert_eq!(step.weights.reduce(ReduceOp::Sum, &losses).unwrap(), 12.0);
        let step = job.next().unwrap().unwrap();
        assert_eq!((step.weights.counts(), step.weights.num_replicas_with_values()), (&[1, 0, 0][..], 1));
        // The mean over an empty batch is NaN, and has weight zero.
        let means: PerReplica<Vec<f64>> = step.batches.map(|batch| {
            let sum = f64::from(batch.labels_f32().unwrap().iter().sum::<f32>());
            let records = u32::try_from(batch.len()).unwrap();
            vec![sum / f64::from(records), 1.0]
        });
        assert!(means.local()[2][0].is_nan() && means.get(3).is_none());
        assert_eq!(step.weights.reduce(ReduceOp::Mean, &means).unwrap(), [5.0, 1.0]);
        assert_eq!(step.weights.reduce(ReduceOp::Sum, &means).unwrap(), [5.0, 1.0]);
        let mut len = 0;
        let ragged = means.map(|_| {
            len += 1;
            vec![0.0_f32; len]
        });
        let error = step.weights.reduce(ReduceOp::Sum, &ragged).unwrap_err();
        assert!(
            matches!(error, DistributeError::UnevenValues { replica: 1, found: 2, wanted: 1 }),
            "{error}"
        );
    });
}

#[test]
fn a_reduction_over_processes_is_the_same_in_each() {
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 2, rank..rank + 1).collective(end);
        let dataset = feed(images("reduced", 11)).shuffle(Shuffle::Global).seed(3).epochs(1);
        let job = distribute(dataset, 7, &workers, InputOptions::new()).unwrap();
        job.map(|step| {
            let step = step.unwrap();
            let mean = |batch: Batch| {
                batch.labels_f32().unwrap().iter().sum::<f32>() / batch.labels_f32().unwrap().len() as f32
            };
            let means = step.batches.map(mean);
            let records = step.weights.records();
            (step.weights.reduce(ReduceOp::Mean, &means).unwrap(), records)
        })
        .collect::<Vec<_>>()
    });
    assert_eq!(found[0], found[1]);
    let sum: f32 = found[0].iter().map(|&(mean, records)| mean * records as f32).sum();
    assert!((sum - 55.0).abs() < 1e-3, "each label once: {sum}");
}

#[test]
fn a_plan_needs_no_way_to_other_processes_and_a_reduction_does() {
    must_end("one process of two", || {
        let workers = some_here(2, 1, 1..2);
        let dataset = feed(images("apart", 8)).epochs(1);
        let mut job = distribute(dataset, 4, &workers, InputOptions::new()).unwrap();
        let step = job.next().unwrap().unwrap();
        assert_eq!((step.weights.counts(), step.batches.replicas()), (&[2, 2][..], &[1][..]));
        let error = step.weights.reduce(ReduceOp::Sum, &step.batches.map(|_| 1.0_f64)).unwrap_err();
        assert!(error.to_string().contains("InputWorkers::collective"), "{error}");
        assert_eq!(job.count(), 1);
        let described =
            |_: InputContext| Ok::<_, OrderError>(feed(images("apart", 8)).epochs(Epochs::OnePass));
        let error = distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err();
        assert!(matches!(error, DistributeError::NoCollective { .. }), "{error}");
    });
}
