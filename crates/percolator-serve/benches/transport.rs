//! What it costs to move batches from a server to its clients, beside pyarrow's own server and client.
//!
//! ```text
//! cargo bench -p percolator-serve --bench transport -- [--seconds S] [--rounds N] [--only NAME]...
//! ```
//!
//! Batches of 33.7 MB (224 images of 3x224x224 bytes, and their labels) go over this machine's loopback, for
//! S seconds after the first ones. Each server and each client is a process: this program again, or Python
//! with pyarrow. All ways take turns, N times. The clients take a batch, look at both ends of it, and drop
//! it. Processor time is that of a whole process, as the kernel counts it.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Read as _, stdin};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::feed::FeedSpec;
use percolator::proto::Datum;
use percolator::{Dtype, Feed, FeedBuilder};
use percolator_serve::{Client, FeedRequest, Server, Share};
use prost::Message as _;
use tempfile::TempDir;

/// The database, below the server's folder.
const DATABASE: &str = "lmdb";
const RECORDS: u64 = 448;
/// A batch, and how many come before the measurement. As in transport.py.
const ROWS: usize = 224;
const PIXELS: usize = 3 * 224 * 224;
const WARM_UP: usize = 8;

/// What the kernel counts processor time in: its USER_HZ, which is 100 wherever this runs.
const TICKS_PER_SECOND: f64 = 100.0;

/// A way from a server to clients.
struct Way {
    name: &'static str,
    server: Serving,
    client: Taking,
    clients: usize,
    /// The server and the client, in the table.
    shown: [&'static str; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Serving {
    /// The feed is in the client's process: what the machine can do.
    Nobody,
    Percolator(Place),
    Pyarrow,
}

/// Where Percolator's client finds Percolator's server.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Tcp,
    Unix,
    Shared,
}

#[derive(Clone, Copy, PartialEq)]
enum Taking {
    Percolator,
    Pyarrow,
}

const TCP: Serving = Serving::Percolator(Place::Tcp);
const UNIX: Serving = Serving::Percolator(Place::Unix);
const SHARED: Serving = Serving::Percolator(Place::Shared);

const WAYS: [Way; 8] = [
    way("tcp", TCP, Taking::Percolator, 1, ["Percolator", "Percolator, TCP"]),
    way("unix", UNIX, Taking::Percolator, 1, ["Percolator", "Percolator, Unix socket"]),
    way("shared", SHARED, Taking::Percolator, 1, ["Percolator", "Percolator, the server's memory"]),
    way("pyarrow", TCP, Taking::Pyarrow, 1, ["Percolator", "pyarrow, TCP"]),
    way("all-pyarrow", Serving::Pyarrow, Taking::Pyarrow, 1, ["pyarrow, ready batches", "pyarrow, TCP"]),
    way("local", Serving::Nobody, Taking::Percolator, 1, ["none", "a local feed"]),
    way("tcp-8", TCP, Taking::Percolator, 8, ["Percolator", "8 of Percolator in step, TCP"]),
    way("shared-8", SHARED, Taking::Percolator, 8, ["Percolator", "8 of Percolator, the server's memory"]),
];

