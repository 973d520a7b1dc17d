//! What the user sees: progress while the feed runs, and a table at the end.

use std::fmt;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressState, ProgressStyle};
use percolator::Stats;

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
    let copy = copied_per_second(Duration::from_millis(200));
    say(format_args!("\n{stats}"))?;
    say(format_args!(
        "written at {:.2} % of the rate at which one thread copies memory here ({:.1} GB/s)",
        100.0 * stats.pixel_bytes_per_second() / copy,
        copy / 1e9
    ))
}

/// The bytes that one thread copies in a second, between two pieces of memory that no cache holds.
/// (`percolator_measure::limits` has this and other limits.)
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
fn copied_per_second(time: Duration) -> f64 {
    const BYTES: usize = 64 << 20;

    let (from, mut to) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
    let (start, mut copied) = (Instant::now(), 0);
    while start.elapsed() < time {
        to.copy_from_slice(black_box(&from));
        copied += black_box(&to).len();
    }
    copied as f64 / start.elapsed().as_secs_f64()
}
