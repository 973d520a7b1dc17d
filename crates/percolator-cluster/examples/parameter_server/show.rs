//! The whole show on one machine: servers, trainers, and one of each that is killed in the middle.
//!
//! What it does to the others it does by signals alone. What it knows of them, their records say.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use percolator_cluster::leases::{Job, JobStatus, LeaseError};
use percolator_cluster::metadata::{Metadata, OPERATIONS_MAX, Transaction};
use rustix::process::{Pid, Signal, kill_process};

use crate::options::{JobOptions, ShowOptions};
use crate::report::{self, Report};
use crate::say;
use crate::shards::{Address, Shard};

pub(crate) const SHARDS: u32 = 3;
const TRAINERS: u32 = 2;
/// The shard whose server is killed.
const KILLED: u32 = 1;
const TTL: Duration = Duration::from_secs(2);
/// How long it is waited for any one thing.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Makes the command of a process with these arguments.
pub(crate) type Spawn<'a> = dyn Fn(&[String]) -> Command + 'a;

pub(crate) fn this_program(words: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "parameter_server".into()));
    command.args(words);
    command
}

/// A process in a role. It does not outlive this one.
pub(crate) struct Process {
    name: String,
    child: Child,
}

impl Process {
    pub(crate) fn start(spawn: &Spawn<'_>, role: &str, words: &[String]) -> anyhow::Result<Self> {
        let words = [&[role.to_owned(), "--end-with-input".to_owned()], words].concat();
        let child = spawn(&words).stdin(Stdio::piped()).spawn();
        Ok(Process { child: child.with_context(|| format!("cannot start a {role}"))?, name: role.to_owned() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once, by SIGKILL.
    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, by SIGTERM.
    pub(crate) fn ask_to_end(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw).context("a process has a number")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Whether it has ended, which must be well.
    fn has_ended(&mut self) -> anyhow::Result<bool> {
        let status = self.child.try_wait()?;
        let is_well = status.is_none_or(|status: ExitStatus| status.success());
        ensure!(is_well, "a {} has ended with {}", self.name, status.unwrap_or_default());
        Ok(status.is_some())
    }

    /// Waits until it ends well.
    pub(crate) fn wait(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while !self.has_ended()? {
            ensure!(start.elapsed() < LIMIT, "a {} does not end within {LIMIT:?}", self.name);
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        let _ = self.kill();
    }
}

struct Show<'a> {
    options: &'a ShowOptions,
    spawn: &'a Spawn<'a>,
    start: Instant,
    job: JobOptions,
    checkpoints: PathBuf,
    metadata: Arc<dyn Metadata>,
    /// By their shards.
    servers: Vec<Process>,
    trainers: Vec<Process>,
}

/// Plays it.
pub(crate) fn run(options: &ShowOptions, spawn: &Spawn<'_>) -> anyhow::Result<Report> {
    let own = tempfile::TempDir::new()?;
    let folder = options.folder.as_deref().unwrap_or(own.path());
    let (records, checkpoints) = (folder.join("records"), folder.join("checkpoints"));
    fs::create_dir_all(&checkpoints).with_context(|| format!("cannot make {}", checkpoints.display()))?;
    // Nothing of an earlier show is found under this name.
    let name = format!("digits-{}", uuid::Uuid::new_v4().simple());
    let job = JobOptions {
        etcd: options.etcd.clone(),
        etcd_prefix: format!("/parameter-server-show/{name}/"),
        folder: options.etcd.is_empty().then_some(records),
        name,
        shards: SHARDS,
        ttl: TTL,
    };
    let (start, metadata) = (Instant::now(), job.open()?);
    let (servers, trainers) = (Vec::new(), Vec::new());
    let mut show = Show { options, spawn, start, job, checkpoints, metadata, servers, trainers };
    let played = show.play();
    // Whatever came of it, nothing of it stays in an etcd that others use.
    let cleared = if options.etcd.is_empty() { Ok(()) } else { show.clear() };
    let report = played?;
    cleared?;
    Ok(report)
}

impl Show<'_> {
    fn play(&mut self) -> anyhow::Result<Report> {
        self.say(&format!("{SHARDS} servers, {TRAINERS} trainers; records in {}", self.metadata.place()))?;
        for number in 0..SHARDS {
            let server = self.start_server(number)?;
            self.servers.push(server);
        }
        for number in 0..SHARDS {
            self.wait_for_server(number, 0)?;
        }
        let at_first = self.accuracy()?;
        for number in 0..TRAINERS {
            self.start_trainer(number)?;
        }
        self.wait_for_blocks(1, 6)?;
        let (key, metadata) = (format!("/checkpoints/{}", self.shard(KILLED).id()), self.metadata.clone());
        self.look("a checkpoint is recorded", |_| Ok(metadata.read(&key)?.get(&key).map(|_| ())))?;
        let before = self.accuracy()?;

        let killed = self.wait_for_server(KILLED, 0)?;
        self.servers[usize::try_from(KILLED)?].kill()?;
        self.say(&format!("the server of shard {KILLED} is killed (process {})", killed.pid))?;
        // Somebody else has the port meanwhile, as on another machine: so the server comes back on another
        // one, and whoever still looks for it here gets no answer. If it cannot be had, it is taken.
        let taken = TcpListener::bind(killed.address);
        self.servers[usize::try_from(KILLED)?] = self.start_server(KILLED)?;
        let back = self.wait_for_server(KILLED, killed.pid)?;
        drop(taken);
        let (pid, address, updates) = (back.pid, back.address, back.updates);
        self.say(&format!("it is back: process {pid}, at {address}, with {updates} updates"))?;
        ensure!(killed.restored.is_none() && back.restored.is_some() && updates > 0, "it was not restored");
        ensure!(killed.address != address, "it is where it was");
        let restored = self.accuracy()?;
        // How much was learned by then depends on how fast the trainers are.
        ensure!(restored - at_first > (before - at_first) / 3.0, "the model is lost");

        self.wait_for_blocks(1, 2)?;
        self.replace_trainer()?;
        self.wait_for_blocks(1, 1)?;
        self.trainers.iter_mut().try_for_each(Process::wait)?;
        let report = Report::of(&self.metadata, &self.job)?;
        self.say("all blocks are done; the servers are asked to end, and write a last checkpoint each")?;
        self.servers.iter().try_for_each(Process::ask_to_end)?;
        self.servers.iter_mut().try_for_each(Process::wait)?;
        Ok(report)
    }

    /// Prints a line with the time since the beginning.
    fn say(&self, line: &str) -> anyhow::Result<()> {
        Ok(say(&format!("{:5.1} s  {line}", self.start.elapsed().as_secs_f64()))?)
    }

    fn shard(&self, number: u32) -> Shard {
        Shard { job: self.job.name.clone(), number, of: SHARDS }
    }

    fn start_server(&self, number: u32) -> anyhow::Result<Process> {
        let checkpoints = format!("--checkpoints={}", self.checkpoints.display());
        let own = [format!("--shard={number}"), checkpoints, "--checkpoint-every=0.05".to_owned()];
        Process::start(self.spawn, "server", &[&own, &self.job.words()[..]].concat())
    }

    fn start_trainer(&mut self, number: u32) -> anyhow::Result<()> {
        let own = [format!("--name={number}"), format!("--epochs={}", self.options.epochs)];
        let trainer = Process::start(self.spawn, "trainer", &[&own, &self.job.words()[..]].concat())?;
        self.trainers.push(trainer);
        Ok(())
    }

    /// Looks until something is there. No process may end meanwhile, but trainers that have no more to do.
    fn look<T>(
        &mut self,
        what: &str,
        mut find: impl FnMut(&Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = find(self)? {
                return Ok(found);
            }
            for server in &mut self.servers {
                if server.has_ended()? {
                    bail!("a server has ended");
                }
            }
            self.trainers.iter_mut().try_for_each(|trainer| trainer.has_ended().map(|_| ()))?;
            ensure!(start.elapsed() < LIMIT, "it does not come to this within {LIMIT:?}: {what}");
            thread::sleep(LOOK);
        }
    }

    /// Waits until a server is announced, another one than `before`.
    fn wait_for_server(&mut self, number: u32, before: u32) -> anyhow::Result<Address> {
        let shard = self.shard(number);
        self.look("a server is announced", |show| {
            Ok(shard.find(&*show.metadata)?.filter(|found| found.pid != before))
        })
    }

    fn accuracy(&self) -> anyhow::Result<f64> {
        let found = report::accuracy(&self.metadata, &self.job)?;
        self.say(&format!("accuracy {:.1} % on the test digits", 100.0 * found))?;
        Ok(found)
    }

    fn status(&self) -> anyhow::Result<Option<JobStatus>> {
        match Job::open(self.metadata.clone(), &self.job.name) {
            Err(LeaseError::NoJob { .. }) => Ok(None),
            job => Ok(Some(job?.status()?)),
        }
    }

    /// Waits until such a part of the blocks is done.
    fn wait_for_blocks(&mut self, part: u64, of: u64) -> anyhow::Result<()> {
        let (done, blocks) = self.look("blocks are done", |show| {
            let Some(status) = show.status()? else { return Ok(None) };
            let blocks = status.blocks().context("the job has an end")?;
            Ok((status.done * of >= blocks * part).then_some((status.done, blocks)))
        })?;
        self.say(&format!("{done} of {blocks} blocks are done"))
    }

    /// Kills a trainer that has a block, and lets another one join.
    fn replace_trainer(&mut self) -> anyhow::Result<()> {
        let (at, block) = self.look("a trainer has a block", |show| {
            let open = show.status()?.map(|status| status.open).unwrap_or_default();
            Ok(open.into_iter().find_map(|open| {
                let has = |pid| open.holders.iter().any(|holder| holder.pid == pid);
                let at = show.trainers.iter().position(|trainer| has(trainer.id()))?;
                Some((at, open.block))
            }))
        })?;
        let mut killed = self.trainers.remove(at);
        killed.kill()?;
        self.say(&format!("a trainer is killed (process {}), which has {block}", killed.id()))?;
        self.start_trainer(TRAINERS)
    }

    /// Removes the records of the show, which have a prefix of their own.
    fn clear(&mut self) -> anyhow::Result<()> {
        self.trainers.clear();
        self.servers.clear();
        loop {
            let records = self.metadata.read("")?.records;
            if records.is_empty() {
                return Ok(());
            }
            let some = records.iter().take(OPERATIONS_MAX);
            self.metadata.transact(&some.fold(Transaction::new(), |all, found| all.remove(&*found.key)))?;
        }
    }
}
