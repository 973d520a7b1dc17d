//! A server and peers that are not what they should be; servers and trainers that are asked to end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percolator::receipt::Verdict;
use percolator_cluster::leases::Job;
use percolator_cluster::metadata::{FolderMetadata, Metadata};
use prost::Message as _;
use tempfile::TempDir;

use super::etcd::until;
use super::process::this_test;
use super::{spawn, take_role};
use crate::address::{self, Address};
use crate::client::{self, Patience, Servers};
use crate::shards::Shard;
use crate::show::Process;
use crate::wire::{Answer, Ask, Pull, Push, Request, Said, Weights};

const LIMIT: Duration = Duration::from_secs(60);

/// A server of the only shard of a job, and where it is.
struct Place {
    folder: TempDir,
    metadata: Arc<dyn Metadata>,
    shard: Shard,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("checkpoints")).unwrap();
        let metadata = Arc::new(FolderMetadata::open(folder.path().join("records")).unwrap());
        Place { folder, metadata, shard: Shard { job: "job".to_owned(), number: 0, of: 1 } }
    }

    fn path(&self, name: &str) -> String {
        Path::join(self.folder.path(), name).to_str().unwrap().to_owned()
    }

    /// Starts a process in a role.
    fn start(&self, test: &'static str, role: &str, more: &[&str]) -> Process {
        let own = [role, "--folder", &self.path("records"), "--job", "job", "--shards", "1", "--ttl", "1"];
        let words = own.iter().chain(more).map(|&word| word.to_owned()).collect();
        Process::start(&spawn(test), role.to_owned(), words).unwrap()
    }

    fn start_server(&self, test: &'static str) -> (Process, Address) {
        let more = ["--shard", "0", "--checkpoint-every", "3600", "--checkpoints"];
        let server = self.start(test, "server", &[&more[..], &[&self.path("checkpoints")]].concat());
        let mut found = None;
        until("the server is announced", || {
            found = address::find(&*self.metadata, &self.shard).unwrap();
            found.as_ref().is_some_and(|found| found.pid == server.id())
        });
        (server, found.unwrap())
    }

    fn request(&self, ask: Ask) -> Request {
        let Shard { job, number, of } = self.shard.clone();
        Request { job, shard: number, of, ask: Some(ask) }
    }

    fn push(&self, trainer: u64, sequence: u64, gradient: Vec<f32>) -> Request {
        self.request(Ask::Push(Push { trainer, sequence, gradient }))
    }
}

/// Sends bytes, and returns the answer; none if the server closes the connection.
fn answer(address: SocketAddr, bytes: &[u8]) -> Option<Said> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut message).unwrap();
    Answer::decode(&*message).unwrap().said
}

fn ask(address: SocketAddr, request: &Request) -> Said {
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    answer(address, &[&length[..], &message].concat()).expect("it answers")
}

fn weights(said: Said) -> Weights {
    match said {
        Said::Weights(weights) => weights,
        said => panic!("{said:?}"),
    }
}

#[track_caller]
fn assert_refused(said: Option<Said>, due: &str, is_passing: bool) {
    match said {
        Some(Said::Refused(refused)) => {
            assert!(refused.message.contains(due), "{}", refused.message);
            assert_eq!(refused.may_pass, is_passing);
        }
        said => panic!("{said:?}"),
    }
}

fn probed(address: SocketAddr) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(client::probe(address)).unwrap()
}

