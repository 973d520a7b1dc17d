//! burn's `Learner` with the loaders: it learns, on one device and on two; it resumes; it stops with a feed's
//! error.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use burn::lr_scheduler::constant::ConstantLr;
use burn::module::Module;
use burn::nn::loss::MseLoss;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::{Device, Tensor};
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::{
    ExecutionStrategy, InferenceStep, Learner, LearningResult, MultiDeviceOptim, RegressionOutput,
    SupervisedTraining, TrainOutput, TrainStep,
};
use percolator::decoder::Decoded;
use percolator::source::Record;
use percolator::{Device as FeedDevice, Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, Shuffle};
use percolator_burn::{BurnError, FeedLoader};

use crate::made::{must_end, position, source};

#[derive(Module, Debug)]
struct Line {
    linear: Linear,
}

struct Points {
    x: Tensor<2>,
    y: Tensor<2>,
}

impl Line {
    fn new(device: &Device) -> Self {
        // Drawn weights would come from one sequence, which all tests of this process share.
        let initializer = Initializer::Constant { value: 0.25 };
        Line { linear: LinearConfig::new(2, 1).with_initializer(initializer).init(device) }
    }

    fn forward(&self, points: Points) -> RegressionOutput {
        let output = self.linear.forward(points.x);
        let loss = MseLoss::new().forward(output.clone(), points.y.clone(), burn::nn::loss::Reduction::Mean);
        RegressionOutput::new(loss, output, points.y)
    }

    fn weights(&self) -> Vec<u32> {
        let data = self.linear.weight.val().into_data();
        data.as_slice::<f32>().unwrap().iter().map(|weight| weight.to_bits()).collect()
    }
}

impl TrainStep for Line {
    type Input = Points;
    type Output = RegressionOutput;

    fn step(&self, points: Points) -> TrainOutput<RegressionOutput> {
        let output = self.forward(points);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Line {
    type Input = Points;
    type Output = RegressionOutput;

    fn step(&self, points: Points) -> RegressionOutput {
        self.forward(points)
    }
}

/// Points on the plane `y = 3 a - 2 b`.
fn points(damaged: Option<u64>) -> FeedBuilder {
    let decode = |record: &Record<'_>, row: &mut percolator::Row<'_>| -> Decoded {
        let at = position(record)?;
        let part = |of: u64| (at * of % 32) as f32 / 32.0;
        let (a, b) = (part(7), part(5));
        row.write("x", &[a, b])?;
        row.write("y", &[3.0 * a - 2.0 * b])?;
        Ok(())
    };
    let fields = [Field::new("x", Dtype::F32, [2]), Field::new("y", Dtype::F32, [1])];
    Feed::builder().source(source(256, damaged)).decode(fields, decode).batch_size(16)
}

fn loader(feed: FeedBuilder) -> FeedLoader<Points> {
    FeedLoader::new(feed, &Device::flex(), |batch| Ok(Points { x: batch.get("x")?, y: batch.get("y")? }))
        .unwrap()
}

fn learner() -> Learner<Line> {
    Learner::new(Line::new(&Device::flex().autodiff()), AdamConfig::new().init(), ConstantLr::new(0.1))
}

fn training(folder: &Path, train: FeedLoader<Points>, epochs: usize) -> SupervisedTraining<Line> {
    SupervisedTraining::new(folder, Arc::new(train), Arc::new(loader(points(None).epochs(Epochs::OnePass))))
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .with_default_checkpointers()
        .with_checkpointing_strategy(KeepLastNCheckpoints::new(10))
        .num_epochs(epochs)
}

fn train(folder: &Path, train: FeedLoader<Points>, epochs: usize) -> LearningResult<Line> {
    training(folder, train, epochs).launch(learner())
}

fn is_learned(line: &Line) -> bool {
    let weights: Vec<f32> = line.weights().into_iter().map(f32::from_bits).collect();
    (weights[0] - 3.0).abs() < 0.2 && (weights[1] + 2.0).abs() < 0.2
}

#[test]
fn a_learner_learns_and_resumes_bit_for_bit() {
    must_end(|| {
        let folder = tempfile::tempdir().unwrap();
        let shuffled = || loader(points(None).shuffle(Shuffle::Global));
        let whole = train(&folder.path().join("whole"), shuffled(), 20);
        assert!(whole.error.is_none() && whole.interrupted.is_none());
        assert!(is_learned(&whole.model), "{:?}", whole.model.weights());

        let resumed = folder.path().join("resumed");
        assert!(train(&resumed, shuffled(), 12).error.is_none());
        let rest = training(&resumed, shuffled().checkpoint(12), 20).checkpoint(12).launch(learner());
        assert!(rest.error.is_none());
        assert_eq!(rest.model.weights(), whole.model.weights());
        // Without its number the loader would begin with the first epoch, and the weights would differ.
        let again = folder.path().join("again");
        assert!(train(&again, shuffled(), 12).error.is_none());
        let other = training(&again, shuffled(), 20).checkpoint(12).launch(learner());
        assert_ne!(other.model.weights(), whole.model.weights());
    });
}

#[test]
fn a_learner_learns_on_two_devices() {
    must_end(|| {
        let folder = tempfile::tempdir().unwrap();
        for (number, lanes) in [1, 2].into_iter().enumerate() {
            let feed = points(None).shuffle(Shuffle::Global).devices((0..lanes).map(FeedDevice::host));
            let folder = folder.path().join(number.to_string());
            let devices = vec![Device::flex(), Device::flex()];
            let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
            let result =
                training(&folder, loader(feed), 40).with_training_strategy(strategy.into()).launch(learner());
            assert!(result.error.is_none(), "{:?}", result.error);
            assert!(is_learned(&result.model), "{:?}", result.model.weights());
        }
    });
}

#[test]
fn a_damaged_record_stops_the_training_with_the_feeds_error() {
    must_end(|| {
        let folder = tempfile::tempdir().unwrap();
        for lanes in [1, 2] {
            let feed = points(Some(77)).devices((0..lanes).map(FeedDevice::host));
            let devices = vec![Device::flex(); lanes];
            let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
            let folder = folder.path().join(lanes.to_string());
            let result =
                training(&folder, loader(feed), 3).with_training_strategy(strategy.into()).launch(learner());
            let error = result.error.unwrap();
            assert!(error.to_string().contains("00000077"), "{error}");
            let sources: Vec<&(dyn Error + 'static)> =
                std::iter::successors(Some(&*error as &(dyn Error + 'static)), |error| (*error).source())
                    .collect();
            assert!(sources.iter().any(|error| error.is::<BurnError>()));
            let feeds = sources.iter().find_map(|error| error.downcast_ref::<BurnError>());
            assert!(matches!(feeds, Some(BurnError::Feed(FeedError::Record(_)))), "{feeds:?}");
        }
    });
}
