//! A deleter is called once: when the last reference to the memory goes, or, if libtorch refuses the tensor,
//! at once.
#![allow(clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator::dlpack::{DLDataType, DLDevice, DLTensor};

use super::*;

/// What a [`DLManagedTensor`] leads to.
struct Owner {
    managed: DLManagedTensor,
    values: [f32; 6],
    shape: [i64; 2],
    strides: [i64; 2],
    released: Arc<AtomicUsize>,
}

unsafe extern "C" fn release(managed: *mut DLManagedTensor) {
    // SAFETY: `tensor` put the owner's address there.
    let owner = unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner>()) };
    owner.released.fetch_add(1, Ordering::SeqCst);
}

/// Six floats, 0 to 5, in two rows; `change` makes them something else before libtorch sees them.
fn tensor(change: impl FnOnce(&mut DLTensor)) -> (Result<Tensor, String>, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    let dl_tensor = DLTensor {
        data: std::ptr::null_mut(),
        device: DLDevice { device_type: 1, device_id: 0 },
        ndim: 2,
        dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(release) };
    let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let owner = Owner { managed, values, shape: [2, 3], strides: [3, 1], released: released.clone() };
    let owner = Box::into_raw(Box::new(owner));
    // SAFETY: the box was just given up, and nobody else has its address.
    let managed = unsafe {
        (*owner).managed.manager_ctx = owner.cast();
        (*owner).managed.dl_tensor.data = (&raw mut (*owner).values).cast();
        (*owner).managed.dl_tensor.shape = (&raw mut (*owner).shape).cast();
        (*owner).managed.dl_tensor.strides = (&raw mut (*owner).strides).cast();
        change(&mut (*owner).managed.dl_tensor);
        &raw mut (*owner).managed
    };
    // SAFETY: it describes the owner's memory, which the deleter frees.
    (unsafe { from_raw(managed) }, released)
}

#[test]
fn the_last_reference_releases_once() {
    let (tensor, released) = tensor(|_| {});
    let tensor = tensor.unwrap();
    let (clone, view) = (tensor.shallow_clone(), tensor.transpose(0, 1).get(1));
    drop(tensor);
    drop(clone);
    assert_eq!(released.load(Ordering::SeqCst), 0, "the view needs the memory");
    assert_eq!(Vec::<f32>::try_from(&view).unwrap(), [1.0, 4.0]);
    std::thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

/// Makes a tensor one that libtorch refuses.
type Change = fn(&mut DLTensor);

#[test]
fn what_libtorch_refuses_is_released_once_and_says_why() {
    let cases: [(Change, &str); 4] = [
        (|tensor| tensor.dtype.lanes = 2, "lanes"),
        (|tensor| tensor.dtype.bits = 12, "bits"),
        (|tensor| tensor.device.device_type = 99, "device"),
        // SAFETY: the shape has two extents. This is noticed when the storage is there already.
        (|tensor| unsafe { *tensor.shape = -1 }, "negative"),
    ];
    for (change, word) in cases {
        let (refused, released) = tensor(change);
        let message = refused.unwrap_err();
        assert!(message.to_lowercase().contains(word), "{word}: {message}");
        assert!(!message.contains('\n'), "a message has no stack: {message}");
        assert_eq!(released.load(Ordering::SeqCst), 1, "{word}");
    }
}

#[test]
fn a_stream_that_cannot_be_told_is_an_error() {
    if tch::Cuda::is_available() {
        assert!(is_on_default_stream(0).unwrap(), "tch leaves the default stream current");
    } else {
        println!("there is no GPU here");
        assert!(!is_on_default_stream(0).unwrap_err().is_empty());
    }
    assert!(is_on_default_stream(128).is_err());
}
