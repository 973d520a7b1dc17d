//! What is on the disk after a change.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Format;
use super::change::{Appended, Change};
use super::stated::{Guard, Stated};

/// When every file was changed last: so only their content shows what happened to them.
pub const CHANGED_AFTER: Duration = Duration::from_secs(1_700_000_000);

/// What is in a file's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>),
    Folder,
}

/// A damaged data set.
#[derive(Clone, Debug)]
pub struct Case {
    /// What was done, for messages.
    pub what: String,
    /// What protects what was changed, if bytes were changed in place; of a file as a whole, if what is lost
    /// of it is made anew.
    pub guard: Option<Guard>,
    files: Vec<(String, Option<Content>)>,
}

impl Case {
    /// The undamaged data set.
    pub fn whole(files: &[Stated]) -> Self {
        let bytes = |file: &Stated| (file.name.clone(), Some(Content::Bytes(file.bytes.clone())));
        Case { what: "undamaged".to_owned(), guard: None, files: files.iter().map(bytes).collect() }
    }

    /// Makes a change; `None` if it changes nothing.
    pub fn of<F: Format>(format: &F, files: &[Stated], donor: &[Stated], change: Change) -> Option<Self> {
        if let Change::Forged { number } = change {
            let (forged, what) = format.forged(number)?;
            return Some(Case { what: format!("forged {number}: {what}"), ..Case::whole(&forged) });
        }
        let mut case = Case::whole(files);
        let whole = case.files.clone();
        case.what = case.make(format, files, donor, change);
        (case.files != whole).then_some(case)
    }

