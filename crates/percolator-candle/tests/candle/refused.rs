//! What cannot be had is an error that says what there is, or what to do.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use candle_core::{DType, Device, MetalDevice};
use percolator::decoder::Decoded;
use percolator::source::{FnSource, Record};
use percolator::{Dtype, Feed, FeedBuilder, FeedError, Field, Row};
use percolator_candle::{CandleBatch as _, CandleError, CandleFeed as _};

use crate::made::feed;
use crate::transforming;

const CPU: Device = Device::Cpu;

/// A feed of a type that candle has not, and one that it has.
fn feed_of(dtype: Dtype) -> FeedBuilder {
    let source = FnSource::new("made", 6, |position, to| {
        to.push(u8::try_from(position).unwrap());
        Ok(())
    });
    let fields = [Field::new("odd", dtype, [2]), Field::scalar("even", Dtype::I64)];
    let decode = move |record: &Record<'_>, row: &mut Row<'_>| -> Decoded {
        match dtype {
            Dtype::I8 => row.write("odd", &[-1_i8; 2])?,
            Dtype::U16 => row.write("odd", &[u16::MAX; 2])?,
            _ => row.write("odd", &[u64::MAX; 2])?,
        }
        row.set("even", i64::from(record.value[0]))?;
        Ok(())
    };
    Feed::builder().source(source).decode(fields, decode).batch_size(2).epochs(1)
}

#[test]
fn a_name_that_is_not_there_is_refused_with_those_that_are() {
    let batch = feed().build().unwrap().into_iter().next().unwrap().unwrap();
    let mut tensors = batch.to_tensors(&CPU).unwrap();
    let errors = [
        tensors.get("label").map(|_| ()).unwrap_err(),
        tensors.get_as("label", DType::U8).map(|_| ()).unwrap_err(),
        tensors.take("label").map(|_| ()).unwrap_err(),
        batch.to_tensor("label", &CPU).map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, CandleError::Unknown { .. }), "{text}");
        assert!(text.starts_with("there is no tensor \"label\"; there are \"u8\", \"u32\""), "{text}");
        assert!(text.ends_with("\"tokens\", \"tokens.offsets\", \"words\", \"words.lengths\""), "{text}");
    }
}

#[test]
fn another_type_is_refused_with_the_one_that_there_is() {
    let batch = feed().build().unwrap().into_iter().next().unwrap().unwrap();
    let tensors = batch.to_tensors(&CPU).unwrap();
    assert_eq!(tensors.get_as("bf16", DType::BF16).unwrap().dims(), [5, 2, 3]);
    let error = tensors.get_as("bf16", DType::F32).unwrap_err();
    assert_eq!(error.to_string(), "tensor \"bf16\" holds bf16, but f32 was requested");
}

#[test]
fn a_type_that_candle_has_not_is_refused_before_a_step_is_lost() {
    for (dtype, instead) in [(Dtype::I8, "i16"), (Dtype::U16, "u32"), (Dtype::U64, "i64")] {
        let mut feed = feed_of(dtype).build().unwrap();
        let mut steps = feed.tensors(&CPU).unwrap();
        let error = steps.next().unwrap().unwrap_err();
        let wanted = format!(
            "field \"odd\" holds {dtype}, of which candle has no tensors: let the decoder write {instead}, \
             or leave the field out"
        );
        assert_eq!(error.to_string(), wanted);
        assert!(steps.next().is_none());
        // The other field is still there, from the first record on.
        let steps = feed.tensors(&CPU).unwrap().only(["even"]).unwrap();
        let seen: Vec<Vec<i64>> =
            steps.map(|step| step.unwrap().take("even").unwrap().to_vec1().unwrap()).collect();
        assert_eq!(seen, [[0, 1], [2, 3], [4, 5]]);
    }
    let batch = feed_of(Dtype::U64).build().unwrap().into_iter().next().unwrap().unwrap();
    assert!(matches!(batch.to_tensors(&CPU), Err(CandleError::Dtype { .. })));
    assert!(matches!(batch.to_tensor("odd", &CPU), Err(CandleError::Dtype { .. })));
    assert_eq!(batch.to_tensor("even", &CPU).unwrap().to_vec1::<i64>().unwrap(), [0, 1]);
}

#[test]
fn what_only_an_own_device_has_is_refused_before_a_step_is_lost() {
    let mut feed = transforming::feed().build().unwrap();
    let error = feed.tensors(&CPU).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(&error, CandleError::OnDevice { field } if field == "data"), "{error}");
    let mut steps = feed.tensors(&CPU).unwrap().only(["label"]).unwrap();
    for wanted in [[0, 1, 2, 3], [4, 5, 6, 7]] {
        let step = steps.next().unwrap().unwrap();
        assert_eq!(step.get("label").unwrap().to_vec1::<i32>().unwrap(), wanted);
    }
    assert!(steps.next().is_none());
    let batch = transforming::feed().build().unwrap().into_iter().next().unwrap().unwrap();
    let error = batch.to_tensor("data", &CPU).unwrap_err();
    assert!(matches!(&error, CandleError::OnDevice { field } if field == "data"), "{error}");
}

