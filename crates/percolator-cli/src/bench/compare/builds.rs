//! Two builds of the command, measured in turns.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use percolator::shown;

use super::results::Results;

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
    fn measure(&mut self, arguments: &[OsString]) -> anyhow::Result<()> {
        let name = shown::path(&self.name).to_string();
        let output = Command::new(&self.program)
            .args(["bench", "--json", "--rounds", "1"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{name}: cannot run the program"))?;
        // Its messages; its progress bar is drawn on terminals alone.
        std::io::stderr().write_all(&output.stderr).context("cannot write to standard error")?;
        ensure!(output.status.success(), "{name}: its bench has failed: {}", output.status);
        let text = String::from_utf8(output.stdout)
            .with_context(|| format!("{name}: what it printed is no result of percolator bench --json"))?;
        self.results.add(&text, &name)
    }
}

/// Measures the builds, as often as there are rounds. Whatever disturbs this machine disturbs all alike:
/// each round has every build, and the next one has them in the opposite order.
pub(super) fn measure(builds: &mut [&mut Build], rounds: u32) -> anyhow::Result<()> {
    // The program, and `bench`.
    let arguments = arguments(std::env::args_os().skip(2));
    let style = ProgressStyle::with_template("comparing {wide_bar} {pos}/{len} rounds, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(u64::from(rounds)).with_style(style);
    bar.tick();
    for _round in 0..rounds {
        builds.iter_mut().try_for_each(|build| build.measure(&arguments))?;
        builds.reverse();
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
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
