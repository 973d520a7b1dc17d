//! Protobuf's text form, which prost-reflect reads and prints.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::panic::resume_unwind;
use std::{io, thread};

use miette::Diagnostic as _;
use percolator_files::shown;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DynamicMessage, MessageDescriptor};

/// How deep messages may lie in one another. It is protobuf's own limit, and prost's for the binary form.
const DEPTH_MAX: usize = 100;

/// What prost-reflect's parser may take of the stack for each message inside another: without optimisation it
/// takes 24 KiB, so that 100 of them are more than a thread usually has.
const STACK_PER_LEVEL: usize = 128 << 10;

/// Why text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextFault {
    /// Both count from 1; columns count characters.
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

impl TextFault {
    /// A fault at this byte.
    pub(crate) fn new(text: &str, at: usize, message: &str) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
        let column = before.chars().rev().take_while(|character| *character != '\n').count();
        let message = shown::line(message).to_string();
        TextFault { line, column: column.saturating_add(1), message }
    }
}

/// Reads a message of this type.
pub(crate) fn parse(of: MessageDescriptor, text: &str) -> Result<DynamicMessage, TextFault> {
    if let Some(at) = too_deep(text) {
        let message = format!("messages lie more than {DEPTH_MAX} deep in one another");
        return Err(TextFault::new(text, at, &message));
    }
    let parsed = with_stack(DEPTH_MAX * STACK_PER_LEVEL, || DynamicMessage::parse_text_format(of, text));
    let parsed =
        parsed.map_err(|error| TextFault::new(text, 0, &format!("no thread can read it: {error}")))?;
    parsed.map_err(|error| {
        let label = error.labels().and_then(|mut labels| labels.next());
        // Only a text that ends too early has no label.
        let at = label.map_or(text.len(), |label| label.offset());
        TextFault::new(text, at, &error.to_string())
    })
}

