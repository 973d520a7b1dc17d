//! The objects of a checkpoint of TensorFlow 2, as a tree.

use std::fmt::Write as _;
use std::io::Write as _;

use percolator_files::shown;
use percolator_tensorflow::Checkpoint;
use percolator_tensorflow::checkpoint::{Object, ObjectGraph};
use serde_json::{Value as Json, json};

use super::super::values::line;
use super::super::{How, shape, stdout};

/// The tensor that has the objects.
pub(super) const GRAPH: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// The deepest indentation: a chain of objects would need the square of its length.
const DEPTH_MAX: usize = 100;
/// The most names and bytes of all paths that are shown.
const PATHS_MAX: usize = 16 << 20;

/// The paths of objects, as long as they are not too much: those of a chain of objects have the square of its
/// length.
struct Paths<'a> {
    objects: &'a ObjectGraph,
    /// The names in the path of each object.
    depths: Vec<usize>,
    left: usize,
    /// How many were too much.
    left_out: usize,
}

impl<'a> Paths<'a> {
    fn new(objects: &'a ObjectGraph) -> Self {
        let mut depths = vec![0; objects.objects().len()];
        for found in objects.tree().filter(|found| !found.is_repeated) {
            depths[found.object] = found.depth;
        }
        Paths { objects, depths, left: PATHS_MAX, left_out: 0 }
    }

    /// Returns the path of an object, or `None` if it has none, or if no more are shown.
    fn next(&mut self, object: usize) -> Option<String> {
        // Finding a path takes as many steps as it has names.
        if self.left < self.depths[object] {
            self.left_out += 1;
            return None;
        }
        self.left -= self.depths[object];
        let path = self.objects.path(object)?;
        self.left = self.left.saturating_sub(path.len());
        Some(path)
    }
}

pub(super) fn show(checkpoint: &Checkpoint, how: How) -> anyhow::Result<()> {
    let objects = checkpoint.objects()?;
    if how.json { show_json(checkpoint, objects) } else { show_tree(checkpoint, objects) }
}

fn show_tree(checkpoint: &Checkpoint, objects: &ObjectGraph) -> anyhow::Result<()> {
    let mut out = stdout();
    let (count, tensors) = (objects.objects().len(), checkpoint.len());
    let path = shown::path(checkpoint.prefix());
    writeln!(out, "{path}: {count} objects, {tensors} tensors in {} data file(s)", checkpoint.shards())?;
    let mut paths = Paths::new(objects);
    let mut path = |object: usize| match paths.next(object) {
        Some(path) if path.is_empty() => "the root".to_owned(),
        Some(path) => path,
        None => format!("object {object}"),
    };
    for found in objects.tree() {
        let object = &objects.objects()[found.object];
        let mut text = found.name.unwrap_or("the root").to_owned();
        if found.is_repeated {
            let _ = write!(text, " -> {}", path(found.object));
        } else {
            text += &values(checkpoint, object);
        }
        let depth = found.depth.min(DEPTH_MAX);
        line(&mut out, depth, format_args!("{text}"))?;
        for slot in object.slots.iter().filter(|_| !found.is_repeated) {
            let of = path(slot.variable);
            let values = values(checkpoint, &objects.objects()[slot.object]);
            line(&mut out, depth + 1, format_args!("slot {} of {of}{values}", slot.name))?;
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
    let mut paths = Paths::new(objects);
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
                "path": paths.next(number),
                "children": children.collect::<serde_json::Map<_, _>>(),
                "tensors": tensors.collect::<Vec<_>>(),
                "slots": slots.collect::<Vec<_>>(),
            })
        })
        .collect();
    stdout().json(
        "percolator.model.show.objects/1",
        &json!({
            "path": checkpoint.prefix().to_string_lossy(), "objects": found, "paths_left_out": paths.left_out,
        }),
    )
}
