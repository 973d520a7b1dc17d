//! What a format says of its files.

use std::ops::Range;

/// What protects some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A checksum covers them: a change in place is an error.
    Checked,
    /// They agree with others, or with nothing: a change is an error, or makes no difference.
    Structure,
    /// What is lost of them is made anew: the whole comes, whatever happens to them.
    Mended,
    /// Nobody uses them: a change makes no difference.
    Unread,
    /// Nothing protects them, for this reason. [`Format::allows`](super::Format::allows) says what may come.
    Bare(&'static str),
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Little,
    Big,
    Varint,
    Decimal,
}

/// Some bytes of a file that belong together.
#[derive(Clone, Debug)]
pub struct Part {
    pub name: &'static str,
    pub range: Range<usize>,
    pub guard: Guard,
    /// Set if it is a number that a reader follows: a length, a count, an offset.
    pub number: Option<Number>,
}

/// A file, and its parts.
#[derive(Clone, Debug)]
pub struct Stated {
    /// Its path in the data set's folder.
    pub name: String,
    pub bytes: Vec<u8>,
    /// In the order in which they are in the file.
    pub parts: Vec<Part>,
    /// What protects the bytes between the parts, and the file as a whole.
    pub guard: Guard,
    /// Whether it stays as it is, because it is another file's turn.
    pub is_kept: bool,
}

impl Stated {
    /// An empty file, to which parts are added.
    pub fn new(name: impl Into<String>) -> Self {
        Stated::of(name, Vec::new(), Guard::Structure)
    }

    /// A file that is there already, whose parts are marked.
    pub fn of(name: impl Into<String>, bytes: Vec<u8>, guard: Guard) -> Self {
        Stated { name: name.into(), bytes, parts: Vec::new(), guard, is_kept: false }
    }

    /// A file that nobody damages.
    pub fn kept(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Stated { is_kept: true, ..Stated::of(name, bytes, Guard::Structure) }
    }

    /// Adds bytes at the end, which are a part.
    pub fn add(&mut self, name: &'static str, guard: Guard, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.mark(name, guard, start..self.bytes.len());
    }

    /// Adds bytes that are a number.
    pub fn add_number(&mut self, name: &'static str, guard: Guard, number: Number, bytes: &[u8]) {
        self.add(name, guard, bytes);
        self.parts.last_mut().unwrap().number = Some(number);
    }

    /// Marks a part. Parts are marked in their order, and none overlaps another.
    pub fn mark(&mut self, name: &'static str, guard: Guard, range: Range<usize>) {
        let before = self.parts.last().map_or(0, |part| part.range.end);
        assert!(before <= range.start && range.end <= self.bytes.len(), "{name} is not behind the last part");
        self.parts.push(Part { name, range, guard, number: None });
    }

    /// Marks a part that is a number.
    pub fn mark_number(&mut self, name: &'static str, guard: Guard, number: Number, range: Range<usize>) {
        self.mark(name, guard, range);
        self.parts.last_mut().unwrap().number = Some(number);
    }

    /// Marks the footer of a table, which is all that is left: where two blocks are, padding and a number.
    pub fn mark_footer(&mut self, footer: usize) {
        let (mut start, end) = (footer, self.bytes.len());
        for _ in 0..4 {
            let mut after = start;
            Number::varint(&self.bytes, &mut after);
            self.mark_number("place of a block", Guard::Structure, Number::Varint, start..after);
            start = after;
        }
        self.mark("padding of the footer", Guard::Unread, start..end - 8);
        self.mark("magic", Guard::Structure, end - 8..end);
    }

    /// The part that has this byte, if one has.
    pub fn part_at(&self, at: usize) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.range.start <= at);
        self.parts[..after].iter().rev().find(|part| part.range.contains(&at))
    }

    /// What protects this byte.
    pub fn guard_at(&self, at: usize) -> Guard {
        self.part_at(at).map_or(self.guard, |part| part.guard)
    }
}

impl Number {
    /// The bytes of other numbers: the extreme ones, and those next to the one that is there.
    pub fn lies(self, bytes: &[u8], file_bytes: usize) -> Vec<Vec<u8>> {
        let was = self.value(bytes);
        let file_bytes = file_bytes as u64;
        let mut values = vec![0, 1, was.wrapping_sub(1), was.wrapping_add(1), was.wrapping_mul(2)];
        values.extend([file_bytes, file_bytes + 1, 0x7fff, 0xffff, i32::MAX as u64, 1 << 31]);
        values.extend([u64::from(u32::MAX), 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX - 16, u64::MAX]);
        let mut lies = Vec::new();
        for value in values {
            let lie = self.bytes(value, bytes.len());
            if lie != bytes && !lies.contains(&lie) {
                lies.push(lie);
            }
        }
        lies
    }

    /// The varint that starts there; then it is where the bytes after it start.
    pub fn varint(bytes: &[u8], at: &mut usize) -> usize {
        let start = *at;
        *at += 1 + bytes[start..].iter().position(|byte| *byte < 0x80).unwrap();
        Number::Varint.value(&bytes[start..*at]) as usize
    }

    fn value(self, bytes: &[u8]) -> u64 {
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self {
            Number::Little => bytes.iter().rev().fold(0, fold),
            Number::Big => bytes.iter().fold(0, fold),
            Number::Varint => bytes.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)),
            Number::Decimal => String::from_utf8_lossy(bytes).trim().parse().unwrap(),
        }
    }

    fn bytes(self, mut value: u64, width: usize) -> Vec<u8> {
        match self {
            Number::Little => value.to_le_bytes()[..width].to_vec(),
            Number::Big => value.to_be_bytes()[8 - width..].to_vec(),
            Number::Decimal => value.to_string().into_bytes(),
            Number::Varint => {
                let mut bytes = Vec::new();
                while value >= 0x80 {
                    bytes.push(value as u8 | 0x80);
                    value >>= 7;
                }
                bytes.push(value as u8);
                bytes
            }
        }
    }
}
