//! A feed as steps of tensors, for loops without burn's `Learner`.

use burn::tensor::Device;
use percolator::{Device as FeedDevice, FeedError, Shuffle};
use percolator_burn::{BurnError, BurnFeed as _};

use crate::made::{given, must_end, numbers, sorted};

#[test]
fn steps_are_the_batches_of_the_feed() {
    must_end(|| {
        let mut feed = numbers(11, None).shuffle(Shuffle::Global).epochs(2).build().unwrap();
        let steps: Vec<_> =
            feed.tensors(&Device::flex()).unwrap().map(|step| given(&step.unwrap())).collect();
        let due: Vec<_> = numbers(11, None)
            .shuffle(Shuffle::Global)
            .epochs(2)
            .build()
            .unwrap()
            .into_iter()
            .map(|batch| batch.unwrap().get::<i64>("number").unwrap().to_vec())
            .collect();
        assert_eq!(steps.iter().map(|step| step.numbers.clone()).collect::<Vec<_>>(), due);
        assert_eq!(sorted(&steps[..3]), (0..11).collect::<Vec<_>>());
    });
}

#[test]
fn a_loop_resumes_within_an_epoch() {
    must_end(|| {
        let feed = || numbers(22, None).shuffle(Shuffle::Global).epochs(3);
        let device = Device::flex();
        let all: Vec<_> =
            feed().build().unwrap().tensors(&device).unwrap().map(|step| given(&step.unwrap())).collect();
        let mut stopped = feed().build().unwrap();
        let mut steps = stopped.tensors(&device).unwrap();
        let begun: Vec<_> = steps.by_ref().take(8).map(|step| given(&step.unwrap())).collect();
        let snapshot = steps.snapshot().unwrap();
        stopped.close();
        let mut resumed = feed().resume(&snapshot).build().unwrap();
        let rest: Vec<_> = resumed.tensors(&device).unwrap().map(|step| given(&step.unwrap())).collect();
        assert_eq!([begun, rest].concat(), all);
    });
}

#[test]
fn several_lanes_have_a_device_each() {
    must_end(|| {
        let feed = || numbers(11, None).epochs(1).devices([FeedDevice::host(0), FeedDevice::host(1)]);
        let (plain, learns) = (Device::flex(), Device::flex().autodiff());
        let mut feed_of_two = feed().build().unwrap();
        let wrong = feed_of_two.tensors(&plain).map(drop).unwrap_err().to_string();
        assert!(wrong.contains("has 2 lanes, and the batches of one were asked for"), "{wrong}");
        let wrong = feed_of_two.tensors_on(std::slice::from_ref(&plain)).map(drop).unwrap_err().to_string();
        assert!(wrong.contains("has 2 lane(s), but 1 device(s) were given"), "{wrong}");
        let mut all = Vec::new();
        for step in feed_of_two.tensors_on(&[plain, learns]).unwrap() {
            for tensors in step.unwrap() {
                assert_eq!(tensors.device().is_autodiff(), tensors.lane() == 1);
                all.push(given(&tensors));
            }
        }
        assert_eq!(sorted(&all), (0..11).collect::<Vec<_>>());
    });
}

#[test]
fn a_damaged_record_ends_the_steps_with_its_error() {
    must_end(|| {
        let mut feed = numbers(11, Some(9)).epochs(1).build().unwrap();
        let steps: Vec<_> = feed.tensors(&Device::flex()).unwrap().collect();
        assert_eq!(steps.len(), 3);
        assert!(steps[..2].iter().all(Result::is_ok));
        let Err(BurnError::Feed(error)) = &steps[2] else { panic!("{:?}", steps[2]) };
        assert!(error.to_string().contains("00000009"), "{error}");
        assert!(!matches!(error, FeedError::Cancelled));
    });
}