/// Runs this with a stack of so many bytes, whatever is left of the caller's.
fn with_stack<T: Send>(bytes: usize, run: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("text".to_owned()).stack_size(bytes);
        let ran = thread.spawn_scoped(scope, run)?.join();
        Ok(ran.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Returns where a message lies too deep in others. prost-reflect calls itself for each, without a limit.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut inside, mut is_escaped) = (0_usize, None, false);
    for (at, byte) in text.bytes().enumerate() {
        match (inside, byte) {
            _ if std::mem::take(&mut is_escaped) => {}
            (Some(b'#'), b'\n') => inside = None,
            (Some(b'"' | b'\''), b'\\') => is_escaped = true,
            (Some(quote @ (b'"' | b'\'')), _) if byte == quote => inside = None,
            (None, b'"' | b'\'' | b'#') => inside = Some(byte),
            (None, b'{' | b'<') if depth == DEPTH_MAX => return Some(at),
            (None, b'{' | b'<') => depth = depth.saturating_add(1),
            (None, b'}' | b'>') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Prints a message. A field that the schema does not have is left out: nothing reads it from text. An `Any`
/// has its bytes, so that none of them is lost.
pub(crate) fn print(message: &DynamicMessage) -> String {
    let options = FormatOptions::new().pretty(true).expand_any(false);
    let mut text = message.to_text_format_with_options(&options);
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The name of a text's first field.
pub(crate) fn first_name(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim_start);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    line.split(|part: char| !part.is_ascii_alphanumeric() && part != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::{self, descriptor};

    fn read(name: &str, text: &str) -> Result<Vec<u8>, (usize, usize, String)> {
        let parsed = parse(descriptor(name), text);
        parsed.map(|parsed| parsed.encode_to_vec()).map_err(|fault| (fault.line, fault.column, fault.message))
    }

    #[test]
    fn people_may_write_text_in_many_ways() {
        let plain =
            "dtype: DT_FLOAT float_val: 1 float_val: 2.5 float_val: -inf string_val: \"ab\" half_val: 16";
        let odd =
            "# a comment\nstring_val: 'a' \"\\142\" , half_val: 0x10 dtype: 1; float_val: [1f, 25e-1, - inf]";
        assert_eq!(read("TensorProto", odd), read("TensorProto", plain));
        let nested = "tensor_shape: < dim: [{size: 1}, {size: 0x2}] >";
        let same = "tensor_shape { dim { size: 1 } dim { size: 2 } }";
        assert_eq!(read("TensorProto", nested), read("TensorProto", same));
        let any = "any_info { [type.googleapis.com/tensorflow.VersionDef] { producer: 7 } }";
        let same = r#"any_info { type_url: "type.googleapis.com/tensorflow.VersionDef" value: "\010\007" }"#;
        let read = |text| read("MetaGraphDef.MetaInfoDef", text).unwrap();
        assert_eq!(read(any), read(same));
    }

    #[test]
    fn what_is_printed_is_read_and_is_in_the_order_of_the_message() {
        let attr = |number: i64| proto::AttrValue { value: Some(proto::attr_value::Value::I(number)) };
        let value = |float_val, double_val| proto::TensorProto {
            float_val,
            double_val,
            tensor_content: (0..=255).collect(),
            string_val: vec![b"\xff\0'\"\\".to_vec(), "\u{e9}".into()],
            ..Default::default()
        };
        let tensor = value(
            vec![f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX, f32::INFINITY, -0.0, 0.1],
            vec![f64::MIN_POSITIVE, f64::from_bits(1), f64::MAX, f64::NEG_INFINITY, -0.0, 0.1],
        );
        let tensor = proto::AttrValue { value: Some(proto::attr_value::Value::Tensor(tensor)) };
        let names = ["z", "", "a", "m"];
        let mut attrs: Vec<_> = names.iter().zip(0..).map(|(name, number)| (*name, attr(number))).collect();
        attrs.push(("tensor", tensor));
        // In this order, which is that of no map.
        let entries = attrs.iter().map(|(name, attr)| {
            let entry =
                proto::NodeDef { attr: [((*name).to_owned(), attr.clone())].into(), ..Default::default() };
            entry.encode_to_vec()
        });
        let bytes = entries.collect::<Vec<_>>().concat();
        let of = descriptor("NodeDef");
        let text = print(&DynamicMessage::decode(of.clone(), &*bytes).unwrap());
        let again = parse(of, &text).unwrap();
        assert_eq!(print(&again), text);
        let decoded = |bytes: &[u8]| proto::NodeDef::decode(bytes).unwrap();
        assert_eq!(decoded(&again.encode_to_vec()), decoded(&bytes), "{text}");
        let at = |name: &str| text.find(&format!("key: \"{name}\"")).unwrap();
        assert!(at("z") < at("a") && at("a") < at("m"), "{text}");
    }

    #[test]
    fn what_is_wrong_has_a_line_and_a_column() {
        for (text, line, column, message) in [
            ("dtype: DT_FLOAT\n  flaot_val: 1", 2, 3, "'flaot_val' not found"),
            ("dtype: DT_FLAOT", 1, 8, "'DT_FLAOT' was not found"),
            ("string_val: '\u{e9}' dtype 1", 1, 23, "expected ':'"),
            ("int_val: 2147483648", 1, 10, "2147483648 is out of range"),
            ("dtype: 1\ndtype: 1", 2, 8, "'dtype' is already set"),
            ("tensor_shape {", 1, 15, "reached end of input"),
            ("string_val: \"\\q\"", 1, 14, "string escape"),
            ("5000: 1", 1, 1, "expected a field name"),
        ] {
            let (found_line, found_column, found) = read("TensorProto", text).unwrap_err();
            assert!(found.contains(message), "{text}: {found}");
            assert_eq!((found_line, found_column), (line, column), "{text}");
        }
        assert!(read("NodeDef", "name: '\\377'").is_err(), "it is not UTF-8");
    }

    #[test]
    fn text_without_end_is_refused_before_the_stack_is() {
        for part in ["args { ", "args < ", "args: [{ "] {
            let (_, _, message) = read("FullTypeDef", &part.repeat(200_000)).unwrap_err();
            assert_eq!(message, "messages lie more than 100 deep in one another");
        }
        let most = format!("{}{}", "args {".repeat(100), "}".repeat(100));
        assert!(read("FullTypeDef", &most).is_ok());
        // Also where little is left of the stack.
        let parsed = with_stack(256 << 10, || parse(descriptor("FullTypeDef"), &most));
        assert!(parsed.unwrap().is_ok());
        assert!(read("FullTypeDef", &format!("args {{ {most} }}")).is_err());
        // Those in strings and comments are none.
        let braces = "{<".repeat(1000);
        let quoted = format!("string_val: \"\\\"{braces}\" # {braces}\nstring_val: '{braces}\\'{braces}'");
        assert!(read("TensorProto", &quoted).is_ok());
    }

    /// A token, however long, takes no more of the stack than a short one.
    #[test]
    fn long_texts_are_read() {
        let long = "x".repeat(4 << 20);
        let text = format!(
            "# {long}\nname: '{long}' op: '{}' input: [{}\"\"]",
            "\\101".repeat(1 << 20),
            "\"\", ".repeat(1 << 20)
        );
        assert!(read("NodeDef", &text).is_ok());
        let (_, _, message) = read("NodeDef", &long).unwrap_err();
        assert!(message.len() < 2000);
    }

    #[test]
    fn the_first_field_is_found() {
        for (text, name) in
            [("", ""), ("\n # c\n\n  node { x }", "node"), ("library:{}", "library"), ("{", "")]
        {
            assert_eq!(first_name(text), name);
        }
    }
}
