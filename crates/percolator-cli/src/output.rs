//! The files that commands write, and what they may replace.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use percolator::proto::BlobProto;
use percolator_files::what::ImageFormat;
use percolator_files::whole_file::{self, Existing};
use percolator_files::{input_file, shown};
use prost::Message as _;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Snapshot,
    Receipt,
    Digest,
    Trace,
    Report,
    Picture,
    Mean,
}

impl FileKind {
    /// What it is called, and what a file of this kind begins with: nothing, if that is not how it is known.
    fn name_and_front(self) -> (&'static str, &'static [u8]) {
        match self {
            FileKind::Snapshot => ("snapshot", b"percolator snapshot "),
            FileKind::Receipt => ("receipt", b"percolator receipt "),
            FileKind::Digest => ("digest", b"percolator digest "),
            FileKind::Trace => ("trace", b"{\"displayTimeUnit\""),
            FileKind::Report => ("report", b"<!doctype html>"),
            FileKind::Picture => ("PNG file", ImageFormat::Png.signature()),
            FileKind::Mean => ("mean", b""),
        }
    }

    fn name(self) -> &'static str {
        self.name_and_front().0
    }

    /// Whether a file is of this kind, or empty, as `mktemp` makes it.
    fn is_of(self, path: &Path) -> io::Result<bool> {
        /// No mean is as long as this; a database may be.
        const MEAN_BYTES_MAX: u64 = 1 << 30;

        let (file, bytes) = input_file::open(path)?;
        if self == FileKind::Mean && bytes <= MEAN_BYTES_MAX {
            let mean = BlobProto::decode(&*input_file::read(path, MEAN_BYTES_MAX)?);
            // Other messages may pass for one without values.
            let has_values = |mean: BlobProto| !mean.data.is_empty() || !mean.double_data.is_empty();
            return Ok(bytes == 0 || mean.is_ok_and(has_values));
        }
        let (mut found, (_, front)) = (Vec::new(), self.name_and_front());
        file.take(front.len() as u64).read_to_end(&mut found)?;
        Ok(bytes == 0 || !found.is_empty() && found == front)
    }

    /// How a run goes on with a file of this kind that is not at its own path.
    fn way_on(self) -> &'static str {
        match self {
            FileKind::Snapshot => ": resume from it, or rename it",
            FileKind::Receipt => ": rename it, or resume with a --receipt of its own",
            _ => "",
        }
    }
}

/// Checks that a file can be written to a path, before there is anything to write. It replaces a file of its
/// own kind, and nothing else: a mistyped path must not cost a data set.
pub(super) fn check(path: &Path, kind: FileKind) -> anyhow::Result<()> {
    whole_file::check(path)
        .with_context(|| format!("{}: cannot write the {}", shown::path(path), kind.name()))?;
    check_kind(path, kind).map_err(|refused| anyhow!("{refused:#}: give another path"))
}

/// Checks that what is at a path, if anything is, may be replaced by a file of this kind.
fn check_kind(path: &Path, kind: FileKind) -> anyhow::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let is_own =
        kind.is_of(path).with_context(|| format!("{}: cannot read what is there", shown::path(path)))?;
    let name = kind.name();
    ensure!(is_own, "{}: it already exists and is no {name}, so it is not replaced", shown::path(path));
    Ok(())
}

/// A file that will be written once the work is done, which may take days, and what it may replace then.
#[derive(Debug)]
pub(super) struct Output<'a> {
    path: &'a Path,
    kind: FileKind,
    existing: Existing,
}

