//! The graphs of a SavedModel, or that of a file by itself.

use std::io::Write;

use percolator_files::shown;
use percolator_tensorflow::graph::{
    Constant, ConstantError, Shape, Signature, SignatureTensor, Variable, VariableKind,
};
use percolator_tensorflow::{DataType, Elements, MetaGraph, SavedModel};
use serde_json::{Map, Value as Json, json};

use super::super::values::{elements, front, json as values_json, line};
use super::super::{How, stdout};
use super::Graphs;

/// The values of a constant that a line shows.
const VALUES_MAX: usize = 8;
/// The largest constant whose values `--json` has, in bytes.
const JSON_BYTES_MAX: usize = 64 << 10;
/// The most values (each times the square of its axes) and bytes of strings that `--json` has of all
/// constants.
const JSON_VALUES_MAX: usize = 4 << 20;

/// Prints graphs.
pub(super) fn show(graphs: &Graphs, chosen: &[&MetaGraph], how: How) -> anyhow::Result<()> {
    if how.json {
        let mut budget = JSON_VALUES_MAX;
        let found = chosen.iter().map(|graph| graph_json(graph, &mut budget));
        let found = found.collect::<anyhow::Result<Vec<_>>>()?;
        let found = match graphs {
            Graphs::Alone(graph) => {
                json!({ "path": graph.path().to_string_lossy(), "meta_graphs": found })
            }
            Graphs::Saved(model) => json!({
                "path": model.path().to_string_lossy(),
                "schema_version": model.schema_version(),
                "meta_graphs": found,
            }),
        };
        return stdout().json("percolator.model.show.graphs/1", &found);
    }
    let mut out = stdout();
    if let Graphs::Saved(model) = graphs {
        write_model(model, &mut out)?;
    }
    for graph in chosen {
        write_graph(graph, &mut out)?;
    }
    out.finish()
}

fn write_model(model: &SavedModel, out: &mut impl Write) -> anyhow::Result<()> {
    let (graphs, version) = (model.meta_graphs().len(), model.schema_version());
    let path = shown::path(model.path());
    writeln!(out, "{path}: a SavedModel of schema version {version}, {graphs} meta graph(s)")?;
    if let Some(fingerprint) = model.fingerprint()? {
        line(out, 0, format_args!("fingerprint {:#018x}", fingerprint.saved_model_checksum))?;
    }
    Ok(())
}

/// Writes a heading and lines below it, if there are any.
fn section<T>(
    out: &mut impl Write,
    heading: &str,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut dyn Write, T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        writeln!(out, "{heading}:")?;
    }
    items.try_for_each(|item| write(&mut *out, item))
}

fn write_graph(graph: &MetaGraph, out: &mut impl Write) -> anyhow::Result<()> {
    let nodes = graph.nodes().len();
    let functions = graph.functions().len();
    let tags = graph.tags().join(", ");
    let tags = if tags.is_empty() { String::new() } else { format!(" [{tags}]") };
    let kind = if graph.is_alone() { "graph" } else { "meta graph" };
    line(out, 0, format_args!("{kind}{tags}: {nodes} nodes, {functions} functions"))?;
    if let Some(version) = graph.tensorflow_version() {
        let git = graph.tensorflow_git_version().map_or_else(String::new, |git| format!(" ({git})"));
        line(out, 0, format_args!("written by TensorFlow {version}{git}"))?;
    }
    if let Some(versions) = graph.versions() {
        let (producer, least) = (versions.producer, versions.min_consumer);
        line(out, 0, format_args!("graph version {producer}, for readers from {least} on"))?;
    }
    if let Some(saver) = graph.saver() {
        let names = [&saver.filename_tensor_name, &saver.save_tensor_name, &saver.restore_op_name];
        let [file, save, restore] = names;
        line(out, 0, format_args!("saver: {file} is the prefix, {save} saves, {restore} restores"))?;
    }
    section(out, "signatures", graph.signatures()?, |out, signature| write_signature(&signature, out))?;
    section(out, "placeholders", graph.placeholders()?, |mut out, placeholder| {
        let data_type = type_name(placeholder.data_type);
        Ok(line(&mut out, 1, format_args!("{}: {data_type} {}", placeholder.name, placeholder.shape))?)
    })?;
    section(out, "constants", graph.constants(), |mut out, (name, constant)| {
        Ok(line(&mut out, 1, format_args!("{name}: {}", constant_text(constant)))?)
    })?;
    section(out, "variables", graph.variables()?, |mut out, variable| {
        Ok(line(&mut out, 1, format_args!("{}", variable_text(&variable)))?)
    })?;
    section(out, "assets", graph.assets()?, |mut out, asset| {
        let missing = if asset.path().is_ok() { "" } else { " (not there)" };
        Ok(line(&mut out, 1, format_args!("{} -> {}{missing}", asset.filename(), asset.tensor()))?)
    })
}

