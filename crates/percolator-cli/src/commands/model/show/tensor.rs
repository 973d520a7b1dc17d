//! One tensor's values.

use std::io::Write as _;

use anyhow::bail;
use percolator_files::shown;
use percolator_tensorflow::Tensor;
use percolator_tensorflow::convert::Model;
use serde_json::json;

use super::super::list::by_name;
use super::super::values::{json, line, nested};
use super::super::{How, shape, stdout};

/// Of a tensor with more elements, only the ends of each axis are shown.
const ELEMENTS_MAX: usize = 1000;

/// Shows the tensor of this name, or of the object at this path.
pub(super) fn show(model: &Model, name: &str, how: How) -> anyhow::Result<()> {
    let key = match model.checkpoint() {
        Some(checkpoint) => checkpoint.key(name)?,
        None => name,
    };
    let Some(place) = model.tensors().iter().position(|info| info.name == key) else {
        let mut names = by_name(model).into_iter().map(|place| model.tensors()[place].name.as_str());
        let first = names.next().map_or_else(String::new, |name| format!(", from {name:?} on"));
        bail!(
            "{}: there is no tensor {name:?} among the {}{first}",
            shown::path(model.path()),
            model.tensors().len()
        );
    };
    write(key, &model.read(place)?, how)
}

/// Prints a tensor's values.
pub(super) fn write(name: &str, tensor: &Tensor<'_>, how: How) -> anyhow::Result<()> {
    let mut out = stdout();
    let data_type = tensor.data_type();
    if how.json {
        let shape = tensor.shape();
        let found =
            json!({ "name": name, "dtype": data_type.name(), "shape": shape, "values": json(tensor) });
        return out.json("percolator.model.show.tensor/1", &found);
    }
    line(&mut out, 0, format_args!("{name}: {data_type} {}", shape(tensor.shape())))?;
    // Strings in it are escaped.
    writeln!(out, "{}", nested(tensor, ELEMENTS_MAX))?;
    out.finish()
}

/// Prints what the tensors are, without their values.
pub(super) fn list_json(model: &Model) -> anyhow::Result<()> {
    let tensor = |place: usize| {
        let info = &model.tensors()[place];
        json!({ "name": info.name, "dtype": info.data_type.name(), "shape": info.shape })
    };
    let tensors: Vec<_> = by_name(model).into_iter().map(tensor).collect();
    stdout().json(
        "percolator.model.show.tensors/1",
        &json!({
            "path": model.path().to_string_lossy(),
            "format": model.format().name(),
            "metadata": model.metadata(),
            "tensors": tensors,
        }),
    )
}
