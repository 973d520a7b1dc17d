//! What users get wrong with `percolator checkpoints`, and what others leave them: each is said.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use serde_json::Value;

use crate::checkpoints::{Place, outcome, save};
use crate::common::words_of;

fn plain(arguments: &[&str], place: &Place) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.env_remove("RUST_LOG").arg("checkpoints").args(arguments).current_dir(place.path());
    outcome(command)
}

#[test]
fn arguments_that_are_missing_or_wrong_are_named() {
    let place = Place::new();
    let records = ["--metadata-folder", "records"];
    let (code, _, said) = plain(&[], &place);
    assert!(code == 2 && said.contains("Usage: percolator checkpoints [OPTIONS] <COMMAND>"), "{said}");
    for subcommand in ["list", "verify", "gc"] {
        let (code, _, said) = plain(&[subcommand], &place);
        assert!(code == 2 && said.contains("--store <DIR>"), "{said}");
        let (code, _, said) = plain(&[subcommand, "--store", "store"], &place);
        assert!(code == 2 && said.contains("with --etcd URL or --metadata-folder DIR"), "{said}");
        for (store, due) in [("none", "store none is no folder"), ("records/metadata.sqlite", "is no folder")]
        {
            let (code, _, said) = plain(&[&[subcommand, "--store", store][..], &records].concat(), &place);
            assert!(code == 2 && said.contains(due), "{said}");
        }
        let none = [subcommand, "--store", "store", "--metadata-folder", "none"];
        let (code, _, said) = plain(&none, &place);
        assert!(code == 2 && said.contains("none: there are no records"), "{said}");
        let (code, _, said) = place.run(&format!("{subcommand} a/b"));
        assert!(code == 2 && said.contains("the id \"a/b\" has a '/'"), "{said}");
    }
    let (code, _, said) = place.run("restore --id one");
    assert!(code == 2 && said.contains("--out <FILE>"), "{said}");
    let (code, _, said) = place.run("restore --id one --out out");
    assert!(code == 2 && said.contains("the id \"one\" has no checkpoint: "), "{said}");
    for keep in ["0", "65"] {
        let (code, _, said) = place.run(&format!("gc --keep {keep}"));
        assert!(code == 2 && said.contains("from 1 to 64 checkpoints can be kept"), "{said}");
    }
}

#[test]
fn records_that_are_not_understood_are_shown_and_fail_what_needs_them() {
    let place = Place::new();
    save(&place.begin("fine", 1), b"fine");
    place.put("/checkpoints/words", b"model \x1b[31m 7");
    place.put("/checkpoints/new", br#"{"version":2}"#);
    place.put("/checkpoints/a/b", b"{}");
    let (code, listed, said) = place.run("list");
    assert_eq!(code, 0);
    assert!(said.contains("the record /checkpoints/a/b is not that of an id"), "{said}");
    assert!(listed.contains("words\n  the record is no JSON object") && !listed.contains('\x1b'), "{listed}");
    assert!(listed.contains("new\n  the record has version 2, and versions up to 1 are known"), "{listed}");
    let (code, printed, _) = place.run("verify");
    assert_eq!(code, 1);
    assert!(printed.contains("words: the record is no JSON object"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("fine: ") && line.contains("is whole")), "{printed}");
    let (code, printed, _) = place.run("list --json");
    let found: Value = serde_json::from_str(printed.lines().nth(1).unwrap()).unwrap();
    assert!(code == 0 && found["fault"].as_str().unwrap().contains("version 2"), "{found}");
    let (code, _, said) = place.run("restore --id words --out out");
    assert_eq!(code, 2);
    let due = "no checkpoint of the id \"words\" could be restored: the record is no JSON object";
    assert!(said.contains(due) && !place.path().join("out").exists(), "{said}");
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let place = Place::new();
    let one = place.begin("one", 2);
    let (first, second) = (save(&one, b"first"), save(&one, b"second"));
    drop(one);
    // No user may read a folder as a file, not even root.
    fs::remove_file(place.file("one", &second)).unwrap();
    fs::create_dir(place.file("one", &second)).unwrap();
    let (code, printed, _) = place.run("verify");
    assert_eq!(code, 1);
    assert!(printed.contains(&format!("one: {}: could not open ", second.uuid)), "{printed}");
    let said = place.pass("restore --id one --out out");
    assert!(
        said.contains(&format!("an older checkpoint, {}; checkpoint {}: could", first.uuid, second.uuid))
    );
    let missing = format!("none/out: cannot write the file: {}", words_of(Errno::NOENT));
    for (out, due) in [
        ("none/out", &*missing),
        ("/dev/full --force", "/dev/full: cannot write the file: a character device is there"),
        ("store --force", "store: cannot write the file: a folder is there"),
        ("/dev/null", "/dev/null: it already exists; give another path"),
    ] {
        let (code, _, said) = place.run(&format!("restore --id one --out {out}"));
        assert!(code == 2 && said.contains(due), "{said}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let place = Place::new();
    let begun: Vec<_> = (0..40).map(|number| place.begin(&format!("id {number}"), 1)).collect();
    begun.iter().for_each(|one| _ = save(one, b"state"));
    drop(begun);
    for arguments in ["list", "list --json", "verify", "gc", "restore --id 1 --out out"] {
        let mut command = match arguments.starts_with("restore") {
            // The id has a space.
            true => {
                let mut command = place.command("restore --out out");
                command.args(["--id", "id 1"]);
                command
            }
            false => place.command(arguments),
        };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal(), &*said), (Some(0), None, ""), "{arguments}");
    }
    assert!(place.path().join("out").exists(), "what was to be done is done");
}
