//! The class `Feed`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use percolator::batch::FieldKind;
use percolator::feed::ConfigError;
use percolator::net::NetState;
use percolator::{FeedBuilder, FeedError, Field, Net, Phase};
use percolator_files::shown;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::batch::{Batch, Taken};
use crate::decoder::Failures;
use crate::iterators::{Batches, Lane, Steps, Until};
use crate::options::{self, Described, json};
use crate::order::Plan;
use crate::receipt::Receipt;
use crate::running::{Close as _, Running, without_interpreter};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::{errors, values};

/// A running feed: one data set, read once, dealt to one lane for each device.
///
/// Keywords, each as in Rust's `FeedBuilder`; `None` counts as not given:
///
/// - the data: `lmdb` (`lmdb_name`), `leveldb`, `tfrecord`, `image_list` (`root_folder`), or `files` of other
///   libraries, such as tar and Parquet (`format`, `format_options`): a path, or several in a list; `root`,
///   `access`, `log_gaps`, `index`
/// - images: `recipe`, `color`, `operations` and those that have keywords of their own (`Transform` lists
///   them), `mean`, `std`; Caffe's `crop`, `mirror`, `mean_values`, `mean_file`, `scale`, `resize`,
///   `scaled_decode`; or a `transform` of all these; `views`, `mixup`, `cutmix`, `mix_probability`;
///   `transform_on`, `dtype`, `layout`, `labels_i64`, `soft_labels`, `target`, `phase`, `layer`. Pixels are
///   in the order BGR, as in OpenCV and Caffe, unless `color` is `"rgb"` or `"upright"`
/// - `tf.train.Example`s, and the named parts of `files`: `fields`, `image`
/// - a function of a record that returns a dict of its fields: `decode`, `decode_fields`. Its calls come one
///   after the other, on several threads, unless `decode_overlaps=True`
/// - the order: `epochs`, `once`, `shuffle`, `shuffle_bytes`, `mix`, `last_batch`, `assignment`, `policy`,
///   `seed`, `caffe_seed` (`caffe_era`), `rank`, `world_size`, `environment`, `resume`. Those from `shuffle`
///   to `policy`, `rank` and `environment` need `epochs`, of which 0 has no end
/// - the rest: `batch_size` or `global_batch_size`, `devices`, `threads`, `prefetch`, `memory_limit`,
///   `receipts`, `warn_after`, `give_up_after`
///
/// With one device, it is an iterable of batches. Threads that wait let go of the interpreter.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Feed {
    running: Arc<Running>,
    devices: usize,
    /// The decoder, if it is a function of Python, which may lead back to this feed. All threads of the feed
    /// share this one reference to it, and the iterators refer to the feed, so whoever uses the function is
    /// seen by the garbage collector.
    function: Mutex<Option<Arc<Py<PyAny>>>>,
    /// What it raised.
    failures: Arc<Failures>,
}

impl Feed {
    fn build(py: Python<'_>, builder: FeedBuilder, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let Described { builder, function, failures, replaces } = options::apply(py, builder, keywords)?;
        let devices = builder.spec().devices.len();
        let replaces = replaces.map(|feed| feed.get().running.clone());
        let running = Running::build(py, builder, failures.clone(), replaces)?;
        Ok(Feed { running, devices, function: Mutex::new(function), failures })
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Checks that batches come one at a time.
    fn check_single(&self, py: Python<'_>) -> PyResult<()> {
        self.running.check_process(py)?;
        match self.devices {
            1 => Ok(()),
            devices => Err(errors::feed(py, &ConfigError::SeveralLanes { devices }.into())),
        }
    }
}

/// The feed of a net's data layer, or the names of its data layers if none has the one that is wanted.
fn of_net(
    path: &Path,
    phase: Phase,
    layer: Option<&str>,
) -> Result<Result<FeedBuilder, Vec<String>>, FeedError> {
    let Some(layer) = layer else { return percolator::Feed::from_prototxt(path, phase).map(Ok) };
    let mut layers = percolator::Feed::layers_of(&Net::open(path)?, &NetState::from(phase))?;
    match layers.iter().position(|found| found.spec().layer == layer) {
        Some(position) => Ok(Ok(layers.swap_remove(position))),
        None => Ok(Err(layers.iter().map(|found| format!("{:?}", found.spec().layer)).collect())),
    }
}

/// The builder of a net's data layer.
pub(crate) fn builder_of_net(
    py: Python<'_>,
    path: &Path,
    phase: &str,
    layer: Option<&str>,
) -> PyResult<FeedBuilder> {
    let phase: Phase = options::named("phase", &phase.to_ascii_lowercase())?;
    let read = py.detach(|| of_net(path, phase, layer));
    read.map_err(|error| errors::net(py, &error, path))?.map_err(|names| {
        let (path, wanted) = (shown::path(path), layer.unwrap_or_default());
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message =
            format!("{path}: there is no data layer {wanted:?} in phase {phase}; there are: {names}");
        errors::config(py, &message)
    })
}

#[pymethods]
impl Feed {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Feed::build(py, percolator::Feed::builder(), options)
    }

