//! How many leases a minute are dealt: blocks that are taken and finished. In one etcd and in a folder, by 1,
//! 8 and 32 workers, which are threads with a connection each. Beside it, in the same run: how many bare puts
//! a minute the same etcd and folder take from as many clients; and what a lease asks for.
//!
//! `cargo bench -p percolator-cluster --bench leases -- [FOLDER] [SECONDS] [ROUNDS]`. The folder says where
//! etcd's data and the records are: the default is that of temporary files.

#![allow(clippy::unwrap_used, reason = "a bench that cannot continue has failed")]

#[macro_use]
#[path = "../tests/metadata/passes_on.rs"]
mod passes_on;
#[allow(dead_code, reason = "it is shared with tests, which use the rest")]
#[path = "../tests/etcd/server.rs"]
mod server;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use percolator::source::FnSource;
use percolator::{Feed, FeedBuilder, LastBatch, RawBytes};
use percolator_cluster::leases::Leases;
use percolator_cluster::metadata::{
    Change, FolderMetadata, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};

use crate::server::Etcd;

const WORKERS: [usize; 3] = [1, 8, 32];
/// A block is so small that a worker does nothing but lease. It takes the next one meanwhile, as with large
/// blocks.
const STEPS_PER_BLOCK: u64 = 8;
const BLOCKS: u64 = 100_000;
/// What comes before a measurement.
const WARM_UP: Duration = Duration::from_millis(500);

/// What was asked for.
#[derive(Debug, Default)]
struct Counts {
    leases: AtomicU64,
    reads: AtomicU64,
    /// Answers of etcd, which has long lists in pages.
    pages: AtomicU64,
    transactions: AtomicU64,
    refused: AtomicU64,
    bytes_read: AtomicU64,
    bytes_put: AtomicU64,
}

impl Counts {
    fn now(&self) -> [u64; 7] {
        let Counts { leases, reads, pages, transactions, refused, bytes_read, bytes_put } = self;
        [leases, reads, pages, transactions, refused, bytes_read, bytes_put]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// Records whose requests are counted.
#[derive(Debug)]
struct Counted {
    records: Arc<dyn Metadata>,
    counts: Arc<Counts>,
}

fn add(count: &AtomicU64, by: usize) {
    count.fetch_add(by as u64, Ordering::Relaxed);
}

impl Metadata for Counted {
    passes_on!(records: grant keep_alive revoke wait place);

    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        let found = self.records.read(prefix)?;
        add(&self.counts.reads, 1);
        // As `EtcdMetadata` does: 32 records, then 128, then 512.
        let records = found.records.len();
        add(&self.counts.pages, 1 + usize::from(records > 32) + usize::from(records > 160));
        let bytes: usize = found.records.iter().map(|record| record.key.len() + record.value.len()).sum();
        add(&self.counts.bytes_read, bytes);
        Ok(found)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let outcome = self.records.transact(transaction)?;
        add(&self.counts.transactions, 1);
        add(&self.counts.refused, usize::from(matches!(outcome, Outcome::Refused(_))));
        let bytes = transaction.changes().iter().map(|change| match change {
            Change::Put { key, value, .. } => key.len() + value.len(),
            Change::Remove { key } => key.len(),
        });
        add(&self.counts.bytes_put, bytes.sum());
        Ok(outcome)
    }
}

/// A feed of records of one byte, one a step.
fn feed() -> FeedBuilder {
    let source = FnSource::new("numbers", BLOCKS * STEPS_PER_BLOCK, |_, value| {
        value.push(0);
        Ok(())
    });
    let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).batch_size(1);
    feed.last_batch(LastBatch::Keep).epochs(1).threads(1)
}

/// What came of a measurement, a minute and a lease.
struct Measured {
    per_minute: f64,
    per_lease: [f64; 6],
}

