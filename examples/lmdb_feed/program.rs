//! The beginning and the end of an example program.

use std::io::{ErrorKind, IsTerminal as _};
use std::process::ExitCode;

/// Prints the library's warnings, which come through `tracing`: for example, that a lane waits for data and
/// why.
pub(crate) fn show_warnings() {
    let stderr = std::io::stderr;
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
}

/// Prints the error, if there is one.
pub(crate) fn end(name: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has closed it, and seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
