//! Worker processes, and what is done to them.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::account::{Told, check};
#[cfg(feature = "etcd")]
use crate::notes::{Entry, Notes};
use crate::process::child_command;
use crate::random::Random;
use crate::role::{JobOptions, Place, Role};

/// How long the processes may take until all have ended. None does, unless it is broken.
const LIMIT: Duration = Duration::from_secs(180);

/// The processes of a run. Those that are left are killed when it is dropped.
pub(crate) struct Workers {
    test: &'static str,
    folder: TempDir,
    place: Place,
    job: JobOptions,
    processes: Vec<Process>,
}

struct Process {
    child: Child,
    told: Told,
    /// It is stopped until then.
    is_stopped_until: Option<Instant>,
    /// How it ended.
    status: Option<ExitStatus>,
}

impl Process {
    fn signal(&self, signal: Signal) {
        // Nobody has waited for it yet, so its number is still its own.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Workers {
    /// No processes yet. Those to come run this test of this binary.
    pub(crate) fn new(test: &'static str, place: Place, job: JobOptions) -> Self {
        Workers { test, folder: tempfile::tempdir().unwrap(), place, job, processes: Vec::new() }
    }

    /// What one more is told, drawn.
    pub(crate) fn draw(&self, random: &mut Random) -> Role {
        let notes = self.folder.path().join(format!("worker-{}", self.processes.len()));
        let mut role = Role::draw(random, &self.place, notes, &self.job);
        let dead: Vec<_> = self.processes.iter().filter(|process| process.told.is_killed).collect();
        // As in a cluster that starts a process again under its name.
        if !dead.is_empty() && random.once_in(4) {
            let name = random.one_of(&dead).told.role.name.clone();
            let is_taken = |process: &Process| process.status.is_none() && process.told.role.name == name;
            if !self.processes.iter().any(is_taken) {
                role.name = name;
            }
        }
        role
    }

    fn log(notes: &Path) -> PathBuf {
        notes.with_extension("log")
    }

    pub(crate) fn start(&mut self, role: Role) {
        let log = File::create(Self::log(&role.notes)).unwrap();
        let mut command = child_command(self.test, &serde_json::to_string(&role).unwrap());
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let told = Told { role, is_killed: false };
        self.processes.push(Process { child, told, is_stopped_until: None, status: None });
    }

    /// Those that have not ended, as far as is known.
    pub(crate) fn living(&self) -> Vec<usize> {
        let is_living = |&number: &usize| self.processes[number].status.is_none();
        (0..self.processes.len()).filter(is_living).collect()
    }

    /// Kills one, whatever it does.
    pub(crate) fn kill(&mut self, number: usize) {
        let process = &mut self.processes[number];
        // If it had ended before, it was not killed.
        if let Some(status) = process.child.try_wait().unwrap() {
            process.status = Some(status);
            return;
        }
        process.signal(Signal::KILL);
        process.status = Some(process.child.wait().unwrap());
        // It may have ended by itself at the last moment.
        process.told.is_killed = process.status.and_then(|status| status.signal()) == Some(9);
    }

    /// Stops one for so long. What it has open stays open.
    pub(crate) fn stop(&mut self, number: usize, time: Duration) {
        let process = &mut self.processes[number];
        process.signal(Signal::STOP);
        process.is_stopped_until = Some(Instant::now() + time);
    }

    /// Lets those go on whose time is over, and looks who has ended.
    pub(crate) fn look(&mut self) {
        for process in self.processes.iter_mut().filter(|process| process.status.is_none()) {
            if process.is_stopped_until.is_some_and(|until| until <= Instant::now()) {
                process.is_stopped_until = None;
                process.signal(Signal::CONT);
            }
            process.status = process.child.try_wait().unwrap();
        }
    }

    /// Looks while this time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        const LOOK: Duration = Duration::from_millis(5);
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            self.look();
        }
    }

    /// Waits until all have ended. They end by themselves once all blocks are done or held by others.
    pub(crate) fn wait(&mut self) {
        let start = Instant::now();
        while !self.living().is_empty() {
            self.pass(Duration::from_millis(20));
            if start.elapsed() > LIMIT {
                let living: Vec<_> =
                    self.living().into_iter().map(|number| &self.processes[number].told.role).collect();
                let job = percolator_cluster::leases::Job::open(self.place.open(), crate::role::JOB);
                let status = job.and_then(|job| job.status());
                panic!("they do not end: {living:#?}\n{status:#?}");
            }
        }
    }

    /// How many steps were handed over so far, to all of them.
    #[cfg(feature = "etcd")]
    pub(crate) fn steps(&self) -> usize {
        let all = self.processes.iter().map(|process| Notes::read(&process.told.role.notes));
        all.flatten().filter(|entry| matches!(entry, Entry::Step { .. })).count()
    }

    /// Lets the job end, and checks the account.
    pub(crate) fn end(mut self, random: &mut Random) {
        self.wait();
        // Those that confirm by call do not wait for others, whose blocks may be left.
        let last = self.draw(random).stays();
        self.start(last);
        self.wait();
        let failed = self.processes.iter().filter(|process| {
            let is_success = process.status.is_some_and(|status| status.success());
            !is_success && !process.told.is_killed
        });
        let failed: Vec<_> = failed
            .map(|Process { status, told: Told { role, .. }, .. }| {
                let log = std::fs::read_to_string(Self::log(&role.notes)).unwrap();
                format!("{role:?}\n{status:?}\n{log}")
            })
            .collect();
        assert!(failed.is_empty(), "workers failed that nobody killed:\n{}", failed.join("\n"));
        let told: Vec<_> = self.processes.iter().map(|process| process.told.clone()).collect();
        check(&self.place.open(), &self.job, &told);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().filter(|process| process.status.is_none()) {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
