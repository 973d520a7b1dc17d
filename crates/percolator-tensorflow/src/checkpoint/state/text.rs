//! The file `checkpoint` as text: protobuf's text format, printed as protobuf's Python does.

use prost::Message as _;

use crate::proto::{self, CheckpointState};
use crate::text::{self, Style, TextFault, Token, Tokens};
use crate::wire::{DEPTH_MAX, put_tag};

/// Returns the text that Python's `text_format.MessageToString` returns.
pub(super) fn print(state: &CheckpointState) -> String {
    let mut bytes = state.encode_to_vec();
    let last = state.last_preserved_timestamp;
    // prost takes -0.0 for the default, which is not stored; protobuf takes only +0.0 for it.
    if last == 0.0 && last.is_sign_negative() {
        put_tag(&mut bytes, 4, 1);
        bytes.extend_from_slice(&last.to_le_bytes());
    }
    let of = proto::descriptor("CheckpointState");
    of.map_or_else(String::new, |of| text::print(&of, &bytes, Style::Python))
}

/// Reads a text. Fields that the message does not have are skipped; if a field is there twice, the last one
/// counts.
pub(super) fn parse(text: &str) -> Result<CheckpointState, TextFault> {
    let mut tokens = Tokens::new(text)?;
    let mut state = CheckpointState::default();
    while let Some(field) = field_name(&mut tokens)? {
        match field {
            "model_checkpoint_path" => {
                colon(&mut tokens)?;
                state.model_checkpoint_path = path(&mut tokens)?;
            }
            "all_model_checkpoint_paths" => {
                values(&mut tokens, |tokens| {
                    state.all_model_checkpoint_paths.push(path(tokens)?);
                    Ok(())
                })?;
            }
            "all_model_checkpoint_timestamps" => {
                values(&mut tokens, |tokens| {
                    state.all_model_checkpoint_timestamps.push(number(tokens)?);
                    Ok(())
                })?;
            }
            "last_preserved_timestamp" => {
                colon(&mut tokens)?;
                state.last_preserved_timestamp = number(&mut tokens)?;
            }
            _ => tokens.skip_value(DEPTH_MAX)?,
        }
        if !tokens.take(',')? {
            tokens.take(';')?;
        }
    }
    Ok(state)
}

/// Takes the name of the next field; returns `None` at the end. A name that the message does not have may be
/// a number, or empty: that of an extension.
fn field_name<'a>(tokens: &mut Tokens<'a>) -> Result<Option<&'a str>, TextFault> {
    let name = match tokens.token {
        Token::End => return Ok(None),
        Token::Word(name) | Token::Number(name) => name,
        Token::Symbol('[') => {
            while !tokens.take(']')? {
                if tokens.token == Token::End {
                    return tokens.expected("`]`");
                }
                tokens.advance()?;
            }
            return Ok(Some(""));
        }
        _ => return tokens.expected("the name of a field"),
    };
    tokens.advance()?;
    Ok(Some(name))
}

fn colon(tokens: &mut Tokens<'_>) -> Result<(), TextFault> {
    if tokens.take(':')? { Ok(()) } else { tokens.expected("`:`") }
}

/// Takes the values of a field that may have many: one, or a list.
fn values(
    tokens: &mut Tokens<'_>,
    mut value: impl FnMut(&mut Tokens<'_>) -> Result<(), TextFault>,
) -> Result<(), TextFault> {
    colon(tokens)?;
    if !tokens.take('[')? {
        return value(tokens);
    }
    if tokens.take(']')? {
        return Ok(());
    }
    loop {
        value(tokens)?;
        if tokens.take(']')? {
            return Ok(());
        }
        if !tokens.take(',')? {
            return tokens.expected("`,` or `]`");
        }
    }
}

/// Takes a string: a path.
fn path(tokens: &mut Tokens<'_>) -> Result<String, TextFault> {
    let Token::String(bytes) = &mut tokens.token else { return tokens.expected("a string in quotes") };
    let Ok(path) = String::from_utf8(std::mem::take(bytes)) else {
        return Err(tokens.fault("a path is not UTF-8, which TensorFlow needs"));
    };
    tokens.advance()?;
    Ok(path)
}

fn number(tokens: &mut Tokens<'_>) -> Result<f64, TextFault> {
    let is_negative = tokens.take('-')?;
    let number = tokens.number()?;
    Ok(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_printed_as_python_prints_them() {
        for (number, due) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1_795_331_791.503_457_3, "1795331791.5034573"),
            (1_795_331_791.0, "1795331791.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.000_123, "0.000123"),
            (0.000_01, "1e-05"),
            (1.5e-5, "1.5e-05"),
            (1e15, "1000000000000000.0"),
            (1.234_567_890_123_456_7e15, "1234567890123456.8"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (-1.5e300, "-1.5e+300"),
            (5e-324, "5e-324"),
            (1e22, "1e+22"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-f64::NAN, "nan"),
        ] {
            let state = CheckpointState {
                all_model_checkpoint_timestamps: vec![number],
                last_preserved_timestamp: number,
                ..Default::default()
            };
            let first = format!("all_model_checkpoint_timestamps: {due}\n");
            // Only +0.0 is the default, which is not stored.
            let is_default = number.to_bits() == 0;
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
            model_checkpoint_path: 'old', model_checkpoint_path:"mo" # joined
              'del\x2d\1012\u00e9' ;
            all_model_checkpoint_paths: ["a", 'b'] all_model_checkpoint_paths: [];
            later_field: 17 another { deep: < x: "}" y: [1, -inf] > z: "a" "b" }, [an.extension]: { a: 1 }
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
            ("model_checkpoint_path: \"a", 1, "a string that does not end on its line"),
            ("\nmodel_checkpoint_path: \"a\nb\"", 2, "a string that does not end on its line"),
            ("model_checkpoint_path: model", 1, "a string in quotes should be here, and `model` is"),
            ("model_checkpoint_path \"a\"", 1, "`:` should be here, and a string is"),
            ("model_checkpoint_path: \"\\xff\"", 1, "not UTF-8"),
            ("model_checkpoint_path: \"\\q\"", 1, "an escape that no string of protobuf has"),
            ("model_checkpoint_path: \"\\", 1, "an escape that no string of protobuf has"),
            ("model_checkpoint_path: \"\\777\"", 1, "an escape that no string of protobuf has"),
            ("model_checkpoint_path: \"\\ud800\"", 1, "an escape that no string of protobuf has"),
            ("# x\n\nlast_preserved_timestamp: soon", 3, "a number should be here, and `soon` is"),
            ("last_preserved_timestamp: ", 1, "a number should be here, and the end of the text is"),
            ("all_model_checkpoint_paths: [\"a\" 1]", 1, "`,` or `]` should be here, and `1` is"),
            ("unknown", 1, "a value should be here, and the end of the text is"),
            ("unknown { a: 1 ", 1, "a value should be here, and the end of the text is"),
            ("unknown { a: 1 >", 1, "a value should be here, and `>` is"),
            ("\0", 1, "the name of a field should be here, and `\\0` is"),
            ("[ext", 1, "`]` should be here, and the end of the text is"),
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
