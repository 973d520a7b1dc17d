//! How a net, or a feed, would name a data set: only what is known, and what remains to be chosen.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use percolator::batch::FIELDS_MAX;
use percolator::example::{ExampleField, ExampleFields};
use percolator::{Dtype, Field};
use percolator_files::shown;

use super::features::{FeatureReport, MEMBERS};
use super::report::Report;
use crate::content::{Content, LABELS, Values};
use crate::open::{DataSet, Kind};

/// Caffe's layer for an LMDB, a LevelDB or a list; the command's options for TFRecords.
pub(super) fn net(data: &DataSet, report: &Report, values: &Values) -> String {
    match (data.kind(), report.content) {
        _ if report.records == 0 => "There is no record: a feed needs at least 1.\n".to_owned(),
        // A layer of Caffe cannot name one of several databases.
        (Kind::Lmdb, Content::Datum) if data.database().is_none() => database(data, report, "LMDB"),
        (Kind::LevelDb, Content::Datum) => database(data, report, "LEVELDB"),
        (Kind::ImageList, _) => list(data, report),
        _ => command(data, report, values),
    }
}

/// The parameter that every layer needs.
const BATCH_SIZE: &str = "batch_size: 64  # yours to choose";

fn database(data: &DataSet, report: &Report, backend: &str) -> String {
    let parameters = [format!("backend: {backend}"), BATCH_SIZE.to_owned()];
    layer(data, report, ["Data", "data_param"], &parameters)
}

fn list(data: &DataSet, report: &Report) -> String {
    let root = data.root_folder().map(|root| format!("root_folder: {}", quoted(root)));
    let mut parameters: Vec<_> = root.into_iter().chain([BATCH_SIZE.to_owned()]).collect();
    if report.shapes.len() > 1 {
        parameters.push("new_height: 256  # images differ in size: yours to choose".to_owned());
        parameters.push("new_width: 256".to_owned());
    }
    layer(data, report, ["ImageData", "image_data_param"], &parameters)
}

