//! A pass over a task's tokens: rows, their segments and masks, and the records written.

use std::path::Path;

use percolator::example::ExampleWriter;
use percolator_tfrecord::{Compression, TfRecordWriter};

use super::PrepareError;
use super::Progress;
use super::flags::Shape;
use super::mask::Masks;
use super::segments::{Segments, split};
use super::stream::{Row, Stream};
use super::vocabulary::{CLS, SEP, Vocabulary};
use crate::random::{NumpyRandom, PythonRandom};

/// A task's pass.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) task: u32,
    pub(super) shape: &'a Shape,
    pub(super) vocabulary: &'a Vocabulary,
    pub(super) mends_quirks: bool,
    pub(super) progress: &'a Progress,
    /// How much the pass counts in the progress.
    pub(super) work: u64,
}

/// One row of a batch, while it is made. Its memory is reused.
#[derive(Debug, Default)]
struct Draft {
    /// The row's tokens.
    input: Vec<u32>,
    /// The token that follows each token.
    target: Vec<u32>,
    /// How long A and B are.
    a: usize,
    b: usize,
    is_next: bool,
    /// Which tokens are predicted.
    mask: Vec<bool>,
    cuts: Vec<usize>,
    /// The tokens of a backward row, in the order of the text.
    reversed: Vec<u32>,
}

impl Pass<'_> {
    /// Writes all batches, and returns how many there are. Splitting a row draws from `python`, masking it
    /// from `numpy`. `before_replacing` is called when all batches are written, and before the file gets its
    /// name.
    pub(super) fn write(
        &self,
        stream: &Stream<'_>,
        path: &Path,
        mut python: PythonRandom,
        mut numpy: NumpyRandom,
        before_replacing: impl FnOnce() -> Result<(), PrepareError>,
    ) -> Result<u64, PrepareError> {
        let shape = self.shape;
        let row_tokens = stream.len() / shape.rows_cut;
        let too_short = || {
            PrepareError::Refused(format!(
                "task {} has {} tokens, too few for one batch: they are cut into {} rows of {row_tokens} \
                 tokens, and a batch takes {} tokens of each, and more if its last sentence continues: lower \
                 --bsz-per-host or --seq-len, or give more text",
                self.task,
                stream.len(),
                shape.rows_cut,
                shape.seq_len
            ))
        };
        if row_tokens < shape.seq_len {
            return Err(too_short());
        }
        let rows: Vec<_> = (0..shape.rows)
            .map(|row| Row {
                stream,
                begin: shape.cut_of(row) * row_tokens,
                len: row_tokens,
                is_backward: shape.is_backward(row),
            })
            .collect();
        let masks = Masks::new(self.vocabulary, shape, self.mends_quirks);
        let mut drafts: Vec<_> = rows.iter().map(|_| Draft::default()).collect();
        let (mut example, mut record) = (ExampleWriter::new(), Vec::new());
        let mut writer = None;
        let (mut batches, mut at, mut reported) = (0, 0, 0);
        while at + shape.seq_len <= row_tokens {
            if self.progress.is_stopped() {
                return Err(PrepareError::Stopped);
            }
            let mut rows = rows.iter().zip(&mut drafts);
            if !rows.all(|(row, draft)| {
                draft.fill(row, at, shape, &mut python) && {
                    draft.mask(row.is_backward, shape, &masks, &mut numpy);
                    true
                }
            }) {
                // As in the script: if a row cannot be completed, its batch is dropped, and the file ends.
                break;
            }
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(TfRecordWriter::create(path, Compression::Plain)?),
            };
            for draft in &drafts {
                draft.encode(shape, &mut example);
                record.clear();
                example.append_to(&mut record);
                writer.write(&record)?;
            }
            batches += 1;
            at += shape.reuse_len;
            self.progress.add_records(shape.rows as u64);
            let done = self.share_of_work(at, row_tokens);
            self.progress.add_done(done - std::mem::replace(&mut reported, done));
        }
        self.progress.add_done(self.work.saturating_sub(reported));
        let writer = writer.ok_or_else(too_short)?;
        before_replacing()?;
        writer.finish()?;
        Ok(batches)
    }

    /// How much of the work is done when rows of this many tokens are written up to `at`.
    fn share_of_work(&self, at: usize, row_tokens: usize) -> u64 {
        let share = u128::from(self.work) * at.min(row_tokens) as u128 / row_tokens as u128;
        u64::try_from(share).unwrap_or(self.work)
    }
}

impl Draft {
    /// Makes a row of the tokens from `at` on. Returns `false` if there are too few.
    fn fill(&mut self, row: &Row<'_>, at: usize, shape: &Shape, python: &mut PythonRandom) -> bool {
        let reuse = shape.reuse_len;
        let split = split(row, at + reuse, shape.segment_tokens(), python, &mut self.cuts);
        let Some(Segments { a, b, is_next }) = split else { return false };
        (self.a, self.b, self.is_next) = (a.len(), b.len(), is_next);
        self.input.clear();
        row.copy(at..at + reuse, &mut self.input);
        row.copy(a.clone(), &mut self.input);
        self.input.push(SEP);
        row.copy(b.clone(), &mut self.input);
        self.input.extend([SEP, CLS]);
        self.target.clear();
        row.copy(at + 1..at + reuse + 1, &mut self.target);
        row.copy(a.start + 1..a.end + 1, &mut self.target);
        // B's first token is the target of the separator before it.
        row.copy(b.start..b.end + 1, &mut self.target);
        // The last two are never used.
        self.target.extend([CLS, CLS]);
        debug_assert_eq!([self.input.len(), self.target.len()], [shape.seq_len; 2]);
        true
    }

    /// Masks the row's reused half, then the other. A backward row is masked in the order of the text.
    fn mask(&mut self, is_backward: bool, shape: &Shape, masks: &Masks<'_>, numpy: &mut NumpyRandom) {
        self.mask.clear();
        self.mask.resize(shape.seq_len, false);
        let halves = [0..shape.reuse_len, shape.reuse_len..shape.seq_len];
        for (number, half) in halves.into_iter().enumerate() {
            let goal = shape.masked.map(|goals| goals[number]);
            let (tokens, mask) = (&self.input[half.clone()], &mut self.mask[half]);
            if is_backward {
                self.reversed.clear();
                self.reversed.extend(tokens.iter().rev());
                masks.draw(&self.reversed, goal, numpy, mask);
                mask.reverse();
            } else {
                masks.draw(tokens, goal, numpy, mask);
            }
        }
    }

    fn encode(&self, shape: &Shape, example: &mut ExampleWriter) {
        // The segment ids: of the reused part and A with its separator, of B with its separator, of the class
        // symbol.
        let segments = [(0, shape.reuse_len + self.a + 1), (1, self.b + 1), (2, 1)];
        example.clear();
        example
            .ints("input", self.input.iter().copied().map(i64::from))
            .ints("is_masked", self.mask.iter().copied().map(i64::from))
            .ints("label", [i64::from(self.is_next)])
            .ints("seg_id", segments.iter().flat_map(|(id, count)| std::iter::repeat_n(*id, *count)))
            .ints("target", self.target.iter().copied().map(i64::from));
    }
}
