//! What is logged, and who else listens to the library: a trace, a profiler.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use percolator_files::shown;
use percolator_observe::{nvtx, trace::TraceFile};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// The most bytes that are kept while the terminal is drawn on. What comes later is not logged.
const HELD_BYTES_MAX: usize = 1 << 20;

/// What was logged while the terminal is drawn on; `None` while it is not.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Starts the logging. Without RUST_LOG, warnings and errors are logged, and the more of Percolator's own
/// packages, the more often `--verbose` is given.
pub(crate) fn init(verbose: u8, trace: Option<&TraceFile>, marks_ranges: bool) {
    // The names of all of them begin like this.
    let filter = match verbose {
        0 => "warn",
        1 => "warn,percolator=info",
        2 => "warn,percolator=debug",
        _ => "warn,percolator=trace",
    };
    let logged = tracing_subscriber::fmt::layer()
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal())
        // If standard error is closed, a failure to log must not be logged either: it would panic.
        .log_internal_errors(false)
        // Text from files is escaped so that no terminal interprets it.
        .fmt_fields(
            debug_fn(|writer, field, value| {
                let mut said = format!("{value:?}");
                if field.name() != "message" {
                    said.insert_str(0, &format!("{field}="));
                }
                write!(writer, "{}", shown::message(&said))
            })
            .delimited(" "),
        )
        .with_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| filter.into()));
    tracing_subscriber::registry()
        .with(logged)
        .with(trace.map(TraceFile::layer))
        .with(marks_ranges.then(nvtx::layer).flatten())
        .init();
}

/// Keeps what is logged until this is dropped, because the terminal is drawn on.
#[must_use = "it is logged when this is dropped"]
#[derive(Debug)]
pub(crate) struct Held;

pub(crate) fn hold() -> Held {
    held().get_or_insert_default();
    Held
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(text) = held().take() {
            let _ = io::stderr().write_all(&text);
        }
    }
}

fn held() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The standard error, unless it is held.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *held() {
            None => io::stderr().write(bytes),
            Some(text) => {
                let room = HELD_BYTES_MAX.saturating_sub(text.len());
                text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