impl<'a> Output<'a> {
    /// [Checks](check) the path, before there is anything to write. The file replaces another only if the
    /// user says so.
    pub(super) fn check(path: &'a Path, kind: FileKind, existing: Existing) -> anyhow::Result<Self> {
        existing.check(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => anyhow::Error::new(error).context(format!("{}: cannot look at it", shown::path(path))),
        })?;
        check(path, kind)?;
        Ok(Output { path, kind, existing })
    }

    /// The same for a file that needs no word of the user to replace one of its kind, if there is one now.
    pub(super) fn of_run(path: &'a Path, kind: FileKind) -> anyhow::Result<Self> {
        check(path, kind)?;
        let is_there = input_file::is_there(path)
            .with_context(|| format!("{}: cannot look at it", shown::path(path)))?;
        Ok(Output { path, kind, existing: Existing::replaced_if(is_there) })
    }

    /// Where the file goes now: to its path, or, if something has come there that is not to be replaced, to a
    /// free one beside it. A path that cannot be examined cannot be written either, and that error says why.
    pub(super) fn place(&self) -> Place {
        let Output { path, kind, existing } = *self;
        let refused = match existing {
            Existing::Refuse => input_file::is_there(path).is_ok_and(|is_there| is_there).then(|| {
                let path = shown::path(path);
                format!("{path}: it already exists, and did not at the beginning, so it is not replaced")
            }),
            Existing::Replace => check_kind(path, kind).err().map(|refused| format!("{refused:#}")),
        };
        let (path, existing) = match refused {
            Some(_) => (free_beside(path), Existing::Refuse),
            None => (path.to_owned(), existing),
        };
        Place { path, existing, kind, refused }
    }

    /// Writes the file, which is whole or absent, to its [place](Self::place).
    pub(super) fn write(&self, bytes: &[u8]) -> anyhow::Result<()> {
        // Something may come to the place, and then to the next one.
        let mut tries = 0..10;
        loop {
            let place = self.place();
            let written = whole_file::write_over(&place.path, &[bytes], place.existing);
            match &written {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries.next().is_some() => {}
                _ => {
                    let said = "cannot write the file, and no part of it is left";
                    let written = written.with_context(|| format!("{}: {said}", shown::path(&place.path)));
                    return ended(written, [place]);
                }
            }
        }
    }
}

/// Where an output goes in the end.
#[derive(Debug)]
pub(super) struct Place {
    /// The output's own path, or one beside it.
    pub(super) path: PathBuf,
    /// What becomes of what comes there meanwhile.
    pub(super) existing: Existing,
    kind: FileKind,
    /// Why it is not the output's own.
    refused: Option<String>,
}

impl Place {
    /// Why the output is not at its own path, and where it is, if it could be written.
    fn refusal(self) -> Option<String> {
        let Place { path, kind, refused, .. } = self;
        let refused = refused?;
        Some(match path.exists() {
            true => format!("{refused}; the {} is in {}{}", kind.name(), shown::path(&path), kind.way_on()),
            false => refused,
        })
    }
}

/// What is to be said once the outputs of these places are written, or could not be.
pub(super) fn ended<T>(
    written: anyhow::Result<T>,
    places: impl IntoIterator<Item = Place>,
) -> anyhow::Result<T> {
    let mut said: Vec<String> = places.into_iter().filter_map(Place::refusal).collect();
    if said.is_empty() {
        return written;
    }
    said.extend(written.err().map(|error| format!("{error:#}")));
    Err(anyhow!("{}", said.join("; ")))
}

/// Both outcomes: neither error hides the other.
pub(super) fn both(one: anyhow::Result<()>, other: anyhow::Result<()>) -> anyhow::Result<()> {
    match (one, other) {
        (Err(error), Err(also)) => Err(anyhow!("{error:#}; {also:#}")),
        (one, other) => one.and(other),
    }
}