const fn way(
    name: &'static str,
    server: Serving,
    client: Taking,
    clients: usize,
    shown: [&'static str; 2],
) -> Way {
    Way { name, server, client, clients, shown }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    match words[..] {
        ["serve", root, socket] => serve(root, socket),
        ["take", url, request, seconds] => take(url, request, seconds.parse()?),
        ["local", root, seconds] => take_locally(root, seconds.parse()?),
        _ => Bench::new(Options::parse(&words)?)?.run(),
    }
}

// The processes.

fn serve(root: &str, socket: &str) -> anyhow::Result<()> {
    let server = Server::builder(root).listen(([127, 0, 0, 1], 0).into()).listen_unix(socket).start()?;
    println!("{}", server.addresses()[0]);
    wait_for_end()
}

fn take(url: &str, request: &str, seconds: f64) -> anyhow::Result<()> {
    let client = Client::connect(url)?;
    let mut lane = client.open(&FeedRequest::parse(request.as_bytes())?)?.lane(0)?;
    let (bytes, took) = measured(seconds, || {
        let batch = lane.next().context("the feed has ended")??;
        Ok(looked_at(batch.get("data")?) + batch.bytes("label")?.len())
    })?;
    // Others that are in step must not wait for it.
    drop(lane);
    println!("end {bytes} {took}");
    wait_for_end()
}

fn take_locally(root: &str, seconds: f64) -> anyhow::Result<()> {
    let mut feed = FeedBuilder::from(spec()).root(root).build()?;
    let mut lane = feed.take_lanes()?.swap_remove(0);
    let (bytes, took) = measured(seconds, || {
        let batch = lane.next().context("the feed has ended")??;
        Ok(looked_at(batch.pixels()?) + size_of_val(batch.labels()?))
    })?;
    drop(lane);
    println!("end {bytes} {took}");
    wait_for_end()
}

/// Takes batches for so long, and says when it begins to count their bytes; returns these, and how long it
/// took.
fn measured(seconds: f64, mut take: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<(usize, f64)> {
    for _ in 0..WARM_UP {
        take()?;
    }
    println!("begin");
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        bytes += take()?;
    }
    Ok((bytes, start.elapsed().as_secs_f64()))
}

/// The seconds that a copy of a GB takes when no cache has it: the least that a socket costs at either end.
fn copied() -> f64 {
    let batch = ROWS * PIXELS;
    let mut memory = vec![1_u8; 8 * batch];
    let start = Instant::now();
    for number in 0..64 {
        let (from, to) = (number % 4 * batch, (4 + number % 4) * batch);
        memory.copy_within(from..from + batch, to);
        black_box(&mut memory);
    }
    start.elapsed().as_secs_f64() / (64.0 * batch as f64 / 1e9)
}

fn looked_at(pixels: &[u8]) -> usize {
    black_box((pixels.first(), pixels.last()));
    pixels.len()
}

/// Waits until the benchmark has looked at this process.
fn wait_for_end() -> anyhow::Result<()> {
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A process that the benchmark has started, and ends.
struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("a process has no output")?;
        Ok(Process { child, out: BufReader::new(out) })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "a process has ended: it said why");
        Ok(line.trim_end().to_owned())
    }

    /// The processor time that it has taken, in seconds.
    fn processor_time(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name may have spaces. The fields that count are the 14th and the 15th of all.
        let (_, after_name) = stat.rsplit_once(')').context("the kernel says nothing of a process")?;
        let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// The benchmark.

struct Options {
    seconds: f64,
    rounds: usize,
    only: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut options = Options { seconds: 3.0, rounds: 3, only: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} has no value"))?;
            match *word {
                "--seconds" => options.seconds = value.parse().context("--seconds")?,
                "--rounds" => options.rounds = value.parse().context("--rounds")?,
                "--only" => options.only.push((*value).to_owned()),
                _ => bail!("there is no {word}: --seconds S, --rounds N and --only NAME are the options"),
            }
        }
        for name in &options.only {
            let names = WAYS.map(|way| way.name);
            ensure!(names.contains(&&**name), "there is no {name}: there are {}", names.join(", "));
        }
        Ok(options)
    }
}

/// A way, and what its rounds found.
struct Row {
    way: Way,
    rounds: Vec<Found>,
    has_failed: bool,
}

/// What a round found: the bytes that all clients took, how long that took, and the processor time.
struct Found {
    gigabytes: f64,
    seconds: f64,
    server: Option<f64>,
    clients: f64,
}

struct Bench {
    options: Options,
    folder: TempDir,
}

