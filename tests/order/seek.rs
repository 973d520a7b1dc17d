//! A feed says where it is, goes to any step and back, and makes any batch again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::order::{JobWorker, OrderError, Ranks, World};
use percolator::record::StepId;
use percolator::snapshot::SnapshotError;
use percolator::transform::CaffeEra;
use percolator::{Device, Epochs, FeedBuilder, FeedError, Seed, Shuffle, Snapshot};
use percolator_chaos::{Chaos, Fault};

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;
use crate::runs::{Seen, feed, images, take};

#[test]
fn steps_tell_where_they_are() {
    must_end("steps", || {
        let mut feed = feed(images(20), 2).batch_size(3).epochs(2).build().unwrap();
        let mut steps = feed.steps();
        let at = |snapshot: Snapshot| (snapshot.next(0), snapshot.next(1), snapshot.next(2));
        let both = |epoch, step| (Some(StepId { epoch, step }), Some(StepId { epoch, step }), None);
        assert_eq!(at(steps.snapshot().unwrap()), both(0, 0));
        for due in [both(0, 1), both(0, 2), both(0, 3), both(1, 0), both(1, 1)] {
            steps.next().unwrap().unwrap();
            assert_eq!(at(steps.snapshot().unwrap()), due);
        }
    });
}

#[test]
fn a_lane_speaks_for_those_beside_it() {
    must_end("a lane", || {
        let describe = || feed(images(20), 2).batch_size(3).epochs(2);
        let mut first = describe().build().unwrap();
        let mut lanes = first.take_lanes().unwrap();
        take(&mut lanes, &[2, 2]);
        let snapshot = lanes[1].snapshot().unwrap();
        assert_eq!(snapshot.next(0), Some(StepId { epoch: 0, step: 2 }));
        let due = take(&mut lanes, &[3, 3]);
        let mut second = describe().resume(&snapshot).build().unwrap();
        assert_eq!(take(&mut second.take_lanes().unwrap(), &[3, 3]), due);
    });
}

#[test]
fn a_feed_goes_to_any_step_and_back() {
    must_end("seek", || {
        let planned: fn() -> FeedBuilder =
            || feed(images(31), 2).batch_size(3).epochs(0).shuffle(Shuffle::Global);
        let round_robin: fn() -> FeedBuilder = || feed(images(31), 2).batch_size(3);
        for (describe, steps_of_epoch) in [(planned, 6), (round_robin, u64::MAX)] {
            let mut feed = describe().build().unwrap();
            let whole = take(&mut feed.take_lanes().unwrap(), &[40, 40]);
            for step in [39, 0, 17, 18] {
                let at = usize::try_from(step).unwrap();
                feed.seek((step / steps_of_epoch, step % steps_of_epoch)).unwrap();
                let seen = take(&mut feed.take_lanes().unwrap(), &[1, 1]);
                assert_eq!(seen, [vec![whole[0][at].clone()], vec![whole[1][at].clone()]], "step {step}");
            }
        }
    });
}

#[test]
fn lanes_that_were_handed_over_end_when_their_feed_goes_elsewhere() {
    must_end("lanes of another step", || {
        let mut feed = feed(images(31), 1).batch_size(3).build().unwrap();
        let mut old = feed.take_lanes().unwrap();
        take(&mut old, &[2]);
        feed.seek((0, 1)).unwrap();
        let last = old.remove(0).find_map(Result::err);
        assert_eq!(last, Some(FeedError::Cancelled));
        let no_step = feed.seek((u64::MAX, 0)).unwrap_err();
        assert!(matches!(no_step, FeedError::Snapshot(SnapshotError::Order(_))), "{no_step}");
        assert_eq!(
            take(&mut feed.take_lanes().unwrap(), &[1])[0][0].step.unwrap().step,
            1,
            "a seek in vain leaves it as it is"
        );
    });
}

