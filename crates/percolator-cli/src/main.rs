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
mod described;
mod devices;
mod digest;
mod doctor;
mod dump;
mod exit;
mod feed;
mod fields;
mod input;
mod inspect;
mod job;
mod leases;
mod log;
mod man;
mod mean;
mod metadata;
mod model;
mod npy;
mod observe;
mod out;
mod output;
mod pipeline;
mod plan;
mod prepare;
mod stop;
mod verify;
mod verify_run;
mod version;
mod watch;
mod watch_url;
mod wrap;

use std::process::ExitCode;

use percolator_files::caller::{self, Caller};

fn main() -> ExitCode {
    caller::is(Caller::Command);
    stop::survive_limits_of_files();
    match command::Cli::of_process().run() {
        Ok(code) => code,
        Err(error) => match error.downcast_ref() {
            Some(watch::Stopped(code)) => *code,
            None => {
                out::tell(&format!("{error:#}"));
                exit::failed()
            }
        },
    }
}
