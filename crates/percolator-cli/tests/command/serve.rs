//! A server of feeds, as a user runs it: where it listens, what it refuses, and how it ends. What it serves
//! is tested in its own package.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

use percolator::Feed;
use percolator_cluster::metadata::FolderMetadata;
use percolator_serve::{Client, Discover as _, FeedRequest, Fleet, RemoteLane};
use serde_json::Value;
use tempfile::TempDir;

use crate::common;
use crate::common::process::must_end;
use crate::pty::Pty;

fn percolator(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.arg("serve").args(words).current_dir(folder).env("RUST_LOG", "error").stdin(Stdio::null());
    command
}

/// A folder with a database of 16 images below `data`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(&folder.path().join("data/db"), 16, 3, 4, 4);
    folder
}

/// A server that listens. It is killed if its test fails.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What it said when it listened.
    first_line: String,
}

impl Running {
    fn start(folder: &Path, words: &[&str]) -> Self {
        let mut child =
            percolator(folder, words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first_line = String::new();
        if out.read_line(&mut first_line).unwrap() == 0 {
            panic!("{:?}", child.wait_with_output());
        }
        Running { child, out, first_line }
    }

    /// What it said as JSON.
    fn said(&self) -> Value {
        serde_json::from_str(&self.first_line).unwrap_or_else(|error| panic!("{error}: {}", self.first_line))
    }

    /// Asks it to stop; returns its exit code, and what it said on the standard error.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let mut kill = Command::new("kill");
        assert!(kill.args([signal, &self.child.id().to_string()]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "one line is all that it prints");
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status line and the body of an answer.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Runs a command that serves nothing; returns what it said.
#[track_caller]
fn refused(folder: &Path, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = percolator(folder, words).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{words:?}: {said}");
    assert!(stdout.is_empty() && said.starts_with("percolator: "), "{words:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    said
}

#[test]
fn it_says_where_it_listens_answers_and_drains_on_a_signal() {
    let folder = folder();
    for (signal, name) in [("-TERM", "SIGTERM"), ("-INT", "SIGINT")] {
        let args = ["data", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--json"];
        let server = Running::start(folder.path(), &args);
        let said = server.said();
        assert_eq!((&said["schema"], &said["root"]), (&"percolator.serve/1".into(), &"data".into()));
        assert_eq!((&said["unix"], &said["metrics"]), (&Value::Null, &Value::Null));
        let addresses: Vec<_> = said["addresses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(said["urls"][1], format!("grpc://{}", addresses[1]));
        assert!(addresses.len() == 2 && addresses.iter().all(|one| one.starts_with("127.0.0.1:")));
        for address in &addresses {
            for path in ["/healthz", "/readyz"] {
                let (status, _) = get(address, path);
                assert!(status.starts_with("HTTP/1.1 200"), "{path}: {status}");
            }
            assert!(get(address, "/metrics").1.contains("percolator_serve_"));
        }
        let (code, said) = must_end("a server without clients", move || server.stop(signal));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(&format!("{name}: no new clients")), "{said}");
    }
}

#[test]
fn it_listens_at_a_unix_socket_alone_and_says_so_as_text() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--root", "data", "--unix", "socket"]);
    let path = fs::canonicalize(folder.path()).unwrap().join("socket");
    assert_eq!(server.first_line, format!("data: grpc+unix://{}\n", path.to_str().unwrap()));
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    assert_eq!(must_end("a server", move || server.stop("-TERM")).0, Some(0));
}

#[test]
fn the_metrics_of_its_feeds_have_an_address_of_their_own() {
    let folder = folder();
    let args = ["data", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json"];
    let server = Running::start(folder.path(), &args);
    let said = server.said();
    let url = said["metrics"].as_str().unwrap();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (status, body) = get(address, &format!("/{path}"));
    assert!(status.starts_with("HTTP/1.1 200") && !body.contains("percolator_batches_total{"), "{body}");
}

/// A client of the database that has a batch in hand.
fn client(url: &str) -> RemoteLane {
    let request = FeedRequest::feed(Feed::builder().lmdb("db").batch_size(4).spec().clone());
    let mut lane = Client::connect(url).unwrap().open(&request).unwrap().lane(0).unwrap();
    assert_eq!(lane.next().unwrap().unwrap().records(), 4);
    lane
}

fn watch(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.arg("watch").args(words).env("RUST_LOG", "error").stdin(Stdio::null());
    command
}

/// What `watch --json` prints, and its exit code.
fn watched(words: &[&str]) -> (Value, Option<i32>, String) {
    let Output { status, stdout, stderr } = watch(&[words, &["--json"]].concat()).output().unwrap();
    let said = serde_json::from_slice(&stdout).unwrap_or_default();
    (said, status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn who_watches_sees_its_clients_and_the_metrics_of_their_feeds() {
    let folder = folder();
    let args = ["data", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json"];
    let server = Running::start(folder.path(), &args);
    let said = server.said();
    let (url, metrics) = (said["urls"][0].as_str().unwrap(), said["metrics"].as_str().unwrap());
    let (idle, code, error) = watched(&[url]);
    assert_eq!((code, &idle["feeds"]), (Some(0), &Value::Array(Vec::new())), "{idle}: {error}");
    let (_, code, error) = watched(&[metrics]);
    assert!(code == Some(2) && error.contains("while they have clients"), "{error}");

    let lane = client(url);
    let (seen, code, error) = watched(&[url]);
    assert_eq!((code, &seen["schema"]), (Some(0), &"percolator.watch-server/1".into()), "{error}");
    let feed = &seen["feeds"][0];
    let clients = feed["clients"].as_array().unwrap_or_else(|| panic!("{seen}"));
    assert_eq!((&feed["share"], clients.len()), (&"divided".into(), 1), "{seen}");
    assert_eq!((&clients[0]["method"], &clients[0]["rank"]), (&"exchange".into(), &0.into()), "{seen}");
    assert!(clients[0]["batches"].as_u64() >= Some(1), "{seen}");
    assert!(clients[0]["unacknowledged"].as_u64() >= Some(1), "{seen}");
    assert!(clients[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{seen}");

    let (numbers, code, error) = watched(&[metrics, "--feed", feed["name"].as_str().unwrap()]);
    assert_eq!((code, &numbers["schema"]), (Some(0), &"percolator.watch/1".into()), "{error}");
    let numbers = numbers["metrics"].as_array().unwrap();
    let batches = numbers.iter().find(|number| number["name"] == "percolator_batches_total").unwrap();
    assert!(batches["feed"] == feed["name"] && batches["value"].as_u64() >= Some(1), "{batches}");
    drop(lane);
}

#[test]
fn a_server_is_listed_in_a_terminal_until_a_signal() {
    let folder = folder();
    let server = Running::start(folder.path(), &["data", "--listen", "127.0.0.1:0", "--json"]);
    let said = server.said();
    let url = said["urls"][0].as_str().unwrap();
    let lane = client(url);
    let mut pty = Pty::start(watch(&[url]), 100, 24);
    let drawn = pty.wait_for("exchange", 0);
    // It leaves, and later the server does.
    drop(lane);
    let drawn = pty.wait_for("0 clients", drawn);
    drop(server);
    let drawn = pty.wait_for("NO ANSWER: ", drawn);
    pty.wait_for("0 clients", drawn);
    pty.signal("INT");
    assert_eq!(pty.end().code(), Some(130));
}

#[test]
fn clients_find_the_servers_of_a_fleet_and_one_that_is_killed_is_replaced() {
    let folder = folder();
    let words = ["data", "--listen", "127.0.0.1:0", "--json", "--key", "key", "--join", "digits"];
    let words = [&words[..], &["--metadata-folder", "records"]].concat();
    let mut servers: Vec<_> = (0..2).map(|_| Running::start(folder.path(), &words)).collect();
    let records = folder.path().join("records");
    let fleet = Fleet::new(Arc::new(FolderMetadata::open(&records).unwrap()), "digits").unwrap();
    let urls = |server: &Running| server.said()["urls"][0].as_str().unwrap().to_owned();
    let mut all: Vec<_> = servers.iter().map(urls).collect();
    all.sort();
    let mut found = fleet.servers().unwrap();
    found.sort();
    assert_eq!(found, all);
    let discover = ["--discover", "digits", "--metadata-folder", records.to_str().unwrap()];
    let (seen, code, error) = watched(&discover);
    assert_eq!((code, seen["servers"].as_array().map(Vec::len)), (Some(0), Some(2)), "{error}");
    assert!(seen["servers"][0]["status"]["feeds"].is_array(), "{seen}");

    let spec = Feed::builder().lmdb("db").batch_size(4).epochs(3).spec().clone();
    let client = Client::discover(Arc::new(fleet.clone())).connect().unwrap();
    let mut lane = client.open(&FeedRequest::feed(spec)).unwrap().lane(0).unwrap();
    let batches = |lane: &mut RemoteLane, most: usize| {
        lane.take(most).map(|batch| batch.unwrap().get::<f32>("data").unwrap().to_vec()).collect::<Vec<_>>()
    };
    let mut seen = batches(&mut lane, 5);
    let (watching, _, error) = watched(&discover);
    let is_its = |server: &Value| server["status"]["feeds"].as_array().is_some_and(|feeds| !feeds.is_empty());
    let its = watching["servers"].as_array().unwrap().iter().find(|server| is_its(server));
    let its = its.unwrap_or_else(|| panic!("{watching}: {error}"))["url"].clone();
    // It is killed, without a word to anybody.
    servers.retain(|server| urls(server) != its);
    seen.extend(must_end("a lane whose server was killed", move || batches(&mut lane, usize::MAX)));
    assert_eq!(seen.len(), 12);
    assert!(seen.chunks(4).all(|epoch| epoch == &seen[..4]));
    // The other one leaves when it is told to.
    let last = urls(&servers[0]);
    assert_eq!(servers.remove(0).stop("-TERM").0, Some(0));
    assert!(!fleet.servers().unwrap().contains(&last));
}

#[test]
fn a_server_joins_a_fleet_only_by_an_address_that_clients_reach() {
    let folder = folder();
    for (words, due) in [
        (&["--key", "k", "--listen", "127.0.0.1:0"][..], "--etcd URL or --metadata-folder"),
        (&["--metadata-folder", "r", "--listen", "127.0.0.1:0"][..], "one --key"),
        (&["--key", "k", "--metadata-folder", "r", "--listen", "0.0.0.0:0", "--insecure"][..], "--advertise"),
        (
            &["--key", "k", "--metadata-folder", "r", "--listen", "127.0.0.1:0", "--unix", "u"][..],
            "--advertise",
        ),
        (
            &["--key", "k", "--metadata-folder", "r", "--listen", "127.0.0.1:0", "--advertise", "h"][..],
            "no scheme",
        ),
        // Nobody on another machine reaches these.
        (&["--key", "k", "--etcd", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"][..], "--advertise"),
        (&["--key", "k", "--etcd", "http://127.0.0.1:1", "--unix", "u"][..], "--advertise"),
    ] {
        let words = [&["data", "--join", "digits"], words].concat();
        let Output { status, stderr, .. } = percolator(folder.path(), &words).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(2) && said.contains(due), "{words:?}: {said}");
    }
    let said = refused(folder.path(), &["data", "--listen", "127.0.0.1:0", "--advertise", "grpc://h:1"]);
    assert!(said.contains("--join"), "{said}");
}

#[test]
fn a_server_that_wants_a_token_is_watched_with_one() {
    let folder = folder();
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, "\n first \nsecond\n").unwrap();
    let args = ["data", "--listen", "127.0.0.1:0", "--token-file", "tokens", "--json"];
    let server = Running::start(folder.path(), &args);
    let said = server.said();
    let (url, tokens) = (said["urls"][0].as_str().unwrap(), tokens.to_str().unwrap());
    let (_, code, error) = watched(&[url]);
    assert!(code == Some(2) && error.contains("token"), "{error}");
    let (seen, code, error) = watched(&[url, "--token-file", tokens]);
    assert_eq!((code, &seen["is_draining"]), (Some(0), &false.into()), "{error}");
}

#[test]
fn a_server_that_cannot_be_watched_is_said_so() {
    // Nobody listens at port 1.
    for (words, due) in [
        (&["grpc://127.0.0.1:1"][..], "cannot connect to grpc://127.0.0.1:1"),
        (&["grpc://127.0.0.1:1", "--feed", "a"][..], "--feed is for metrics"),
        (&["grpc://127.0.0.1"][..], "is no address of a server"),
        (&["grpc+tls://127.0.0.1:1"][..], "authorities"),
        (&["grpc+tls://127.0.0.1:1", "--tls-certificate", "c"][..], "--tls-key"),
        (&["grpc://127.0.0.1:1", "--token-file", "none"][..], "none: "),
        (&["http://127.0.0.1:1", "--token-file", "none"][..], "a server of feeds"),
    ] {
        let (said, code, error) = watched(words);
        assert!(code == Some(2) && said.is_null() && error.contains(due), "{words:?}: {error}");
    }
    let output = watch(&["grpc://127.0.0.1:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--json"), "{output:?}");
}

#[test]
fn options_may_be_in_a_file_and_the_command_line_goes_before_it() {
    let folder = folder();
    let write = |text: &str| fs::write(folder.path().join("serve.toml"), text).unwrap();
    write("root = 'data'\nlisten = '0.0.0.0:0'\nkey = 'its.key'\ndrain = '1s'\nmemory = '64MiB'\n");
    assert!(refused(folder.path(), &["--config", "serve.toml"]).contains("--insecure"));
    let args = ["--config", "serve.toml", "--listen", "127.0.0.1:0", "--json"];
    let server = Running::start(folder.path(), &args);
    assert!(server.said()["addresses"][0].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(fs::read(folder.path().join("its.key")).unwrap().len(), 32);
    drop(server);
    write("root = 'data'\nlissten = '127.0.0.1:0'\n");
    let said = refused(folder.path(), &["--config", "serve.toml"]);
    assert!(said.starts_with("percolator: serve.toml:2: unknown field `lissten`, expected one of"), "{said}");
    write("root = 'data'\nmemory = '5GB'\n");
    assert!(
        refused(folder.path(), &["--config", "serve.toml"]).contains("serve.toml:2: not a number of bytes")
    );
    assert!(refused(folder.path(), &["--config", "none.toml"]).contains("none.toml: "));
}

#[test]
fn what_cannot_be_served_is_refused_before_anybody_is_listened_to() {
    let folder = folder();
    let refused = |words: &[&str]| refused(folder.path(), words);
    for address in ["0.0.0.0:0", "[::]:0"] {
        let said = refused(&["data", "--listen", address]);
        assert!(said.contains(address) && said.contains("--tls-certificate"), "{said}");
        assert!(said.contains("--insecure"), "{said}");
    }
    assert!(refused(&["gone", "--listen", "127.0.0.1:0"]).contains("gone"));
    assert!(refused(&["data", "--tls-key", "key.pem"]).contains("--tls-certificate"));
    assert!(refused(&["data", "--token-file", "none"]).contains("none: "));
    fs::write(folder.path().join("empty"), "\n").unwrap();
    assert!(refused(&["data", "--token-file", "empty"]).contains("empty: it has no token"));
    fs::write(folder.path().join("short.key"), "short").unwrap();
    let said = refused(&["data", "--listen", "127.0.0.1:0", "--key", "short.key"]);
    assert!(said.contains("short.key has 5 bytes"), "{said}");
}

#[test]
fn what_is_called_wrongly_is_told_how_to_call_it() {
    let folder = folder();
    for (words, due) in [
        (&[][..], "give ROOT"),
        (&["data", "--root", "data"][..], "cannot be used with"),
        (&["data", "--memory", "5GB"][..], "not a number of bytes"),
        (&["data", "--window", "0"][..], "--window"),
        (&["data", "--listen", "nowhere:x"][..], "give HOST:PORT"),
    ] {
        let output = percolator(folder.path(), words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(due), "{words:?}: {said}");
    }
}

/// The arguments in the manifest for Kubernetes are the command's: with them, it still answers --help.
#[test]
fn the_manifest_calls_the_command_as_it_is() {
    let manifest = common::repository().join("crates/percolator-serve/examples/kubernetes/serve.yaml");
    let text = fs::read_to_string(manifest).unwrap();
    let words: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- --"))
        .map(|word| format!("--{word}"))
        .collect();
    assert!(words.len() > 5 && words.iter().any(|word| word.starts_with("--root=")), "{words:?}");
    let words: Vec<_> = words.iter().map(|word| &**word).chain(["--help"]).collect();
    let output = percolator(Path::new("/"), &words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--tls-clients"));
}
