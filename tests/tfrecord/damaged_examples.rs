//! Examples on the damage harness: their wire bytes, by the view and through a feed's decoder.
//!
//! Protobuf protects nothing; in a TFRecord file, the record's checksum does, and here it is not in the way.
//! So whatever the bytes say is read, as prost reads it, or refused.

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use percolator::example::{Example, ExampleFields, ExampleWriter, SequenceExample};
use percolator::source::{FnSource, SourceError};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Epochs, Feed, FeedBuilder, FeedError};

use crate::common::process::this_test;
use crate::example_twin::{Map, Value, lists_of_view, of_prosts_example, of_prosts_sequence, of_view};
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const VIEWED: &str = "viewed";
const FED: &str = "fed";
const FED_FROM_A_FILE: &str = "fed from a TFRecord file";

const BARE: Guard = Guard::Bare("protobuf has no checksums; the record around an Example has one");
const FIELDS: &str = "label:i64,ids:i32[4],weights:f32[3],name:bytes[5]";
const RECORDS: usize = 3;

/// Examples, a file each.
struct Examples;

fn example(number: usize) -> Vec<u8> {
    let ids = (0..4).map(|id| 1000 * number as i64 + id - 1);
    let weights = [0.5, -1.0, number as f32];
    let mut writer = ExampleWriter::new();
    writer.ints("label", [number as i64]).ints("ids", ids).floats("weights", weights);
    writer.bytes("name", [[b"first", b"other", b"third", b"donor"][number]]).bytes("unused", ["?"]);
    writer.to_bytes()
}

/// A file with a message, whose lengths are marked as numbers wherever there could be one: behind the tag of
/// a field with bytes.
fn message(name: String, bytes: Vec<u8>) -> Stated {
    let mut file = Stated::of(name, bytes, BARE);
    let mut at = 0;
    while at + 1 < file.bytes.len() {
        if file.bytes[at] & 7 == 2 && file.bytes[at + 1] < 0x80 {
            file.mark("tag", BARE, at..at + 1);
            file.mark_number("length", BARE, Number::Varint, at + 1..at + 2);
            at += 2;
            if at < file.bytes.len() && file.bytes[at] >= b' ' {
                let end = (at + usize::from(file.bytes[at - 1])).min(file.bytes.len());
                file.mark("content", BARE, at..end);
                at = end;
            }
        } else {
            at += 1;
        }
    }
    file
}

impl Examples {
    /// What prost reads of a record: its features, unless it refuses it.
    fn twin(case: &Case, number: usize) -> Option<Map<Value>> {
        of_prosts_example(case.bytes(&format!("{number}.example"))?)
    }

    /// The features of a record that the feed asks for, if they are as it asks for them.
    fn row(features: &Map<Value>) -> Option<Map<Value>> {
        let is_due = |name: &str| match (name, features.get(name)?) {
            ("label", Value::Ints(values)) => Some(values.len() == 1),
            ("ids", Value::Ints(values)) => {
                Some(values.len() == 4 && values.iter().all(|&value| i32::try_from(value).is_ok()))
            }
            ("weights", Value::Floats(values)) => Some(values.len() == 3),
            ("name", Value::Bytes(values)) => Some(values.len() == 1 && values[0].len() == 5),
            _ => None,
        };
        let names = ["label", "ids", "weights", "name"];
        let is_row = names.iter().all(|name| is_due(name) == Some(true));
        is_row.then(|| names.map(|name| (name.to_owned(), features[name].clone())).into())
    }
}

impl Format for Examples {
    type Item = Map<Value>;

    fn name(&self) -> String {
        "tf.train.Example".to_owned()
    }

    fn files(&self) -> Vec<Stated> {
        (0..RECORDS).map(|number| message(format!("{number}.example"), example(number))).collect()
    }

