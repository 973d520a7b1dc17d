//! The states of a buffer, and what is read from a batch.

use super::*;
use crate::base::shape::Dtype;
use crate::base::sync::{Receiver, bounded};
use crate::batch::fault::{RecordCause, RecordError};
use crate::batch::field::{Field, FieldError};
use crate::batch::memory::PageMemory;
use crate::record::Key;
use proptest::prelude::*;

const SEED: u64 = 7;

fn layout(records: usize) -> Arc<BatchLayout> {
    let fields = vec![
        Field::new("data", Dtype::U8, [1, 2, 3]),
        Field::new("target", Dtype::F32, [6]),
        Field::scalar("label", Dtype::I32),
    ];
    Arc::new(BatchLayout::new(fields, records).unwrap())
}

fn frame_of(layout: &BatchLayout) -> (Frame, Receiver<()>) {
    let (done, completed) = bounded(1);
    let memory = PageMemory::new(layout.bytes()).unwrap();
    (Frame::new(Box::new(memory), layout.rows(), done), completed)
}

fn frame(records: usize) -> (Frame, Receiver<()>) {
    frame_of(&layout(records))
}

fn write(mut places: Places, first: u8) {
    for position in 0..places.range.len() {
        let value = first + u8::try_from(position).unwrap();
        let mut row = places.get(position, SEED);
        row.set_id(RecordId { epoch: 0, index: value.into() });
        row.write("data", &[value; 6]).unwrap();
        row.values_mut::<f32>("target").unwrap().fill(f32::from(value) / 2.0);
        row.set(2, -i32::from(value)).unwrap();
        row.check_written().unwrap();
    }
    places.finish();
}

/// An array's bytes.
fn array<'a>(filled: &'a Filled, name: &str) -> &'a [u8] {
    let mut arrays = filled.layout().arrays().iter();
    filled.array_bytes(arrays.find(|array| &*array.name == name).unwrap())
}

#[test]
fn every_record_is_written_to_its_own_place_from_any_thread() {
    let (mut frame, completed) = frame(64);
    let layout = layout(64);
    let rounds = if cfg!(miri) { 2 } else { 20 };
    for _round in 0..rounds {
        let mut filling = frame.begin(&layout);
        std::thread::scope(|scope| {
            for first in (0..64).step_by(4) {
                let places = filling.take(4);
                scope.spawn(move || write(places, first));
            }
        });
        assert!(filling.is_full());
        let filled = filling.finish().filled(BadAction::Fail);
        completed.try_recv().expect("the last to leave announces it");
        assert!(completed.try_recv().is_err(), "and only once");
        let labels: &[i32] = bytemuck::cast_slice(array(&filled, "label"));
        for (record, bytes) in array(&filled, "data").chunks(6).enumerate() {
            assert!(bytes.iter().all(|&byte| usize::from(byte) == record));
            assert_eq!(filled.ids()[record].index, record as u64);
            assert_eq!(labels[record], -i32::try_from(record).unwrap());
        }
        let targets: &[f32] = bytemuck::cast_slice(array(&filled, "target"));
        assert_eq!((targets.len(), targets[64 * 6 - 1]), (64 * 6, 31.5));
        let memory = filled.memory();
        assert_eq!(memory.as_ptr_range().end, labels.as_ptr_range().end.cast());
        frame = filled.recycle();
    }
}

#[test]
fn a_row_refuses_what_its_fields_are_not() {
    let layout = layout(1);
    let (frame, _completed) = frame(1);
    let mut filling = frame.begin(&layout);
    let mut places = filling.take(1);
    let mut row = places.get(0, SEED);
    let length = |field: &str, found, allowed| {
        Err(FieldError::Length { field: field.to_owned(), found, allowed, is_most: false })
    };
    assert_eq!(row.write("data", &[1_u8; 5]), length("data", 5, 6));
    assert_eq!(row.set("target", 1_f32), length("target", 1, 6));
    assert_eq!(row.set_len("data", 5), length("data", 5, 6));
    let of_type =
        |field: &str, found, wanted| Err(FieldError::Dtype { field: field.to_owned(), found, wanted });
    assert_eq!(row.set("label", 1_u32), of_type("label", Dtype::I32, Dtype::U32));
    assert_eq!(row.values_mut::<u8>("label").map(|_| ()), of_type("label", Dtype::I32, Dtype::U8));
    assert!(matches!(row.set("labels", 1), Err(FieldError::Unknown { .. })));
    let unwritten = |field: &str| Err(FieldError::NotWritten { field: field.to_owned() });
    assert_eq!(row.check_written(), unwritten("data"));
    row.write("data", &[1_u8; 6]).unwrap();
    row.set("label", 1).unwrap();
    assert_eq!(row.check_written(), unwritten("target"));
    row.values_mut::<f32>("target").unwrap().fill(0.0);
    assert_eq!(row.check_written(), Ok(()));
    places.finish();
}

