//! The package's files on the damage harness: XLNet's prepared data (`record_info` and records), through a
//! feed, and SentencePiece's models.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

#[path = "../../../tests/common/damage/mod.rs"]
mod harness;

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::Path;

use harness::process::this_test;
use harness::{Case, Format, Guard, Number, Reading, Stated, Way};
use percolator::Shuffle;
use percolator::source::{Access, IndexPlace};
use percolator_text::sentencepiece::{ModelError, Scratch, SentencePiece};
use percolator_text::xlnet::{Flags, Options, Progress, Split, XlnetData, prepare};
use prost::Message;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

/// The rows of a batch.
const BATCH: u32 = 2;

/// Two tasks of XLNet's data, a pass each.
struct Prepared {
    /// Of two data sets, the files.
    sets: [Vec<Stated>; 2],
    /// Of each file of records, the batches.
    batches: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
}

impl Prepared {
    fn new() -> Self {
        let stated = |(name, bytes): (String, Vec<u8>)| match name.ends_with(".json") {
            true => info(name, bytes),
            false => records(name, bytes),
        };
        let sets = [1, 2].map(|seed| written(seed).into_iter().map(stated).collect::<Vec<_>>());
        let mut batches = Vec::new();
        for set in &sets {
            let folder = tempfile::tempdir().unwrap();
            Case::whole(set).put(folder.path());
            let found = read(folder.path(), Access::Mapped);
            assert_eq!(found.error, None);
            // The files' batches come one after the other.
            let mut all = found.items.into_iter();
            for file in set.iter().filter(|file| !file.name.ends_with(".json")) {
                let count = file.parts.iter().filter(|part| part.name == "data").count() / BATCH as usize;
                batches.push((file.bytes.clone(), all.by_ref().take(count).collect()));
            }
            assert!(all.next().is_none());
        }
        Prepared { sets, batches }
    }
}

/// A folder as `prepare` writes it, and its files below `tfrecords`.
fn written(seed: i64) -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let flags = Flags {
        input_glob: format!("{DATA}/text/part[01].txt").into(),
        sp_path: format!("{DATA}/spiece.model").into(),
        save_dir: folder.path().to_owned(),
        use_tpu: false,
        bsz_per_host: BATCH,
        num_core_per_host: 1,
        seq_len: 32,
        reuse_len: 16,
        num_predict: Some(6),
        num_task: 2,
        ..Flags::default()
    };
    let options =
        Options { flags, all_tasks: true, python_seed: Some(seed), threads: Some(1), ..Options::default() };
    prepare(&options, &Progress::new()).unwrap();
    let below = folder.path().join("tfrecords");
    let mut files: Vec<_> = fs::read_dir(below)
        .unwrap()
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .collect();
    files.sort();
    assert_eq!(files.len(), 4, "two of each kind");
    files
}

/// The parts of a file of records.
fn records(name: String, bytes: Vec<u8>) -> Stated {
    let mut file = Stated::of(name, bytes, Guard::Structure);
    let mut at = 0;
    while at < file.bytes.len() {
        let length = u64::from_le_bytes(file.bytes[at..at + 8].try_into().unwrap()) as usize;
        file.mark_number("length", Guard::Checked, Number::Little, at..at + 8);
        file.mark("checksum of the length", Guard::Checked, at + 8..at + 12);
        file.mark("data", Guard::Checked, at + 12..at + 12 + length);
        file.mark("checksum of the data", Guard::Checked, at + 12 + length..at + 16 + length);
        at += 16 + length;
    }
    file
}

/// The words and the numbers of a `record_info`. Names with other folders lead to the same files. So does a
/// file that does not state its preparation. Any other change is an error: the number of batches must be that
/// of the files, and the preparation that of the other file.
fn info(name: String, bytes: Vec<u8>) -> Stated {
    let mut file = Stated::of(name, bytes, Guard::Structure);
    let end = file.bytes.len();
    let mut start = 0;
    for name in ["num_batch", "num_task", "num_core_per_host"] {
        let text = String::from_utf8(file.bytes.clone()).unwrap();
        let field = format!("\"{name}\": ");
        let number = text.find(&field).unwrap() + field.len();
        words(&mut file, start..number);
        start = number + text[number..].find(|digit: char| !digit.is_ascii_digit()).unwrap();
        file.mark_number(name, Guard::Structure, Number::Decimal, number..start);
    }
    words(&mut file, start..end - 1);
    file.mark("end", Guard::Structure, end - 1..end);
    file
}

/// Marks the words between two places.
fn words(file: &mut Stated, place: Range<usize>) {
    let mut start = place.start;
    for at in place.clone() {
        if [b'/', b'"', b' '].contains(&file.bytes[at]) && at > start {
            file.mark("word", Guard::Structure, start..at);
            start = at;
        }
    }
    file.mark("word", Guard::Structure, start..place.end);
}

