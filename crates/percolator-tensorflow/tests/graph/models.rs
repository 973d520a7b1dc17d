//! SavedModels and meta graphs on the damage harness, in protobuf's binary form and in text.
//!
//! Neither form has a checksum, so what damage makes of a model is another model, or an error; and whatever
//! opens is read to its last corner.

use std::fs;
use std::path::Path;

use percolator_tensorflow::graph::{Attr, GraphError};
use percolator_tensorflow::{MetaGraph, SavedModel, Tensor};

use crate::golden::data;
use crate::harness::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const OPENED: &str = "opened";
const READ_WHOLE: &str = "read whole";

const BARE: Guard = Guard::Bare("neither protobuf nor its text form has checksums");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    /// `saved_model.pb`.
    Saved,
    /// A meta graph in binary form.
    Binary,
    /// The same in text.
    Text,
}

pub(crate) const SMALL: &str = r#"meta_info_def { tags: "serve" tensorflow_version: "2.21.0"
  any_info { type_url: "x" } }
graph_def {
  node { name: "x" op: "Placeholder" attr { key: "shape" value { shape { dim { size: -1 } } } } }
  node { name: "c" op: "Const" attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1.5
    tensor_shape { dim { size: 30 } dim { size: 2 } } } } } attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "y" op: "Add" input: "x" input: "c:0" input: "^c" experimental_type { args { s: "t" } } }
  versions { producer: 7 } library { function { signature { name: "f" } node_def { name: "n" op: "NoOp" } } }
}
collection_def { key: "variables" value { bytes_list { value: "\n\003v:0" } } }
signature_def { key: "s" value { inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT } }
  outputs { key: "y" value { name: "y:0" } } method_name: "m" } }
object_graph_def { nodes { children { node_id: 1 local_name: "v" } user_object { identifier: "u" } }
  nodes { variable { name: "v" dtype: DT_FLOAT } } }
"#;

/// What damage may make of a constant at the most.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// Reads all that there is of a graph.
fn read_all(graph: &MetaGraph, with_text: bool) {
    let _ = (graph.placeholders(), graph.variables(), graph.faults(), graph.collections().count());
    for signature in graph.signatures().into_iter().flatten() {
        let _ = graph.needed_for(&signature).map(|nodes| graph.functions_of(nodes).len());
        assert!(!signature.inputs().iter().any(|input| input.to_string().is_empty()));
    }
    for node in graph.nodes() {
        let _ = node.inputs().count();
        for (_, attr) in node.attrs() {
            if let Attr::Tensor(constant) = attr {
                let bytes = |value: Tensor<'_>| value.bytes().map_or(0, <[u8]>::len);
                let _ = constant.value_within(VALUE_BYTES_MAX).map(bytes);
            }
        }
    }
    if let Some(first) = graph.nodes().next() {
        let _ = (graph.consumers(first.name()), graph.fed_by(first.name()));
    }
    for asset in graph.assets().into_iter().flatten() {
        let _ = asset.path();
    }
    if let Ok(Some(objects)) = graph.objects() {
        objects.objects().for_each(|object| drop((object.kind(), objects.path(object.number()))));
    }
    if with_text {
        let _ = (graph.to_text(), graph.to_dot());
    }
}

impl Model {
    fn file(self) -> &'static str {
        match self {
            Model::Saved => "saved_model.pb",
            Model::Binary => "binary.meta",
            Model::Text => "text.meta",
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Model::Saved => fs::read(data("module/saved_model.pb")).unwrap(),
            Model::Text => SMALL.as_bytes().to_vec(),
            Model::Binary => with_unknown(binary(SMALL)),
        }
    }
}

/// A meta graph, in binary form.
fn binary(text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.meta");
    fs::write(&path, text).unwrap();
    MetaGraph::open(path).unwrap().to_bytes()
}

/// The same with a field that nobody knows, which no text has.
fn with_unknown(bytes: Vec<u8>) -> Vec<u8> {
    [&bytes[..], b"\xba\xa6\x02\x07unknown"].concat()
}

