//! The file that names bad records, while several processes write it and while its writers are killed: each
//! bad record is there once, and whole.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use percolator::bad::{BadRecords, Quarantined};
use percolator::decoder::Decoded;
use percolator::record::Key;
use percolator::source::{FnSource, Source as _, TfRecord};
use percolator::{DecodeFailure, Dtype, Feed, Field, Receipt, Shuffle, Snapshot};
use percolator_proof::{EpochState, Verdict};

use crate::common;
use crate::common::process::{child_command, role, this_test};

/// A data set of which every second record is bad.
#[derive(Clone, Copy)]
struct Data {
    records: u64,
    bytes: usize,
}

impl Data {
    fn value(self, number: u64) -> Vec<u8> {
        let mut value = number.to_le_bytes().to_vec();
        value.resize(self.bytes, u8::try_from(number % 251).unwrap());
        value
    }

    fn bad(self) -> Vec<u64> {
        (1..self.records).step_by(2).collect()
    }

    /// The numbers of the records that the file names, each of which is whole.
    fn named(self, file: &Path) -> Vec<u64> {
        let mut named = Vec::new();
        for entry in Quarantined::read(file).unwrap() {
            assert!(entry.value == self.value(entry.number), "the bytes of record {}", entry.number);
            assert_eq!((entry.source.as_path(), &*entry.reason), (Path::new("made"), "it is odd"));
            assert_eq!(entry.key, Key(format!("{:08}", entry.number).into_bytes()));
            assert!(!named.contains(&entry.number), "record {} is named twice", entry.number);
            named.push(entry.number);
        }
        named
    }

    /// Checks that the file names each bad record once, and has nothing else.
    fn check(self, file: &Path) {
        let mut named = self.named(file);
        named.sort_unstable();
        assert_eq!(named, self.bad());
        let source = TfRecord::open(file).unwrap();
        let mut cursor = source.cursor().unwrap();
        for _entry in named {
            assert!(cursor.advance().unwrap().is_some());
        }
        assert!(cursor.advance().unwrap().is_none(), "there is more than entries");
    }
}

/// A process that feeds the data once, and names the bad records.
struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it. It waits where its feed is built.
    fn start(test: &str, data: Data, seed: u64, file: &Path) -> Self {
        let role = format!("{} {} {seed} {}", data.records, data.bytes, file.display());
        let mut command = child_command(test, &role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Process { child, said };
        process.wait_until_it_says("ready");
        process
    }

    fn begin(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn wait_until_it_says(&mut self, word: &str) {
        let line = self.said.by_ref().map(Result::unwrap).find(|line| line.ends_with(word));
        assert!(line.is_some(), "it ended before it said {word}");
    }

    fn end(mut self) {
        self.wait_until_it_says("done");
        assert!(self.child.wait().unwrap().success());
    }

    /// Kills it when the file has this many bytes; `false` if it has ended before.
    fn kill_at(mut self, file: &Path, bytes: u64) -> bool {
        while length(file) < bytes && self.child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        let is_killed = status.signal() == Some(libc::SIGKILL);
        assert!(is_killed || status.success(), "it ended with {status}");
        is_killed
    }
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |found| found.len())
}

/// What such a process does.
fn run(role: &str) {
    let [records, bytes, seed, file] = role.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let data = Data { records: records.parse().unwrap(), bytes: bytes.parse().unwrap() };
    let source = FnSource::new("made", data.records, move |number, to| {
        to.extend(data.value(number));
        Ok(())
    });
    let number = Field::scalar("number", Dtype::I64);
    let feed = Feed::builder().source(source).decode([number], |record, row| -> Decoded {
        let number = i64::from_le_bytes(*record.value.first_chunk().unwrap());
        if number % 2 == 1 {
            return Err(DecodeFailure::new("it is odd"));
        }
        Ok(row.set(0, number)?)
    });
    let feed = feed.shuffle(Shuffle::Global).seed(seed.parse::<u64>().unwrap()).epochs(1);
    let feed = feed.batch_size(3).prefetch(2).threads(3);
    let policy = BadRecords::skip().at_most_rate(1.0).quarantine(file);
    let mut feed = feed.bad_records(policy).build().unwrap();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    feed.steps().for_each(|step| drop(step.unwrap()));
    println!("done");
}

#[test]
fn processes_that_run_at_one_time_name_each_bad_record_once() {
    if let Some(role) = role() {
        return run(&role);
    }
    let folder = tempfile::tempdir().unwrap();
    for (round, bytes) in [8, 100, 5_000, 70_000].into_iter().enumerate() {
        let data = Data { records: 300, bytes };
        let file = folder.path().join(format!("{round}.tfrecord"));
        // Two pairs, each of which comes to the same records at the same time.
        let start = |process: u64| Process::start(this_test!(), data, process / 2, &file);
        let mut processes: Vec<Process> = (0..4).map(start).collect();
        processes.iter_mut().for_each(Process::begin);
        processes.into_iter().for_each(Process::end);
        data.check(&file);
    }
}