#[test]
fn any_batch_of_any_replica_is_made_again_alone() {
    must_end("replay", || {
        let world = World::new(2, 4).unwrap();
        let worker = |number| {
            let feed = feed(images(41), 2).batch_size(3).shuffle(Shuffle::Global).epochs(2);
            feed.share(JobWorker { world, number }).build().unwrap()
        };
        let mut feeds = [worker(0), worker(1)];
        let mut lanes: Vec<Vec<_>> = feeds.iter_mut().map(|feed| feed.take_lanes().unwrap()).collect();
        let seen: Vec<Vec<Seen>> = lanes.iter_mut().flat_map(|lanes| take(lanes, &[8, 8])).collect();
        for (replica, seen) in seen.iter().enumerate() {
            for seen in seen {
                let step = seen.step.unwrap().id();
                assert_eq!(
                    Seen::of(&feeds[0].replay(step, replica).unwrap()),
                    *seen,
                    "{step}, replica {replica}"
                );
            }
        }
        let none = feeds[0].replay((0, 0), 4).unwrap_err();
        let due = SnapshotError::Order(OrderError::NoSuchMember { kind: "replica", found: 4, of: 4 });
        assert_eq!(none, FeedError::Snapshot(due));
        let none = feeds[0].replay((0, 4), 0).unwrap_err();
        let due = SnapshotError::Order(OrderError::NoSuchStep { epoch: 0, step: 4, steps: 4 });
        assert_eq!(none, FeedError::Snapshot(due));
        let round_robin = || feed(images(41), 2).batch_size(3).share(Ranks { first: 1, of: 4 });
        let mut whole = round_robin().build().unwrap();
        let whole = take(&mut whole.take_lanes().unwrap(), &[20, 20]);
        let batch = round_robin().build().unwrap().replay((0, 17), 2).unwrap();
        assert_eq!(Seen::of(&batch), whole[1][17]);
    });
}

