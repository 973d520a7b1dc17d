//! What the show needs: its processes, the records by which it watches them, and the test digits.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use percolator_cluster::leases::{Job, JobStatus, JobVerdict, LeaseError};
use percolator_cluster::metadata::{Metadata, OPERATIONS_MAX, Transaction};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::LIMIT;
use super::processes::{Process, Spawn};
use crate::address::{self, Address};
use crate::client::{Patience, Servers};
use crate::digits::Test;
use crate::options::AllOptions;
use crate::place::PlaceOptions;
use crate::report::{percent, say};
use crate::shards::Shard;

/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How many lines say how far the job is.
const LINES: u64 = 10;

pub(super) struct Stage<'a> {
    options: &'a AllOptions,
    spawn: &'a Spawn<'a>,
    start: Instant,
    job: String,
    place: PlaceOptions,
    checkpoints: PathBuf,
    metadata: Arc<dyn Metadata>,
    /// By their shards. One that was killed has its successor's process here.
    servers: Vec<Process>,
    trainers: Vec<Process>,
    /// How many trainers were started.
    trainers_started: u32,
    runtime: Runtime,
    clients: Servers,
    test: Test,
    lines_said: u64,
    /// Removed at the end, with all that is in it.
    _folder: Option<TempDir>,
}

impl<'a> Stage<'a> {
    pub(super) fn set(options: &'a AllOptions, spawn: &'a Spawn<'a>) -> anyhow::Result<Self> {
        let start = Instant::now();
        let (unique, own) = (uuid::Uuid::new_v4().simple().to_string(), TempDir::new()?);
        let folder = options.folder.clone().unwrap_or_else(|| own.path().to_owned());
        let (records, checkpoints) = (folder.join("records"), folder.join("checkpoints"));
        fs::create_dir_all(&checkpoints)
            .with_context(|| format!("cannot make the folder {}", checkpoints.display()))?;
        let place = PlaceOptions {
            etcd: options.etcd.clone(),
            etcd_prefix: format!("/parameter-server-show/{unique}/"),
            folder: options.etcd.is_empty().then_some(records),
        };
        let metadata = place.open()?;
        // Nothing of an earlier show is found under this name.
        let job = format!("digits-{}", &unique[..8]);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let clients = Servers::new(&metadata, &job, options.servers);
        let stage = Stage {
            options,
            spawn,
            start,
            job,
            place,
            checkpoints,
            metadata,
            servers: Vec::new(),
            trainers: Vec::new(),
            trainers_started: 0,
            runtime,
            clients,
            test: Test::new()?,
            lines_said: 0,
            _folder: options.folder.is_none().then_some(own),
        };
        let (servers, trainers, place) = (options.servers, options.trainers, stage.metadata.place());
        stage.say(&format!("{servers} servers, {trainers} trainers; records in {place}"))?;
        Ok(stage)
    }

    /// Prints a line with the time since the beginning.
    pub(super) fn say(&self, line: &str) -> anyhow::Result<()> {
        Ok(say(&format!("{:5.1} s  {line}", self.start.elapsed().as_secs_f64()))?)
    }

    fn shard(&self, number: u32) -> Shard {
        Shard { job: self.job.clone(), number, of: self.options.servers }
    }

    /// The words of a role's command line that all roles have.
    fn words(&self, role: &str) -> Vec<String> {
        let AllOptions { servers, ttl, .. } = self.options;
        let own = ["--job", &self.job, "--shards", &servers.to_string(), "--ttl", &ttl.to_string()];
        let own = own.map(str::to_owned);
        [vec![role.to_owned()], self.place.words(), own.to_vec()].concat()
    }

    pub(super) fn start_server(&mut self, number: u32) -> anyhow::Result<()> {
        let mut words = self.words("server");
        words.extend(["--shard".to_owned(), number.to_string()]);
        words.extend(["--checkpoints".to_owned(), self.checkpoints.to_string_lossy().into_owned()]);
        words.extend(["--checkpoint-every".to_owned(), self.options.checkpoint_every.to_string()]);
        let server = Process::start(self.spawn, format!("the server of shard {number}"), words)?;
        let at = usize::try_from(number)?;
        match self.servers.get_mut(at) {
            Some(killed) => *killed = server,
            None => self.servers.push(server),
        }
        Ok(())
    }

    pub(super) fn start_trainer(&mut self) -> anyhow::Result<()> {
        let number = self.trainers_started;
        self.trainers_started += 1;
        let mut words = self.words("trainer");
        words.extend(["--name".to_owned(), number.to_string()]);
        words.extend(["--epochs".to_owned(), self.options.epochs.to_string()]);
        let trainer = Process::start(self.spawn, format!("trainer {number}"), words)?;
        self.trainers.push(trainer);
        Ok(())
    }

    /// Looks again when records below `prefix` have changed, until something is there. No process may end
    /// meanwhile, but trainers that have no more to do.
    fn look<T>(
        &mut self,
        what: &str,
        prefix: &str,
        mut find: impl FnMut(&mut Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            let revision = self.metadata.read(prefix)?.revision;
            if let Some(found) = find(self)? {
                return Ok(found);
            }
            for server in &mut self.servers {
                if let Some(status) = server.ended()? {
                    bail!("{} has ended with {status}", server.name);
                }
            }
            for trainer in &mut self.trainers {
                if let Some(status) = trainer.ended()?.filter(|status| !status.success()) {
                    bail!("{} has ended with {status}", trainer.name);
                }
            }
            ensure!(start.elapsed() < LIMIT, "it does not come to this within {LIMIT:?}: {what}");
            self.metadata.wait(prefix, revision, LOOK)?;
        }
    }

