//! Ten thousand samples, written in every format that has a writer here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use percolator_files::whole_file::Existing;
use percolator_formats::write::{ParquetWriter, RecordWriter, TarWriter};
use percolator_formats::{Key, Part, Value};
use serde_json::{Value as Json, json};

/// So many samples.
pub(crate) const SAMPLES: u64 = 10_000;

/// The files of each format are so many, but for those of which there is one.
const FILES: u64 = 3;

/// A picture, whose size differs from sample to sample, and its class.
fn sample(number: u64) -> (Vec<u8>, i64) {
    let (width, height) = (8 + number % 5, 6 + number % 7);
    let mut picture = format!("P6\n{width} {height}\n255\n").into_bytes();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    picture.extend((0..width * height * 3).map(|_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    }));
    (picture, (number * 7 % 10).cast_signed())
}

/// The samples of a file.
fn of_file(file: u64) -> impl Iterator<Item = (u64, Vec<u8>, i64)> {
    let at = |file: u64| SAMPLES * file / FILES;
    (at(file)..at(file + 1)).map(|number| {
        let (picture, label) = sample(number);
        (number, picture, label)
    })
}

/// Writes the samples by a writer of the package, a file after the other.
pub(crate) fn written(
    folder: &Path,
    ending: &str,
    create: impl Fn(&Path) -> Box<dyn RecordWriter>,
) -> PathBuf {
    for file in 0..FILES {
        let mut writer = create(&folder.join(format!("many-{file}.{ending}")));
        for (number, picture, label) in of_file(file) {
            let parts: [Part<'_>; 2] =
                [("image".into(), Value::Bytes(picture.into())), ("label".into(), Value::Int(label))];
            writer.put(&Key::Number(number), &parts).unwrap();
        }
        writer.finish(Existing::Refuse).unwrap();
    }
    folder.join(format!("many-{{0..{}}}.{ending}", FILES - 1))
}

pub(crate) fn tar(folder: &Path) -> PathBuf {
    written(folder, "tar", |path| Box::new(TarWriter::create(path).unwrap()))
}

pub(crate) fn parquet(folder: &Path) -> PathBuf {
    written(folder, "parquet", |path| Box::new(ParquetWriter::create(path).unwrap()))
}

pub(crate) fn arrow(folder: &Path) -> PathBuf {
    for file in 0..FILES {
        let fields = [("image", DataType::Binary), ("label", DataType::Int64)];
        let schema =
            Arc::new(Schema::new(fields.map(|(name, dtype)| Field::new(name, dtype, false)).to_vec()));
        let out = fs::File::create(folder.join(format!("many-{file}.arrow"))).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(out, &schema).unwrap();
        let samples: Vec<_> = of_file(file).collect();
        for samples in samples.chunks(1000) {
            let images = samples.iter().map(|(_, picture, _)| Some(&picture[..]));
            let labels = samples.iter().map(|(_, _, label)| Some(*label));
            let columns: Vec<ArrayRef> =
                vec![Arc::new(BinaryArray::from_iter(images)), Arc::new(Int64Array::from_iter(labels))];
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()).unwrap();
        }
        writer.finish().unwrap();
    }
    folder.join("many-*.arrow")
}

/// A head of a number and offsets, and what it is the head of.
fn with_offsets(samples: &[Vec<u8>], before: &[u8]) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let mut at = 4 + 4 * (samples.len() + 1) + before.len();
    let mut bytes = word(samples.len()).to_vec();
    bytes.extend(word(at));
    for sample in samples {
        at += sample.len();
        bytes.extend(word(at));
    }
    bytes.extend_from_slice(before);
    samples.iter().for_each(|sample| bytes.extend_from_slice(sample));
    bytes
}

pub(crate) fn mds(folder: &Path) -> PathBuf {
    let folder = folder.join("mds");
    fs::create_dir(&folder).unwrap();
    let mut shards = Vec::new();
    for file in 0..FILES {
        let samples: Vec<Vec<u8>> = of_file(file)
            .map(|(_, picture, label)| {
                let size = u32::try_from(picture.len()).unwrap().to_le_bytes();
                [&size[..], &picture, &label.to_le_bytes()].concat()
            })
            .collect();
        let bytes = with_offsets(&samples, b"{}");
        let name = format!("shard.{file:05}.mds");
        fs::write(folder.join(&name), &bytes).unwrap();
        shards.push(json!({
            "version": 2, "format": "mds", "column_names": ["image", "label"], "column_sizes": [null, 8],
            "column_encodings": ["bytes", "int"], "compression": null, "hashes": [], "samples": samples.len(),
            "raw_data": {"basename": name, "bytes": bytes.len(), "hashes": {}}, "zip_data": null,
        }));
    }
    write_index(&folder, &json!({"version": 2, "shards": shards}));
    folder
}

pub(crate) fn litdata(folder: &Path) -> PathBuf {
    let folder = folder.join("litdata");
    fs::create_dir(&folder).unwrap();
    let mut chunks = Vec::new();
    for file in 0..FILES {
        let items: Vec<Vec<u8>> = of_file(file)
            .map(|(_, picture, label)| {
                let size = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
                [&size(picture.len())[..], &size(8), &picture, &label.to_le_bytes()].concat()
            })
            .collect();
        let bytes = with_offsets(&items, b"");
        let name = format!("chunk-0-{file}.bin");
        fs::write(folder.join(&name), &bytes).unwrap();
        chunks.push(
            json!({"filename": name, "chunk_bytes": bytes.len(), "chunk_size": items.len(), "dim": null}),
        );
    }
    let leaf = json!({"type": null, "context": null, "children_spec": []});
    let tree =
        json!({"type": "builtins.dict", "context": "[\"image\", \"label\"]", "children_spec": [leaf, leaf]});
    let config = json!({
        "data_format": ["bytes", "int"], "data_spec": json!([1, tree]).to_string(), "compression": null,
        "encryption": null, "item_loader": "PyTreeLoader",
    });
    write_index(&folder, &json!({"chunks": chunks, "config": config}));
    folder
}

fn write_index(folder: &Path, index: &Json) {
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
}

pub(crate) fn record_io(folder: &Path) -> PathBuf {
    const MAGIC: u32 = 0xced7_230a;

    let mut bytes = Vec::new();
    for number in 0..SAMPLES {
        let (picture, label) = sample(number);
        let length = u32::try_from(24 + picture.len()).unwrap();
        bytes.extend([MAGIC, length, 0].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend((label as f32).to_le_bytes());
        bytes.extend([number, 0].into_iter().flat_map(u64::to_le_bytes));
        bytes.extend_from_slice(&picture);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let path = folder.join("many.rec");
    fs::write(&path, bytes).unwrap();
    path
}

/// Pictures without labels, whose limits stand behind them.
pub(crate) fn bagz(folder: &Path) -> PathBuf {
    let (mut bytes, mut limits) = (Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        bytes.extend_from_slice(&sample(number).0);
        limits.extend((bytes.len() as u64).to_le_bytes());
    }
    let path = folder.join("many.bag");
    bytes.extend_from_slice(&limits);
    fs::write(&path, bytes).unwrap();
    path
}
