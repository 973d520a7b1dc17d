//! A decoder that is a Python function.
//!
//! It runs on the feed's workers. A function that reads a file releases the interpreter, and another worker
//! would call it again meanwhile: two calls that share a file would read each other's bytes. So calls take
//! turns ([`Turn`]), unless they are declared safe to overlap. A worker waits for its turn first, and then
//! for the interpreter, never the other way round. A thread that waits for a worker must not hold the
//! interpreter meanwhile, not even to drop a feed ([`crate::running`]).

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Condvar, Mutex};
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::record::RecordId;
use percolator::{DecodeFailure, FeedError, Field, RecordDecoder, Row, source};
use pyo3::exceptions::{PyBaseException, PyException, PyMemoryError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors;
use crate::values::{self, Unfit};

/// How many exceptions wait for the error of their record: so many of the first to come, and so many of the
/// earliest records after them. The error that arrives is that of the earliest record of the earliest batch.
/// In the order of the data set that is an earliest record; in a shuffled order, about the first to come.
const FAILURES_EACH: usize = 16;

/// The turn that the calls of one function wait for.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_taken: Mutex<bool>,
    given_back: Condvar,
}

thread_local! {
    /// The addresses of the turns that this thread has.
    static TAKEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A turn that was taken, until this is dropped, by the thread that took it.
#[derive(Debug)]
struct Taken(Arc<Turn>);

impl Taken {
    /// Waits for the turn; `None` once the feed is closed, which the thread that has the turn may be waiting
    /// for. Must not have the interpreter, which the holder of the turn may need.
    fn wait_for(turn: &Arc<Turn>, is_closed: &AtomicBool) -> Option<Self> {
        let mut is_taken = turn.is_taken.lock();
        let waits = |is_taken: &mut bool| *is_taken && !is_closed.load(Ordering::Acquire);
        turn.given_back.wait_while(&mut is_taken, waits);
        if is_closed.load(Ordering::Acquire) {
            return None;
        }
        *is_taken = true;
        TAKEN.with_borrow_mut(|taken| taken.push(Arc::as_ptr(turn) as usize));
        Some(Taken(turn.clone()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let turn = Arc::as_ptr(&self.0) as usize;
        // Nothing is left of it where the thread ends.
        let _ = TAKEN.try_with(|taken| taken.borrow_mut().retain(|other| *other != turn));
        *self.0.is_taken.lock() = false;
        self.0.given_back.notify_one();
    }
}

/// What a worker keeps from one record to the next of those that lie together: the turn. So workers do not
/// wake each other for every record, and wait for the interpreter beside each other.
#[derive(Debug, Default)]
pub(crate) struct Kept(Option<Taken>);

/// The turns of the functions that live: the process and the object, and the turn. Only a thread that has the
/// interpreter takes this lock, so no fork finds it locked. A turn may be taken at a fork, so a child has its
/// own.
static TURNS: Mutex<Vec<(Owner, Weak<Turn>)>> = Mutex::new(Vec::new());

/// A process, and the address of an object in it.
type Owner = (u32, usize);

/// The turn of a function, or, of a method, that of its object: whoever has it shares what the object has.
pub(crate) fn turn_of(decode: &Bound<'_, PyAny>) -> Arc<Turn> {
    let object = decode.getattr("__self__").unwrap_or_else(|_| decode.clone());
    let whose = (std::process::id(), object.as_ptr() as usize);
    let mut turns = TURNS.lock();
    turns.retain(|(_, turn)| turn.strong_count() > 0);
    if let Some(turn) = turns.iter().find(|(of, _)| *of == whose).and_then(|(_, turn)| turn.upgrade()) {
        return turn;
    }
    let turn = Arc::new(Turn::default());
    turns.push((whose, Arc::downgrade(&turn)));
    turn
}

/// A record, as `decode` gets it.
#[pyclass(frozen, get_all, module = "percolator")]
pub(crate) struct Record {
    /// The record's key: of an `image_list`, the name of the file as it is listed.
    key: Py<PyBytes>,
    /// The record's value, as the data set has it. Of an `image_list`, it is what a Caffe database would
    /// have: a Datum with the file's bytes and the label.
    value: Py<PyBytes>,
    /// The companion's value, if there is a companion.
    companion: Option<Py<PyBytes>>,
    /// The epoch.
    epoch: u64,
    /// The position in the data set.
    index: u64,
    /// 64 random bits, a function of the feed's seed, the epoch and the position.
    seed: u64,
}

#[pymethods]
impl Record {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (epoch, index, key) = (self.epoch, self.index, self.key.bind(py).repr()?);
        Ok(format!("Record(epoch={epoch}, index={index}, key={key})"))
    }
}

/// The exceptions that functions of Python raised, until the errors of their records arrive at the consumer.
#[derive(Default)]
pub(crate) struct Failures {
    raised: Mutex<Vec<(RecordId, Py<PyBaseException>)>>,
    /// Whether the records that are still to be decoded are no longer wanted.
    is_closed: AtomicBool,
    /// The turn that calls of the function wait for.
    turn: OnceLock<Arc<Turn>>,
}

impl Failures {
    /// Lets no function of Python run from now on; those that run end.
    pub(crate) fn close(&self) {
        let turn = self.turn.get();
        // Locked, so that no worker begins to wait between its look at this and the call that wakes it.
        let is_taken = turn.map(|turn| turn.is_taken.lock());
        self.is_closed.store(true, Ordering::Release);
        drop(is_taken);
        if let Some(turn) = turn {
            // All: feeds share the turn, and one that was woken because it is free may be this one.
            turn.given_back.notify_all();
        }
    }

    /// Whether this thread has the turn that the function's calls wait for.
    pub(crate) fn has_turn(&self) -> bool {
        let Some(turn) = self.turn.get().map(|turn| Arc::as_ptr(turn) as usize) else { return false };
        // A thread that ends has none.
        TAKEN.try_with(|taken| taken.borrow().contains(&turn)).unwrap_or(false)
    }

    /// Checks that this thread may wait for what the function decodes: that it does not have the turn itself,
    /// which the function's calls would wait for as long.
    pub(crate) fn check_turn(&self, py: Python<'_>) -> PyResult<()> {
        match self.has_turn() {
            true => Err(errors::waits_for_itself(py)),
            false => Ok(()),
        }
    }

    fn keep(&self, id: RecordId, error: Py<PyBaseException>) {
        let mut failures = self.raised.lock();
        failures.push((id, error));
        let is_one_too_many = failures.len() > 2 * FAILURES_EACH;
        let later = failures.iter().enumerate().skip(FAILURES_EACH).max_by_key(|(_, failure)| failure.0);
        let latest = later.map(|(position, _)| position).filter(|_| is_one_too_many);
        let dropped = latest.map(|position| failures.swap_remove(position));
        // The lock is free before an exception is dropped: that may run Python.
        drop(failures);
        drop(dropped);
    }

    /// The exception of an error. Its cause is what a function of Python raised.
    pub(crate) fn exception(&self, py: Python<'_>, error: &FeedError) -> PyErr {
        let exception = errors::feed(py, error);
        let record = match error {
            FeedError::Record(record) => Some(record.id),
            _ => None,
        };
        let of_record = |failure: &&(RecordId, Py<PyBaseException>)| Some(failure.0) == record;
        let cause = self.raised.lock().iter().find(of_record).map(|(_, cause)| cause.clone_ref(py));
        match cause.map(|cause| PyErr::from_value(cause.into_bound(py).into_any())) {
            // A request to end the program (KeyboardInterrupt, SystemExit) is no failure of the record.
            Some(cause) if !cause.is_instance_of::<PyException>(py) => cause,
            cause => {
                exception.set_cause(py, cause);
                exception
            }
        }
    }

    /// Shows them to the garbage collector: their tracebacks may lead back to the feed. A collection does not
    /// wait.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let failures = self.raised.try_lock();
        failures.iter().flat_map(|failures| failures.iter()).try_for_each(|(_, error)| visit.call(error))
    }

    pub(crate) fn clear(&self) {
        let failures = std::mem::take(&mut *self.raised.lock());
        drop(failures);
    }
}

/// A function of Python as a decoder.
pub(crate) struct PythonDecoder {
    decode: Arc<Py<PyAny>>,
    /// What it returns; read from the first record if it was not declared.
    declared: Option<Vec<Field>>,
    /// `None` if its calls may overlap.
    turn: Option<Arc<Turn>>,
    failures: Arc<Failures>,
}

impl PythonDecoder {
    pub(crate) fn new(
        decode: Arc<Py<PyAny>>,
        declared: Option<Vec<Field>>,
        turn: Option<Arc<Turn>>,
        failures: Arc<Failures>,
    ) -> Self {
        if let Some(turn) = &turn {
            // It is the only decoder that they are of.
            let _ = failures.turn.set(turn.clone());
        }
        PythonDecoder { decode, declared, turn, failures }
    }

    /// Calls the function.
    fn call<'py>(
        &self,
        py: Python<'py>,
        record: &source::Record<'_>,
        seed: u64,
    ) -> Result<Bound<'py, PyDict>, Unfit> {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        let record = Record {
            key: bytes(record.key),
            value: bytes(record.value),
            companion: record.companion.map(bytes),
            epoch: record.id.epoch,
            index: record.id.index,
            seed,
        };
        let made = self.decode.bind(py).call1((record,))?;
        let found = made.get_type();
        made.cast_into().map_err(|_| {
            Unfit::Words(format!("decode returned {found}; it returns a dict of the fields by name"))
        })
    }

    /// Does something with the interpreter, whose exceptions become failures of the record.
    fn attached<T>(
        &self,
        id: RecordId,
        kept: &mut Kept,
        run: impl FnOnce(Python<'_>) -> Result<T, Unfit>,
    ) -> Decoded<T> {
        if let (None, Some(turn)) = (&kept.0, &self.turn) {
            kept.0 = Taken::wait_for(turn, &self.failures.is_closed);
        }
        if self.failures.is_closed.load(Ordering::Acquire) {
            return Err(DecodeFailure::not_of_record("the feed is closed"));
        }
        let ran = Python::try_attach(|py| {
            run(py).map_err(|unfit| match unfit {
                Unfit::Words(words) => DecodeFailure::new(words),
                Unfit::Raised(error) => {
                    let (text, is_of_record) = (traceback(py, &error), is_of_record(py, &error));
                    self.failures.keep(id, error.into_value(py));
                    match is_of_record {
                        true => DecodeFailure::new(text),
                        false => DecodeFailure::not_of_record(text),
                    }
                }
            })
        });
        let ends = "the interpreter ends, so decode cannot run";
        ran.unwrap_or_else(|| Err(DecodeFailure::not_of_record(ends)))
    }
}

