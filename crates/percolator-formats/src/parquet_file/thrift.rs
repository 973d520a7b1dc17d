//! The little of Thrift's compact protocol that is looked at before the decoder is: how deep the schema is,
//! how large pages say they are, and whether an index is whole.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// How deep structures and lists may stand in each other.
const DEPTH_MAX: usize = 32;

const BOOLS: [u8; 2] = [1, 2];
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Why bytes are no such structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThriftFault {
    /// They end within it. There may be more.
    Cut,
    /// They are damaged: what of them.
    Damaged(&'static str),
}

/// What the head of a page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageHead {
    /// The bytes of the head itself.
    pub(super) bytes: u64,
    pub(super) kind: i64,
    pub(super) unpacked: i64,
    pub(super) packed: i64,
    pub(super) checksum: bool,
    /// The number of values, nulls among them.
    pub(super) values: i64,
}

/// A page of data, of the first version.
pub(super) const DATA_PAGE: i64 = 0;
/// A page of an index, which has no data.
pub(super) const INDEX_PAGE: i64 = 1;
/// A page of a dictionary.
pub(super) const DICTIONARY_PAGE: i64 = 2;
/// A page of data, of the second version.
pub(super) const DATA_PAGE_V2: i64 = 3;

struct Reader<'a> {
    rest: &'a [u8],
}

/// A field's number and type.
type Field = (i64, u8);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, ThriftFault> {
        let (byte, rest) = self.rest.split_first().ok_or(ThriftFault::Cut)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn unsigned(&mut self) -> Result<u64, ThriftFault> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or_default();
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ThriftFault::Damaged("a number has more than 10 bytes"))
    }

    fn signed(&mut self) -> Result<i64, ThriftFault> {
        let zigzag = self.unsigned()?;
        let magnitude = (zigzag >> 1).cast_signed();
        Ok(if zigzag & 1 == 0 { magnitude } else { !magnitude })
    }

    fn bytes(&mut self, count: u64) -> Result<&'a [u8], ThriftFault> {
        let count = usize::try_from(count).map_err(|_| ThriftFault::Cut)?;
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(ThriftFault::Cut)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next field of a structure; `None` at its end.
    fn field(&mut self, before: i64) -> Result<Option<Field>, ThriftFault> {
        let byte = self.byte()?;
        let dtype = byte & 0x0F;
        if dtype == 0 {
            return Ok(None);
        }
        match byte >> 4 {
            0 => Ok(Some((self.signed()?, dtype))),
            more => Ok(Some((before.saturating_add(more.into()), dtype))),
        }
    }

    /// The number and the type of a list's elements.
    fn list(&mut self) -> Result<(u64, u8), ThriftFault> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.unsigned()?,
            count => count.into(),
        };
        // An element takes a byte, or nothing does.
        if count > self.rest.len() as u64 {
            return Err(ThriftFault::Cut);
        }
        Ok((count, byte & 0x0F))
    }

    fn skip(&mut self, dtype: u8, depth: usize) -> Result<(), ThriftFault> {
        let deeper = depth.saturating_add(1);
        if deeper > DEPTH_MAX {
            return Err(ThriftFault::Damaged("structures stand too deep in each other"));
        }
        match dtype {
            dtype if BOOLS.contains(&dtype) => Ok(()),
            BYTE => self.byte().map(drop),
            I16 | I32 | I64 => self.unsigned().map(drop),
            DOUBLE => self.bytes(8).map(drop),
            BINARY => self.unsigned().and_then(|length| self.bytes(length)).map(drop),
            LIST | SET => {
                let (count, element) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(element, deeper))
            }
            MAP => {
                let count = self.unsigned()?;
                if count == 0 {
                    return Ok(());
                }
                let types = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(types >> 4, deeper)?;
                    self.skip_element(types & 0x0F, deeper)
                })
            }
            STRUCT => self.fields(|reader, (_, dtype)| reader.skip(dtype, deeper)),
            _ => Err(ThriftFault::Damaged("a type is unknown")),
        }
    }

    /// A truth value of a list takes a byte.
    fn skip_element(&mut self, dtype: u8, depth: usize) -> Result<(), ThriftFault> {
        match BOOLS.contains(&dtype) {
            true => self.byte().map(drop),
            false => self.skip(dtype, depth),
        }
    }

    fn fields(
        &mut self,
        mut each: impl FnMut(&mut Self, Field) -> Result<(), ThriftFault>,
    ) -> Result<(), ThriftFault> {
        let mut before = 0;
        while let Some(field) = self.field(before)? {
            before = field.0;
            each(self, field)?;
        }
        Ok(())
    }
}

