//! A device of the program's own whose host memory is page-locked: CUDA copies out of that after the call, so
//! the batch must not be filled again before.
#![expect(unsafe_code, reason = "page-locked memory comes from the driver")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use candle_core::Device;
use percolator::DeviceError;
use percolator::device::cudarc::driver::{CudaContext, result};
use percolator::device::{Backend, Capacity, HostMemory, Transfer};
use percolator_candle::{CandleFeed as _, Tensors};

use crate::common::process::{must_end, this_test};
use crate::made::{elements, feed};
use crate::standin::alone;
use crate::transforming;

/// A device that leaves batches where they are, and whoever waits for them waits for nothing.
#[derive(Debug)]
struct Own;

impl Backend for Own {
    fn name(&self) -> String {
        "own:0".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        let context = CudaContext::new(0).unwrap();
        // SAFETY: the context is this thread's current one.
        let first = unsafe { result::malloc_host(bytes, 0) }.unwrap().cast::<u8>();
        // SAFETY: these bytes were just allocated.
        unsafe { first.write_bytes(0, bytes) };
        Ok(Box::new(Pinned { context, first: first.expose_provenance(), bytes }))
    }

    fn transfer(&self, _capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(transforming::Own))
    }
}

#[derive(Debug)]
struct Pinned {
    context: Arc<CudaContext>,
    /// Its address.
    first: usize,
    bytes: usize,
}

// SAFETY: the driver allocated the bytes, in pages, and they were filled; nobody else has their address.
unsafe impl HostMemory for Pinned {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.first)
    }

    fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.context.bind_to_thread().unwrap();
        // SAFETY: the memory was allocated once, and no batch has it any more.
        unsafe { result::free_host(self.as_mut_ptr().cast()) }.unwrap();
    }
}

#[test]
fn page_locked_memory_of_an_own_device_is_not_filled_while_it_is_copied() {
    // Each copy takes a while, so that the batch would be filled again before.
    let Some(standin) = alone(this_test!(), "devices=1;op_us=500") else { return };
    must_end("a feed of page-locked memory", move || {
        let device = Device::new_cuda_with_stream(0).unwrap();
        let own = percolator::Device::from_backend(Arc::new(Own));
        let mut feed = feed().devices([own]).prefetch(1).build().unwrap();
        let kept: Vec<Tensors> = feed.tensors(&device).unwrap().collect::<Result<_, _>>().unwrap();
        drop(feed);
        let first: Vec<u8> = kept
            .iter()
            .flat_map(|tensors| elements::<u8>(&tensors.get("u8").unwrap().to_device(&Device::Cpu).unwrap()))
            .step_by(6)
            .collect();
        assert_eq!(first, (0..23).collect::<Vec<u8>>());
        standin.last_report().must_be_clean();
    });
}
