//! One record: as text, and its image in the terminal or as a file.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use anyhow::{Context as _, anyhow};
use percolator_data::DataSet;
use percolator_data::inspect::{self, Pixels, Which, key_text};
use percolator_files::shown;
use serde_json::{Map, Value, json};

use super::Inspect;
use crate::output::Output;
use crate::terminal::out::stdout;

pub(super) fn show(
    data: &DataSet,
    word: &OsStr,
    picture: Option<Output<'_>>,
    how: &Inspect,
) -> anyhow::Result<()> {
    let mut record = inspect::record(data, &Which::parse(word))?;
    if let Some(content) = how.content {
        record = record.taken_for(content.into());
    }
    if let Some(picture) = picture {
        let key = key_text(&record.key);
        let image = record.image(how.channels.into());
        let image = image.with_context(|| format!("the record {key} has no image"))?;
        let (_, _, pixels) = image.map_err(|cause| anyhow!("the record {key}: {cause}"))?;
        picture.write(&pixels.to_png()?)?;
    }
    let fields = record.fields();
    if how.data.json {
        let fields: Map<String, Value> =
            fields.into_iter().map(|field| (field.name, Value::String(field.value))).collect();
        return stdout().json(
            "percolator.inspect.record/1",
            &json!({
                "record": record.number,
                "key": key_text(&record.key),
                "bytes": record.value.len(),
                "source": record.source.to_string_lossy(),
                "content": record.content,
                "fields": fields,
            }),
        );
    }
    let mut out = stdout();
    if how.out.is_none()
        && let Some((columns, lines)) = room()
        && let Some(Ok((_, _, pixels))) = record.image(how.channels.into())
    {
        write!(out, "{}", half_blocks(&pixels, columns, lines))?;
    }
    let number = record.number.map(|number| format!("record {number}, ")).unwrap_or_default();
    writeln!(out, "{}: {number}key \"{}\"", shown::path(&record.source), key_text(&record.key))?;
    writeln!(out, "  {:16} {}, {} bytes", "value", record.content, record.value.len())?;
    for field in fields {
        writeln!(out, "  {:16} {}", field.name, shown::message(&field.value))?;
    }
    if let Some(path) = &how.out {
        writeln!(out, "{}: its image", shown::path(path))?;
    }
    out.finish()
}

/// The columns and lines for a picture, if the output goes to a terminal: the text has room below it.
fn room() -> Option<(usize, usize)> {
    const TEXT_LINES: usize = 12;
    const LINES_MIN: usize = 8;

    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out))?.ok();
    // A terminal that does not know its size says 0.
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    let (columns, lines): (usize, usize) =
        size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()));
    Some((columns, lines.saturating_sub(TEXT_LINES).max(LINES_MIN)))
}

/// Draws a picture: each character is two pixels, one above the other, in 24-bit colours. Each line ends with
/// the colours reset.
fn half_blocks(pixels: &Pixels, columns: usize, lines: usize) -> String {
    let fitted = pixels.fitted(columns, 2 * lines);
    let mut drawn = String::new();
    for pair in fitted.rgb.chunks(2 * 3 * fitted.width) {
        let (upper, lower) = pair.split_at(3 * fitted.width);
        let mut below = lower.chunks_exact(3);
        for above in upper.chunks_exact(3) {
            // Writing to a string cannot fail.
            let _ = write!(drawn, "\x1b[38;2;{};{};{}m", above[0], above[1], above[2]);
            if let Some(below) = below.next() {
                let _ = write!(drawn, "\x1b[48;2;{};{};{}m", below[0], below[1], below[2]);
            }
            drawn.push('\u{2580}');
        }
        drawn += "\x1b[0m\n";
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_are_a_line() {
        let rgb = (0..9).flat_map(|n| [n, 100, 200]).collect();
        let drawn = half_blocks(&Pixels { width: 3, height: 3, rgb }, 3, 2);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("\x1b[38;2;0;100;200m\x1b[48;2;3;100;200m\u{2580}"), "{drawn:?}");
        assert!(lines[1].starts_with("\x1b[38;2;6;100;200m\u{2580}"), "{drawn:?}");
        assert!(lines.iter().all(|line| line.matches('\u{2580}').count() == 3 && line.ends_with("\x1b[0m")));
    }
}
