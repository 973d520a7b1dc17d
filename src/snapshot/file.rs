//! A snapshot's file, saved together with a receipt.
//!
//! Two files cannot be renamed at once. So the snapshot is first renamed into place together with the
//! receipt's text, in one file: that rename publishes both. Then the receipt is written to its own path, and
//! finally the snapshot alone. A process killed in between leaves a snapshot that carries its receipt, and
//! [`Snapshot::recover`], with which a run resumes, completes the save.
//!
//! ```text
//! percolator snapshot 1
//! ...
//! checksum 5c1e0f6b
//! percolator carried-receipt 1
//! place 0.receipt                       relative to the snapshot's folder; all but printable ASCII as %XX
//! line percolator receipt 1             the receipt, line by line
//! line source /data/train_lmdb
//! ...
//! checksum 1a2b3c4d
//! ```

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::text::{KIND, read};
use super::{Snapshot, SnapshotError};
use crate::receipt::{self, Receipt};
use percolator_files::checked_text::{TextFault, TextReader, TextWriter, lines, text_of};
use percolator_files::input_file;
use percolator_files::shown;
use percolator_files::whole_file::{self, folder_of, place_of};

const CARRIED: &str = "carried-receipt";
const CARRIED_VERSION: u32 = 1;

/// The largest files that are read, and so the largest that are written.
#[derive(Clone, Copy)]
struct Bounds {
    /// A snapshot alone. The source decides how long its identity is.
    snapshot: u64,
    receipt: u64,
}

const BOUNDS: Bounds = Bounds { snapshot: 64 << 20, receipt: receipt::file::BYTES_MAX };

impl Bounds {
    /// The limit for a snapshot that carries a receipt.
    fn carrying(self) -> u64 {
        /// Three times the longest path that can be opened, plus the lines every text has.
        const PLACE_BYTES_MAX: u64 = 16 << 10;

        // Each line of the receipt gets a `line` prefix, which is shorter than the line itself.
        self.snapshot + 2 * self.receipt + PLACE_BYTES_MAX
    }
}

/// A receipt stored in its snapshot's file, and possibly not in its own yet.
struct Carried {
    place: PathBuf,
    text: String,
}

