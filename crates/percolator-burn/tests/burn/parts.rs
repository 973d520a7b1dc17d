//! A loader that is divided among devices, as burn's strategies divide it.

use std::error::Error;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::split::split_dataloader;
use burn::tensor::Device;
use percolator::order::{Assignment, JobWorker, World};
use percolator::{Device as FeedDevice, Epochs, FeedBuilder, LastBatch, Shuffle};
use percolator_burn::{BurnError, BurnFeed as _};

use crate::made::{Given, epoch, loader, must_end, numbers, sorted};

type Part = Arc<dyn DataLoader<Given>>;

/// Two devices, which burn's CPU backend does not tell apart, and this test does.
fn devices() -> [Device; 2] {
    [Device::flex(), Device::flex().autodiff()]
}

fn hosts(feed: FeedBuilder, lanes: usize) -> FeedBuilder {
    feed.devices((0..lanes).map(FeedDevice::host))
}

/// A feed whose batches wrap into the next epoch.
fn caffe(records: u64, lanes: usize) -> FeedBuilder {
    hosts(numbers(records, None).assignment(Assignment::Caffe), lanes)
}

fn split(feed: FeedBuilder, devices: &[Device]) -> Vec<Part> {
    split_dataloader(Arc::new(loader(feed)), devices)
}

#[test]
fn two_devices_together_get_every_record_once_an_epoch() {
    must_end(|| {
        for records in [8, 23, 40, 41] {
            let feed = || numbers(records, None).shuffle(Shuffle::Global);
            // One lane for each device, or one for both.
            for feed in [hosts(feed(), 2), feed()] {
                let parts = split(feed, &devices());
                assert_eq!(parts.iter().map(|part| part.num_items()).sum::<usize>() as u64, records);
                for number in 0..3 {
                    // One after the other: a part does not wait for another.
                    let given = [epoch(&*parts[0]), epoch(&*parts[1])];
                    let all = || given.iter().flatten();
                    assert_eq!(sorted(all()), (0..records).collect::<Vec<_>>());
                    assert!(all().flat_map(|batch| &batch.records).all(|record| record.epoch == number));
                    for (given, is_autodiff) in given.iter().zip([false, true]) {
                        assert!(given.iter().all(|batch| batch.device.is_autodiff() == is_autodiff));
                    }
                }
            }
        }
    });
}

#[test]
fn devices_in_turn_get_every_record_once() {
    must_end(|| {
        let parts = split(hosts(numbers(23, None).shuffle(Shuffle::Global), 2), &devices());
        // As burn's multi-device strategy takes them.
        let mut iterators: Vec<_> = parts.iter().map(|part| part.iter()).collect();
        let mut given = Vec::new();
        loop {
            let step: Vec<Given> =
                iterators.iter_mut().filter_map(|part| part.next()).map(Result::unwrap).collect();
            if step.is_empty() {
                break;
            }
            given.extend(step);
        }
        let processed: usize = iterators.iter().map(|part| part.progress().items_processed).sum();
        assert_eq!(processed, 23);
        assert_eq!(sorted(&given), (0..23).collect::<Vec<_>>());
    });
}

#[test]
fn a_device_gets_what_its_lane_gets() {
    must_end(|| {
        let feed = || hosts(numbers(41, None).shuffle(Shuffle::Global), 2);
        // The whole loader has the batches of both lanes in turn.
        let whole = epoch(&loader(feed()));
        assert_eq!(sorted(&whole), (0..41).collect::<Vec<_>>());
        let parts = split(feed(), &devices());
        let [first, second] = [epoch(&*parts[0]), epoch(&*parts[1])];
        let positions =
            |batches: &[Given]| batches.iter().map(|batch| batch.records.clone()).collect::<Vec<_>>();
        let of_lane = |lane: usize| whole[..10].iter().skip(lane).step_by(2).cloned().collect::<Vec<_>>();
        assert_eq!(positions(&first[..5]), positions(&of_lane(0)));
        assert_eq!(positions(&second[..5]), positions(&of_lane(1)));
    });
}

#[test]
fn padded_and_full_batches_are_as_many_on_each_device() {
    must_end(|| {
        for records in 9..25 {
            for last_batch in [LastBatch::Pad, LastBatch::Drop] {
                let parts = split(hosts(numbers(records, None).last_batch(last_batch), 2), &devices());
                let steps: Vec<usize> = parts.iter().map(|part| epoch(&**part).len()).collect();
                assert_eq!(steps[0], steps[1], "{records} records, {last_batch:?}");
            }
        }
    });
}

#[test]
fn batches_that_wrap_are_divided_by_lanes() {
    must_end(|| {
        let parts = split(caffe(23, 2), &devices());
        // Eight epochs of 23 records are 46 batches of four.
        let given: Vec<Given> =
            (0..8).flat_map(|_| [epoch(&*parts[0]), epoch(&*parts[1])]).flatten().collect();
        let mut due: Vec<u64> = (0..23).flat_map(|record| [record; 8]).collect();
        due.sort_unstable();
        assert_eq!(sorted(&given), due);
    });
}

#[test]
fn a_single_pass_is_divided_and_comes_again() {
    must_end(|| {
        let feed = || numbers(23, None).epochs(Epochs::OnePass);
        for feed in [hosts(feed(), 2), feed()] {
            let parts = split(feed, &devices());
            for _ in 0..3 {
                let given: Vec<Given> = parts.iter().flat_map(|part| epoch(&**part)).collect();
                assert_eq!(sorted(&given), (0..23).collect::<Vec<_>>());
                assert!(given.iter().flat_map(|batch| &batch.records).all(|record| record.epoch == 0));
            }
        }
    });
}

