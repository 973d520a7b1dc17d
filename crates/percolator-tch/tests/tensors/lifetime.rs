//! A batch's memory lives as long as anything in libtorch refers to it, returns once, and is then filled
//! again.

use percolator_tch::TchFeed as _;
use tch::{Device, IndexOp as _, Kind, Tensor};

use crate::common::{elements, next, numbers, positions, row_of, rows_of};

#[test]
fn a_held_tensor_never_changes_while_the_feed_goes_on() {
    let mut feed = numbers(positions(20, None)).epochs(10).prefetch(2).build().unwrap();
    let handle = feed.handle();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    let held = steps.next().unwrap().unwrap().take("x").unwrap();
    let address = held.data_ptr();
    let mut others = 0;
    for (number, step) in steps.enumerate() {
        let tensors = step.unwrap();
        let first = u8::try_from((number + 1) % 5 * 4).unwrap();
        let x = tensors.get("x").unwrap();
        assert_eq!(elements::<f32>(x), rows_of(first..first + 4));
        assert_ne!(x.data_ptr(), address, "the held batch was handed out again");
        assert_eq!(elements::<f32>(&held), rows_of(0..4));
        others += 1;
    }
    assert_eq!(others, 49);
    assert_eq!(handle.stats().lanes[0].held, 1);
    drop(held);
    assert_eq!(handle.stats().lanes[0].held, 0);
}

#[test]
fn a_dropped_tensor_returns_the_batch_which_is_filled_again() {
    // A lane of one batch: each step needs the one before to be back.
    let mut feed = numbers(positions(20, None)).epochs(2).prefetch(1).build().unwrap();
    let mut addresses: Vec<_> = feed
        .tensors(Device::Cpu)
        .unwrap()
        .map(|tensors| tensors.unwrap().get("x").unwrap().data_ptr().addr())
        .collect();
    assert_eq!(addresses.len(), 10);
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "there is one batch");
}

/// What keeps a batch, made of the tensor `x` of its first batch.
type Keep = fn(&Tensor) -> Tensor;

#[test]
fn whatever_shares_the_storage_keeps_the_batch() {
    let keeps: [(&str, Keep); 7] = [
        ("a shallow clone", Tensor::shallow_clone),
        ("a row", |x| x.get(2)),
        ("a slice", |x| x.i((1..3, ..))),
        ("a transpose", |x| x.transpose(0, 1)),
        ("a reshape", |x| x.reshape([-1])),
        ("a detached tensor", Tensor::detach),
        ("a tensor with the same data", |x| {
            let mut other = Tensor::zeros([1], (Kind::Float, Device::Cpu));
            other.set_data(x);
            other
        }),
    ];
    let mut feed = numbers(positions(20, None)).epochs(2).prefetch(1).build().unwrap();
    let handle = feed.handle();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    for (number, (what, keep)) in keeps.into_iter().enumerate() {
        let first = u8::try_from(number % 5 * 4).unwrap();
        let tensors = steps.next().unwrap().unwrap();
        let kept = keep(tensors.get("x").unwrap());
        let before: Vec<f32> = elements(&kept.copy());
        drop(tensors);
        assert_eq!(handle.stats().lanes[0].held, 1, "{what} keeps the batch");
        assert_eq!(elements::<f32>(&kept), before);
        assert!(before.contains(&row_of(first + 2)[1]), "{what} is of this batch: {before:?}");
        drop(kept);
        assert_eq!(handle.stats().lanes[0].held, 0, "{what} was the last");
    }
}

