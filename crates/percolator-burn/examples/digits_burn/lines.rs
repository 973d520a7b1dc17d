//! What a `Learner` shows of its training: one line an epoch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};

use crate::say;

/// Prints one line an epoch, and keeps the losses. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    names: HashMap<MetricId, String>,
    losses: Vec<f64>,
    /// Which of them is the first of this epoch.
    first: usize,
    accuracy: f64,
    epoch: usize,
    /// When the epoch's training began, and of how many digits it is.
    begin: Option<(Instant, usize)>,
    rate: f64,
    /// The first line that could not be printed: a renderer cannot return an error.
    failed: Option<anyhow::Error>,
}

impl Lines {
    fn with<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The loss of each batch, or why a line could not be printed.
    pub(crate) fn into_losses(self) -> anyhow::Result<Vec<f64>> {
        self.with(|seen| seen.failed.take().map_or_else(|| Ok(std::mem::take(&mut seen.losses)), Err))
    }
}

impl Seen {
    fn is(&self, id: &MetricId, name: &str) -> bool {
        self.names.get(id).is_some_and(|known| known == name)
    }

    fn print(&mut self) {
        let losses = &self.losses[self.first..];
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        let Seen { epoch, accuracy, rate, .. } = self;
        let said = say(format_args!(
            "  epoch {epoch}: loss {loss:.4}, {rate:.0} records/s, {accuracy:.1} % of the test digits"
        ));
        self.failed = self.failed.take().or(said.err());
    }
}

impl MetricsRendererTraining for Lines {
    fn update_train(&mut self, state: MetricState) {
        if let MetricState::Numeric(entry, Some(NumericEntry::Aggregated { aggregated_value, .. })) = state {
            self.with(|seen| {
                if seen.is(&entry.metric_id, "Loss") {
                    seen.losses.push(aggregated_value);
                }
            });
        }
    }

    fn update_valid(&mut self, state: MetricState) {
        if let MetricState::Numeric(entry, Some(NumericEntry::Final(value))) = state {
            self.with(|seen| {
                if seen.is(&entry.metric_id, "Accuracy") {
                    seen.accuracy = value;
                }
            });
        }
    }
}

impl TrainingProgressLogger for Lines {
    fn start(&mut self, _epochs: usize, first: usize, _items: Option<usize>, _label: Option<&str>) {
        self.with(|seen| seen.epoch = first);
    }

    fn start_split(&mut self, split: &str, items: usize) {
        self.with(|seen| {
            if split == "train" {
                (seen.first, seen.begin) = (seen.losses.len(), Some((Instant::now(), items)));
            }
        });
    }

    fn end_split(&mut self) {
        self.with(|seen| {
            if let Some((begin, items)) = seen.begin.take() {
                seen.rate = items as f64 / begin.elapsed().as_secs_f64();
            }
        });
    }

    fn update_epoch(&mut self, _epoch: usize) {
        self.with(|seen| {
            seen.print();
            seen.epoch += 1;
        });
    }

    fn update_split(&mut self, _items: usize) {}

    fn end(&mut self) {}

    fn log_event_training(&mut self, _event: String) {}
}

impl MetricsRenderer for Lines {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.with(|seen| seen.names.insert(definition.metric_id, definition.name.to_string()));
    }
}

/// Nothing is shown of an evaluation: the example has its own.
impl MetricsRendererEvaluation for Lines {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
}

impl EvaluationProgressLogger for Lines {
    fn start_global_progress(&mut self, _tests: usize) {}

    fn start_test(&mut self, _name: &str, _items: usize) {}

    fn update_test_progress(&mut self, _items: usize) {}

    fn end_test(&mut self) {}

    fn end_global_progress(&mut self) {}

    fn log_event_evaluation(&mut self, _event: String) {}
}
