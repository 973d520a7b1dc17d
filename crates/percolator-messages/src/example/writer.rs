//! Writes the wire bytes of an `Example`.

/// Keys of the fields that are written: number and wire type.
mod key {
    pub(super) const FEATURES: u8 = 1 << 3 | 2;
    pub(super) const ENTRY: u8 = 1 << 3 | 2;
    pub(super) const NAME: u8 = 1 << 3 | 2;
    pub(super) const FEATURE: u8 = 2 << 3 | 2;
    pub(super) const BYTES_LIST: u8 = 1 << 3 | 2;
    pub(super) const FLOAT_LIST: u8 = 2 << 3 | 2;
    pub(super) const INT64_LIST: u8 = 3 << 3 | 2;
    pub(super) const VALUE: u8 = 1 << 3 | 2;
}

/// Writes a `tf.train.Example`, feature by feature, as TensorFlow does: numbers are packed, and features keep
/// the order in which they are added. A writer can be reused, and keeps its memory.
///
/// ```
/// use percolator_messages::example::{Example, ExampleWriter};
///
/// let mut writer = ExampleWriter::new();
/// writer.ints("input", [17, 4, 3]).floats("weight", [0.5]).bytes("name", [b"first"]);
/// let record = writer.to_bytes();
/// let example = Example::parse(&record)?;
/// assert_eq!(example.features().entries().count(), 3);
/// # Ok::<(), percolator_messages::example::ExampleError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ExampleWriter {
    /// The entries of the features written so far.
    entries: Vec<u8>,
    /// The list of the feature being written.
    list: Vec<u8>,
}

impl ExampleWriter {
    /// Starts an Example without features.
    #[must_use]
    pub fn new() -> Self {
        ExampleWriter::default()
    }

    /// Adds a feature of integers.
    pub fn ints(&mut self, name: &str, values: impl IntoIterator<Item = i64>) -> &mut Self {
        self.list.clear();
        for value in values {
            put_varint(&mut self.list, value.cast_unsigned());
        }
        self.numbers(name, key::INT64_LIST)
    }

    /// Adds a feature of floats.
    pub fn floats(&mut self, name: &str, values: impl IntoIterator<Item = f32>) -> &mut Self {
        self.list.clear();
        for value in values {
            self.list.extend(value.to_le_bytes());
        }
        self.numbers(name, key::FLOAT_LIST)
    }

    /// Adds a feature of byte strings.
    pub fn bytes(&mut self, name: &str, values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> &mut Self {
        self.list.clear();
        for value in values {
            let value = value.as_ref();
            put_chunk(&mut self.list, key::VALUE, value.len());
            self.list.extend(value);
        }
        let list = self.list.len();
        self.entry(name, chunk_len(list));
        put_chunk(&mut self.entries, key::BYTES_LIST, list);
        self.entries.extend(&self.list);
        self
    }

    /// Adds a feature without a kind: readers treat it as missing.
    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.entry(name, 0);
        self
    }

    /// Adds a feature whose packed elements are in `list`.
    fn numbers(&mut self, name: &str, kind: u8) -> &mut Self {
        // A list without elements has no field at all.
        let elements = self.list.len();
        let list = if elements == 0 { 0 } else { chunk_len(elements) };
        self.entry(name, chunk_len(list));
        put_chunk(&mut self.entries, kind, list);
        if elements > 0 {
            put_chunk(&mut self.entries, key::VALUE, elements);
            self.entries.extend(&self.list);
        }
        self
    }

    /// Starts the entry of a feature that takes `feature` bytes, which follow.
    fn entry(&mut self, name: &str, feature: usize) {
        // Each length is that of bytes in memory, or a few bytes more, so the sum cannot overflow.
        put_chunk(&mut self.entries, key::ENTRY, chunk_len(name.len()) + chunk_len(feature));
        put_chunk(&mut self.entries, key::NAME, name.len());
        self.entries.extend(name.as_bytes());
        put_chunk(&mut self.entries, key::FEATURE, feature);
    }

    /// The number of bytes that the record takes.
    #[must_use]
    pub fn record_len(&self) -> usize {
        chunk_len(self.entries.len())
    }

    /// Appends the record to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.record_len());
        put_chunk(out, key::FEATURES, self.entries.len());
        out.extend(&self.entries);
    }

    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// The entries of the features. With [`features_head`] before them they are an Example.
    #[must_use]
    pub fn into_features(self) -> Vec<u8> {
        self.entries
    }

    /// Removes all features, and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// What an Example begins with whose features take so many bytes.
#[must_use]
pub fn features_head(bytes: usize) -> Vec<u8> {
    let mut head = Vec::new();
    put_chunk(&mut head, key::FEATURES, bytes);
    head
}

/// The entry of a feature that is one byte string, up to that string. It is for a string that is not copied.
#[must_use]
pub fn string_head(name: &str, bytes: usize) -> Vec<u8> {
    let mut head = ExampleWriter::new();
    let list = chunk_len(bytes);
    head.entry(name, chunk_len(list));
    put_chunk(&mut head.entries, key::BYTES_LIST, list);
    put_chunk(&mut head.entries, key::VALUE, bytes);
    head.entries
}

/// An Example whose first feature has this name: how one that was written, and may be truncated, begins.
#[derive(Clone, Copy, Debug)]
pub struct NameFirst(pub &'static str);

impl NameFirst {
    /// The keys before the name: of the features, of the first of them, and of its name.
    const KEYS: [u8; 3] = [key::FEATURES, key::ENTRY, key::NAME];

    /// The most bytes up to the end of the name: each key is followed by a length of at most ten bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        Self::KEYS.len() * (1 + 10) + self.0.len()
    }

    /// Whether an Example begins with these bytes. If they end before the end of the name, the answer is no.
    #[must_use]
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let behind_key = |rest: &'_ [u8], key: u8| -> Option<usize> {
            let (_, behind) = rest.split_first().filter(|(first, _)| **first == key)?;
            Some(behind.iter().take(10).position(|byte| byte & 0x80 == 0)? + 2)
        };
        let name = Self::KEYS.iter().try_fold(bytes, |rest, &key| rest.get(behind_key(rest, key)?..));
        name.is_some_and(|name| name.starts_with(self.0.as_bytes()))
    }
}

/// The bytes of a varint.
fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The bytes of a field of `len` bytes, with its one-byte key and its length.
fn chunk_len(len: usize) -> usize {
    1 + varint_len(len) + len
}

fn put_chunk(out: &mut Vec<u8>, key: u8, len: usize) {
    out.push(key);
    put_varint(out, len as u64);
}

#[expect(clippy::cast_possible_truncation, reason = "the low seven bits are meant")]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
