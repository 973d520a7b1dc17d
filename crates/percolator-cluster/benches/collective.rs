//! What a round of processes that agree through records costs: its time, and how often each process asks.
//!
//! `cargo bench -p percolator-cluster --bench collective -- [ENDPOINT] [ROUNDS]`. With an endpoint of etcd
//! the records are there; without one, or with `-`, they are in memory, and in a folder for temporary files.
//! Processes are threads with connections of their own.

#[macro_use]
#[path = "../tests/metadata/passes_on.rs"]
mod passes_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use percolator_cluster::collective::Group;
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{
    EtcdMetadata, FolderMetadata, LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Records,
    Revision, Transaction,
};
use percolator_distribute::Collective as _;

/// How often each is asked for.
#[derive(Debug, Default)]
struct Counts {
    transactions: AtomicU64,
    reads: AtomicU64,
    waits: AtomicU64,
}

/// Records that count what they are asked for.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn Metadata>,
    counts: Arc<Counts>,
}

impl Metadata for Counted {
    passes_on!(inner: grant keep_alive revoke place);

    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        self.counts.transactions.fetch_add(1, Ordering::Relaxed);
        self.inner.transact(transaction)
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.counts.waits.fetch_add(1, Ordering::Relaxed);
        self.inner.wait(prefix, revision, at_most)
    }
}

/// Measures rounds of so many processes and words, and prints a line.
fn measure(
    place: &str,
    size: usize,
    words: usize,
    rounds: u64,
    open: impl Fn() -> anyhow::Result<Box<dyn Metadata>>,
) -> anyhow::Result<()> {
    let counts = Arc::new(Counts::default());
    let mut threads = Vec::new();
    for rank in 0..size {
        let counted = Counted { inner: open()?, counts: counts.clone() };
        let (counts, group) = (counts.clone(), Group::of(Arc::new(counted), "bench"));
        threads.push(thread::spawn(move || -> anyhow::Result<_> {
            let end = group.join(rank, size)?;
            let mine = vec![rank as u64; words];
            end.all_gather(&mine)?;
            let load = || {
                [&counts.transactions, &counts.reads, &counts.waits]
                    .map(|count| count.load(Ordering::Relaxed))
            };
            let (start, before) = (Instant::now(), load());
            for _ in 0..rounds {
                end.all_gather(&mine)?;
            }
            let (took, after) = (start.elapsed(), load());
            Ok((took, before, after))
        }));
    }
    let mut first = None;
    for thread in threads {
        let found = thread.join().map_err(|_| anyhow::anyhow!("a thread has ended"))??;
        first.get_or_insert(found);
    }
    let Some((took, before, after)) = first else { return Ok(()) };
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let per = |count: u64| count as f64 / rounds as f64 / size as f64;
    let [transactions, reads, waits] = std::array::from_fn(|what| per(after[what] - before[what]));
    let ms = took.as_secs_f64() * 1e3 / f64::from(u32::try_from(rounds)?);
    println!(
        "{place:8} {size:2} processes, {words:6} words: {ms:7.2} ms a round; a process: {transactions:.1} \
         transactions, {reads:.1} reads, {waits:.1} waits"
    );
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let endpoint = arguments.next().filter(|endpoint| endpoint != "-");
    let rounds = arguments.next().map_or(Ok(200), |rounds| rounds.parse())?;
    for (size, words) in [(2, 5), (4, 5), (8, 5), (4, 700), (4, 12_500), (4, 100_000)] {
        let rounds = if words > 10_000 { rounds / 4 } else { rounds };
        if let Some(url) = &endpoint {
            let prefix = format!("/bench/{size}/{words}/");
            let options = EtcdOptions::new([url]).prefix(prefix);
            measure("etcd", size, words, rounds, || Ok(Box::new(EtcdMetadata::connect(&options)?)))?;
            continue;
        }
        let memory = MemoryMetadata::new();
        measure("memory", size, words, rounds, || Ok(Box::new(memory.clone())))?;
        let folder = tempfile::tempdir()?;
        measure("folder", size, words, rounds, || Ok(Box::new(FolderMetadata::open(&folder)?)))?;
    }
    Ok(())
}