#[test]
fn a_server_refuses_what_is_wrong_and_goes_on() {
    take_role();
    let place = Place::new();
    let (mut server, Address { address, .. }) = place.start_server(this_test!());
    let begun = weights(ask(address, &place.request(Ask::Pull(Pull {}))));
    let length = begun.weights.len();

    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_refused(answer(address, http), "is this peer no trainer?", false);
    assert_refused(answer(address, &[0; 4]), "a message of 0 bytes", false);
    assert_refused(answer(address, &[0, 0, 0, 2, 0xff, 0xff]), "none of this protocol", false);
    let nothing = Request { ask: None, ..place.request(Ask::Pull(Pull {})) };
    assert_refused(Some(ask(address, &nothing)), "nothing is asked", false);
    // Peers that vanish: before they say anything, in a length, in a message, and before the answer.
    let whole = place.push(9, 1, vec![1.0; length]).encode_to_vec();
    for bytes in [&[][..], &[0, 0], &[0, 0, 1, 0, 7, 7]] {
        TcpStream::connect(address).unwrap().write_all(bytes).unwrap();
    }
    let mut vanishes = TcpStream::connect(address).unwrap();
    vanishes.write_all(&u32::try_from(whole.len()).unwrap().to_be_bytes()).unwrap();
    vanishes.write_all(&whole).unwrap();
    drop(vanishes);

    let other = Request { job: "another".to_owned(), ..place.request(Ask::Pull(Pull {})) };
    assert_refused(Some(ask(address, &other)), "shard 0 of 1 of job, and not shard 0 of 1 of another", true);
    let short = place.push(1, 1, vec![1.0; length - 1]);
    assert_refused(Some(ask(address, &short)), "numbers, and this shard has", false);
    let mut slopes = vec![1.0; length];
    slopes[3] = f32::NAN;
    assert_refused(Some(ask(address, &place.push(1, 1, slopes))), "the gradient of weight 3", false);

    // The one whose peer did not wait for the answer was taken, or will be.
    until("the gradient is taken", || probed(address) == "shard 0 of job, 1 updates");
    let first = weights(ask(address, &place.push(1, 1, vec![1.0; length])));
    assert_eq!(first.updates, 2);
    assert_eq!(weights(ask(address, &place.push(1, 1, vec![1.0; length]))), first, "twice is once");
    assert!(first.weights[0] < begun.weights[0], "against the slope");

    // Asked to end, it writes a last checkpoint, and another one goes on with it, elsewhere or not.
    server.ask_to_end().unwrap();
    server.wait(LIMIT).unwrap();
    assert_eq!(address::find(&*place.metadata, &place.shard).unwrap(), None, "nobody looks for it");
    let (_server, back) = place.start_server(this_test!());
    assert_eq!(back.updates, 2);
    assert_eq!(weights(ask(back.address, &place.request(Ask::Pull(Pull {})))), first);
    let again = weights(ask(back.address, &place.push(1, 1, vec![1.0; length])));
    assert_eq!(again, first, "it knows what was taken before");
}

#[test]
fn a_shard_has_one_server() {
    take_role();
    let place = Place::new();
    let (_server, first) = place.start_server(this_test!());
    let more = ["--shard", "0", "--checkpoints", &place.path("checkpoints")];
    let mut second = place.start(this_test!(), "server", &more);
    let error = second.wait(LIMIT).unwrap_err().to_string();
    assert!(error.contains("has ended with exit status: 1"), "{error}");
    assert_eq!(address::find(&*place.metadata, &place.shard).unwrap(), Some(first));
    // A shard of another number of shards is another part of the weights.
    let other = Shard { of: 2, ..place.shard.clone() };
    let error = address::find(&*place.metadata, &other).unwrap_err().to_string();
    assert!(error.contains("has 1 shards, and not 2"), "{error}");
}

#[test]
fn a_trainer_gives_up_at_the_end_of_its_patience() {
    let place = Place::new();
    let mut servers = Servers::new(&place.metadata, "job", 1);
    let patience = Patience { who: "test", at_most: Duration::from_millis(200) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let error = format!("{:#}", runtime.block_on(servers.pull(patience)).unwrap_err());
    assert!(error.contains("shard 0 of 1 of job (never seen): given up after"), "{error}");
    assert!(error.contains("no server of it is announced"), "{error}");
}

/// Its blocks are free at once, and it says that there is more to do.
#[test]
fn a_trainer_that_is_asked_to_end_gives_its_blocks_back() {
    take_role();
    let place = Place::new();
    let (_server, _) = place.start_server(this_test!());
    let mut trainer = place.start(this_test!(), "trainer", &["--epochs", "100000"]);
    let job = || Job::open(place.metadata.clone(), "job").ok().map(|job| job.status().unwrap());
    until("a block is done", || job().is_some_and(|status| status.done > 0));
    trainer.ask_to_end().unwrap();
    let error = trainer.wait(LIMIT).unwrap_err().to_string();
    assert!(error.contains("exit status: 143"), "{error}");
    let status = job().unwrap();
    assert_eq!(status.workers, []);
    assert!(status.open.iter().all(|open| open.holders.is_empty()), "{status:?}");
    // One trainer, which has the blocks in order: what it did is the beginning of an epoch.
    let receipts = Job::open(place.metadata.clone(), "job").unwrap().receipts().unwrap();
    let verdict = Verdict::of(receipts.iter().map(|(name, receipt)| (name.as_str(), receipt))).unwrap();
    assert!(verdict.is_sound(), "{verdict:?}");
}
