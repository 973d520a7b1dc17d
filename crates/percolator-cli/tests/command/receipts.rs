//! `percolator verify-run` and `percolator digest` prove what `percolator feed` delivered, or name what is
//! wrong.

use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

use crate::common;
use crate::common::words_of;

/// The command's exit code and output.
pub(crate) fn command(arguments: &[&str], folder: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .env_remove("RUST_LOG")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

/// Runs one worker of two over a database of 64 records, with a receipt.
fn feed_of_worker(worker: &str, receipt: &str, more: &[&str], folder: &Path) {
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let job = ["feed", lmdb.to_str().unwrap(), "--index", "memory", "--batch-size", "5"];
    let (code, text) = command(
        &[&job[..], &["--workers", "2", "--worker", worker, "--receipt", receipt], more].concat(),
        folder,
    );
    assert_eq!(code, 0, "{text}");
}

#[test]
fn the_command_proves_a_run_and_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for worker in ["0", "1"] {
        feed_of_worker(
            worker,
            &format!("{worker}.receipt"),
            &["--epochs", "2", "--shuffle", "global"],
            folder,
        );
    }
    let verify = |arguments: &[&str]| command(&[&["verify-run"], arguments].concat(), folder);
    let (code, text) = verify(&["0.receipt", "1.receipt", "--epochs", "2"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("epoch 1: covered: 64 records, each once\n"), "{text}");
    assert!(text.contains("all 2 epochs were covered exactly once"), "{text}");
    let (code, text) = verify(&["0.receipt", "1.receipt", "--epochs", "3"]);
    assert!(code == 1 && text.contains("epoch 2 was not covered, and --epochs 3 requires it"), "{text}");

    let (code, text) = verify(&["1.receipt"]);
    assert!(code == 1 && text.contains("no receipt of replica 0 of 2: give those of all ranks"), "{text}");
    assert!(
        text.contains("\n  34 missing: ") && text.contains("replica 0: no receipt has steps 0..7"),
        "{text}"
    );
    let (code, text) = verify(&["0.receipt", "1.receipt", "0.receipt"]);
    assert!(code == 1 && text.contains("\n  34 too often: "), "{text}");
    assert!(text.contains("replica 0: steps 0..7 were given more than once: 0.receipt, 0.receipt"), "{text}");

    let (code, text) = verify(&["--json", "0.receipt", "1.receipt", "1.receipt"]);
    let found: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (code, &found["is_sound"], &found["epochs"][1]["doubled"]["count"]),
        (1, &false.into(), &30.into())
    );
    let (code, text) = verify(&["--json", "0.receipt", "1.receipt"]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &found["is_sound"], &found["epochs"][0]["state"]),
        (0, &true.into(), &"covered".into())
    );

    feed_of_worker("1", "other.receipt", &["--epochs", "2", "--shuffle", "window:7"], folder);
    let (code, text) = verify(&["0.receipt", "other.receipt"]);
    assert!(
        code == 2
            && text.contains("0.receipt has \"shuffle global\", and other.receipt has \"shuffle window 7\""),
        "{text}"
    );
    std::fs::write(folder.join("cut.receipt"), "percolator receipt 1\nsource").unwrap();
    let (code, text) = verify(&["0.receipt", "cut.receipt"]);
    assert!(code == 2 && text.contains("cut.receipt: not a valid receipt: it is cut short"), "{text}");
    assert_eq!(verify(&[]).0, 2);
}

