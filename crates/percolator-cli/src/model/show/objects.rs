//! The objects of a checkpoint of TensorFlow 2, as a tree.

use std::fmt::Write as _;
use std::io::Write as _;

use percolator::shown;
use percolator_tensorflow::{Checkpoint, Object, ObjectGraph};
use serde_json::{Value as Json, json};

use super::super::values::line;
use super::super::{How, shape, stdout};

/// The tensor that has the objects.
pub(super) const GRAPH: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

pub(super) fn show(checkpoint: &Checkpoint, how: How) -> anyhow::Result<()> {
    let objects = checkpoint.objects()?;
    if how.json { show_json(checkpoint, &objects) } else { show_tree(checkpoint, &objects) }
}

fn show_tree(checkpoint: &Checkpoint, objects: &ObjectGraph) -> anyhow::Result<()> {
    let mut out = stdout();
    let (count, tensors) = (objects.objects().len(), checkpoint.len());
    let path = shown::path(checkpoint.prefix());
    writeln!(out, "{path}: {count} objects, {tensors} tensors in {} data file(s)", checkpoint.shards())?;
    for found in objects.tree() {
        let object = &objects.objects()[found.object];
        let mut text = found.name.unwrap_or("the root").to_owned();
        if found.is_repeated {
            let elsewhere = objects.path(found.object).unwrap_or_default();
            let _ = write!(text, " -> {}", if elsewhere.is_empty() { "the root" } else { &elsewhere });
        } else {
            text += &values(checkpoint, object);
        }
        line(&mut out, found.depth, format_args!("{text}"))?;
        for slot in object.slots.iter().filter(|_| !found.is_repeated) {
            let of = objects.path(slot.variable).unwrap_or_default();
            let values = values(checkpoint, &objects.objects()[slot.object]);
            line(&mut out, found.depth + 1, format_args!("slot {} of {of}{values}", slot.name))?;
        }
    }
    out.finish()
}

/// What an object has in the checkpoint.
fn values(checkpoint: &Checkpoint, object: &Object) -> String {
    let mut text = String::new();
    for tensor in &object.tensors {
        let what = match &*tensor.name {
            "VARIABLE_VALUE" => String::new(),
            name => format!("{name}: "),
        };
        let _ = match checkpoint.info(&tensor.key) {
            Ok(info) => write!(text, "  {what}{} {}", info.data_type, shape(info.shape)),
            Err(_) => write!(text, "  {what}no tensor {:?}", tensor.key),
        };
    }
    text
}

fn show_json(checkpoint: &Checkpoint, objects: &ObjectGraph) -> anyhow::Result<()> {
    let found: Vec<Json> = objects
        .objects()
        .iter()
        .enumerate()
        .map(|(number, object)| {
            let children = object.children.iter().map(|child| (child.name.clone(), json!(child.object)));
            let tensors = object.tensors.iter().map(|tensor| {
                let info = checkpoint.info(&tensor.key).ok();
                json!({
                    "name": tensor.name,
                    "key": tensor.key,
                    "full_name": tensor.full_name,
                    "dtype": info.map(|info| info.data_type.name()),
                    "shape": info.map(|info| info.shape),
                })
            });
            let slots = object
                .slots
                .iter()
                .map(|slot| json!({ "name": slot.name, "variable": slot.variable, "object": slot.object }));
            json!({
                "path": objects.path(number),
                "children": children.collect::<serde_json::Map<_, _>>(),
                "tensors": tensors.collect::<Vec<_>>(),
                "slots": slots.collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut out = stdout();
    writeln!(out, "{:#}", json!({ "path": checkpoint.prefix().to_string_lossy(), "objects": found }))?;
    out.finish()
}
