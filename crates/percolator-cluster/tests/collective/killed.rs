//! Processes over a folder, of which one is killed: the others name it. All are killed, and start again at
//! once: they wait for the leases of those before them, and go on.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use percolator_cluster::metadata::FolderMetadata;
use percolator_distribute::Collective as _;

use super::*;
use crate::process::sample::some_of;
use crate::process::{child_command, role, this_test};

const SIZE: usize = 3;

/// Goes through rounds until one fails, and prints the error. In the last of `rounds`, it stops.
fn process(rank: usize, rounds: u64, folder: &Path) {
    let metadata = Arc::new(FolderMetadata::open(folder).unwrap());
    let group = Group::of(metadata, "digits").ttl(Duration::from_secs(2)).timeout(PATIENCE);
    let end = group.join(rank, SIZE).unwrap();
    for round in 0..rounds {
        match end.all_gather(&[round; 100]) {
            Ok(words) => assert_eq!(words, [round; 100 * SIZE]),
            Err(error) => return println!("\nerror {error}"),
        }
        if round == 5 {
            println!("\nready");
        }
    }
    println!("\ndone");
}

fn start(test: &str, rounds: u64, folder: &Path) -> [(Child, impl Iterator<Item = String> + use<>); SIZE] {
    std::array::from_fn(|rank| {
        let role = format!("{rank} {rounds} {}", folder.display());
        let mut child = child_command(test, &role).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        (child, lines.filter(|line| ["ready", "error", "done"].iter().any(|word| line.starts_with(word))))
    })
}

#[test]
fn a_process_that_is_killed_is_named_and_all_may_start_again_at_once() {
    if let Some(role) = role() {
        let mut words = role.splitn(3, ' ');
        let mut next = || words.next().unwrap();
        let (rank, rounds) = (next().parse().unwrap(), next().parse().unwrap());
        return process(rank, rounds, Path::new(next()));
    }
    let folder = tempfile::tempdir().unwrap();
    for victim in some_of(0..SIZE, 2) {
        let mut processes = start(this_test!(), u64::MAX, folder.path());
        for (_, lines) in &mut processes {
            assert_eq!(lines.next().as_deref(), Some("ready"));
        }
        processes[victim].0.kill().unwrap();
        for (rank, (child, lines)) in processes.iter_mut().enumerate() {
            let status = child.wait().unwrap();
            assert_eq!(status.success(), rank != victim, "{rank}: {status}");
            if rank != victim {
                let due = format!("error process {victim} of 3 has left");
                let told = lines.next().unwrap();
                assert!(told.starts_with(&due), "{told}");
            }
        }
    }
    let mut processes = start(this_test!(), u64::MAX, folder.path());
    for (child, lines) in &mut processes {
        assert_eq!(lines.next().as_deref(), Some("ready"));
        child.kill().unwrap();
    }
    for (mut child, lines) in start(this_test!(), 7, folder.path()) {
        assert_eq!(lines.collect::<Vec<_>>(), ["ready", "done"]);
        assert!(child.wait().unwrap().success());
    }
    for (child, _) in &mut processes {
        child.wait().unwrap();
    }
}
