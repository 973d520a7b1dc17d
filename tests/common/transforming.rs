//! A device of the program's own that says it transforms images: it leaves the host's memory as it is, and
//! nobody else has what it would make of that.

use std::sync::Arc;

use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::proto::Datum;
use percolator::source::FnSource;
use percolator::transform::{DeviceTransform, TransformPlace};
use percolator::{Device, DeviceError, Feed, FeedBuilder, Transform};
use prost::Message as _;

/// A feed of eight images of 1x2x2 in batches of four, through one lane of such a device. Labels count.
pub(crate) fn feed() -> FeedBuilder {
    let source = FnSource::new("made", 8, |position, value| {
        let first = u8::try_from(position).expect("there are eight");
        let datum = Datum {
            channels: Some(1),
            height: Some(2),
            width: Some(2),
            data: Some((first..first + 4).collect()),
            label: Some(first.into()),
            ..Datum::default()
        };
        value.extend(datum.encode_to_vec());
        Ok(())
    });
    Feed::builder()
        .source(source)
        .batch_size(4)
        .transform(Transform::new().mean_value(3.0).scale(0.5))
        .transform_on(TransformPlace::Device)
        .devices([Device::from_backend(Arc::new(Own))])
        .epochs(1)
}

/// The device, and its transfers: whoever waits for a batch waits for nothing.
#[derive(Debug)]
pub(crate) struct Own;

impl Backend for Own {
    fn name(&self) -> String {
        "own:0".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        Ok(Box::new(PageMemory::new(bytes).expect("there is memory left")))
    }

    fn transfer(&self, _capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(Own))
    }

    fn transforming(&self, _transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        Ok(Arc::new(Own))
    }
}

impl Event for Own {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Transfer for Own {
    fn submit(&mut self, _batch: HostBatch<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        self
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        self
    }
}