#[test]
fn the_command_proves_the_bytes_and_says_what_it_cannot_prove() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let lmdb = lmdb.to_str().unwrap();
    let well = |arguments: &[&str]| {
        let (code, text) = command(arguments, folder);
        assert_eq!(code, 0, "{text}");
        text
    };
    let said = well(&["digest", lmdb, "--out", "sum.digest"]);
    let printed = well(&["digest", lmdb]);
    assert_eq!(printed, std::fs::read_to_string(folder.join("sum.digest")).unwrap());
    let contents = printed.lines().find_map(|line| line.strip_prefix("contents ")).unwrap();
    assert!(said.ends_with(&format!("{contents}\n")) && contents.ends_with(" of 64"), "{said}");
    well(&["digest", lmdb, "--each-record", "--out", "each.digest"]);
    // The same records in a LevelDB have the same contents; `both.digest` covers both databases.
    let leveldb = common::repository().join("tests/data/golden/raw_leveldb_ldb");
    let other = well(&["digest", leveldb.to_str().unwrap()]);
    assert!(other.contains(&format!("contents {contents}\n")), "{other}");
    well(&["digest", lmdb, leveldb.to_str().unwrap(), "--out", "both.digest"]);

    let contents = ["--receipt-contents", "--shuffle", "global", "--digest", "sum.digest"];
    for worker in ["0", "1"] {
        feed_of_worker(
            worker,
            &format!("{worker}.receipt"),
            &[&["--epochs", "2"], &contents[..]].concat(),
            folder,
        );
        let more = ["--epochs", "0", "--batches", "9"];
        feed_of_worker(worker, &format!("{worker}.stopped"), &[&more, &contents[..]].concat(), folder);
        let more = ["--epochs", "1", "--last-batch", "drop"];
        feed_of_worker(worker, &format!("{worker}.drop"), &[&more, &contents[..]].concat(), folder);
        feed_of_worker(
            worker,
            &format!("{worker}.without"),
            &["--epochs", "2", "--shuffle", "global"],
            folder,
        );
    }
    let verify = |of: &str, digest: &str| {
        let receipts = [format!("0.{of}"), format!("1.{of}")];
        command(&["verify-run", &receipts[0], &receipts[1], "--digest", digest], folder)
    };
    for digest in ["sum.digest", "each.digest"] {
        let (code, text) = verify("receipt", digest);
        assert!(
            code == 0 && text.contains("epoch 1: covered: 64 records, each once; bytes as in the data set\n"),
            "{text}"
        );
        let (code, text) = verify("without", digest);
        assert!(code == 1 && text.contains("run feed with --receipt-contents"), "{text}");
    }
    let (code, text) = verify("stopped", "sum.digest");
    assert!(code == 0 && text.contains("20 of 64 records; bytes not proven"), "{text}");
    let (code, text) = verify("stopped", "each.digest");
    assert!(code == 0 && text.contains("20 of 64 records; bytes as in the data set"), "{text}");
    let (code, text) = verify("drop", "sum.digest");
    assert!(code == 1 && text.contains("make the digest with --each-record"), "{text}");
    assert_eq!(verify("drop", "each.digest").0, 0);
    let (code, text) = verify("receipt", "both.digest");
    assert!(code == 2 && text.contains("both.digest has \"128 records\""), "{text}");
}

/// A digest of other data, of the same length, and with the same first and last record.
#[test]
fn a_net_is_digested_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let data = format!("source: {lmdb:?} backend: LMDB batch_size: 4");
    let net = format!("layer {{ name: \"d\" type: \"Data\" top: \"data\" data_param {{ {data} }} }}");
    std::fs::write(folder.path().join("net.prototxt"), net).unwrap();
    let contents = |path: &str| {
        let (code, text) = command(&["digest", path, "--json", "--quiet"], folder.path());
        assert_eq!(code, 0, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["contents"].clone()
    };
    let of_net = contents("net.prototxt");
    assert!(of_net.is_string() && of_net == contents(lmdb.to_str().unwrap()), "{of_net}");
}

