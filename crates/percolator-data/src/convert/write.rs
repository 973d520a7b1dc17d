//! Writes the workers' results to the outputs: in order, committed together with the state.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

use percolator_files::whole_file;

use super::maker::Size;
use super::pipeline::{self, Made};
use super::report::{Skipped, Summary};
use super::shards::Shards;
use super::state::State;
use super::{Convert, ConvertError, Progress};
use crate::store::{LABELS, Output, Place, SKIPPED, StoreError, shortened};
use crate::workers::Workers;

/// Where the outputs will be.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) stores: Vec<PathBuf>,
    pub(super) labels: Option<PathBuf>,
    pub(super) skipped: PathBuf,
}

impl Paths {
    pub(super) fn outputs(&self) -> Vec<Output> {
        let stores = self.stores.iter().enumerate().map(|(number, path)| Output::store(number, path.clone()));
        let labels = self.labels.iter().map(|path| Output::file(LABELS, path.clone()));
        stores.chain(labels).chain([Output::file(SKIPPED, self.skipped.clone())]).collect()
    }
}

/// The outputs of a conversion, and its state.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    convert: &'a Convert,
    place: Place,
    state: State,
    /// How many items an earlier run had done.
    done_before: u64,
    /// Neither is there if all outputs are whole already: some may have been moved to their names.
    shards: Option<Shards>,
    skipped_list: Option<BufWriter<File>>,
    first_skipped: Vec<Skipped>,
}

impl<'a> Writing<'a> {
    /// Starts the outputs, or goes on with them from a state.
    pub(super) fn start(
        convert: &'a Convert,
        items: Option<u64>,
        place: Place,
        state: Option<State>,
        about: BTreeMap<String, String>,
    ) -> Result<Self, ConvertError> {
        let is_resumed = state.is_some();
        let state = state.unwrap_or_else(|| State { about, ..State::default() });
        let done_before = state.next;
        let mut writing = Writing {
            convert,
            place,
            state,
            done_before,
            shards: None,
            skipped_list: None,
            first_skipped: Vec::new(),
        };
        match writing.open(items.unwrap_or(0)) {
            Ok(()) => Ok(writing),
            // An output that has been changed cannot be resumed.
            Err(cause) if is_resumed && !cause.is_full() => Err(cause.into()),
            Err(cause) => Err(writing.end(cause.into())),
        }
    }

    /// Opens the outputs, unless they are whole already.
    fn open(&mut self, items: u64) -> Result<(), StoreError> {
        let Writing { convert, place, state, .. } = self;
        if place.is_whole() {
            return Ok(());
        }
        let count = convert.shards.map_or(1, |shards| shards.get());
        let at = (state.shard, state.mark.as_ref());
        self.shards = Some(Shards::start(convert.backend, (count, items), place, at)?);
        self.skipped_list = Some(open_list(place, state.skipped_bytes)?);
        Ok(())
    }

    /// Converts all items, and gives the outputs their names.
    pub(super) fn run(
        mut self,
        workers: &Workers,
        progress: &Progress,
        paths: Paths,
    ) -> Result<Summary, ConvertError> {
        progress.set_done_before(self.state.next);
        progress.set_skipped(self.state.skipped);
        let (convert, from) = (self.convert, self.state.next);
        let written = match self.shards {
            Some(_) => pipeline::run(convert, workers, from, progress, |made| self.write(made, progress)),
            None => Ok(()),
        };
        let done = written.and_then(|()| self.complete());
        match done {
            Ok(()) => self.finish(paths),
            Err(cause) => Err(self.end(cause)),
        }
    }

    /// Writes the results of a job's items.
    fn write(&mut self, made: &Made, progress: &Progress) -> Result<(), ConvertError> {
        for (item, value) in made.items() {
            let Some(shards) = &mut self.shards else { return Ok(()) };
            shards.turn_to(self.state.next, &self.place)?;
            let checked = value.map_err(str::to_owned).and_then(|(value, size)| {
                self.convert.backend.check_key(item.key())?;
                check_size(self.convert.images.check_size, &mut self.state.size, size)?;
                Ok(value)
            });
            match checked {
                Ok(value) => {
                    shards.writer().put(item.key(), value)?;
                    self.state.records += 1;
                    // No other number bounds it, and a state may state any.
                    self.state.bytes = self.state.bytes.saturating_add(value.len() as u64);
                    progress.add_bytes(value.len() as u64);
                }
                Err(reason) => self.skip(item.key(), reason)?,
            }
            self.state.next += 1;
            if self.shards.as_mut().is_some_and(|shards| shards.writer().is_due()) {
                self.commit()?;
            }
        }
        progress.set_done(self.state.next);
        progress.set_skipped(self.state.skipped);
        Ok(())
    }

    /// Lists an item that is skipped.
    fn skip(&mut self, key: &[u8], reason: String) -> Result<(), StoreError> {
        let key = key.escape_ascii().to_string();
        let skipped = Skipped { item: self.state.next, key, reason };
        let reason = skipped.reason.escape_debug();
        let line = format!("{}\t{}\t{reason}\n", skipped.item, skipped.key);
        let path = self.place.folder().join(SKIPPED);
        if let Some(list) = &mut self.skipped_list {
            list.write_all(line.as_bytes()).map_err(StoreError::io(&path, "write the file"))?;
        }
        self.state.skipped += 1;
        self.state.skipped_bytes += line.len() as u64;
        if self.first_skipped.len() < Summary::SKIPPED_MAX {
            self.first_skipped.push(skipped);
        }
        Ok(())
    }

