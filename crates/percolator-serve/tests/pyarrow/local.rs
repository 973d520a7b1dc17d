//! What a local feed delivers, described as the script describes what it gets.

use std::path::Path;

use percolator::feed::FeedSpec;
use percolator::record::RecordId;
use percolator::{Batch, Dtype, FeedBuilder};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The batches of the only lane of a feed, whose relative paths start from `root`.
pub(crate) fn batches(root: &Path, feed: &Value) -> Vec<Value> {
    each(root, feed, described)
}

/// The same, with the columns that say which rows these are.
pub(crate) fn batches_with_columns(root: &Path, feed: &Value) -> Vec<Value> {
    each(root, feed, |batch| {
        let mut described = described(batch);
        let step = batch.step().expect("a plan has steps");
        let rows = batch.rows();
        // Rows that are padding have zeros.
        let of_records = |value: fn(&RecordId) -> u64| -> Vec<u64> {
            batch.records().iter().map(value).chain(std::iter::repeat(0)).take(rows).collect()
        };
        let mask: Vec<u8> = batch.mask().map(u8::from).collect();
        for (name, values) in [
            ("percolator.epoch", of_records(|record| record.epoch)),
            ("percolator.position", of_records(|record| record.index)),
            ("percolator.step", vec![step.step; rows]),
        ] {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            described["columns"][name] = array("uint64", rows, &bytes);
        }
        described["columns"]["percolator.mask"] = array("uint8", rows, &mask);
        described
    })
}

fn each(root: &Path, feed: &Value, describe: impl Fn(&Batch) -> Value) -> Vec<Value> {
    let mut feed = feed.clone();
    feed["root"] = json!(root);
    let spec: FeedSpec = serde_json::from_value(feed).unwrap();
    let mut feed = FeedBuilder::from(spec).build().unwrap();
    let mut lanes = feed.take_lanes().unwrap();
    assert_eq!(lanes.len(), 1, "a feed of one lane");
    lanes.remove(0).map(|batch| describe(&batch.unwrap())).collect()
}

fn described(batch: &Batch) -> Value {
    let (mut columns, mut shapes) = (Map::new(), Map::new());
    for one in batch.arrays() {
        let elements = one.bytes.len() / one.dtype.size();
        columns.insert(one.name.to_owned(), array(numpy(one.dtype), elements, one.bytes));
        shapes.insert(one.name.to_owned(), json!(&one.shape[..]));
    }
    let step = batch.step();
    json!({
        "rows": batch.rows(),
        "columns": columns,
        "shapes": shapes,
        "metadata": {
            "epoch": step.map(|step| step.epoch),
            "step": step.map(|step| step.step),
            "is_last": step.is_some_and(|step| step.is_last),
            "records": batch.len(),
            "rows": batch.rows(),
            "missed": 0,
        },
    })
}

fn array(numpy: &str, elements: usize, bytes: &[u8]) -> Value {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    json!([numpy, elements, digest])
}

/// The type of NumPy that a column has. What Arrow has no type for comes as the integers of its bits.
fn numpy(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "float64",
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::I8 => "int8",
        Dtype::I16 => "int16",
        Dtype::I32 => "int32",
        Dtype::I64 => "int64",
        Dtype::U16 | Dtype::Bf16 => "uint16",
        Dtype::U32 => "uint32",
        Dtype::U64 => "uint64",
        Dtype::U8 | Dtype::Bool => "uint8",
        other => panic!("{other} is new"),
    }
}
