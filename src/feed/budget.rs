//! The memory that a feed will take, holder by holder.

use std::fmt;
use std::ops::Range;

use super::config::ConfigError;
use crate::base::memory_limit::MemoryLimit;
use crate::record::RecordId;
use crate::transform::Draw;

/// The memory that a feed will use beside the page cache, holder by holder, as long as no record is larger
/// than the first. If one is, the buffers that meet it grow and stay that large.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemoryBudget {
    /// One line for each holder. Two holders may have the same name.
    pub lines: Vec<BudgetLine>,
    /// The lines that each thread has one piece of.
    of_threads: Range<usize>,
}

/// The memory that one holder will use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLine {
    /// The holder and what it holds.
    pub holder: &'static str,
    /// The number of pieces.
    pub count: usize,
    /// The size of each piece in bytes.
    pub bytes_each: usize,
}

impl BudgetLine {
    /// The bytes of all pieces together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.bytes_each)
    }
}

impl MemoryBudget {
    /// The bytes of all holders together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.lines.iter().fold(0, |total, line| total.saturating_add(line.bytes()))
    }

    /// Checks that a limit allows it.
    pub(crate) fn check(&self, limit: Option<&MemoryLimit>) -> Result<(), ConfigError> {
        let needed = self.total_bytes();
        match limit {
            Some(MemoryLimit { bytes, set_by }) if needed > *bytes => {
                let (allowed, set_by) = (*bytes, set_by.clone());
                Err(ConfigError::OverBudget { needed, allowed, set_by, budget: self.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// The same with another number of threads.
    pub(crate) fn with_threads(&self, threads: usize) -> Self {
        let mut budget = self.clone();
        for line in &mut budget.lines[self.of_threads.clone()] {
            line.count = threads;
        }
        budget
    }

    /// That of batches alone, of so many bytes and records each, which are filled by others.
    pub(super) fn of_batches(count: usize, bytes_each: usize, records: usize) -> Self {
        let line = |holder, bytes_each| BudgetLine { holder, count, bytes_each };
        let lines =
            vec![line("batches", bytes_each), line("batches: record ids, draws", records * TAG_BYTES)];
        MemoryBudget { lines, of_threads: 0..0 }
    }

    pub(crate) fn of(terms: &BudgetTerms<'_>) -> Self {
        let slots = terms.lanes * terms.prefetch;
        let places = terms.lanes * terms.runs * terms.run_records;
        let [first, others] = match terms.is_of_images {
            true => ["batches: pixels", "batches: targets, labels"],
            false => ["batches: the first field", "batches: other fields"],
        };
        let line = |holder, count, bytes_each| BudgetLine { holder, count, bytes_each };
        let mut lines = vec![
            line(first, slots, terms.first_field_bytes),
            line(others, slots, terms.memory_bytes - terms.first_field_bytes),
            line("batches: record ids, draws", slots, terms.records * TAG_BYTES),
            line("batches: content hashes", slots, terms.records * terms.hash_bytes),
            line("reader: places of records", places, terms.place_bytes),
            line("queues: runs", terms.lanes * terms.runs, terms.run_bytes),
            line("queues: offloaded tasks", terms.offloaded, terms.offloaded_bytes),
            line("reader: copies of keys and values", places, terms.copied_bytes),
            line("source: its own memory", 1, terms.held_bytes),
            line("prefetch: a record that is tried", terms.lanes, terms.tried_bytes),
        ];
        let is_used = |line: &BudgetLine| line.bytes() > 0;
        lines.retain(is_used);
        let first = lines.len();
        lines.extend(terms.scratch_bytes.iter().map(|&(holder, bytes)| line(holder, terms.threads, bytes)));
        lines.retain(is_used);
        let of_threads = first..lines.len();
        lines.push(line("transform: mean images", 1, terms.mean_elements.saturating_mul(size_of::<f32>())));
        lines.retain(is_used);
        MemoryBudget { lines, of_threads }
    }
}

/// The size of a record's id and its random numbers.
const TAG_BYTES: usize = size_of::<RecordId>() + size_of::<Draw>();

/// The quantities from which a budget is computed.
#[derive(Debug)]
pub(crate) struct BudgetTerms<'a> {
    pub(crate) lanes: usize,
    pub(crate) prefetch: usize,
    pub(crate) threads: usize,
    /// The number of records in a batch.
    pub(crate) records: usize,
    /// Bytes of a batch's first field; `memory_bytes` are those of its whole memory.
    pub(crate) first_field_bytes: usize,
    pub(crate) memory_bytes: usize,
    pub(crate) is_of_images: bool,
    /// Bytes of a record's content hash; 0 if hashes are not kept.
    pub(crate) hash_bytes: usize,
    pub(crate) runs: usize,
    pub(crate) run_records: usize,
    pub(crate) place_bytes: usize,
    pub(crate) run_bytes: usize,
    /// The most tasks that the reader offloads to workers.
    pub(crate) offloaded: usize,
    pub(crate) offloaded_bytes: usize,
    /// Bytes of a record's key, value and companion that are copied because they are not lent.
    pub(crate) copied_bytes: usize,
    pub(crate) held_bytes: usize,
    /// Bytes of a record that is decoded alone, to see whether it is good; 0 if no record is.
    pub(crate) tried_bytes: usize,
    /// One worker's scratch memory, holder by holder.
    pub(crate) scratch_bytes: &'a [(&'static str, usize)],
    pub(crate) mean_elements: usize,
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let BudgetLine { holder, count, bytes_each } = line;
            writeln!(f, "{:>14} bytes  {holder} ({count} x {bytes_each})", line.bytes())?;
        }
        write!(f, "{:>14} bytes  in all", self.total_bytes())
    }
}
