//! A loader on one device: epochs, progress, errors, resuming.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use percolator::feed::ConfigError;
use percolator::order::{Block, Blocks, Plan};
use percolator::{Device as FeedDevice, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Shuffle};
use percolator_burn::{BurnError, BurnFeed as _, FeedLoader};

use crate::made::{Given, epoch, given, loader, must_end, numbers, sorted};

/// The error of the loader that an error of burn's data sets wraps.
fn loader_error(error: &DatasetError) -> &BurnError {
    error.source().unwrap().downcast_ref().unwrap()
}

#[test]
fn each_epoch_is_the_feeds_next_and_has_every_record_once() {
    must_end(|| {
        let feed = || numbers(23, None).shuffle(Shuffle::Global).seed(3);
        let mut plain = feed().epochs(4).build().unwrap();
        let due: Vec<Given> =
            plain.tensors(&Device::flex()).unwrap().map(|step| given(&step.unwrap())).collect();
        let loader = loader(feed());
        let mut seen = Vec::new();
        for _ in 0..4 {
            let of_epoch = epoch(&loader);
            assert_eq!(sorted(&of_epoch), (0..23).collect::<Vec<_>>());
            seen.extend(of_epoch);
        }
        assert_eq!(seen, due);
        assert_ne!(seen[..6], seen[6..12], "the epochs are shuffled alike");
    });
}

#[test]
fn the_items_are_those_that_the_plan_delivers() {
    must_end(|| {
        for (last_batch, items, rows) in
            [(LastBatch::Keep, 11, 11), (LastBatch::Drop, 8, 8), (LastBatch::Pad, 11, 12)]
        {
            let loader = loader(numbers(11, None).last_batch(last_batch));
            assert_eq!(loader.num_items(), items);
            for _ in 0..2 {
                let batches = epoch(&loader);
                assert_eq!(batches.iter().map(|batch| batch.rows).sum::<usize>(), rows, "{last_batch:?}");
            }
        }
        // Epochs whose batches continue into the next one differ in length.
        let loader = loader(numbers(10, None).last_batch(LastBatch::Wrap));
        let lengths: Vec<usize> = (0..4).map(|_| epoch(&loader).len()).collect();
        assert_eq!(lengths, [3, 2, 3, 2]);
    });
}

#[test]
fn a_feed_of_a_single_pass_starts_again_each_time() {
    must_end(|| {
        let validation = loader(numbers(11, None).epochs(Epochs::OnePass));
        let first = epoch(&validation);
        assert_eq!(sorted(&first), (0..11).collect::<Vec<_>>());
        for _ in 0..3 {
            assert_eq!(epoch(&validation), first);
        }
        // Two epochs, and again the first of them.
        let twice = loader(numbers(11, None).shuffle(Shuffle::Global).epochs(2));
        let [one, two, three] = [epoch(&twice), epoch(&twice), epoch(&twice)];
        assert_ne!(one, two);
        assert_eq!(one, three);
    });
}

#[test]
fn the_feed_of_an_epoch_goes_on_to_the_next() {
    must_end(|| {
        let loader = loader(numbers(23, None));
        let mut passes = Vec::new();
        for _ in 0..3 {
            epoch(&loader);
            passes.push(loader.handle().unwrap().stats().lanes[0].records);
        }
        // Its statistics would have started over.
        assert_eq!(passes, [23, 46, 69]);
    });
}

#[test]
fn an_epoch_that_was_left_begins_again() {
    must_end(|| {
        let loader = loader(numbers(23, None).shuffle(Shuffle::Global));
        let first = epoch(&loader);
        for left_after in [0, 1, 3, 5] {
            let begun = loader.iter().take(left_after).collect::<Vec<_>>().len();
            assert_eq!(begun, left_after);
        }
        let second = epoch(&loader);
        assert_eq!(sorted(&second), (0..23).collect::<Vec<_>>());
        assert_ne!(second, first);
        assert!(second.iter().flat_map(|batch| &batch.records).all(|record| record.epoch == 1));
    });
}

#[test]
fn two_iterators_at_a_time_are_refused() {
    must_end(|| {
        let loader = loader(numbers(23, None));
        let elsewhere = loader.to_device(&Device::flex().autodiff());
        let mut first = loader.iter();
        assert!(first.next().unwrap().is_ok());
        let mut second = elsewhere.iter();
        let error = second.next().unwrap().unwrap_err();
        assert!(matches!(loader_error(&error), BurnError::InUse), "{error}");
        assert!(second.next().is_none());
        drop(second);
        assert_eq!(first.filter(Result::is_ok).count(), 5);
        let of_epoch = epoch(&*elsewhere);
        assert!(of_epoch.iter().all(|batch| batch.device.is_autodiff()));
    });
}

#[test]
fn a_damaged_record_is_the_last_item_and_stays_the_loaders_error() {
    must_end(|| {
        let loader = loader(numbers(23, Some(9)));
        let mut items = loader.iter();
        assert!(items.next().unwrap().is_ok() && items.next().unwrap().is_ok());
        let error = items.next().unwrap().unwrap_err();
        let BurnError::Feed(found) = loader_error(&error) else { panic!("{error}") };
        assert!(error.to_string().contains("00000009") && error.to_string().contains("8 bytes"), "{error}");
        assert!(items.next().is_none());
        assert!(!items.progress().is_completed());
        drop(items);
        for _ in 0..2 {
            let mut items = loader.iter();
            let error = items.next().unwrap().unwrap_err();
            let BurnError::Feed(again) = loader_error(&error) else { panic!("{error}") };
            assert_eq!(again.to_string(), found.to_string());
            assert!(items.next().is_none());
        }
    });
}

