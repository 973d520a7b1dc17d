//! The tensors of a batch: their values, types and addresses, and who holds the memory.

use std::time::Duration;

use burn::tensor::{DType, Device, Element, TensorData};
use percolator::batch::FieldError;
use percolator::{Batch, Dtype, Feed, FeedError, LastBatch};
use percolator_burn::{BurnBatch as _, BurnError, Tensors};

use crate::made::{all_types, must_end, numbers};

fn first(feed: &mut Feed) -> Batch {
    feed.steps().next().unwrap().unwrap().remove(0)
}

fn tensors(batch: Batch) -> Tensors {
    batch.into_tensors(&Device::flex()).unwrap()
}

fn values<E: Element>(data: &TensorData) -> Vec<E> {
    data.as_slice::<E>().unwrap().to_vec()
}

/// Where the elements of a batch's field are.
fn address(tensors: &Tensors, field: &str) -> *const u8 {
    tensors.batch().field(field).unwrap().bytes().as_ptr()
}

/// The data of a tensor of any kind, by the field's type.
fn data(tensors: &Tensors, field: &str) -> TensorData {
    match (tensors.dtype(field).unwrap(), field) {
        (_, "f32") => tensors.get::<3>(field).unwrap().into_data(),
        (Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::Bf16, _) => {
            tensors.get::<2>(field).unwrap().into_data()
        }
        (Dtype::Bool, _) => tensors.get_bool::<2>(field).unwrap().into_data(),
        (_, "i64" | "ragged" | "ragged.offsets" | "padded.lengths") => {
            tensors.get_int::<1>(field).unwrap().into_data()
        }
        _ => tensors.get_int::<2>(field).unwrap().into_data(),
    }
}