#[test]
fn a_part_is_left_and_begins_again_without_the_other() {
    must_end(|| {
        for feed in [hosts(numbers(40, None).epochs(2), 2), numbers(40, None).epochs(2)] {
            let parts = split(feed.shuffle(Shuffle::Global), &devices());
            let first = epoch(&*parts[0]);
            let begun: Vec<_> = parts[1].iter().take(2).map(Result::unwrap).collect();
            let second = epoch(&*parts[1]);
            assert_eq!(begun, second[..2]);
            let together: Vec<&Given> = first.iter().chain(&second).collect();
            assert_eq!(sorted(together), (0..40).collect::<Vec<_>>());
            // The feed has two epochs: the third is the first again.
            let _ = epoch(&*parts[0]);
            assert_eq!(epoch(&*parts[0]), first);
        }
    });
}

#[test]
fn there_may_be_more_devices_than_lanes_steps_or_records() {
    must_end(|| {
        for (records, lanes, parts) in [(23, 1, 3), (23, 2, 3), (4, 1, 3), (2, 1, 3), (1, 2, 2), (23, 3, 2)] {
            let devices = vec![Device::flex(); parts];
            let parts = split(hosts(numbers(records, None), lanes), &devices);
            for _ in 0..2 {
                let given: Vec<Given> = parts.iter().flat_map(|part| epoch(&**part)).collect();
                assert_eq!(sorted(&given), (0..records).collect::<Vec<_>>(), "{records} on {lanes} lanes");
            }
        }
    });
}

#[test]
fn a_single_device_gets_the_loader_itself() {
    must_end(|| {
        let parts = split(numbers(23, None), &devices()[..1]);
        assert_eq!(parts.len(), 1);
        assert_eq!(epoch(&*parts[0]).len(), 6);
        assert_eq!(epoch(&*parts[0].slice(0, 23)).len(), 6);
    });
}

#[test]
fn a_divided_loader_resumes_with_burns_checkpoint() {
    must_end(|| {
        let feed = || hosts(numbers(23, None).shuffle(Shuffle::Global), 2);
        let whole = split(feed(), &devices());
        let epochs: Vec<_> =
            (0..3).map(|_| whole.iter().map(|part| epoch(&**part)).collect::<Vec<_>>()).collect();
        let resumed = split_dataloader(Arc::new(loader(feed()).checkpoint(2)), &devices());
        assert_eq!(resumed.iter().map(|part| epoch(&**part)).collect::<Vec<_>>(), epochs[2]);
    });
}

#[test]
fn a_divided_loader_resumes_within_an_epoch() {
    must_end(|| {
        let feed = || hosts(numbers(41, None).epochs(0).shuffle(Shuffle::Global), 2);
        let whole = split(feed(), &devices());
        let epochs: Vec<_> = (0..2).map(|_| [epoch(&*whole[0]), epoch(&*whole[1])]).collect();
        let mut stopped = feed().build().unwrap();
        // Six steps are an epoch, and eight batches of four came before this one's.
        let mut steps = stopped.tensors_on(&devices()).unwrap();
        assert_eq!(steps.by_ref().take(8).filter(Result::is_ok).count(), 8);
        let parts = split(feed().resume(&steps.snapshot().unwrap()), &devices());
        for (part, due) in parts.iter().zip(&epochs[1]) {
            assert_eq!(part.iter().progress().items_processed, 8);
            assert_eq!(epoch(&**part), due[2..]);
        }
    });
}

#[test]
fn a_divided_loader_that_resumes_at_its_end_starts_again() {
    must_end(|| {
        let feed = || hosts(numbers(41, None).shuffle(Shuffle::Global), 2).epochs(1);
        let due: Vec<_> = split(feed(), &devices()).iter().map(|part| epoch(&**part)).collect();
        let mut ended = feed().build().unwrap();
        let mut steps = ended.tensors_on(&devices()).unwrap();
        assert_eq!(steps.by_ref().filter(Result::is_ok).count(), 6);
        let parts = split(feed().resume(&steps.snapshot().unwrap()), &devices());
        for _ in 0..2 {
            assert_eq!(parts.iter().map(|part| epoch(&**part)).collect::<Vec<_>>(), due);
        }
    });
}

#[test]
fn a_part_that_cannot_be_is_an_error_and_not_an_empty_epoch() {
    must_end(|| {
        let refused = |part: &Part| {
            let mut items = part.iter();
            let error = items.next().unwrap().unwrap_err();
            assert!(items.next().is_none());
            let error: &BurnError = error.source().unwrap().downcast_ref().unwrap();
            error.to_string()
        };
        let parts = split(numbers(23, None), &devices());
        let again = refused(&parts[0].slice(0, 4));
        assert!(again.contains("items 0 to 4"), "{again}");
        let worker = numbers(23, None).share(JobWorker { world: World::new(2, 2).unwrap(), number: 0 });
        let worker = refused(&split(worker, &devices())[0]);
        assert!(worker.contains("does not go together with .share(JobWorker"), "{worker}");
        // Caffe's assignment wraps by default.
        let wrapping = [numbers(23, None).last_batch(LastBatch::Wrap), caffe(23, 1)];
        for parts in wrapping.map(|feed| split(feed, &devices())) {
            for wraps in parts.iter().map(refused) {
                assert!(wraps.contains("wrap") && wraps.contains("one lane for each device"), "{wraps}");
            }
        }
    });
}

#[test]
fn a_damaged_record_reaches_the_device_whose_it_is() {
    must_end(|| {
        let parts = split(hosts(numbers(23, Some(9)), 2), &devices());
        let failed: Vec<bool> = parts.iter().map(|part| part.iter().any(|item| item.is_err())).collect();
        // Records 8 to 11 are the first lane's.
        assert_eq!(failed, [true, false]);
    });
}
