//! The command line: a role, and what it needs to know.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, Parser, Subcommand, value_parser};

use crate::place::PlaceOptions;
use crate::shards::{SHARDS_MAX, Shard};

/// A small model whose weights are spread over parameter servers, and trained by processes that come and go.
/// Without a role it runs all of them on this machine, and kills one.
#[derive(Debug, Parser)]
#[command(name = "parameter_server", args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) all: AllOptions,
    /// Ends when this process does, which has started it.
    #[arg(long, value_name = "PID", hide = true, global = true)]
    pub(crate) end_with: Option<i32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Run all roles on this machine, kill a server, and prove what was trained on [the default].
    All(AllOptions),
    /// Keep a shard of the weights until SIGTERM.
    Server(ServerOptions),
    /// Train until all blocks of the job are done.
    Trainer(TrainerOptions),
    /// Ask whether a server answers.
    Probe(ProbeOptions),
    /// Say how far a job is, how well its model reads, and whether each epoch had every record once.
    Report(ReportOptions),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct JobOptions {
    /// The job's name.
    #[arg(long = "job", id = "job", value_name = "NAME", default_value = "digits")]
    pub(crate) name: String,
    /// How many shards the weights have, each with a server.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    pub(crate) shards: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LeaseOptions {
    /// How long what a process has stays its own after it was last heard of.
    #[arg(long = "ttl", id = "ttl", value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
}

impl LeaseOptions {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// A time from a millisecond to a day.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match (0.001..=86_400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("it must be from 0.001 to 86400".to_owned()),
    }
}

fn rate(text: &str) -> Result<f32, String> {
    let rate: f32 = text.parse().map_err(|error| format!("{error}"))?;
    match rate > 0.0 && rate <= 1.0 {
        true => Ok(rate),
        false => Err("it must be more than 0 and at most 1".to_owned()),
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ServerOptions {
    #[command(flatten)]
    pub(crate) place: PlaceOptions,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    #[command(flatten)]
    pub(crate) lease: LeaseOptions,
    /// Which shard it keeps, counted from 0.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) shard: u32,
    /// The folder of checkpoints, which must exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoints: PathBuf,
    /// How often a checkpoint is written.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub(crate) checkpoint_every: f64,
    /// Where it listens; with port 0, at one that is free.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The IP address at which others find it [default: the one at which it listens].
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_ip: Option<IpAddr>,
    /// How far a weight moves at once, at most.
    #[arg(long, value_name = "RATE", default_value_t = 0.025, value_parser = rate)]
    pub(crate) rate: f32,
    /// The seed of the first weights: the same for all servers.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl ServerOptions {
    pub(crate) fn shard(&self) -> anyhow::Result<Shard> {
        let (number, of) = (self.shard, self.job.shards);
        ensure!(number < of, "there are {of} shards, 0 to {}, and no shard {number}", of - 1);
        Ok(Shard { job: self.job.name.clone(), number, of })
    }

    pub(crate) fn every(&self) -> Duration {
        Duration::from_secs_f64(self.checkpoint_every)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TrainerOptions {
    #[command(flatten)]
    pub(crate) place: PlaceOptions,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    #[command(flatten)]
    pub(crate) lease: LeaseOptions,
    /// The trainer's name [default: the host, the process and a random number].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How often the job goes over all digits.
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,
    /// How many digits make a gradient.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) batch_size: usize,
    /// How many gradients make a block.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = value_parser!(u64).range(1..))]
    pub(crate) steps_per_block: u64,
    /// The seed of the order and the crops: the same for all trainers.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) training_seed: u64,
    /// How long a server, or the records, may be gone.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    patience: f64,
}

impl TrainerOptions {
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ProbeOptions {
    /// Where the server listens.
    pub(crate) address: SocketAddr,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    pub(crate) place: PlaceOptions,
    #[command(flatten)]
    pub(crate) job: JobOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct AllOptions {
    /// The endpoints of an etcd cluster that keeps the records [default: a folder does].
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// The folder of checkpoints, and of records without etcd [default: one that is removed afterwards].
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    #[arg(long, value_name = "N", default_value_t = 3, help = "How many servers run",
          value_parser = value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    pub(crate) servers: u32,
    #[arg(long, value_name = "N", default_value_t = 2, help = "How many trainers run",
          value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) trainers: u32,
    /// Kill a trainer as well, and let another one join.
    #[arg(long)]
    pub(crate) kill_trainer: bool,
    /// How often the job goes over all digits.
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,
    /// How long what a process has stays its own after it was last heard of.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) ttl: f64,
    /// How often a server writes a checkpoint.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    pub(crate) checkpoint_every: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["parameter_server"]).unwrap().role.is_none());
        for wrong in [
            &["--servers", "0"][..],
            &["server", "--shard", "0"],
            &["trainer", "--ttl", "0", "--folder", "x"],
            &["probe", "nowhere"],
            &["--epochs", "3", "trainer"],
        ] {
            let words = [&["parameter_server"], wrong].concat();
            assert!(Options::try_parse_from(&words).is_err(), "{words:?}");
        }
    }
}
