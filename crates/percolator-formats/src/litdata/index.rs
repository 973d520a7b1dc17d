//! The index of a data set: its chunks, how they are packed, and how leaves make an item.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::leaf::Leaf;
use super::tree::Tree;
use crate::{FormatError, index_file};

/// What an index says.
pub(super) struct LitIndex {
    /// In the order of the items.
    pub(super) chunks: Vec<ListedChunk>,
    pub(super) level: Level,
    /// How each leaf of an item is encoded.
    pub(super) leaves: Vec<Leaf>,
    /// How the leaves make the parts of an item.
    pub(super) parts: Vec<(String, Tree)>,
    /// Whether the items of a chunk are one run of tokens, without the sizes of leaves.
    pub(super) has_tokens: bool,
}

/// A chunk as the index names it.
pub(super) struct ListedChunk {
    pub(super) path: PathBuf,
    pub(super) items: u64,
    /// Its length; unpacked, if it is compressed as a whole.
    pub(super) bytes: u64,
    /// The number of tokens, if it has any.
    pub(super) tokens: Option<u64>,
}

/// What is compressed by zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Nothing,
    Item,
    /// Several items together.
    Batch,
    Chunk,
}

/// Reads an index.
pub(super) fn read(index: &Path) -> Result<LitIndex, FormatError> {
    let wrong = |what: &str| FormatError::damaged(index, format!("the index {what}"));
    let json = index_file::json(index)?;
    let config = json.get("config").ok_or_else(|| wrong("has no config"))?;
    let chunks = json.get("chunks").and_then(Json::as_array).ok_or_else(|| wrong("has no list of chunks"))?;
    let chunks: Vec<_> = chunks
        .iter()
        .enumerate()
        .map(|(number, chunk)| listed(index, number, chunk))
        .collect::<Result<_, _>>()?;
    if config.get("encryption").is_some_and(|encryption| !encryption.is_null()) {
        return Err(FormatError::refused(index, "its chunks are encrypted: write them again without"));
    }
    let names: Option<Vec<&str>> = config
        .get("data_format")
        .and_then(Json::as_array)
        .and_then(|names| names.iter().map(Json::as_str).collect());
    let leaves = names.ok_or_else(|| wrong("has no data_format, the encodings of the leaves"))?;
    let leaves: Vec<_> = leaves
        .into_iter()
        .map(|name| {
            Leaf::of(name).ok_or_else(|| {
                FormatError::refused(index, format!("a leaf has the encoding {name:?}, which is not known"))
            })
        })
        .collect::<Result<_, _>>()?;
    let spec = config.get("data_spec").and_then(Json::as_str);
    let parts =
        Tree::parts_of(spec, leaves.len()).map_err(|what| wrong(&format!("has a data_spec that {what}")))?;
    let has_tokens = match config.get("item_loader").and_then(Json::as_str) {
        None | Some("PyTreeLoader") => false,
        Some("TokensLoader") => true,
        Some(other) => {
            let what = format!("its items were written for {other}; PyTreeLoader and TokensLoader are read");
            return Err(FormatError::refused(index, what));
        }
    };
    Ok(LitIndex { chunks, level: level(index, config)?, leaves, parts, has_tokens })
}

fn listed(index: &Path, number: usize, chunk: &Json) -> Result<ListedChunk, FormatError> {
    let of = |name: &str| chunk.get(name).and_then(Json::as_u64);
    let lacks =
        |name: &str| FormatError::damaged(index, format!("the index has no {name} of chunk {number}"));
    let name = chunk.get("filename").and_then(Json::as_str).ok_or_else(|| lacks("filename"))?;
    Ok(ListedChunk {
        path: index_file::below(index, name)?,
        items: of("chunk_size").ok_or_else(|| lacks("chunk_size"))?,
        bytes: of("chunk_bytes").ok_or_else(|| lacks("chunk_bytes"))?,
        tokens: of("dim"),
    })
}

fn level(index: &Path, config: &Json) -> Result<Level, FormatError> {
    let refused = |what: String| Err(FormatError::refused(index, what));
    let text = |name: &str| config.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
    // zstd's own level may follow a colon.
    match text("compression").and_then(|algorithm| algorithm.split(':').next()) {
        None => return Ok(Level::Nothing),
        Some("zstd") => {}
        Some(other) => return refused(format!("its chunks are compressed by {other:?}, and zstd is read")),
    }
    match text("compression_level") {
        None | Some("chunk") => Ok(Level::Chunk),
        Some("batch") => Ok(Level::Batch),
        Some("sample") => Ok(Level::Item),
        Some(other) => {
            refused(format!("it has the compression_level {other:?}; chunk, batch, sample are read"))
        }
    }
}