    /// Puts everything so far on the disk, and then the state.
    fn commit(&mut self) -> Result<(), StoreError> {
        let path = self.place.folder().join(SKIPPED);
        if let Some(list) = &mut self.skipped_list {
            let written = list.flush().and_then(|()| list.get_ref().sync_data());
            written.map_err(StoreError::io(&path, "write the file"))?;
        }
        if let Some(shards) = &mut self.shards {
            self.state.mark = Some(shards.writer().commit()?);
            self.state.shard = shards.shard;
        }
        self.state.save(self.place.folder())
    }

    /// Completes the outputs. From then on, they only have to be moved.
    fn complete(&mut self) -> Result<(), ConvertError> {
        if self.place.is_whole() {
            return Ok(());
        }
        if self.state.records == 0 {
            let (path, skipped) = (self.convert.input.path().to_owned(), self.state.skipped);
            let first = self.first_skipped.first().cloned();
            return Err(ConvertError::Nothing { path, skipped, first });
        }
        self.commit()?;
        if let Some(shards) = self.shards.take() {
            shards.finish(&self.place)?;
        }
        self.skipped_list = None;
        if self.state.skipped == 0 {
            let path = self.place.folder().join(SKIPPED);
            fs::remove_file(&path).map_err(StoreError::io(&path, "remove the file"))?;
        }
        if let Some(classes) = self.convert.input.classes() {
            let path = self.place.folder().join(LABELS);
            let lines: Vec<&[u8]> = classes.iter().flat_map(|class| [&class[..], b"\n"]).collect();
            whole_file::write(&path, &lines).map_err(StoreError::io(&path, "write the file"))?;
        }
        Ok(())
    }

    fn finish(self, paths: Paths) -> Result<Summary, ConvertError> {
        let Writing { convert, place, state, done_before, first_skipped, .. } = self;
        let partial = place.folder().to_owned();
        place.finish().map_err(|error| ConvertError::Kept {
            cause: Box::new(error.into()),
            items: state.next,
            partial,
        })?;
        Ok(Summary {
            outputs: paths.stores,
            records: state.records,
            bytes: state.bytes,
            done_before,
            skipped: state.skipped,
            first_skipped,
            skipped_list: (state.skipped > 0).then_some(paths.skipped),
            labels: paths.labels.filter(|_| convert.input.classes().is_some()),
        })
    }

    /// Ends early: keeps the output, if it is worth keeping.
    fn end(mut self, cause: ConvertError) -> ConvertError {
        if matches!(cause, ConvertError::Nothing { .. }) {
            self.discard();
            return cause;
        }
        // After a failed write, only what was committed before counts.
        let is_sound = !matches!(cause, ConvertError::Store(_));
        if is_sound && self.state.records > 0 && self.commit().is_ok() {
            return self.kept(cause, self.state.next);
        }
        match State::load(self.place.folder(), &self.state.about) {
            Ok(Some(saved)) => self.kept(cause, saved.next),
            // Much may have been committed: without a free file handle, for one, it cannot be read.
            Err(error) => {
                let (cause, error) = (Box::new(cause), Box::new(error));
                ConvertError::StateUnread { cause, error, partial: self.place.folder().to_owned() }
            }
            Ok(None) if self.discard() => ConvertError::Removed { cause: Box::new(cause) },
            Ok(None) => cause,
        }
    }

    fn kept(&self, cause: ConvertError, items: u64) -> ConvertError {
        ConvertError::Kept { cause: Box::new(cause), items, partial: self.place.folder().to_owned() }
    }

    /// Removes the output; returns whether nothing of it is left. The error says what ended the conversion,
    /// so the reason why a folder stays is only logged.
    fn discard(self) -> bool {
        let Writing { place, shards, skipped_list, .. } = self;
        // They are closed before their files are removed.
        drop((shards, skipped_list));
        let removed = place.discard();
        removed.inspect_err(|error| tracing::warn!("{error}; it can be removed")).is_ok()
    }
}

/// Opens the list of what is skipped, and drops what was written to it after the last commit.
fn open_list(place: &Place, bytes: u64) -> Result<BufWriter<File>, StoreError> {
    let path = place.folder().join(SKIPPED);
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(StoreError::io(&path, "open the file"))?;
    Ok(BufWriter::new(shortened(file, &path, bytes)?))
}

/// Fails if an image differs in size from the first one, and it must not.
fn check_size(is_wanted: bool, first: &mut Option<Size>, size: Option<Size>) -> Result<(), String> {
    let Some(size) = size.filter(|_| is_wanted) else { return Ok(()) };
    let first = *first.get_or_insert(size);
    let shown = |[channels, height, width]: Size| format!("{channels}x{height}x{width}");
    match first == size {
        true => Ok(()),
        false => Err(format!("its size is {}, and that of the first image {}", shown(size), shown(first))),
    }
}
