//! Texts with a checksum: snapshots, receipts and digests. And other texts of ours: lists, descriptions of
//! feeds, results of a benchmark.

use percolator::feed::FeedSpec;
use percolator::receipt::DataDigest;
use percolator::source::ImageList;
use percolator::{Receipt, Snapshot};
use percolator_measure::compare::Results;
use percolator_proof::Verdict;

use crate::accepted::accepted;
use crate::files::Folder;
use crate::memory::{Budget, within};
use crate::repair;

/// A job has at most 65,536 replicas, each with a place of its own; a file's records are one number each.
const TEXT: Budget = Budget::mebibytes(16, 256);

/// The counters of several epochs, and 5 KiB more for each of 4,096.
const VERIFIED: Budget = Budget::mebibytes(96, 256);

/// A snapshot. What is read is written, and read again; from a file it is the same.
pub(crate) fn snapshot(bytes: &[u8]) {
    each_text(bytes, |text| {
        let parsed = within(text.as_bytes(), TEXT, || text.parse::<Snapshot>());
        if let Ok(snapshot) = &parsed {
            accepted();
            let written = snapshot.to_string();
            let again: Snapshot = written.parse().expect("what was written is read");
            assert_eq!(again.to_string(), written);
            let _ = snapshot.next(0).is_some_and(|next| next.step > 0);
        }
        let path = Folder::new();
        let path = path.with("snapshot", text.as_bytes());
        let loaded = within(text.as_bytes(), TEXT, || Snapshot::load(path));
        if let Ok(snapshot) = parsed {
            let loaded = loaded.expect("a text is read from a file as well");
            assert_eq!(loaded.to_string(), snapshot.to_string());
        }
    });
}

/// A receipt. What is read is written, and read again; one of a small job is verified.
pub(crate) fn receipt(bytes: &[u8]) {
    /// A verification counts each record, and goes through each step.
    const VERIFIED_MAX: u64 = 10_000;

    each_text(bytes, |text| {
        let Ok(receipt) = within(text.as_bytes(), TEXT, || text.parse::<Receipt>()) else { return };
        accepted();
        let written = receipt.to_string();
        let again: Receipt = written.parse().expect("what was written is read");
        assert_eq!(again.to_string(), written);
        let job = receipt.plan().job();
        if job.records() <= VERIFIED_MAX && receipt.plan().world().replicas() <= 64 && text.len() < 1 << 16 {
            let _ = within(text.as_bytes(), VERIFIED, || Verdict::of([("one", &receipt)]));
        }
        let mut merged = receipt.clone();
        merged.merge(&receipt).expect("a receipt is of the same run as itself");
    });
}

/// The digest of a data set. What is read is written, and read again.
pub(crate) fn digest(bytes: &[u8]) {
    each_text(bytes, |text| {
        let Ok(digest) = within(text.as_bytes(), TEXT, || text.parse::<DataDigest>()) else { return };
        accepted();
        let written = digest.to_string();
        let again: DataDigest = written.parse().expect("what was written is read");
        assert_eq!(again.to_string(), written);
        assert_eq!(digest.sum().contents(), digest.contents());
    });
}

/// Calls `body` with the text, and with the text that has the right checksum.
fn each_text(bytes: &[u8], body: impl Fn(&str)) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    body(text);
    body(&repair::text(text));
}

/// A list of images. It has a name and a label for each line; the files are not looked at.
pub(crate) fn image_list(bytes: &[u8]) {
    let path = Folder::new();
    let path = path.with("list.txt", bytes);
    let Ok(list) = within(bytes, Budget::per_byte(48), || ImageList::open(path)) else { return };
    accepted();
    let lines: Vec<_> = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|&byte| byte == b'\n').collect();
    assert_eq!(list.len(), lines.len());
    for (file, line) in list.files().zip(lines) {
        assert!(line.starts_with(file.name), "line {} has another name", file.line);
        let label = String::from_utf8_lossy(line.rsplit(|&byte| byte == b' ').next().unwrap_or_default());
        if let Ok(label) = label.trim_ascii().parse::<i32>() {
            assert_eq!(file.label, label, "line {}", file.line);
        }
    }
}