/// Whether an exception may be the record's fault: not those that end a program, and not a lack of memory.
fn is_of_record(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyMemoryError>(py)
}

/// An exception as the interpreter prints it.
fn traceback(py: Python<'_>, error: &PyErr) -> String {
    let lines = || -> PyResult<String> {
        let parts = (error.get_type(py), error.value(py), error.traceback(py));
        let lines = py.import("traceback")?.call_method1("format_exception", parts)?;
        Ok(lines.extract::<Vec<String>>()?.concat().trim_end().to_owned())
    };
    let text = lines().unwrap_or_default();
    format!("decode raised {error}\n{text}")
}

/// Writes the returned fields into a row.
fn write(made: &Bound<'_, PyDict>, row: &mut Row<'_>) -> Result<(), Unfit> {
    let fields = row.fields();
    for (number, field) in fields.iter().enumerate() {
        let Some(value) = made.get_item(field.name())? else {
            let (name, found) = (field.name(), made.keys());
            return Err(Unfit::Words(format!("decode returned no field {name:?}; it returned {found}")));
        };
        let elements = values::elements_of(field, &value)?;
        row.write_bytes(number, elements.as_bytes()).map_err(|error| Unfit::Words(error.to_string()))?;
    }
    if made.len() > fields.len() {
        let names: Vec<&str> = fields.iter().map(Field::name).collect();
        return Err(Unfit::Words(format!(
            "decode returned the fields {}, of which some are not among the batch's: {}; declare them in \
             decode_fields",
            made.keys(),
            names.join(", ")
        )));
    }
    Ok(())
}

impl RecordDecoder for PythonDecoder {
    type Scratch = Kept;

    fn fields(&self, first: &source::Record<'_>) -> Decoded<Vec<Field>> {
        if let Some(declared) = &self.declared {
            return Ok(declared.clone());
        }
        self.attached(first.id, &mut Kept::default(), |py| {
            let made = self.call(py, first, 0)?;
            let of = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
                values::field_of(&name.extract::<String>()?, &value)
            };
            made.iter().map(of).collect()
        })
    }

    fn may_reshape(&self) -> bool {
        false
    }

    fn scratch(&self, _setup: WorkerSetup) -> Kept {
        Kept::default()
    }

    fn decode(&self, record: &source::Record<'_>, row: &mut Row<'_>, kept: &mut Kept) -> Decoded {
        let seed = row.random().next_u64();
        self.attached(record.id, kept, |py| write(&self.call(py, record, seed)?, row))
    }

    fn rest(&self, kept: &mut Kept) {
        kept.0 = None;
    }
}
