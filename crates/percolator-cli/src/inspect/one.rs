//! One record: as text, and its image as a file.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use percolator_data::DataSet;
use percolator_data::inspect::{self, Which, key_text};
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
        stdout().json(&json!({
            "record": record.number,
            "key": key_text(&record.key),
            "bytes": record.value.len(),
            "source": record.source.to_string_lossy(),
            "content": record.content,
            "fields": fields,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = stdout();
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
