//! Learns to read digits in four processes, which agree through records in a folder or in etcd, and ends with
//! the same numbers as one process with four lanes.
//!
//! ```text
//! cargo run --release -p percolator-cluster --example distributed_train
//! cargo run --release -p percolator-cluster --example distributed_train -- --etcd http://127.0.0.1:2379
//! ```
//!
//! `learn.rs` is what each process does. This file starts the processes and lets them join their group. On a
//! cluster, the launcher starts them, and `Process::from_environment` knows which is which.

#[path = "../../../../examples/lmdb_feed/classifier.rs"]
mod classifier;
#[path = "../../../../examples/lmdb_feed/digits.rs"]
mod digits;
mod learn;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use percolator_cluster::collective::Group;
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, FolderMetadata, Metadata};
use percolator_distribute::Collective;

use learn::PROCESSES;

/// How long a process waits for the others.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Learns to read digits in four processes, and compares with one process.
#[derive(Debug, Parser)]
struct Options {
    /// Let the processes agree through this etcd [default: through a temporary folder].
    #[arg(long, value_name = "URL")]
    etcd: Option<String>,
    /// How often to learn from all digits.
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    /// Be this one of the processes, which the first one starts.
    #[arg(long, hide = true, requires = "folder")]
    rank: Option<usize>,
    /// The data of the job, and its records.
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match (options.rank, &options.folder) {
        (Some(rank), Some(folder)) => process(&options, rank, folder),
        _ => start(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let who = options.rank.map_or_else(String::new, |rank| format!(", process {rank}"));
            eprintln!("distributed_train{who}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Processes that are killed unless they have ended.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Writes the data, starts the processes, and waits for them.
fn start(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    learn::write_data(folder.path())?;
    let mut children = Children(Vec::new());
    for rank in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--rank").arg(rank.to_string()).arg("--folder").arg(folder.path());
        command.arg("--epochs").arg(options.epochs.to_string());
        if let Some(etcd) = &options.etcd {
            command.arg("--etcd").arg(etcd);
        }
        children.0.push(command.spawn().context("cannot start a process")?);
    }
    // Each of them ends: none waits longer for the others than it was told.
    let mut failed = 0;
    for child in &mut children.0 {
        failed += usize::from(!child.wait()?.success());
    }
    ensure!(failed == 0, "{failed} of {PROCESSES} processes failed");
    Ok(())
}

/// One of the processes.
fn process(options: &Options, rank: usize, folder: &Path) -> anyhow::Result<()> {
    let metadata: Arc<dyn Metadata> = match &options.etcd {
        Some(url) => Arc::new(EtcdMetadata::connect(&EtcdOptions::new([url]))?),
        None => Arc::new(FolderMetadata::open(folder.join("records"))?),
    };
    // Two such jobs may have one etcd: the folder's name is this one's own.
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("digits");
    let group = Group::of(metadata.clone(), name).timeout(TIMEOUT).join(rank, PROCESSES)?;
    let collective: Arc<dyn Collective> = Arc::new(group);
    let begun = Instant::now();
    let learned = match learn::in_a_process(folder, options.epochs, &collective) {
        Ok(learned) => learned,
        Err(error) => {
            // The others cannot know what is wrong here.
            collective.resign(&format!("{error:#}"));
            return Err(error);
        }
    };
    if rank == 0 {
        let took = begun.elapsed();
        let alone = learn::in_one_process(folder, options.epochs)?;
        println!("{PROCESSES} processes agreed through {}, in {took:.1?}", metadata.place());
        println!("{}", learn::compare(folder, &learned, &alone)?);
    }
    Ok(())
}