proptest! {
    /// Writes batches of rows of varying length repeatedly in one buffer, and compares them with lists.
    #[test]
    fn rows_of_varying_length_are_joined_and_padded(
        batches in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<i16>(), 0..9), 0..7),
            1..4,
        ),
        pads: bool,
    ) {
        let fields = vec![
            Field::ragged("ragged", Dtype::I16, 8),
            Field::padded("padded", Dtype::I16, 8, -3),
            Field::scalar("bool", Dtype::Bool),
        ];
        let layout = Arc::new(BatchLayout::new(fields, 7).unwrap());
        let (mut frame, _completed) = frame_of(&layout);
        for rows in batches {
            let mut filling = frame.begin(&layout);
            let mut places = filling.take(rows.len());
            for (position, values) in rows.iter().enumerate() {
                let mut row = places.get(position, SEED);
                row.write("ragged", values).unwrap();
                row.values_mut::<i16>("padded").unwrap()[..values.len()].copy_from_slice(values);
                prop_assert!(row.check_written().is_err());
                row.set_len("padded", values.len()).unwrap();
                row.set("bool", values.len() > 4).unwrap();
                prop_assert_eq!(row.check_written(), Ok(()));
                let is_refused = matches!(
                    row.write("ragged", &[0_i16; 9]),
                    Err(FieldError::Length { allowed: 8, is_most: true, .. })
                );
                prop_assert!(is_refused);
            }
            places.finish();
            let pending = if pads { filling.finish_padded() } else { filling.finish() };
            let filled = pending.filled(BadAction::Fail);
            let there = if pads { 7 } else { rows.len() };
            let nothing = vec![Vec::new(); there - rows.len()];
            let rows: Vec<Vec<i16>> = rows.into_iter().chain(nothing).collect();
            let values: &[i16] = bytemuck::cast_slice(array(&filled, "ragged"));
            prop_assert_eq!(values, rows.concat());
            let ends = rows.iter().scan(0, |end, row| { *end += row.len(); Some(*end) });
            let offsets: Vec<i64> = std::iter::once(0).chain(ends).map(|end| end as i64).collect();
            let found: &[i64] = bytemuck::cast_slice(array(&filled, "ragged.offsets"));
            prop_assert_eq!(found, offsets);
            let padded: Vec<i16> =
                rows.iter().flat_map(|row| row.iter().copied().chain([-3; 8]).take(8)).collect();
            prop_assert_eq!(bytemuck::cast_slice::<u8, i16>(array(&filled, "padded")), padded);
            let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
            prop_assert_eq!(bytemuck::cast_slice::<u8, i64>(array(&filled, "padded.lengths")), lengths);
            let long: Vec<u8> = rows.iter().map(|row| u8::from(row.len() > 4)).collect();
            prop_assert_eq!(array(&filled, "bool"), long);
            frame = filled.recycle();
        }
    }
}

#[test]
fn a_batch_is_complete_only_when_its_last_place_is_left() {
    let (frame, completed) = frame(2);
    let mut filling = frame.begin(&layout(2));
    let (first, second) = (filling.take(1), filling.take(1));
    assert!(!second.finish());
    let pending = filling.finish();
    assert!(!pending.is_complete());
    assert!(completed.try_recv().is_err());
    assert!(first.finish());
    assert!(pending.is_complete());
    assert!(completed.try_recv().is_ok());
    assert_eq!(pending.failure(), None);
}

