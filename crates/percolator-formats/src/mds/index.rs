//! The index of a data set: its shards and their columns.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::fields::has_twice;
use crate::{FormatError, index_file};

/// A shard as the index names it.
pub(super) struct Listed {
    /// The file on the disk.
    pub(super) path: PathBuf,
    pub(super) samples: u64,
    /// Its length, unpacked.
    pub(super) bytes: u64,
    pub(super) packed: Option<Packed>,
    pub(super) columns: Vec<Column>,
}

/// How a shard is compressed.
#[derive(Debug)]
pub(super) struct Packed {
    /// The algorithm's name, without its level.
    pub(super) algorithm: String,
    /// The length of the file.
    pub(super) bytes: u64,
    /// The hashes of the file, and those of what it unpacks to.
    pub(super) hashes: Hashes,
    pub(super) raw_hashes: Hashes,
}

/// Hashes by the names of their algorithms, in hexadecimal digits.
pub(super) type Hashes = Vec<(String, String)>;

/// A column of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) encoding: String,
    /// The bytes of a value; `None` if they vary.
    pub(super) bytes: Option<u64>,
}

/// Reads an index.
pub(super) fn read(index: &Path) -> Result<Vec<Listed>, FormatError> {
    let json = index_file::json(index)?;
    check_version(index, &json)?;
    let shards = list(&json, "shards").ok_or_else(|| wrong(index, "has no list of shards"))?;
    shards.iter().enumerate().map(|(number, shard)| listed(index, number, shard)).collect()
}

fn check_version(index: &Path, json: &Json) -> Result<(), FormatError> {
    match json.get("version").and_then(Json::as_u64) {
        Some(2) => Ok(()),
        Some(other) => {
            Err(FormatError::refused(index, format!("it is of version {other}, and version 2 is read")))
        }
        None => Err(wrong(index, "has no version")),
    }
}

fn wrong(index: &Path, what: &str) -> FormatError {
    FormatError::damaged(index, format!("the index {what}"))
}

fn list<'a>(json: &'a Json, name: &str) -> Option<&'a Vec<Json>> {
    json.get(name)?.as_array()
}

fn listed(index: &Path, number: usize, shard: &Json) -> Result<Listed, FormatError> {
    let lacks = |what: &str| wrong(index, &format!("has no {what} of shard {number}"));
    check_version(index, shard)?;
    let format = shard.get("format").and_then(Json::as_str).unwrap_or_default();
    if format != "mds" {
        return Err(FormatError::refused(
            index,
            format!("shard {number} has the format {format:?}, and MDS is read"),
        ));
    }
    let samples = shard.get("samples").and_then(Json::as_u64).ok_or_else(|| lacks("samples"))?;
    let raw = shard.get("raw_data").ok_or_else(|| lacks("raw_data"))?;
    let bytes = raw.get("bytes").and_then(Json::as_u64).ok_or_else(|| lacks("raw_data.bytes"))?;
    let zip = shard.get("zip_data").filter(|zip| !zip.is_null());
    let algorithm = shard.get("compression").and_then(Json::as_str);
    let packed = match (zip, algorithm) {
        (None, _) => None,
        (Some(zip), Some(algorithm)) => Some(Packed {
            // Levels follow a colon.
            algorithm: algorithm.split(':').next().unwrap_or_default().to_owned(),
            bytes: zip.get("bytes").and_then(Json::as_u64).ok_or_else(|| lacks("zip_data.bytes"))?,
            hashes: hashes(zip),
            raw_hashes: hashes(raw),
        }),
        (Some(_), None) => return Err(lacks("compression")),
    };
    let name = zip.unwrap_or(raw).get("basename").and_then(Json::as_str).ok_or_else(|| lacks("basename"))?;
    let path = index_file::below(index, name)?;
    Ok(Listed {
        path,
        samples,
        bytes,
        packed,
        columns: columns(shard).ok_or_else(|| lacks("whole list of columns, each with a name of its own"))?,
    })
}

fn hashes(data: &Json) -> Hashes {
    let hashes = data.get("hashes").and_then(Json::as_object).into_iter().flatten();
    hashes.filter_map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned()))).collect()
}

/// The columns, in the order in which their values lie.
fn columns(shard: &Json) -> Option<Vec<Column>> {
    let [names, encodings, sizes] =
        ["column_names", "column_encodings", "column_sizes"].map(|name| list(shard, name));
    let (names, encodings, sizes) = (names?, encodings?, sizes?);
    if names.len() != encodings.len() || names.len() != sizes.len() {
        return None;
    }
    let columns: Option<Vec<Column>> = names
        .iter()
        .zip(encodings)
        .zip(sizes)
        .map(|((name, encoding), bytes)| {
            let bytes = if bytes.is_null() { None } else { Some(bytes.as_u64()?) };
            Some(Column { name: name.as_str()?.to_owned(), encoding: encoding.as_str()?.to_owned(), bytes })
        })
        .collect();
    columns.filter(|columns| !has_twice(columns.iter().map(|column| &*column.name)))
}
