//! Lists of images: the list, and the files that it names.
//!
//! A list has no checksum, and neither it nor the files say what belongs to what. So what the damaged list
//! says is read, line by line, as a naive reader reads it: Caffe's `atoi` for labels, no empty line. A file
//! that is missing, or is none, is an error at its line.

use std::path::Path;

use percolator::proto::Datum;
use percolator::source::{ImageList, Source, SourceError};
use percolator::{Epochs, Feed, FeedError, RawBytes};
use prost::Message as _;

use crate::common::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const IN_ORDER: &str = "in order";
const BY_POSITION: &str = "by position";
const FED: &str = "fed";

const LIST: &str = "list.txt";
const NAMES: [&str; 3] = ["a.jpg", "b c.jpg", "d/e.jpg"];
const LABELS: [&str; 3] = ["3", "-12", "2147483647"];

/// Name, label, content.
type Listed = (Vec<u8>, i32, Vec<u8>);

struct Lists;

impl Lists {
    fn stated(contents: &str) -> Vec<Stated> {
        let (name, label) = (Guard::Bare("a list has no checksum"), Guard::Bare("a label is any number"));
        let mut list = Stated::of(LIST, Vec::new(), name);
        for (file, number) in NAMES.iter().zip(LABELS) {
            list.add("name", name, file.as_bytes());
            list.add("space", name, b" ");
            match number.starts_with('-') {
                true => list.add("label", label, number.as_bytes()),
                false => list.add_number("label", label, Number::Decimal, number.as_bytes()),
            }
            list.add("line break", name, b"\n");
        }
        let content = Guard::Bare("its own format protects it, not the list");
        let file = |name: &&str| Stated::of(*name, format!("{contents} {name}").into_bytes(), content);
        [list].into_iter().chain(NAMES.iter().map(file)).collect()
    }

    /// Each record, or `None` for one that cannot be read; none at all if the list itself is refused.
    fn twin(case: &Case) -> Option<Vec<Option<Listed>>> {
        let list = case.bytes(LIST)?;
        let mut lines: Vec<&[u8]> = list.split(|byte| *byte == b'\n').collect();
        lines.pop_if(|last| last.is_empty());
        // The list is read whole before any file.
        let labels: Vec<_> = lines.iter().map(|line| label(line)).collect::<Option<_>>()?;
        let content = |name: &[u8]| case.bytes(&clean(std::str::from_utf8(name).ok()?)).map(<[u8]>::to_vec);
        let record = |(name, label): (Vec<u8>, i32)| content(&name).map(|content| (name, label, content));
        (!labels.is_empty()).then(|| labels.into_iter().map(record).collect())
    }
}

/// The path of a file without what the system passes over.
fn clean(name: &str) -> String {
    name.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// A line's name and label, unless the line is refused.
fn label(line: &[u8]) -> Option<(Vec<u8>, i32)> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    let (name, text) = match line.iter().rposition(|byte| *byte == b' ') {
        Some(space) => (&line[..space], &line[space + 1..]),
        None => (line.trim_ascii_end(), line),
    };
    let text: String = text.trim_ascii().iter().map(|byte| char::from(*byte)).collect();
    let digits = text.trim_start_matches(['+', '-']);
    if text.len() - digits.len() > 1 {
        return Some((name.to_vec(), 0));
    }
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let value = if end == 0 { 0 } else { digits[..end].parse::<i128>().ok()? };
    let value = if text.starts_with('-') { -value } else { value };
    Some((name.to_vec(), i32::try_from(value).ok()?))
}

fn listed(key: &[u8], value: &[u8]) -> Listed {
    let datum = Datum::decode(value).unwrap();
    assert_eq!(datum.encoded, Some(true));
    (key.to_vec(), datum.label.unwrap(), datum.data.unwrap())
}

fn open(folder: &Path) -> Result<ImageList, SourceError> {
    Ok(ImageList::open(folder.join(LIST))?.relative_to(folder))
}

fn fed(folder: &Path, items: &mut Vec<Listed>) -> Result<(), FeedError> {
    let list = open(folder).map_err(|error| FeedError::Reader(error.into()))?;
    let names: Vec<Vec<u8>> = list.files().map(|file| file.name.to_vec()).collect();
    let feed = Feed::builder().source(list).decoder(RawBytes::up_to(1 << 16)).batch_size(1).threads(2);
    for batch in feed.epochs(Epochs::OnePass).build()? {
        let batch = batch?;
        let name = &names[batch.records()[0].index as usize];
        items.push(listed(name, batch.ragged::<u8>(0)?.values()));
    }
    Ok(())
}

impl Format for Lists {
    type Item = Listed;

    fn name(&self) -> String {
        "list of images".to_owned()
    }

    fn files(&self) -> Vec<Stated> {
        Self::stated("the content of")
    }

    fn donor(&self) -> Vec<Stated> {
        Self::stated("a donor for")
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(IN_ORDER), Way::of(BY_POSITION), Way::seldom(FED, 6)]
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Listed> {
        match way {
            FED => Reading::of(|items| fed(folder, items)),
            IN_ORDER => Reading::of(|items| {
                let list = open(folder)?;
                let mut cursor = list.cursor()?;
                while let Some(entry) = cursor.advance()? {
                    items.push(listed(entry.key(), entry.value()));
                }
                Ok::<(), SourceError>(())
            }),
            _ => Reading::of(|items| {
                let list = open(folder)?;
                let mut cursor = list.cursor()?;
                for position in (0..list.len() as u64).rev() {
                    cursor.seek(position)?;
                    let entry = cursor.advance()?.expect("there is a record at each position");
                    items.push(listed(entry.key(), entry.value()));
                }
                Ok::<(), SourceError>(())
            }),
        }
    }

    fn allows(&self, case: &Case, way: &'static str, found: &Reading<Listed>) -> bool {
        let Some(mut records) = Self::twin(case) else { return found.error.is_some() };
        if way == BY_POSITION {
            records.reverse();
        }
        let due: Vec<Listed> = records.iter().map_while(Clone::clone).collect();
        let has_error = due.len() < records.len();
        due == found.items && has_error == found.error.is_some()
    }
}

#[test]
fn lists() {
    harness::check(this_test!(), 500, || Lists);
}

/// A file with holes is long and takes no room on the disk.
#[test]
fn a_listed_file_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(LIST), "huge.jpg 0\n").unwrap();
    let huge = std::fs::File::create(folder.path().join("huge.jpg")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let list = open(folder.path()).unwrap();
    let error = list.cursor().unwrap().advance().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("huge.jpg") && error.contains("1099511627776 bytes"), "{error}");
}
