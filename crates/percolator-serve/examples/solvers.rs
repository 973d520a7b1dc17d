//! Trainings that share a database over sockets. Each ends with the numbers of its local run, bit for bit.
//!
//! ```text
//! cargo run -p percolator-serve --example solvers
//! ```
//!
//! A server has a database of digits, and five clients train on it, each with a connection of its own:
//!
//! ```text
//! solver 0   one Caffe net, trained as Caffe does on two GPUs: each solver has half of the records,
//! solver 1   by a queue of its own, and both take the step of both gradients
//! whole      a model of whole images, in batches of 32
//! windows    a model of random windows of 6x6, in batches of 24
//! late       comes when `whole` has trained for a while, begins with its checkpoint, which is the model
//!            and a ticket, and goes on in step with it, in smaller steps
//! ```
//!
//! The solvers divide the records of one feed, `whole` and `late` each get all batches of another, and
//! `windows` has a third: five clients, and three readers.

#[allow(dead_code, reason = "nothing is classified here")]
#[path = "../../../examples/lmdb_feed/classifier.rs"]
mod classifier;
#[allow(dead_code, reason = "only the digits to learn from are used")]
#[path = "../../../examples/lmdb_feed/digits.rs"]
mod digits;

use std::error::Error;
use std::io::{Write as _, stdout};
use std::iter::zip;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context as _, ensure};
use percolator::feed::FeedSpec;
use percolator::net::NetState;
use percolator::{Batch, Device, Feed, FeedBuilder, Lane, Net, Phase, Shuffle, Transform};
use percolator_serve::{Client, FeedRequest, RemoteBatch, Server, ServerStatus, Share};

use classifier::{Classifier, Gradient};
use digits::Digits;

/// The database, below the server's folder.
const DATABASE: &str = "digits_lmdb";

/// The net that two solvers train. Its data layer is what the server runs; the model is in this program.
const NET: &str = r#"
name: "Digits"
layer {
  name: "digits" type: "Data" top: "data" top: "label"
  transform_param { crop_size: 7 scale: 0.00390625 }
  data_param { source: "digits_lmdb" batch_size: 32 backend: LMDB }
}
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"#;
const NET_SIDE: usize = 7;
const SOLVERS: NonZeroUsize = NonZeroUsize::new(2).expect("it is not zero");
const ITERATIONS: usize = 200;

/// The other trainings: how often they see each record, and when `late` comes.
const EPOCHS: u64 = 6;
const LATE_AT: usize = 100;
const WHOLE_SIDE: usize = 8;
const WINDOW_SIDE: usize = 6;

/// The lengths of steps, as factors of the mean gradient.
const RATE: f32 = 1.0;
const SMALL_RATE: f32 = 0.25;

const NAMES: [&str; 5] = ["solver 0", "solver 1", "whole", "windows", "late"];

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let root = folder.path().join("data");
    std::fs::create_dir(&root)?;
    Digits::train()?.write_lmdb(&root.join(DATABASE)).context("cannot write the database")?;
    let socket = folder.path().join("socket");
    let server = Server::builder(&root).listen(([127, 0, 0, 1], 0).into()).listen_unix(&socket).start()?;
    let (served, status) = over_sockets(&server, &socket)?;
    drop(server);
    print_shared(&status)?;
    compare(&served, &at_home(&root)?)?;
    folder.close().context("cannot remove the temporary folder")
}

/// What the other trainings ask for; without a crop, images are whole.
fn shuffled(crop: u32, batch_size: usize) -> FeedSpec {
    let transform = Transform::new().crop(crop).scale(1.0 / 256.0);
    let feed = Feed::builder().lmdb(DATABASE).transform(transform).batch_size(batch_size);
    feed.epochs(EPOCHS).shuffle(Shuffle::Global).spec().clone()
}

// Over sockets.

/// Runs the five clients, and looks at the server while all of them are there.
fn over_sockets(server: &Server, socket: &Path) -> anyhow::Result<(Vec<Training>, ServerStatus)> {
    let socket = socket.to_str().context("the path of the temporary folder is not UTF-8")?;
    let unix = &format!("grpc+unix://{socket}");
    let tcp = &format!("grpc://{}", server.addresses()[0]);
    let mut places = Vec::new();
    let [here_0, here_1, here_2, here_3, here_4] = std::array::from_fn(|_| {
        let (here, place) = sync_channel(0);
        places.push(place);
        here
    });
    let [line_0, line_1] = lines();
    let (checkpoint, from_whole) = channel();
    thread::scope(|scope| {
        let clients = [
            scope.spawn(move || solver(unix, 0, &line_0, &here_0)),
            scope.spawn(move || solver(unix, 1, &line_1, &here_1)),
            scope.spawn(move || whole(tcp, &checkpoint, &here_2)),
            scope.spawn(move || windows(tcp, &here_3)),
            scope.spawn(move || late(tcp, &from_whole, &here_4)),
        ];
        // Unless one of them has failed, which is said below.
        let all_are_here = places.iter().all(|place| place.recv().is_ok());
        let status = server.status();
        drop(places);
        let trained = results(clients)?;
        ensure!(all_are_here && status.feeds.len() == 3, "they share {} feeds, not 3", status.feeds.len());
        Ok((trained, status))
    })
}

