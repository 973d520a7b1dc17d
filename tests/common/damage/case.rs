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

/// What cases are made of.
#[derive(Debug)]
pub struct Material {
    pub files: Vec<Stated>,
    pub donor: Vec<Stated>,
    /// Other data sets of the format.
    pub others: Vec<Vec<Stated>>,
    /// Files of other formats.
    pub foreign: Vec<(&'static str, Vec<u8>)>,
}

impl Material {
    pub fn of<F: Format>(format: &F) -> Self {
        let material = Material {
            files: format.files(),
            donor: format.donor(),
            others: format.others(),
            foreign: format.foreign(),
        };
        for (one, other) in material.files.iter().zip(&material.donor) {
            assert_eq!(one.name, other.name, "the donor has files of the same names");
        }
        material
    }
}

/// A damaged data set.
#[derive(Clone, Debug)]
pub struct Case {
    /// What was done, for messages.
    pub what: String,
    /// What protects what was changed, if bytes were changed in place; of a file as a whole, if what is lost
    /// of it is made anew.
    pub guard: Option<Guard>,
    /// Which of the other data sets is there as a whole, if one is.
    pub other: Option<usize>,
    /// Whether each file is a whole file, under whatever name.
    pub is_of_whole_files: bool,
    files: Vec<(String, Option<Content>)>,
}

impl Case {
    /// The undamaged data set.
    pub fn whole(files: &[Stated]) -> Self {
        let bytes = |file: &Stated| (file.name.clone(), Some(Content::Bytes(file.bytes.clone())));
        Case {
            what: "undamaged".to_owned(),
            guard: None,
            other: None,
            is_of_whole_files: true,
            files: files.iter().map(bytes).collect(),
        }
    }

    /// Makes a change; `None` if it changes nothing.
    pub fn of<F: Format>(format: &F, material: &Material, change: Change) -> Option<Self> {
        match change {
            Change::Forged { number } => {
                let (forged, what) = format.forged(number)?;
                let what = format!("forged {number}: {what}");
                return Some(Case { what, is_of_whole_files: false, ..Case::whole(&forged) });
            }
            Change::Other { of } => {
                let what = format!("all files of the data set {of}");
                return Some(Case { what, other: Some(of), ..Case::whole(&material.others[of]) });
            }
            _ => {}
        }
        let mut case = Case::whole(&material.files);
        let whole = case.files.clone();
        case.what = case.make(format, material, change);
        case.is_of_whole_files =
            matches!(change, Change::Exchange { .. } | Change::OtherFile { .. } | Change::Foreign { .. });
        if case.is_of_whole_files {
            let mut others = material.others.iter().map(|other| Case::whole(other));
            case.other = others.position(|other| other.files == case.files);
        }
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

    /// Every file, and its bytes.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().filter_map(|(name, content)| match content {
            Some(Content::Bytes(bytes)) => Some((&name[..], &bytes[..])),
            _ => None,
        })
    }

    /// Puts the files into a folder, and nothing else. One that is there as it should be stays.
    pub fn put(&self, folder: &Path) {
        let is_kept = |name: &str| self.bytes(name).is_some_and(|bytes| is_there(&folder.join(name), bytes));
        clear(folder, "", &is_kept);
        for (name, content) in &self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content {
                None => {}
                Some(Content::Folder) => fs::create_dir(&path).unwrap(),
                Some(Content::Bytes(_)) if path.exists() => {}
                Some(Content::Bytes(bytes)) => {
                    // A new file: the old one may still be mapped.
                    fs::write(&path, bytes).unwrap();
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    file.set_modified(SystemTime::UNIX_EPOCH + CHANGED_AFTER).unwrap();
                }
            }
        }
    }

    fn make<F: Format>(&mut self, format: &F, material: &Material, change: Change) -> String {
        let files = &material.files;
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
            Change::OtherFile { file, of, other } => {
                self.guard = guard_of_file(file);
                let other = &material.others[of][other];
                self.edited(file).clone_from(&other.bytes);
                format!("{} is {} of the data set {of}", files[file].name, other.name)
            }
            Change::Foreign { file, which } => {
                self.guard = guard_of_file(file);
                let (what, bytes) = &material.foreign[which];
                self.edited(file).clone_from(bytes);
                format!("{} is {what}", files[file].name)
            }
            of_part => self.make_of_part(format, material, of_part),
        }
    }

    fn make_of_part<F: Format>(&mut self, format: &F, material: &Material, change: Change) -> String {
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
        let stated = &material.files[file];
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
                let from = &material.donor[file];
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