impl Bench {
    fn new(options: Options) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let bench = Bench { options, folder };
        write_lmdb(&bench.root().join(DATABASE)).context("cannot write the database")?;
        Ok(bench)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn run(&self) -> anyhow::Result<()> {
        let has_pyarrow = has_pyarrow();
        if !has_pyarrow {
            eprintln!("transport: python3 has no pyarrow, whose ways are left out");
        }
        let only = &self.options.only;
        let is_chosen = |way: &Way| only.is_empty() || only.iter().any(|name| name == way.name);
        let is_python = |way: &Way| way.server == Serving::Pyarrow || way.client == Taking::Pyarrow;
        let ways = WAYS.into_iter().filter(|way| is_chosen(way) && (has_pyarrow || !is_python(way)));
        let mut rows: Vec<_> = ways.map(|way| Row { way, rounds: Vec::new(), has_failed: false }).collect();
        let load = load()?;
        let mut copies = Vec::new();
        for _ in 0..self.options.rounds {
            copies.push(copied());
            for row in rows.iter_mut().filter(|row| !row.has_failed) {
                match self.round(&row.way) {
                    Ok(found) => row.rounds.push(found),
                    Err(error) => {
                        eprintln!("transport: {}: {error:#}", row.way.name);
                        row.has_failed = true;
                    }
                }
            }
        }
        let Options { seconds, rounds, .. } = self.options;
        println!("{rounds} rounds of {seconds} s each; load {load} before, {} after\n", self::load()?);
        println!("A copy from memory to memory takes {} s a GB.\n", cell(copies));
        print(&rows);
        Ok(())
    }

    fn round(&self, way: &Way) -> anyhow::Result<Found> {
        let (root, socket) = (text(&self.root())?, text(&self.folder.path().join("socket"))?);
        let mut server = match way.server {
            Serving::Nobody => None,
            Serving::Percolator(_) => Some(Process::start(own(&["serve", &root, &socket])?)?),
            Serving::Pyarrow => Some(Process::start(python(&["serve"]))?),
        };
        let address = server.as_mut().map(Process::line).transpose()?.unwrap_or_default();
        let url = match way.server {
            Serving::Percolator(Place::Unix) => format!("grpc+unix://{socket}"),
            Serving::Percolator(Place::Shared) => format!("shared://{socket}"),
            _ => format!("grpc://{address}"),
        };
        let share = Share::InStep { clients: NonZeroUsize::new(way.clients).context("nobody takes")? };
        let request = FeedRequest::feed(spec()).share(share).to_json()?;
        let seconds = self.options.seconds.to_string();
        let mut clients = Vec::new();
        for _ in 0..way.clients {
            clients.push(Process::start(match (way.server, way.client) {
                (Serving::Nobody, _) => own(&["local", &root, &seconds])?,
                (_, Taking::Percolator) => own(&["take", &url, &request, &seconds])?,
                (_, Taking::Pyarrow) => python(&["take", &url, &request, &seconds]),
            })?);
        }
        for client in &mut clients {
            let line = client.line()?;
            ensure!(line == "begin", "a client said {line:?}");
        }
        let before = processor_times(server.as_ref(), &clients)?;
        let (mut bytes, mut took) = (0.0, 0.0_f64);
        for client in &mut clients {
            let line = client.line()?;
            let numbers = line.strip_prefix("end ").and_then(|numbers| numbers.split_once(' '));
            let (its_bytes, its_time) = numbers.with_context(|| format!("a client said {line:?}"))?;
            bytes += its_bytes.parse::<f64>()?;
            took = took.max(its_time.parse()?);
        }
        let after = processor_times(server.as_ref(), &clients)?;
        Ok(Found {
            gigabytes: bytes / 1e9,
            seconds: took,
            server: before.0.zip(after.0).map(|(before, after)| after - before),
            clients: after.1 - before.1,
        })
    }
}

