//! From text to XLNet's batches: prepares the sample text, opens what was written, and feeds it.
//!
//! ```text
//! cargo run --release --example xlnet_feed                        # the sample text in the tree
//! cargo run --release --example xlnet_feed -- 'MY/*.txt' MODEL    # text and a SentencePiece model of yours
//! ```
//!
//! The lines to copy into your own loop are those of [`feed`].

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use percolator::{Batch, Stats};
use percolator_text::sentencepiece::SentencePiece;
use percolator_text::xlnet::{Flags, Options, Progress, Split, XlnetData, prepare};

/// How many times the text is prepared, each time with other masks and segments.
const PASSES: u32 = 2;
const EPOCHS: u64 = 20;
/// The first of the model's pieces that are symbols of its own: padding.
const PAD: i32 = 5;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let sample = |name: &str| format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = arguments.next().unwrap_or_else(|| sample("text/part?.txt"));
    let model = arguments.next().unwrap_or_else(|| sample("spiece.model"));
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;

    write(&text, &model, folder.path())?;
    let data = XlnetData::open(folder.path(), Split::Train, PASSES)?;
    say(&format!("{} files of {}, {} batches:", data.files().len(), data.flags(), data.num_batch()))?;
    for path in data.files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        say(&format!("  {name}, {} bytes", fs::metadata(path)?.len()))?;
    }
    let stats = feed(&data, &model)?;
    say(&format!(
        "\n{} records in {EPOCHS} epochs, each permuted anew: {:.0} records/s, {:.0} MB/s of arrays",
        stats.records(),
        stats.records_per_second(),
        stats.pixel_bytes_per_second() / 1e6,
    ))?;
    folder.close().context("cannot remove the temporary folder")
}

/// Prepares the text as XLNet's own script does, a task for each of three parts.
fn write(text: &str, model: &str, folder: &Path) -> anyhow::Result<()> {
    let flags = Flags {
        input_glob: text.into(),
        sp_path: model.into(),
        save_dir: folder.to_owned(),
        use_tpu: false,
        bsz_per_host: 8,
        num_core_per_host: 1,
        seq_len: 128,
        reuse_len: 64,
        num_predict: Some(21),
        num_task: 3,
        ..Flags::default()
    };
    let options = Options { flags, num_passes: PASSES, all_tasks: true, ..Options::default() };
    let summary = prepare(&options, &Progress::new())?;
    let records: u64 = summary.passes.iter().map(|pass| pass.records).sum();
    say(&format!("{text}: {} tokens -> {records} records in {PASSES} passes", summary.text.tokens))
}

/// The lines to copy: a data set, a feed of it, and a loop over its batches.
fn feed(data: &XlnetData, model: &str) -> anyhow::Result<Stats> {
    let mut feed = data.builder()?.epochs(EPOCHS).seed(7).build()?;
    let model = SentencePiece::open(Path::new(model))?;
    let mut is_first = true;
    for step in feed.steps() {
        for batch in step? {
            if std::mem::take(&mut is_first) {
                describe(&batch, &model)?;
            }
            let (_mask, _target) = (batch.get::<f32>("perm_mask")?, batch.get::<i32>("target")?);
            // ... the model's step
        }
    }
    Ok(feed.stats())
}

/// Shows a batch's arrays, and its first row as text, with what is predicted in brackets.
fn describe(batch: &Batch, model: &SentencePiece) -> anyhow::Result<()> {
    say("\na batch:")?;
    for field in batch.fields() {
        let view = batch.field(field.name())?;
        say(&format!("  {:<15} {:<4} {:?}", field.name(), view.dtype(), view.shape()))?;
    }
    let (tokens, queries) = (batch.get::<i32>("input_k")?, batch.get::<f32>("input_q")?);
    say("\nits first row, with the tokens to predict in brackets:")?;
    say(&shown(tokens.row(0), queries.row(0), model))?;
    let label = batch.get::<i32>("label")?.row(0).first().copied();
    say(&format!("the second segment follows the first: {}", if label == Some(1) { "yes" } else { "no" }))?;
    let masked = batch.get::<f32>("perm_mask")?.row(0).iter().filter(|hidden| **hidden == 1.0).count();
    let target = batch.get::<i32>("target")?;
    let targets = target.row(0).iter().zip(batch.get::<f32>("target_mask")?.row(0));
    let pieces: Vec<_> =
        targets.filter(|(_, counts)| **counts == 1.0).map(|(token, _)| piece(model, *token)).collect();
    say(&format!(
        "perm_mask hides {masked} of {} pairs; targets: {}",
        tokens.row(0).len().pow(2),
        pieces.join(" ")
    ))
}

/// A row's text: predicted pieces that follow one another share their brackets.
fn shown(tokens: &[i32], queries: &[f32], model: &SentencePiece) -> String {
    let mut text = String::new();
    let mut was_query = false;
    for (token, query) in tokens.iter().zip(queries) {
        let is_query = *query == 1.0;
        let piece = piece(model, *token);
        let (space, piece) = match piece.strip_prefix('\u{2581}') {
            Some(rest) => (" ", rest),
            None if *token < PAD => (" ", &*piece),
            None => ("", &*piece),
        };
        text.push_str(if was_query && !is_query { "]" } else { "" });
        text.push_str(space);
        text.push_str(if is_query && !was_query { "[" } else { "" });
        text.push_str(piece);
        was_query = is_query;
    }
    text.push_str(if was_query { "]" } else { "" });
    text
}

fn piece(model: &SentencePiece, token: i32) -> String {
    let piece = u32::try_from(token).ok().and_then(|token| model.piece(token)).unwrap_or_default();
    String::from_utf8_lossy(piece).into_owned()
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot print")
}