#[test]
fn a_device_that_this_build_has_not_is_refused_at_once() {
    let metal = Device::Metal(MetalDevice);
    let wanted = "this build has no device metal: build candle-core with its feature metal, or ask for \
                  tensors on the CPU";
    let mut feed = feed().build().unwrap();
    assert_eq!(feed.tensors(&metal).map(|_| ()).unwrap_err().to_string(), wanted);
    assert_eq!(feed.tensors_on(std::slice::from_ref(&metal)).map(|_| ()).unwrap_err().to_string(), wanted);
    let batch = feed.steps().next().unwrap().unwrap().remove(0);
    assert_eq!(batch.to_tensors(&metal).unwrap_err().to_string(), wanted);
    assert_eq!(batch.to_tensor("u8", &metal).unwrap_err().to_string(), wanted);
    #[cfg(not(feature = "cuda"))]
    {
        let error = batch.to_tensors(&Device::Cuda(candle_core::CudaDevice)).unwrap_err().to_string();
        let wanted = "this build has no device cuda: build percolator-candle with its feature cuda, or ask \
                      for tensors on the CPU";
        assert_eq!(error, wanted);
    }
}

#[test]
fn an_error_of_candles_says_the_causes_that_it_cannot_keep() {
    let missing = percolator::Snapshot::load("/no/such/snapshot").unwrap_err();
    let said = candle_core::Error::from(CandleError::from(FeedError::from(missing))).to_string();
    assert!(said.starts_with("/no/such/snapshot: cannot read the snapshot: "), "{said}");
}

#[test]
fn lanes_and_devices_must_be_as_many() {
    let devices = (0..2).map(percolator::Device::host);
    let mut feed = feed().devices(devices).build().unwrap();
    let error = feed.tensors(&CPU).map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the feed has 2 lanes, and the batches of one were asked for: ask for the steps of all lanes, with a \
         device for each"
    );
    for devices in [&[][..], &[CPU], &[CPU, CPU, CPU]] {
        let error = feed.tensors_on(devices).map(|_| ()).unwrap_err().to_string();
        let given = devices.len();
        let wanted = format!("the feed has 2 lane(s), but {given} device(s) were given: give one for each");
        assert_eq!(error, wanted);
    }
    // The lanes come first: another device would not help.
    let metal = Device::Metal(MetalDevice);
    let error = feed.tensors(&metal).map(|_| ()).unwrap_err();
    assert!(matches!(error, CandleError::Feed(_)), "{error}");
    let error = feed.tensors_on(std::slice::from_ref(&metal)).map(|_| ()).unwrap_err();
    assert!(matches!(error, CandleError::Feed(_)), "{error}");
    assert_eq!(feed.tensors_on(&[CPU, CPU]).unwrap().next().unwrap().unwrap().len(), 2);
}

#[test]
fn lanes_that_were_taken_are_the_first_and_only_step() {
    let mut feed = feed().build().unwrap();
    let _lanes = feed.take_lanes().unwrap();
    let mut steps = feed.tensors(&CPU).unwrap();
    let error = steps.next().unwrap().unwrap_err();
    assert!(matches!(error, CandleError::Feed(FeedError::LanesTaken)), "{error}");
    assert!(steps.next().is_none());
}

#[test]
fn errors_pass_through_loops_that_return_candles_or_anyhows() {
    fn of_candle(feed: &mut Feed) -> candle_core::Result<()> {
        feed.tensors(&CPU)?.next().expect("there is a step")?.get("label")?;
        Ok(())
    }
    fn of_anyhow(feed: &mut Feed) -> anyhow::Result<()> {
        Ok(of_candle(feed)?)
    }
    fn of_both(feed: &mut Feed) -> Result<(), CandleError> {
        let step = feed.tensors(&CPU)?.next().expect("there is a step")?;
        step.get("u8")?.reshape((1, 2, 3))?;
        Ok(())
    }
    let mut feed = feed().build().unwrap();
    assert!(of_candle(&mut feed).unwrap_err().to_string().starts_with("there is no tensor \"label\""));
    assert!(of_anyhow(&mut feed).unwrap_err().to_string().starts_with("there is no tensor \"label\""));
    let error = of_both(&mut feed).unwrap_err();
    assert!(matches!(error, CandleError::Candle(_)), "{error}");
    // candle's own error is handed on, and not wrapped once more.
    let text = error.to_string();
    let back = candle_core::Error::from(error);
    assert!(!matches!(back, candle_core::Error::Wrapped(_)), "{back}");
    assert_eq!(back.to_string(), text);
}
