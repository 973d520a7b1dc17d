//! The command's consumers of lanes, which count batches or simulate training.

use std::thread::Builder;
use std::time::Duration;

use anyhow::anyhow;
use percolator::Lane;
#[cfg(feature = "cuda-driver")]
use percolator::device::{StepTimes, SyntheticStep};

use crate::run::stop::Enough;

/// The consumer of one lane.
pub(crate) struct Consumer {
    lane: Lane,
    step: Step,
}

/// What a consumer does with a batch before dropping it.
enum Step {
    Nothing,
    Pause(Duration),
    #[cfg(feature = "cuda-driver")]
    Kernel(SyntheticStep),
}

impl Consumer {
    pub(crate) fn new(lane: Lane, step: Option<Duration>) -> anyhow::Result<Self> {
        let step = match step {
            None => Step::Nothing,
            #[cfg(feature = "cuda-driver")]
            Some(length) if lane.device().starts_with("cuda:") => {
                let number = lane.device().trim_start_matches("cuda:");
                Step::Kernel(SyntheticStep::new(number.parse()?, length)?)
            }
            Some(length) => Step::Pause(length),
        };
        Ok(Consumer { lane, step })
    }

    /// Takes batches until `enough` is reached. Reports how long it waited for them, if a GPU measured it.
    fn consume(self, enough: &Enough<'_>) -> anyhow::Result<Option<String>> {
        let Consumer { mut lane, step } = self;
        let said = Self::take(&mut lane, step, enough);
        enough.close(lane);
        said
    }

    fn take(lane: &mut Lane, mut step: Step, enough: &Enough<'_>) -> anyhow::Result<Option<String>> {
        for batches in 1.. {
            enough.wait_for(lane)?;
            let Some(batch) = lane.next().transpose()? else { break };
            match &mut step {
                Step::Nothing => {}
                Step::Pause(length) => enough.pause(*length),
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
        match step {
            #[cfg(feature = "cuda-driver")]
            Step::Kernel(step) => Ok(Some(waited(lane.device(), step.finish()?))),
            _ => Ok(None),
        }
    }
}

/// Runs all consumers until `enough` is reached, each on its own thread, except for the last one, which runs
/// on this thread. Returns their reports. If a thread cannot be started, all stop at their next batch.
pub(crate) fn consume(
    mut consumers: Vec<Consumer>,
    enough: &Enough<'_>,
) -> Vec<anyhow::Result<Option<String>>> {
    let last = consumers.pop();
    std::thread::scope(|scope| {
        let mut said = Vec::new();
        let mut started = Vec::with_capacity(consumers.len());
        for (number, consumer) in consumers.into_iter().enumerate() {
            let name = format!("consumer:{number}");
            match Builder::new().name(name.clone()).spawn_scoped(scope, || consumer.consume(enough)) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    enough.call_off();
                    said.push(Err(anyhow!("cannot start the thread {name}: {error}")));
                    break;
                }
            }
        }
        let last = last.filter(|_| said.is_empty()).map(|consumer| consumer.consume(enough));
        let joined = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.chain(last).chain(said).collect()
    })
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
