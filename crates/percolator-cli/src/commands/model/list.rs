//! `percolator model list`: the tensors of a model, as a table or with their digests.

use std::path::PathBuf;

use clap::Args;
use percolator_files::parallel::map;
use percolator_files::shown::count;
use percolator_tensorflow::convert::{ConvertError, Model, ModelTensor, Progress};
use percolator_tensorflow::{DataType, Elements, Tensor};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{How, printable, shape, stdout};

#[derive(Debug, Args)]
pub(super) struct List {
    /// A checkpoint (its prefix, one of its files, or a folder with a file "checkpoint"), a SavedModel, a
    /// .safetensors, .npz or .npy file, or a folder of .npy files.
    #[arg(value_name = "PATH")]
    pub(super) path: PathBuf,
}

/// A tensor, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: usize,
    sha256: String,
}

impl List {
    pub(super) fn run(&self, how: How) -> anyhow::Result<()> {
        let model = Model::open(&self.path)?;
        let order = by_name(&model);
        if !how.json {
            let mut out = stdout();
            write_table(&model, &order, &mut out)?;
            return out.finish();
        }
        let listed = how.watched(|progress| listed(&model, &order, progress))?;
        stdout().json("percolator.model.list/1", &json!({ "tensors": listed }))
    }
}

/// The places of the tensors in the model, in the order of their names.
pub(super) fn by_name(model: &Model) -> Vec<usize> {
    let mut order: Vec<_> = (0..model.tensors().len()).collect();
    order.sort_by(|&one, &other| model.tensors()[one].name.cmp(&model.tensors()[other].name));
    order
}

fn listed(model: &Model, order: &[usize], progress: &Progress) -> anyhow::Result<Vec<Listed>> {
    let weights = order.iter().map(|&place| weight(&model.tensors()[place]));
    progress.begin(weights.fold(0, u64::saturating_add));
    let listed = map("model", 0, 0..order.len(), |number| {
        ConvertError::check(progress)?;
        let place = order[number];
        let info = &model.tensors()[place];
        let tensor = model.read(place)?;
        let (bytes, sha256) = digest(&tensor);
        progress.add_done(weight(info));
        let (name, dtype, shape) = (info.name.clone(), info.data_type.name(), info.shape.clone());
        Ok(Listed { name, dtype, shape, bytes, sha256 })
    });
    listed.into_iter().collect()
}

/// A tensor's part of the work.
pub(super) fn weight(info: &ModelTensor) -> u64 {
    info.bytes().map_or(1, |bytes| (bytes as u64).max(1))
}

/// The bytes of a tensor's elements, of strings with a zero byte between them, and their SHA-256.
fn digest(tensor: &Tensor<'_>) -> (usize, String) {
    let mut hash = Sha256::new();
    let mut length = 0;
    let mut update = |bytes: &[u8]| {
        hash.update(bytes);
        length += bytes.len();
    };
    match tensor.elements() {
        Elements::Bytes(bytes) => update(bytes),
        Elements::Strings(strings) => {
            for (number, string) in strings.iter().enumerate() {
                if number > 0 {
                    update(&[0]);
                }
                update(string);
            }
        }
    }
    (length, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The bytes of a tensor. Those of strings are only known once they are read.
fn bytes(model: &Model, place: usize) -> anyhow::Result<usize> {
    let info = &model.tensors()[place];
    match info.bytes() {
        Some(bytes) => Ok(bytes),
        None => Ok(match model.read(place)?.elements() {
            Elements::Bytes(bytes) => bytes.len(),
            Elements::Strings(strings) => {
                strings.iter().map(|string| string.len()).sum::<usize>() + strings.len().saturating_sub(1)
            }
        }),
    }
}

/// The widest column of a table, in characters.
const WIDTH_MAX: usize = 200;

/// Writes a line for each tensor, and the total; of no tensors, nothing.
pub(super) fn write_table(
    model: &Model,
    order: &[usize],
    out: &mut impl std::io::Write,
) -> anyhow::Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["name".to_owned(), "type".to_owned(), "shape".to_owned(), "bytes".to_owned()]];
    let mut total = 0;
    for &place in order {
        let info = &model.tensors()[place];
        let bytes = bytes(model, place)?;
        total += bytes as u64;
        rows.push([
            printable(&info.name),
            DataType::name(info.data_type).to_owned(),
            shape(&info.shape),
            bytes.to_string(),
        ]);
    }
    let tensors = count(order.len(), "tensor").to_string();
    rows.push([tensors, String::new(), String::new(), total.to_string()]);
    // A longer cell pushes the rest of its own line to the right, and leaves the other lines as they are.
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(WIDTH_MAX);
    let widths = [0, 1, 2, 3].map(width);
    for [name, data_type, shape, bytes] in &rows {
        let [one, two, three, four] = widths;
        writeln!(out, "{name:one$}  {data_type:two$}  {shape:three$}  {bytes:>four$}")?;
    }
    Ok(())
}
