//! The command line: a role, and what it needs to know.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, value_parser};
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, FolderMetadata, Metadata};

/// A small model whose weights are spread over parameter servers, and trained by processes that come and go.
/// Without a role it runs all of them on this machine, kills a server and a trainer, and proves what was
/// trained on.
#[derive(Debug, Parser)]
#[command(name = "parameter_server", args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) show: ShowOptions,
    /// Ends when the standard input does: so when the process does that has started this one.
    #[arg(long, hide = true, global = true)]
    pub(crate) end_with_input: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Keep a shard of the weights until SIGTERM.
    Server(ServerOptions),
    /// Train until all blocks of the job are done.
    Trainer(TrainerOptions),
    /// Say how far a job is, how well its model reads, and whether each epoch had every record once.
    Report(JobOptions),
}

/// Where the records of a job are, and what all its processes must agree on.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobOptions {
    /// The endpoints of the etcd cluster that has the records.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', required_unless_present = "folder")]
    pub(crate) etcd: Vec<String>,
    /// The front of all keys in etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/parameter-server/")]
    pub(crate) etcd_prefix: String,
    /// The folder that has the records, if all processes run on this machine.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// The job's name.
    #[arg(long = "job", id = "job", value_name = "NAME", default_value = "digits")]
    pub(crate) name: String,
    /// How many shards the weights have, each with a server.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) shards: u32,
    /// How long what a process has stays its own after it was last heard of.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) ttl: Duration,
}

impl JobOptions {
    pub(crate) fn open(&self) -> anyhow::Result<Arc<dyn Metadata>> {
        Ok(match &self.folder {
            Some(folder) => Arc::new(FolderMetadata::open(folder)?),
            None => {
                let options = EtcdOptions::new(&self.etcd).prefix(&*self.etcd_prefix);
                Arc::new(EtcdMetadata::connect(&options)?)
            }
        })
    }

    /// The same, as words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let place = match &self.folder {
            Some(folder) => format!("--folder={}", folder.display()),
            None => format!("--etcd={}", self.etcd.join(",")),
        };
        let JobOptions { etcd_prefix, name, shards, ttl, .. } = self;
        let prefix = format!("--etcd-prefix={etcd_prefix}");
        let (job, ttl) = (format!("--job={name}"), format!("--ttl={}", ttl.as_secs_f64()));
        vec![place, prefix, job, format!("--shards={shards}"), ttl]
    }
}

/// A time from a millisecond to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match (0.001..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("it must be from 0.001 to 86400".to_owned()),
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ServerOptions {
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// Which shard it keeps, counted from 0.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) shard: u32,
    /// The folder of checkpoints, which must exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoints: PathBuf,
    /// How often a checkpoint is written.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) checkpoint_every: Duration,
    /// Where it listens; with port 0, at one that is free.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The IP address at which others find it [default: the one at which it listens].
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_ip: Option<IpAddr>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TrainerOptions {
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// The trainer's name [default: the host, the process and a random number].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How often the job goes over all digits.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,
    /// How long it rests before each gradient, which would take a larger model longer.
    #[arg(long, value_name = "SECONDS", default_value = "0.005", value_parser = seconds)]
    pub(crate) rest: Duration,
    /// How long a server, or the records, may be gone.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) patience: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ShowOptions {
    /// The endpoints of an etcd cluster that keeps the records [default: a folder does].
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// The folder of checkpoints, and of records without etcd [default: one that is removed afterwards].
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// How often the job goes over all digits.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,
}
