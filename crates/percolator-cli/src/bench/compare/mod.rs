//! `percolator bench --compare`: two results side by side, or two builds.

mod builds;
mod table;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use percolator_files::shown;
use percolator_measure::compare::{Comparison, Results, Verdict};

use self::builds::Build;
use self::table::table;
use super::Bench;
use crate::exit;
use crate::out::Out;
use crate::watch::Ended;

/// What is compared with another one.
#[derive(Debug)]
enum Side {
    Results(Results),
    Build(Build),
}

impl Side {
    /// A file that `bench --json` wrote, or a program.
    fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("{}: cannot open what to compare", shown::path(path));
        // Checked before it is opened: opening a pipe blocks until it is written to.
        let about = std::fs::metadata(path).with_context(cannot)?;
        let mut first = Vec::new();
        if about.is_file() {
            File::open(path).with_context(cannot)?.take(1).read_to_end(&mut first).with_context(cannot)?;
        }
        match &*first {
            b"{" => Ok(Side::Results(Results::load(path)?)),
            [_] if about.permissions().mode() & 0o111 != 0 => {
                Build::new(path).map(Side::Build).with_context(cannot)
            }
            _ => bail!(
                "{}: neither a result of percolator bench --json nor a program: give two of these",
                shown::path(path)
            ),
        }
    }

    fn results(&self) -> &Results {
        match self {
            Side::Results(results) => results,
            Side::Build(build) => &build.results,
        }
    }
}

impl Bench {
    /// Compares; the exit code is 1 if the new one is slower beyond the noise.
    pub(super) fn compare(&self, paths: [&Path; 2]) -> anyhow::Result<ExitCode> {
        let mut sides = paths.map(Side::open).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let mut builds: Vec<&mut Build> = sides
            .iter_mut()
            .filter_map(|side| match side {
                Side::Build(build) => Some(build),
                Side::Results(_) => None,
            })
            .collect();
        ensure!(
            builds.is_empty() != self.has_source(),
            match builds.is_empty() {
                true => "--compare of two results measures nothing: leave out what to measure",
                false =>
                    "--compare of a program needs what to measure: a net, --lmdb, --synthetic or another",
            }
        );
        let are_measured = !builds.is_empty();
        if are_measured && let Ended::Stopped(code) = builds::measure(&mut builds, self.rounds, self.quiet)? {
            return Ok(code);
        }
        let names = paths.map(|path| shown::path(path).to_string());
        let [old, new] = [sides[0].results(), sides[1].results()];
        let mut out = Out::new(std::io::stdout().lock());
        let mut is_well = true;
        let mut compared = 0;
        for one in old.jobs() {
            let Some(other) = new.partner(one) else { continue };
            let names = [&*names[0], &*names[1]];
            let Some(comparison) = Comparison::of(names, one, other) else { continue };
            compared += 1;
            if comparison.records_per_s.verdict == Verdict::Worse {
                is_well = false;
            }
            let text = if self.json { serde_json::to_string(&comparison)? } else { table(&comparison) };
            writeln!(out, "{text}")?;
        }
        out.finish()?;
        ensure!(compared > 0, "{} and {}: the two have no job in common", names[0], names[1]);
        for (results, others, name) in [(old, new, &names[0]), (new, old, &names[1])] {
            for one in results.jobs().iter().filter(|one| others.partner(one).is_none()) {
                // Both programs were told to measure it.
                if are_measured {
                    is_well = false;
                }
                let job = shown::message(&one.job);
                // Even if nobody reads this.
                let _ = writeln!(std::io::stderr(), "percolator: only {name} has the job {job}");
            }
        }
        Ok(exit::found(is_well))
    }
}