#[test]
fn a_batch_of_caffes_sequence_is_made_again_with_its_own_draws() {
    must_end("replay in Caffe's sequence", || {
        let round_robin =
            || feed(images(41), 2).batch_size(3).seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today });
        let described: [&dyn Fn() -> FeedBuilder; 3] =
            [&round_robin, &|| round_robin().share(Ranks { first: 1, of: 4 }), &|| {
                round_robin().shuffle(Shuffle::Global).epochs(9)
            }];
        for (number, describe) in described.into_iter().enumerate() {
            let mut feed = describe().build().unwrap();
            let whole = take(&mut feed.take_lanes().unwrap(), &[12, 12]);
            let first = if number == 1 { 1 } else { 0 };
            for (lane, seen) in whole.iter().enumerate() {
                for seen in [&seen[0], &seen[5], &seen[11]] {
                    let step = seen.step.unwrap().id();
                    assert_eq!(
                        Seen::of(&feed.replay(step, first + lane).unwrap()),
                        *seen,
                        "{number}: {step}, lane {lane}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_round_robin_run_resumed_in_another_world_is_replayed_and_resumed_again() {
    must_end("a round-robin run in another world", || {
        let snapshot = {
            let mut two = feed(images(23), 2).batch_size(3).build().unwrap();
            take(&mut two.take_lanes().unwrap(), &[1, 1]);
            two.snapshot().unwrap()
        };
        let three = || feed(images(23), 3).batch_size(3).resume(&snapshot);
        let mut whole = three().build().unwrap();
        let seen = take(&mut whole.take_lanes().unwrap(), &[12, 12, 12]);
        for (lane, seen) in seen.iter().enumerate() {
            for seen in seen {
                let step = seen.step.unwrap().id();
                assert_eq!(Seen::of(&whole.replay(step, lane).unwrap()), *seen, "{step}, lane {lane}");
            }
        }
        let mut first = three().build().unwrap();
        take(&mut first.take_lanes().unwrap(), &[5, 5, 5]);
        let again = feed(images(23), 3).batch_size(3).resume(&first.snapshot().unwrap());
        let rest = take(&mut again.build().unwrap().take_lanes().unwrap(), &[7, 7, 7]);
        for (seen, rest) in seen.iter().zip(rest) {
            assert_eq!(rest, seen[5..]);
        }
    });
}

#[test]
fn a_handle_ends_what_a_feed_that_went_elsewhere_has_now() {
    must_end("a feed that is cancelled between seeks", || {
        let mut feed = feed(images(31), 1).batch_size(3).build().unwrap();
        let handle = feed.handle();
        feed.seek((0, 5)).unwrap();
        assert!(feed.steps().next().unwrap().is_ok());
        handle.cancel();
        assert!(feed.steps().any(|step| step.err() == Some(FeedError::Cancelled)));
        feed.seek((0, 5)).unwrap();
        assert!(feed.steps().any(|step| step.err() == Some(FeedError::Cancelled)), "it is final");
    });
}

#[test]
fn a_step_that_fails_for_one_lane_is_the_last_and_comes_again() {
    must_end("a step that failed", || {
        let mut records: Vec<_> = (0..40).map(|index| common::image(index, 1, 4, 4)).collect();
        // In the second lane's share of the fourth step.
        records[21].1.truncate(3);
        // An error ends the other lane too, after what is complete. With one batch a lane, that is every step
        // before: the next is begun only once the consumer has dropped it.
        let describe = |records: Vec<_>| {
            feed(MemorySource::new("damaged", records), 2).batch_size(3).prefetch(1).epochs(1)
        };
        let mut feed = describe(records).build().unwrap();
        assert_eq!(feed.steps().filter(Result::is_ok).count(), 3);
        assert!(feed.steps().next().is_none(), "nothing comes behind it");
        assert_eq!(feed.snapshot().unwrap().next(0), Some(StepId { epoch: 0, step: 3 }));
    });
}

#[test]
fn steps_behind_the_end_are_none() {
    must_end("the end", || {
        let no_step =
            |error| matches!(error, FeedError::Snapshot(SnapshotError::Order(OrderError::NoSuchStep { .. })));
        let mut planned = feed(images(20), 2).batch_size(3).epochs(2).build().unwrap();
        assert!(
            no_step(planned.seek((2, 0)).unwrap_err()) && no_step(planned.replay((2, 0), 1).unwrap_err())
        );
        assert_eq!(planned.steps().count(), 8, "it is as it was");
        let round_robin = feed(images(20), 2).batch_size(3).epochs(Epochs::OnePass).build().unwrap();
        assert!(
            no_step(round_robin.replay((0, 100), 0).unwrap_err())
                && no_step(round_robin.replay((1, 0), 0).unwrap_err())
        );
    });
}

#[test]
fn a_feed_that_could_not_go_there_says_why_whatever_is_called_next() {
    must_end("a seek that fails", || {
        let planned: fn() -> FeedBuilder = || feed(images(31), 1).batch_size(3).epochs(2);
        let round_robin: fn() -> FeedBuilder = || feed(images(31), 1).batch_size(3);
        for (describe, are_taken) in [(planned, false), (planned, true), (round_robin, false)] {
            // The feed has the first two, and needs two others.
            let chaos = Chaos::new(Fault::memory(2).fails("no room"));
            let device = chaos.device(Device::host(0));
            let mut feed = describe().prefetch(2).devices([device]).build().unwrap();
            let lanes = if are_taken { feed.take_lanes().unwrap() } else { Vec::new() };
            let error = feed.seek((0, 5)).unwrap_err();
            assert!(error.to_string().contains("no room"), "{error}");
            drop(lanes);
            for _again in 0..2 {
                assert_eq!(feed.take_lanes().unwrap_err(), error);
                assert_eq!(feed.epoch().unwrap_err(), error);
                let said: Vec<_> = feed.steps().map(Result::err).collect();
                assert_eq!(said, [Some(error.clone())]);
            }
            // It goes elsewhere once that is possible.
            feed.seek((0, 5)).unwrap();
            assert_eq!(feed.steps().next().unwrap().unwrap()[0].records()[0].index, 15);
            assert_eq!(feed.take_lanes().unwrap().len(), 1);
            assert_eq!(feed.take_lanes().unwrap_err(), FeedError::LanesTaken);
        }
    });
}

#[test]
fn a_step_that_cannot_be_counted_is_none_and_leaves_the_feed_as_it_is() {
    must_end("steps beyond all counting", || {
        for once in [false, true] {
            let mut feed = feed(images(31), 2).batch_size(3);
            if once {
                feed = feed.epochs(Epochs::OnePass);
            }
            let mut feed = feed.build().unwrap();
            assert!(feed.steps().next().unwrap().is_ok());
            for step in [u64::MAX, 1 << 60, (1 << 43) / 6 + 1] {
                let error = feed.seek((0, step)).unwrap_err();
                assert!(matches!(error, FeedError::Snapshot(SnapshotError::Order(_))), "{error}");
                assert!(feed.replay((0, step), 0).is_err());
            }
            assert_eq!(feed.steps().next().unwrap().unwrap()[0].records()[0].index, 6, "it is as it was");
            feed.seek((0, 1 << 39)).unwrap();
        }
    });
}
