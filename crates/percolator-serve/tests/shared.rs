//! Batches that do not travel: clients on the server's machine read them where they were written. They are
//! those of a local feed, bit for bit; what is held stays what it is; and whoever dies takes nothing along.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "common/data.rs"]
mod data;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../tests/common/process.rs"]
mod process;

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use percolator::FeedBuilder;
use percolator::feed::FeedSpec;
use percolator::record::StepEnd;
use percolator_serve::{
    Client, ClientError, ClientStatus, Code, FeedRequest, Method, RemoteBatch, RemoteLane, Server,
    ServerBuilder,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{child_command, hung_after, must_end, role, this_test};

/// A server, and the folder with its data, its socket and its key.
struct Served {
    server: Server,
    folder: TempDir,
}

impl Served {
    fn start(with: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let folder = written();
        Served { server: with(builder(folder.path())).start().unwrap(), folder }
    }

    fn clients(&self) -> Vec<ClientStatus> {
        self.server.status().feeds.into_iter().flat_map(|feed| feed.clients).collect()
    }

    /// The lane of a feed's first rank.
    fn lane(&self, request: &FeedRequest, window: usize) -> RemoteLane {
        lane(self.folder.path(), request, window)
    }
}

fn written() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    data::write(folder.path());
    folder
}

fn builder(folder: &Path) -> ServerBuilder {
    Server::builder(folder.join("root")).listen_unix(folder.join("socket")).key_file(folder.join("key"))
}

fn client(folder: &Path, scheme: &str, window: usize) -> Client {
    let url = format!("{scheme}://{}", folder.join("socket").to_str().unwrap());
    Client::builder(url).window(NonZeroUsize::new(window).unwrap()).connect().unwrap()
}

fn lane(folder: &Path, request: &FeedRequest, window: usize) -> RemoteLane {
    client(folder, "shared", window).open(request).unwrap().lane(0).unwrap()
}

/// Waits until it is so.
fn settles<T: PartialEq + Debug>(expected: &T, look: impl Fn() -> T) {
    let start = Instant::now();
    loop {
        let seen = look();
        if seen == *expected {
            return;
        }
        assert!(start.elapsed() < hung_after(), "{seen:?}, and not {expected:?}");
        thread::yield_now();
    }
}

fn merged(mut value: Value, more: Value) -> Value {
    for (key, more) in more.as_object().unwrap() {
        value[key] = more.clone();
    }
    value
}

/// A feed of the images, with 4 in a batch: 6 batches an epoch.
fn images(more: Value) -> Value {
    let feed = json!({
        "sources": [{"lmdb": {"path": "images"}}], "batch_size": {"per_replica": 4},
        "schedule": {"epochs": 1},
    });
    merged(feed, more)
}

/// Many more batches than a ring has.
fn many() -> Value {
    images(json!({"schedule": {"epochs": 8, "shuffle": {"by": "global"}}}))
}

/// A feed of Examples with fields of every kind.
fn examples() -> Value {
    json!({
        "sources": [{"lmdb": {"path": "examples"}}], "batch_size": {"per_replica": 4},
        "schedule": {"epochs": 2}, "decoder": {"example": {"fields": data::FIELDS}},
    })
}

fn request(feed: &Value, more: Value) -> FeedRequest {
    let request = merged(json!({"version": 1, "feed": feed}), more);
    FeedRequest::parse(request.to_string().as_bytes()).unwrap()
}

/// Two clients that each get every batch.
fn in_step() -> FeedRequest {
    request(&many(), json!({"share": {"in_step": {"clients": 2}}}))
}

/// A batch of a local feed.
struct Due {
    /// Each with its name, its shape and its bytes.
    arrays: Vec<(String, Vec<usize>, Vec<u8>)>,
    step: Option<StepEnd>,
    records: usize,
    rows: usize,
}

impl Due {
    #[track_caller]
    fn check(&self, batch: &RemoteBatch) {
        let about = (batch.step(), batch.records(), batch.rows());
        assert_eq!(about, (self.step, self.records, self.rows));
        for (name, shape, bytes) in &self.arrays {
            if let Some(field) = name.strip_suffix(".offsets") {
                let (offsets, _) = batch.ragged::<i64>(field).unwrap();
                assert_eq!(bytemuck::cast_slice::<i64, u8>(offsets), &bytes[..], "{name} of {about:?}");
            } else {
                assert_eq!(batch.shape(name).unwrap(), *shape, "{name} of {about:?}");
                assert_eq!(batch.bytes(name).unwrap(), &bytes[..], "{name} of {about:?}");
            }
        }
    }
}

