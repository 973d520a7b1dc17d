//! What a text is, by its first words.

use super::file::Looked;
use super::{COPY, Kind, Thing};
use crate::shown;

/// The words that begin a line of a net, and of a solver.
const NET: [&str; 5] = ["layer {", "layers {", "layer{", "layers{", "input_param"];
const SOLVER: [&str; 6] = ["net:", "train_net:", "test_iter:", "base_lr:", "lr_policy:", "solver_mode:"];

/// What every list has.
const LIST: &str = "each line of a list of images is a name, a space and a label, a whole number";

pub(super) fn what(file: &Looked<'_>) -> Option<Thing> {
    if file.head.starts_with(b"\xff\xfe") || file.head.starts_with(b"\xfe\xff") {
        return Thing::new(Kind::Other, "a text in UTF-16", "save it as UTF-8");
    }
    let text = whole_characters(file.head)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let start = text.trim_start();
    let lower = start.get(..start.len().min(64)).unwrap_or(start).to_ascii_lowercase();
    if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        let what = "an HTML page, as a server sends it instead of a file";
        return Thing::new(Kind::Other, what, "open it to see what it says, and fetch the file again");
    }
    if lower.starts_with("<?xml") || lower.starts_with("<error>") {
        let what = "an XML text, as a server sends it instead of a file";
        return Thing::new(Kind::Other, what, "open it to see what it says, and fetch the file again");
    }
    if lower.starts_with("model_checkpoint_path:") {
        return Thing::new(Kind::Model, "the state file of TensorFlow's checkpoints", "");
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let begins = |line: &str, words: &[&str]| words.iter().any(|word| line.starts_with(word));
    if lines.clone().any(|line| begins(line, &NET)) {
        return Thing::new(Kind::Net, "a net of Caffe", "");
    }
    if lines.clone().any(|line| begins(line, &SOLVER)) {
        let what = "a solver of Caffe, whose `net:` names the net";
        return Thing::new(Kind::Other, what, "give that net");
    }
    if start.starts_with(['{', '[']) {
        let what = if file.is_named(b".jsonl") { "lines of JSON" } else { "a JSON text" };
        return Thing::new(Kind::Other, what, "it has no records");
    }
    if start.starts_with("node {") || start.starts_with("saved_model_schema_version") {
        return Thing::new(Kind::Model, "a graph of TensorFlow as text", "");
    }
    let first = lines.next()?;
    if is_listed(first.rsplit_once(' ')) {
        return Thing::new(Kind::List, "a list of images", "");
    }
    let shown = shown::front(first);
    let of_labels = |what: &str, remedy: &str| {
        let remedy = format!("{remedy}; {LIST}");
        Thing::new(Kind::Text, format!("a text with {what}, such as {shown:?}"), remedy)
    };
    if is_listed(first.rsplit_once('\t')) {
        return of_labels("a tab before each label", "put a space in its place");
    }
    if is_listed(first.rsplit_once([',', ';'])) {
        return of_labels("a comma before each label", "put a space in its place");
    }
    if first.split_once([' ', '\t', ',']).is_some_and(|(label, name)| is_number(label) && is_name(name)) {
        return of_labels("each label before its name", "exchange them");
    }
    if is_name(first) {
        return of_labels("names without labels", "add the labels");
    }
    let has_commas = |line: &str| line.contains([',', '\t']);
    if has_commas(first) && (file.is_named(b".csv") || file.is_named(b".tsv")) {
        return Thing::new(Kind::Text, format!("a table as text, that begins with {shown:?}"), LIST);
    }
    let remedy = match file.is_named(b".txt") || file.is_named(b".lst") {
        true => LIST,
        false => COPY,
    };
    Thing::new(Kind::Text, format!("a text that begins with {shown:?}"), remedy)
}

/// Bytes as text, except for a character that is cut; `None` if they are not text.
fn whole_characters(bytes: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let is_of_text = |letter: char| !letter.is_control() || "\n\r\t\u{c}".contains(letter);
    (!text.trim().is_empty() && text.chars().all(is_of_text)).then_some(text)
}

fn is_listed(parts: Option<(&str, &str)>) -> bool {
    parts.is_some_and(|(name, label)| !name.trim().is_empty() && !name.ends_with(':') && is_number(label))
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether a text ends as an image's name does.
fn is_name(text: &str) -> bool {
    let ending = text.trim().rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| super::folder::IMAGE_ENDINGS.contains(&&*ending))
}
