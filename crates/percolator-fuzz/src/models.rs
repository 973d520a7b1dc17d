//! TensorFlow's files: checkpoints, lists of checkpoints, graphs; and what they are converted from and to.

use percolator::source::Access;
use percolator_tensorflow::checkpoint::StateFile;
use percolator_tensorflow::convert::{Format, Model, NameRules};
use percolator_tensorflow::graph::Attr;
use percolator_tensorflow::{Checkpoint, MetaGraph, SavedModel, Tensor};

use crate::accepted::accepted;
use crate::files::Folder;
use crate::memory::{Budget, within};
use crate::repair;

/// An index is kept as it is, with its entries decoded; a tensor is copied if its file is not mapped.
const CHECKPOINT: Budget = Budget::mebibytes(4, 128);
/// The schema, and a value of some bytes for a number of two.
const STATE: Budget = Budget::mebibytes(8, 256);
/// A node of a few bytes is a message of some hundred, and the text of a message is longer than it.
const GRAPH: Budget = Budget::mebibytes(8, 1024);
/// What a constant may have: a shape and one value are as many values as the shape has.
const CONSTANT_BYTES_MAX: usize = 1 << 20;
/// A header is JSON or a text; a deflated member is at most 1,032 times as long as its bytes.
const TENSORS: Budget = Budget::mebibytes(4, 1_032 * 2);

/// A checkpoint: the length of its index (two bytes), the index, and its data file. All tensors are read, by
/// maps and by reads, whole and in part, and all objects.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (index, data) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    repair::both(index, repair::table, |index| {
        let folder = Folder::new();
        folder.with("model.index", index);
        folder.with("model.data-00000-of-00001", data);
        for access in [Access::Mapped, Access::Read] {
            within(bytes, CHECKPOINT, || {
                let checkpoint = Checkpoint::open_with(folder.path().join("model"), access);
                if let Ok(checkpoint) = checkpoint {
                    read_checkpoint(&checkpoint);
                }
            });
        }
    });
}

fn read_checkpoint(checkpoint: &Checkpoint) {
    let mut good = 0;
    for info in checkpoint.tensors() {
        assert_eq!(checkpoint.info(info.name), Ok(info));
        let Ok(tensor) = checkpoint.tensor(info.name) else { continue };
        good += 1;
        accepted();
        assert_eq!((tensor.data_type(), tensor.shape()), (info.data_type, info.shape));
        let half: Vec<_> = info.shape.iter().map(|extent| extent / 2..*extent).collect();
        assert!(checkpoint.region(info.name, &half).is_ok());
    }
    let faults = checkpoint.verify(1).faults;
    assert!(good < checkpoint.len() || faults.is_empty(), "each tensor is read, and {faults:?}");
    if let Ok(objects) = checkpoint.objects() {
        for line in objects.tree().take(1000) {
            let _ = objects.path(line.object).map(|path| objects.key_of(&path).map(str::to_owned));
        }
    }
}

/// The file `checkpoint`, which lists the checkpoints of a folder.
pub(crate) fn checkpoint_state(bytes: &[u8]) {
    let folder = Folder::new();
    folder.with("checkpoint", bytes);
    let file = StateFile::of(folder.path());
    let read = within(bytes, STATE, || file.read());
    if read.is_ok() {
        accepted();
    }
    let latest = within(bytes, STATE, || file.latest());
    // No checkpoint is there, so none is found, wherever the paths lead.
    assert!(latest.is_err() || bytes.is_empty() || read.is_err(), "{latest:?}");
}

/// A SavedModel on the wire. It is written as it was read; its text is the same model.
pub(crate) fn saved_model(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.with("saved_model.pb", bytes);
    let Ok(model) = within(bytes, GRAPH, || SavedModel::open(folder.path())) else { return };
    accepted();
    assert!(model.to_bytes() == bytes, "a model is written as it was read");
    within(bytes, GRAPH, || model.meta_graphs().iter().for_each(read_graph));
    // Parts that are only printed may be damaged.
    let Ok(text) = within(bytes, GRAPH, || model.to_text()) else { return };
    // A model of nothing but defaults has no text, and an empty file is taken for one that was cut.
    if text.is_empty() {
        return;
    }
    std::fs::remove_file(path).expect("it is there");
    folder.with("saved_model.pbtxt", text.as_bytes());
    let again = SavedModel::open(folder.path()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again.to_text().expect("it was read from text"), text);
}