/// The processor time of the server, and of all clients together.
fn processor_times(server: Option<&Process>, clients: &[Process]) -> anyhow::Result<(Option<f64>, f64)> {
    let server = server.map(Process::processor_time).transpose()?;
    Ok((server, clients.iter().map(Process::processor_time).sum::<anyhow::Result<f64>>()?))
}

/// This program in another role.
fn own(words: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words);
    Ok(command)
}

/// pyarrow in a role. Without these settings, each batch of more than 32 MiB costs it memory that is new.
fn python(words: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/transport.py")).args(words);
    command.env("MALLOC_MMAP_THRESHOLD_", "1073741824").env("MALLOC_TRIM_THRESHOLD_", "8589934592");
    command
}

fn has_pyarrow() -> bool {
    let mut command = Command::new("python3");
    command.args(["-c", "import numpy, pyarrow.flight"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(path.to_str().context("the path of the temporary folder is not UTF-8")?.to_owned())
}

/// How many processes have wanted a processor, in the last minute.
fn load() -> anyhow::Result<String> {
    let said = fs::read_to_string("/proc/loadavg")?;
    Ok(said.split(' ').next().unwrap_or_default().to_owned())
}

fn print(rows: &[Row]) {
    println!("| server | client | GB/s | CPU s a GB, server | CPU s a GB, client |");
    println!("|---|---|---|---|---|");
    for Row { way, rounds, .. } in rows {
        let each = |figure: &dyn Fn(&Found) -> Option<f64>| cell(rounds.iter().filter_map(figure).collect());
        let rate = each(&|found| Some(found.gigabytes / found.seconds));
        let server = each(&|found| Some(found.server? / found.gigabytes));
        let clients = each(&|found| Some(found.clients / found.gigabytes));
        println!("| {} | {} | {rate} | {server} | {clients} |", way.shown[0], way.shown[1]);
    }
    // Of a feed that clients share, each byte goes to all of them.
    let of_feed = |name: &str| {
        let row = rows.iter().find(|row| row.way.name == name)?;
        let each = row.rounds.iter().filter_map(|found| Some(found.server? / found.gigabytes));
        Some(median(each.collect())? * f64::from(u32::try_from(row.way.clients).ok()?))
    };
    for (one, all) in [("tcp", "tcp-8"), ("shared", "shared-8")] {
        if let (Some(of_one), Some(of_all)) = (of_feed(one), of_feed(all)) {
            let ratio = of_all / of_one;
            println!(
                "\n{all}: for a GB of the feed, the server takes {ratio:.2} times the time that {one} takes"
            );
        }
    }
}

/// The median, and the least and the most.
fn cell(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    match (values.first().copied(), values.last().copied(), median(values)) {
        (Some(least), Some(most), Some(median)) => format!("{median:.3} [{least:.3}..{most:.3}]"),
        _ => String::new(),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*lower, *upper))
}

// The data.

/// A feed without an end, of whole images as bytes.
fn spec() -> FeedSpec {
    Feed::builder().lmdb(DATABASE).batch_size(ROWS).dtype(Dtype::U8).spec().clone()
}

fn write_lmdb(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let mut environment = Environment::new();
    environment.set_map_size(1 << 30).set_flags(EnvironmentFlags::NO_SYNC);
    let environment = environment.open(folder)?;
    let database = environment.open_db(None)?;
    let mut transaction = environment.begin_rw_txn()?;
    for number in 0..RECORDS {
        let datum = Datum {
            channels: Some(3),
            height: Some(224),
            width: Some(224),
            data: Some(pixels(number)),
            label: Some(i32::try_from(number)? % 10),
            ..Datum::default()
        };
        transaction.put(database, &format!("{number:08}"), &datum.encode_to_vec(), WriteFlags::empty())?;
    }
    transaction.commit()?;
    Ok(())
}

/// Bytes of a generator of random numbers (Knuth's MMIX).
fn pixels(number: u64) -> Vec<u8> {
    let mut state = number;
    let words = (0..PIXELS / 8).flat_map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    });
    words.collect()
}
