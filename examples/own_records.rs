//! Records of a caller's own type: an LMDB of structs (an image, 14 floats, a list of tokens), written and
//! fed.
//!
//! `cargo run --release --example own_records`

use std::path::Path;

use anyhow::Context as _;
use lmdb::{Database, Environment, Transaction as _, WriteFlags};
use percolator::{DecodeFailure, Dtype, Feed, Field, Shuffle};
use serde::{Deserialize, Serialize};

const RECORDS: u32 = 10_000;
const SIDE: usize = 32;

/// One record, as `postcard` writes it.
#[derive(Debug, Deserialize, Serialize)]
struct Sample<'a> {
    #[serde(borrow)]
    image: &'a [u8],
    pose: [f32; 14],
    tokens: Vec<i32>,
}

fn write(folder: &Path) -> anyhow::Result<()> {
    let environment = Environment::new().set_map_size(1 << 30).open(folder)?;
    let database: Database = environment.open_db(None)?;
    let mut transaction = environment.begin_rw_txn()?;
    for number in 0..RECORDS {
        let shade = u8::try_from(number % 256)?;
        let image = vec![shade; 3 * SIDE * SIDE];
        let pose = std::array::from_fn(|joint| f32::from(shade) + joint as f32);
        let tokens = (0..i32::from(shade) % 60).collect();
        let value = postcard::to_stdvec(&Sample { image: &image, pose, tokens })?;
        transaction.put(database, &format!("{number:08}"), &value, WriteFlags::empty())?;
    }
    transaction.commit().context("cannot write the database")
}

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    write(folder.path())?;

    let fields = [
        Field::new("image", Dtype::U8, [3, SIDE, SIDE]),
        Field::new("pose", Dtype::F32, [14]),
        Field::ragged("tokens", Dtype::I32, 64),
    ];
    let mut feed = Feed::builder()
        .lmdb(folder.path())
        .decode(fields, |record, row| {
            let sample: Sample<'_> = postcard::from_bytes(record.value)?;
            if sample.image.iter().any(|&byte| byte != sample.image[0]) {
                return Err(DecodeFailure::new("the image has more than one shade"));
            }
            row.write("image", sample.image)?;
            row.write("pose", &sample.pose)?;
            row.write("tokens", &sample.tokens)?;
            Ok(())
        })
        .batch_size(64)
        .shuffle(Shuffle::Global)
        .epochs(2)
        .build()?;
    println!("{}", feed.layout());

    for epoch in 0..2 {
        let (mut records, mut tokens) = (0, 0);
        for batch in feed.epoch()? {
            let batch = batch?;
            let ragged = batch.ragged::<i32>("tokens")?;
            // A batch as frameworks take it: slices with their shapes, and DLPack by `batch.into_dlpack()`.
            let (images, poses) = (batch.get::<u8>("image")?, batch.get::<f32>("pose")?);
            assert_eq!((images.shape()[0], poses.shape()[1]), (batch.len(), 14));
            records += batch.len();
            tokens += ragged.values().len();
        }
        println!("epoch {epoch}: {records} records, {tokens} tokens");
    }
    println!("{}", feed.stats());
    Ok(())
}