/// What a local feed of the same description delivers.
fn local(folder: &Path, feed: &Value) -> Vec<Due> {
    let feed = merged(feed.clone(), json!({"root": folder.join("root")}));
    let spec: FeedSpec = serde_json::from_value(feed).unwrap();
    let mut feed = FeedBuilder::from(spec).build().unwrap();
    let batches = feed.take_lanes().unwrap().remove(0);
    let due = batches.map(|batch| {
        let batch = batch.unwrap();
        let of_array = |array: percolator::device::HostArray<'_>| {
            (array.name.to_owned(), array.shape[..].to_vec(), array.bytes.to_vec())
        };
        Due {
            arrays: batch.arrays().map(of_array).collect(),
            step: batch.step(),
            records: batch.len(),
            rows: batch.rows(),
        }
    });
    due.collect()
}

/// Takes what is left of a lane, whose batches follow the first so many.
#[track_caller]
fn check_rest(lane: RemoteLane, due: &[Due], before: usize) {
    let mut number = before;
    for batch in lane {
        due[number].check(&batch.unwrap());
        number += 1;
    }
    assert_eq!(number, due.len(), "batches");
}

/// Whether bytes are in memory that another process wrote, and this one can only read.
fn is_shared(bytes: &[u8]) -> bool {
    let at = bytes.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let bound = |hex: &str| usize::from_str_radix(hex, 16).unwrap();
        let is_here = (bound(start)..bound(end)).contains(&at);
        is_here && rest.starts_with("r--s ") && rest.contains("/memfd:percolator")
    })
}

#[test]
fn batches_are_those_of_a_local_feed_and_of_flight() {
    let served = Served::start(|builder| builder);
    let folder = served.folder.path();
    let padded = json!({"schedule": {"epochs": 2, "last_batch": "pad", "shuffle": {"by": "global"}}});
    let columns = json!({"columns": ["epoch", "position", "step", "mask"]});
    for (feed, more) in [
        (images(json!({})), json!({})),
        (images(json!({"dtype": "bf16", "layout": "nhwc", "transform": {"mirror": true}})), json!({})),
        (images(padded), columns.clone()),
        (examples(), json!({})),
        (examples(), columns),
    ] {
        let (due, request) = (local(folder, &feed), request(&feed, more));
        let over_flight = client(folder, "grpc+unix", 2).open(&request).unwrap().lane(0).unwrap();
        let over_flight: Vec<RemoteBatch> = over_flight.map(Result::unwrap).collect();
        let (lane, mut number) = (served.lane(&request, 2), 0);
        for batch in lane {
            let batch = batch.unwrap();
            due[number].check(&batch);
            assert_eq!(batch.record_batch(), over_flight[number].record_batch(), "{feed}");
            let is_local =
                |client: &ClientStatus| client.method == Method::Local && client.peer.starts_with("unix:");
            assert!(served.clients().iter().any(is_local), "{:?}", served.clients());
            number += 1;
        }
        assert_eq!((number, over_flight.len()), (due.len(), due.len()), "{feed}");
    }
}

#[test]
fn nothing_is_copied() {
    let served = Served::start(|builder| builder);
    let request = request(&many(), json!({}));
    let (mut places, mut number) = (HashSet::new(), 0);
    for batch in served.lane(&request, 2) {
        let batch = batch.unwrap();
        let pixels = batch.bytes("data").unwrap();
        assert!(is_shared(pixels) && is_shared(batch.bytes("label").unwrap()), "batch {number}");
        places.insert(pixels.as_ptr().addr());
        number += 1;
    }
    // Each slot of the ring is at one place.
    assert_eq!(number, 48);
    assert!(places.len() <= 12, "{} places", places.len());
    let mut over_flight =
        client(served.folder.path(), "grpc+unix", 2).open(&request).unwrap().lane(0).unwrap();
    assert!(!is_shared(over_flight.next().unwrap().unwrap().bytes("data").unwrap()));
}