fn type_name(data_type: Option<DataType>) -> &'static str {
    data_type.map_or("unknown type", DataType::name)
}

fn write_signature(signature: &Signature<'_>, mut out: &mut dyn Write) -> anyhow::Result<()> {
    let method = signature.method();
    let method = if method.is_empty() { String::new() } else { format!(" ({method})") };
    line(&mut out, 1, format_args!("{}{method}", signature.name()))?;
    for (which, tensors) in [("input", signature.inputs()), ("output", signature.outputs())] {
        for tensor in tensors {
            let place = tensor.tensors().join(", ");
            line(&mut out, 2, format_args!("{which} {tensor} <{place}>"))?;
        }
    }
    for (input, value) in signature.defaults() {
        line(&mut out, 2, format_args!("default of {input}: {}", constant_text(value)))?;
    }
    Ok(())
}

fn constant_text(constant: Constant<'_>) -> String {
    let data_type = type_name(constant.data_type());
    let value = constant.shape().and_then(|shape| {
        // One more than is shown, which tells that there are more.
        let value = if shape.is_empty() { constant.value() } else { constant.front(VALUES_MAX + 1) };
        Ok((shape, value?))
    });
    match value {
        Ok((shape, tensor)) => format!("{data_type} {shape:?} {}", front(&tensor, VALUES_MAX)),
        Err(error) => format!("{data_type}, {error}"),
    }
}

fn variable_text(variable: &Variable) -> String {
    let Variable { name, kind, data_type, shape, is_trainable, checkpoint_key, slice, .. } = variable;
    let mut text = format!("{name}: {} {shape}", type_name(*data_type));
    match kind {
        VariableKind::Reference => text += ", by reference",
        VariableKind::Resource => text += ", a resource",
        _ => {}
    }
    if *is_trainable == Some(false) {
        text += ", not trained";
    }
    if let Some(slice) = slice {
        text +=
            &format!(", a slice of {} {:?} from {:?} on", slice.full_name, slice.full_shape, slice.offset);
    }
    match checkpoint_key {
        Some(key) if key == name => {}
        Some(key) => text += &format!(", saved as {key}"),
        None => text += ", not saved",
    }
    text
}

