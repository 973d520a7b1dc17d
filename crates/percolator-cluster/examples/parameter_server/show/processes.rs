//! Processes in the roles of the show. None outlives it.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Makes the command of a process with these arguments.
pub(crate) type Spawn<'a> = dyn Fn(&[String]) -> Command + 'a;

/// How often a process is looked at that is to end.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
}

impl Process {
    pub(crate) fn start(spawn: &Spawn<'_>, name: String, mut words: Vec<String>) -> anyhow::Result<Self> {
        // Should the show itself be killed, they end as well.
        words.extend(["--end-with".to_owned(), std::process::id().to_string()]);
        let child = spawn(&words).stdin(Stdio::null()).spawn();
        let child = child.with_context(|| format!("could not start {name}"))?;
        Ok(Process { name, child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once, by SIGKILL.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("could not kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, by SIGTERM.
    pub(crate) fn ask_to_end(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has a number")?, Signal::TERM)
            .with_context(|| format!("could not end {}", self.name))
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it ends well.
    pub(crate) fn wait(&mut self, at_most: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                ensure!(status.success(), "{} has ended with {status}", self.name);
                return Ok(());
            }
            if start.elapsed() > at_most {
                bail!("{} does not end within {at_most:?}", self.name);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets this process be killed when the one that has started it ends.
#[cfg(target_os = "linux")]
pub(crate) fn end_with(parent: i32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    let is_there = rustix::process::getppid().is_some_and(|found| found.as_raw_nonzero().get() == parent);
    ensure!(is_there, "the process {parent} has ended, which has started this one");
    Ok(())
}

/// Elsewhere, nothing tells a process so.
#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with(_parent: i32) -> anyhow::Result<()> {
    Ok(())
}
