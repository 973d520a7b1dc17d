//! A server and peers that are not what they should be; servers and trainers that are asked to end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::leases::Job;
use percolator_cluster::metadata::{FolderMetadata, Metadata};
use percolator_proof::Verdict;
use tempfile::TempDir;
use uuid::Uuid;

use super::etcd::until;
use super::process::this_test;
use super::{spawn, take_role};
use crate::client::Servers;
use crate::options::JobOptions;
use crate::shards::{Address, Shard};
use crate::show::Process;
use crate::wire::{Answer, Ask, Connection, Push};

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

    fn job(&self) -> JobOptions {
        let folder = Some(self.folder.path().join("records"));
        let (name, ttl) = ("job".to_owned(), Duration::from_secs(1));
        JobOptions { etcd: vec![], etcd_prefix: String::new(), folder, name, shards: 1, ttl }
    }

    fn path(&self, name: &str) -> String {
        Path::join(self.folder.path(), name).to_str().unwrap().to_owned()
    }

    /// Starts a process in a role.
    fn start(&self, test: &'static str, role: &str, more: &[&str]) -> Process {
        let more: Vec<_> = more.iter().map(|&word| word.to_owned()).collect();
        Process::start(&spawn(test), role, &[self.job().words(), more].concat()).unwrap()
    }

    fn start_server(&self, test: &'static str) -> (Process, Address) {
        let more = ["--shard", "0", "--checkpoint-every", "3600", "--checkpoints"];
        let server = self.start(test, "server", &[&more[..], &[&self.path("checkpoints")]].concat());
        let mut found = None;
        until("the server is announced", || {
            found = self.shard.find(&*self.metadata).unwrap();
            found.as_ref().is_some_and(|found| found.pid == server.id())
        });
        (server, found.unwrap())
    }

    fn push(&self, trainer: u128, sequence: u64, gradient: Vec<f32>) -> Ask {
        Ask::Push(self.shard.clone(), Push { trainer: Uuid::from_u128(trainer), sequence, gradient })
    }
}

/// Sends bytes and no more, and returns the answer; none if the server closes the connection.
fn answer(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // A server that has seen enough reads no more.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn ask(address: SocketAddr, ask: &Ask) -> Answer {
    Connection::to(address).unwrap().ask(ask).unwrap()
}

fn weights(answer: Answer) -> (u64, Vec<f32>) {
    match answer {
        Answer::Weights { updates, weights } => (updates, weights),
        answer => panic!("{answer:?}"),
    }
}

#[track_caller]
fn assert_refused(answer: Option<Answer>, due: &str, is_passing: bool) {
    match answer {
        Some(Answer::Refused { message, may_pass }) => {
            assert!(message.contains(due), "{message}");
            assert_eq!(may_pass, is_passing);
        }
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn a_server_refuses_what_is_wrong_and_goes_on() {
    take_role();
    let place = Place::new();
    let (mut server, Address { address, .. }) = place.start_server(this_test!());
    let pull = Ask::Pull(place.shard.clone());
    let (updates, begun) = weights(ask(address, &pull));
    assert_eq!(updates, 0);
    let length = begun.len();

    assert_refused(answer(address, b"GET / HTTP/1.1\r\n"), "is this peer no trainer?", false);
    assert_refused(answer(address, b"{\"Pull\": 3}\n"), "invalid type", false);
    assert_refused(answer(address, b"\"Nothing\"\n"), "unknown variant `Nothing`", false);
    // Wherever a message is cut, and if it is too long.
    let whole = serde_json::to_vec(&place.push(9, 1, vec![1.0; length])).unwrap();
    for cut in [1, 9, whole.len() / 2, whole.len()] {
        assert_refused(answer(address, &whole[..cut]), "bytes without an end", false);
    }
    assert_refused(answer(address, &[b' '; 64 << 10]), "a message of 65536 bytes without an end", false);
    assert_eq!(answer(address, b""), None, "who says nothing is not answered");
    // Peers that vanish, the last one before the answer.
    let line = [&whole[..], b"\n"].concat();
    for bytes in [&line[..0], &line[..7], &line] {
        TcpStream::connect(address).unwrap().write_all(bytes).unwrap();
    }

    let other = Ask::Pull(Shard { job: "another".to_owned(), ..place.shard.clone() });
    assert_refused(Some(ask(address, &other)), "shard 0 of 1 of job, and not shard 0 of 1 of another", true);
    let short = place.push(1, 1, vec![1.0; length - 1]);
    assert_refused(Some(ask(address, &short)), "numbers, and this shard has", false);
    let endless = String::from_utf8(line.clone()).unwrap().replacen("1.0", "1e39", 1);
    // serde_json may refuse it by itself: that depends on how it was built.
    let Some(Answer::Refused { message, may_pass: false }) = answer(address, endless.as_bytes()) else {
        panic!("what is not finite was taken");
    };
    assert!(["not finite", "number out of range"].iter().any(|words| message.contains(words)), "{message}");

    // The one whose peer did not wait for the answer was taken, or will be.
    until("the gradient is taken", || weights(ask(address, &pull)).0 == 1);
    let first = weights(ask(address, &place.push(1, 1, vec![1.0; length])));
    assert_eq!(first.0, 2);
    assert_eq!(weights(ask(address, &place.push(1, 1, vec![1.0; length]))), first, "twice is once");
    assert!(first.1[0] < begun[0], "against the slope");

    // Asked to end, it writes a last checkpoint, and another one goes on with it, elsewhere or not.
    server.ask_to_end().unwrap();
    server.wait().unwrap();
    assert_eq!(place.shard.find(&*place.metadata).unwrap(), None, "nobody looks for it");
    let (_server, back) = place.start_server(this_test!());
    assert_eq!(back.updates, 2);
    assert_eq!(weights(ask(back.address, &pull)), first);
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
    let error = second.wait().unwrap_err().to_string();
    assert!(error.contains("has ended with exit status: 1"), "{error}");
    assert_eq!(place.shard.find(&*place.metadata).unwrap(), Some(first));
    // A shard of another number of shards is another part of the weights.
    let other = Shard { of: 2, ..place.shard.clone() };
    let error = other.find(&*place.metadata).unwrap_err().to_string();
    assert!(error.contains("has 1 shards, and not 2"), "{error}");
}

#[test]
fn a_trainer_gives_up_at_the_end_of_its_patience() {
    let place = Place::new();
    let at_most = Duration::from_millis(200);
    let mut servers = Servers::new("test", &place.metadata, &place.job(), at_most, &Arc::default());
    let error = format!("{:#}", servers.pull().unwrap_err());
    assert!(error.contains("shard 0 of 1 of job: given up after"), "{error}");
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
    let error = trainer.wait().unwrap_err().to_string();
    assert!(error.contains("exit status: 143"), "{error}");
    let status = job().unwrap();
    assert_eq!(status.workers, []);
    assert!(status.open.iter().all(|open| open.holders.is_empty()), "{status:?}");
    // One trainer, which has the blocks in order: what it did is the beginning of an epoch.
    let receipts = Job::open(place.metadata.clone(), "job").unwrap().receipts().unwrap();
    let verdict = Verdict::of(receipts.iter().map(|(name, receipt)| (name.as_str(), receipt))).unwrap();
    assert!(verdict.is_sound(), "{verdict:?}");
}