#[test]
fn what_is_held_stays_what_it_is_across_epochs_and_after_the_end() {
    let served = Served::start(|builder| builder);
    let (due, request) = (local(served.folder.path(), &many()), request(&many(), json!({})));
    let mut held = VecDeque::new();
    for (number, batch) in served.lane(&request, 4).enumerate() {
        held.push_back((number, batch.unwrap()));
        held.iter().for_each(|(number, batch)| due[*number].check(batch));
        // The server's window is 4.
        if held.len() == 3 {
            held.pop_front();
        }
    }
    assert_eq!(held.back().unwrap().0, due.len() - 1);
    // The feed has ended, and others have memory of their own.
    settles(&0, || served.clients().len());
    for _ in 0..2 {
        check_rest(served.lane(&request, 2), &due, 0);
    }
    held.iter().for_each(|(number, batch)| due[*number].check(batch));
    drop(served);
    held.iter().for_each(|(number, batch)| due[*number].check(batch));
}

#[test]
fn no_more_is_lent_than_the_window() {
    let served = Served::start(|builder| builder);
    let due = local(served.folder.path(), &many());
    let mut lane = served.lane(&request(&many(), json!({})), 3);
    let mut held: Vec<RemoteBatch> = (0..3).map(|_| lane.next().unwrap().unwrap()).collect();
    let (taken, taker) = channel();
    let waiting = thread::spawn(move || {
        taken.send(lane.next().unwrap().unwrap()).unwrap();
        lane
    });
    let lent = |client: &ClientStatus| (client.batches, client.unacknowledged);
    let seen = || served.clients().iter().map(lent).collect::<Vec<_>>();
    settles(&vec![(3, 3)], seen);
    for _ in 0..200 {
        assert_eq!(seen(), [(3, 3)]);
        thread::yield_now();
    }
    assert!(taker.try_recv().is_err(), "a batch came, although three are held");
    // Any that is dropped makes room, however old the others are.
    drop(held.remove(1));
    let fourth = taker.recv_timeout(hung_after()).unwrap();
    assert_eq!(fourth.number(), 3);
    due[0].check(&held[0]);
    due[2].check(&held[1]);
    due[3].check(&fourth);
    drop((held, fourth));
    check_rest(waiting.join().unwrap(), &due, 4);
}

/// The server writes where a client of a lane that has gone may still read: it does not, but elsewhere.
#[test]
fn what_is_held_stays_what_it_is_when_its_lane_has_gone() {
    let served = Served::start(|builder| builder);
    let due = local(served.folder.path(), &many());
    let (mut first, second) = (served.lane(&in_step(), 4), served.lane(&in_step(), 4));
    let held: Vec<RemoteBatch> = (0..3).map(|_| first.next().unwrap().unwrap()).collect();
    drop(first);
    settles(&1, || served.clients().len());
    check_rest(second, &due, 0);
    held.iter().zip(&due).for_each(|(batch, due)| due.check(batch));
    settles(&0, || served.clients().len());
}

#[test]
fn a_client_that_holds_too_much_is_let_go_and_goes_on() {
    let short = Duration::from_secs(1);
    let served = Served::start(|builder| builder.patience(short).join_within(short));
    let due = local(served.folder.path(), &many());
    let (mut slow, fast) = (served.lane(&in_step(), 2), served.lane(&in_step(), 2));
    // Neither has acknowledged anything, so whoever is later misses nothing.
    settles(&2, || served.clients().len());
    let held: Vec<RemoteBatch> = (0..2).map(|_| slow.next().unwrap().unwrap()).collect();
    let fast = thread::spawn(move || fast.map(|batch| batch.unwrap().step()).collect::<Vec<_>>());
    // It waits for a batch that comes only after one of those is gone, until it is no longer waited for. Then
    // it goes on by its ticket, while the ring that these are of is filled again and again.
    let rest = must_end("a lane whose batches are held", move || {
        let mut rest = Vec::new();
        for batch in slow {
            let batch = batch.unwrap();
            rest.push((batch.step(), batch.bytes("data").unwrap().to_vec()));
        }
        rest
    });
    assert_eq!(rest.len(), due.len() - 2);
    for ((step, pixels), due) in rest.iter().zip(&due[2..]) {
        assert_eq!((*step, &pixels[..]), (due.step, &due.arrays[0].2[..]));
    }
    let steps = fast.join().unwrap();
    assert!(steps.iter().eq(due.iter().map(|due| &due.step)), "{steps:?}");
    held.iter().zip(&due).for_each(|(batch, due)| due.check(batch));
}

