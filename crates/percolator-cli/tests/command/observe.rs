//! A run that is watched: by its metrics, by a trace, in a terminal. Each test runs the command as a user
//! does.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use percolator_observe::parse;
use rustix::io::Errno;
use rustix::termios::{Action, tcflow};

use crate::common;
use crate::common::process::must_end;
use crate::common::words_of;
use crate::pty::{ENTER, Pty};

fn percolator(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(args).current_dir(folder).env_remove("RUST_LOG");
    command
}

/// A folder with a database of 60 images.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    fs::create_dir(&db).unwrap();
    common::write_images(&db, 60, 3, 8, 8);
    folder
}

const FEED: [&str; 4] = ["feed", "db", "--batch-size", "4"];
/// Long enough for anything that a test does meanwhile; the test ends it.
const LONG: [&str; 2] = ["--seconds", "300"];

/// Starts a feed that publishes metrics at a port that the system chooses; returns its address.
fn publishing(folder: &Path, more: &[&str]) -> (Child, String, BufReader<std::process::ChildStdout>) {
    let args = [&FEED[..], &["--metrics", "0", "--step-ms", "1"], more].concat();
    let mut child = percolator(folder, &args).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("metrics: ") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it says where its metrics are");
    }
    let url = line.trim().strip_prefix("metrics: ").unwrap().to_owned();
    (child, url, out)
}

