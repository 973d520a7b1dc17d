//! Learns to read digits in four processes, which agree over MPI, and ends with the same numbers as one
//! process with four lanes.
//!
//! ```text
//! cargo build --release -p percolator-collectives --features mpi --example distributed_train_mpi
//! mpirun -n 4 target/release/examples/distributed_train_mpi
//! ```

#[path = "../../../examples/lmdb_feed/classifier.rs"]
mod classifier;
#[path = "../../../examples/lmdb_feed/digits.rs"]
mod digits;
#[path = "../../percolator-cluster/examples/distributed_train/learn.rs"]
mod learn;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use percolator_collectives::mpi::collective;
use percolator_distribute::Collective;

use learn::PROCESSES;

/// How long a process waits for the others.
const TIMEOUT: Duration = Duration::from_secs(60);
const EPOCHS: u64 = 10;

fn main() -> ExitCode {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Serialized) else {
        eprintln!("distributed_train_mpi: MPI was initialized before");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    match process(&world) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("distributed_train_mpi, process {}: {error:#}", world.rank());
            // MPI_Finalize would wait for a process that hangs.
            world.abort(1)
        }
    }
}

fn process(world: &SimpleCommunicator) -> anyhow::Result<()> {
    let collective: Arc<dyn Collective> = Arc::new(collective(world, TIMEOUT)?);
    ensure!(collective.size() == PROCESSES, "start {PROCESSES} processes: mpirun -n {PROCESSES} ...");
    // Each has the digits, as each host would have the data set.
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    learn::write_data(folder.path())?;
    let begun = Instant::now();
    let learned = match learn::in_a_process(folder.path(), EPOCHS, &collective) {
        Ok(learned) => learned,
        Err(error) => {
            // The others cannot know what is wrong here.
            collective.resign(&format!("{error:#}"));
            return Err(error);
        }
    };
    let rank = collective.rank();
    // The others wait until this process has no more to say.
    drop(collective);
    if rank == 0 {
        let took = begun.elapsed();
        let alone = learn::in_one_process(folder.path(), EPOCHS)?;
        println!("{PROCESSES} processes agreed over MPI, in {took:.1?}");
        println!("{}", learn::compare(folder.path(), &learned, &alone)?);
    }
    Ok(())
}