impl Snapshot {
    /// Writes the snapshot to a file. The file is never partial: a temporary file beside it is written, then
    /// renamed. Symbolic links are followed, and only a regular file is replaced.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`]; [`SnapshotError::TooLarge`] if the text exceeds 64 MiB and so could not be read
    /// back.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        self.write(path.as_ref(), "", BOUNDS)
    }

    /// Writes the snapshot, and a receipt of the same lanes to its own file, so that both are there or
    /// neither, whenever the process is killed: [`recover`](Self::recover) completes an interrupted save.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`] if the snapshot cannot be written, and [`SnapshotError::TooLarge`] if it could
    /// not be read back; the previous files are then untouched. [`SnapshotError::Receipt`] if the receipt
    /// cannot be written: it then stays in the snapshot's file until it is recovered, unless it is one that
    /// could not be read back. [`SnapshotError::SamePlace`] if both paths lead to one file.
    pub fn save_with_receipt(
        &self,
        path: impl AsRef<Path>,
        receipt: &Receipt,
        receipt_path: impl AsRef<Path>,
    ) -> Result<(), SnapshotError> {
        let (path, receipt_path) = (path.as_ref(), receipt_path.as_ref());
        check_places(path, receipt_path)?;
        self.carry(path, receipt, receipt_path, BOUNDS)?;
        receipt.save(receipt_path).map_err(SnapshotError::Receipt)?;
        self.save(path)
    }

    /// Writes the snapshot with the receipt in the same file.
    fn carry(
        &self,
        path: &Path,
        receipt: &Receipt,
        receipt_path: &Path,
        bounds: Bounds,
    ) -> Result<(), SnapshotError> {
        let text = receipt.text_for(receipt_path, bounds.receipt).map_err(SnapshotError::Receipt)?;
        let place = from_folder_of(path, receipt_path).map_err(|error| unwritable(path, error))?;
        self.write(path, &Carried { place, text }.to_text(), bounds)
    }

    fn write(&self, path: &Path, behind: &str, bounds: Bounds) -> Result<(), SnapshotError> {
        let text = self.to_string();
        let (found, allowed) = (text.len() as u64, bounds.snapshot);
        if found > allowed {
            return Err(SnapshotError::TooLarge { path: path.to_owned(), found, allowed });
        }
        whole_file::write(path, &[text.as_bytes(), behind.as_bytes()])
            .map_err(|error| unwritable(path, error))
    }

    /// Reads a snapshot from a file. A receipt that an interrupted
    /// [`save_with_receipt`](Self::save_with_receipt) left in the file stays there: to resume a training run
    /// that keeps receipts, use [`recover`](Self::recover).
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`] if the file cannot be read or is not a regular file; [`SnapshotError::Text`] if
    /// it is cut off, was edited, is of a later release, or is not a snapshot.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        load(path.as_ref(), BOUNDS).map(|(snapshot, _carried)| snapshot)
    }

    /// Reads a snapshot from a file like [`load`](Self::load), and completes an interrupted [save with a
    /// receipt](Self::save_with_receipt): the receipt is written to its own path, so that a resumed run can
    /// prove the whole run.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); [`SnapshotError::Receipt`] or [`SnapshotError::Io`] if the receipt, or after
    /// it the snapshot, cannot be written; [`SnapshotError::Io`] if the receipt's path is not in the
    /// snapshot's folder and no file is there, because only the snapshot claims that path.
    pub fn recover(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let (snapshot, carried) = load(path, BOUNDS)?;
        if let Some(Carried { place, text }) = carried {
            let snapshot_place = place_of(path).map_err(|error| unwritable(path, error))?;
            let place = folder_of(&snapshot_place).join(place);
            let of_text = |fault| SnapshotError::Text { path: Some(path.to_owned()), fault };
            let receipt: Receipt = text.parse().map_err(of_text)?;
            // Whatever path the snapshot gives, a receipt replaces only a receipt, and no new file is created
            // outside the snapshot's folder.
            match fs::metadata(&place) {
                Ok(there) if there.len() > 0 => drop(Receipt::load(&place).map_err(SnapshotError::Receipt)?),
                Err(_) if !is_in_folder_of(&snapshot_place, &place) => return Err(elsewhere(path, &place)),
                _ => {}
            }
            receipt.save(&place).map_err(SnapshotError::Receipt)?;
            snapshot.save(path)?;
        }
        Ok(snapshot)
    }
}

/// Whether a path leads into the folder of the snapshot's file. A path that cannot be resolved counts as if
/// it did: it cannot be written to either, and that error says why.
fn is_in_folder_of(snapshot_place: &Path, place: &Path) -> bool {
    let resolved = place_of(place).and_then(|place| fs::canonicalize(folder_of(&place)));
    let folder = fs::canonicalize(folder_of(snapshot_place));
    resolved.ok().zip(folder.ok()).is_none_or(|(place, folder)| place.starts_with(folder))
}

fn elsewhere(path: &Path, place: &Path) -> SnapshotError {
    let message = format!(
        "its receipt belongs to {}, which is not in its folder, and where no file is: if that is right, \
         create an empty file there, and resume again",
        shown::path(place)
    );
    SnapshotError::Io { path: path.to_owned(), action: "complete", source: io::Error::other(message).into() }
}

/// Checks that the snapshot and the receipt are two files.
fn check_places(path: &Path, receipt_path: &Path) -> Result<(), SnapshotError> {
    // A path that cannot be examined cannot be written either, and that error says why.
    match whole_file::is_same_place(path, receipt_path) {
        Ok(true) => Err(SnapshotError::SamePlace { path: path.to_owned() }),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// `other` relative to the folder of `path`, so that both can be moved together; absolute if it is elsewhere.
fn from_folder_of(path: &Path, other: &Path) -> io::Result<PathBuf> {
    let folder = fs::canonicalize(folder_of(&place_of(path)?))?;
    let Some(name) = other.file_name() else { return Ok(other.to_owned()) };
    // A missing folder is an error of the write to come.
    let other_folder =
        fs::canonicalize(folder_of(other)).or_else(|_| std::path::absolute(folder_of(other)))?;
    Ok(other_folder.strip_prefix(folder).unwrap_or(&other_folder).join(name))
}

fn load(path: &Path, bounds: Bounds) -> Result<(Snapshot, Option<Carried>), SnapshotError> {
    let bytes = input_file::read_if_begins(path, b"percolator ", bounds.carrying())
        .map_err(|error| SnapshotError::Io { path: path.to_owned(), action: "read", source: error.into() })?;
    let of_text = |fault| SnapshotError::Text { path: Some(path.to_owned()), fault };
    let (snapshot, carried) = split(text_of(KIND, &bytes).map_err(of_text)?);
    let (found, allowed) = (snapshot.len() as u64, bounds.snapshot);
    if found > allowed {
        let message = format!("its snapshot has {found} bytes, but at most {allowed} are read");
        let source = io::Error::new(io::ErrorKind::FileTooLarge, message).into();
        return Err(SnapshotError::Io { path: path.to_owned(), action: "read", source });
    }
    let parsed = read(snapshot).and_then(|snapshot| Ok((snapshot, carried.map(Carried::read).transpose()?)));
    parsed.map_err(of_text)
}

/// A snapshot's text, and that of the receipt it carries.
fn split(text: &str) -> (&str, Option<&str>) {
    // No line of a snapshot begins like this: its facts have other names.
    match text.find(&format!("\npercolator {CARRIED} ")) {
        Some(end) => (&text[..=end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

fn unwritable(path: &Path, error: io::Error) -> SnapshotError {
    SnapshotError::Io { path: path.to_owned(), action: "write", source: error.into() }
}

impl Carried {
    fn to_text(&self) -> String {
        let mut text = TextWriter::new(CARRIED, CARRIED_VERSION);
        text.fact("place", encoded(&self.place));
        lines(&self.text).for_each(|line| text.fact("line", line));
        text.checksum()
    }

    fn read(text: &str) -> Result<Self, TextFault> {
        let (mut facts, _) = TextReader::open(text, CARRIED, CARRIED_VERSION)?;
        let place = facts.value_by("place", "a path", decoded)?;
        let mut text = String::new();
        while let Some(line) = facts.next_if("line") {
            text.push_str(line);
            text.push('\n');
        }
        facts.end()?;
        Ok(Carried { place, text })
    }
}

/// A path as one word, whatever its bytes.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect("a String takes what is written to it"),
        }
    }
    text
}

fn decoded(text: &str) -> Option<PathBuf> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, more @ ..] = rest {
        rest = more;
        bytes.push(match byte {
            b'%' => {
                let (digits, more) = rest.split_at_checked(2)?;
                rest = more;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            byte => *byte,
        });
    }
    (!bytes.is_empty()).then(|| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::order::{BatchSize, Job, World};
    use crate::receipt::{Ledger, ReceiptError};
    use crate::record::{StepEnd, StepId};
    use crate::snapshot::{DealtBy, DrawnFrom};
    use crate::source::Identity;

    fn run(step: u64) -> (Snapshot, Receipt) {
        let plan = Job::new([100], BatchSize::PerReplica(5), World::ALONE).plan().unwrap();
        let dealt_by = DealtBy::Plan(plan.clone().into());
        let next = [(0, StepId { epoch: 0, step })];
        let snapshot = Snapshot::new(Path::new("db"), Identity::new(), dealt_by, DrawnFrom::Indexed(0), next);
        let mut receipt = Receipt::new(&format!("db, up to step {step}"), &Identity::new(), &plan);
        receipt.add(&Ledger::of(0));
        (snapshot, receipt)
    }

    #[test]
    fn a_snapshot_and_its_receipt_are_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (snapshot, receipt) = run(7);
        snapshot.save_with_receipt(at("s"), &receipt, at("r")).unwrap();
        assert_eq!(fs::read_to_string(at("s")).unwrap(), snapshot.to_string());
        assert_eq!(fs::read_to_string(at("r")).unwrap(), receipt.to_string());
        assert_eq!(Snapshot::recover(at("s")).unwrap(), snapshot);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        std::os::unix::fs::symlink("s", at("link")).unwrap();
        let error = snapshot.save_with_receipt(at("s"), &receipt, at("link")).unwrap_err();
        assert_eq!(error, SnapshotError::SamePlace { path: at("s") });
    }

    /// The moments at which a process that saves both may be killed: before the first file is renamed, after
    /// that, and after the second is renamed.
    #[test]
    fn whoever_goes_on_has_both_or_neither() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Names that must be escaped in the text.
        let receipt_name = OsString::from_vec(b"r %\n\xff".to_vec());
        let receipt_path = folder.path().join(&receipt_name);
        let (old, old_receipt) = run(7);
        let (new, new_receipt) = run(8);
        old.save_with_receipt(at("s"), &old_receipt, &receipt_path).unwrap();

        let place = from_folder_of(&at("s"), &receipt_path).unwrap();
        assert_eq!(place, Path::new(&receipt_name), "from the snapshot's folder");
        let carried = Carried { place, text: new_receipt.to_string() };
        new.write(&at("s"), &carried.to_text(), BOUNDS).unwrap();
        assert_eq!(Snapshot::load(at("s")).unwrap(), new);
        assert_eq!(
            fs::read_to_string(&receipt_path).unwrap(),
            old_receipt.to_string(),
            "it is left where it is"
        );
        // The folder may have been moved in the meantime.
        let moved = folder.path().with_extension("moved");
        fs::rename(folder.path(), &moved).unwrap();
        fs::create_dir(folder.path()).unwrap();
        for _again in 0..2 {
            assert_eq!(Snapshot::recover(moved.join("s")).unwrap(), new);
            assert_eq!(fs::read_to_string(moved.join("s")).unwrap(), new.to_string());
            let found = fs::read_to_string(moved.join(&receipt_name)).unwrap();
            assert_eq!(found, new_receipt.to_string());
        }
        assert_eq!(fs::read_dir(&moved).unwrap().count(), 2);
        // The snapshot's path may also be a link to it.
        new.write(&moved.join("s"), &carried.to_text(), BOUNDS).unwrap();
        fs::remove_file(moved.join(&receipt_name)).unwrap();
        std::os::unix::fs::symlink(moved.join("s"), at("link")).unwrap();
        assert_eq!(Snapshot::recover(at("link")).unwrap(), new);
        assert!(moved.join(&receipt_name).exists());
        fs::remove_dir_all(&moved).unwrap();
    }

    /// Everything that is written can be read back: at each moment of a save, and with a receipt of the
    /// shortest lines.
    #[test]
    fn what_would_not_be_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, receipt_path) = (folder.path().join("s"), folder.path().join("r"));
        let (snapshot, _) = run(7);
        let plan = Job::new([1000], BatchSize::PerReplica(1), World::new(1, 500).unwrap()).plan().unwrap();
        let mut receipt = Receipt::new("", &Identity::new(), &plan);
        (0..500).for_each(|replica| {
            let mut ledger = Ledger::of(replica);
            ledger.fold(Some(StepEnd { epoch: 0, step: 0, is_last: false }), &[], &[], &[]);
            receipt.add(&ledger);
        });
        let [text, receipt_text] = [snapshot.to_string(), receipt.to_string()].map(|text| text.len() as u64);
        let fits = Bounds { snapshot: text, receipt: receipt_text };
        snapshot.carry(&path, &receipt, &receipt_path, fits).unwrap();
        let (read, carried) = load(&path, fits).unwrap();
        assert_eq!((&read, carried.unwrap().text), (&snapshot, receipt.to_string()));
        let written = fs::read(&path).unwrap();

        let error = snapshot.write(&path, "", Bounds { snapshot: text - 1, ..fits }).unwrap_err();
        let (found, allowed) = (text, text - 1);
        assert_eq!(error, SnapshotError::TooLarge { path: path.clone(), found, allowed });
        let smaller = Bounds { receipt: receipt_text - 1, ..fits };
        let error = snapshot.carry(&path, &receipt, &receipt_path, smaller).unwrap_err();
        assert!(matches!(error, SnapshotError::Receipt(ReceiptError::TooLarge { .. })), "{error}");
        assert_eq!(fs::read(&path).unwrap(), written, "what was there before is as it was");
    }

    /// With its receipt a file may be as large as both.
    #[test]
    fn a_snapshot_is_no_larger_for_the_receipt_that_it_carries() {
        let folder = tempfile::tempdir().unwrap();
        let (path, receipt_path) = (folder.path().join("s"), folder.path().join("r"));
        let (snapshot, receipt) = run(7);
        let found = snapshot.to_string().len() as u64;
        let bounds = Bounds { snapshot: found, receipt: 1 << 20 };
        snapshot.carry(&path, &receipt, &receipt_path, bounds).unwrap();
        assert_eq!(load(&path, bounds).unwrap().0, snapshot);
        let error = load(&path, Bounds { snapshot: found - 1, ..bounds }).err().unwrap();
        let error = shown::with_sources(&error);
        let said = format!("its snapshot has {found} bytes, but at most {} are read", found - 1);
        assert!(error.contains(&said), "{error}");
    }

    #[test]
    fn what_is_no_text_is_found_out_where_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (snapshot, _) = run(7);
        let mut bytes = snapshot.to_string().into_bytes();
        let end = bytes.windows(9).position(|line| line == b"source db").unwrap() + 9;
        bytes[end - 1] = 0xff;
        fs::write(&path, bytes).unwrap();
        let error = Snapshot::load(&path).unwrap_err().to_string();
        let said = "line 2: found \"source d\u{fffd}\", expected text in UTF-8";
        assert!(error.ends_with(said), "{error}");
        fs::write(&path, b"\xff\xd8").unwrap();
        let error = Snapshot::load(&path).unwrap_err().to_string();
        assert!(error.contains("it is not a snapshot: it begins with"), "{error}");
    }

    #[test]
    fn a_receipt_that_cannot_be_written_stays_with_its_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (snapshot, receipt) = run(7);
        let error = snapshot.save_with_receipt(at("s"), &receipt, at("none/r")).unwrap_err();
        assert!(error.to_string().ends_with("none/r: cannot write the receipt"), "{error}");
        let cause: &io::Error = error.source().unwrap().downcast_ref().unwrap();
        assert_eq!(cause.kind(), io::ErrorKind::NotFound);
        assert_eq!(Snapshot::recover(at("s")).unwrap_err(), error);
        fs::create_dir(at("none")).unwrap();
        assert_eq!(Snapshot::recover(at("s")).unwrap(), snapshot);
        assert_eq!(fs::read_to_string(at("none/r")).unwrap(), receipt.to_string());
    }

    #[test]
    fn a_file_that_was_cut_or_edited_anywhere_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (snapshot, receipt) = run(7);
        let carried = Carried { place: "r".into(), text: receipt.to_string() };
        snapshot.write(&path, &carried.to_text(), BOUNDS).unwrap();
        let whole = fs::read(&path).unwrap();
        let alone = snapshot.to_string().len();
        let every = if cfg!(miri) { 97 } else { 1 };
        for position in (0..whole.len()).step_by(every).filter(|&end| end != alone) {
            fs::write(&path, &whole[..position]).unwrap();
            assert!(matches!(Snapshot::load(&path), Err(SnapshotError::Text { .. })), "cut at {position}");
            let mut edited = whole.clone();
            edited[position] ^= 1;
            fs::write(&path, &edited).unwrap();
            assert!(matches!(Snapshot::load(&path), Err(SnapshotError::Text { .. })), "edited at {position}");
        }
        assert_eq!(decoded("%4"), None);
        assert_eq!(decoded("%zz"), None);
        assert_eq!(decoded(""), None);
    }

    #[test]
    fn a_snapshot_brings_its_receipt_in_the_place_of_nothing_but_a_receipt() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (snapshot, receipt) = run(7);
        let carrying = |place: &str, text: String| {
            let carried = Carried { place: place.into(), text };
            snapshot.write(&at("snapshot"), &carried.to_text(), BOUNDS).unwrap();
            Snapshot::recover(at("snapshot"))
        };
        fs::write(at("letters"), "dear all").unwrap();
        carrying("letters", receipt.to_string()).unwrap_err();
        assert_eq!(fs::read(at("letters")).unwrap(), b"dear all");
        carrying("other", "dear all\n".to_owned()).unwrap_err();
        assert!(!at("other").exists());
        carrying("other", receipt.to_string()).unwrap();
        assert_eq!(Receipt::load(at("other")).unwrap(), receipt);
    }

    /// A snapshot that somebody else made has whatever path they like.
    #[test]
    fn a_receipt_is_not_made_outside_the_snapshots_folder() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("snapshot");
        let (snapshot, receipt) = run(7);
        std::os::unix::fs::symlink(other.path(), folder.path().join("link")).unwrap();
        let name = other.path().file_name().unwrap();
        let receipt_path = other.path().join("r");
        for place in [receipt_path.clone(), Path::new("..").join(name).join("r"), "link/r".into()] {
            let carried = Carried { place, text: receipt.to_string() };
            snapshot.write(&path, &carried.to_text(), BOUNDS).unwrap();
            let error = shown::with_sources(&Snapshot::recover(&path).unwrap_err());
            assert!(error.contains("is not in its folder, and where no file is"), "{error}");
            assert!(!receipt_path.exists());
            // The error says what to do.
            fs::write(&receipt_path, "").unwrap();
            assert_eq!(Snapshot::recover(&path).unwrap(), snapshot);
            assert_eq!(Receipt::load(&receipt_path).unwrap(), receipt);
            fs::remove_file(&receipt_path).unwrap();
        }
    }
}