    /// The feed of a Caffe net's data layer. Further options replace the layer's.
    #[classmethod]
    #[pyo3(signature = (path, phase="train", *, layer=None, **options))]
    fn from_prototxt(
        class: &Bound<'_, PyType>,
        path: PathBuf,
        phase: &str,
        layer: Option<&str>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = class.py();
        Feed::build(py, builder_of_net(py, &path, phase, layer)?, options)
    }

    /// The feed that a spec describes: a dict, or JSON. Further options replace the spec's.
    #[classmethod]
    #[pyo3(signature = (spec, **options))]
    fn from_spec(
        class: &Bound<'_, PyType>,
        spec: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Feed::build(class.py(), FeedBuilder::from(json::spec_of(spec)?), options)
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<Batches> {
        slf.get().check_single(slf.py())?;
        Ok(Batches::new(slf.clone().unbind(), Until::End))
    }

    /// The batches of one epoch, or of the rest of it; after the last, the first again.
    fn epoch(slf: &Bound<'_, Self>) -> PyResult<Batches> {
        let (py, Feed { running, .. }) = (slf.py(), slf.get());
        slf.get().check_single(py)?;
        // Only what comes next tells whether it is over: waited for where Ctrl-C ends it.
        running.wait(py)?;
        let mut is_over = false;
        running.replace(py, |feed| {
            is_over = feed.epoch()?.is_ended();
            Ok(())
        })?;
        Ok(Batches::of_epoch(slf.clone().unbind(), is_over))
    }

    /// The batches of the rest of the epoch, each as a function of it returns it: for the loader.
    fn _converted(slf: &Bound<'_, Self>, convert: Py<PyAny>) -> PyResult<Batches> {
        slf.get().check_single(slf.py())?;
        Ok(Batches::converted(slf.clone().unbind(), convert))
    }

    /// The steps of all devices.
    fn steps(slf: &Bound<'_, Self>) -> PyResult<Steps> {
        slf.get().running.check_process(slf.py())?;
        Ok(Steps::new(slf.clone().unbind()))
    }

    /// One iterator for each device, each for a thread of its own.
    fn take_lanes(slf: &Bound<'_, Self>) -> PyResult<Vec<Lane>> {
        let lanes = slf.get().running.with(slf.py(), percolator::Feed::take_lanes)?;
        Ok(lanes.into_iter().map(|lane| Lane::new(lane, slf.clone().unbind())).collect())
    }

    /// Continues with another step.
    fn seek(&self, py: Python<'_>, epoch: u64, step: u64) -> PyResult<()> {
        self.running.replace(py, |feed| feed.seek((epoch, step)).map_err(errors::step))
    }

    /// One batch alone, as any replica of the job gets it.
    #[pyo3(signature = (epoch, step, replica=0))]
    fn replay(&self, py: Python<'_>, epoch: u64, step: u64, replica: usize) -> PyResult<Batch> {
        self.running.check_turn(py)?;
        let batch = self
            .running
            .with(py, |feed| Ok(Taken::of(feed.replay((epoch, step), replica).map_err(errors::step)?)?))?;
        Batch::new(py, batch)
    }

    /// Where the run is, after the batch that was taken last: what a feed with `resume` goes on from.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let snapshot = self.running.with(py, |feed| Ok(feed.snapshot()))?;
        Snapshot::of(py, snapshot)
    }

