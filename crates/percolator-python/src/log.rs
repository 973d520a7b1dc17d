//! The library's warnings, for Python's module `logging`.
//!
//! A warning comes from any thread, with or without locks. If it were handed to Python there, that thread
//! would wait for the interpreter. So warnings wait in a short queue until a thread that has the interpreter
//! calls the feed: a consumer that waits for a batch does so several times a second.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// The most warnings that wait. More are dropped, the oldest first.
const QUEUE_MAX: usize = 256;

/// How long a thread waits for the queue, which is never locked for longer than it takes to move it.
const PATIENCE: Duration = Duration::from_secs(1);

static QUEUE: Mutex<VecDeque<(Level, String)>> = Mutex::new(VecDeque::new());

/// Collects warnings and errors, and nothing else.
struct Collector;

/// Listens from now on, unless the process has a listener already.
pub(crate) fn listen() {
    let _ = tracing::subscriber::set_global_default(Collector);
}

/// Hands what has come to `logging.getLogger("percolator")`.
pub(crate) fn hand_on(py: Python<'_>) -> PyResult<()> {
    let waiting = match QUEUE.try_lock() {
        Some(mut queue) if !queue.is_empty() => std::mem::take(&mut *queue),
        _ => return Ok(()),
    };
    let logger = py.import("logging")?.call_method1("getLogger", ("percolator",))?;
    for (level, message) in waiting {
        let method = if level == Level::ERROR { "error" } else { "warning" };
        logger.call_method1(method, ("%s", message))?;
    }
    Ok(())
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        // A fork may find it locked by a thread that it does not have: the warning is then lost.
        let Some(mut queue) = QUEUE.try_lock_for(PATIENCE) else { return };
        if queue.len() == QUEUE_MAX {
            queue.pop_front();
        }
        queue.push_back((*event.metadata().level(), text.message + &text.fields));
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

/// An event as a line: the message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
