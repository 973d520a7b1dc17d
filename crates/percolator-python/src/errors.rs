//! Errors as exceptions, whose messages have the errors' causes. The classes are Python's own:
//! `percolator/_errors.py`.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use percolator::batch::FieldError;
use percolator::reader::ReaderError;
use percolator::snapshot::SnapshotError;
use percolator::source::SourceError;
use percolator::{DeviceError, FeedError};
use percolator_files::shown;
use percolator_serve::{ClientError, Code, ServeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const MODULE: &str = "percolator._errors";

/// Where in the data something was found.
#[derive(Default)]
struct Place<'a> {
    file: Option<&'a Path>,
    key: Option<&'a [u8]>,
    record: Option<u64>,
}

/// An exception of a class of `percolator._errors`.
fn exception(py: Python<'_>, class: &str, message: &str, reason: &str, place: &Place<'_>) -> PyErr {
    let made = || {
        let class = py.import(MODULE)?.getattr(class)?;
        let error = class.call1((message,))?;
        error.setattr("reason", reason)?;
        error.setattr("file", place.file.map(Path::as_os_str))?;
        error.setattr("key", place.key.map(|key| PyBytes::new(py, key)))?;
        error.setattr("record", place.record)?;
        Ok(PyErr::from_value(error))
    };
    made().unwrap_or_else(|error| error)
}

fn plain(py: Python<'_>, class: &str, message: &str) -> PyErr {
    exception(py, class, message, message, &Place::default())
}

/// The class of an error.
fn class_of(error: &FeedError) -> &'static str {
    match error {
        FeedError::Layer { error, .. } => class_of(error),
        FeedError::Config(_) | FeedError::Net(_) => "ConfigError",
        FeedError::Snapshot(_) => "SnapshotError",
        FeedError::Reader(ReaderError::Source(_)) => "SourceError",
        FeedError::Reader(ReaderError::Zero { .. } | ReaderError::Order(_)) => "ConfigError",
        FeedError::Reader(ReaderError::Cancelled { .. }) => "ClosedError",
        FeedError::Field(_) => "FieldError",
        FeedError::Record(_) | FeedError::TooManyBad(_) => "RecordError",
        FeedError::Device(_) => "DeviceError",
        FeedError::AllHeld { .. } => "AllHeldError",
        FeedError::Cancelled => "ClosedError",
        _ => "FeedError",
    }
}

/// What is wrong, without the place.
fn reason_of(error: &FeedError) -> String {
    match error {
        FeedError::Layer { error, .. } => reason_of(error),
        FeedError::Record(error) => error.cause.to_string(),
        error => {
            let message = shown::with_sources(error);
            let file = error.file().map(|file| format!("{}: ", shown::path(file)));
            let rest = file.and_then(|file| message.strip_prefix(&file).map(str::to_owned));
            rest.unwrap_or(message)
        }
    }
}

/// An error of a feed.
pub(crate) fn feed(py: Python<'_>, error: &FeedError) -> PyErr {
    if let FeedError::AllHeld { lane, device, held, waited, .. } = error {
        return all_held(py, *held, &format!("lane {lane} ({device}), after {waited:.1?}: "));
    }
    let place = Place { file: error.file(), key: error.key(), record: error.record() };
    exception(py, class_of(error), &shown::with_sources(error), &reason_of(error), &place)
}

/// A wait of a consumer that holds all batches itself.
pub(crate) fn all_held(py: Python<'_>, held: usize, when: &str) -> PyErr {
    let message = format!(
        "{when}all {held} batches of the feed are held, and the next one needs the memory of one of them: \
         the program keeps what it was given (a list of tensors or fields, say), and that is the feed's \
         memory. Keep copies (copy=True of a DataLoader; tensor.clone(), array.copy()), or set prefetch to \
         more than what is kept at once"
    );
    plain(py, "AllHeldError", &message)
}

/// A wait of a consumer that holds batches in a server's memory.
pub(crate) fn lent_held(py: Python<'_>, held: usize, waited: Duration) -> PyErr {
    let message = format!(
        "no batch came for {waited:.0?}, and {held} batches of the server's memory are held here: the next \
         one may need the memory of one of them. Keep copies (copy=True of a DataLoader; tensor.clone(), \
         array.copy()), or take batches by grpc+unix:// in the place of shared://"
    );
    plain(py, "AllHeldError", &message)
}

/// An error of a server, or of the way to it. `asked` is the class of what was asked for and makes no sense.
pub(crate) fn client(py: Python<'_>, error: &ClientError, asked: &str) -> PyErr {
    let class = match error {
        ClientError::Refused { status, .. } => match status.code {
            Code::InvalidArgument => asked,
            Code::NotFound | Code::PermissionDenied => "SourceError",
            Code::DataLoss => "RecordError",
            _ => "ServerError",
        },
        ClientError::Address { .. }
        | ClientError::Certificates { .. }
        | ClientError::TokenCharacters
        | ClientError::Pem { .. }
        | ClientError::Request(_) => "ConfigError",
        ClientError::Ticket { .. } => "SnapshotError",
        _ => "ServerError",
    };
    let message = shown::with_sources(error);
    let reason = match error {
        ClientError::Refused { status, .. } => &status.message,
        ClientError::Token { message, .. } => message,
        _ => &message,
    };
    exception(py, class, &message, reason, &Place::default())
}