#[test]
fn places_that_are_dropped_are_not_written_and_fail_their_batch() {
    let (frame, completed) = frame(2);
    let mut filling = frame.begin(&layout(2));
    write(filling.take(2), 0);
    let frame = filling.finish().filled(BadAction::Fail).recycle();
    completed.try_recv().unwrap();
    // Unwritten, the second batch's second row would show the first batch's, with its label and id.
    let mut filling = frame.begin(&layout(2));
    let (first, second) = (filling.take(1), filling.take(1));
    write(first, 2);
    drop(second);
    let pending = filling.finish();
    assert!(pending.is_complete(), "nobody waits for rows that nobody will write");
    assert_eq!(completed.try_recv(), Ok(()));
    assert_eq!(pending.failure(), Some(BatchFault::Unwritten));
}

#[test]
fn the_earliest_records_failure_wins() {
    let (frame, _completed) = frame(4);
    let mut filling = frame.begin(&layout(4));
    let (first, second) = (filling.take(2), filling.take(2));
    let failure = |index| {
        Box::new(RecordError {
            path: "db".into(),
            id: RecordId { epoch: 0, index },
            key: Key(Vec::new()),
            cause: RecordCause::Panicked { message: String::new() },
        })
    };
    second.fail(0, failure(2));
    first.fail(1, failure(1));
    second.fail(1, failure(3));
    assert!(!first.finish() && !second.finish());
    assert_eq!(filling.finish().failure(), Some(failure(1).into()));
}

#[test]
fn a_short_batch_shows_only_what_it_holds() {
    let (frame, _completed) = frame(4);
    let mut filling = frame.begin(&layout(4));
    write(filling.take(3), 0);
    let filled = filling.finish().filled(BadAction::Fail);
    assert_eq!((filled.rows(), filled.ids().len()), (3, 3));
    assert_eq!((array(&filled, "data").len(), array(&filled, "label").len()), (18, 12));
}

#[test]
fn bytes_are_written_as_elements_are() {
    let fields = vec![
        Field::new("pair", Dtype::I16, [2]),
        Field::ragged("tokens", Dtype::U32, 2),
        Field::padded("padded", Dtype::U8, 3, 9),
        Field::scalar("flag", Dtype::Bool),
    ];
    let layout = Arc::new(BatchLayout::new(fields, 1).unwrap());
    let (frame, _completed) = frame_of(&layout);
    let mut filling = frame.begin(&layout);
    let mut places = filling.take(1);
    let mut row = places.get(0, SEED);
    let pair = bytemuck::bytes_of(&[7_i16, -8]);
    let wrong = |found, allowed, is_most, field: &str| {
        Err(FieldError::Length { field: field.to_owned(), found, allowed, is_most })
    };
    assert_eq!(row.write_bytes("pair", &pair[..2]), wrong(1, 2, false, "pair"));
    assert_eq!(row.write_bytes("tokens", &[0; 12]), wrong(3, 2, true, "tokens"));
    let part = FieldError::PartOfElement { field: "tokens".to_owned(), dtype: Dtype::U32, found: 5 };
    let message = "field \"tokens\" holds u32, of 4 bytes each, but was given 5 byte(s)";
    assert!(part.to_string().starts_with(message), "{part}");
    assert_eq!(row.write_bytes("tokens", &[0; 5]), Err(part));
    assert_eq!(row.write_bytes("flag", &[2]), Err(FieldError::NotBool { field: "flag".to_owned() }));
    assert!(matches!(row.write_bytes("none", &[]), Err(FieldError::Unknown { .. })));
    row.write_bytes("pair", pair).unwrap();
    row.write_bytes("tokens", bytemuck::bytes_of(&5_u32)).unwrap();
    row.write_bytes("padded", &[1, 2]).unwrap();
    row.check_written().unwrap_err();
    row.write_bytes("flag", &[1]).unwrap();
    row.check_written().unwrap();
    places.finish();
    let filled = filling.finish().filled(BadAction::Fail);
    assert_eq!(array(&filled, "pair"), pair);
    assert_eq!(array(&filled, "tokens"), bytemuck::bytes_of(&5_u32));
    assert_eq!((array(&filled, "padded"), array(&filled, "flag")), (&[1, 2, 9][..], &[1][..]));
}
