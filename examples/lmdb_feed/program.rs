//! How an example begins and ends as a program.

use std::io::{ErrorKind, IsTerminal as _};
use std::process::ExitCode;

/// The library says through `tracing` what a user should know, such as that a lane waits for data and why.
pub(crate) fn show_warnings() {
    let stderr = std::io::stderr;
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
}

/// Says what went wrong, if anything did.
pub(crate) fn end(name: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
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