    /// What was delivered, if `receipts` are kept.
    fn receipt(&self, py: Python<'_>) -> PyResult<Option<Receipt>> {
        Ok(self.running.with(py, |feed| Ok(feed.receipt()))?.map(Receipt::new))
    }

    /// What was done so far, and who waited for whom.
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        Ok(Stats::new(self.running.handle(py)?.stats()))
    }

    /// Which record comes when, if the feed follows a plan.
    #[getter]
    fn plan(&self, py: Python<'_>) -> PyResult<Option<Plan>> {
        Ok(self.running.handle(py)?.plan().map(Arc::unwrap_or_clone).map(Plan::new))
    }

    /// The next epoch and step of each device.
    #[getter]
    fn next_steps(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        let next = self.running.handle(py)?.next_steps();
        Ok(next.into_iter().map(|id| (id.epoch, id.step)).collect())
    }

    /// The number of records of the data set, if it is known.
    #[getter]
    fn records(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.running.with(py, |feed| Ok(feed.records()))
    }

    /// What a batch consists of: each field's type and a record's shape.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = self.running.with(py, |feed| Ok(feed.layout().fields().to_vec()))?;
        let found = PyDict::new(py);
        for field in fields {
            let shape = PyTuple::new(py, values::shape_of(&field))?;
            found.set_item(field.name(), (field.dtype().to_string(), shape))?;
        }
        Ok(found)
    }

    /// The names of a batch's arrays: its fields, and the offsets or lengths of those whose length varies.
    #[getter]
    fn _arrays(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let fields = self.running.with(py, |feed| Ok(feed.layout().fields().to_vec()))?;
        let second = |field: &Field| match field.kind() {
            FieldKind::Ragged { .. } => Some(format!("{}.offsets", field.name())),
            FieldKind::Padded { .. } => Some(format!("{}.lengths", field.name())),
            _ => None,
        };
        Ok(fields.iter().flat_map(|field| [Some(field.name().to_owned()), second(field)]).flatten().collect())
    }

    /// The memory that it uses, holder by holder: the holder, the number of pieces, the bytes of each.
    #[getter]
    fn memory_budget(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, usize, usize)>> {
        let budget = self.running.handle(py)?.memory_budget();
        Ok(budget.lines.iter().map(|line| (line.holder, line.count, line.bytes_each)).collect())
    }

    /// The options that it was built with, as a dict for `from_spec`.
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let spec = self.running.with(py, |feed| Ok(feed.spec().clone()))?;
        json::spec_to(py, &spec)
    }

    /// Stops the reader until `unpause`; what it has dealt is still delivered.
    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.running.handle(py)?.pause();
        Ok(())
    }

    /// Lets the reader go on after `pause`.
    fn unpause(&self, py: Python<'_>) -> PyResult<()> {
        self.running.handle(py)?.resume();
        Ok(())
    }

    /// Ends the feed, from any thread: what is complete is delivered, then `ClosedError`.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.running.cancel(py)
    }

    /// Ends its threads. Batches that are held stay valid.
    fn close(&self, py: Python<'_>) {
        self.running.close_here(py);
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.running.is_closed(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.failures.traverse(&visit)?;
        // A collection does not wait: what is being cleared is no longer traversed.
        match self.function.try_lock().as_deref() {
            Some(Some(function)) => visit.call(&**function),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        without_interpreter(|| self.running.close());
        let function = self.function.lock().take();
        drop(function);
        self.failures.clear();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.running.close_here(py);
    }

    fn __reduce_ex__(&self, _protocol: i32) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a feed has threads, and is not pickled: send its options, and build the feed in the process \
             that uses it. Worker processes are not needed: a feed decodes on threads of its own \
             (torch.utils.data.DataLoader(num_workers=...) has nothing to add)",
        ))
    }

    fn __repr__(&self) -> String {
        format!("Feed({} device{})", self.devices, if self.devices == 1 { "" } else { "s" })
    }
}
