//! What cannot be had is a clear error.

use percolator::feed::ConfigError;
use percolator::{Device as Lane, Dtype, Feed, FeedError, Field};
use percolator_tch::{TchBatch as _, TchError, TchFeed as _};
use tch::{Cuda, Device, Kind};

use crate::common::{elements, next, numbers, positions, rows_of};
use crate::transforming;

#[test]
fn several_lanes_need_a_device_each() {
    let devices = [Lane::host(0), Lane::host(1)];
    let mut feed = numbers(positions(8, None)).devices(devices).epochs(1).build().unwrap();
    let error = feed.tensors(Device::Cpu).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the feed has 2 lanes, and the batches of one were asked for: ask for the steps of all lanes, with a \
         device for each"
    );
    // The lanes come first: another device would not help.
    assert_eq!(feed.tensors(Device::Vulkan).unwrap_err(), error);
    let error = feed.tensors_on(&[Device::Cpu]).unwrap_err();
    assert_eq!(error.to_string(), "the feed has 2 lane(s), but 1 device(s) were given: give one for each");
    let due = FeedError::from(ConfigError::DevicesOfLanes { lanes: 2, devices: 0 });
    assert_eq!(feed.tensors_on(&[]).unwrap_err(), TchError::from(due));
    assert_eq!(feed.tensors_on(&[Device::Cpu; 2]).unwrap().count(), 1, "nothing was lost");
}

#[test]
fn lanes_that_were_taken_are_gone() {
    let mut feed = numbers(positions(8, None)).epochs(1).build().unwrap();
    let _lanes = feed.take_lanes().unwrap();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    assert_eq!(steps.next().unwrap().unwrap_err(), TchError::from(FeedError::LanesTaken));
    assert!(steps.next().is_none());
}

#[test]
fn a_device_that_torch_lacks_says_so() {
    let missing = Device::Cuda(usize::try_from(Cuda::device_count()).unwrap());
    let mut feed = numbers(positions(8, None)).epochs(1).prefetch(1).build().unwrap();
    for device in [missing, Device::Cuda(usize::MAX), Device::Vulkan] {
        let error = feed.tensors(device).unwrap_err();
        assert!(matches!(error, TchError::NoDevice { .. }), "{error}");
        assert!(error.to_string().contains(&format!("torch has no {device:?} here: ")), "{error}");
    }
    let error = feed.tensors(missing).unwrap_err().to_string();
    assert!(error.ends_with("link the program with -Wl,--no-as-needed -ltorch_cuda"), "{error}");
    // A batch whose tensors cannot be had returns.
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let error = lane.next().unwrap().unwrap().into_tensors(missing).unwrap_err();
    assert!(matches!(error, TchError::NoDevice { .. }), "{error}");
    assert_eq!(feed.stats().lanes[0].held, 0);
    assert_eq!(elements::<f32>(next(&mut lane).get("x").unwrap()), rows_of(4..8));
}

#[test]
fn a_name_or_a_kind_that_is_not_there_says_what_is() {
    let mut feed = numbers(positions(4, None)).epochs(1).build().unwrap();
    let mut tensors = feed.tensors(Device::Cpu).unwrap().next().unwrap().unwrap();
    let message = |error: TchError| error.to_string();
    assert_eq!(message(tensors.get("z").unwrap_err()), "the batch has no tensor \"z\"; it has x, y");
    assert_eq!(
        message(tensors.get_as("y", Kind::Float).unwrap_err()),
        "the tensor \"y\" is of kind Int64, but Float was asked for: convert it with to_kind, or let the \
         feed make it so"
    );
    drop(tensors.take("x").unwrap());
    assert_eq!(message(tensors.take("x").unwrap_err()), "the batch has no tensor \"x\"; it has y");
    drop(tensors.take("y").unwrap());
    assert_eq!(message(tensors.take("y").unwrap_err()), "the batch has no tensor \"y\"; it has none left");
}

#[test]
fn a_type_that_tch_lacks_says_what_to_write_instead() {
    for (dtype, instead) in [(Dtype::U16, "i32 or i64"), (Dtype::U32, "i64"), (Dtype::U64, "i64")] {
        let mut feed = Feed::builder()
            .source(positions(4, None))
            .decode([Field::scalar("fine", Dtype::U8), Field::scalar("count", dtype)], move |record, row| {
                let [value] = record.value.try_into()?;
                row.set("fine", value)?;
                match dtype {
                    Dtype::U16 => row.set("count", u16::from(value))?,
                    Dtype::U32 => row.set("count", u32::from(value))?,
                    _ => row.set("count", u64::from(value))?,
                }
                Ok(())
            })
            .batch_size(2)
            .epochs(1)
            .build()
            .unwrap();
        let wanted = TchError::Dtype { field: "count".to_owned(), dtype, instead };
        assert_eq!(feed.tensors(Device::Cpu).unwrap_err(), wanted);
        let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
        let error = batch.into_tensors(Device::Cpu).unwrap_err();
        assert_eq!(error, wanted);
        assert!(error.to_string().contains(instead), "{error}");
    }
}

#[test]
fn a_bad_record_is_named_once_after_the_whole_batches() {
    let mut feed = numbers(positions(20, Some(9))).epochs(1).build().unwrap();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    for first in [0, 4] {
        let tensors = steps.next().unwrap().unwrap();
        assert_eq!(elements::<f32>(tensors.get("x").unwrap()), rows_of(first..first + 4));
    }
    let error = steps.next().unwrap().unwrap_err();
    assert!(matches!(&error, TchError::Feed(error) if matches!(**error, FeedError::Record(_))));
    let message = error.to_string();
    let place = "folder/made.bin: epoch 0, record 9, key \"00000009\": ";
    assert!(message.starts_with(place) && message.contains("it has no position"), "{message}");
    assert!(steps.next().is_none(), "nothing comes after it");
    assert!(steps.next().is_none());
}

#[test]
fn what_only_an_own_device_has_is_not_taken_from_the_host() {
    let mut feed = transforming::feed().prefetch(1).build().unwrap();
    let error = feed.tensors(Device::Cpu).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error, TchError::OnDevice { field: "data".to_owned() });
    let text = error.to_string();
    assert!(text.starts_with("field \"data\" is transformed on the lane's device, and only there"), "{text}");
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let error = lane.next().unwrap().unwrap().into_tensors(Device::Cpu).unwrap_err();
    assert_eq!(error, TchError::OnDevice { field: "data".to_owned() });
    assert_eq!(feed.stats().lanes[0].held, 0, "the batch returned");
}

#[test]
fn errors_pass_through_a_loop_that_returns_these() {
    fn first(feed: &mut Feed) -> Result<(), TchError> {
        let tensors = feed.tensors(Device::Cpu)?.next().expect("there is a step")?;
        let _ = tensors.get("x")?.f_reshape([5, 7])?;
        Ok(())
    }
    fn as_integers(feed: &mut Feed) -> Result<(), TchError> {
        let batch = feed.steps().next().expect("there is a step")?.remove(0);
        batch.get::<i64>("x")?;
        Ok(())
    }
    let mut feed = numbers(positions(8, None)).epochs(1).build().unwrap();
    let error = first(&mut feed).unwrap_err();
    assert!(matches!(&error, TchError::Torch(message) if message.contains("[5, 7]")), "{error}");
    let error = as_integers(&mut feed).unwrap_err();
    assert!(matches!(error, TchError::Field(_)), "{error}");
}
