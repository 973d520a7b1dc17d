//! Processes count up one record, and are killed at any moment: no count is lost that one of them reported,
//! none is made twice, and the others go on.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use percolator_cluster::metadata::{FolderMetadata, Metadata as _, Outcome, Transaction};

use crate::process::sample::times;
use crate::process::{child_command, role, this_test};

const PROCESSES: usize = 3;
const KILLS: usize = 300;

/// Far longer than a count takes.
const HUNG_AFTER: Duration = Duration::from_secs(60);

/// Counts up for ever, and prints each count that it made. Each count also replaces a record of its own that
/// is large enough to have pages of its own.
fn count(folder: &str) {
    let records = FolderMetadata::open(folder).unwrap();
    let (_, process) = folder.rsplit_once('/').unwrap();
    loop {
        let found = records.read("/count").unwrap();
        let (count, transaction) = match found.get("/count") {
            None => (1, Transaction::new().when_missing("/count")),
            Some(record) => {
                let count: usize = str::from_utf8(&record.value).unwrap().parse().unwrap();
                (count + 1, Transaction::new().when_modified("/count", record.modified))
            }
        };
        let (large, removed) =
            (format!("/{process}/{}", count % 50), format!("/{process}/{}", (count + 7) % 50));
        let bytes = vec![u8::try_from(count % 251).unwrap(); count * 37 % 20_000];
        let transaction = transaction.put("/count", count.to_string()).put(large, bytes).remove(removed);
        if let Outcome::Committed(_) = records.transact(&transaction).unwrap() {
            println!("counted {count}");
        }
    }
}

/// A process that counts. What it says is sent with its place; `None` when it has ended.
fn start(test: &str, folder: &Path, place: usize, said: &Sender<(usize, Option<usize>)>) -> Child {
    let mut command = child_command(test, folder.to_str().unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (lines, said) = (BufReader::new(child.stdout.take().unwrap()).lines(), said.clone());
    thread::spawn(move || {
        for line in lines.map(Result::unwrap) {
            if let Some((_, count)) = line.split_once("counted ") {
                let _ = said.send((place, Some(count.parse().unwrap())));
            }
        }
        let _ = said.send((place, None));
    });
    child
}

fn hear(said: &Receiver<(usize, Option<usize>)>) -> (usize, Option<usize>) {
    said.recv_timeout(HUNG_AFTER).expect("all processes hang")
}

#[test]
fn processes_that_are_killed_lose_nothing() {
    if let Some(folder) = role() {
        return count(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let (say, said) = channel();
    let test = this_test!();
    let mut children: Vec<_> = (0..PROCESSES).map(|place| start(test, folder.path(), place, &say)).collect();
    let mut counts = Vec::new();
    let kills = times(KILLS, 60);
    for kill in 0..kills {
        // After some counts of all of them, whichever comes then is killed, or its neighbour, whose turn it
        // may be.
        let mut last = 0;
        for _ in 0..=kill * 5 % 7 {
            let (place, count) = hear(&said);
            counts.push(count.expect("it was not killed"));
            last = place;
        }
        let victim = (last + kill % 2) % PROCESSES;
        // SIGKILL, whatever it is doing.
        children[victim].kill().unwrap();
        children[victim].wait().unwrap();
        // What it said before.
        loop {
            match hear(&said) {
                (place, None) if place == victim => break,
                (_, count) => counts.push(count.expect("it was not killed")),
            }
        }
        children[victim] = start(test, folder.path(), victim, &say);
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(say);
    counts.extend(said.into_iter().filter_map(|(_, count)| count));

    let records = FolderMetadata::open(folder.path()).unwrap();
    let found = records.read("/count").unwrap();
    let last: usize = str::from_utf8(&found.records[0].value).unwrap().parse().unwrap();
    let reported = counts.len();
    counts.sort_unstable();
    counts.dedup();
    assert_eq!(counts.len(), reported, "a count was made twice");
    assert!(counts.last().is_some_and(|&count| count <= last), "a count was lost: {last} is there");
    // Whoever is killed leaves at most one that it did not report.
    let unreported = last - reported;
    assert!(unreported <= kills + PROCESSES, "{unreported} counts were not reported");
    println!("{last} counts, {unreported} of them not reported");
}

/// A process is killed while it makes the folder: the next one finds a folder without records, or makes it.
#[test]
fn a_folder_that_is_being_made_is_whole_or_absent() {
    const FOLDERS: usize = 60;
    if let Some(folder) = role() {
        println!("making");
        let records = FolderMetadata::open(folder).unwrap();
        let Outcome::Committed(_) = records.transact(&Transaction::new().put("a", "1")).unwrap() else {
            panic!("nobody else is there")
        };
        println!("made");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut unmade, mut empty) = (0, 0);
    let folders = times(FOLDERS, 15);
    for number in (0..folders).map(|number| number * FOLDERS / folders) {
        let folder = folder.path().join(number.to_string());
        let mut command = child_command(this_test!(), folder.to_str().unwrap());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("making")));
        // A little later each time.
        (0..number * 100).for_each(|_| thread::yield_now());
        child.kill().unwrap();
        child.wait().unwrap();
        let was_made = lines.any(|line| line == "made");
        unmade += usize::from(!folder.join("metadata.sqlite").exists());
        let found = FolderMetadata::open(&folder).unwrap().read("").unwrap().records;
        assert!(found.len() == 1 || !was_made, "a record was lost");
        empty += usize::from(found.is_empty());
        let left: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["metadata.sqlite"], "what was left is removed");
    }
    println!("{folders} folders, {unmade} killed before they were made, {empty} before there was a record");
}