impl Format for Prepared {
    /// A batch's bytes, all arrays.
    type Item = Vec<u8>;

    const BYTES_MAX: usize = 400;

    fn name(&self) -> String {
        "XLNet's data".to_owned()
    }

    fn files(&self) -> Vec<Stated> {
        self.sets[0].clone()
    }

    fn others(&self) -> Vec<Vec<Stated>> {
        vec![self.sets[1].clone()]
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of("fed"), Way::seldom("fed, read", 3)]
    }

    /// Nothing says how many passes there are, nor of which task or data set a file is. So each description
    /// that is there adds its file, and whole files come in others' places.
    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Vec<u8>>) -> bool {
        let is_described = |name: &str| {
            case.files().any(|(_, info)| {
                let is_whole = self.sets.iter().flatten().any(|file| file.bytes == info);
                is_whole && info.windows(name.len()).any(|named| named == name.as_bytes())
            })
        };
        let mut due = Vec::new();
        for (name, bytes) in case.files().filter(|(name, _)| !name.ends_with(".json")) {
            let Some((_, batches)) = self.batches.iter().find(|(file, _)| file == bytes) else {
                return false;
            };
            due.extend(batches.iter().filter(|_| is_described(name)));
        }
        // In the order in which the descriptions name them.
        let mut items: Vec<_> = found.items.iter().collect();
        due.sort();
        items.sort();
        found.error.is_none() && due == items
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Vec<u8>> {
        read(folder, if way == "fed" { Access::Mapped } else { Access::Read })
    }
}

fn read(folder: &Path, access: Access) -> Reading<Vec<u8>> {
    Reading::of(|items| {
        let data = XlnetData::open(folder, Split::Train, None)?;
        let feed = data.builder()?.access(access).index(IndexPlace::Folder(folder.join("indexes")));
        for batch in feed.shuffle(Shuffle::No).epochs(1).threads(2).build()? {
            items.push(batch?.bytes().to_vec());
        }
        Ok::<(), Box<dyn Error>>(())
    })
}

#[test]
fn xlnets_data() {
    harness::check(this_test!(), 250, Prepared::new);
}

/// A SentencePiece model. It is protobuf, which has no checksums: what it says is another model, or an error.
struct Model;

const BARE: Guard = Guard::Bare("protobuf has no checksums");

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<PieceProto>,
}

#[derive(Clone, PartialEq, Message)]
struct PieceProto {
    #[prost(bytes = "vec", optional, tag = "1")]
    piece: Option<Vec<u8>>,
}

impl Format for Model {
    /// The pieces' texts.
    type Item = Vec<Vec<u8>>;

    const BYTES_MAX: usize = 1500;
    /// The model has some 30,000 pieces, each of which is there several times.
    const MEMORY_MAX: usize = 64 << 20;

    fn name(&self) -> String {
        "SentencePiece's model".to_owned()
    }

    fn files(&self) -> Vec<Stated> {
        let bytes = fs::read(format!("{DATA}/spiece.model")).unwrap();
        let mut file = Stated::of("spiece.model", bytes, BARE);
        // The first pieces, and whatever looks like one of the long fields behind them.
        let mut at = 0;
        for _ in 0..40 {
            file.mark("tag", BARE, at..at + 1);
            file.mark_number("length", BARE, Number::Varint, at + 1..at + 2);
            let end = at + 2 + usize::from(file.bytes[at + 1]);
            file.mark("piece", BARE, at + 2..end);
            at = end;
        }
        vec![file]
    }

    fn others(&self) -> Vec<Vec<Stated>> {
        let bytes = fs::read(format!("{DATA}/user_defined.model")).unwrap();
        vec![vec![Stated::of("spiece.model", bytes, BARE)]]
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of("opened"), Way::seldom("used", 3)]
    }

    /// The caller names the file.
    fn names(&self, _error: &str, _folder: &Path) -> bool {
        true
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Self::Item> {
        let read = || {
            let model = SentencePiece::open(&folder.join("spiece.model"))?;
            if way == "used" {
                let mut scratch = Scratch::default();
                let _ = model.encode("And God said, ﬁnd ＡＢＣ 1,000, é\0", &mut scratch, |_, _| {});
            }
            Ok::<_, ModelError>(
                (0..model.piece_count() as u32).map(|id| model.piece(id).unwrap().to_vec()).collect(),
            )
        };
        Reading::whole(read())
    }

    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Self::Item>) -> bool {
        let Some(bytes) = case.bytes("spiece.model") else { return false };
        let Ok(due) = ModelProto::decode(bytes) else { return found.error.is_some() };
        let due: Vec<_> = due.pieces.into_iter().map(|piece| piece.piece.unwrap_or_default()).collect();
        found.items == [due]
    }
}

#[test]
fn sentencepieces_models() {
    harness::check(this_test!(), 150, || Model);
}