#[test]
fn a_server_that_drains_keeps_no_batch_from_who_holds_it() {
    let served = Served::start(|builder| builder);
    let due = local(served.folder.path(), &many());
    let mut lane = served.lane(&request(&many(), json!({})), 4);
    let held: Vec<RemoteBatch> = (0..3).map(|_| lane.next().unwrap().unwrap()).collect();
    assert!(served.server.drain(hung_after()), "its clients have left");
    held.iter().zip(&due).for_each(|(batch, due)| due.check(batch));
    let Served { server, folder } = served;
    drop(server);
    let _server = builder(folder.path()).start().unwrap();
    check_rest(lane, &due, 3);
    held.iter().zip(&due).for_each(|(batch, due)| due.check(batch));
}

#[test]
fn who_drops_everything_is_gone() {
    let served = Served::start(|builder| builder);
    let due = local(served.folder.path(), &many());
    let mut lane = served.lane(&request(&many(), json!({})), 2);
    let batch = lane.next().unwrap().unwrap();
    assert_eq!(served.clients().len(), 1);
    drop(lane);
    settles(&0, || served.clients().len());
    due[0].check(&batch);
    drop(batch);
    // Lanes that nobody asked for a batch go as well.
    drop((0..4).map(|_| served.lane(&request(&many(), json!({})), 2)).collect::<Vec<_>>());
    settles(&0, || served.clients().len());
}

/// A process of this test, which is killed when this is dropped.
struct Started {
    process: std::process::Child,
    _said: BufReader<ChildStdout>,
}

impl Started {
    /// Runs the test in a process of its own, until that says this.
    fn start(test: &str, folder: &Path, says: &str) -> Self {
        let mut command = child_command(test, folder.to_str().unwrap());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut all = String::new();
        while !all.trim_end().ends_with(says) {
            assert_ne!(said.read_line(&mut all).unwrap(), 0, "it ended: {all}");
        }
        Started { process, _said: said }
    }