#[test]
fn each_type_keeps_its_values_and_its_place_in_memory() {
    must_end(|| {
        let mut feed = all_types(9).epochs(1).build().unwrap();
        let _ = first(&mut feed);
        let step = tensors(first(&mut feed));
        assert_eq!((step.len(), step.rows(), step.is_empty(), step.lane()), (4, 4, false, 0));
        assert_eq!(step.records().iter().map(|record| record.index).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert_eq!(step.step().map(|step| (step.epoch, step.step, step.is_last)), Some((0, 1, false)));
        let floats: Vec<f32> = (4..8_u8).flat_map(|at| (0..6).map(move |e| f32::from(at + e))).collect();
        let pairs: Vec<u8> = (4..8).flat_map(|at| [at, at + 1]).collect();
        assert_eq!(values::<f32>(&data(&step, "f32")), floats);
        assert_eq!(step.get::<3>("f32").unwrap().dims(), [4, 2, 3]);
        assert_eq!(values::<i64>(&data(&step, "i64")), [4, 5, 6, 7]);
        assert_eq!(values::<u8>(&data(&step, "u8")), [4, 5, 6, 5, 6, 7, 6, 7, 8, 7, 8, 9]);
        for field in ["f64", "f16", "bf16", "i8", "i16", "i32", "u16", "u32", "u64"] {
            let found = data(&step, field);
            assert_eq!(found.dtype().name(), step.dtype(field).unwrap().to_string(), "{field}");
            let seen: Vec<f64> = found.iter::<f64>().collect();
            assert_eq!(seen, pairs.iter().map(|&value| f64::from(value)).collect::<Vec<_>>(), "{field}");
        }
        let bools: Vec<bool> = (4..8).flat_map(|at| [at % 2 == 0, at % 3 == 0]).collect();
        assert_eq!(values::<bool>(&data(&step, "bool")), bools);
        assert_eq!(values::<i32>(&data(&step, "ragged")), [4, 4, 4, 4, 6, 7, 7]);
        assert_eq!(values::<i64>(&data(&step, "ragged.offsets")), [0, 4, 4, 5, 7]);
        assert_eq!(values::<i64>(&data(&step, "padded.lengths")), [4, 0, 1, 2]);
        assert_eq!(values::<f32>(&data(&step, "padded"))[4..9], [-1.0, -1.0, -1.0, -1.0, 6.0]);
        let fields: Vec<String> = step.batch().fields().iter().map(|field| field.name().to_owned()).collect();
        for field in fields {
            let found = data(&step, &field);
            assert_eq!(found.bytes().as_ptr(), address(&step, &field), "{field} was copied");
        }
    });
}

#[test]
fn tensors_on_a_device_that_computes_gradients_have_the_same_memory() {
    let mut feed = all_types(9).epochs(1).build().unwrap();
    let step = first(&mut feed).into_tensors(&Device::flex().autodiff()).unwrap();
    let floats = step.get::<3>("f32").unwrap();
    assert!(floats.device().is_autodiff() && step.device().is_autodiff());
    assert_eq!(floats.without_autodiff().into_data().bytes().as_ptr(), address(&step, "f32"));
    assert_eq!(step.get_int::<1>("i64").unwrap().into_data().dtype(), DType::I64);
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let mut feed = all_types(9).epochs(1).build().unwrap();
    let step = tensors(first(&mut feed));
    let text = |error: BurnError| error.to_string();
    let unknown = text(step.get::<2>("pixels").unwrap_err());
    assert!(unknown.contains("\"pixels\"") && unknown.contains("\"ragged.offsets\""), "{unknown}");
    let rank = text(step.get::<2>("f32").unwrap_err());
    assert!(rank.contains('3') && rank.contains('2') && rank.contains("\"f32\""), "{rank}");
    let kind = text(step.get::<2>("u8").unwrap_err());
    assert!(kind.contains("u8") && kind.contains("float") && kind.contains("get_int()"), "{kind}");
    assert!(text(step.get_int::<2>("f64").unwrap_err()).contains("get()"));
    assert!(text(step.get_bool::<2>("i8").unwrap_err()).contains("get_int()"));
    assert!(text(step.get_int::<2>("bool").unwrap_err()).contains("get_bool()"));
    assert!(step.dtype("pixels").is_err());
}

#[test]
fn bytes_that_are_no_booleans_are_refused() {
    use percolator::{Dtype, Field};
    let fields = [Field::new("flags", Dtype::Bool, [2])];
    let feed = numbers(4, None).decode(fields, |_, row| Ok(row.write_bytes("flags", &[1, 2])?));
    let mut feed = feed.epochs(1).build().unwrap();
    // So every batch that reaches burn has booleans.
    let error = feed.steps().next().unwrap().unwrap_err().to_string();
    let due = FieldError::NotBool { field: "flags".to_owned() }.to_string();
    assert!(error.contains(&due), "{error}");
}

#[test]
fn padding_is_masked_on_the_device_as_well() {
    let mut feed = numbers(6, None).last_batch(LastBatch::Pad).epochs(1).build().unwrap();
    let _ = first(&mut feed);
    let step = tensors(first(&mut feed));
    assert_eq!((step.len(), step.rows()), (2, 4));
    assert_eq!(step.mask().collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(values::<bool>(&step.mask_tensor().into_data()), [true, true, false, false]);
}

#[test]
fn an_operation_in_place_changes_its_own_tensor_alone() {
    must_end(|| {
        let feed = || all_types(24).epochs(1).prefetch(2);
        let due: Vec<Vec<u8>> =
            feed().build().unwrap().steps().map(|step| step.unwrap()[0].bytes().to_vec()).collect();
        let mut feed = feed().build().unwrap();
        for due in due {
            let step = tensors(first(&mut feed));
            let (changed, other) = (step.get::<3>("f32").unwrap(), step.get::<3>("f32").unwrap());
            let wide = step.get_int::<1>("i64").unwrap();
            let numbers = values::<i64>(&step.get_int::<1>("i64").unwrap().into_data());
            let before = values::<f32>(&other.clone().into_data());
            // burn computes in place if nobody else has the tensor.
            let changed = changed.add_scalar(1000.0).exp().mul_scalar(0.0).sub_scalar(7.0);
            let zeroed = wide.mul_scalar(0);
            assert!(values::<f32>(&changed.into_data()).iter().all(|value| *value == -7.0 || value.is_nan()));
            assert!(values::<i64>(&zeroed.into_data()).iter().all(|value| *value == 0));
            assert_eq!(values::<f32>(&other.into_data()), before);
            assert_eq!(values::<i64>(&step.get_int::<1>("i64").unwrap().into_data()), numbers);
            assert_eq!(step.batch().bytes(), due, "the batch's memory was written to");
        }
    });
}

#[test]
fn a_batch_is_filled_again_only_after_its_last_tensor_is_gone() {
    must_end(|| {
        let mut feed = all_types(400).epochs(1).prefetch(2).build().unwrap();
        let step = tensors(first(&mut feed));
        let held_at = address(&step, "f32");
        let held = step.get::<3>("f32").unwrap();
        drop(step);
        for _ in 0..20 {
            // One place of the ring is left, and comes again and again.
            assert_ne!(address(&tensors(first(&mut feed)), "f32"), held_at);
        }
        // A reshaped tensor is still the same memory.
        let held = held.reshape([4, 6]);
        assert_ne!(address(&tensors(first(&mut feed)), "f32"), held_at);
        let due: Vec<f32> = (0..4_u8).flat_map(|at| (0..6).map(move |e| f32::from(at + e))).collect();
        let data = held.into_data();
        assert_eq!(values::<f32>(&data), due);
        assert_eq!(data.bytes().as_ptr(), held_at);
        drop(data);
        let returns = (0..20).any(|_| address(&tensors(first(&mut feed)), "f32") == held_at);
        assert!(returns, "the place of a dropped tensor does not come again");
    });
}

#[test]
fn tensors_may_be_dropped_on_another_thread() {
    must_end(|| {
        let mut feed = all_types(80).epochs(1).prefetch(1).build().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let dropper = std::thread::spawn(move || receive.iter().map(drop::<(_, _)>).count());
        for _ in 0..20 {
            // The next batch needs the place of this one.
            let step = tensors(first(&mut feed));
            let pair = (step.get::<3>("f32").unwrap(), step.get_int::<2>("u8").unwrap());
            send.send(pair).unwrap();
        }
        drop(send);
        assert_eq!(dropper.join().unwrap(), 20);
    });
}

#[test]
fn a_ring_that_is_held_as_a_whole_is_an_error_and_no_hang() {
    must_end(|| {
        let feed = numbers(40, None).epochs(1).prefetch(2).give_up_after(Duration::from_millis(10));
        let mut feed = feed.build().unwrap();
        let hold = |feed: &mut Feed| tensors(first(feed)).get_int::<1>("number").unwrap();
        let _held = [hold(&mut feed), hold(&mut feed)];
        let error = feed.steps().next().unwrap().unwrap_err();
        assert!(matches!(error, FeedError::AllHeld { held: 2, .. }), "{error}");
    });
}

#[test]
fn tensors_outlive_their_feed() {
    let mut feed = numbers(8, None).epochs(1).build().unwrap();
    let held = tensors(first(&mut feed)).get_int::<1>("number").unwrap();
    feed.close();
    assert_eq!(values::<i64>(&held.into_data()), [0, 1, 2, 3]);
}