#[test]
fn the_command_refuses_other_data_by_their_digest() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let lmdb = lmdb.to_str().unwrap();
    let well = |arguments: &[&str]| {
        let (code, text) = command(arguments, folder);
        assert_eq!(code, 0, "{text}");
        text
    };
    let fails = |arguments: &[&str], due: &str| {
        let (code, text) = command(arguments, folder);
        assert!(code == 2 && text.contains(due), "{text}");
    };
    let printed = well(&["digest", lmdb]);
    std::fs::write(folder.join("sum.digest"), &printed).unwrap();
    well(&["digest", lmdb, lmdb, "--out", "both.digest"]);
    let forged = printed.lines().map(|line| match line.strip_prefix("contents ") {
        Some(_) => "contents 00000000000000000000000000000001 of 64\n".to_owned(),
        None => format!("{line}\n"),
    });
    let forged: String = forged.filter(|line| !line.starts_with("checksum ")).collect();
    let forged = format!("{forged}checksum {:08x}\n", crc32c::crc32c(forged.as_bytes()));
    std::fs::write(folder.join("forged.digest"), forged).unwrap();
    let job = ["feed", lmdb, "--batch-size", "5", "--epochs", "1"];
    let feed = |more: &[&str]| well(&[&job[..], more].concat());
    feed(&["--receipt", "alone.receipt", "--receipt-contents"]);
    feed(&["--receipt", "given.receipt", "--receipt-contents", "--digest", "sum.digest"]);
    // The feed had another digest.
    fails(
        &["verify-run", "given.receipt", "--digest", "forged.digest"],
        "they do not belong to the same data set",
    );
    let (code, text) = command(&["verify-run", "alone.receipt", "--digest", "forged.digest"], folder);
    assert!(
        code == 1 && text.contains("the bytes delivered in epoch 0 differ from the data set's"),
        "{text}"
    );
    let (_, text) = command(&["verify-run", "alone.receipt", "--digest", "forged.digest", "--json"], folder);
    let found: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let contents = &found["epochs"][0]["contents"];
    assert_eq!((&found["is_sound"], &contents["state"]), (&false.into(), &"differ".into()));
    assert_eq!(contents["deviations"][0]["due"], "00000000000000000000000000000001 of 64");
    // A run does not resume with another digest.
    feed(&["--batches", "3", "--digest", "sum.digest", "--snapshot", "run.snapshot"]);
    let resume = ["--index", "memory", "--resume", "run.snapshot", "--digest"];
    fails(&[&job[..], &resume, &["forged.digest"]].concat(), "the snapshot was not taken of");
    fails(&[&job[..], &resume, &["both.digest"]].concat(), "the digest is of other data");
    feed(&[&resume[..], &["sum.digest"]].concat());
    fails(&["verify-run", "alone.receipt", "--digest", "run.snapshot"], "it is not a digest");
    assert_eq!(command(&["feed", lmdb, "--receipt-contents"], folder).0, 2);
}

#[test]
fn the_command_says_how_far_a_run_has_come_that_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for worker in ["0", "1"] {
        feed_of_worker(worker, &format!("{worker}.receipt"), &["--epochs", "0", "--batches", "9"], folder);
    }
    let (code, text) = command(&["verify-run", "0.receipt", "1.receipt"], folder);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("epoch 1: under way: steps 0..2 of 7, 20 of 64 records"), "{text}");
    assert!(text.contains("1 epoch was covered exactly once, 1 under way"), "{text}");
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let ring = ["feed", lmdb.to_str().unwrap(), "--batches", "2", "--receipt", "ring.receipt"];
    let (code, text) = command(&ring, folder);
    assert!(code == 2 && text.contains("--epochs 0 --assignment caffe"), "{text}");
    let (code, text) = command(&[&ring[..], &["--epochs", "0", "--assignment", "caffe"]].concat(), folder);
    assert_eq!(code, 0, "{text}");
    assert_eq!(command(&["verify-run", "ring.receipt"], folder).0, 0);
}

/// Like a kill between the two files: the receipt's folder is gone when the run stops.
#[test]
fn a_receipt_that_is_not_there_yet_is_written_when_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let job =
        ["feed", lmdb.to_str().unwrap(), "--index", "memory", "--batch-size", "5", "--shuffle", "global"];
    std::fs::create_dir(folder.join("receipts")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .env_remove("RUST_LOG")
        .args(job)
        .args(["--epochs", "0", "--step-ms", "3600000", "--snapshot", "s", "--receipt", "receipts/0"])
        .current_dir(folder)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The command catches signals before it prints its first line.
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut String::new(),
    )
    .unwrap();
    std::fs::remove_dir(folder.join("receipts")).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && message.contains("cannot write the receipt"), "{message}");
    let goes_on =
        [&job[..], &["--resume", "s", "--epochs", "1", "--receipt", "1", "--snapshot", "s"]].concat();
    let (code, text) = command(&goes_on, folder);
    assert!(code == 2 && text.contains("receipts/0: cannot write the receipt"), "{text}");
    std::fs::create_dir(folder.join("receipts")).unwrap();
    let (code, text) = command(&goes_on, folder);
    assert_eq!(code, 0, "{text}");
    let (code, text) = command(&["verify-run", "--epochs", "1", "receipts/0", "1"], folder);
    assert_eq!(code, 0, "{text}");
    let (code, _) = command(&["verify-run", "--epochs", "1", "1"], folder);
    assert_eq!(code, 1, "the first session's is needed");
}

