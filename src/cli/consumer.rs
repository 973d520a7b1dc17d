//! What takes a lane's batches, for the command: it counts them, or stands for training.

use std::time::{Duration, Instant};

use percolator::Lane;
#[cfg(feature = "cuda-driver")]
use percolator::{StepTimes, SyntheticStep};

/// When a consumer has seen enough.
pub(super) struct Enough {
    pub(super) batches: Option<u64>,
    pub(super) until: Option<Instant>,
}

impl Enough {
    fn is_reached(&self, batches: u64) -> bool {
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        is_late || self.batches.is_some_and(|enough| batches >= enough)
    }
}

/// One lane's consumer.
pub(super) struct Consumer {
    lane: Lane,
    step: Step,
}

/// What a consumer does with a batch before it lets go of it.
enum Step {
    Nothing,
    Sleep(Duration),
    #[cfg(feature = "cuda-driver")]
    Kernel(SyntheticStep),
}

impl Consumer {
    pub(super) fn new(lane: Lane, step: Option<Duration>) -> anyhow::Result<Self> {
        let step = match step {
            None => Step::Nothing,
            #[cfg(feature = "cuda-driver")]
            Some(length) if lane.device().starts_with("cuda:") => {
                let number = lane.device().trim_start_matches("cuda:");
                Step::Kernel(SyntheticStep::new(number.parse()?, length)?)
            }
            Some(length) => Step::Sleep(length),
        };
        Ok(Consumer { lane, step })
    }

    /// Takes batches until it is enough; says, where a GPU knows, how long it waited for them.
    pub(super) fn consume(mut self, enough: &Enough) -> anyhow::Result<Option<String>> {
        for (batches, batch) in (1..).zip(&mut self.lane) {
            let batch = batch?;
            match &mut self.step {
                Step::Nothing => {}
                Step::Sleep(length) => std::thread::sleep(*length),
                #[cfg(feature = "cuda-driver")]
                Step::Kernel(step) => {
                    if let Some(batch) = batch.cuda() {
                        step.run(batch)?;
                    }
                }
            }
            drop(batch);
            if enough.is_reached(batches) {
                break;
            }
        }
        match self.step {
            #[cfg(feature = "cuda-driver")]
            Step::Kernel(step) => Ok(Some(waited(self.lane.device(), step.finish()?))),
            _ => Ok(None),
        }
    }
}

#[cfg(feature = "cuda-driver")]
fn waited(device: &str, times: StepTimes) -> String {
    format!(
        "{device} took {} steps of {:.3} ms on average, and waited for data {:.2} % of the time",
        times.steps,
        times.worked.as_secs_f64() * 1e3 / times.steps.max(1) as f64,
        times.waited_share() * 100.0
    )
}