#[test]
fn an_error_of_the_programs_own_function_is_an_item() {
    must_end(|| {
        let calls = AtomicUsize::new(0);
        let loader = FeedLoader::new(numbers(12, None), &Device::flex(), move |batch| {
            match calls.fetch_add(1, Ordering::Relaxed) {
                1 => Err(BurnError::batch("the second batch is not wanted")),
                _ => batch.get_int::<1>("number").map(|numbers| numbers.dims()),
            }
        });
        let items: Vec<_> = loader.unwrap().iter().collect();
        assert_eq!(items.len(), 3);
        assert!(items[0].is_ok() && items[2].is_ok());
        let error = loader_error(items[1].as_ref().unwrap_err());
        assert_eq!(error.source().unwrap().to_string(), "the second batch is not wanted");
    });
}

#[test]
fn a_loader_begins_with_the_epoch_after_burns_checkpoint() {
    must_end(|| {
        let feed = || numbers(23, None).shuffle(Shuffle::Global);
        let whole = loader(feed());
        let epochs = [epoch(&whole), epoch(&whole), epoch(&whole)];
        let resumed = loader(feed()).checkpoint(1);
        assert_eq!([epoch(&resumed), epoch(&resumed)], epochs[1..]);
        // A feed of two epochs has its first again as the third.
        let resumed = loader(feed().epochs(2)).checkpoint(2);
        assert_eq!(epoch(&resumed), epochs[0]);
    });
}

#[test]
fn a_loader_resumes_within_an_epoch() {
    must_end(|| {
        let feed = || numbers(23, None).shuffle(Shuffle::Global).epochs(3);
        let whole = loader(feed());
        let epochs = [epoch(&whole), epoch(&whole), epoch(&whole)];
        let mut stopped = feed().build().unwrap();
        let mut steps = stopped.tensors(&Device::flex()).unwrap();
        assert_eq!(steps.by_ref().take(8).filter(Result::is_ok).count(), 8);
        let resumed = loader(feed().resume(&steps.snapshot().unwrap()));
        assert_eq!(resumed.iter().progress().items_processed, 8);
        assert_eq!(epoch(&resumed), epochs[1][2..]);
        assert_eq!(epoch(&resumed), epochs[2]);
        assert_eq!(epoch(&resumed), epochs[0]);
    });
}

#[test]
fn a_feed_that_resumes_at_its_end_starts_again_with_the_first_epoch() {
    must_end(|| {
        let feed = || numbers(23, None).shuffle(Shuffle::Global).epochs(2);
        let whole = loader(feed());
        let epochs = [epoch(&whole), epoch(&whole)];
        let mut ended = feed().build().unwrap();
        let mut steps = ended.tensors(&Device::flex()).unwrap();
        assert_eq!(steps.by_ref().filter(Result::is_ok).count(), 12);
        let resumed = loader(feed().resume(&steps.snapshot().unwrap()));
        assert_eq!([epoch(&resumed), epoch(&resumed)], epochs);
        assert_eq!(epoch(&resumed), epochs[0]);
    });
}

#[test]
fn a_ring_of_two_suffices_while_an_item_is_held() {
    must_end(|| {
        let feed = numbers(43, None).prefetch(2).give_up_after(Duration::from_secs(30));
        let hold = |batch: percolator_burn::Tensors| batch.get_int::<1>("number");
        let loader = FeedLoader::new(feed, &Device::flex(), hold).unwrap();
        for _ in 0..2 {
            let mut held = None;
            for item in loader.iter() {
                // The one before is dropped only now.
                held = Some(item.unwrap());
            }
            assert_eq!(held.unwrap().into_data().as_slice::<i64>().unwrap(), [40, 41, 42]);
        }
    });
}

#[test]
fn a_loader_is_refused_a_feed_that_cannot_be() {
    #[derive(Debug)]
    struct NoBlocks;
    impl Blocks for NoBlocks {
        fn next(
            &mut self,
            _: &Plan,
            _: &dyn Fn() -> bool,
        ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
            Ok(None)
        }
    }
    let new = |feed| FeedLoader::new(feed, &Device::flex(), Ok).unwrap_err();
    assert!(matches!(new(numbers(8, None).blocks(NoBlocks)), BurnError::Blocks));
    assert!(matches!(new(numbers(0, None)), BurnError::Feed(FeedError::Reader(_))));
    assert!(matches!(new(numbers(8, None).devices(Vec::<FeedDevice>::new())), BurnError::Feed(_)));
    // Plain data can say both.
    let mut spec = Feed::builder().lmdb("nowhere").spec().clone();
    (spec.schedule.once, spec.schedule.epochs) = (true, Some(2));
    let contradicts = new(FeedBuilder::from(spec));
    let contradiction = ConfigError::OnceAndEpochs { epochs: 2 };
    assert!(
        matches!(&contradicts, BurnError::Feed(FeedError::Config(error)) if *error == contradiction),
        "{contradicts}"
    );
}
