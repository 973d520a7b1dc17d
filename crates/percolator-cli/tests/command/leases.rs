//! `percolator leases` shows, drains and removes a job whose workers lease blocks; `verify-run --job` proves
//! it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use percolator::source::FnSource;
use percolator::{Feed, LastBatch, RawBytes, Shuffle};
use percolator_cluster::leases::{Job, LeasedFeed, Leases};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _, Transaction};
use serde_json::{Value, json};

/// The command's exit code, what it printed, and its messages.
fn command(arguments: &str, folder: &Path) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .env_remove("RUST_LOG")
        .args(arguments.split(' '))
        .args(["--metadata-folder", "records"])
        .current_dir(folder)
        .output()
        .unwrap();
    let [printed, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), printed, said)
}

fn pass(arguments: &str, folder: &Path) -> String {
    let (code, printed, said) = command(arguments, folder);
    assert_eq!((code, &*said), (0, ""), "{arguments}");
    printed
}

/// A worker of a job of two epochs of 5 steps each, in blocks of 2.
fn worker(folder: &Path) -> LeasedFeed {
    let source = FnSource::new("numbers", 20, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).batch_size(4);
    let feed = feed.shuffle(Shuffle::Global).last_batch(LastBatch::Keep).epochs(2).threads(1).prefetch(2);
    let metadata = Arc::new(FolderMetadata::open(folder.join("records")).unwrap());
    Leases::of(metadata, "digits").worker("me").steps_per_block(2).feed(feed).unwrap()
}

/// Waits until so many blocks are done: the records are told beside the training.
fn wait_until_done(folder: &Path, blocks: u64) {
    let metadata = Arc::new(FolderMetadata::open(folder.join("records")).unwrap());
    let job = Job::open(metadata, "digits").unwrap();
    while job.status().unwrap().done < blocks {
        std::thread::yield_now();
    }
}

#[test]
fn a_job_is_shown_proven_drained_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, _, said) = command("leases status --job digits", folder);
    assert_eq!((code, said.contains("there are no records (metadata.sqlite)")), (2, true), "{said}");

    let mut leased = worker(folder);
    for _ in 0..3 {
        leased.next().unwrap().unwrap();
    }
    wait_until_done(folder, 1);
    let (code, _, said) = command("leases status --job other", folder);
    assert_eq!((code, said.contains("there is no job \"other\"")), (2, true), "{said}");
    let shown = pass("leases status --job digits", folder);
    assert!(shown.contains("2 epochs; an epoch has 5 steps in 3 blocks of 2"), "{shown}");
    assert!(shown.contains("] 1 of 6 blocks done") && shown.contains("\nworker me (process "), "{shown}");
    let found: Value = serde_json::from_str(&pass("leases status --job digits --json", folder)).unwrap();
    assert_eq!(found["schema"], "percolator.leases.status/1");
    assert_eq!((&found["done"], &found["blocks"], &found["is_done"]), (&json!(1), &json!(6), &json!(false)));
    assert_eq!(found["open"][0]["block"], json!({ "epoch": 0, "number": 1 }));
    assert_eq!(found["open"][0]["holders"][0]["worker"], "me");
    assert!(shown.contains("\n  epoch 0 [######..............] 1 of 3 done, "), "{shown}");
    assert_eq!(found["epochs_under_way"][0]["blocks_done"], json!(1));
    assert!(shown.contains(") for ") && shown.contains(" steps/s\n"), "{shown}");
    let (code, _, said) = command("verify-run --job digits", folder);
    let due = "no epoch of the job \"digits\" is done yet: nothing is proven (1 of 3 blocks of epoch 0)";
    assert_eq!((code, said.contains(due)), (1, true), "{said}");
    let (code, found, said) = command("verify-run --job digits --json", folder);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((code, &found["is_sound"], &found["why_not"]), (1, &json!(false), &json!(due)), "{said}");
    assert_eq!(found["under_way"][0], json!({ "epoch": 0, "blocks_done": 1, "blocks": 3 }));
    for _ in 0..3 {
        leased.next().unwrap().unwrap();
    }
    wait_until_done(folder, 3);
    let judged = pass("verify-run --job digits", folder);
    assert!(judged.contains("epoch 1 is under way, and not judged: 0 of 3 blocks are done"), "{judged}");
    let judged: Value = serde_json::from_str(&pass("verify-run --job digits --json", folder)).unwrap();
    assert_eq!(judged["under_way"], json!([{ "epoch": 1, "blocks_done": 0, "blocks": 3 }]));

    pass("leases drain --job digits", folder);
    assert!(pass("leases status --job digits", folder).contains("; drained: no more are handed out"));
    assert!(leased.by_ref().all(|step| step.is_ok()));
    let (code, _, said) = command("leases reset --job digits", folder);
    assert_eq!((code, said.contains("1 worker(s)")), (2, true), "{said}");
    drop(leased);
    pass("leases drain --job digits --undo", folder);

    assert!(worker(folder).all(|step| step.is_ok()));
    let shown = pass("leases status --job digits", folder);
    assert!(shown.contains("[####################] 6 of 6 blocks done, 0 held, 0 left"), "{shown}");
    let proven = pass("verify-run --job digits --epochs 2", folder);
    assert!(proven.ends_with("all 2 epochs were covered exactly once\n"), "{proven}");
    let (code, ..) = command("verify-run --job digits --epochs 3", folder);
    assert_eq!(code, 1);

    // Somebody has seen that the records were set back.
    let metadata = FolderMetadata::open(folder.join("records")).unwrap();
    metadata.transact(&Transaction::new().put("/leases/digits/live/set-back", "")).unwrap();
    let (code, _, said) = command("verify-run --job digits", folder);
    assert_eq!((code, said.contains("were set back to a copy")), (1, true), "{said}");
    let (code, found, _) = command("verify-run --job digits --json", folder);
    let found: Value = serde_json::from_str(&found).unwrap();
    let why = found["why_not"].as_str().unwrap();
    assert_eq!((code, &found["is_sound"]), (1, &json!(false)));
    assert!(why.contains("were set back to a copy"), "{why}");
    let shown = pass("leases status --job digits", folder);
    assert!(shown.contains("the records were set back to a copy"), "{shown}");

    pass("leases reset --job digits", folder);
    let (code, _, said) = command("verify-run --job digits", folder);
    assert_eq!((code, said.contains("there is no job \"digits\"")), (2, true), "{said}");
}
