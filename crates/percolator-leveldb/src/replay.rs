//! Reads the live logs front to back: their writes, where they are cut, and which writes they lack.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use percolator_files::caller::words;

use crate::batch::{BatchFault, Writes};
use crate::cut::LogCut;
use crate::database::Fact;
use crate::error::LevelDbError;
use crate::key::KEY_BYTES_MAX;
use crate::log::{BLOCK_BYTES, LogError, LogReader};
use crate::map::FileBytes;
use crate::numbers::Numbers;
use crate::options::LogGaps;

/// The most gaps that are kept, of those that were allowed.
const GAPS_MAX: usize = 100;

/// The logs that have been read so far.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    numbers: Numbers<'a>,
    allowed: LogGaps,
    /// The facts that the database's state is told by.
    pub(crate) opened_from: Vec<Fact>,
    pub(crate) logs: Vec<FileBytes>,
    pub(crate) writes: Writes,
    pub(crate) cuts: Vec<LogCut>,
    /// What the logs lack, if that is allowed.
    pub(crate) gaps: Vec<LevelDbError>,
    /// The number after the last write in the logs; 0 before the first.
    due: u64,
    /// The last log that has a write.
    last: Option<PathBuf>,
    /// A log after which no write was found, and how it ends: the first log without a write, or the last that
    /// is cut.
    open_end: Option<(PathBuf, End)>,
}

/// The end of a log that may have lost writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Cut,
    Empty,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(numbers: Numbers<'a>, allowed: LogGaps, opened_from: Vec<Fact>) -> Self {
        Replay {
            numbers,
            allowed,
            opened_from,
            logs: Vec::new(),
            writes: Writes::default(),
            cuts: Vec::new(),
            gaps: Vec::new(),
            due: 0,
            last: None,
            open_end: None,
        }
    }

    /// Reads the next log.
    pub(crate) fn add(&mut self, log: PathBuf) -> Result<(), LevelDbError> {
        let map = FileBytes::open(&log, None, self.numbers.reading)?;
        let bytes = map.as_ref();
        let home = u32::try_from(self.logs.len()).unwrap_or(u32::MAX);
        let mut reader = LogReader::new(bytes);
        let mut has_writes = false;
        while let Some(pieces) = reader.next().map_err(|error| damaged(&log, error))? {
            let added = self.writes.add(home, bytes, pieces);
            let offset = reader.offset();
            let malformed = |message| LevelDbError::Batch { file: log.clone(), offset, message };
            let numbers = added.map_err(|fault| match fault {
                BatchFault::Malformed(message) => malformed(message),
                BatchFault::KeyLength { at, found } => {
                    let (offset, allowed) = (at % BLOCK_BYTES, KEY_BYTES_MAX);
                    LevelDbError::KeyLength { file: log.clone(), block: at - offset, offset, found, allowed }
                }
            })?;
            if numbers.is_empty() {
                continue;
            }
            // Zeros before the first write may be a part of the log that did not reach the disk. Before a
            // later one, its number tells.
            if self.due == 0 && reader.zeros().is_some() {
                self.open_end = Some((log.clone(), End::Cut));
            }
            let (found, due) = (numbers.start, self.due);
            if found < due {
                let message = format!("it starts with write {found}, but {due} is the least that can follow");
                return Err(malformed(message));
            }
            if let Some(gap) = self.gap_before(found, &log, offset, has_writes)? {
                self.lacks(gap)?;
            }
            (self.due, has_writes) = (numbers.end, true);
        }
        self.note(&log, bytes.len())?;
        let is_cut = reader.cut().is_some();
        self.cuts.extend(reader.cut().map(|cut| LogCut::new(&log, cut)));
        if has_writes {
            self.last = Some(log.clone());
        }
        // Writes lost before a log without writes stay lost.
        match (is_cut, has_writes) {
            (true, _) => self.open_end = Some((log, End::Cut)),
            (false, false) if self.open_end.is_none() => self.open_end = Some((log, End::Empty)),
            (false, _) => {}
        }
        self.logs.push(map);
        Ok(())
    }

    /// Returns what is lost before the batch at `offset` of a log whose first write is `found`.
    fn gap_before(
        &mut self,
        found: u64,
        log: &Path,
        offset: usize,
        is_within: bool,
    ) -> Result<Option<LevelDbError>, LevelDbError> {
        let open_end = self.open_end.take();
        let skips = |due| LevelDbError::Skip { file: log.to_owned(), offset, found, due };
        let gap = |file, wanted| LevelDbError::Gap { file, next: log.to_owned(), found, wanted };
        Ok(match (self.due, open_end) {
            (0, None) => {
                let due = self.numbers.counted.saturating_add(1);
                (found > due).then(|| skips(due))
            }
            // The log had a write, or a part of one, that the MANIFEST may have counted. A writer that
            // restarts after that replays the log, and no longer needs it when it writes to the next one. So
            // if such a log is still needed and the next one has writes, no number shows that nothing is
            // lost.
            (0, Some((file, End::Cut))) => Some(gap(file, None)),
            // LevelDB starts a new log when it is asked to compact, whatever is in the last one. And a writer
            // that reuses logs may find an empty one before the one it reuses.
            (0, Some((file, End::Empty))) => {
                let due = self.numbers.due_after_empty(found)?;
                (due != found).then(|| gap(file, Some(due)))
            }
            (due, _) if due == found => None,
            (due, _) if is_within => Some(skips(due)),
            (due, open_end) => {
                let before = open_end.map(|(file, _)| file).or(self.last.clone());
                Some(gap(before.unwrap_or_else(|| log.to_owned()), Some(due)))
            }
        })
    }

    /// Reports what is lost at the end of the logs. No number tells of writes after both the MANIFEST's last
    /// edit and the rest of the logs.
    pub(crate) fn check_end(&mut self) -> Result<(), LevelDbError> {
        let counted = self.numbers.counted;
        let due = match self.due {
            0 => self.numbers.lost_with_all()?,
            due => Some(due).filter(|&due| due <= counted),
        };
        let Some(due) = due else { return Ok(()) };
        let file = self.last.clone().unwrap_or_else(|| self.numbers.oldest_log());
        let manifest = self.numbers.manifest.to_owned();
        self.lacks(LevelDbError::LostEnd { file, due, counted, manifest })
    }

    /// Returns the number of the database's last write.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.numbers.counted.max(self.due.saturating_sub(1))
    }

    /// Reports what is lost, as an error unless that is allowed.
    pub(crate) fn lacks(&mut self, gap: LevelDbError) -> Result<(), LevelDbError> {
        match self.allowed {
            LogGaps::Refuse => Err(gap),
            LogGaps::Allow => {
                let option = words("LogGaps::Allow", "--allow-log-gaps", "log_gaps=\"allow\"");
                tracing::warn!("a gap in the logs, which {option} permits: {gap}");
                if self.gaps.len() < GAPS_MAX {
                    self.gaps.push(gap);
                }
                Ok(())
            }
        }
    }

    fn note(&mut self, log: &Path, bytes: usize) -> Result<(), LevelDbError> {
        let metadata = std::fs::metadata(log);
        let metadata = metadata.map_err(|error| LevelDbError::io(log, "look at the file", &error))?;
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let fact = format!("{name}: {bytes} bytes, modified {seconds}.{nanoseconds:09}");
        self.opened_from.push(("log", fact));
        Ok(())
    }
}

pub(crate) fn damaged(file: &Path, error: LogError) -> LevelDbError {
    let (block, offset) = (error.block(), error.offset);
    LevelDbError::Log { file: file.to_owned(), block, offset, fault: error.fault }
}