/// Waits, with a batch in hand, until all clients are here and the program has looked at the server: the
/// first send meets its receiver when the program counts this client, and the second ends when it lets go.
fn wait_for_all(here: &SyncSender<()>) {
    if here.send(()).is_ok() {
        let _ = here.send(());
    }
}

/// One of two solvers: its rank of the net's feed.
fn solver(url: &str, rank: usize, line: &Line, here: &SyncSender<()>) -> anyhow::Result<Training> {
    let request = FeedRequest::net(NET, Phase::Train).ranks(SOLVERS);
    let mut lane = Client::connect(url)?.open(&request)?.lane(rank)?;
    let first = lane.next();
    wait_for_all(here);
    solve(first.into_iter().chain(lane), line)
}

/// A training that others may join at any step: whoever does gets the same batches.
fn whole(url: &str, checkpoint: &Sender<Checkpoint>, here: &SyncSender<()>) -> anyhow::Result<Training> {
    let request = FeedRequest::feed(shuffled(0, 32)).share(Share::InStep { clients: NonZeroUsize::MIN });
    let mut lane = Client::connect(url)?.open(&request)?.lane(0)?;
    let mut training = Training::new(WHOLE_SIDE);
    training.learn(lane.by_ref().take(LATE_AT), RATE)?;
    // Until this batch is acknowledged, the server has it for whoever brings the ticket.
    let next = lane.next();
    checkpoint.send((training.model.weights().to_vec(), lane.ticket()))?;
    wait_for_all(here);
    training.learn(next.into_iter().chain(lane), RATE)?;
    Ok(training)
}

/// A training with a feed of its own.
fn windows(url: &str, here: &SyncSender<()>) -> anyhow::Result<Training> {
    let mut lane = Client::connect(url)?.open(&FeedRequest::feed(shuffled(6, 24)))?.lane(0)?;
    let first = lane.next();
    wait_for_all(here);
    let mut training = Training::new(WINDOW_SIDE);
    training.learn(first.into_iter().chain(lane), SMALL_RATE)?;
    Ok(training)
}

/// A training that goes on with another one's checkpoint, beside it.
fn late(url: &str, from: &Receiver<Checkpoint>, here: &SyncSender<()>) -> anyhow::Result<Training> {
    let (weights, ticket) = from.recv().context("there is no checkpoint")?;
    let mut lane = Client::connect(url)?.resume(&ticket)?;
    let first = lane.next();
    wait_for_all(here);
    let mut training = Training::of(weights);
    training.learn(first.into_iter().chain(lane), SMALL_RATE)?;
    Ok(training)
}

/// What a training leaves to go on from: its parameters, and the ticket of its next batch.
type Checkpoint = (Vec<f32>, String);

// The same without a server.

fn at_home(root: &Path) -> anyhow::Result<Vec<Training>> {
    let net = Net::from_text(NET)?;
    let feed = Feed::layers_of(&net, &NetState::from(Phase::Train))?.swap_remove(0);
    let mut feed = feed.root(root).devices((0..SOLVERS.get()).map(Device::host)).build()?;
    let lanes = feed.take_lanes()?;
    let mut trained = thread::scope(|scope| {
        let solvers = zip(lanes, lines()).map(|(lane, line)| scope.spawn(move || solve(lane, &line)));
        results(solvers.collect::<Vec<_>>())
    })?;

    let lane = |spec: FeedSpec| -> anyhow::Result<Lane> {
        Ok(FeedBuilder::from(spec).root(root).build()?.take_lanes()?.swap_remove(0))
    };
    let mut whole = Training::new(WHOLE_SIDE);
    let mut batches = lane(shuffled(0, 32))?;
    whole.learn(batches.by_ref().take(LATE_AT), RATE)?;
    let mut late = Training::of(whole.model.weights().to_vec());
    whole.learn(batches, RATE)?;
    let mut windows = Training::new(WINDOW_SIDE);
    windows.learn(lane(shuffled(6, 24))?, SMALL_RATE)?;
    late.learn(lane(shuffled(0, 32))?.skip(LATE_AT), SMALL_RATE)?;
    trained.extend([whole, windows, late]);
    Ok(trained)
}

// Learning, from batches of either kind.

/// A batch of digits: their pixels and labels.
trait Labelled {
    fn labelled(&self) -> anyhow::Result<(&[f32], &[i32])>;
}

