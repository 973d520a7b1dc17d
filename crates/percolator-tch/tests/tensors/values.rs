//! Every type of element has its values, its shape and its address.

use half::{bf16, f16};
use percolator::{Dtype, Feed, FeedBuilder, Field, LastBatch};
use percolator_tch::{TchBatch as _, TchFeed as _};
use tch::{Device, Kind, Tensor};

use crate::common::{elements, numbers, positions, rows_of};

/// Two elements a record of every type that torch has: `p` and 100, except that of booleans `p` is whether it
/// is odd.
fn of_all_types() -> FeedBuilder {
    const TYPES: [Dtype; 10] = [
        Dtype::U8,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64,
        Dtype::Bool,
    ];
    Feed::builder()
        .source(positions(7, None))
        .decode(TYPES.map(|dtype| Field::new(dtype.to_string(), dtype, [1, 2])), |record, row| {
            let p = record.value[0];
            let small = i8::try_from(p)?;
            row.write("u8", &[p, 100])?;
            row.write("i8", &[-small, 100])?;
            row.write("i16", &[-i16::from(p) * 100, 100])?;
            row.write("i32", &[-i32::from(p) * 100_000, 100])?;
            row.write("i64", &[-i64::from(p) << 40, 100])?;
            row.write("f16", &[f16::from_f32(f32::from(p) + 0.5), f16::from_f32(100.0)])?;
            row.write("bf16", &[bf16::from_f32(f32::from(p) + 0.5), bf16::from_f32(100.0)])?;
            row.write("f32", &[f32::from(p) + 0.125, 100.0])?;
            row.write("f64", &[f64::from(p) + 1e-9, 100.0])?;
            row.write("bool", &[p % 2 == 1, true])?;
            Ok(())
        })
        .batch_size(4)
        .epochs(1)
}

/// The elements of a batch of these positions.
fn pairs<T>(positions: std::ops::Range<u8>, first: impl Fn(u8) -> T, second: impl Fn() -> T) -> Vec<T> {
    positions.flat_map(|position| [first(position), second()]).collect()
}

#[test]
fn every_type_has_its_values_and_its_address() {
    let mut feed = of_all_types().build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    // The last batch is shorter.
    for (batch, of) in lane.zip([0..4, 4..7]) {
        let batch = batch.unwrap();
        let names: Vec<_> = batch.fields().iter().map(|field| field.name().to_owned()).collect();
        let addresses: Vec<_> =
            names.iter().map(|name| batch.field(name).unwrap().bytes().as_ptr().addr()).collect();
        let (ids, step) = (batch.records().to_vec(), batch.step());

        let tensors = batch.into_tensors(Device::Cpu).unwrap();
        assert_eq!(tensors.names().collect::<Vec<_>>(), names);
        assert!(tensors.iter().all(|(name, tensor)| std::ptr::eq(tensors.get(name).unwrap(), tensor)));
        assert_eq!(tensors.iter().len(), names.len());
        assert_eq!((tensors.records(), tensors.step(), tensors.lane()), (&*ids, step, 0));
        assert_eq!((tensors.len(), tensors.rows()), (of.len(), of.len()));
        for (name, address) in names.iter().zip(addresses) {
            let tensor = tensors.get(name).unwrap();
            assert_eq!(tensor.data_ptr().addr(), address, "{name} was copied");
            assert_eq!(tensor.size(), [i64::try_from(of.len()).unwrap(), 1, 2], "{name}");
            assert!(tensor.is_contiguous(), "{name}");
        }
        let get_as = |name, kind| tensors.get_as(name, kind).unwrap();
        let of = || of.clone();
        assert_eq!(elements::<u8>(get_as("u8", Kind::Uint8)), pairs(of(), |p| p, || 100));
        let negative = pairs(of(), |p| -i8::try_from(p).unwrap(), || 100);
        assert_eq!(elements::<i8>(get_as("i8", Kind::Int8)), negative);
        let negative = pairs(of(), |p| -i16::from(p) * 100, || 100);
        assert_eq!(elements::<i16>(get_as("i16", Kind::Int16)), negative);
        let negative = pairs(of(), |p| -i32::from(p) * 100_000, || 100);
        assert_eq!(elements::<i32>(get_as("i32", Kind::Int)), negative);
        let negative = pairs(of(), |p| -i64::from(p) << 40, || 100);
        assert_eq!(elements::<i64>(get_as("i64", Kind::Int64)), negative);
        let halves = pairs(of(), |p| f16::from_f32(f32::from(p) + 0.5), || f16::from_f32(100.0));
        assert_eq!(elements::<f16>(get_as("f16", Kind::Half)), halves);
        // Read as f32, which is exact: tch takes the crate half's bf16 for a f16.
        let halves = pairs(of(), |p| f32::from(p) + 0.5, || 100.0);
        assert_eq!(elements::<f32>(get_as("bf16", Kind::BFloat16)), halves);
        let floats = pairs(of(), |p| f32::from(p) + 0.125, || 100.0);
        assert_eq!(elements::<f32>(get_as("f32", Kind::Float)), floats);
        let floats = pairs(of(), |p| f64::from(p) + 1e-9, || 100.0);
        assert_eq!(elements::<f64>(get_as("f64", Kind::Double)), floats);
        assert_eq!(elements::<bool>(get_as("bool", Kind::Bool)), pairs(of(), |p| p % 2 == 1, || true));
    }
}

