//! An etcd of a test's own: on free loopback ports, with a folder of its own, stopped when it is dropped.
//!
//! A shell is between the test and etcd. It kills etcd when its input ends, so etcd does not outlive a test
//! process that is killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, Metadata, Outcome, Transaction};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long anything may take. Nothing does, unless it is broken.
const LIMIT: Duration = Duration::from_secs(60);

const SHELL: &str = r#"
exec 3<&0
"$@" </dev/null >&2 &
etcd=$!
echo $etcd
(cat <&3 >/dev/null; kill -9 $etcd 2>/dev/null) &
guard=$!
wait $etcd
kill $guard 2>/dev/null
"#;

#[allow(clippy::duplicate_mod, reason = "benches take this file alone")]
#[path = "../../../../tests/common/need.rs"]
mod need;

/// A member of a cluster, often its only one.
pub(crate) struct Etcd {
    pub(crate) url: String,
    peer: String,
    options: Vec<String>,
    folder: Arc<TempDir>,
    name: String,
    running: Option<Running>,
}

struct Running {
    shell: Child,
    etcd: Pid,
}

/// Returns whether there is an etcd to test with.
pub(crate) fn is_there() -> bool {
    need::program("ETCD", "etcd", "Debian's package etcd-server")
}

/// Free ports, all different.
fn ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners: [_; COUNT] = std::array::from_fn(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Etcd {
    /// Starts one and waits until it answers, or returns none if there is no etcd.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        Self::start_with(options, "http", |url| EtcdOptions::new([url]))
    }

    /// The same, with another scheme, and the options by which it can be reached.
    pub(crate) fn start_with(
        options: &[&str],
        scheme: &str,
        reach: impl Fn(&str) -> EtcdOptions,
    ) -> Option<Self> {
        if !is_there() {
            return None;
        }
        // Somebody else may take a port before etcd does.
        for _ in 0..5 {
            let [client, peer] = ports();
            let (url, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let mut all = vec!["--heartbeat-interval=20".to_owned(), "--election-timeout=200".to_owned()];
            all.push(format!("--initial-cluster=etcd={peer}"));
            all.extend(options.iter().map(|&option| option.to_owned()));
            let folder = Arc::new(tempfile::tempdir().unwrap());
            let (name, running) = ("etcd".to_owned(), None);
            let mut etcd = Etcd { url: url.clone(), peer, options: all, folder, name, running };
            etcd.run();
            if etcd.is_ready(&reach(&url)) {
                return Some(etcd);
            }
        }
        panic!("etcd cannot be started");
    }

    /// Starts the members of a cluster, and waits until it answers.
    pub(crate) fn start_cluster<const COUNT: usize>() -> Option<[Self; COUNT]> {
        if !is_there() {
            return None;
        }
        for _ in 0..5 {
            let (clients, peers): ([u16; COUNT], [u16; COUNT]) = (ports(), ports());
            let url = |port| format!("http://127.0.0.1:{port}");
            let members: Vec<_> = peers
                .iter()
                .enumerate()
                .map(|(number, &peer)| format!("etcd{number}={}", url(peer)))
                .collect();
            let folder = Arc::new(tempfile::tempdir().unwrap());
            let mut all: [Self; COUNT] = std::array::from_fn(|number| Etcd {
                url: url(clients[number]),
                peer: url(peers[number]),
                options: vec![
                    "--heartbeat-interval=50".to_owned(),
                    "--election-timeout=500".to_owned(),
                    format!("--initial-cluster={}", members.join(",")),
                ],
                folder: folder.clone(),
                name: format!("etcd{number}"),
                running: None,
            });
            all.iter_mut().for_each(Self::run);
            if all.iter_mut().all(|etcd| etcd.is_ready(&EtcdOptions::new([&*etcd.url]))) {
                return Some(all);
            }
        }
        panic!("the cluster cannot be started");
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join(format!("{}.log", self.name))
    }

    /// Starts the process, also after it was killed.
    pub(crate) fn run(&mut self) {
        let data = self.folder.path().join(&self.name);
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "sh", "etcd", "--name", &self.name, "--logger=zap"])
            .args(["--enable-grpc-gateway=false", "--bcrypt-cost=4", "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &self.url, "--advertise-client-urls", &self.url])
            .args(["--listen-peer-urls", &self.peer, "--initial-advertise-peer-urls", &self.peer])
            .args(&self.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let etcd = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        self.running = Some(Running { shell, etcd });
    }

    /// Waits until a transaction can be made, or a user is asked for. Returns false if the process ends.
    pub(crate) fn is_ready(&mut self, reach: &EtcdOptions) -> bool {
        let start = Instant::now();
        loop {
            let result = EtcdMetadata::connect(&reach.clone().deadline(Duration::from_millis(500)))
                .and_then(|etcd| etcd.transact(&Transaction::new().remove("ready?")));
            if matches!(result, Ok(Outcome::Committed(_))) {
                return true;
            }
            let running = self.running.as_mut().unwrap();
            if running.shell.try_wait().unwrap().is_some() {
                return false;
            }
            let log = || std::fs::read_to_string(self.log()).unwrap();
            assert!(start.elapsed() < LIMIT, "etcd does not answer: {result:?}\n{}", log());
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.running.as_ref().unwrap().etcd, signal).unwrap();
    }

    /// Pauses the process, which keeps its connections.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        // Its threads stop one by one, each when it is next scheduled.
        let tasks = format!("/proc/{}/task", self.running.as_ref().unwrap().etcd.as_raw_pid());
        let is_stopped = |task: std::io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'))
        };
        let start = Instant::now();
        while !fs::read_dir(&tasks).unwrap().all(is_stopped) {
            assert!(start.elapsed() < LIMIT, "etcd does not stop");
        }
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process. Its data stay.
    pub(crate) fn kill(&mut self) {
        let mut running = self.running.take().unwrap();
        kill_process(running.etcd, Signal::KILL).unwrap();
        running.shell.wait().unwrap();
    }

    /// Puts a copy in place of the data. The process must not run.
    pub(crate) fn restore(&self, copy: &Path) {
        let data = self.folder.path().join(&self.name);
        std::fs::remove_dir_all(&data).unwrap();
        let cluster = format!("{}={}", self.name, self.peer);
        let restore = |program| {
            let mut command = Command::new(program);
            command
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore"])
                .arg(copy)
                .arg("--data-dir")
                .arg(&data);
            command.args(["--name", &self.name, "--initial-cluster", &cluster]);
            command.args(["--initial-advertise-peer-urls", &self.peer]).output()
        };
        // Since etcd 3.6, etcdctl does not restore.
        let output = restore("etcdutl").or_else(|_| restore("etcdctl"));
        let output = output.expect("etcdctl comes with Debian's package etcd-client");
        assert!(output.status.success(), "{output:?}");
    }

    /// Options for this etcd.
    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions::new([&*self.url])
    }

    /// Records in this etcd.
    pub(crate) fn records(&self, prefix: &str) -> EtcdMetadata {
        EtcdMetadata::connect(&self.options().prefix(prefix)).unwrap()
    }

    /// Runs etcd's own command, which must succeed. Returns what it prints.
    pub(crate) fn control(&self, arguments: &[&str]) -> String {
        control(&[self], arguments)
    }

    /// Returns whether this is among what it counts about itself.
    pub(crate) fn counts(&self, line: &str) -> bool {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().any(|found| found == line)
    }

    /// A folder for files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Runs etcd's own command about these members.
pub(crate) fn control(members: &[&Etcd], arguments: &[&str]) -> String {
    let urls: Vec<_> = members.iter().map(|etcd| &*etcd.url).collect();
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &urls.join(",")]).args(arguments);
    let output = command.output().expect("etcdctl comes with Debian's package etcd-client");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Which member leads.
pub(crate) fn leader(members: &[Etcd]) -> usize {
    let all: Vec<_> = members.iter().collect();
    let status = control(&all, &["endpoint", "status", "-w", "simple"]);
    // endpoint, member, version, size, does it lead?
    let line = status.lines().find(|line| line.split(", ").nth(4) == Some("true")).expect("one leads");
    let url = line.split(", ").next().unwrap();
    members.iter().position(|member| member.url == url).unwrap()
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // The end of its input makes the shell kill etcd, stopped or not.
            drop(running.shell.stdin.take());
            let _ = running.shell.wait();
            if thread::panicking() {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                let tail: Vec<_> = log.lines().rev().take(5).collect();
                println!("the end of etcd's log, last line first:\n{}", tail.join("\n"));
            }
        }
    }
}

/// Set when it is dropped, so that threads end which go on until it is, also if a check fails.
#[derive(Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// What the threads look at.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Looks again and again until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "it does not come to this: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
