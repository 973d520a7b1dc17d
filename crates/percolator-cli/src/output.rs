//! The files that commands write, and what they may replace.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use percolator::proto::BlobProto;
use percolator::shown;
use percolator::whole_file::{self, Existing};
use prost::Message as _;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Snapshot,
    Receipt,
    Digest,
    Trace,
    Plot,
    Report,
    Picture,
    Mean,
}

impl FileKind {
    fn name(self) -> &'static str {
        match self {
            FileKind::Snapshot => "snapshot",
            FileKind::Receipt => "receipt",
            FileKind::Digest => "digest",
            FileKind::Trace => "trace",
            FileKind::Plot => "plot",
            FileKind::Report => "report",
            FileKind::Picture => "PNG file",
            FileKind::Mean => "mean",
        }
    }

    /// What a file of this kind begins with; nothing, if that is not how it is known.
    fn front(self) -> &'static [u8] {
        match self {
            FileKind::Snapshot => b"percolator snapshot ",
            FileKind::Receipt => b"percolator receipt ",
            FileKind::Digest => b"percolator digest ",
            FileKind::Trace => b"{\"displayTimeUnit\"",
            FileKind::Plot => b"<svg ",
            FileKind::Report => b"<!doctype html>",
            FileKind::Picture => b"\x89PNG\r\n",
            FileKind::Mean => b"",
        }
    }

    /// Whether a file is of this kind, or empty, as `mktemp` makes it.
    fn is_of(self, path: &Path) -> io::Result<bool> {
        /// No mean is as long as this; a database may be.
        const MEAN_BYTES_MAX: u64 = 1 << 30;

        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        if self == FileKind::Mean && bytes <= MEAN_BYTES_MAX {
            return Ok(BlobProto::decode(&*fs::read(path)?).is_ok());
        }
        let mut front = Vec::new();
        file.take(self.front().len() as u64).read_to_end(&mut front)?;
        Ok(bytes == 0 || !front.is_empty() && front == self.front())
    }
}

/// Checks that a file can be written to a path, before there is anything to write. It replaces a file of its
/// own kind, and nothing else: a mistyped path must not cost a data set.
pub(super) fn check(path: &Path, kind: FileKind) -> anyhow::Result<()> {
    let name = kind.name();
    whole_file::check(path).with_context(|| format!("{}: cannot write the {name}", shown::path(path)))?;
    if !path.exists() {
        return Ok(());
    }
    let is_own =
        kind.is_of(path).with_context(|| format!("{}: cannot read what is there", shown::path(path)))?;
    ensure!(
        is_own,
        "{}: it already exists and is no {name}, so it is not replaced: give another path",
        shown::path(path)
    );
    Ok(())
}

/// Where a file goes at the end of a run that may have taken days: to its path, or, if something that is not
/// of its kind has come there since it was [checked](check), beside it. Then the error of the path says so.
pub(super) fn place_at_end(path: &Path, kind: FileKind) -> anyhow::Result<(PathBuf, Option<anyhow::Error>)> {
    let Err(refused) = check(path, kind) else { return Ok((path.to_owned(), None)) };
    let mut kept = path.as_os_str().to_owned();
    kept.push(".percolator-kept");
    let kept = PathBuf::from(kept);
    match check(&kept, kind) {
        Ok(()) => {
            let refused = anyhow!("{refused:#}; the {} is in {}", kind.name(), shown::path(&kept));
            Ok((kept, Some(refused)))
        }
        Err(also) => Err(anyhow!("{refused:#}; {also:#}")),
    }
}

/// A file that will be written, and that replaces another only if the user says so.
#[derive(Debug)]
pub(super) struct Output<'a> {
    path: &'a Path,
    kind: FileKind,
    existing: Existing,
}

impl<'a> Output<'a> {
    /// [Checks](check) the path, before there is anything to write.
    pub(super) fn check(path: &'a Path, kind: FileKind, existing: Existing) -> anyhow::Result<Self> {
        existing.check(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => anyhow::Error::new(error).context(format!("{}: cannot look at it", shown::path(path))),
        })?;
        check(path, kind)?;
        Ok(Output { path, kind, existing })
    }

    /// Writes the file, which is whole or absent. What has come to its path since it was checked is replaced
    /// if that is allowed and it is of the same kind.
    pub(super) fn write(&self, bytes: &[u8]) -> anyhow::Result<()> {
        if self.existing == Existing::Replace {
            check(self.path, self.kind)?;
        }
        whole_file::write_over(self.path, &[bytes], self.existing).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(self.path),
            _ => anyhow::Error::new(error).context(format!(
                "{}: cannot write the file, and no part of it is left",
                shown::path(self.path)
            )),
        })
    }
}

/// Something is at an output's path, perhaps only since the run began.
pub(super) fn exists(path: &Path) -> anyhow::Error {
    anyhow!("{}: it already exists; give another path, or --force to replace it", shown::path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_kind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mean = BlobProto { channels: Some(1), data: vec![1.0], ..BlobProto::default() }.encode_to_vec();
        let of_kinds: [(FileKind, &[u8]); 8] = [
            (FileKind::Snapshot, b"percolator snapshot 1\n"),
            (FileKind::Receipt, b"percolator receipt 1\n"),
            (FileKind::Digest, b"percolator digest 1\n"),
            (FileKind::Trace, b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"),
            (FileKind::Plot, b"<svg xmlns"),
            (FileKind::Report, b"<!doctype html>\n"),
            (FileKind::Picture, b"\x89PNG\r\n\x1a\n"),
            (FileKind::Mean, &mean),
        ];
        let others: [&[u8]; 3] = [b"mine", b"\xff\xd8\xff\xe0", &[0; 4096]];
        for (kind, _) in of_kinds {
            let _ = fs::remove_file(&path);
            let output = Output::check(&path, kind, Existing::Refuse).unwrap();
            fs::write(&path, "meanwhile").unwrap();
            let error = output.write(b"late").unwrap_err().to_string();
            assert!(error.ends_with("--force to replace it"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"meanwhile");
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
        let [path, kept] = ["file", "file.percolator-kept"].map(|name| folder.path().join(name));
        for content in [None, Some("percolator receipt 1\n")] {
            content.iter().for_each(|content| fs::write(&path, content).unwrap());
            assert_eq!(place_at_end(&path, FileKind::Receipt).unwrap().0, path);
        }
        let (place, refused) = place_at_end(&path, FileKind::Snapshot).unwrap();
        assert_eq!(place, kept);
        let refused = refused.unwrap().to_string();
        for said in ["is no snapshot, so it is not replaced", "the snapshot is in ", "file.percolator-kept"] {
            assert!(refused.contains(said), "{refused}");
        }
        fs::write(&kept, "mine").unwrap();
        let error = place_at_end(&path, FileKind::Snapshot).unwrap_err().to_string();
        assert!(error.contains("file: it already exists") && error.contains("kept: it already"), "{error}");
    }
}
