//! What the user sees: progress while the feed runs, and a table at the end.

use std::fmt;
use std::io::{self, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressState, ProgressStyle};
use percolator::Stats;
use percolator_measure::limits;

/// A progress bar, with an end if `length` is known. It writes to the standard error, and nowhere if that is
/// not a terminal.
pub(crate) fn progress(length: Option<u64>, things: &str) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => {
            (ProgressBar::new(length), "{bar:40} {human_pos} of {human_len} {prefix}, {rate} {msg}")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {elapsed} {human_pos} {prefix}, {rate} {msg}"),
    };
    let style = ProgressStyle::with_template(template).expect("both templates are well-formed").with_key(
        "rate",
        |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A line that cannot be drawn is not worth an error.
            let _ = write!(out, "{:.0}/s", state.per_sec());
        },
    );
    bar.with_style(style).with_prefix(things.to_owned()).with_finish(ProgressFinish::AndLeave)
}

/// Prints a line. A closed output is an error here; `println!` would panic.
pub(crate) fn say(line: fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Prints how much each side did, who waited for whom, and how near that is to the machine's limits.
pub(crate) fn print_table(stats: &Stats) -> io::Result<()> {
    let copy = limits::copy_bytes_per_second(1, Duration::from_millis(200));
    say(format_args!("\n{stats}"))?;
    if copy <= 0.0 {
        return say(format_args!("too little memory is left to measure how fast it is copied here"));
    }
    say(format_args!(
        "written at {:.2} % of the rate at which one thread copies memory here ({:.1} GB/s)",
        100.0 * stats.pixel_bytes_per_second() / copy,
        copy / 1e9
    ))
}