/// Something that went wrong at a server, or on the way to it.
pub(crate) fn server(py: Python<'_>, message: &str) -> PyErr {
    plain(py, "ServerError", message)
}

/// A server that does not start.
pub(crate) fn serve(py: Python<'_>, error: &ServeError) -> PyErr {
    match error {
        ServeError::Insecure { address } => config(
            py,
            &format!(
                "other machines reach {address}, and without TLS whoever is on the way reads the data: give \
                 certificate and private_key, or set insecure=True"
            ),
        ),
        ServeError::Root { .. } | ServeError::Nowhere => config(py, &shown::with_sources(error)),
        error => server(py, &shown::with_sources(error)),
    }
}

/// An error of a source that is read or written without a feed.
pub(crate) fn source(py: Python<'_>, error: SourceError) -> PyErr {
    feed(py, &FeedError::from(error))
}

pub(crate) fn snapshot(py: Python<'_>, error: &SnapshotError) -> PyErr {
    plain(py, "SnapshotError", &shown::with_sources(error))
}

/// Receipts that cannot be read, written, merged or verified.
pub(crate) fn receipt(py: Python<'_>, error: &(dyn Error + 'static)) -> PyErr {
    plain(py, "ReceiptError", &shown::with_sources(error))
}

/// A text that is no receipt.
pub(crate) fn no_receipt(py: Python<'_>, message: &str) -> PyErr {
    plain(py, "ReceiptError", message)
}

pub(crate) fn device(py: Python<'_>, error: &DeviceError) -> PyErr {
    plain(py, "DeviceError", &shown::with_sources(error))
}

pub(crate) fn field(py: Python<'_>, error: &FieldError) -> PyErr {
    plain(py, "FieldError", &error.to_string())
}

/// A field that a batch does not have. It is a `KeyError` as well, because a batch is a mapping.
pub(crate) fn unknown_field(py: Python<'_>, error: &FieldError) -> PyErr {
    plain(py, "UnknownFieldError", &error.to_string())
}

/// An error of a net's file.
pub(crate) fn net(py: Python<'_>, error: &FeedError, path: &Path) -> PyErr {
    let (message, reason) = (shown::with_sources(error), reason_of(error));
    let reason = reason.strip_prefix(&format!("{}: ", shown::path(path))).unwrap_or(&reason);
    let place = Place { file: error.file().or(Some(path)), key: error.key(), record: error.record() };
    exception(py, class_of(error), &message, reason, &place)
}

/// An error of a step that was asked for, and is not a run that resumes.
pub(crate) fn step(error: FeedError) -> FeedError {
    match error {
        FeedError::Snapshot(SnapshotError::Order(error)) => error.into(),
        error => error,
    }
}

/// Options that contradict each other.
pub(crate) fn config(py: Python<'_>, message: &str) -> PyErr {
    plain(py, "ConfigError", message)
}

/// Something that was closed, or ended.
pub(crate) fn closed(py: Python<'_>, message: &str) -> PyErr {
    plain(py, "ClosedError", message)
}

/// An iterator that two threads use at once.
pub(crate) fn in_use(py: Python<'_>) -> PyErr {
    let message = "the iterator is in use by another thread: batches come in one order, so let one thread \
                   take them, or give each device of the feed a thread of its own with feed.take_lanes()";
    plain(py, "FeedError", message)
}

/// A function of Python that waits for batches which a function of the same object would have to make.
pub(crate) fn waits_for_itself(py: Python<'_>) -> PyErr {
    let message = "this feed's decode would wait for itself: it is called within a decode of the same \
                   object, and the calls of one object take turns. Give the two feeds functions of \
                   different objects, or set decode_overlaps=True if their calls may overlap";
    plain(py, "FeedError", message)
}

/// Something that a forked child inherited.
pub(crate) fn forked(py: Python<'_>, maker: u32) -> PyErr {
    let message = format!(
        "this was made by process {maker}, and process {} is a fork of it: a fork has none of a feed's \
         threads, and no files of its own. Make it in the process that uses it, or start processes with \
         multiprocessing.set_start_method(\"spawn\"); no worker processes are needed, because a feed \
         decodes on threads of its own",
        std::process::id()
    );
    plain(py, "ForkError", &message)
}

/// A value that is none of those allowed. Called with the interpreter.
pub(crate) fn value(message: String) -> PyErr {
    Python::attach(|py| config(py, &message))
}