/// Records whose entries take the system some time, so that a kill may come in the middle of one.
const LARGE: Data = Data { records: 40, bytes: 3 << 20 };

#[test]
fn a_process_that_is_killed_while_it_writes_the_file_leaves_what_the_next_one_completes() {
    if let Some(role) = role() {
        return run(&role);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.tfrecord");
    let (mut kills, mut cut) = (0, 0);
    // Of a file that is written at once, few kills come in time: then there is another file.
    for _ in 0..100 {
        let mut left = Vec::new();
        for session in 0..1000 {
            let mut process = Process::start(this_test!(), LARGE, session, &file);
            process.begin();
            // Up to two entries more than there are.
            let more = 1 + session * 1_300_021 % (2 * LARGE.bytes as u64);
            if !process.kill_at(&file, length(&file) + more) {
                break;
            }
            left.push((length(&file), LARGE.named(&file).len() as u64));
        }
        LARGE.check(&file);
        let entry_bytes = length(&file) / LARGE.bad().len() as u64;
        kills += left.len();
        cut += left.iter().filter(|(bytes, entries)| *bytes > entries * entry_bytes).count();
        std::fs::remove_file(&file).unwrap();
        if kills >= 10 && cut > 0 {
            break;
        }
    }
    println!("{kills} kills, of which {cut} left a part of an entry");
    assert!(kills >= 10 && cut > 0, "{kills} kills, of which {cut} left a part of an entry");
}

#[test]
fn a_process_goes_on_behind_what_another_one_left_that_was_killed() {
    if let Some(role) = role() {
        return run(&role);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut kills = 0;
    for round in 0..100 {
        let file = folder.path().join(format!("{round}.tfrecord"));
        let mut processes =
            [0, 1].map(|process| Process::start(this_test!(), LARGE, 2 * round + process, &file));
        processes.iter_mut().for_each(Process::begin);
        let [killed, other] = processes;
        kills += usize::from(killed.kill_at(&file, 1 + round % 10 * 5_300_021));
        other.end();
        LARGE.check(&file);
        std::fs::remove_file(&file).unwrap();
        if kills >= 6 {
            return;
        }
    }
    panic!("{kills} kills came while it wrote");
}

/// A run's folder that is copied: its data, its snapshot with a receipt, and its quarantine file.
#[test]
fn a_run_goes_on_in_a_copy_of_its_folder_and_leaves_the_original_alone() {
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = (0..40).map(|index| match index {
        2 | 37 => (common::key(index), vec![0xff]),
        _ => common::image(index, 1, 4, 4),
    });
    common::write_lmdb(&original.path().join("db"), records);
    let feed = |folder: &Path| {
        let bad_records = BadRecords::skip().at_most_rate(1.0).quarantine(folder.join("quarantine"));
        let feed = Feed::builder().lmdb(folder.join("db")).batch_size(4).prefetch(1).threads(1).epochs(1);
        feed.bad_records(bad_records).receipts(true)
    };
    let named = |folder: &Path| -> Vec<(PathBuf, u64)> {
        let entries = Quarantined::read(folder.join("quarantine")).unwrap();
        entries.into_iter().map(|entry| (entry.source, entry.number)).collect()
    };
    let mut begun = feed(original.path()).build().unwrap();
    begun.steps().take(2).for_each(|step| drop(step.unwrap()));
    let (snapshot, receipt) = (begun.snapshot().unwrap(), begun.receipt().unwrap());
    let at = |name: &str| original.path().join(name);
    snapshot.save_with_receipt(at("snapshot"), &receipt, at("receipt")).unwrap();
    drop(begun);
    let files = ["snapshot", "receipt", "quarantine", "db/data.mdb"];
    std::fs::create_dir(copy.path().join("db")).unwrap();
    for file in files {
        std::fs::copy(at(file), copy.path().join(file)).unwrap();
    }
    let before = files.map(|file| std::fs::read(at(file)).unwrap());

    let snapshot = Snapshot::recover(copy.path().join("snapshot")).unwrap();
    let mut resumed = feed(copy.path()).resume(&snapshot).build().unwrap();
    resumed.steps().for_each(|step| drop(step.unwrap()));
    let mut whole = Receipt::load(copy.path().join("receipt")).unwrap();
    whole.merge(&resumed.receipt().unwrap()).unwrap();
    let epoch = &Verdict::of([("whole", &whole)]).unwrap().epochs[0];
    assert_eq!((epoch.state, epoch.delivered, epoch.bad.count), (EpochState::Covered, 38, 2));
    assert_eq!(files.map(|file| std::fs::read(at(file)).unwrap()), before, "the original");
    // An entry says where its record was found, so the copy's records are others.
    let source = |folder: &Path| std::fs::canonicalize(folder.join("db")).unwrap();
    let [old, new] = [original.path(), copy.path()].map(source);
    assert_eq!(named(copy.path()), [(old.clone(), 2), (new.clone(), 37)]);
    feed(copy.path()).build().unwrap().steps().for_each(|step| drop(step.unwrap()));
    assert_eq!(named(copy.path()), [(old, 2), (new.clone(), 37), (new, 2)]);
}