    fn donor(&self) -> Vec<Stated> {
        (0..RECORDS).map(|number| message(format!("{number}.example"), example(3))).collect()
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(VIEWED), Way::seldom(FED, 4), Way::seldom(FED_FROM_A_FILE, 8)]
    }

    /// The view gets bytes, and knows no file.
    fn names(&self, error: &str, folder: &Path) -> bool {
        error.contains(folder.to_str().unwrap()) || error.starts_with("the view: ")
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Self::Item> {
        let path = |number: u64| folder.join(format!("{number}.example"));
        match way {
            VIEWED => Reading::of(|items| {
                (0..RECORDS as u64).try_for_each(|number| {
                    let bytes = fs::read(path(number)).map_err(|error| format!("the view: {error}"))?;
                    let example = Example::parse(&bytes).map_err(|error| format!("the view: {error}"))?;
                    items.push(of_view(example.features()));
                    Ok::<(), String>(())
                })
            }),
            FED => {
                let (name, folder) = (folder.to_owned(), folder.to_owned());
                let source = FnSource::new(name, RECORDS as u64, move |number, value| {
                    let path = folder.join(format!("{number}.example"));
                    let bytes = fs::read(&path).map_err(|error| SourceError::other(&path, error))?;
                    value.extend(bytes);
                    Ok(())
                });
                Reading::of(|items| fed(Feed::builder().source(source), items))
            }
            _ => {
                let file = folder.join("records");
                let mut writer = TfRecordWriter::create(&file, Compression::Plain).unwrap();
                for number in 0..RECORDS as u64 {
                    match fs::read(path(number)) {
                        Ok(bytes) => writer.write(&bytes).unwrap(),
                        Err(error) => {
                            return Reading::whole(Err(format!("{}: {error}", folder.display())));
                        }
                    }
                }
                writer.finish().unwrap();
                Reading::of(|items| fed(Feed::builder().tfrecord(file), items))
            }
        }
    }

    fn allows(&self, case: &Case, way: &'static str, found: &Reading<Self::Item>) -> bool {
        let twins: Vec<_> = (0..RECORDS).map(|number| Self::twin(case, number)).collect();
        if way == VIEWED {
            let due: Vec<_> = twins.iter().map_while(Option::as_ref).collect();
            let is_whole = due.len() == RECORDS;
            return found.items.iter().eq(due) && found.error.is_none() == is_whole;
        }
        // A feed skips what it does not need unchecked: then prost may refuse what makes no difference to it.
        let is_due = |(number, item): (usize, &Map<Value>)| match &twins[number] {
            Some(features) => Self::row(features).as_ref() == Some(item),
            None => {
                Self::row(&of_view(Example::parse(&example(number)).unwrap().features())).as_ref()
                    == Some(item)
            }
        };
        let ends_right = match (&found.error, twins.get(found.items.len())) {
            (None, next) => next.is_none(),
            (Some(_), Some(Some(features))) => Self::row(features).is_none(),
            (Some(_), Some(None)) => true,
            (Some(_), None) => false,
        };
        found.items.iter().enumerate().all(is_due) && ends_right
    }
}

fn fed(feed: FeedBuilder, items: &mut Vec<Map<Value>>) -> Result<(), FeedError> {
    let feed = feed
        .example(FIELDS.parse::<ExampleFields>().unwrap())
        .batch_size(1)
        .threads(2)
        .epochs(Epochs::OnePass);
    for batch in feed.build()? {
        let batch = batch?;
        let ids = batch.get::<i32>("ids")?.into_slice().iter().map(|&id| i64::from(id)).collect();
        let weights =
            batch.get::<f32>("weights")?.into_slice().iter().map(|weight| weight.to_bits()).collect();
        let item = [
            ("label", Value::Ints(batch.get::<i64>("label")?.into_slice().to_vec())),
            ("ids", Value::Ints(ids)),
            ("weights", Value::Floats(weights)),
            ("name", Value::Bytes(vec![batch.get::<u8>("name")?.into_slice().to_vec()])),
        ];
        items.push(item.map(|(name, value)| (name.to_owned(), value)).into());
    }
    Ok(())
}

/// A sequence, by the view alone: feeds take Examples.
struct Sequence;

type Lists = (Map<Value>, Map<Vec<Value>>);

impl Sequence {
    fn bytes(which: usize) -> Vec<u8> {
        let context = example(which);
        // A list of two features: `feature_lists { feature_list { key: "tokens" value { ... } } }`.
        let within = |tag: u8, inside: &[u8]| [&[tag, inside.len() as u8][..], inside].concat();
        let ints = |values: &[u8]| within(0x0a, &within(0x1a, &within(0x0a, values)));
        let list = [ints(&[1, 2, which as u8]), ints(&[7])].concat();
        let entry = [within(0x0a, b"tokens"), within(0x12, &list)].concat();
        [context, within(0x12, &within(0x0a, &entry))].concat()
    }
}

impl Format for Sequence {
    type Item = Lists;

    fn name(&self) -> String {
        "tf.train.SequenceExample".to_owned()
    }

    fn files(&self) -> Vec<Stated> {
        vec![message("sequence".to_owned(), Self::bytes(0))]
    }

    fn donor(&self) -> Vec<Stated> {
        vec![message("sequence".to_owned(), Self::bytes(1))]
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(VIEWED)]
    }

    /// The view gets bytes, and knows no file.
    fn names(&self, _error: &str, _folder: &Path) -> bool {
        true
    }

    fn read(&self, folder: &Path, _way: &'static str) -> Reading<Lists> {
        let Ok(bytes) = fs::read(folder.join("sequence")) else {
            return Reading::whole(Err("there is no such file"));
        };
        Reading::whole(
            SequenceExample::parse(&bytes)
                .map(|sequence| (of_view(sequence.context()), lists_of_view(sequence.feature_lists()))),
        )
    }

    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Lists>) -> bool {
        let Some(bytes) = case.bytes("sequence") else { return false };
        match of_prosts_sequence(bytes) {
            Some(due) => *found == Reading::whole(Ok::<_, Infallible>(due)),
            None => found.error.is_some(),
        }
    }
}

#[test]
fn examples() {
    harness::check(this_test!(), 600, || Examples);
}

#[test]
fn sequences() {
    harness::check(this_test!(), 1500, || Sequence);
}
