//! Runs the states of a buffer under the model checker: several threads fill it, fail it, and pass it on.

use shuttle::thread;

use super::*;
use crate::base::shape::Dtype;
use crate::base::sync::{Receiver, bounded};
use crate::batch::field::Field;
use crate::batch::memory::PageMemory;
use crate::explore::explore;
use crate::source::SourceError;

fn layout(records: usize) -> Arc<BatchLayout> {
    Arc::new(BatchLayout::new(vec![Field::scalar("number", Dtype::U8)], records).unwrap())
}

fn frame(layout: &BatchLayout) -> (Frame, Receiver<()>) {
    let (done, completed) = bounded(1);
    let memory = PageMemory::new(layout.bytes()).unwrap();
    (Frame::new(Box::new(memory), layout.rows(), done), completed)
}

fn write(mut places: Places) {
    for position in 0..places.range.len() {
        let number = u8::try_from(places.range.start + position).unwrap();
        let mut row = places.get(position, 0);
        row.set_id(RecordId { epoch: 0, index: number.into() });
        row.set(0, number).unwrap();
    }
    places.finish();
}

#[test]
fn a_buffer_is_complete_once_after_the_last_of_its_writers_and_is_filled_again() {
    explore(|| {
        let layout = layout(5);
        let (mut frame, completed) = frame(&layout);
        for records in [5, 3] {
            let mut filling = frame.begin(&layout);
            let writers: Vec<_> = [0..2, 2..records]
                .into_iter()
                .map(|part| filling.take(part.len()))
                .map(|places| thread::spawn(move || write(places)))
                .collect();
            let pending = filling.finish();
            completed.recv().expect("the last to leave announces it");
            assert!(pending.is_complete() && pending.failure().is_none());
            let filled = pending.filled(BadAction::Fail);
            assert!(filled.memory()[..records].iter().copied().eq(0..u8::try_from(records).unwrap()));
            for writer in writers {
                writer.join().unwrap();
            }
            assert!(completed.try_recv().is_err(), "it is announced once");
            frame = filled.recycle();
        }
    });
}

#[test]
fn of_several_failures_the_earliest_records_is_kept_whoever_fails_first() {
    explore(|| {
        let layout = layout(4);
        let (frame, completed) = frame(&layout);
        let mut filling = frame.begin(&layout);
        // The first is lost, the second fails, and the third is written.
        let (lost, failing, written) = (filling.take(2), filling.take(1), filling.take(1));
        let threads = [
            thread::spawn(move || drop(lost)),
            thread::spawn(move || {
                failing.fail(0, SourceError::other("here", "torn"));
                failing.finish();
            }),
            thread::spawn(move || write(written)),
        ];
        let pending = filling.finish();
        completed.recv().unwrap();
        assert!(matches!(pending.failure(), Some(BatchFault::Unwritten)));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