fn graph_json(graph: &MetaGraph, budget: &mut usize) -> anyhow::Result<Json> {
    let signatures = graph.signatures()?;
    let signatures = signatures.iter().map(|signature| {
        let tensors = |tensors: &[SignatureTensor<'_>]| -> Map<String, Json> {
            tensors.iter().map(|tensor| (tensor.name().to_owned(), signature_tensor(tensor))).collect()
        };
        let (inputs, outputs) = (tensors(signature.inputs()), tensors(signature.outputs()));
        let found = json!({ "method": signature.method(), "inputs": inputs, "outputs": outputs });
        (signature.name().to_owned(), found)
    });
    let signatures: Map<_, _> = signatures.collect();
    let placeholders: Vec<_> = graph
        .placeholders()?
        .iter()
        .map(|one| {
            let data_type = one.data_type.map(DataType::name);
            json!({ "name": one.name, "dtype": data_type, "shape": extents(&one.shape) })
        })
        .collect();
    let constants =
        graph.constants().map(|(name, constant)| (name.to_owned(), constant_json(constant, budget)));
    let constants: Map<_, _> = constants.collect();
    let variables: Vec<_> = graph
        .variables()?
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "dtype": one.data_type.map(DataType::name),
                "shape": extents(&one.shape),
                "trainable": one.is_trainable,
                "checkpoint_key": one.checkpoint_key,
            })
        })
        .collect();
    let assets: Vec<_> = graph
        .assets()?
        .iter()
        .map(|asset| json!({ "filename": asset.filename(), "tensor": asset.tensor() }))
        .collect();
    let nodes: Vec<_> =
        graph.nodes().map(|node| json!([node.name(), node.op(), node.input_names()])).collect();
    let versions = graph
        .versions()
        .map(|versions| json!({ "producer": versions.producer, "min_consumer": versions.min_consumer }));
    let saver = graph.saver().map(|saver| {
        json!({
            "filename_tensor": saver.filename_tensor_name,
            "save_tensor": saver.save_tensor_name,
            "restore_op": saver.restore_op_name,
        })
    });
    Ok(json!({
        "tags": graph.tags(),
        "tensorflow_version": graph.tensorflow_version(),
        "versions": versions,
        "saver": saver,
        "signatures": signatures,
        "placeholders": placeholders,
        "constants": constants,
        "variables": variables,
        "assets": assets,
        "nodes": nodes,
        "functions": graph.functions().map(|function| function.name()).collect::<Vec<_>>(),
    }))
}

/// A tensor of a signature: its name in the graph (or several), its type, its shape.
fn signature_tensor(tensor: &SignatureTensor<'_>) -> Json {
    let place = match tensor.tensor() {
        Some(one) => json!(one),
        None => json!(tensor.tensors()),
    };
    json!([place, tensor.data_type().map(DataType::name), extents(tensor.shape())])
}

/// Extents, of which any is -1; null if not even their number is known.
fn extents(shape: &Shape) -> Json {
    let extent = |extent: &Option<u64>| extent.map_or_else(|| json!(-1), |extent| json!(extent));
    shape.extents().map_or(Json::Null, |extents| extents.iter().map(extent).collect())
}

/// A constant's values; null, and why, of one that is large, and of those that are too many.
fn constant_json(constant: Constant<'_>, budget: &mut usize) -> Json {
    let data_type = constant.data_type().map(DataType::name);
    let left_out = |shape: &[usize], why: String| {
        json!({
            "dtype": data_type, "shape": shape, "values": null, "left_out": why,
        })
    };
    let large = format!("it has more than {JSON_BYTES_MAX} bytes");
    match constant.value_within(JSON_BYTES_MAX) {
        Ok(tensor) => {
            let bytes = match tensor.elements() {
                Elements::Bytes(bytes) => bytes.len(),
                // One string may be repeated, so its bytes count each time.
                Elements::Strings(strings) => {
                    strings.iter().fold(0_usize, |sum, string| sum.saturating_add(string.len()))
                }
            };
            // Each axis may be a list around each element, and a line that is indented by the axes before it.
            let axes = tensor.shape().len().max(1);
            let cost = elements(&tensor).saturating_mul(axes.saturating_mul(axes));
            let strings = tensor.bytes().map_or(bytes, |_| 0);
            let left = budget.checked_sub(cost.saturating_add(strings));
            match left {
                _ if bytes > JSON_BYTES_MAX => left_out(tensor.shape(), large),
                None => {
                    left_out(tensor.shape(), format!("all constants have more than {JSON_VALUES_MAX} values"))
                }
                Some(left) => {
                    *budget = left;
                    json!({ "dtype": data_type, "shape": tensor.shape(), "values": values_json(&tensor) })
                }
            }
        }
        Err(ConstantError::TooLarge { shape, .. }) => left_out(&shape, large),
        Err(error) => json!({ "dtype": data_type, "error": error.to_string() }),
    }
}
