//! The command: arguments in, exit code out.
//!
//! ```text
//! commands   the subcommands
//! args       arguments that several of them share
//! run        how a run goes on and ends
//! terminal   what is said to people and programs
//! output     the files that are written, and what they may replace
//! ```

mod args;
mod commands;
mod output;
mod run;
mod terminal;

use std::process::ExitCode;

use percolator_files::caller::{self, Caller};

use crate::commands::Cli;
use crate::run::{exit, stop};
use crate::terminal::out;
use crate::terminal::progress::Stopped;

fn main() -> ExitCode {
    caller::is(Caller::Command);
    stop::survive_limits_of_files();
    match Cli::of_process().run() {
        Ok(code) => code,
        Err(error) => match error.downcast_ref() {
            Some(Stopped(code)) => *code,
            None => {
                out::tell(&format!("{error:#}"));
                exit::failed()
            }
        },
    }
}