/// The description of a feed, as JSON. What is read is written, and read again.
pub(crate) fn feed_spec(bytes: &[u8]) {
    let Ok(spec) = within(bytes, Budget::per_byte(256), || serde_json::from_slice::<FeedSpec>(bytes)) else {
        return;
    };
    accepted();
    let Ok(written) = serde_json::to_string(&spec) else { return };
    let again: FeedSpec = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(again, spec);
}

/// The results of a benchmark, as lines of JSON.
pub(crate) fn results(bytes: &[u8]) {
    let path = Folder::new();
    let path = path.with("results.json", bytes);
    if within(bytes, Budget::per_byte(512), || Results::load(&path)).is_ok() {
        accepted();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::accepted::count;

    /// A text of a job over these files, without its checksum.
    fn job(kind: &str, files: &str, batch: &str, replicas: u32, policy: &str, last_batch: &str) -> String {
        format!(
            "percolator {kind} 2\nsource db\nfiles {files}\nbatch {batch}\nworkers {replicas}\n\
             replicas {replicas}\npolicy {policy}\nassignment tensorflow\nlast-batch {last_batch}\n\
             shuffle no\nseed 0\n"
        )
    }

    /// An epoch of a receipt, with steps of its first replica.
    fn epoch(steps: &str) -> String {
        let sketch = ["-"; 192].join(" ");
        format!("replicas 0..1\nepoch 0\ndigest {:032x} of 0\nsketch {sketch}\nsteps 0 {steps}\n", 0)
    }

    fn verified(text: &str, budget: Budget) -> Result<Verdict, String> {
        let receipt: Receipt = repair::text(&format!("{text}checksum -\n")).parse().expect("it is a receipt");
        let verdict = within(text.as_bytes(), budget, || Verdict::of([("one", &receipt)]));
        verdict.map_err(|error| error.to_string())
    }

    #[test]
    fn a_receipt_whose_step_has_thousands_of_epochs_is_an_error() {
        for (files, records) in [("1", 1 << 14), ("1", 1_u64 << 43), ("1000", 1 << 43)] {
            let batch = format!("global {records}");
            let text = job("receipt", files, &batch, 1, "data", "wrap") + &epoch("0..1");
            let error = verified(&text, VERIFIED).unwrap_err();
            assert!(error.contains("records of more than 4096 epochs would have to be counted"), "{error}");
        }
    }

    #[test]
    fn records_that_each_worker_leaves_out_are_counted_and_not_listed() {
        let text = job("receipt", "20000", "replica 9000", 64, "off", "drop") + &epoch("0..1 1..2");
        let verdict = verified(&text, Budget::mebibytes(1, 256)).unwrap();
        assert_eq!(verdict.epochs[0].dropped, 64 * 2000);
    }

    /// Were each step of each replica looked at, that would take an hour.
    #[test]
    fn of_replicas_that_never_have_a_record_not_every_step_is_looked_at() {
        let text = job("receipt", "100000", "global 1", 1 << 16, "off", "keep") + &epoch("0..200000");
        let text = text.replace("workers 65536", "workers 2");
        let verdict = verified(&text, VERIFIED).unwrap();
        assert!(!verdict.is_sound());
    }

    #[test]
    fn records_that_were_passed_over_take_a_bit_each() {
        let text = job("receipt", "100000", "global 1", 1, "data", "keep") + &epoch("0..1 99990..99991");
        let verdict = verified(&text, Budget::mebibytes(1, 256)).unwrap();
        // By its digest, it lacks the records of its two steps as well.
        assert_eq!((verdict.epochs[0].missing.count, verdict.epochs[0].pending), (99_991, 9));
    }

    #[test]
    fn texts_of_many_workers_and_many_shards_are_read_in_proportion() {
        let read = |text: String| {
            let before = count();
            snapshot((text + "draws seed 0\nnext epoch 0 step 0 replicas 0 to 0\nchecksum -\n").as_bytes());
            assert!(count() > before, "it is a snapshot");
        };
        let files = ["3"; 1000].join(" ");
        for policy in ["hint", "off"] {
            read(job("snapshot", &files, "replica 1", 1 << 16, policy, "keep"));
        }
        let files = ["3"; 10_000].join(" ");
        for policy in ["hint", "file"] {
            let mut text = job("snapshot", &files, "replica 1", 1, "data", "keep") + "rest 0\n";
            for workers in 1..=1000 {
                writeln!(text, "left {policy} 0 {workers} 0 1 1").expect("a String takes all");
            }
            read(text);
        }
    }
}
