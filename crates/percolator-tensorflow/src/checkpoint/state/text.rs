//! The file `checkpoint` as text: protobuf's text format, printed as protobuf's Python does.

use crate::proto::{self, CheckpointState};
use crate::text::{self, TextFault};

/// Returns the text that Python's `text_format.MessageToString` returns.
pub(super) fn print(state: &CheckpointState) -> String {
    let mut text = String::new();
    if !state.model_checkpoint_path.is_empty() {
        text += &format!("model_checkpoint_path: {}\n", quoted(&state.model_checkpoint_path));
    }
    for path in &state.all_model_checkpoint_paths {
        text += &format!("all_model_checkpoint_paths: {}\n", quoted(path));
    }
    for seconds in &state.all_model_checkpoint_timestamps {
        text += &format!("all_model_checkpoint_timestamps: {seconds:?}\n");
    }
    // The default is not stored.
    if state.last_preserved_timestamp != 0.0 {
        text += &format!("last_preserved_timestamp: {:?}\n", state.last_preserved_timestamp);
    }
    text
}

/// A text in quotes, as protobuf's Python escapes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            '"' | '\'' | '\\' => quoted.extend(['\\', character]),
            '\0'..'\x20' | '\x7f' => quoted += &format!("\\{:03o}", u32::from(character)),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<CheckpointState, TextFault> {
    let state = text::parse(proto::descriptor("CheckpointState"), text)?;
    state.transcode_to().map_err(|error| TextFault::new(text, 0, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seconds_are_printed_as_python_prints_them() {
        for (number, due) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1_795_331_791.503_457_3, "1795331791.5034573"),
            (1_795_331_791.0, "1795331791.0"),
            (0.0001, "0.0001"),
            (1e15, "1000000000000000.0"),
            (1.234_567_890_123_456_7e15, "1234567890123456.8"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let state = CheckpointState {
                all_model_checkpoint_timestamps: vec![number],
                last_preserved_timestamp: number,
                ..Default::default()
            };
            let first = format!("all_model_checkpoint_timestamps: {due}\n");
            let is_default = number == 0.0;
            let last = if is_default { String::new() } else { format!("last_preserved_timestamp: {due}\n") };
            assert_eq!(print(&state), first + &last);
        }
    }

    #[test]
    fn odd_paths_are_escaped_as_python_escapes_them() {
        let path = "a'b\"c\\d\n\t\r\x01\x7f\u{e9}\u{1f600} ";
        let state = CheckpointState { model_checkpoint_path: path.to_owned(), ..Default::default() };
        let due = "model_checkpoint_path: \"a\\'b\\\"c\\\\d\\n\\t\\r\\001\\177\u{e9}\u{1f600} \"\n";
        assert_eq!(print(&state), due);
        assert_eq!(parse(due), Ok(state));
    }

    #[test]
    fn whatever_text_format_allows_is_read() {
        let text = r#"
            # A comment.
            model_checkpoint_path:"mo" # joined
              'del\x2d\1012\u00e9' ;
            all_model_checkpoint_paths: ["a", 'b'] all_model_checkpoint_paths: [];
            all_model_checkpoint_timestamps: [1, 2.5e0] all_model_checkpoint_timestamps: 3f
            last_preserved_timestamp: inf
        "#;
        let state = parse(text).unwrap();
        assert_eq!(state.model_checkpoint_path, "model-A2\u{e9}");
        assert_eq!(state.all_model_checkpoint_paths, ["a", "b"]);
        assert_eq!(state.all_model_checkpoint_timestamps, [1.0, 2.5, 3.0]);
        assert_eq!(state.last_preserved_timestamp, f64::INFINITY);
    }

    #[test]
    fn what_is_no_text_of_a_state_names_the_line() {
        for (text, line, due) in [
            ("\nmodel_checkpoint_path: \"a\nb\"", 2, "string character"),
            ("model_checkpoint_path: model", 1, "expected a string, but found 'model'"),
            ("model_checkpoint_path: \"\\xff\"", 1, "utf-8"),
            ("# x\n\nlast_preserved_timestamp: soon", 3, "expected a number, but found 'soon'"),
            ("last_preserved_timestamp: \n", 2, "reached end of input"),
            ("\nlater: 1", 2, "'later' not found"),
        ] {
            let TextFault { line: found_line, message, .. } = parse(text).unwrap_err();
            assert!(found_line == line && message.contains(due), "{text:?}: {found_line}: {message}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(
            model_checkpoint_path: String, all_model_checkpoint_paths: Vec<String>,
            all_model_checkpoint_timestamps in prop::collection::vec(prop::num::f64::ANY, 0..4),
            last_preserved_timestamp in prop::num::f64::ANY,
        ) {
            let state = CheckpointState {
                model_checkpoint_path, all_model_checkpoint_paths, all_model_checkpoint_timestamps,
                last_preserved_timestamp,
            };
            let text = print(&state);
            let read = parse(&text).unwrap();
            // Equal bits, but for not-a-number's.
            prop_assert_eq!(print(&read), text);
        }

        #[test]
        fn any_text_is_a_state_or_an_error(text in r#"[a-c_:;,"'\\{}<>\[\]0-9x# \n\PC]{0,60}"#) {
            let _ = parse(&text);
            let _ = parse(&format!("model_checkpoint_path: {text}"));
            let _ = parse(&format!("unknown {text}"));
        }
    }
}