/// What opens also goes through text.
fn through_text(graph: &MetaGraph, folder: &Path) {
    let path = folder.join("again.meta");
    // A part that is only printed may be damaged.
    let Ok(text) = graph.to_text() else { return };
    fs::write(&path, &text).unwrap();
    let again = MetaGraph::open(&path);
    assert!(again.is_ok() || graph.is_alone() || text.is_empty(), "{again:?}");
}

impl Format for Model {
    type Item = Vec<u8>;

    const BYTES_MAX: usize = 4000;

    fn name(&self) -> String {
        format!("model, {self:?}")
    }

    fn files(&self) -> Vec<Stated> {
        let mut file = Stated::of(self.file(), self.bytes(), BARE);
        let end = file.bytes.len();
        if *self == Model::Text {
            // Word by word.
            let mut start = 0;
            for word in SMALL.split_inclusive([' ', '\n']) {
                file.mark("word", BARE, start..start + word.len());
                start += word.len();
            }
        } else {
            // Wherever a length could be: behind the tag of a field with bytes.
            let mut at = 0;
            while at + 2 < end.min(3000) {
                if file.bytes[at] & 7 == 2 && file.bytes[at + 1] < 0x80 {
                    file.mark("tag", BARE, at..at + 1);
                    file.mark_number("length", BARE, Number::Varint, at + 1..at + 2);
                    at += 2;
                } else {
                    at += 1;
                }
            }
            file.mark("rest", BARE, end.min(3000)..end);
        }
        vec![file]
    }

    fn others(&self) -> Vec<Vec<Stated>> {
        let text = SMALL.replace("producer: 7", "producer: 8").replace("\"Add\"", "\"Mul\"");
        let bytes = match self {
            Model::Saved => fs::read(data("unnamed/saved_model.pb")).unwrap(),
            Model::Binary => with_unknown(binary(&text)),
            Model::Text => text.into_bytes(),
        };
        vec![vec![Stated::of(self.file(), bytes, BARE)]]
    }

    /// In binary form, its own bytes.
    fn whole_of(&self, other: &[Stated], _way: &'static str) -> Vec<Vec<u8>> {
        match self {
            Model::Text => vec![binary(std::str::from_utf8(&other[0].bytes).unwrap())],
            _ => vec![other[0].bytes.clone()],
        }
    }

    fn ways(&self) -> Vec<Way> {
        // Opening checks all that it reads. What is read then has few ways to fail, and takes longer.
        vec![Way::of(OPENED), Way::seldom(READ_WHOLE, if *self == Model::Saved { 8 } else { 2 })]
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Vec<u8>> {
        let path = folder.join(self.file());
        let read = || {
            if *self == Model::Saved {
                let model = SavedModel::open(folder)?;
                if way == READ_WHOLE {
                    model.meta_graphs().iter().for_each(|graph| read_all(graph, true));
                }
                return Ok(model.to_bytes());
            }
            let graph = MetaGraph::open(path)?;
            if way == READ_WHOLE {
                read_all(&graph, true);
                through_text(&graph, folder);
            }
            Ok::<_, GraphError>(graph.to_bytes())
        };
        Reading::whole(read())
    }

    /// In binary form, exactly these bytes. A text says the same in many ways.
    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Vec<u8>>) -> bool {
        match (self, &found.items[..]) {
            (_, []) => found.error.is_some(),
            (Model::Text, _) => true,
            (_, [bytes]) => case.bytes(self.file()) == Some(&bytes[..]),
            _ => false,
        }
    }
}

#[test]
fn saved_models() {
    harness::check(this_test!(), 800, || Model::Saved);
}

#[test]
fn meta_graphs_in_binary_form() {
    harness::check(this_test!(), 1500, || Model::Binary);
}

#[test]
fn meta_graphs_in_text() {
    harness::check(this_test!(), 1500, || Model::Text);
}
