//! One record: as text, as a picture in the terminal, or as a file.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use percolator_data::DataSet;
use percolator_data::inspect::{self, Pixels, Which, half_blocks, key_text};
use percolator_files::shown;
use serde_json::{Map, Value, json};

use super::Inspect;
use crate::data_set::stdout;
use crate::output::Output;

pub(super) fn show(
    data: &DataSet,
    word: &OsStr,
    picture: Option<Output<'_>>,
    how: &Inspect,
) -> anyhow::Result<ExitCode> {
    let mut record = inspect::record(data, &Which::parse(word))?;
    if let Some(content) = how.content {
        record.content = content.into();
    }
    let image = record.image(how.channels.into()).map(|image| image.map(|(_, _, pixels)| pixels));
    if let Some(picture) = picture {
        let key = key_text(&record.key);
        let pixels = image.as_ref().with_context(|| format!("the record {key} has no image"))?;
        let pixels = pixels.as_ref().map_err(|cause| anyhow!("the record {key}: {cause}"))?;
        picture.write(&pixels.to_png()?)?;
    }
    let mut out = stdout();
    let fields = record.fields();
    if how.data.json {
        let fields: Map<String, Value> =
            fields.into_iter().map(|field| (field.name, Value::String(field.value))).collect();
        let printed = json!({
            "record": record.number,
            "key": key_text(&record.key),
            "bytes": record.value.len(),
            "source": record.source.to_string_lossy(),
            "content": record.content,
            "fields": fields,
        });
        serde_json::to_writer_pretty(&mut out, &printed)?;
        writeln!(out)?;
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(Ok(pixels)), Some((columns, lines))) = (&image, terminal())
        && !how.text
        && how.out.is_none()
    {
        draw(pixels, columns, lines, &mut out)?;
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
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Draws a picture that leaves room for the text below it.
fn draw(pixels: &Pixels, columns: usize, lines: usize, out: &mut impl std::io::Write) -> std::io::Result<()> {
    const TEXT_LINES: usize = 12;
    const LINES_MIN: usize = 8;
    let lines = lines.saturating_sub(TEXT_LINES).max(LINES_MIN);
    out.write_all(half_blocks(pixels, columns, lines).as_bytes())
}

/// The columns and lines of the terminal that the output goes to, if it does.
fn terminal() -> Option<(usize, usize)> {
    const USUAL: (usize, usize) = (80, 24);
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    Some(size.map_or(USUAL, |size| (size.ws_col.into(), size.ws_row.into())))
}