/// A layer of this type, with these parameters beside its source.
fn layer(data: &DataSet, report: &Report, [layer, group]: [&str; 2], parameters: &[String]) -> String {
    let mut net =
        format!("layer {{\n  name: \"data\"\n  type: \"{layer}\"\n  top: \"data\"\n  top: \"label\"\n");
    net += &images(report);
    let _ = writeln!(net, "  {group} {{\n    source: {}", quoted(data.path().as_os_str()));
    for parameter in parameters {
        let _ = writeln!(net, "    {parameter}");
    }
    net + "  }\n}\n"
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

/// The options of the command that feeds it: no layer of Caffe reads it. What they leave out is said in a
/// comment of the shell, so that the whole can be run as it is.
fn command(data: &DataSet, report: &Report, values: &Values) -> String {
    let mut command = format!("percolator feed {}", shown::shell_word(data.path()));
    if let Some(name) = data.database() {
        let _ = write!(command, " --database {}", shown::shell_word(Path::new(name)));
    }
    let (format, settings) = data.read_as();
    if let Some(format) = format {
        let _ = write!(command, " --read-as {}", shown::shell_word(Path::new(format)));
    }
    for (name, value) in settings {
        let setting = format!("{name}={value}");
        let _ = write!(command, " --set {}", shown::shell_word(Path::new(&setting)));
    }
    let mut comments = Vec::new();
    match values.content {
        Content::Example => comments = example(report, &mut command),
        Content::SequenceExample => {
            return "No layer and no option feeds SequenceExamples: write a decoder \
                    (docs/guide/own-records.md).\n"
                .to_owned();
        }
        Content::Bytes => {
            let are = values.other.map(|value| format!(" (most are {value})")).unwrap_or_default();
            return format!(
                "These values are neither Datums nor Examples{are}: write a decoder \
                 (docs/guide/own-records.md).\n"
            );
        }
        Content::Datum => sides(report, &mut command),
        Content::Parts => comments = parts(report, values, &mut command),
    }
    comments.into_iter().fold(command + "\n", |said, comment| said + "# " + &comment + "\n")
}

/// Images of one shape need no option; others are made one.
fn sides(report: &Report, command: &mut String) {
    let shapes = || report.shapes.iter().map(|count| count.shape);
    let Some(first) = shapes().next() else { return };
    if shapes().any(|shape| shape.channels != first.channels) {
        *command += " --color color";
    }
    if report.other_shapes > 0
        || shapes().any(|shape| (shape.height, shape.width) != (first.height, first.width))
    {
        *command += " --resize 256x256";
    }
}

/// The options for Examples, and what they leave out.
fn example(report: &Report, command: &mut String) -> Vec<String> {
    let mut fields = Fields::default();
    let has_image = !report.image_features.is_empty()
        && report.without_image == 0
        && report.image_features.first().is_some_and(|image| {
            report.features.iter().any(|feature| feature.name == *image && feature.is_one_in(report))
        });
    if has_image {
        let _ = write!(command, " --image {}", shown::shell_word(Path::new(&report.image_features[0])));
        sides(report, command);
        // The fields that an image has.
        fields.names.extend(["data", "label", "label_f32"].map(ToOwned::to_owned));
        let named = |name: &&str| report.features.iter().find(|feature| feature.name == **name);
        let labels: Vec<_> = LABELS.iter().filter_map(named).collect();
        match labels.iter().find(|label| label.is_label_in(report)) {
            Some(label) => {
                let _ = write!(command, " --label {}", shown::shell_word(Path::new(&label.name)));
            }
            None => labels.into_iter().for_each(|label| fields.add(label, report)),
        }
        if let [_, others @ ..] = &report.image_features[..]
            && !others.is_empty()
        {
            let others = others.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>();
            fields
                .comments
                .push(format!("there are images in {}, too: --image names one", others.join(", ")));
        }
    } else {
        report.features.iter().for_each(|feature| fields.add(feature, report));
    }
    fields.write(command)
}

/// The options for records with named parts: the image and its label, or else all parts as fields.
fn parts(report: &Report, values: &Values, command: &mut String) -> Vec<String> {
    let word = |name: &str| shown::shell_word(Path::new(name)).to_string();
    if let [image] = &values.images[..] {
        let _ = write!(command, " --image {}", word(image));
        if let Some((_, Some(label))) = &values.of_parts {
            let _ = write!(command, " --label {}", word(label));
        }
        sides(report, command);
        return Vec::new();
    }
    let mut fields = Fields::default();
    report.features.iter().for_each(|part| fields.add(part, report));
    fields.write(command)
}

/// The fields of a batch, with names that differ.
#[derive(Default)]
struct Fields {
    fields: Vec<ExampleField>,
    names: Vec<String>,
    comments: Vec<String>,
}

impl Fields {
    /// Writes the option that has them, and returns what is to be said of the others.
    fn write(self, command: &mut String) -> Vec<String> {
        if !self.fields.is_empty() {
            let text = ExampleFields::from_iter(self.fields).to_string();
            let _ = write!(command, " --fields {}", shown::shell_text(&text));
        }
        self.comments
    }

    /// Adds a feature. One with several kinds, or none, has no type.
    fn add(&mut self, feature: &FeatureReport, report: &Report) {
        /// The most bytes of a string unless more are stated.
        const BYTES: usize = 256;
        let kinds: Vec<_> = feature.kinds.iter().filter(|kind| **kind != "empty").collect();
        let left_out = |why: &str| format!("{:?} is left out: {why}", feature.name);
        let &[kind] = &kinds[..] else {
            self.comments.push(left_out(match kinds.is_empty() {
                true => "it has no values",
                false => "its values are of several kinds",
            }));
            return;
        };
        if *kind == MEMBERS {
            self.comments.push(left_out("no field takes it whole; of a structure, name a member"));
            return;
        }
        let is_strings = *kind == "bytes" && !feature.is_one_in(report);
        if self.names.len() + 1 + usize::from(is_strings) > FIELDS_MAX {
            self.comments.push(left_out("a batch has no room for it"));
            return;
        }
        let name = self.name(&feature.name, is_strings);
        if is_strings {
            self.names.push(format!("{name}/lengths"));
        }
        self.names.push(name.clone());
        let dtype = if *kind == "int64" { Dtype::I64 } else { Dtype::F32 };
        let (most, max) = (feature.values_max.max(1), feature.bytes_max.max(BYTES));
        let is_fixed = feature.is_always_in(report) && feature.values_min == most;
        let field = match (*kind, most) {
            ("bytes", _) if !is_strings => ExampleField::bytes(name, max),
            ("bytes", _) if is_fixed => ExampleField::strings(name, [most], max),
            ("bytes", _) => ExampleField::strings_up_to(name, most, max),
            (_, 1) if is_fixed => ExampleField::new(Field::scalar(name, dtype)),
            _ if is_fixed => ExampleField::new(Field::new(name, dtype, [most])),
            _ => ExampleField::new(Field::ragged(name, dtype, most)),
        };
        self.fields.push(field.feature(feature.name.as_str()));
    }

    /// A name for a feature's field that no other field has: the feature's own, if that can be one.
    fn name(&self, feature: &str, has_lengths: bool) -> String {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-/".contains(letter);
        let plain: String =
            feature.chars().map(|letter| if is_word(letter) { letter } else { '_' }).collect();
        let mut parts: Vec<&str> = plain.split('/').filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            parts.push("field");
        }
        let plain = parts.join("/");
        let is_free = |name: &String| {
            !(self.names.contains(name) || has_lengths && self.names.contains(&format!("{name}/lengths")))
        };
        let numbered = (2..).map(|number| format!("{plain}_{number}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(is_free);
        free.unwrap_or(plain)
    }
}

impl FeatureReport {
    /// Whether each record that was read has it, with or without a value.
    fn is_always_in(&self, report: &Report) -> bool {
        self.records == report.looked_at && !self.kinds.contains(&"empty")
    }

    /// Whether each record has one value of it.
    fn is_one_in(&self, report: &Report) -> bool {
        self.is_always_in(report) && (self.values_min, self.values_max) == (1, 1)
    }

    /// Whether it can be the label: one number of 32 bits.
    fn is_label_in(&self, report: &Report) -> bool {
        let ends = report.labels.iter().filter(|labels| labels.others == 0);
        let mut ends = ends.flat_map(|labels| [labels.counts.first(), labels.counts.last()]).flatten();
        self.is_one_in(report)
            && self.kinds == ["int64"]
            && ends.all(|count| i32::try_from(count.label).is_ok())
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