/// Lets this many clients work for so long after the warm-up.
#[expect(clippy::cast_precision_loss, reason = "a bench")]
fn measure(
    clients: usize,
    time: Duration,
    counts: &Arc<Counts>,
    client: impl Fn(usize, &AtomicBool) + Sync,
) -> Measured {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..clients {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || client(number, stop));
        }
        while counts.now()[0] < clients as u64 {
            thread::yield_now();
        }
        thread::sleep(WARM_UP);
        let (start, before) = (Instant::now(), counts.now());
        thread::sleep(time);
        let (took, after) = (start.elapsed(), counts.now());
        stop.store(true, Ordering::Relaxed);
        let [leases, rest @ ..]: [f64; 7] =
            std::array::from_fn(|place| (after[place] - before[place]) as f64);
        Measured {
            per_minute: leases * 60.0 / took.as_secs_f64(),
            per_lease: rest.map(|count| count / leases),
        }
    })
}

/// Workers of a new job that lease blocks.
fn leases(
    workers: usize,
    time: Duration,
    job: &str,
    records: impl Fn() -> Arc<dyn Metadata> + Sync,
) -> Measured {
    let counts = Arc::new(Counts::default());
    measure(workers, time, &counts, |_, stop| {
        let counted = Counted { records: records(), counts: counts.clone() };
        let leases = Leases::of(Arc::new(counted), job).steps_per_block(STEPS_PER_BLOCK);
        let mut leased = leases.feed(feed()).unwrap();
        let mut finished = 0;
        while !stop.load(Ordering::Relaxed) {
            leased.next().expect("there are blocks enough").unwrap();
            let now = leased.stats().finished;
            counts.leases.fetch_add(now - finished, Ordering::Relaxed);
            finished = now;
        }
    })
}

/// Clients that put one small record after the other, each under a key of its own.
fn puts(clients: usize, time: Duration, records: impl Fn() -> Arc<dyn Metadata> + Sync) -> Measured {
    let counts = Arc::new(Counts::default());
    measure(clients, time, &counts, |number, stop| {
        let records = records();
        let put = Transaction::new().put(format!("/puts/{number}"), vec![b'x'; 100]);
        while !stop.load(Ordering::Relaxed) {
            records.transact(&put).unwrap();
            counts.leases.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn show(name: &str, workers: usize, puts: &[Measured], leases: &[Measured]) {
    let rate = |all: &[Measured]| median(all.iter().map(|one| one.per_minute));
    let (puts, rate) = (rate(puts), rate(leases));
    let per_lease = |place: usize| median(leases.iter().map(|one| one.per_lease[place]));
    let [reads, pages, transactions, refused, read, put] = std::array::from_fn(per_lease);
    println!(
        "| {name} | {workers} | {rate:.0} | {puts:.0} | {:.2} | {reads:.2} ({pages:.2}) | {transactions:.2} \
         | {refused:.2} | {read:.0} | {put:.0} |",
        rate / puts,
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    if let Some(folder) = arguments.next() {
        let _ = tempfile::env::override_temp_dir(Path::new(&folder));
    }
    let seconds: f64 = arguments.next().map_or(5.0, |text| text.parse().unwrap());
    let rounds: usize = arguments.next().map_or(3, |text| text.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    println!("{rounds} rounds of {seconds} s in {}", tempfile::env::temp_dir().display());
    let columns = [
        "where",
        "workers",
        "leases/min",
        "puts/min",
        "leases/puts",
        "reads (answers)",
        "transactions",
        "refused",
        "bytes read",
        "bytes put",
    ];
    println!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    let etcd = Etcd::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    for workers in WORKERS {
        let (mut of_etcd, mut of_folder) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for round in 0..rounds {
            let job = format!("{workers}-{round}");
            if let Some(etcd) = &etcd {
                let connect = || -> Arc<dyn Metadata> { Arc::new(etcd.records("/bench/")) };
                of_etcd.0.push(puts(workers, time, connect));
                of_etcd.1.push(leases(workers, time, &job, connect));
            }
            let open = || -> Arc<dyn Metadata> { Arc::new(FolderMetadata::open(folder.path()).unwrap()) };
            of_folder.0.push(puts(workers, time, open));
            of_folder.1.push(leases(workers, time, &job, open));
        }
        if etcd.is_some() {
            show("etcd", workers, &of_etcd.0, &of_etcd.1);
        }
        show("folder", workers, &of_folder.0, &of_folder.1);
    }
}
