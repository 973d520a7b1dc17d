//! Texts with a checksum: snapshots, receipts and digests. And other texts of ours: lists, descriptions of
//! feeds, results of a benchmark.

use percolator::feed::FeedSpec;
use percolator::receipt::{DataDigest, Verdict};
use percolator::source::ImageList;
use percolator::{Receipt, Snapshot};
use percolator_measure::compare::Results;

use crate::accepted::accepted;
use crate::files::Folder;
use crate::memory::{Budget, within};
use crate::repair;

/// A job has at most 65,536 replicas, each with a place of its own; a file's records are one number each.
const TEXT: Budget = Budget::mebibytes(16, 256);

/// A snapshot. What is read is written, and read again; from a file it is the same.
///
/// # Panics
///
/// If a property does not hold.
pub fn snapshot(bytes: &[u8]) {
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
///
/// # Panics
///
/// If a property does not hold.
pub fn receipt(bytes: &[u8]) {
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
            let _ = Verdict::of([("one", &receipt)]).map(|verdict| verdict.is_sound());
        }
        let mut merged = receipt.clone();
        merged.merge(&receipt).expect("a receipt is of the same run as itself");
    });
}

/// The digest of a data set. What is read is written, and read again.
///
/// # Panics
///
/// If a property does not hold.
pub fn digest(bytes: &[u8]) {
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
///
/// # Panics
///
/// If a property does not hold.
pub fn image_list(bytes: &[u8]) {
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
///
/// # Panics
///
/// If a property does not hold.
pub fn feed_spec(bytes: &[u8]) {
    let Ok(spec) = within(bytes, Budget::per_byte(256), || serde_json::from_slice::<FeedSpec>(bytes)) else {
        return;
    };
    accepted();
    let Ok(written) = serde_json::to_string(&spec) else { return };
    let again: FeedSpec = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(again, spec);
}

/// The results of a benchmark, as lines of JSON.
///
/// # Panics
///
/// If a property does not hold.
pub fn results(bytes: &[u8]) {
    let path = Folder::new();
    let path = path.with("results.json", bytes);
    if within(bytes, Budget::per_byte(512), || Results::load(&path)).is_ok() {
        accepted();
    }
}