#[test]
fn a_run_that_goes_on_adds_to_its_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lmdb = common::repository().join("tests/data/golden/raw_lmdb");
    let feed = |more: &[&str]| {
        let job = ["feed", lmdb.to_str().unwrap(), "--index", "memory", "--epochs", "2", "--receipt", "r"];
        command(&[&job[..], more].concat(), folder)
    };
    std::fs::write(folder.join("r"), "").unwrap();
    let (code, text) = feed(&["--batch-size", "5", "--batches", "4", "--snapshot", "s"]);
    assert_eq!(code, 0, "{text}");
    let before = std::fs::read(folder.join("r")).unwrap();
    // A job of other batches divides the steps differently, so one receipt cannot cover both.
    let (code, text) = feed(&["--batch-size", "7", "--resume", "s"]);
    assert!(code == 2 && text.contains("a --receipt of its own"), "{text}");
    assert_eq!(std::fs::read(folder.join("r")).unwrap(), before, "it is as it was");
    // Two runs that resume as one rank would add the same records: one of them goes on, and holds it.
    let held = std::fs::File::open(folder.join("r")).unwrap();
    held.lock().unwrap();
    let (code, text) = feed(&["--batch-size", "5", "--resume", "s"]);
    assert!(code == 2 && text.contains("r: another run that has resumed adds to this receipt"), "{text}");
    // The run that holds it may replace the snapshot, too, which is read only after that.
    let (code, text) = feed(&["--batch-size", "5", "--resume", "no snapshot"]);
    assert!(code == 2 && text.contains("r: another run that has resumed adds to this receipt"), "{text}");
    assert_eq!(std::fs::read(folder.join("r")).unwrap(), before, "it is as it was");
    drop(held);
    let (code, text) = feed(&["--batch-size", "5", "--resume", "s"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = command(&["verify-run", "--epochs", "2", "r"], folder);
    assert_eq!(code, 0, "{text}");
    // A new run replaces the receipt.
    let (code, text) = feed(&["--batch-size", "5"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(command(&["verify-run", "--epochs", "2", "r"], folder).0, 0);
    std::fs::write(folder.join("r"), "something else").unwrap();
    let (code, text) = feed(&["--batch-size", "5", "--resume", "s"]);
    assert!(code == 2 && text.contains("r: it already exists and is no receipt"), "{text}");
}

/// Reading a data set may take an hour.
#[test]
fn the_command_looks_where_a_digest_goes_before_it_looks_at_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("taken")).unwrap();
    let missing = words_of(Errno::NOENT);
    for (out, found) in [("taken", "a folder is there"), ("none/sum.digest", &missing)] {
        let (code, text) = command(&["digest", "no_such_lmdb", "--out", out], folder);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(&format!("{out}: cannot write the digest: {found}")), "{text}");
    }
    // An existing file is untouched until there is something to write, and if it is no digest, for ever.
    let old = "percolator digest 1\n";
    for (content, said) in [(old, "no_such_lmdb"), ("somebody's", "it already exists and is no digest")] {
        std::fs::write(folder.join("old.digest"), content).unwrap();
        let (code, text) = command(&["digest", "no_such_lmdb", "--out", "old.digest"], folder);
        assert!(code == 2 && text.contains(said), "{text}");
        assert_eq!(std::fs::read_to_string(folder.join("old.digest")).unwrap(), content);
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "nothing is left beside it");
}