impl Labelled for Batch {
    fn labelled(&self) -> anyhow::Result<(&[f32], &[i32])> {
        Ok((self.pixels()?, self.labels()?))
    }
}

impl Labelled for RemoteBatch {
    fn labelled(&self) -> anyhow::Result<(&[f32], &[i32])> {
        Ok((self.get("data")?, self.get("label")?))
    }
}

/// A model, and the loss of each of its steps.
struct Training {
    model: Classifier,
    losses: Vec<f32>,
}

impl Training {
    fn new(side: usize) -> Self {
        Training { model: Classifier::new(side * side), losses: Vec::new() }
    }

    /// Of whole images, with these parameters.
    fn of(weights: Vec<f32>) -> Self {
        Training { model: Classifier::with_weights(WHOLE_SIDE * WHOLE_SIDE, weights), losses: Vec::new() }
    }

    fn learn<B: Labelled, E: Error + Send + Sync + 'static>(
        &mut self,
        batches: impl Iterator<Item = Result<B, E>>,
        rate: f32,
    ) -> anyhow::Result<()> {
        for batch in batches {
            let gradient = self.gradient(&batch?)?;
            self.step(&gradient, rate);
        }
        Ok(())
    }

    fn gradient(&self, batch: &impl Labelled) -> anyhow::Result<Gradient> {
        let (images, labels) = batch.labelled()?;
        let mut gradient = Gradient::zero(&self.model);
        gradient.add(&self.model, images, labels);
        Ok(gradient)
    }

    fn step(&mut self, gradient: &Gradient, rate: f32) {
        self.model.descend(gradient, rate);
        self.losses.push(gradient.mean_loss());
    }
}

/// A solver's line to the other one.
struct Line {
    to: Sender<Arc<Gradient>>,
    from: Receiver<Arc<Gradient>>,
}

fn lines() -> [Line; 2] {
    let ((to_1, from_0), (to_0, from_1)) = (channel(), channel());
    [Line { to: to_1, from: from_1 }, Line { to: to_0, from: from_0 }]
}

/// What each of two solvers does. Both take the step of both batches, so their models stay the same.
fn solve<B: Labelled, E: Error + Send + Sync + 'static>(
    batches: impl Iterator<Item = Result<B, E>>,
    line: &Line,
) -> anyhow::Result<Training> {
    let mut training = Training::new(NET_SIDE);
    for batch in batches.take(ITERATIONS) {
        let mine = Arc::new(training.gradient(&batch?)?);
        line.to.send(mine.clone()).context("the other solver is gone")?;
        let others = line.from.recv().context("the other solver is gone")?;
        let sum = Gradient {
            slopes: zip(&mine.slopes, &others.slopes).map(|(one, other)| one + other).collect(),
            loss: mine.loss + others.loss,
            records: mine.records + others.records,
        };
        training.step(&sum, RATE);
    }
    Ok(training)
}

/// What all trainings end with, or every error.
fn results<'scope>(
    threads: impl IntoIterator<Item = ScopedJoinHandle<'scope, anyhow::Result<Training>>>,
) -> anyhow::Result<Vec<Training>> {
    let (mut trained, mut errors) = (Vec::new(), Vec::new());
    for (name, thread) in zip(NAMES, threads) {
        match thread.join().unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(training) => trained.push(training),
            Err(error) => errors.push(format!("{name}: {error:#}")),
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("; "));
    Ok(trained)
}

// What is printed.

fn print_shared(status: &ServerStatus) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{:7} {:12} {:27} clients", "feed", "database", "share")?;
    for feed in &status.feeds {
        let database = Path::new(&feed.source).file_name().unwrap_or_default().to_string_lossy();
        let share = serde_json::to_string(&feed.share)?;
        let clients = feed.clients.iter().map(|client| format!("rank {} at {}", client.rank, client.peer));
        let clients = clients.collect::<Vec<_>>().join(", ");
        writeln!(out, "{:7} {database:12} {share:27} {clients}", feed.name)?;
    }
    let clients: usize = status.feeds.iter().map(|feed| feed.clients.len()).sum();
    writeln!(out, "{clients} clients, and {} readers: one for each feed\n", status.feeds.len())?;
    Ok(())
}

/// Compares all that trainings end with, bit for bit.
fn compare(served: &[Training], local: &[Training]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    for (name, (served, local)) in zip(NAMES, zip(served, local)) {
        let is_same = served.losses == local.losses && served.model.weights() == local.model.weights();
        ensure!(is_same, "{name} has other numbers than its local run");
        let (Some(first), Some(last)) = (served.losses.first(), served.losses.last()) else { continue };
        let steps = served.losses.len();
        writeln!(out, "{name:8} {steps} steps, loss {first:.3} to {last:.3}, bit for bit as its local run")?;
    }
    Ok(())
}
