//! Cuts files into blocks of whole lines, which several threads take in order.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use percolator_files::{input_file, shown};

use super::PrepareError;

/// How much of a file is read at once. A longer line makes a longer block.
const BLOCK_BYTES: usize = 1 << 20;

/// The most bytes of a line. It bounds memory: cutting a line into tokens takes up to 32 bytes for each byte.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Whole lines of a file.
#[derive(Debug)]
pub(super) struct Block {
    /// The file's number in its task.
    pub(super) file: usize,
    /// Where the block starts in the file, in bytes and in lines.
    pub(super) offset: u64,
    pub(super) first_line: u64,
    pub(super) bytes: Vec<u8>,
}

/// The file that is being read.
#[derive(Debug)]
struct Open {
    /// The file's number in its task.
    number: usize,
    file: File,
    /// Its length in bytes when it was opened.
    expected: u64,
    /// The bytes that were read.
    found: u64,
}

/// Reads a task's files, one after the other.
#[derive(Debug)]
pub(super) struct Blocks<'f> {
    files: &'f [PathBuf],
    open: Option<Open>,
    next_file: usize,
    offset: u64,
    line: u64,
    /// The beginning of a line whose end has not been read yet.
    rest: Vec<u8>,
}

impl<'f> Blocks<'f> {
    pub(super) fn new(files: &'f [PathBuf]) -> Self {
        Blocks { files, open: None, next_file: 0, offset: 0, line: 1, rest: Vec::new() }
    }

    /// The next block; `None` after the last one, and after an error.
    pub(super) fn next(&mut self) -> Result<Option<Block>, PrepareError> {
        loop {
            let Some(open) = &mut self.open else {
                let number = self.next_file;
                let Some(path) = self.files.get(number) else { return Ok(None) };
                match input_file::open(path) {
                    Ok((file, expected)) => self.open = Some(Open { number, file, expected, found: 0 }),
                    Err(source) => return Err(self.end(number, source)),
                }
                self.next_file += 1;
                (self.offset, self.line) = (0, 1);
                continue;
            };
            let number = open.number;
            let mut bytes = std::mem::take(&mut self.rest);
            let before = bytes.len();
            let is_last = match fill(&mut open.file, &mut bytes) {
                Ok(is_last) => is_last,
                Err(source) => return Err(self.end(number, source)),
            };
            open.found += (bytes.len() - before) as u64;
            let (expected, found) = (open.expected, open.found);
            // A file may grow, and some file systems state no lengths. But less than stated means lost lines.
            if is_last && found < expected {
                self.stop();
                let path = shown::path(&self.files[number]).to_string();
                return Err(PrepareError::Refused(format!(
                    "{path}: it had {expected} bytes when it was opened, and ended after {found}: something \
                     shortened it while it was read: prepare again when nothing writes to it"
                )));
            }
            if let Some(line) =
                bytes.split(|byte| *byte == b'\n').position(|line| line.len() > LINE_BYTES_MAX)
            {
                let path = shown::path(&self.files[number]).to_string();
                self.stop();
                let line = self.line + line as u64;
                return Err(PrepareError::Refused(format!(
                    "{path}, line {line}: the line has more than {LINE_BYTES_MAX} bytes: break the text into \
                     lines of a sentence"
                )));
            }
            if is_last {
                self.open = None;
            } else {
                let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                self.rest = bytes.split_off(end);
            }
            if !bytes.is_empty() {
                return Ok(Some(self.cut(number, bytes)));
            }
        }
    }

    fn cut(&mut self, file: usize, bytes: Vec<u8>) -> Block {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let block = Block { file, offset: self.offset, first_line: self.line, bytes };
        self.offset += block.bytes.len() as u64;
        self.line += lines as u64;
        block
    }

    fn stop(&mut self) {
        self.next_file = self.files.len();
        self.open = None;
    }

    fn end(&mut self, file: usize, source: io::Error) -> PrepareError {
        self.stop();
        PrepareError::Read { path: shown::path(&self.files[file]).to_string(), source }
    }
}