#[test]
fn fields_of_varying_length_have_a_second_tensor() {
    let fields = [Field::ragged("ragged", Dtype::I32, 3), Field::padded("padded", Dtype::F32, 3, -1.0_f32)];
    let mut feed = Feed::builder()
        .source(positions(6, None))
        .decode(fields, |record, row| {
            let count = record.value[0] % 3;
            let elements: Vec<i32> = (0..count).map(|at| i32::from(record.value[0] * 10 + at)).collect();
            row.write("ragged", &elements)?;
            let elements: Vec<f32> = (0..count).map(f32::from).collect();
            row.write("padded", &elements)?;
            Ok(())
        })
        .batch_size(4)
        .epochs(1)
        .build()
        .unwrap();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    let tensors = steps.next().unwrap().unwrap();
    let names: Vec<_> = tensors.names().collect();
    assert_eq!(names, ["ragged", "ragged.offsets", "padded", "padded.lengths"]);
    // Records 0 to 3 have 0, 1, 2 and 0 elements.
    assert_eq!(elements::<i32>(tensors.get("ragged").unwrap()), [10, 20, 21]);
    let offsets = tensors.get_as("ragged.offsets", Kind::Int64).unwrap();
    assert_eq!(elements::<i64>(offsets), [0, 0, 1, 3, 3]);
    let padded = tensors.get("padded").unwrap();
    assert_eq!(padded.size(), [4, 3]);
    let none = [-1.0, -1.0, -1.0];
    assert_eq!(elements::<f32>(padded), [none, [0.0, -1.0, -1.0], [0.0, 1.0, -1.0], none].concat());
    let lengths = tensors.get_as("padded.lengths", Kind::Int64).unwrap();
    assert_eq!(elements::<i64>(lengths), [0, 1, 2, 0]);
    // Records 4 and 5 have 1 and 2.
    let last = steps.next().unwrap().unwrap();
    assert_eq!(elements::<i32>(last.get("ragged").unwrap()), [40, 50, 51]);
    assert_eq!(elements::<i64>(last.get("ragged.offsets").unwrap()), [0, 1, 3]);
    assert_eq!(last.get("padded").unwrap().size(), [2, 3]);
    assert!(steps.next().is_none());
}

#[test]
fn a_ragged_field_without_elements_is_an_empty_tensor() {
    let builder = Feed::builder()
        .source(positions(2, None))
        .decode([Field::ragged("ragged", Dtype::F32, 3)], |_, row| Ok(row.write::<f32>("ragged", &[])?));
    let mut feed = builder.batch_size(2).epochs(1).prefetch(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let tensors = lane.next().unwrap().unwrap().into_tensors(Device::Cpu).unwrap();
    assert_eq!(tensors.get("ragged").unwrap().size(), [0]);
    assert_eq!(feed.stats().lanes[0].held, 1);
    drop(tensors);
    assert_eq!(feed.stats().lanes[0].held, 0);
}

#[test]
fn padding_rows_are_no_records() {
    let mut feed = numbers(positions(6, None)).epochs(1).last_batch(LastBatch::Pad).build().unwrap();
    let last = feed.tensors(Device::Cpu).unwrap().last().unwrap().unwrap();
    assert_eq!((last.len(), last.rows(), last.is_empty()), (2, 4, false));
    let mask: Vec<bool> = last.mask().collect();
    assert_eq!(mask, [true, true, false, false]);
    let wanted = [rows_of(4..6), vec![0.0; 6]].concat();
    assert_eq!(elements::<f32>(last.get("x").unwrap()), wanted);
    // As a loss takes it.
    let rows = last.get("y").unwrap().masked_select(&Tensor::from_slice(&mask));
    assert_eq!(elements::<i64>(&rows), [4, 5]);
}