    /// Waits until a server is announced, another one than `before`.
    pub(super) fn wait_for_server(
        &mut self,
        number: u32,
        before: Option<&Address>,
    ) -> anyhow::Result<Address> {
        let shard = self.shard(number);
        self.look("a server is announced", &shard.address_key(), |stage| {
            let found = address::find(&*stage.metadata, &shard)?;
            Ok(found.filter(|found| before.is_none_or(|before| found.pid != before.pid)))
        })
    }

    /// Waits until a shard has a checkpoint.
    pub(super) fn wait_for_checkpoint(&mut self, number: u32) -> anyhow::Result<()> {
        let key = format!("/checkpoints/{}", self.shard(number).id());
        self.look("a checkpoint is recorded", &key, |stage| {
            Ok(stage.metadata.read(&key)?.get(&key).map(|_| ()))
        })
    }

    /// Returns the share of the test digits that the weights read right, and the updates of each shard.
    pub(super) fn accuracy(&mut self) -> anyhow::Result<(f64, Vec<u64>)> {
        let patience = Patience { who: "the show", at_most: LIMIT };
        let (weights, updates) = self.runtime.block_on(self.clients.pull(patience))?;
        Ok((self.test.accuracy(&weights)?, updates))
    }

    /// Kills a server, by SIGKILL. Returns where it was.
    pub(super) fn kill_server(&mut self, number: u32) -> anyhow::Result<Address> {
        let address = address::find(&*self.metadata, &self.shard(number))?;
        let server = self.servers.get_mut(usize::try_from(number)?);
        server.context("the server was started")?.kill()?;
        address.context("it was announced, and its lease has not ended")
    }

    fn status(&self) -> anyhow::Result<Option<JobStatus>> {
        match Job::open(self.metadata.clone(), &self.job) {
            Err(LeaseError::NoJob { .. }) => Ok(None),
            job => Ok(Some(job?.status()?)),
        }
    }

    /// Waits until so great a share of the blocks is done, and says how it goes on.
    pub(super) fn wait_for_blocks(&mut self, share: f64) -> anyhow::Result<JobStatus> {
        let prefix = format!("/leases/{}/", self.job);
        loop {
            let lines = self.lines_said;
            let found = self.look("a tenth of the blocks is done", &prefix, |stage| {
                let Some(status) = stage.status()? else { return Ok(None) };
                let blocks = status.blocks().context("the job has an end")?;
                #[expect(clippy::cast_precision_loss, reason = "they are few")]
                let is_enough = status.done as f64 >= share * blocks as f64;
                let is_line = status.done * LINES / blocks.max(1) > lines;
                Ok((is_enough || is_line).then_some((is_enough, blocks, status)))
            });
            let (is_enough, blocks, status) = found?;
            let lines = status.done * LINES / blocks.max(1);
            if lines > self.lines_said && !status.is_done() {
                self.lines_said = lines;
                let (accuracy, _) = self.accuracy()?;
                self.say(&format!("{} of {blocks} blocks, accuracy {}", status.done, percent(accuracy)))?;
            }
            if is_enough {
                return Ok(status);
            }
        }
    }

    /// Kills a trainer that has a block, and lets another one join.
    pub(super) fn replace_trainer(&mut self) -> anyhow::Result<()> {
        let prefix = format!("/leases/{}/", self.job);
        let (at, block) = self.look("a trainer has a block", &prefix, |stage| {
            let open = stage.status()?.map(|status| status.open).unwrap_or_default();
            Ok(open.into_iter().find_map(|open| {
                let has = |pid| open.holders.iter().any(|holder| holder.pid == pid);
                let at = stage.trainers.iter().position(|trainer| has(trainer.id()))?;
                Some((at, open.block))
            }))
        })?;
        let mut killed = self.trainers.remove(at);
        killed.kill()?;
        self.say(&format!("{} is killed (process {}), which has {block}", killed.name, killed.id()))?;
        self.start_trainer()
    }

    /// Waits until all blocks are done, and all trainers have ended.
    pub(super) fn wait_for_end(&mut self) -> anyhow::Result<JobStatus> {
        let status = self.wait_for_blocks(1.0)?;
        self.trainers.iter_mut().try_for_each(|trainer| trainer.wait(LIMIT))?;
        Ok(status)
    }

    pub(super) fn verdict(&self) -> anyhow::Result<JobVerdict> {
        Ok(Job::open(self.metadata.clone(), &self.job)?.verdict(None)?)
    }

    /// Asks all servers to end, which write a last checkpoint each.
    pub(super) fn end_servers(&mut self) -> anyhow::Result<()> {
        self.servers.iter().try_for_each(Process::ask_to_end)?;
        self.servers.iter_mut().try_for_each(|server| server.wait(LIMIT))
    }

    /// Removes the records of the show, which have a prefix of their own.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        self.trainers.clear();
        self.servers.clear();
        while !self.options.etcd.is_empty() {
            let records = self.metadata.read("")?.records;
            let some = records.iter().take(OPERATIONS_MAX);
            if records.is_empty() {
                break;
            }
            self.metadata.transact(&some.fold(Transaction::new(), |all, found| all.remove(&*found.key)))?;
        }
        Ok(())
    }
}