/// The first of `PATH.percolator-kept`, `PATH.2.percolator-kept` and so on where nothing is. A name is cut if
/// it would be longer than file systems allow. If the path is a link to a file, it is beside that, where the
/// output was begun.
fn free_beside(path: &Path) -> PathBuf {
    const NAME_BYTES_MAX: usize = 255;

    let is_link = path.is_symlink() && path.is_file();
    let target = is_link.then(|| path.canonicalize().ok()).flatten();
    let path = target.as_deref().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut ending = ".percolator-kept".to_owned();
    for number in 2_u64.. {
        let front = &name[..name.len().min(NAME_BYTES_MAX - ending.len())];
        let kept = path.with_file_name(OsStr::from_bytes(&[front, ending.as_bytes()].concat()));
        // One that cannot be examined cannot be written either.
        if !input_file::is_there(&kept).is_ok_and(|is_there| is_there) {
            return kept;
        }
        ending = format!(".{number}.percolator-kept");
    }
    unreachable!("no folder has so many files")
}

/// Something is at an output's path, perhaps only since the run began.
pub(super) fn exists(path: &Path) -> anyhow::Error {
    anyhow!("{}: it already exists; give another path, or --force to replace it", shown::path(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_its_own_kind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mean = BlobProto { channels: Some(1), data: vec![1.0], ..BlobProto::default() }.encode_to_vec();
        let of_kinds: [(FileKind, &[u8]); 7] = [
            (FileKind::Snapshot, b"percolator snapshot 1\n"),
            (FileKind::Receipt, b"percolator receipt 1\n"),
            (FileKind::Digest, b"percolator digest 1\n"),
            (FileKind::Trace, b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"),
            (FileKind::Report, b"<!doctype html>\n"),
            (FileKind::Picture, b"\x89PNG\r\n\x1a\n"),
            (FileKind::Mean, &mean),
        ];
        let take_kept = |content: &[u8]| {
            let kept = folder.path().join("file.percolator-kept");
            assert_eq!(fs::read(&kept).unwrap(), content, "what was made is not lost");
            fs::remove_file(kept).unwrap();
        };
        // The last is a net's parameters, with one layer of nothing.
        let others: [&[u8]; 4] = [b"mine", b"\xff\xd8\xff\xe0", &[0; 4096], &[0xa2, 0x06, 0]];
        for (kind, _) in of_kinds {
            let _ = fs::remove_file(&path);
            let output = Output::check(&path, kind, Existing::Refuse).unwrap();
            fs::write(&path, "meanwhile").unwrap();
            let error = output.write(b"late").unwrap_err().to_string();
            assert!(error.contains("did not at the beginning, so it is not replaced; the "), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"meanwhile");
            take_kept(b"late");
            for (content, is_allowed) in [(&b""[..], true)]
                .into_iter()
                .chain(others.map(|other| (other, false)))
                .chain(of_kinds.map(|(other, content)| (content, other == kind)))
            {
                fs::write(&path, content).unwrap();
                let output = Output::check(&path, kind, Existing::Replace);
                assert_eq!(output.is_ok(), is_allowed, "{kind:?} {content:?}");
                assert_eq!(fs::read(&path).unwrap(), content);
                let error = Output::check(&path, kind, Existing::Refuse).unwrap_err().to_string();
                assert!(error.ends_with("--force to replace it"), "{error}");
                if let Ok(output) = output {
                    output.write(content).unwrap();
                    // What comes later is looked at again.
                    fs::write(&path, "meanwhile").unwrap();
                    let error = output.write(b"late").unwrap_err().to_string();
                    assert!(
                        error.contains(&format!("is no {}, so it is not replaced", kind.name())),
                        "{error}"
                    );
                    assert_eq!(fs::read(&path).unwrap(), b"meanwhile");
                    take_kept(b"late");
                }
            }
        }
        fs::write(&path, "mine").unwrap();
        let error = check(&path, FileKind::Receipt).unwrap_err().to_string();
        assert!(
            error.ends_with("it already exists and is no receipt, so it is not replaced: give another path")
        );
    }

    #[test]
    fn what_a_run_has_made_is_not_lost_if_something_else_is_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let [path, kept] = ["file", "file.percolator-kept"].map(at);
        let fresh = Output::of_run(&path, FileKind::Receipt).unwrap();
        assert_eq!(fresh.place().path, path);
        fs::write(&path, "percolator receipt 1\n").unwrap();
        // Where nothing was, a receipt is another run's.
        assert_eq!(fresh.place().path, kept);
        let output = Output::of_run(&path, FileKind::Receipt).unwrap();
        assert_eq!(output.place().path, path);
        fs::write(&path, "somebody's").unwrap();
        // What is kept is never replaced, whatever it is.
        for (number, name) in ["", ".2", ".3"].into_iter().enumerate() {
            let place = output.place();
            assert_eq!(place.path, at(&format!("file{name}.percolator-kept")));
            fs::write(&place.path, ["percolator receipt 1\n", "mine", ""][number]).unwrap();
            let said = ended(Ok(()), [place]).unwrap_err().to_string();
            for due in ["is no receipt, so it is not replaced; the receipt is in ", name, ": rename it, or"] {
                assert!(said.contains(due), "{said}");
            }
        }
        for name in ["file.percolator-kept", "file.2.percolator-kept", "file.3.percolator-kept", "file"] {
            fs::remove_file(at(name)).unwrap();
        }
        fs::create_dir(&path).unwrap();
        assert_eq!(output.place().path, kept);
        // A link's file is kept beside what it leads to.
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("deep/target"), "somebody's").unwrap();
        std::os::unix::fs::symlink("deep/target", at("link")).unwrap();
        let output = Output { path: &at("link"), kind: FileKind::Trace, existing: Existing::Refuse };
        let deep = at("deep").canonicalize().unwrap();
        assert_eq!(output.place().path, deep.join("target.percolator-kept"));
        // A long name is cut.
        let path = at(&"n".repeat(255));
        let output = Output::check(&path, FileKind::Report, Existing::Refuse).unwrap();
        fs::write(&path, "somebody's").unwrap();
        let error = output.write(b"<!doctype html>").unwrap_err().to_string();
        assert!(error.contains("the report is in "), "{error}");
        assert_eq!(
            fs::read(output.place().path.with_file_name(kept_name("n", ""))).unwrap(),
            b"<!doctype html>"
        );
        assert_eq!(output.place().path, at(&kept_name("n", ".2")));
    }

    fn kept_name(letter: &str, number: &str) -> String {
        let ending = format!("{number}.percolator-kept");
        letter.repeat(255 - ending.len()) + &ending
    }

    #[test]
    fn a_place_that_cannot_be_looked_at_is_the_path_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone/file");
        fs::create_dir(folder.path().join("gone")).unwrap();
        for is_there in [false, true] {
            if is_there {
                fs::write(&path, "").unwrap();
            }
            let output = Output::of_run(&path, FileKind::Receipt).unwrap();
            fs::rename(folder.path().join("gone"), folder.path().join("away")).unwrap();
            let place = output.place();
            assert_eq!(place.path, path);
            let said = ended(Err::<(), _>(anyhow!("no room")), [place]).unwrap_err().to_string();
            assert_eq!(said, "no room");
            fs::rename(folder.path().join("away"), folder.path().join("gone")).unwrap();
        }
    }

    #[test]
    fn every_error_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["s", "r"].map(|name| folder.path().join(name));
        let outputs = [(&paths[0], FileKind::Snapshot), (&paths[1], FileKind::Receipt)]
            .map(|(path, kind)| Output::of_run(path, kind).unwrap());
        paths.iter().for_each(|path| fs::write(path, "somebody's").unwrap());
        let places = outputs.map(|output| output.place());
        // Only the first could be written.
        fs::write(&places[0].path, "").unwrap();
        let said = ended(Err::<(), _>(anyhow!("no room").context("r")), places).unwrap_err().to_string();
        let said: Vec<_> = said.split("; ").collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[1].ends_with("s.percolator-kept: resume from it, or rename it"), "{said:?}");
        assert!(said[2].contains("/r: it already exists, and did not at the beginning"), "{said:?}");
        assert_eq!(said[3], "r: no room");
    }
}