/// A SavedModel as text.
pub(crate) fn saved_model_text(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.with("saved_model.pbtxt", bytes);
    let Ok(model) = within(bytes, GRAPH, || SavedModel::open(folder.path())) else { return };
    within(bytes, GRAPH, || model.meta_graphs().iter().for_each(read_graph));
    accepted();
    let written = model.to_bytes();
    std::fs::remove_file(path).expect("it is there");
    // No bytes are a model without anything, but a file of them is taken for one that was cut.
    if !written.is_empty() {
        folder.with("saved_model.pb", &written);
        let again = SavedModel::open(folder.path()).unwrap_or_else(|error| panic!("{error}: {written:?}"));
        assert!(again.to_bytes() == written, "a model is written as it was read");
    }
}

/// A meta graph, in text or on the wire, whichever it looks like.
pub(crate) fn meta_graph(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.with("model.meta", bytes);
    let Ok(graph) = within(bytes, GRAPH, || MetaGraph::open(&path)) else { return };
    accepted();
    within(bytes, GRAPH, || read_graph(&graph));
}

/// Reads all that there is of a graph.
fn read_graph(graph: &MetaGraph) {
    let _ = (graph.placeholders(), graph.variables(), graph.faults(), graph.collections().count());
    for signature in graph.signatures().into_iter().flatten().take(16) {
        let _ = graph.needed_for(&signature).map(|nodes| graph.functions_of(nodes).len());
    }
    for node in graph.nodes() {
        let _ = node.inputs().count();
        for (_, attr) in node.attrs() {
            if let Attr::Tensor(constant) = attr {
                let bytes = |value: Tensor<'_>| value.bytes().map_or(0, <[u8]>::len);
                let found = constant.value_within(CONSTANT_BYTES_MAX).map(bytes).unwrap_or_default();
                assert!(found <= CONSTANT_BYTES_MAX);
            }
        }
    }
    if let Some(first) = graph.nodes().next() {
        let _ = (graph.consumers(first.name()), graph.fed_by(first.name()));
    }
    for asset in graph.assets().into_iter().flatten() {
        assert!(asset.path().is_err(), "no asset is there");
    }
    if let Ok(Some(objects)) = graph.objects() {
        objects.objects().for_each(|object| drop((object.kind(), objects.path(object.number()))));
    }
}

/// A `.safetensors` file, beside the crate `safetensors`: what both read is the same.
pub(crate) fn tensors(bytes: &[u8]) {
    read_model("model.safetensors", Format::Safetensors, bytes, |name, tensor| {
        let Ok(theirs) = safetensors::SafeTensors::deserialize(bytes) else { return };
        if let (Ok(view), Some(ours)) = (theirs.tensor(name), tensor.bytes()) {
            assert!(view.shape() == tensor.shape() && view.data() == ours, "{name} is another tensor");
        }
    });
}

/// A `.npz` archive.
pub(crate) fn npz(bytes: &[u8]) {
    read_model("model.npz", Format::Npz, bytes, |_, _| {});
}

/// A `.npy` file.
pub(crate) fn npy(bytes: &[u8]) {
    read_model("model.npy", Format::Npy, bytes, |_, _| {});
}

fn read_model(name: &str, format: Format, bytes: &[u8], check: impl Fn(&str, &Tensor<'_>)) {
    let folder = Folder::new();
    let path = folder.with(name, bytes);
    within(bytes, TENSORS, || {
        let Ok(model) = Model::open_as(&path, format) else { return };
        for (place, info) in model.tensors().iter().enumerate().take(256) {
            let Ok(tensor) = model.read(place) else { continue };
            accepted();
            assert_eq!((tensor.data_type(), tensor.shape()), (info.data_type, &info.shape[..]));
            assert!(info.bytes().is_none() || info.bytes() == tensor.bytes().map(<[u8]>::len));
            check(&info.name, &tensor);
        }
    });
}

/// Rules by which tensors are renamed.
pub(crate) fn rename_rules(bytes: &[u8]) {
    const NAMES: [&str; 5] = ["layer1/W", "model/layer1/W:0", "a.b.c", "", "optimizer/layer1/W/.SLOT"];

    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A pattern is compiled; the crate `regex-lite` has a limit of 10 MB for each.
    within(bytes, Budget::mebibytes(64, 4096), || {
        // A line each: those with an equals sign give names.
        let rules = text.lines().try_fold(NameRules::none(), |rules, line| match line.contains('=') {
            true => rules.rename(line),
            false => rules.drop(line),
        });
        let Ok(rules) = rules else { return };
        accepted();
        if let Ok(renamed) = rules.apply(NAMES) {
            assert_eq!(renamed.len(), NAMES.len());
        }
    });
}
