//! A synthetic training step: a kernel of a known length, and how long the device waited before it.

#![expect(unsafe_code, reason = "the driver is C")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{result, sys};

use super::driver::{Context, not_released};
use super::module::Module;
use super::stream::{CudaEvent, Stream};
use super::transfer::CudaBatch;
use crate::device::{DeviceError, Event as _};

/// A kernel that takes a given time, as PTX made from `kernels/spin.cu`, which the driver compiles for its
/// GPU.
const SPIN_PTX: &str = concat!(include_str!("kernels/spin.ptx"), "\0");

/// The most steps in progress: a host that runs further ahead gains nothing.
const STEPS_AHEAD: usize = 16;

/// A consumer that trains nothing: for each batch it keeps its GPU busy for a given time, on a stream of its
/// own, and measures how long that stream waited for data.
///
/// ```no_run
/// use std::time::Duration;
///
/// use percolator::{Device, Feed};
/// use percolator::device::SyntheticStep;
///
/// let mut feed = Feed::builder().lmdb("train_lmdb").batch_size(64).devices([Device::cuda(0)?]).build()?;
/// let mut step = SyntheticStep::new(0, Duration::from_millis(20))?;
/// for batch in feed.take_lanes()?.remove(0).take(1000) {
///     step.run(batch?.cuda().expect("the lane ends at a GPU"))?;
/// }
/// println!("waited for data {:.2} % of the time", step.finish()?.waited_share() * 100.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SyntheticStep {
    stream: Arc<Stream>,
    spin: sys::CUfunction,
    _module: Module,
    nanos: u64,
    /// The begin and end of the last steps: those in progress, and the one that was counted last.
    marks: Vec<Mark>,
    /// The number of steps begun; `counted` is the number of those already measured.
    begun: usize,
    counted: usize,
    times: StepTimes,
}

// SAFETY: the driver may be called from any thread; a function is a name that it returned.
unsafe impl Send for SyntheticStep {}
// SAFETY: as above; a shared reference can do nothing.
unsafe impl Sync for SyntheticStep {}

/// The begin and end of a step.
#[derive(Debug)]
struct Mark {
    begin: CudaEvent,
    end: CudaEvent,
}

/// The duration of steps, by the device's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// The number of steps.
    pub steps: usize,
    /// The time from the end of a step to the beginning of the next, over all steps but the first.
    pub waited: Duration,
    /// The time in the steps themselves.
    pub worked: Duration,
}

impl StepTimes {
    /// The share of its time that the device waited for data, from the beginning of the first step on.
    #[must_use]
    pub fn waited_share(&self) -> f64 {
        let whole = self.waited + self.worked;
        if whole.is_zero() { 0.0 } else { self.waited.as_secs_f64() / whole.as_secs_f64() }
    }
}

impl SyntheticStep {
    /// A step of this length on a GPU.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is no such GPU, or if it fails.
    pub fn new(ordinal: usize, length: Duration) -> Result<Self, DeviceError> {
        let context = Context::of(ordinal)?;
        let module = Module::new(&context, SPIN_PTX)?;
        let mark = |_| Ok(Mark { begin: CudaEvent::timed(&context)?, end: CudaEvent::timed(&context)? });
        Ok(SyntheticStep {
            stream: Arc::new(Stream::new(&context)?),
            spin: module.function(c"spin")?,
            _module: module,
            nanos: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            marks: (0..=STEPS_AHEAD).map(mark).collect::<Result<_, DeviceError>>()?,
            begun: 0,
            counted: 0,
            times: StepTimes::default(),
        })
    }

    /// Enqueues a step on the GPU that starts once the batch has arrived. Returns without waiting, unless too
    /// many steps are in progress. The batch may be dropped at once.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the batch is on another device, or if the device fails.
    pub fn run(&mut self, batch: CudaBatch<'_>) -> Result<(), DeviceError> {
        if self.begun - self.counted == STEPS_AHEAD {
            self.count_one()?;
        }
        batch.wait_on_own(&self.stream)?;
        let mark = &self.marks[self.begun % self.marks.len()];
        // SAFETY: the stream belongs to this value.
        unsafe { mark.begin.record(self.stream.handle()) }?;
        self.spin()?;
        // SAFETY: as above.
        unsafe { mark.end.record(self.stream.handle()) }?;
        self.begun += 1;
        Ok(())
    }

    /// Waits for the last step, and returns the times.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device fails.
    pub fn finish(mut self) -> Result<StepTimes, DeviceError> {
        while self.counted < self.begun {
            self.count_one()?;
        }
        Ok(self.times)
    }

    fn spin(&self) -> Result<(), DeviceError> {
        let context = self.stream.context();
        let mut nanos = self.nanos;
        let mut arguments: [*mut c_void; 1] = [(&raw mut nanos).cast()];
        let _entered = context.enter()?;
        let (one, stream) = ((1, 1, 1), self.stream.handle());
        // SAFETY: the kernel takes one number, which the driver copies before it returns, and touches no
        // memory.
        let launched = unsafe { result::launch_kernel(self.spin, one, one, 0, stream, &mut arguments) };
        context.check("cuLaunchKernel", launched)
    }

    /// Counts the first uncounted step, once it has ended.
    fn count_one(&mut self) -> Result<(), DeviceError> {
        let mark = &self.marks[self.counted % self.marks.len()];
        mark.end.wait()?;
        let millis = |millis: f32| Duration::from_secs_f64(f64::from(millis.max(0.0)) / 1e3);
        if let Some(before) = self.counted.checked_sub(1) {
            self.times.waited += millis(mark.begin.since(&self.marks[before % self.marks.len()].end)?);
        }
        self.times.worked += millis(mark.end.since(&mark.begin)?);
        self.times.steps += 1;
        self.counted += 1;
        Ok(())
    }
}

impl Drop for SyntheticStep {
    /// Waits for the steps in progress: the kernel is unloaded with this value.
    fn drop(&mut self) {
        if let Err(error) = self.stream.wait_out() {
            not_released(&error, "a synthetic step cannot be waited for");
        }
    }
}
