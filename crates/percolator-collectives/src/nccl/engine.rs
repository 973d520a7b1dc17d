//! One exchange at a time, on a separate stream, with a limit to its wait.
#![expect(unsafe_code, reason = "it keeps the promises that NCCL's calls ask for")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr as _, DevicePtrMut as _, DriverError};
use percolator_distribute::{Collective, Gather};

use super::error::NcclError;
use super::raw::{self, Comm, ID_BYTES, Progress};

/// How long a wait sleeps between two looks.
const NAP: Duration = Duration::from_micros(50);
const ID_WORDS: usize = ID_BYTES / size_of::<u64>();

/// A GPU of this process, and its communicator.
#[derive(Debug)]
pub struct NcclEngine {
    device: usize,
    rank: usize,
    size: usize,
    /// None once it was aborted. Before the stream: what is on the stream must end first.
    comm: Option<Comm>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

impl NcclEngine {
    /// Joins a communicator with the other processes of `others`.
    pub(super) fn new(device: usize, others: &dyn Collective, timeout: Duration) -> Result<Self, NcclError> {
        let (rank, size) = (others.rank(), others.size());
        let ready = open(device).and_then(|gpu| {
            let id = if rank == 0 { raw::new_id()? } else { [0; ID_BYTES] };
            Ok((gpu, id))
        });
        // A process that cannot take part says so, so that none waits for it.
        let mut words = vec![u64::from(ready.is_ok())];
        let id = ready.as_ref().map_or([0; ID_BYTES], |(_, id)| *id);
        let (of_id, _) = id.as_chunks::<{ size_of::<u64>() }>();
        words.extend(of_id.iter().copied().map(u64::from_le_bytes));
        let told = others.all_gather(&words);
        let ((context, stream), _) = ready?;
        let told = told?;
        if let Some(rank) = told.chunks(1 + ID_WORDS).position(|words| words[0] != 1) {
            return Err(NcclError::Elsewhere { rank });
        }
        let mut id = [0; ID_BYTES];
        for (bytes, word) in id.chunks_mut(size_of::<u64>()).zip(&told[1..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let number = |count: usize| {
            i32::try_from(count).map_err(|_| NcclError::TooMany { count: size, what: "processes" })
        };
        let comm = Comm::join(id, number(rank)?, number(size)?)?;
        let mut engine = NcclEngine { device, rank, size, comm: Some(comm), stream, context };
        match engine.settle(Instant::now(), timeout)? {
            Progress::Done => Ok(engine),
            Progress::Going => Err(NcclError::Late { size, waited: timeout }),
        }
    }

    fn comm(&mut self) -> Result<&mut Comm, NcclError> {
        let message = "it was aborted before".to_owned();
        self.comm.as_mut().ok_or(NcclError::Call { call: "the communicator", message })
    }

    fn driver(&self, what: &'static str) -> impl Fn(DriverError) -> NcclError + use<> {
        driver(self.device, what)
    }

    /// Waits until NCCL has done what was asked for last.
    fn settle(&mut self, start: Instant, timeout: Duration) -> Result<Progress, NcclError> {
        loop {
            if self.comm()?.progress()? == Progress::Done {
                return Ok(Progress::Done);
            }
            if start.elapsed() >= timeout {
                return Ok(Progress::Going);
            }
            thread::sleep(NAP);
        }
    }

    /// Gathers words on the device, and waits until that is done.
    fn exchange(
        &mut self,
        from: &CudaSlice<u64>,
        into: &mut CudaSlice<u64>,
        start: Instant,
        timeout: Duration,
    ) -> Result<Progress, NcclError> {
        let stream = self.stream.clone();
        let begun = {
            let (source, _reads) = from.device_ptr(&stream);
            let (target, _writes) = into.device_ptr_mut(&stream);
            // SAFETY: `from` has as many words as are gathered, and `into` as many for each rank. Their owner
            // keeps them until this is done, or the communicator is aborted, which ends its work.
            unsafe { self.comm()?.gather(source, target, from.len(), stream.cu_stream()) }
        };
        if begun? == Progress::Going && self.settle(start, timeout)? == Progress::Going {
            return Ok(Progress::Going);
        }
        let event = stream.record_event(None).map_err(self.driver("record an event"))?;
        while !event.try_is_complete().map_err(self.driver("finish a round"))? {
            // NCCL says here that another process has gone.
            self.comm()?.progress()?;
            if start.elapsed() >= timeout {
                return Ok(Progress::Going);
            }
            thread::sleep(NAP);
        }
        Ok(Progress::Done)
    }
}

/// The context and a stream of a GPU.
fn open(device: usize) -> Result<(Arc<CudaContext>, Arc<CudaStream>), NcclError> {
    raw::start()?;
    let count = CudaContext::device_count().map_err(driver(device, "be found"))?;
    let found = usize::try_from(count).unwrap_or(0);
    if device >= found {
        return Err(NcclError::NoDevice { device, found });
    }
    let context = CudaContext::new(device).map_err(driver(device, "be opened"))?;
    let stream = context.new_stream().map_err(driver(device, "have a stream"))?;
    Ok((context, stream))
}

impl Drop for NcclEngine {
    /// The others may still need what this process has sent last.
    fn drop(&mut self) {
        /// How long NCCL may take to send it.
        const FINISH: Duration = Duration::from_secs(10);
        if let Some(comm) = self.comm.take() {
            comm.finish(FINISH);
        }
    }
}

fn driver(device: usize, what: &'static str) -> impl Fn(DriverError) -> NcclError {
    move |error| NcclError::Driver { device, what, message: error.to_string() }
}

impl Gather for NcclEngine {
    type Error = NcclError;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&mut self, words: &[u64], timeout: Duration) -> Result<Option<Vec<u64>>, NcclError> {
        let start = Instant::now();
        let too_many = || NcclError::TooMany { count: words.len(), what: "words" };
        let all = words.len().checked_mul(self.size).ok_or_else(too_many)?;
        self.context.bind_to_thread().map_err(self.driver("be used by this thread"))?;
        let stream = self.stream.clone();
        let from = stream.clone_htod(words).map_err(self.driver("take words"))?;
        let mut into = stream.alloc_zeros::<u64>(all).map_err(self.driver("make room for words"))?;
        let done = self.exchange(&from, &mut into, start, timeout);
        if !matches!(done, Ok(Progress::Done)) {
            // It ends what is on the stream, before the memory goes.
            self.comm = None;
        }
        if done? == Progress::Going {
            return Ok(None);
        }
        stream.clone_dtoh(&into).map(Some).map_err(self.driver("give words back"))
    }
}