fn get(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn metrics_are_served_while_a_feed_runs_and_agree_with_its_report() {
    let folder = folder();
    let (mut child, url, mut out) = publishing(folder.path(), &LONG);
    assert!(url.starts_with("http://127.0.0.1:"), "only this machine may ask: {url}");
    let mut before = 0;
    for _ in 0..5 {
        let feeds = parse(&get(&url)).unwrap();
        assert_eq!((feeds.len(), &*feeds[0].0), (1, "feed"));
        let stats = &feeds[0].1.stats;
        let lane = &stats.lanes[0];
        assert_eq!((stats.lanes.len(), &*lane.device), (1, "host:0"));
        // They are read one after the other, while the feed runs.
        assert!(lane.records.abs_diff(4 * lane.batches) <= 4, "{lane:?}");
        assert!(stats.reader.records >= lane.records && lane.batches >= before);
        before = lane.batches;
    }
    let output = percolator(folder.path(), &["watch", &url, "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "percolator.watch/1");
    let metrics = json["metrics"].as_array().unwrap();
    let batches = metrics.iter().find(|metric| metric["name"] == "percolator_batches_total").unwrap();
    assert!(batches["value"].as_u64().unwrap() >= before && batches["labels"]["lane"] == "0", "{batches}");
    interrupt(&child);
    let mut report = String::new();
    out.read_to_string(&mut report).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let counted = report.lines().find(|line| line.starts_with("host:0 ")).unwrap();
    let reported: u64 = counted.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(reported >= before, "{report}");
}

#[test]
fn a_program_that_is_gone_is_an_error() {
    // Nobody listens at a port from which somebody else is connected, and nobody can.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let url = format!("http://{}/metrics", stream.local_addr().unwrap());
    let output = percolator(Path::new("/"), &["watch", &url, "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("does the program run"));
}

#[test]
fn what_cannot_be_watched_is_refused_before_anything_is_read() {
    let folder = folder();
    let refuse = |args: &[&str], code: i32| {
        let output = percolator(folder.path(), args).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(output.stdout.is_empty(), "{args:?}");
        message
    };
    let of_feed = |more: &[&str], code| refuse(&[&FEED[..], more].concat(), code);
    assert!(of_feed(&["--watch"], 2).contains("but the standard output is not one"));
    assert!(refuse(&["watch", "http://127.0.0.1:1"], 2).contains("--json"));
    assert!(refuse(&["watch", "127.0.0.1:9464", "--json"], 2).contains("http://HOST:PORT"));
    assert!(refuse(&["watch"], 2).contains("<URL>"));
    assert!(of_feed(&["--metrics", "nowhere:x"], 2).contains("give HOST:PORT"));
    assert!(of_feed(&["--force"], 2).contains("--trace"));
    fs::write(folder.path().join("run.json"), "somebody's").unwrap();
    assert!(of_feed(&["--trace", "run.json"], 2).contains("--force to replace it"));
    let message = of_feed(&["--trace", "run.json", "--force"], 2);
    assert!(
        message.contains("run.json: it already exists and is no trace, so it is not replaced"),
        "{message}"
    );
    let data = fs::read(folder.path().join("db/data.mdb")).unwrap();
    for option in ["--trace", "--snapshot", "--receipt"] {
        let force = if option == "--trace" { &["--force"][..] } else { &[] };
        let message = of_feed(&[&[option, "db/data.mdb", "--epochs", "1"], force].concat(), 2);
        assert!(message.contains("db/data.mdb: it already exists and is no "), "{message}");
    }
    assert!(fs::read(folder.path().join("db/data.mdb")).unwrap() == data);
    fs::write(folder.path().join("run.json"), "{\"displayTimeUnit\":\"ms\"").unwrap();
    let message = of_feed(&["--trace", "run.json", "--force", "--snapshot", "./run.json"], 2);
    assert!(message.contains("--snapshot and --trace are both run.json"), "{message}");
    let skips = ["--bad-records", "skip", "--quarantine", "s", "--snapshot", "./s"];
    assert!(of_feed(&skips, 2).contains("--snapshot and --quarantine are both s"));
    assert!(of_feed(&["--trace", "no/run.json"], 2).contains("no/run.json"));
    assert_eq!(fs::read_to_string(folder.path().join("run.json")).unwrap(), "{\"displayTimeUnit\":\"ms\"");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = percolator(folder.path(), &[&FEED[..], &["--metrics", &address]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}

#[test]
fn a_trace_is_whole_when_the_run_ends_and_absent_before() {
    let folder = folder();
    let path = folder.path().join("run.json");
    let count = |phase: &str| {
        let trace: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).count()
    };
    let run = |more: &[&str]| {
        let output = percolator(folder.path(), &[&FEED[..], &["--trace", "run.json"], more].concat());
        let output = { output }.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let said = run(&["--once", "--nvtx"]);
    assert!(said.contains("of 15 batches"), "{said}");
    assert_eq!((count("s"), count("f")), (15, 15));
    // Batches that were ready, and never taken, are in it as well.
    assert!(run(&["--batches", "3", "--force"]).contains("of 3 batches"));
    assert_eq!(count("s"), count("f"), "every flow ends");
    assert!(count("f") >= 3);
    // A feed that ends by an error leaves what it did until then.
    fs::remove_file(&path).unwrap();
    let output = percolator(folder.path(), &[&FEED[..], &["--trace", "run.json", "--crop", "99"]].concat());
    assert!(!{ output }.output().unwrap().status.success());
    assert!(!path.exists(), "this one never started");
    // Interrupted, it is whole as well.
    let (mut child, _, mut out) = publishing(folder.path(), &[&LONG[..], &["--trace", "run.json"]].concat());
    assert!(!path.exists());
    interrupt(&child);
    out.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(count("X") > 0);
    // Killed, it is absent.
    fs::remove_file(&path).unwrap();
    let (mut child, _, _out) = publishing(folder.path(), &[&LONG[..], &["--trace", "run.json"]].concat());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!path.exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_leaves_no_trace_and_the_run_says_so() {
    let folder = folder();
    // No file may have more than 512 blocks: what is more is refused, as on a full disk.
    let args = [&FEED[..], &["--trace", "run.json", "--batches", "2000"]].concat();
    let command = format!("ulimit -f 512; exec \"$0\" {}", args.join(" "));
    let output = Command::new("sh")
        .args(["-c", &command, env!("CARGO_BIN_EXE_percolator")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("run.json: cannot write the trace, and no file is left"), "{message}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("2000 batches"), "the run itself went on");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["db"]);
}

#[test]
fn the_live_view_starts_reacts_to_keys_and_gives_the_terminal_back() {
    let folder = folder();
    for columns in [40, 120] {
        let args =
            [&FEED[..], &["--watch", "--threads", "1", "--step-ms", "1", "--snapshot", "s"], &LONG].concat();
        let mut pty = Pty::start(percolator(folder.path(), &args), columns, 24);
        let drawn = pty.wait_for(ENTER, 0);
        assert!(pty.is_raw());
        for part in ["RUNNING", "reader", "runs 0", "workers", "lane 0", "memory", "quit"] {
            pty.wait_for(part, drawn);
        }
        pty.press("p");
        let paused = pty.wait_for("PAUSED", drawn);
        pty.press("p");
        let resumed = pty.wait_for("RUNNING", paused);
        pty.press("+");
        let more = pty.wait_for("worker", resumed);
        pty.press("-");
        pty.wait_for("1", more);
        // Left while it is paused: its consumers wait then.
        pty.press("pq");
        assert!(pty.end().success());
        pty.check_given_back();
        pty.wait_for("what held the others up", more);
        fs::remove_file(folder.path().join("s")).unwrap();
    }
}

#[test]
fn signals_and_ctrl_c_end_the_live_view_as_they_end_a_run() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--step-ms", "1", "--trace", "run.json", "--force"], &LONG].concat();
    for (how, code) in [("INT", 130), ("TERM", 143), ("\x03", 130)] {
        let mut pty = Pty::start(percolator(folder.path(), &args), 80, 24);
        let drawn = pty.wait_for("RUNNING", 0);
        // Paused or not.
        pty.press("p");
        pty.wait_for("PAUSED", drawn);
        match how {
            "\x03" => pty.press(how),
            signal => pty.signal(signal),
        }
        assert_eq!(pty.end().code(), Some(code));
        pty.check_given_back();
        pty.wait_for("stopped by SIG", drawn);
        assert!(folder.path().join("run.json").exists());
    }
}

#[test]
fn other_signals_end_the_process_as_they_do_and_give_the_terminal_back() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--step-ms", "1"], &LONG].concat();
    for (name, number) in [("QUIT", 3), ("ABRT", 6), ("USR1", 10), ("USR2", 12), ("ALRM", 14)] {
        // No core is left. What a shell started in the background ignores SIGQUIT, and so would the command.
        let mut command = Command::new("env");
        let script = "ulimit -c 0; exec \"$0\" \"$@\"";
        command.args(["--default-signal", "sh", "-c", script, env!("CARGO_BIN_EXE_percolator")]);
        command.args(&args).current_dir(folder.path());
        let mut pty = Pty::start(command, 80, 24);
        pty.wait_for("RUNNING", 0);
        pty.signal(name);
        assert_eq!(pty.end().signal(), Some(number), "{name}");
        pty.check_given_back();
    }
    // Of two of a kind, the second may come when the run has ended.
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let mut pty = Pty::start(percolator(folder.path(), &args), 80, 24);
        pty.wait_for("RUNNING", 0);
        pty.signal(name);
        pty.signal(name);
        let status = pty.end();
        assert!(status.signal() == Some(number) || status.code() == Some(128 + number), "{name}: {status}");
        pty.check_given_back();
    }
}

#[test]
fn keys_are_heard_behind_a_text_that_was_pasted() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--step-ms", "1"], &LONG].concat();
    for (key, code) in [("q", 0), ("\x03", 130)] {
        let mut pty = Pty::start(percolator(folder.path(), &args), 80, 24);
        pty.wait_for("RUNNING", 0);
        // In one go, and nothing comes after it.
        pty.press(&("x".repeat(3000) + key));
        assert_eq!(pty.end().code(), Some(code));
        pty.check_given_back();
    }
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--step-ms", "1"], &LONG].concat();
    for (columns, rows) in [(30_000, 30_000), (65_535, 65_535), (0, 0), (1, 1)] {
        let mut pty = Pty::start(percolator(folder.path(), &args), columns, rows);
        let drawn = pty.wait_for(ENTER, 0);
        if columns > 1 {
            pty.wait_for("RUNNING", drawn);
        }
        pty.press("q");
        assert_eq!(pty.end().code(), Some(0), "{columns} x {rows}: {}", pty.written());
        pty.check_given_back();
    }
}

/// A run that is drawn in a terminal which is stopped, as when a connection stands still: a write to it
/// waits. Returns the ends of the terminal, too, ours first.
fn unread(folder: &Path, args: &[&str]) -> (Child, [File; 2]) {
    let (mut ours, theirs) = crate::pty::terminal(80, 24);
    let end = || theirs.try_clone().unwrap();
    let child = percolator(folder, args).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    let (mut drawn, mut bytes) = (String::new(), [0; 4096]);
    while !drawn.contains("RUNNING") {
        let count = ours.read(&mut bytes).unwrap();
        drawn += &String::from_utf8_lossy(&bytes[..count]);
    }
    // Filling it would not tell: a write that must not wait is refused while another one is under way, too.
    tcflow(&theirs, Action::OOff).unwrap();
    (child, [ours, theirs])
}

/// Waits until a run has written its outputs.
#[track_caller]
fn wait_for_outputs(child: &mut Child, outputs: &[PathBuf]) {
    let start = std::time::Instant::now();
    while !outputs.iter().all(|path| path.exists()) {
        if start.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            panic!("it never ended");
        }
        std::thread::yield_now();
    }
}

/// A run that waits for ever at its end: nobody reads its report.
#[test]
fn ctrl_c_in_the_view_counts_as_the_first_interrupt() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--step-ms", "1", "--epochs", "0", "--snapshot", "s"]].concat();
    let (mut child, [mut ours, ..]) = unread(folder.path(), &args);
    ours.write_all(b"\x03").unwrap();
    wait_for_outputs(&mut child, &[folder.path().join("s")]);
    interrupt(&child);
    let ended = must_end("a run that was interrupted twice", move || child.wait().unwrap());
    assert_eq!(ended.signal(), Some(2), "{ended}");
}

#[test]
fn a_terminal_that_nobody_reads_does_not_keep_a_run_from_its_end() {
    let folder = folder();
    for (how, code) in [("TERM", 143), ("q", 0), ("--seconds", 0)] {
        let limit = if how == "--seconds" { ["--seconds", "3"] } else { LONG };
        let outputs = ["--epochs", "0", "--snapshot", "s", "--receipt", "r"];
        let args = [&FEED[..], &["--watch", "--step-ms", "1"], &outputs, &limit].concat();
        let (mut child, [mut ours, theirs]) = unread(folder.path(), &args);
        match how {
            "TERM" => {
                let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
                assert!(sent.unwrap().success());
            }
            "q" => ours.write_all(b"q").unwrap(),
            _ => {}
        }
        let outputs = ["s", "r"].map(|name| folder.path().join(name));
        wait_for_outputs(&mut child, &outputs);
        // Now it goes on, and somebody reads to the end of what the program says.
        tcflow(&theirs, Action::OOn).unwrap();
        let mut bytes = [0; 4096];
        let reader = std::thread::spawn(move || while ours.read(&mut bytes).is_ok_and(|count| count > 0) {});
        assert_eq!(child.wait().unwrap().code(), Some(code), "{how}");
        drop(theirs);
        reader.join().unwrap();
        outputs.iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

/// As when a connection is lost, and the system's signal with it.
#[test]
fn a_terminal_that_is_gone_ends_the_run_and_loses_nothing() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--step-ms", "1", "--epochs", "0", "--snapshot", "s"]].concat();
    let (mut ours, theirs) = crate::pty::terminal(80, 24);
    let end = || theirs.try_clone().unwrap();
    let mut command = percolator(folder.path(), &args);
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop((theirs, command));
    let (mut drawn, mut bytes) = (String::new(), [0; 4096]);
    while !drawn.contains("RUNNING") {
        let count = ours.read(&mut bytes).unwrap();
        drawn += &String::from_utf8_lossy(&bytes[..count]);
    }
    drop(ours);
    let start = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed().as_secs() > 60 {
            child.kill().unwrap();
        }
        std::thread::yield_now();
    };
    assert_eq!(status.code(), Some(2), "{status}");
    assert!(folder.path().join("s").exists());
}

#[test]
fn a_hangup_ends_a_run_as_an_interrupt_does() {
    let folder = folder();
    let args = [&["--epochs", "0", "--snapshot", "s"][..], &LONG].concat();
    // Under `nohup` the tests ignore the signal, and a child would, too. What is caught here is not ignored
    // there: a new program starts with the default.
    let default = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGHUP, default).unwrap();
    let (mut child, _, _out) = publishing(folder.path(), &args);
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(129));
    assert!(folder.path().join("s").exists());
}

#[test]
fn the_view_ends_with_the_run() {
    let folder = folder();
    let args = [&FEED[..], &["--watch", "--once", "--step-ms", "20"]].concat();
    let mut pty = Pty::start(percolator(folder.path(), &args), 80, 24);
    assert!(pty.end().success());
    pty.check_given_back();
    pty.wait_for("15 batches", 0);
}

#[test]
fn a_view_without_a_terminal_on_both_ends_is_refused() {
    let folder = folder();
    let (mut child, url, _out) = publishing(folder.path(), &LONG);
    let feed = [&FEED[..], &["--watch"]].concat();
    for args in [&feed[..], &["watch", &url]] {
        // Keys cannot be read.
        let mut pty = Pty::start_without_input(percolator(folder.path(), args), 40, 24);
        assert_eq!(pty.end().code(), Some(2), "{args:?}");
        pty.wait_for("but the standard input is not one", 0);
        assert!(!pty.written().contains(ENTER), "nothing is drawn");
        // The output is a pipe that nobody reads.
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let output = percolator(folder.path(), args).stdout(write).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("but the standard output is not one"), "{message}");
    }
    // What needs no terminal does without a reader.
    for args in [&["watch", &url, "--json"][..], &[&FEED[..], &["--once", "--json"]].concat()] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let output = percolator(folder.path(), args).stdout(write).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
    interrupt(&child);
    child.wait().unwrap();
}

#[test]
fn a_run_is_reported_as_json() {
    let folder = folder();
    let run = |more: &[&str]| {
        let output = percolator(folder.path(), &[&FEED[..], &["--json"], more].concat()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (report, output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (report, code, message) = run(&["--once", "--trace", "run.json", "--metrics", "0", "--threads", "2"]);
    assert_eq!((code, &report["error"]), (Some(0), &serde_json::Value::Null), "{message}");
    assert!(message.contains("metrics: http://127.0.0.1:"), "{message}");
    assert_eq!((report["source"].as_str(), report["source_records"].as_u64()), (Some("db"), Some(60)));
    assert_eq!((&report["trace"]["batches"], &report["sizing"]["threads"]), (&15.into(), &2.into()));
    let metric = |name: &str| {
        let metrics = report["metrics"].as_array().unwrap();
        metrics.iter().find(|metric| metric["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!((metric("percolator_records_total"), metric("percolator_ended")), (60.into(), 1.into()));
    let stages = report["busy"].as_object().unwrap();
    assert_eq!(stages.len(), 4);
    assert!(stages.contains_key(report["bottleneck"].as_str().unwrap()), "{report}");
    assert!(report["memory_budget"][0]["bytes_each"].as_u64().unwrap() > 0);
    // So is one that is stopped, or fails.
    let args = [&FEED[..], &["--json", "--metrics", "0"], &LONG].concat();
    let mut child =
        percolator(folder.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It says so once it catches signals.
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    interrupt(&child);
    let report: serde_json::Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert_eq!((child.wait().unwrap().code(), &report["stopped_by"]), (Some(130), &"SIGINT".into()));
    fs::create_dir(folder.path().join("bad")).unwrap();
    let mut values = Vec::from([common::image(0, 3, 8, 8), common::image(1, 3, 8, 8)]);
    values[1].1.truncate(20);
    common::write_lmdb(&folder.path().join("bad"), values);
    let output = percolator(folder.path(), &["feed", "bad", "--once", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = report["error"].as_str().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains(error) && error.contains("bad"), "{error}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn another_program_is_watched_by_its_metrics() {
    let folder = folder();
    let (mut child, url, _out) = publishing(folder.path(), &LONG);
    let mut pty =
        Pty::start(percolator(folder.path(), &["watch", url.strip_suffix("/metrics").unwrap()]), 80, 24);
    let drawn = pty.wait_for("RUNNING", 0);
    pty.wait_for("lane 0", 0);
    pty.press("p");
    pty.wait_for("watched", drawn);
    interrupt(&child);
    child.wait().unwrap();
    // The other program is gone: that is said, and the picture stays.
    // One word of the reason: the space before it may be on the screen already.
    pty.wait_for(words_of(Errno::CONNREFUSED).rsplit(' ').next().unwrap(), drawn);
    pty.press("q");
    assert!(pty.end().success());
    pty.check_given_back();
    let output = percolator(folder.path(), &["watch", &url, "--feed", "x", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
