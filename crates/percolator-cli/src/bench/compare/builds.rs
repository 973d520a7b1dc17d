//! Two builds of the command, measured in turns.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use percolator::Progress;
use percolator_files::shown;
use percolator_measure::compare::Results;
use rustix::process::{Pid, Signal};

use crate::watch::{Ended, watched};

/// A program that measures with the arguments of this command.
#[derive(Debug)]
pub(super) struct Build {
    /// As it was given, for messages, and where it is.
    name: PathBuf,
    program: PathBuf,
    pub(super) results: Results,
}

impl Build {
    pub(super) fn new(name: &Path) -> std::io::Result<Self> {
        // A name without a slash would be looked for on the PATH.
        let program = std::path::absolute(name)?;
        Ok(Build { name: name.to_owned(), program, results: Results::default() })
    }

    /// Measures one round.
    fn measure(&mut self, arguments: &[OsString], progress: &Progress) -> anyhow::Result<()> {
        let name = shown::path(&self.name).to_string();
        let mut command = Command::new(&self.program);
        command.args(["bench", "--json", "--rounds", "1"]).args(arguments);
        let output =
            output_of(command, progress).with_context(|| format!("{name}: cannot run the program"))?;
        // Its messages, even if nobody reads them; its progress bar is drawn on terminals alone.
        let _ = std::io::stderr().write_all(&output.stderr);
        ensure!(!progress.is_stopped(), "the comparison was told to end");
        ensure!(output.status.success(), "{name}: its bench has failed: {}", output.status);
        let text = String::from_utf8(output.stdout)
            .with_context(|| format!("{name}: what it printed is no result of percolator bench --json"))?;
        Ok(self.results.add(&text, &name)?)
    }
}

/// Runs a program without an input. If the progress is told to stop, so is the program.
fn output_of(mut command: Command, progress: &Progress) -> io::Result<Output> {
    /// How often it looks whether the program has ended, or should.
    const LOOK: Duration = Duration::from_millis(20);

    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let [out, err] = [out.map(OwnedFd::from), err.map(OwnedFd::from)].map(|end| {
            thread::Builder::new().spawn_scoped(scope, move || {
                let mut bytes = Vec::new();
                end.map_or(Ok(0), |end| File::from(end).read_to_end(&mut bytes)).map(|_| bytes)
            })
        });
        if out.is_err() || err.is_err() {
            // Nobody would read what it prints.
            child.kill()?;
            child.wait()?;
        }
        let (out, err) = (out?, err?);
        let mut is_told = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if progress.is_stopped() && !is_told {
                // What it has begun, it clears away.
                rustix::process::kill_process(Pid::from_child(&child), Signal::TERM)?;
                is_told = true;
            }
            thread::park_timeout(LOOK);
        };
        let panicked = |_| io::Error::other("a thread has panicked");
        let (stdout, stderr) = (out.join().map_err(panicked)??, err.join().map_err(panicked)??);
        Ok(Output { status, stdout, stderr })
    })
}

/// Measures the builds, as often as there are rounds. Whatever disturbs this machine disturbs all alike:
/// each round has every build, and the next one has them in the opposite order.
pub(super) fn measure(builds: &mut [&mut Build], rounds: u32, is_quiet: bool) -> anyhow::Result<Ended<()>> {
    // The program, and `bench`.
    let arguments = arguments(std::env::args_os().skip(2));
    let progress = Progress::new();
    progress.begin(rounds.into());
    let message = |progress: &Progress, _| format!("round {} of {}", progress.done(), progress.total());
    watched(is_quiet, &progress, message, || {
        for _round in 0..rounds {
            builds.iter_mut().try_for_each(|build| build.measure(&arguments, &progress))?;
            builds.reverse();
            progress.add_done(1);
        }
        Ok(())
    })
}

/// The arguments of this command without those that say what is compared, and how often and how it is said.
fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    /// Each with the number of its values.
    const LEFT_OUT: [(&str, usize); 3] = [("--compare", 2), ("--rounds", 1), ("--json", 0)];

    let mut all = all;
    let mut kept = Vec::new();
    while let Some(argument) = all.next() {
        if argument == "--" {
            kept.push(argument);
            kept.extend(all);
            break;
        }
        let text = argument.to_string_lossy();
        let (name, has_value) = text.split_once('=').map_or((&*text, false), |(name, _)| (name, true));
        match LEFT_OUT.into_iter().find(|(option, _)| *option == name) {
            Some((_, values)) => {
                for _ in usize::from(has_value)..values {
                    all.next();
                }
            }
            None => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builds_get_what_says_what_is_measured() {
        let of = |text: &str| {
            let kept = arguments(text.split(' ').map(OsString::from));
            kept.iter().map(|one| one.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("--compare a b --lmdb c"), "--lmdb c");
        assert_eq!(of("--lmdb c --rounds 7 --compare=a b"), "--lmdb c");
        assert_eq!(of("net --json --rounds=3 --compare a b --crop 2"), "net --crop 2");
        assert_eq!(of("--compare a b --json -- --json"), "-- --json");
    }
}
