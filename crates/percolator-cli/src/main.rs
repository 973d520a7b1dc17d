//! The command: arguments in, exit code out.

mod args;
mod arrays;
mod bench;
mod checkpoints;
mod command;
mod completions;
mod consumer;
mod convert;
mod data_set;
mod devices;
mod digest;
mod doctor;
mod dump;
mod feed;
mod fields;
mod inspect;
mod job;
mod leases;
mod man;
mod mean;
mod measured;
mod metadata;
mod model;
mod npy;
mod out;
mod pipeline;
mod plan;
mod prepare;
mod said;
mod stop;
mod verify;
mod verify_run;
mod watch;

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use percolator::shown;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::debug_fn;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
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
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()),
        )
        .init();
    match command::Cli::parse().run() {
        Ok(code) => code,
        // The reader of the output has closed it, which is not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit code reports the failure even if nobody reads this.
            let _ = writeln!(std::io::stderr(), "percolator: {}", shown::message(&said::chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
