//! What is served: below the folder `root`, a database of images, one whose middle is damaged, one of
//! Examples and one of long ones; beside it, one that is nobody's to have, to which a link below the root
//! leads.
#![allow(dead_code, reason = "not every binary uses all of it")]

use std::path::Path;

use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::example::ExampleWriter;
use percolator::proto::Datum;
use prost::Message as _;
use serde_json::{Value, json};

/// The records of each database: the last of batches of 4 is short.
pub(crate) const RECORDS: u8 = 22;

/// The record of the damaged database that is none.
pub(crate) const DAMAGED: u8 = 9;

/// The fields of the Examples: of every kind, and of the types that Arrow has and has not.
pub(crate) const FIELDS: &str = "id:i64,box:f32[2x3],half:f16[2],brain:bf16[2x2],words:i32[<=5]=-1,\
                                 tokens:i64[<=7],name:bytes(8)";

/// The only field of the long Examples.
pub(crate) const LONG_FIELD: &str = "long:f32[600]";

/// Writes all of it into a folder.
pub(crate) fn write(folder: &Path) {
    let root = folder.join("root");
    write_lmdb(&root.join("images"), (0..RECORDS).map(image));
    let damaged = |number| if number == DAMAGED { vec![0xff; 20] } else { image(number) };
    write_lmdb(&root.join("damaged"), (0..RECORDS).map(damaged));
    write_lmdb(&root.join("examples"), (0..RECORDS).map(example));
    write_lmdb(&root.join("long"), (0..RECORDS).map(long));
    write_lmdb(&folder.join("outside"), (0..RECORDS).map(image));
    std::os::unix::fs::symlink(folder.join("outside"), root.join("link")).unwrap();
}

/// Writes an LMDB as Caffe does: a folder, the unnamed database, keys in order.
fn write_lmdb(folder: &Path, records: impl IntoIterator<Item = Vec<u8>>) {
    std::fs::create_dir_all(folder).unwrap();
    let mut environment = Environment::new();
    environment.set_map_size(1 << 30).set_flags(EnvironmentFlags::NO_SYNC);
    let environment = environment.open(folder).unwrap();
    let database = environment.open_db(None).unwrap();
    let mut transaction = environment.begin_rw_txn().unwrap();
    for (number, value) in records.into_iter().enumerate() {
        transaction.put(database, &format!("{number:08}"), &value, WriteFlags::empty()).unwrap();
    }
    transaction.commit().unwrap();
}

/// An image of 3 channels, 6 rows and 5 columns, whose label is its number.
fn image(number: u8) -> Vec<u8> {
    let pixels = (0..90_u8).map(|at| at.wrapping_mul(7).wrapping_add(number.wrapping_mul(31)));
    let datum = Datum {
        channels: Some(3),
        height: Some(6),
        width: Some(5),
        label: Some(number.into()),
        data: Some(pixels.collect()),
        ..Datum::default()
    };
    datum.encode_to_vec()
}

fn example(number: u8) -> Vec<u8> {
    let (whole, float) = (i64::from(number), f32::from(number));
    let mut writer = ExampleWriter::new();
    writer.ints("id", [whole]).floats("box", (0..6_u8).map(|at| float + f32::from(at) / 8.0));
    writer.floats("half", [float / 3.0, -float]).floats("brain", [float, 0.1, -0.1, float / 7.0]);
    writer.ints("words", (0..whole % 6).map(|at| whole * at));
    writer.ints("tokens", (0..whole % 8).map(|at| whole << at));
    writer.bytes("name", [format!("n{number}")]);
    writer.to_bytes()
}

fn long(number: u8) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    writer.floats("long", (0..600_u16).map(|at| f32::from(at) + f32::from(number) / 32.0));
    writer.to_bytes()
}

/// A feed of the images, with 4 in a batch, as JSON.
pub(crate) fn images(more: Value) -> Value {
    let mut feed = json!({
        "sources": [{"lmdb": {"path": "images"}}], "batch_size": {"per_replica": 4},
        "schedule": {"epochs": 1},
    });
    for (key, value) in more.as_object().unwrap() {
        feed[key] = value.clone();
    }
    feed
}
