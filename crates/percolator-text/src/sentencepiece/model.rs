//! The `.model` file: a message `ModelProto` in protobuf's wire format.

use std::collections::HashMap;

use prost::Message;

use super::ModelError;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<PieceProto>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<TrainerProto>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<NormalizerProto>,
}

#[derive(Clone, PartialEq, Message)]
struct PieceProto {
    #[prost(bytes = "vec", optional, tag = "1")]
    piece: Option<Vec<u8>>,
    #[prost(float, optional, tag = "2")]
    score: Option<f32>,
    #[prost(int32, optional, tag = "3", default = "1")]
    kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrainerProto {
    #[prost(int32, optional, tag = "3", default = "1")]
    model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    treat_whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    byte_fallback: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct NormalizerProto {
    #[prost(bytes = "vec", optional, tag = "2")]
    precompiled_charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3", default = "true")]
    add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4", default = "true")]
    remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5", default = "true")]
    escape_whitespaces: Option<bool>,
}

/// What a piece is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) text: Box<[u8]>,
    pub(super) score: f32,
    pub(super) kind: Kind,
}

/// How text is normalised, beside the table of replacements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) adds_dummy_prefix: bool,
    pub(super) removes_extra_space: bool,
    pub(super) escapes_space: bool,
    pub(super) space_is_suffix: bool,
}

/// How a text is cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
    Word,
    Char,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) algorithm: Algorithm,
    pub(super) pieces: Vec<Piece>,
    pub(super) unknown: u32,
    /// The table of replacements; empty if there is none.
    pub(super) table: Vec<u8>,
    pub(super) rules: Rules,
    falls_back_to_bytes: bool,
}

impl Model {
    /// The pieces of a kind, with their numbers.
    pub(super) fn of_kind(&self, kind: Kind) -> Vec<(&[u8], u32)> {
        let pieces = (0..).zip(&self.pieces).filter(|(_, piece)| piece.kind == kind);
        pieces.map(|(id, piece)| (&*piece.text, id)).collect()
    }

    /// The number of each piece, by its text. No two pieces may have the same text.
    pub(super) fn ids(&self) -> Result<HashMap<Box<[u8]>, u32>, ModelError> {
        let mut ids = HashMap::with_capacity(self.pieces.len());
        for (id, piece) in (0..).zip(&self.pieces) {
            if let Some(before) = ids.insert(piece.text.clone(), id) {
                let text = piece.text.escape_ascii();
                return damaged(format!("its pieces {before} and {id} are both \"{text}\""));
            }
        }
        Ok(ids)
    }

    /// The number of each byte's piece, `<0x00>` to `<0xFF>`, if unknown text is written in bytes.
    pub(super) fn byte_ids(
        &self,
        ids: &HashMap<Box<[u8]>, u32>,
    ) -> Result<Option<Box<[u32; 256]>>, ModelError> {
        if !self.falls_back_to_bytes {
            return Ok(None);
        }
        let mut byte_ids = Box::new([0; 256]);
        for (byte, id) in byte_ids.iter_mut().enumerate() {
            let text = format!("<0x{byte:02X}>");
            match ids.get(text.as_bytes()) {
                Some(found) => *id = *found,
                None => return damaged(format!("it falls back to bytes, and has no piece {text}")),
            }
        }
        Ok(Some(byte_ids))
    }
}

fn damaged<T>(message: String) -> Result<T, ModelError> {
    Err(ModelError::Damaged(message))
}

pub(super) fn parse(bytes: &[u8]) -> Result<Model, ModelError> {
    let proto = ModelProto::decode(bytes).map_err(|error| ModelError::Damaged(error.to_string()))?;
    let trainer = proto.trainer.unwrap_or_default();
    let normalizer = proto.normalizer.unwrap_or_default();
    if proto.pieces.is_empty() {
        return damaged("it has no pieces".to_owned());
    }
    if proto.pieces.len() > i32::MAX as usize {
        return damaged(format!("it has {} pieces, and {} are allowed", proto.pieces.len(), i32::MAX));
    }
    let algorithm = match trainer.model_type() {
        1 => Algorithm::Unigram,
        2 => Algorithm::Bpe,
        3 => Algorithm::Word,
        4 => Algorithm::Char,
        other => return Err(ModelError::Kind { found: other.to_string() }),
    };
    let pieces: Vec<_> =
        (0..).zip(proto.pieces).map(|(id, piece)| read(id, piece)).collect::<Result<_, _>>()?;
    let unknown: Vec<u32> =
        (0..).zip(&pieces).filter(|(_, piece)| piece.kind == Kind::Unknown).map(|(id, _)| id).collect();
    let [unknown] = unknown[..] else {
        return damaged(format!("it has {} pieces for unknown text, and one is needed", unknown.len()));
    };
    let rules = Rules {
        adds_dummy_prefix: normalizer.add_dummy_prefix(),
        removes_extra_space: normalizer.remove_extra_whitespaces(),
        escapes_space: normalizer.escape_whitespaces(),
        space_is_suffix: trainer.treat_whitespace_as_suffix(),
    };
    let table = normalizer.precompiled_charsmap.unwrap_or_default();
    let falls_back_to_bytes = trainer.byte_fallback();
    Ok(Model { algorithm, pieces, unknown, table, rules, falls_back_to_bytes })
}

fn read(id: u32, proto: PieceProto) -> Result<Piece, ModelError> {
    let score = proto.score();
    let kind = match proto.kind() {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        other => return damaged(format!("its piece {id} is of the kind {other}, and kinds are 1 to 6")),
    };
    let text = proto.piece.unwrap_or_default().into_boxed_slice();
    if text.is_empty() {
        return damaged(format!("its piece {id} is empty"));
    }
    if !score.is_finite() {
        return damaged(format!("its piece {id} has the score {score}"));
    }
    Ok(Piece { text, score, kind })
}
