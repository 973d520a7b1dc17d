//! The exit codes: 0 if all is well, 1 if the command checked and found something wrong, and 2 if it could
//! not check, or was called wrongly, which is clap's code as well. A signal has its own (`stop`).

use std::process::ExitCode;

/// The code of a command that has looked.
pub(crate) fn found(is_well: bool) -> ExitCode {
    if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// The code of a command that could not do all that it was asked. What it found meanwhile does not change it.
pub(crate) fn failed() -> ExitCode {
    ExitCode::from(2)
}
