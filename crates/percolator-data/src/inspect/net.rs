//! How a net, or a feed, would name a data set: only what is known, and what is left to choose.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use percolator::shown;

use super::report::Report;
use crate::content::{Content, IMAGE, LABELS};
use crate::open::{DataSet, Kind};

/// Caffe's layer for an LMDB, a LevelDB or a list; the command's options for TFRecords.
pub(super) fn net(data: &DataSet, report: &Report) -> String {
    match (data.kind(), report.content) {
        // A layer of Caffe cannot name one of several databases.
        (Kind::Lmdb, Content::Datum) if data.database().is_none() => database(data, report, "LMDB"),
        (Kind::LevelDb, Content::Datum) => database(data, report, "LEVELDB"),
        (Kind::ImageList, _) => list(data, report),
        (kind, content) => command(data, report, kind, content),
    }
}

fn database(data: &DataSet, report: &Report, backend: &str) -> String {
    let mut net = opening("Data");
    net += &images(report);
    let _ = writeln!(net, "  data_param {{");
    let _ = writeln!(net, "    source: {}", quoted(data.path().as_os_str()));
    let _ = writeln!(net, "    backend: {backend}");
    let _ = writeln!(net, "    batch_size: 64  # yours to choose");
    net + "  }\n}\n"
}

fn list(data: &DataSet, report: &Report) -> String {
    let mut net = opening("ImageData");
    net += &images(report);
    let _ = writeln!(net, "  image_data_param {{");
    let _ = writeln!(net, "    source: {}", quoted(data.path().as_os_str()));
    if let Some(root) = data.root_folder() {
        let _ = writeln!(net, "    root_folder: {}", quoted(root));
    }
    let _ = writeln!(net, "    batch_size: 64  # yours to choose");
    if report.shapes.len() > 1 {
        let _ = writeln!(net, "    new_height: 256  # images differ in size: yours to choose");
        let _ = writeln!(net, "    new_width: 256");
    }
    net + "  }\n}\n"
}

fn opening(layer: &str) -> String {
    format!("layer {{\n  name: \"data\"\n  type: \"{layer}\"\n  top: \"data\"\n  top: \"label\"\n")
}

/// What the images' shapes mean for a net.
fn images(report: &Report) -> String {
    let mut said = String::new();
    let sides = || report.shapes.iter().map(|count| count.shape);
    let channels: Vec<usize> = {
        let mut channels: Vec<_> = sides().map(|shape| shape.channels).collect();
        channels.sort_unstable();
        channels.dedup();
        channels
    };
    match &report.shapes[..] {
        [] => {}
        [only] if report.other_shapes == 0 => {
            let _ = writeln!(said, "  # Each image: {} (channels, rows, columns).", only.shape);
        }
        _ => {
            let side = sides().map(|shape| shape.height.min(shape.width)).min().unwrap_or(0);
            let _ = writeln!(
                said,
                "  # Images differ in shape; a batch needs one: a crop_size of at most {side}"
            );
            let _ = writeln!(said, "  # fits all that were looked at.");
            let _ = writeln!(said, "  transform_param {{");
            let _ = writeln!(said, "    crop_size: {side}");
            if channels.len() > 1 {
                let _ = writeln!(said, "    force_color: true  # they have {channels:?} channels");
            }
            let _ = writeln!(said, "  }}");
        }
    }
    said
}

/// The options of the command that feeds it: no layer of Caffe reads it.
fn command(data: &DataSet, report: &Report, kind: Kind, content: Content) -> String {
    let option = match kind {
        Kind::Lmdb => "--lmdb",
        Kind::LevelDb => "--leveldb",
        Kind::TfRecord | Kind::ImageList => "--tfrecord",
    };
    let mut command = format!("percolator feed {option} {}", shown::shell_word(data.path()));
    if let Some(name) = data.database() {
        let _ = write!(command, " --database {}", shown::shell_word(Path::new(name)));
    }
    let has = |name: &str| report.features.iter().any(|feature| feature.name == name);
    match content {
        Content::Example if has(IMAGE) => {
            let _ = write!(command, " --image {IMAGE}");
            if let Some(label) = LABELS.into_iter().find(|label| has(label)) {
                let _ = write!(command, " --label {label}");
            }
        }
        Content::Example => {
            let fields: Vec<_> = report.features.iter().filter_map(field).collect();
            if !fields.is_empty() {
                let _ = write!(command, " --fields '{}'", fields.join(","));
            }
        }
        Content::SequenceExample => {
            return "No layer and no option feeds SequenceExamples: write a decoder \
                    (docs/guide/own-records.md).\n"
                .to_owned();
        }
        Content::Bytes => {
            return "These values are neither Datums nor Examples: write a decoder \
                    (docs/guide/own-records.md).\n"
                .to_owned();
        }
        Content::Datum => {}
    }
    command + "\n"
}

/// A feature as `--fields` takes it. One with several kinds, or none, has no type.
fn field(feature: &super::FeatureReport) -> Option<String> {
    let [kind] = feature.kinds[..] else { return None };
    let (min, max) = (feature.values_min, feature.values_max);
    let count = match (min, max) {
        (1, 1) => String::new(),
        (min, max) if min == max && max > 0 => format!("[{max}]"),
        (_, max) => format!("[<={}]", max.max(1)),
    };
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/".contains(&byte);
    let name = match !feature.name.is_empty() && feature.name.bytes().all(is_word) {
        true => feature.name.clone(),
        false => return None,
    };
    match kind {
        "int64" => Some(format!("{name}:i64{count}")),
        "float" => Some(format!("{name}:f32{count}")),
        "bytes" if count.is_empty() => Some(format!("{name}:bytes")),
        "bytes" => Some(format!("{name}:strings{count}")),
        _ => None,
    }
}

/// A path as a string of protobuf's text form, which has its bytes, whatever they are.
fn quoted(path: &OsStr) -> String {
    let mut quoted = String::from("\"");
    for &byte in path.as_bytes() {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            0x20..=0x7e => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted + "\""
}
