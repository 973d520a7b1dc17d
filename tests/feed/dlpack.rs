//! Batches as DLPack tensors: a tensor's description matches what the batch holds, and the batch returns to
//! its lane when the last tensor is released, on whatever thread.
#![expect(unsafe_code, reason = "what a framework does with a tensor is C")]
#![allow(clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block, reason = "tests")]

use percolator::dlpack::{DLDataType, DLDevice, DLPACK_VERSION, DLTensor};
use percolator::feed::ConfigError;
use percolator::order::{BatchSize, Ranks};
use percolator::source::Matching;
use percolator::{Device, Dtype, Feed, FeedBuilder, FeedError, Layout, Target};

use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn feed() -> FeedBuilder {
    let target = Target::paired(MemorySource::images("masks", 9, 1, 4, 5), Matching::Keys).dtype(Dtype::U8);
    Feed::builder()
        .source(MemorySource::images("images", 9, 3, 4, 5))
        .target(target)
        .batch_size(2)
        .prefetch(1)
}

fn shape(tensor: &DLTensor) -> (Vec<i64>, Vec<i64>) {
    let axes = usize::try_from(tensor.ndim).unwrap();
    // SAFETY: there is an extent and a stride for each axis.
    unsafe {
        (
            std::slice::from_raw_parts(tensor.shape, axes).to_vec(),
            std::slice::from_raw_parts(tensor.strides, axes).to_vec(),
        )
    }
}

/// The elements, found by the strides.
fn elements<T: Copy>(tensor: &DLTensor) -> Vec<T> {
    let (shape, strides) = shape(tensor);
    let count: i64 = shape.iter().product();
    (0..count)
        .map(|number| {
            let mut left = number;
            let mut offset = 0;
            for (extent, stride) in shape.iter().zip(&strides).rev() {
                offset += left % extent * stride;
                left /= extent;
            }
            // SAFETY: the tensor has such an element, of this type.
            unsafe { *tensor.data.cast::<T>().offset(isize::try_from(offset).unwrap()) }
        })
        .collect()
}

#[test]
fn a_tensor_says_its_shape() {
    let tensors = feed().build().unwrap().steps().next().unwrap().unwrap().remove(0).into_dlpack().unwrap();
    for (_, tensor) in tensors {
        assert_eq!(tensor.shape(), shape(tensor.tensor()).0);
    }
}

#[test]
fn a_tensor_is_what_the_batch_holds() {
    for (layout, dims) in [(Layout::Nchw, [2, 3, 4, 5]), (Layout::Nhwc, [2, 4, 5, 3])] {
        let next = || {
            feed().layout(layout).build().unwrap().take_lanes().unwrap().remove(0).next().unwrap().unwrap()
        };
        let (batch, tensors) = (next(), next().into_dlpack().unwrap());
        let pixels = tensors.get("data").unwrap().tensor();
        assert_eq!(pixels.device, DLDevice { device_type: 1, device_id: 0 });
        assert_eq!(pixels.dtype, DLDataType { code: 2, bits: 32, lanes: 1 });
        assert_eq!((shape(pixels).0, pixels.byte_offset), (dims.to_vec(), 0));
        assert_eq!(elements::<f32>(pixels), batch.pixels::<f32>().unwrap());
        let target = tensors.get("target").unwrap().tensor();
        assert_eq!(target.dtype, DLDataType { code: 1, bits: 8, lanes: 1 });
        assert_eq!(elements::<u8>(target), batch.target_pixels::<u8>().unwrap());
        let labels = tensors.get("label").unwrap().tensor();
        assert_eq!(
            (labels.dtype, shape(labels)),
            (DLDataType { code: 0, bits: 32, lanes: 1 }, (vec![2], vec![1]))
        );
        assert_eq!(elements::<i32>(labels), batch.labels().unwrap());
        let tensor = tensors.get("label").unwrap();
        assert_eq!((tensor.records(), tensor.step()), (batch.records(), batch.step()));
    }
    let half = |dtype| {
        let batch =
            feed().dtype(dtype).build().unwrap().take_lanes().unwrap().remove(0).next().unwrap().unwrap();
        batch.into_dlpack().unwrap().get("data").unwrap().tensor().dtype
    };
    assert_eq!(half(Dtype::F16), DLDataType { code: 2, bits: 16, lanes: 1 });
    assert_eq!(half(Dtype::Bf16), DLDataType { code: 4, bits: 16, lanes: 1 });
}

#[test]
fn the_last_tensor_gives_the_batch_back() {
    must_end("a lane of one batch, whose tensors are given back", || {
        let mut feed = feed().build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        for _round in 0..3 {
            let mut tensors = lane.next().unwrap().unwrap().into_dlpack().unwrap();
            // As a framework has it: a raw pointer, and a deleter that it calls on a thread of its own.
            let raw = tensors.take("data").unwrap().into_raw();
            drop(tensors);
            assert!(lane.try_next().unwrap().batch().is_none(), "the pixels are still there");
            // SAFETY: the tensor lives until its deleter is called.
            let managed = unsafe { &*raw };
            assert_eq!((managed.version, managed.flags), (DLPACK_VERSION, 0));
            let (deleter, address) = (managed.deleter.unwrap(), raw.expose_provenance());
            // SAFETY: it is called once.
            std::thread::spawn(move || unsafe { deleter(std::ptr::with_exposed_provenance_mut(address)) })
                .join()
                .unwrap();
        }
    });
}

#[test]
fn tensors_outlive_their_feed() {
    let tensors = feed()
        .build()
        .unwrap()
        .take_lanes()
        .unwrap()
        .remove(0)
        .next()
        .unwrap()
        .unwrap()
        .into_dlpack()
        .unwrap();
    assert_eq!(elements::<i32>(tensors.get("label").unwrap().tensor()), [0, 1]);
}

#[test]
fn a_step_is_divided_among_the_ranks() {
    let devices = || (0..2).map(Device::host);
    let records = |feed: FeedBuilder| feed.build().map(|feed| feed.batch_shape().records);
    assert_eq!(records(feed().batch_size(BatchSize::Global(6)).devices(devices())).unwrap(), 3);
    assert_eq!(
        records(feed().batch_size(BatchSize::Global(8)).devices(devices()).share(Ranks { first: 2, of: 4 }))
            .unwrap(),
        2
    );
    assert_eq!(records(feed().batch_size(BatchSize::Global(6)).batch_size(5).devices(devices())).unwrap(), 5);
    for (global, ranks) in [(7, 2), (1, 2)] {
        let error =
            records(feed().batch_size(BatchSize::Global(global as u64)).devices(devices())).unwrap_err();
        assert_eq!(error, FeedError::Config(ConfigError::GlobalBatch { records: global, ranks }));
    }
}
