//! Cuts files into tokens: sentences, documents, and the ids that distinguish neighbouring sentences. The
//! tokens of a task go to a temporary file.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use percolator_files::parallel::in_order;
use percolator_files::shown;

use super::PrepareError;
use super::Progress;
use super::blocks::{Block, Blocks};
use super::flags::Flags;
use super::stream::Part;
use super::token_file::{TokenFile, TokenWriter};
use super::vocabulary::{EOD, Vocabulary};
use crate::clean;
use crate::python_text::{integer, is_space, words};
use crate::sentencepiece::Scratch;

/// What was read, and how much of it was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextCounts {
    /// Files.
    pub files: u64,
    /// Files without a line, which are skipped.
    pub empty_files: u64,
    /// Files whose lines have no token, which are skipped.
    pub files_without_tokens: u64,
    /// Lines.
    pub lines: u64,
    /// Blank lines that were skipped because [`use_eod`](Flags::use_eod) is off.
    pub blank_lines_skipped: u64,
    /// Lines that are not blank and have no token.
    pub lines_without_tokens: u64,
    /// Tokens.
    pub tokens: u64,
}

impl TextCounts {
    pub(super) fn add(&mut self, other: &TextCounts) {
        self.files += other.files;
        self.empty_files += other.empty_files;
        self.files_without_tokens += other.files_without_tokens;
        self.lines += other.lines;
        self.blank_lines_skipped += other.blank_lines_skipped;
        self.lines_without_tokens += other.lines_without_tokens;
        self.tokens += other.tokens;
    }
}

/// Blocks that a thread cuts before their tokens are stored. More would hold more tokens in memory; with
/// fewer, threads wait for the last of them more often.
const BLOCKS_PER_THREAD: usize = 16;

/// The tokens of a task's files.
#[derive(Debug)]
pub(super) struct TaskTokens {
    stored: TokenFile,
    /// The stored parts of each file that has any.
    files: Vec<Vec<StoredPart>>,
    pub(super) counts: TextCounts,
}

impl TaskTokens {
    /// How many files have tokens.
    pub(super) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The parts of such a file.
    pub(super) fn parts(&self, file: usize) -> impl Iterator<Item = Part<'_>> {
        self.files[file].iter().map(|part| Part {
            tokens: self.stored.get(part.tokens.clone()),
            changes: self.stored.get(part.changes.clone()),
        })
    }

    /// The bytes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.stored.bytes()
    }
}

/// Where a [`Part`] is stored.
#[derive(Debug)]
struct StoredPart {
    tokens: Range<usize>,
    changes: Range<usize>,
}

/// The tokens of a block. The id of its first sentence is assumed to be `false`; the right one depends on the
/// lines before the block.
#[derive(Debug)]
struct BlockTokens {
    file: usize,
    tokens: Vec<u32>,
    /// As in [`Part`].
    changes: Vec<u32>,
    /// The sentence ids of its first token, of its last token, and of the line after the block.
    first_id: bool,
    last_id: bool,
    next_id: bool,
    counts: TextCounts,
}

/// Reads the files of a task and cuts them into tokens, on several threads. The tokens are stored in a
/// temporary file in `folder`.
pub(super) fn read(
    flags: &Flags,
    vocabulary: &Vocabulary,
    files: &[PathBuf],
    folder: &Path,
    threads: usize,
    progress: &Progress,
) -> Result<TaskTokens, PrepareError> {
    let failed = |source| {
        let path = format!("the temporary file of tokens in {}", shown::path(folder));
        PrepareError::Write { path, source }
    };
    let mut blocks = Blocks::new(files);
    let mut joiner = Joiner::new(files.len(), TokenWriter::create(folder).map_err(failed)?);
    loop {
        let mut left = BLOCKS_PER_THREAD.saturating_mul(threads);
        let next = || match progress.is_stopped() {
            true => Err(PrepareError::Stopped),
            false if left == 0 => Ok(None),
            false => {
                left -= 1;
                blocks.next()
            }
        };
        let cut = || {
            let mut cutter = Cutter {
                flags,
                vocabulary,
                files,
                progress,
                scratch: Scratch::default(),
                text: String::new(),
            };
            move |block: Block| {
                let tokens = cutter.block(&block)?;
                progress.add_done(block.bytes.len() as u64);
                Ok(tokens)
            }
        };
        let cut = in_order("tokens", threads, next, cut)?;
        if cut.is_empty() {
            return joiner.finish().map_err(failed);
        }
        cut.into_iter().try_for_each(|block| joiner.append(block)).map_err(failed)?;
    }
}

/// Joins the blocks of each file. At each joint, the second block's sentence ids continue those of the first.
struct Joiner {
    writer: TokenWriter,
    counts: TextCounts,
    /// Of each file.
    parts: Vec<Vec<StoredPart>>,
    lines: Vec<u64>,
    /// The file of the last block.
    file: Option<usize>,
    next_id: bool,
    last_id: Option<bool>,
}

impl Joiner {
    fn new(files: usize, writer: TokenWriter) -> Self {
        Joiner {
            writer,
            counts: TextCounts { files: files as u64, ..TextCounts::default() },
            parts: std::iter::repeat_with(Vec::new).take(files).collect(),
            lines: vec![0; files],
            file: None,
            next_id: false,
            last_id: None,
        }
    }

