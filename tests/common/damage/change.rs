//! One damage, and all that a data set can suffer.

use super::case::Material;
use super::stated::Stated;

/// One damage. Files and parts are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Bit {
        file: usize,
        at: usize,
        bit: u8,
    },
    Byte {
        file: usize,
        at: usize,
        value: u8,
    },
    Cut {
        file: usize,
        length: usize,
    },
    /// All bytes of a part are the same.
    Fill {
        file: usize,
        part: usize,
        value: u8,
    },
    Remove {
        file: usize,
        part: usize,
    },
    Double {
        file: usize,
        part: usize,
    },
    /// Bytes before a part.
    Insert {
        file: usize,
        part: usize,
        bytes: usize,
        value: u8,
    },
    /// Two parts in each other's place.
    Swap {
        file: usize,
        part: usize,
        other: usize,
    },
    /// The same part of another data set.
    Donor {
        file: usize,
        part: usize,
    },
    /// A number that lies, and with it, if it is sealed, every checksum.
    Lie {
        file: usize,
        part: usize,
        which: usize,
        is_sealed: bool,
    },
    Missing {
        file: usize,
    },
    /// A folder in the place of a file.
    Folder {
        file: usize,
    },
    /// More bytes at the end: zeros, others, or the whole file again.
    Append {
        file: usize,
        what: Appended,
    },
    /// Two files under each other's names.
    Exchange {
        file: usize,
        other: usize,
    },
    /// A file of another data set of the format, under the name of one of this.
    OtherFile {
        file: usize,
        of: usize,
        other: usize,
    },
    /// All files of another data set of the format, and what is kept of this.
    Other {
        of: usize,
    },
    /// A file of another format.
    Foreign {
        file: usize,
        which: usize,
    },
    /// What the format itself forges.
    Forged {
        number: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    Zero,
    Zeros,
    Letters,
    Itself,
}

/// What each byte can suffer: its bits, all of them cleared or set, and a cut before it.
const OF_A_BYTE: usize = 11;

/// All damage of a data set: of its parts and files, one by one, and of its bytes.
pub struct Changes {
    pub shapes: Vec<Change>,
    /// The files that are damaged: how many of their bytes, and how far these are apart.
    bytes: Vec<(usize, usize, usize)>,
}

impl Changes {
    /// `bytes_max` is how many bytes of a file are damaged.
    pub fn of(material: &Material, bytes_max: usize) -> Self {
        let Material { files, donor, others, foreign } = material;
        let mut shapes = Vec::new();
        let mut bytes = Vec::new();
        let damaged = || files.iter().enumerate().filter(|(_, file)| !file.is_kept);
        for (file, stated) in damaged() {
            let step = stated.bytes.len().div_ceil(bytes_max).max(1);
            bytes.push((file, stated.bytes.len().div_ceil(step), step));
            let later = damaged().map(|(other, _)| other).filter(|&other| other > file);
            shapes.extend(later.map(|other| Change::Exchange { file, other }));
            shapes.extend([Change::Missing { file }, Change::Folder { file }]);
            for (of, other) in others.iter().enumerate() {
                let whole = other.iter().enumerate().filter(|(_, file)| !file.is_kept);
                shapes.extend(whole.map(|(other, _)| Change::OtherFile { file, of, other }));
            }
            shapes.extend((0..foreign.len()).map(|which| Change::Foreign { file, which }));
            let appended = [Appended::Zero, Appended::Zeros, Appended::Letters, Appended::Itself];
            shapes.extend(appended.map(|what| Change::Append { file, what }));
            for part in 0..stated.parts.len() {
                of_part(stated, donor.get(file), file, part, &mut shapes);
            }
        }
        Changes { shapes, bytes }
    }

    /// How many there are of the bytes.
    pub fn of_bytes(&self) -> usize {
        self.bytes.iter().map(|(_, count, _)| OF_A_BYTE * count).sum()
    }

    /// One of the bytes' changes.
    pub fn of_byte(&self, mut number: usize) -> Change {
        for &(file, count, step) in &self.bytes {
            if number < OF_A_BYTE * count {
                let (at, what) = (number / OF_A_BYTE * step, number % OF_A_BYTE);
                return match what {
                    0..8 => Change::Bit { file, at, bit: what as u8 },
                    8 => Change::Byte { file, at, value: 0 },
                    9 => Change::Byte { file, at, value: 0xff },
                    _ => Change::Cut { file, length: at },
                };
            }
            number -= OF_A_BYTE * count;
        }
        panic!("there are fewer changes of bytes")
    }
}

/// What a part can suffer.
fn of_part(stated: &Stated, donor: Option<&Stated>, file: usize, part: usize, shapes: &mut Vec<Change>) {
    let this = &stated.parts[part];
    shapes.extend([Change::Fill { file, part, value: 0 }, Change::Fill { file, part, value: 0xff }]);
    shapes.extend([Change::Remove { file, part }, Change::Double { file, part }]);
    shapes.push(Change::Insert { file, part, bytes: 1, value: 0 });
    shapes.push(Change::Insert { file, part, bytes: 7, value: 0xff });
    // The next part, and the next of the same kind.
    let alike = (part + 1..stated.parts.len()).find(|&other| stated.parts[other].name == this.name);
    let next = Some(part + 1).filter(|&other| other < stated.parts.len() && alike != Some(other));
    shapes.extend(alike.into_iter().chain(next).map(|other| Change::Swap { file, part, other }));
    shapes.extend(donor.and_then(|donor| donor.parts.get(part)).map(|_| Change::Donor { file, part }));
    if let Some(number) = this.number {
        let lies = number.lies(&stated.bytes[this.range.clone()], stated.bytes.len()).len();
        for (which, is_sealed) in (0..lies).flat_map(|which| [(which, false), (which, true)]) {
            shapes.push(Change::Lie { file, part, which, is_sealed });
        }
    }
}