/// The depth of the tree of columns that a footer has, which is a list of its nodes in order, each with the
/// number of its children. The decoder goes down that tree on the stack.
pub(super) fn schema_depth(footer: &[u8]) -> Result<usize, ThriftFault> {
    let mut reader = Reader { rest: footer };
    let mut deepest = 0;
    // How many nodes are still to come at each depth.
    let mut open: Vec<u64> = Vec::new();
    reader.fields(|reader, field| {
        if field != (2, LIST) {
            return reader.skip(field.1, 0);
        }
        let (count, element) = reader.list()?;
        if element != STRUCT {
            return Err(ThriftFault::Damaged("the schema is no list of structures"));
        }
        for _ in 0..count {
            let mut children = 0;
            reader.fields(|reader, field| match field {
                (5, I32) => reader.signed().map(|number| children = number),
                (_, dtype) => reader.skip(dtype, 0),
            })?;
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(siblings) = open.last_mut() {
                *siblings = siblings.saturating_sub(1);
            }
            if let Ok(children @ 1..) = u64::try_from(children) {
                open.push(children);
                deepest = deepest.max(open.len());
            }
        }
        Ok(())
    })?;
    Ok(deepest)
}

/// Whether bytes begin with a whole structure, of which no list states more elements than there are bytes.
pub(super) fn check_structure(bytes: &[u8]) -> Result<(), ThriftFault> {
    Reader { rest: bytes }.skip(STRUCT, 0)
}

/// The head of the page that bytes begin with.
pub(super) fn page_head(bytes: &[u8]) -> Result<PageHead, ThriftFault> {
    let mut reader = Reader { rest: bytes };
    let mut head = PageHead { kind: -1, unpacked: -1, packed: -1, values: -1, ..PageHead::default() };
    reader.fields(|reader, field| {
        let number = match field {
            (1, I32) => &mut head.kind,
            (2, I32) => &mut head.unpacked,
            (3, I32) => &mut head.packed,
            (5 | 7 | 8, STRUCT) => {
                return reader.fields(|reader, field| match field {
                    (1, I32) => reader.signed().map(|values| head.values = values),
                    (_, dtype) => reader.skip(dtype, 0),
                });
            }
            (number, dtype) => {
                head.checksum |= number == 4;
                return reader.skip(dtype, 0);
            }
        };
        *number = reader.signed()?;
        Ok(())
    })?;
    let rest = reader.rest.len();
    head.bytes = bytes.len().saturating_sub(rest) as u64;
    match head.kind >= 0 && head.unpacked >= 0 && head.packed >= 0 {
        true => Ok(head),
        false => Err(ThriftFault::Damaged("it lacks its kind or a size, or one is negative")),
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "bytes that the tests make")]
mod tests {
    use super::*;

    /// A page's head: kind 0, 300 bytes unpacked, 20 packed, a checksum, 7 values of encoding 0.
    const HEAD: [u8; 17] =
        [0x15, 0, 0x15, 0xD8, 0x04, 0x15, 40, 0x15, 2, 0x1C, 0x15, 14, 0x15, 0, 0, 0, 0xEE];

    #[test]
    fn a_head_is_read() {
        let head = PageHead { bytes: 16, kind: 0, unpacked: 300, packed: 20, checksum: true, values: 7 };
        assert_eq!(page_head(&HEAD), Ok(head));
    }

    #[test]
    fn every_cut_head_is_cut() {
        for length in 0..16 {
            assert_eq!(page_head(&HEAD[..length]), Err(ThriftFault::Cut), "{length}");
        }
    }

    #[test]
    fn heads_without_sizes_are_damaged() {
        assert!(matches!(page_head(&[0]), Err(ThriftFault::Damaged(_))));
        assert!(matches!(page_head(&[0x15, 0, 0x15, 1, 0x15, 2, 0]), Err(ThriftFault::Damaged(_))));
        assert!(matches!(page_head(&[0x1E]), Err(ThriftFault::Damaged(_))));
        assert!(matches!(page_head(&[0x15; 32]), Err(ThriftFault::Damaged(_) | ThriftFault::Cut)));
        assert!(matches!(
            page_head(&[0x35, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]),
            Err(ThriftFault::Damaged(_))
        ));
    }

    #[test]
    fn deep_structures_are_not_gone_down() {
        assert!(matches!(page_head(&[0x9C; 1000]), Err(ThriftFault::Damaged(_))));
        assert!(matches!(page_head(&[0x99; 1000]), Err(ThriftFault::Damaged(_))));
    }

    /// A footer whose schema has nodes with these numbers of children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xFC];
        bytes.push(u8::try_from(children.len()).unwrap());
        for children in children {
            bytes.extend([0x48, 1, b'x', 0x15, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn the_depth_of_a_schema_is_that_of_its_deepest_branch() {
        assert_eq!(schema_depth(&footer(&[0])), Ok(0));
        assert_eq!(schema_depth(&footer(&[3, 0, 0, 0])), Ok(1));
        assert_eq!(schema_depth(&footer(&[2, 1, 1, 0, 2, 0, 0])), Ok(3));
        assert_eq!(schema_depth(&footer(&[1; 100])), Ok(100));
        assert_eq!(schema_depth(&footer(&[1; 100])[..300]), Err(ThriftFault::Cut));
    }
}