    /// As `kill -9` does.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Says this, and waits to be killed.
fn stay(says: &str) {
    println!("{says}");
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
}

#[test]
fn a_client_that_is_killed_keeps_nothing() {
    if let Some(folder) = role() {
        let mut lane = lane(&PathBuf::from(folder), &in_step(), 4);
        let _held: Vec<RemoteBatch> = (0..4).map(|_| lane.next().unwrap().unwrap()).collect();
        return stay("it holds four");
    }
    let served = Served::start(|builder| builder);
    let due = local(served.folder.path(), &many());
    let lane = served.lane(&in_step(), 2);
    let holder = Started::start(this_test!(), served.folder.path(), "it holds four");
    settles(&Some(4), || served.clients().iter().map(|client| client.unacknowledged).max());
    holder.kill();
    settles(&1, || served.clients().len());
    // The whole of it goes through the ring, of which the other held a half.
    check_rest(lane, &due, 0);
    settles(&0, || served.clients().len());
}

#[test]
fn a_server_that_is_killed_takes_nothing_along() {
    if let Some(folder) = role() {
        let _server = builder(&PathBuf::from(folder)).start().unwrap();
        return stay("it serves");
    }
    let folder = written();
    let due = local(folder.path(), &many());
    let first = Started::start(this_test!(), folder.path(), "it serves");
    let mut lane = lane(folder.path(), &request(&many(), json!({})), 4);
    let held: Vec<RemoteBatch> = (0..3).map(|_| lane.next().unwrap().unwrap()).collect();
    first.kill();
    held.iter().zip(&due).for_each(|(batch, due)| due.check(batch));
    let _second = Started::start(this_test!(), folder.path(), "it serves");
    check_rest(lane, &due, 3);
    held.iter().zip(&due).for_each(|(batch, due)| due.check(batch));
}

#[test]
fn errors_are_those_of_flight() {
    let served = Served::start(|builder| builder.token("secret"));
    let url = |scheme| format!("{scheme}://{}", served.folder.path().join("socket").to_str().unwrap());
    for scheme in ["shared", "grpc+unix"] {
        let wrong = Client::builder(url(scheme)).token("guess").connect();
        assert!(matches!(wrong, Err(ClientError::Token { .. })), "{wrong:?}");
        let client = Client::builder(url(scheme)).token("secret").connect().unwrap();
        let forged = client.resume("percolator1.e30.bWFj").unwrap().next().unwrap().unwrap_err();
        let ClientError::Refused { status, .. } = &forged else { panic!("{forged:?}") };
        assert!(status.code == Code::InvalidArgument && status.message.contains("not signed"), "{status}");
        let missing = request(&images(json!({"sources": [{"lmdb": {"path": "none"}}]})), json!({}));
        let missing = client.open(&missing).unwrap_err();
        assert!(matches!(&missing, ClientError::Refused { .. }), "{missing:?}");
        // A stream of which all was taken is one without a batch.
        let feed = client.open(&request(&images(json!({})), json!({}))).unwrap();
        let mut lane = feed.lane(0).unwrap();
        assert_eq!(lane.by_ref().count(), 6);
        assert!(client.resume(&lane.ticket()).unwrap().next().is_none());
    }
    let client = Client::builder(url("shared")).token("secret").connect().unwrap();
    let windowed = request(&many(), json!({"share": {"windowed": {"batches": 2}}}));
    let refused = client.open(&windowed).unwrap().lane(0).unwrap().next().unwrap().unwrap_err();
    let ClientError::Refused { status, .. } = &refused else { panic!("{refused:?}") };
    assert!(status.code == Code::FailedPrecondition && status.message.contains("grpc+unix"), "{status}");
}

/// A connection that begins as it should, piece by piece, and then says this.
fn raw(folder: &Path, said: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(folder.join("socket")).unwrap();
    stream.set_read_timeout(Some(hung_after())).unwrap();
    for piece in b"PLM1".chunks(1).chain([said]) {
        stream.write_all(piece).unwrap();
    }
    stream
}

fn framed(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap();
    [&length.to_le_bytes(), text.as_bytes()].concat()
}

/// How the server ends such a connection.
fn end(mut stream: UnixStream) -> Value {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut text).unwrap();
        let message: Value = serde_json::from_slice(&text).unwrap();
        if let Some(end) = message.get("end") {
            return end.clone();
        }
    }
}

#[test]
fn a_client_that_says_what_it_must_not_is_told_and_harms_nobody() {
    let served = Served::start(|builder| builder);
    let folder = served.folder.path();
    let hello = framed(&json!({"ticket": json!({"version": 1, "feed": many()}).to_string()}));
    let then = |said: &[u8]| [&hello[..], said].concat();
    for (said, words) in [
        (vec![0xff; 4], "a message of 4294967295 bytes"),
        (framed(&json!("nonsense")), "none of this protocol"),
        (framed(&json!({"ticket": "t", "wishes": 3})), "none of this protocol"),
        (framed(&json!({"ticket": "t"})), "no ticket"),
        (then(&framed(&json!("nonsense"))), "none of this protocol"),
        (then(&[0xff; 4]), "a message of 4294967295 bytes"),
        (then(&framed(&json!({"released": 99}))), "spoke of batch 99, which it does not have"),
        (then(&framed(&json!({"acknowledged": 99}))), "spoke of batch 99, which it does not have"),
    ] {
        let end = end(raw(folder, &said));
        assert_eq!(end[0], 3, "{end}");
        assert!(end[1].as_str().unwrap().contains(words), "{words}: {end}");
    }
    settles(&0, || served.clients().len());
    // One that says a part of something, and goes.
    drop(raw(folder, &hello[..hello.len() / 2]));
    check_rest(served.lane(&request(&many(), json!({})), 2), &local(folder, &many()), 0);

    let served = Served::start(|builder| builder.token("secret"));
    let end = end(raw(served.folder.path(), &hello));
    assert!(end[0] == 16 && end[1].as_str().unwrap().contains("wants a token"), "{end}");
}