    /// A file's bytes, if there is one of this name.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let (_, content) = self.files.iter().find(|(other, _)| other == name)?;
        match content {
            Some(Content::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Puts the files into a folder, and nothing else. A file that is kept is written only if it is not there
    /// as it should be.
    pub fn put(&self, files: &[Stated], folder: &Path) {
        let is_kept = |name: &str| files.iter().any(|file| file.is_kept && file.name == name);
        clear(folder, "", &is_kept);
        for (name, content) in &self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content {
                None => {}
                Some(Content::Folder) => fs::create_dir(&path).unwrap(),
                Some(Content::Bytes(bytes)) if is_kept(name) && is_there(&path, bytes) => {}
                Some(Content::Bytes(bytes)) => {
                    // A new file: the old one may still be mapped.
                    let _ = fs::remove_file(&path);
                    fs::write(&path, bytes).unwrap();
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    file.set_modified(SystemTime::UNIX_EPOCH + CHANGED_AFTER).unwrap();
                }
            }
        }
    }

    fn make<F: Format>(&mut self, format: &F, files: &[Stated], donor: &[Stated], change: Change) -> String {
        let guard_of_file = |file: usize| Some(files[file].guard).filter(|guard| *guard == Guard::Mended);
        match change {
            Change::Bit { file, at, .. } | Change::Byte { file, at, .. } => {
                self.guard = Some(files[file].guard_at(at));
                let byte = &mut self.edited(file)[at];
                match change {
                    Change::Bit { bit, .. } => *byte ^= 1 << bit,
                    Change::Byte { value, .. } => *byte = value,
                    _ => unreachable!(),
                }
                let part = files[file].part_at(at).map_or("", |part| part.name);
                format!("{}: {change:?} ({part})", files[file].name)
            }
            Change::Cut { file, length } => {
                self.guard = guard_of_file(file);
                self.edited(file).truncate(length);
                format!("{}: cut to {length} bytes", files[file].name)
            }
            Change::Missing { file } => {
                self.guard = guard_of_file(file);
                self.files[file].1 = None;
                format!("{} is missing", files[file].name)
            }
            Change::Folder { file } => {
                self.guard = guard_of_file(file);
                self.files[file].1 = Some(Content::Folder);
                format!("{} is a folder", files[file].name)
            }
            Change::Append { file, what } => {
                self.guard = guard_of_file(file);
                let bytes = self.edited(file);
                match what {
                    Appended::Zero => bytes.push(0),
                    Appended::Zeros => bytes.resize(bytes.len() + 4096, 0),
                    Appended::Letters => bytes.extend_from_slice(b"letters"),
                    Appended::Itself => bytes.extend_from_within(..),
                }
                format!("{}: {what:?} behind it", files[file].name)
            }
            Change::Exchange { file, other } => {
                let one = self.files[file].1.take();
                self.files[file].1 = std::mem::replace(&mut self.files[other].1, one);
                format!("{} and {} exchanged", files[file].name, files[other].name)
            }
            Change::DonorFile { file } => {
                self.guard = guard_of_file(file);
                *self.edited(file) = donor[file].bytes.clone();
                format!("{} of another data set", files[file].name)
            }
            of_part => self.make_of_part(format, files, donor, of_part),
        }
    }

    fn make_of_part<F: Format>(
        &mut self,
        format: &F,
        files: &[Stated],
        donor: &[Stated],
        change: Change,
    ) -> String {
        let (Change::Fill { file, part, .. }
        | Change::Remove { file, part }
        | Change::Double { file, part }
        | Change::Insert { file, part, .. }
        | Change::Swap { file, part, .. }
        | Change::Donor { file, part }
        | Change::Lie { file, part, .. }) = change
        else {
            unreachable!("{change:?} is not of a part")
        };
        let stated = &files[file];
        let this = &stated.parts[part];
        let range = this.range.clone();
        self.guard = Some(stated.guard).filter(|guard| *guard == Guard::Mended);
        let bytes = self.edited(file);
        let length = bytes.len();
        match change {
            Change::Fill { value, .. } => bytes[range.clone()].fill(value),
            Change::Remove { .. } => drop(bytes.drain(range.clone())),
            Change::Double { .. } => {
                let again = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, again).for_each(drop);
            }
            Change::Insert { bytes: count, value, .. } => {
                bytes.splice(range.start..range.start, vec![value; count]).for_each(drop);
            }
            Change::Swap { other, .. } => {
                let other = stated.parts[other].range.clone();
                let between = bytes[range.end..other.start].to_vec();
                let swapped = [&bytes[other.clone()], &between, &bytes[range.clone()]].concat();
                bytes[range.start..other.end].copy_from_slice(&swapped);
            }
            Change::Donor { .. } => {
                let from = &donor[file];
                let other = from.bytes[from.parts[part].range.clone()].to_vec();
                bytes.splice(range.clone(), other).for_each(drop);
            }
            Change::Lie { which, is_sealed, .. } => {
                let lies = this.number.unwrap().lies(&bytes[range.clone()], length);
                bytes.splice(range.clone(), lies[which].clone()).for_each(drop);
                if is_sealed {
                    format.seal(&stated.name, bytes);
                }
            }
            _ => unreachable!(),
        }
        // In place, and nothing else: then the part's own guard covers it.
        let is_in_place = bytes.len() == length
            && bytes
                .iter()
                .zip(&stated.bytes)
                .enumerate()
                .all(|(at, (one, other))| one == other || range.contains(&at));
        if is_in_place {
            self.guard = Some(this.guard);
        }
        format!("{}: {change:?} ({})", stated.name, this.name)
    }

    fn edited(&mut self, file: usize) -> &mut Vec<u8> {
        match &mut self.files[file].1 {
            Some(Content::Bytes(bytes)) => bytes,
            _ => unreachable!("one change is made of a case"),
        }
    }
}

/// Whether a file has these bytes, and was not changed since.
fn is_there(path: &Path, bytes: &[u8]) -> bool {
    let changed = fs::metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|changed| changed == SystemTime::UNIX_EPOCH + CHANGED_AFTER)
        && fs::read(path).is_ok_and(|found| found == bytes)
}

/// Removes everything in a folder but what is kept.
fn clear(folder: &Path, below: &str, is_kept: &dyn Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            clear(&entry.path(), &format!("{name}/"), is_kept);
            // One with a kept file stays.
            let _ = fs::remove_dir(entry.path());
        } else if !is_kept(&name) {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}