/// Reads on until the block has a whole line; returns whether the file has ended.
fn fill(file: &mut File, bytes: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let from = bytes.len();
        let read = file.take(BLOCK_BYTES as u64).read_to_end(bytes)?;
        if read < BLOCK_BYTES {
            return Ok(true);
        }
        if bytes[from..].contains(&b'\n') || bytes.len() > LINE_BYTES_MAX {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it reads many megabytes")]
    fn blocks_are_whole_lines_with_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(3 * BLOCK_BYTES);
        let line = "0123456789".repeat(10) + "\n";
        let texts = [format!("a\n{long}\nb"), String::new(), line.repeat(30_000), "no end".to_owned()];
        let files: Vec<_> = (0..4).map(|file| folder.path().join(format!("{file}"))).collect();
        files.iter().zip(&texts).for_each(|(path, text)| std::fs::write(path, text).unwrap());
        let mut blocks = Blocks::new(&files);
        let mut read = vec![String::new(); 4];
        let mut number = 0;
        while let Some(block) = blocks.next().unwrap() {
            let text = &mut read[block.file];
            assert_eq!(block.offset, text.len() as u64);
            assert_eq!(block.first_line, text.matches('\n').count() as u64 + 1);
            *text += std::str::from_utf8(&block.bytes).unwrap();
            assert!(text.ends_with('\n') || *text == texts[block.file]);
            number += 1;
        }
        assert!(number > 5 && read == texts);
        let missing = [files[0].clone(), folder.path().join("missing")];
        let mut blocks = Blocks::new(&missing);
        let error = std::iter::from_fn(|| blocks.next().transpose()).find_map(Result::err).unwrap();
        assert!(error.to_string().contains("missing"), "{error}");
        assert!(blocks.next().unwrap().is_none());
    }

    /// What a file is that is cut to `left` bytes, or grows to them, after its first block was read.
    fn read_while_changed(left: u64) -> Result<usize, PrepareError> {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("changed"), folder.path().join("next")];
        files.iter().for_each(|path| std::fs::write(path, "a line\n".repeat(500_000)).unwrap());
        let mut blocks = Blocks::new(&files);
        let mut read = blocks.next()?.unwrap().bytes.len();
        File::options().write(true).open(&files[0]).unwrap().set_len(left).unwrap();
        while let Some(block) = blocks.next().inspect_err(|_| assert!(blocks.next().unwrap().is_none()))? {
            read += block.bytes.len();
        }
        Ok(read)
    }

    #[test]
    #[cfg_attr(miri, ignore = "it reads many megabytes")]
    fn a_file_that_is_cut_while_it_is_read_is_an_error() {
        let whole = 3_500_000;
        let first = BLOCK_BYTES as u64;
        for (left, due) in [(0, first), (first, first), (2 * first, 2 * first), (whole - 1, whole - 1)] {
            let error = read_while_changed(left).unwrap_err();
            let said = format!("/changed: it had {whole} bytes when it was opened, and ended after {due}");
            assert!(error.to_string().contains(&said), "{error}");
        }
        for left in [whole, whole + 10] {
            assert_eq!(read_while_changed(left).unwrap() as u64, whole + left);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it reads many megabytes")]
    fn a_line_may_be_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("a"), folder.path().join("b")];
        for (path, over) in files.iter().zip([0, 1]) {
            let line = "x".repeat(LINE_BYTES_MAX + over);
            std::fs::write(path, format!("short\n{line}\nshort\n")).unwrap();
        }
        let mut blocks = Blocks::new(&files);
        let mut read = 0;
        let error = loop {
            match blocks.next() {
                Ok(block) => read += block.unwrap().bytes.len(),
                Err(error) => break error.to_string(),
            }
        };
        assert!(read >= LINE_BYTES_MAX + 13, "the line of the first file is not too long");
        assert!(error.contains("b, line 2: the line has more than 4194304 bytes"), "{error}");
        assert!(blocks.next().unwrap().is_none());
    }
}
