//! A caller-implemented source: each line of a text file is a record, read by position.
//!
//! `cargo run --release --example own_source -- README.md`

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::source::{Cursor, Entry, Source, SourceError};
use percolator::{Feed, RawBytes, Shuffle};

/// A text file, and the offsets of its lines.
#[derive(Clone, Debug)]
struct Lines {
    path: PathBuf,
    file: Arc<File>,
    /// One more than there are lines.
    starts: Arc<[u64]>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, SourceError> {
        let text = std::fs::read(path).map_err(|error| SourceError::other(path, error))?;
        let ends = (1..=text.len()).filter(|&end| text[end - 1] == b'\n').map(|end| end as u64);
        let mut starts: Vec<u64> = std::iter::once(0).chain(ends).collect();
        // The last line may end with the file.
        if starts.last() != Some(&(text.len() as u64)) {
            starts.push(text.len() as u64);
        }
        let file = File::open(path).map_err(|error| SourceError::other(path, error))?;
        Ok(Lines { path: path.to_owned(), file: Arc::new(file), starts: starts.into() })
    }
}

impl Source for Lines {
    fn path(&self) -> &Path {
        &self.path
    }

    fn records(&self) -> Option<u64> {
        Some(self.starts.len() as u64 - 1)
    }

    /// So that the source can be shuffled, and shared among workers: `seek` below costs the same for any
    /// position.
    fn is_seekable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(Walk { lines: self.clone(), next: 0, key: Vec::new(), value: Vec::new() }))
    }
}

/// A cursor over the lines.
struct Walk {
    lines: Lines,
    next: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Cursor for Walk {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let Some(&[start, end]) = self.lines.starts.get(self.next..self.next + 2) else { return Ok(None) };
        self.value.resize(usize::try_from(end - start).expect("the whole file was in memory"), 0);
        let read = self.lines.file.read_exact_at(&mut self.value, start);
        read.map_err(|error| {
            SourceError::other(&self.lines.path, format!("line {}: {error}", self.next + 1))
        })?;
        self.key = format!("line {}", self.next + 1).into_bytes();
        self.next += 1;
        // The feed copies borrowed bytes; `Entry::lent` is for memory that stays.
        Ok(Some(Entry::borrowed(&self.key, &self.value)))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.next = usize::try_from(position).unwrap_or(usize::MAX - 2);
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "README.md".into());
    let lines = Lines::open(Path::new(&path))?;
    let feed = Feed::builder()
        .source(lines)
        .decoder(RawBytes::up_to(4096))
        .batch_size(8)
        .shuffle(Shuffle::Global)
        .epochs(1)
        .build()?;
    let mut output = std::io::stdout().lock();
    for batch in feed {
        let batch = batch?;
        let text = batch.ragged::<u8>("data")?;
        for (record, line) in batch.records().iter().zip(text.rows()) {
            writeln!(output, "{:>5} {}", record.index + 1, String::from_utf8_lossy(line).trim_end())?;
        }
    }
    Ok(())
}
