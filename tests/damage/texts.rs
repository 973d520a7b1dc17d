//! Snapshots, receipts and digests: texts whose last line is the checksum of the lines before it.
//!
//! Whoever changes a number and the checksum has written another text. It is refused, or it is read as what
//! it says.

use std::fs;
use std::path::Path;

use percolator::feed::Receipts;
use percolator::receipt::{DataDigest, DigestDetail};
use percolator::source::IndexPlace;
use percolator::{Device, Feed, FeedBuilder, Receipt, Shuffle, Snapshot};

use crate::common;
use crate::common::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const LOADED: &str = "loaded";
const FILE: &str = "text";
const CARRIED_RECEIPT: &str = "sub/receipt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Snapshot,
    /// A snapshot that carries a receipt.
    Carrying,
    Receipt,
    Digest,
}

/// A feed of images, at a place in its second epoch.
fn feed(folder: &Path, seed: u64) -> FeedBuilder {
    let feed = Feed::builder().lmdb(folder.join("lmdb")).index(IndexPlace::Memory);
    let feed = feed.receipts(Receipts::Contents).devices([Device::host(0), Device::host(1)]).batch_size(4);
    feed.epochs(3).shuffle(Shuffle::Global).seed(seed).threads(2)
}

impl Text {
    /// The text after so many steps of a run with this seed.
    fn written(self, seed: u64, steps: usize) -> String {
        let folder = tempfile::tempdir().unwrap();
        common::write_images(&folder.path().join("lmdb"), 30, 1, 2, 2);
        let mut feed = feed(folder.path(), seed);
        if self == Text::Digest {
            return percolator_proof::digest(&feed, DigestDetail::EachRecord).unwrap().to_string();
        }
        // The text names its data set, which is gone by then.
        let mut running = feed.clone().build().unwrap();
        running.steps().take(steps).for_each(|step| drop(step.unwrap()));
        let (snapshot, receipt) = (running.snapshot().unwrap(), running.receipt().unwrap());
        feed = feed.resume(&snapshot);
        assert!(feed.build().is_ok());
        match self {
            Text::Receipt => receipt.to_string(),
            Text::Snapshot => snapshot.to_string(),
            _ => {
                // The receipt cannot be written, so it stays with the snapshot.
                let path = folder.path().join(FILE);
                let place = folder.path().join(CARRIED_RECEIPT);
                assert!(snapshot.save_with_receipt(&path, &receipt, &place).is_err());
                fs::read_to_string(path).unwrap()
            }
        }
    }

    fn stated(text: &str) -> Vec<Stated> {
        let mut file = Stated::new(FILE);
        for line in text.split_inclusive('\n') {
            let words: Vec<&str> = line.split_inclusive(' ').collect();
            for word in words {
                let digits = word.trim_end();
                let is_number = digits.len() < 19 && digits.bytes().all(|byte| byte.is_ascii_digit());
                if is_number && !digits.is_empty() && !line.starts_with("checksum") {
                    file.add_number("number", Guard::Checked, Number::Decimal, digits.as_bytes());
                    file.add("space", Guard::Checked, &word.as_bytes()[digits.len()..]);
                } else {
                    file.add("word", Guard::Checked, word.as_bytes());
                }
            }
        }
        vec![file]
    }
}

/// Corrects the checksum of the first text, and of the one behind it.
fn seal(text: &str) -> String {
    let mut sealed = String::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("checksum ") {
            let checksum = crc32c::crc32c(&sealed.as_bytes()[start..]);
            sealed += &format!("checksum {checksum:08x}\n");
            start = sealed.len();
        } else {
            sealed += line;
        }
    }
    sealed
}

impl Format for Text {
    type Item = String;

    fn name(&self) -> String {
        format!("text, {self:?}")
    }

    fn files(&self) -> Vec<Stated> {
        Self::stated(&self.written(7, 6))
    }

    fn donor(&self) -> Vec<Stated> {
        Self::stated(&self.written(8, 3))
    }

    /// And each other kind of text.
    fn foreign(&self) -> Vec<(&'static str, Vec<u8>)> {
        let texts = [
            ("a snapshot", Text::Snapshot),
            ("a snapshot with a receipt", Text::Carrying),
            ("a receipt", Text::Receipt),
            ("a digest", Text::Digest),
        ];
        let others = texts.into_iter().filter(|(_, text)| text != self);
        let others = others.map(|(what, text)| (what, text.written(7, 6).into_bytes()));
        harness::foreign::files().into_iter().chain(others).collect()
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(LOADED)]
    }

    fn seal(&self, _file: &str, bytes: &mut Vec<u8>) {
        *bytes = seal(std::str::from_utf8(bytes).unwrap()).into_bytes();
    }

    fn read(&self, folder: &Path, _way: &'static str) -> Reading<String> {
        let path = folder.join(FILE);
        match self {
            Text::Snapshot => Reading::whole(Snapshot::load(path).map(|snapshot| snapshot.to_string())),
            Text::Receipt => Reading::whole(Receipt::load(path).map(|receipt| receipt.to_string())),
            Text::Digest => Reading::whole(DataDigest::load(path).map(|digest| digest.to_string())),
            Text::Carrying => {
                let place = folder.join(CARRIED_RECEIPT);
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                let snapshot = match Snapshot::recover(path) {
                    Ok(snapshot) => snapshot.to_string(),
                    Err(error) => return Reading::whole(Err(error)),
                };
                let receipt = fs::read_to_string(place).unwrap_or_default();
                Reading { items: vec![snapshot, receipt], error: None }
            }
        }
    }

    /// A text that was sealed again, and says what it says.
    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<String>) -> bool {
        let text = case.bytes(FILE).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let text = text.unwrap_or_default();
        let is_sealed = seal(&text) == text;
        match (self, &found.items[..]) {
            // The receipt is written only where its own checksum is right.
            (Text::Carrying, [snapshot, receipt]) => {
                let parts = text.split_once("percolator carried-receipt");
                let due = parts.map_or(&text[..], |(snapshot, _)| snapshot);
                is_sealed && snapshot == due && (receipt.parse::<Receipt>().is_ok() || receipt.is_empty())
            }
            // A receipt behind a snapshot stays there.
            (Text::Snapshot, [found]) => {
                let parts = text.split_once("percolator carried-receipt");
                is_sealed && found == parts.map_or(&text[..], |(snapshot, _)| snapshot)
            }
            (_, [found]) => is_sealed && *found == text,
            _ => false,
        }
    }
}

#[test]
fn snapshots() {
    harness::check(this_test!(), 1000, || Text::Snapshot);
}

#[test]
fn snapshots_that_carry_a_receipt() {
    harness::check(this_test!(), 600, || Text::Carrying);
}

#[test]
fn receipts() {
    harness::check(this_test!(), 1000, || Text::Receipt);
}

#[test]
fn digests() {
    harness::check(this_test!(), 600, || Text::Digest);
}