#[test]
fn a_copy_does_not_keep_the_batch() {
    let mut feed = numbers(positions(4, None)).epochs(1).prefetch(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let tensors = next(&mut lane);
    let copies = [tensors.get("x").unwrap().copy(), tensors.get("x").unwrap() + 0.0];
    drop(tensors);
    assert_eq!(feed.stats().lanes[0].held, 0);
    copies.iter().for_each(|copy| assert_eq!(elements::<f32>(copy), rows_of(0..4)));
}

#[test]
fn a_graph_keeps_what_it_has_saved() {
    let mut feed = numbers(positions(8, None)).epochs(1).prefetch(1).build().unwrap();
    let handle = feed.handle();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    let weights = Tensor::ones([3, 1], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let mut tensors = steps.next().unwrap().unwrap();
    let loss = tensors.take("x").unwrap().matmul(&weights).sum(Kind::Float);
    drop(tensors);
    assert_eq!(handle.stats().lanes[0].held, 1, "the gradient of the weights needs x");
    loss.backward();
    // The gradient is the sum over the records: 0 + 1 + 2 + 3, and a quarter and a half more for each.
    assert_eq!(elements::<f32>(&weights.grad()), [6.0, 7.0, 8.0]);
    drop(loss);
    assert_eq!(handle.stats().lanes[0].held, 0, "the graph is gone");
    assert_eq!(elements::<f32>(steps.next().unwrap().unwrap().get("x").unwrap()), rows_of(4..8));
}

#[test]
fn each_tensor_of_a_batch_keeps_all_of_it() {
    let mut feed = numbers(positions(4, None)).epochs(1).prefetch(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let mut tensors = next(&mut lane);
    let (x, y) = (tensors.take("x").unwrap(), tensors.take("y").unwrap());
    drop(tensors);
    drop(x);
    assert_eq!(feed.stats().lanes[0].held, 1);
    assert_eq!(elements::<i64>(&y), [0, 1, 2, 3]);
    drop(y);
    assert_eq!(feed.stats().lanes[0].held, 0);
}

#[test]
fn tensors_may_be_dropped_on_other_threads() {
    let mut feed = numbers(positions(40, None)).epochs(5).prefetch(3).build().unwrap();
    let handle = feed.handle();
    std::thread::scope(|scope| {
        let mut droppers = Vec::new();
        for step in feed.tensors(Device::Cpu).unwrap() {
            let mut tensors = step.unwrap();
            let (x, y) = (tensors.take("x").unwrap(), tensors.take("y").unwrap());
            let view = x.i((.., 0));
            // Two threads race to be the last.
            droppers.push(scope.spawn(move || drop(x)));
            droppers.push(scope.spawn(move || {
                let first = y.to_kind(Kind::Float);
                assert_eq!(elements::<f32>(&view), elements::<f32>(&first));
            }));
        }
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    });
    assert_eq!(handle.stats().lanes[0].held, 0);
}

#[test]
fn tensors_outlive_their_feed() {
    let mut feed = numbers(positions(8, None)).epochs(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let first = next(&mut lane).take("x").unwrap();
    let second = next(&mut lane);
    drop(lane);
    drop(feed);
    assert_eq!(elements::<f32>(&first), rows_of(0..4));
    std::thread::spawn(move || assert_eq!(elements::<f32>(second.get("x").unwrap()), rows_of(4..8)))
        .join()
        .unwrap();
    assert_eq!(elements::<f32>(&(first * 2.0).i(3)), row_of(3).map(|element| element * 2.0));
}

#[test]
fn operations_in_place_change_this_tensor_alone() {
    let mut feed = numbers(positions(20, None)).epochs(3).prefetch(2).build().unwrap();
    for (number, step) in feed.tensors(Device::Cpu).unwrap().enumerate() {
        let mut tensors = step.unwrap();
        let first = u8::try_from(number % 5 * 4).unwrap();
        let mut x = tensors.take("x").unwrap();
        assert_eq!(elements::<f32>(&x), rows_of(first..first + 4), "an earlier change is still there");
        let address = x.data_ptr();
        let _ = x.g_add_scalar_(1000.0);
        let _ = x.i(0).fill_(-7.0);
        assert_eq!(x.data_ptr(), address);
        let wanted: Vec<f32> = [-7.0; 3]
            .into_iter()
            .chain(rows_of(first + 1..first + 4).into_iter().map(|element| element + 1000.0))
            .collect();
        assert_eq!(elements::<f32>(&x), wanted);
        let y = elements::<i64>(tensors.get("y").unwrap());
        assert_eq!(y, (first..first + 4).map(i64::from).collect::<Vec<_>>(), "its neighbour is as it was");
    }
}

#[test]
fn the_memory_cannot_be_made_larger() {
    let mut feed = numbers(positions(4, None)).epochs(1).build().unwrap();
    let mut tensors = feed.tensors(Device::Cpu).unwrap().next().unwrap().unwrap();
    let mut x = tensors.take("x").unwrap();
    let error = x.f_resize_([1000]).unwrap_err().to_string();
    assert!(error.contains("not resizable"), "{error}");
}