    fn append(&mut self, mut block: BlockTokens) -> io::Result<()> {
        if self.file != Some(block.file) {
            self.file = Some(block.file);
            (self.next_id, self.last_id) = (false, None);
        }
        if !block.tokens.is_empty() {
            // A new file always starts a new sentence.
            if self.last_id.is_none_or(|last| last != block.first_id ^ self.next_id) {
                block.changes.insert(0, 0);
            }
            self.last_id = Some(block.last_id ^ self.next_id);
            let tokens = self.writer.append(&block.tokens)?;
            let changes = self.writer.append(&block.changes)?;
            self.parts[block.file].push(StoredPart { tokens, changes });
        }
        self.next_id ^= block.next_id;
        self.lines[block.file] += block.counts.lines;
        self.counts.add(&block.counts);
        Ok(())
    }

    fn finish(self) -> io::Result<TaskTokens> {
        let Joiner { writer, mut counts, parts: mut files, lines, .. } = self;
        counts.empty_files = lines.iter().filter(|lines| **lines == 0).count() as u64;
        counts.files_without_tokens =
            files.iter().filter(|file| file.is_empty()).count() as u64 - counts.empty_files;
        files.retain(|file| !file.is_empty());
        Ok(TaskTokens { stored: writer.finish()?, files, counts })
    }
}

/// Cuts blocks into tokens.
struct Cutter<'a> {
    flags: &'a Flags,
    vocabulary: &'a Vocabulary,
    files: &'a [PathBuf],
    progress: &'a Progress,
    scratch: Scratch,
    /// The cleaned line.
    text: String,
}

impl Cutter<'_> {
    fn block(&mut self, block: &Block) -> Result<BlockTokens, PrepareError> {
        // Text has about four bytes a token.
        let mut cut = BlockTokens {
            file: block.file,
            tokens: Vec::with_capacity(block.bytes.len() / 4),
            changes: Vec::new(),
            first_id: false,
            last_id: false,
            next_id: false,
            counts: TextCounts::default(),
        };
        let mut offset = 0;
        for (line, bytes) in (block.first_line..).zip(block.bytes.split_inclusive(|byte| *byte == b'\n')) {
            if self.progress.is_stopped() {
                return Err(PrepareError::Stopped);
            }
            let place = Place { block, line, offset };
            offset += bytes.len();
            let without;
            // TensorFlow's reader drops this byte wherever it is. If nothing is left of a last line, there is
            // no such line.
            let mut kept = bytes;
            if bytes.contains(&b'\r') {
                without = bytes.iter().copied().filter(|byte| *byte != b'\r').collect::<Vec<_>>();
                kept = &without;
            }
            if kept.is_empty() {
                continue;
            }
            let text = std::str::from_utf8(kept).map_err(|_| self.not_utf8(&place, bytes))?;
            self.line(text, &place, &mut cut)?;
        }
        cut.counts.tokens = cut.tokens.len() as u64;
        Ok(cut)
    }

    /// Appends a line's tokens, and flips the sentence id.
    fn line(&mut self, line: &str, place: &Place<'_>, cut: &mut BlockTokens) -> Result<(), PrepareError> {
        cut.counts.lines += 1;
        let from = cut.tokens.len();
        if line.chars().all(is_space) {
            if !self.flags.use_eod {
                cut.counts.blank_lines_skipped += 1;
                return Ok(());
            }
            // The end of a document belongs to its last sentence.
            cut.next_id ^= true;
            cut.tokens.push(EOD);
        } else if self.flags.from_raw_text {
            clean(line, self.flags.uncased, &mut self.text);
            let encoded = self.vocabulary.encode(&self.text, &mut self.scratch, &mut cut.tokens);
            encoded.map_err(|source| PrepareError::Normalized {
                path: self.path(place),
                line: place.line,
                source,
            })?;
        } else {
            self.numbers(line, place, &mut cut.tokens)?;
        }
        if cut.tokens.len() == from {
            cut.counts.lines_without_tokens += 1;
        } else if from == 0 {
            (cut.first_id, cut.last_id) = (cut.next_id, cut.next_id);
        } else {
            if cut.next_id != cut.last_id {
                cut.changes.push(u32::try_from(from).expect("a block has fewer tokens"));
            }
            cut.last_id = cut.next_id;
        }
        cut.next_id ^= true;
        Ok(())
    }

    fn numbers(&self, line: &str, place: &Place<'_>, tokens: &mut Vec<u32>) -> Result<(), PrepareError> {
        for word in words(line) {
            let count = self.vocabulary.token_count();
            let token = integer(word).and_then(|token| u32::try_from(token).ok());
            match token.filter(|token| (*token as usize) < count) {
                Some(token) => tokens.push(token),
                None => {
                    let (path, found) = (self.path(place), word.chars().take(40).collect::<String>());
                    return Err(PrepareError::Refused(format!(
                        "{path}, line {}: \"{found}\" is not a token of the model, which has the tokens 0 to \
                         {}; if the file is text, set --from-raw-text=true",
                        place.line,
                        count - 1
                    )));
                }
            }
        }
        Ok(())
    }

    fn not_utf8(&self, place: &Place<'_>, line: &[u8]) -> PrepareError {
        let valid = std::str::from_utf8(line).map_or_else(|error| error.valid_up_to(), |_| 0);
        let (path, offset) = (self.path(place), place.block.offset + (place.offset + valid) as u64);
        let found = line.get(valid).copied().unwrap_or_default();
        PrepareError::Refused(format!(
            "{path}, line {}: not UTF-8: byte {offset} of the file is {found:#04x}: convert the file to \
             UTF-8 (iconv -t utf-8)",
            place.line
        ))
    }

    fn path(&self, place: &Place<'_>) -> String {
        shown::path(&self.files[place.block.file]).to_string()
    }
}

/// Where a line is.
struct Place<'b> {
    block: &'b Block,
    line: u64,
    /// In the block.
    offset: usize,
}
