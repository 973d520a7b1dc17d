//! The headers of a tar: ustar, GNU, PAX and v7.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;

use percolator_files::shown;

/// The unit of a tar: headers have this size, and data are padded to it.
pub(super) const BLOCK: usize = 512;

/// The most bytes of a long name, or of PAX records.
const EXTENDED_MAX: u64 = 16 << 20;

/// What stands where a header is expected.
#[derive(Debug)]
pub(super) enum TarStep<'a> {
    /// It can be told when this many bytes are at hand.
    More(usize),
    /// A block of zeros.
    Zeros,
    /// A global header of this many bytes, which says nothing that matters here.
    Global(usize),
    /// A member.
    Member(TarMember<'a>),
}

/// A member of a tar, with the extended headers before its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct TarMember<'a> {
    /// The bytes of its headers, after which its data follow.
    pub(super) headers: usize,
    /// The bytes of its data.
    pub(super) size: u64,
    pub(super) kind: TarKind,
    pub(super) name: TarName<'a>,
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TarKind {
    File,
    HardLink,
    SymbolicLink,
    Directory,
    Device,
    Other,
}

/// A member's name: with a prefix, if there is one, before a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TarName<'a> {
    prefix: &'a [u8],
    name: &'a [u8],
}

/// What is wrong with a header, and at which byte of what is at hand.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TarFault {
    pub(super) at: usize,
    pub(super) what: String,
    /// It is whole, and not read.
    pub(super) refused: bool,
}

impl TarFault {
    fn damaged(at: usize, what: impl Into<String>) -> Self {
        TarFault { at, what: what.into(), refused: false }
    }

    fn refused(at: usize, what: impl Into<String>) -> Self {
        TarFault { at, what: what.into(), refused: true }
    }
}

impl<'a> TarName<'a> {
    fn plain(name: &'a [u8]) -> Self {
        TarName { prefix: b"", name }
    }

    /// Writes the whole name.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(self.prefix);
        if !self.prefix.is_empty() {
            into.push(b'/');
        }
        into.extend_from_slice(self.name);
    }

    fn shown(&self) -> String {
        let mut name = Vec::new();
        self.write(&mut name);
        shown::bytes(&name).to_string()
    }

    /// The field of a record, not yet in lower case, and the length of the record's key, with which the whole
    /// name begins. `None` for names that WebDataset passes over.
    ///
    /// WebDataset splits by `^((?:.*/|)[^.]+)[.]([^/]*)$`, so `a/.b` is the field `b` of `a/`, and passes
    /// over `__x__/...`.
    pub(super) fn split(&self) -> Option<(usize, &'a [u8])> {
        let prefix = if self.prefix.is_empty() { 0 } else { self.prefix.len().checked_add(1)? };
        let last = memchr::memrchr(b'/', self.name).map_or(0, |slash| slash.saturating_add(1));
        let dot = memchr::memchr(b'.', self.name.get(last..)?)?.checked_add(last)?;
        let has_stem = dot > last || {
            let slash = (prefix > 0).then_some(&b'/');
            let before = self.prefix.iter().chain(slash).chain(self.name.get(..dot)?);
            let before = || before.clone().rev();
            before().next().is_some()
                && before().skip(1).find(|byte| matches!(byte, b'/' | b'.')).is_none_or(|byte| *byte == b'/')
        };
        let first = if prefix > 0 { self.prefix } else { self.name };
        let first = first.split(|byte| *byte == b'/').next().unwrap_or_default();
        let is_meta = first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__");
        let field = self.name.get(dot.checked_add(1)?..)?;
        (has_stem && !is_meta).then_some((prefix.checked_add(dot)?, field))
    }
}

/// A field in lower case; `None` if it is no UTF-8.
pub(super) fn lower(field: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(field).ok()?;
    let is_lower = text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
    Some(if is_lower { Cow::Borrowed(text) } else { Cow::Owned(text.to_lowercase()) })
}

/// Writes a field in lower case; false if it is no UTF-8.
pub(super) fn write_lower(field: &[u8], into: &mut String) -> bool {
    into.clear();
    let Ok(text) = std::str::from_utf8(field) else { return false };
    if text.is_ascii() {
        into.push_str(text);
        into.make_ascii_lowercase();
    } else {
        into.push_str(&text.to_lowercase());
    }
    true
}

/// Whether a field is this one in lower case.
pub(super) fn is_lower_of(field: &[u8], lower_case: &str) -> bool {
    match field.is_ascii() {
        true => field.iter().map(u8::to_ascii_lowercase).eq(lower_case.bytes()),
        false => lower(field).is_some_and(|field| field == lower_case),
    }
}

/// The bytes that data of this length take.
pub(super) fn padded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK as u64)
}

/// Tells what the bytes begin with.
pub(super) fn step(bytes: &[u8]) -> Result<TarStep<'_>, TarFault> {
    let mut at = 0_usize;
    let mut before = TarExtended::default();
    loop {
        let header = at.saturating_add(BLOCK);
        let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) else {
            return Ok(TarStep::More(header));
        };
        if block == &[0; BLOCK] {
            return match at {
                0 => Ok(TarStep::Zeros),
                at => Err(TarFault::damaged(at, "an extended header stands here, and no member follows it")),
            };
        }
        let kind = kind(block);
        check_sum(block, at)?;
        if !b"xXgLK".contains(&kind) {
            return before.member(block, at).map(TarStep::Member);
        }
        let size = number(field(block, 124, 12), at, "the size of an extended header")?;
        if size > EXTENDED_MAX {
            let what = format!("an extended header has {size} bytes, and at most {EXTENDED_MAX} are read");
            return Err(TarFault::refused(at, what));
        }
        // At most 16 MiB, so these do not overflow.
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let end = header.saturating_add(size.next_multiple_of(BLOCK));
        if bytes.len() < end {
            return Ok(TarStep::More(end));
        }
        let data = bytes.get(header..header.saturating_add(size)).unwrap_or_default();
        if kind == b'g' {
            global(data, header)?;
            return match at {
                0 => Ok(TarStep::Global(end)),
                _ => Err(TarFault::refused(at, "a global header stands between the headers of one member")),
            };
        }
        before.read(kind, data, header)?;
        at = end;
    }
}

/// Extended headers before a member's own.
#[derive(Default)]
struct TarExtended<'a> {
    /// The types that were there: 1 is `x`, 2 is `L`, 4 is `K`.
    seen: u8,
    long: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    size: Option<u64>,
    sparse: Option<&'a [u8]>,
    sparse_name: Option<&'a [u8]>,
}

impl<'a> TarExtended<'a> {
    fn read(&mut self, kind: u8, data: &'a [u8], at: usize) -> Result<(), TarFault> {
        let bit = match kind {
            b'L' => 2,
            // The target of a link, which is passed over.
            b'K' => 4,
            _ => 1,
        };
        if self.seen & bit != 0 {
            let what = format!("one member has two extended headers of type {}", char::from(kind));
            return Err(TarFault::damaged(at, what));
        }
        self.seen |= bit;
        match bit {
            1 => pax(data, at, |key, value, at| self.set(key, value, at)),
            2 => {
                self.long = Some(text(data));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: &'a [u8], value: &'a [u8], at: usize) -> Result<(), TarFault> {
        match key {
            // An empty value means that the header's own counts.
            b"path" => self.path = Some(value).filter(|path| !path.is_empty()),
            b"size" if value.is_empty() => self.size = None,
            b"size" => self.size = Some(decimal(value).ok_or_else(|| no_number("a PAX size", value, at))?),
            b"GNU.sparse.name" => {
                self.sparse = Some(key);
                self.sparse_name = Some(value);
            }
            _ if is_sparse(key) => self.sparse = self.sparse.or(Some(key)),
            _ => {}
        }
        Ok(())
    }

    /// The member whose own header this is.
    fn member(&self, block: &'a [u8; BLOCK], at: usize) -> Result<TarMember<'a>, TarFault> {
        let long = self.sparse_name.or(self.path).or(self.long);
        let name = long.map_or_else(|| own_name(block), TarName::plain);
        let kind = kind(block);
        let sparse = match (kind, self.sparse) {
            (_, Some(key)) => Some(format!("PAX, {}", shown::bytes(key))),
            (b'S', _) => Some("GNU, type S".to_owned()),
            _ => None,
        };
        if let Some(sparse) = sparse {
            let what = format!(
                "the member {} is sparse ({sparse}), and holes are not filled; pack it again without \
                --sparse",
                name.shown()
            );
            return Err(TarFault::refused(at, what));
        }
        if kind == b'M' {
            let what = format!("the member {} began in another volume; join the volumes", name.shown());
            return Err(TarFault::refused(at, what));
        }
        let is_folder = kind == 0 && name.name.ends_with(b"/");
        let kind = match kind {
            _ if is_folder => TarKind::Directory,
            0 | b'0' | b'7' => TarKind::File,
            b'1' => TarKind::HardLink,
            b'2' => TarKind::SymbolicLink,
            b'5' => TarKind::Directory,
            b'3' | b'4' | b'6' => TarKind::Device,
            _ => TarKind::Other,
        };
        // Of the other kinds the header's size is none of data, whatever it says.
        let size = match (kind, self.size) {
            (TarKind::File | TarKind::Other, Some(size)) => size,
            (TarKind::File | TarKind::Other, None) => {
                let what = format!("the size of the member {}", name.shown());
                number(field(block, 124, 12), at, &what)?
            }
            _ => 0,
        };
        Ok(TarMember { headers: at.saturating_add(BLOCK), size, kind, name })
    }
}

/// The name that a member's own header has.
fn own_name(block: &[u8; BLOCK]) -> TarName<'_> {
    let name = text(field(block, 0, 100));
    let is_ustar = field(block, 257, 6) == b"ustar\0";
    let prefix = if is_ustar { text(field(block, 345, 155)) } else { b"" };
    TarName { prefix, name }
}

fn kind(block: &[u8; BLOCK]) -> u8 {
    field(block, 156, 1).first().copied().unwrap_or_default()
}

fn field(block: &[u8; BLOCK], at: usize, bytes: usize) -> &[u8] {
    block.get(at..).and_then(|rest| rest.get(..bytes)).unwrap_or_default()
}

/// The bytes before the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn check_sum(block: &[u8; BLOCK], at: usize) -> Result<(), TarFault> {
    let stated = number(field(block, 148, 8), at, "a header's checksum")?;
    let spaces = i64::from(b' ').saturating_mul(8);
    let own = field(block, 148, 8);
    let sum = |of: fn(&u8) -> i64| {
        let all: i64 = block.iter().map(of).sum();
        all.saturating_sub(own.iter().map(of).sum()).saturating_add(spaces)
    };
    // Old writers added signed bytes.
    let sums = [sum(|byte| i64::from(*byte)), sum(|byte| i64::from(byte.cast_signed()))];
    if sums.iter().any(|sum| u64::try_from(*sum) == Ok(stated)) {
        return Ok(());
    }
    let what = format!(
        "a header's checksum does not match: it states {stated}, and its bytes have {}; the tar is damaged \
         from here on, or the size of the member before is wrong",
        sums.first().copied().unwrap_or_default()
    );
    Err(TarFault::damaged(at, what))
}

fn no_number(what: &str, field: &[u8], at: usize) -> TarFault {
    TarFault::damaged(at, format!("{what} is no number: {}", shown::quoted(field)))
}

/// A number in octal digits, or in base 256 if the first bit says so.
fn number(field: &[u8], at: usize, what: &str) -> Result<u64, TarFault> {
    if let Some((first @ 0x80.., rest)) = field.split_first() {
        let negative = first & 0x40 != 0;
        let value = rest.iter().try_fold(u64::from(first & 0x3f), |value, byte| {
            value.checked_mul(256)?.checked_add(u64::from(*byte))
        });
        return value.filter(|_| !negative).ok_or_else(|| {
            let which = if negative { "negative" } else { "more than 64 bits" };
            TarFault::damaged(at, format!("{what} is {which}: {}", shown::quoted(field)))
        });
    }
    let digits = text(field).trim_ascii();
    digits
        .iter()
        .try_fold(0_u64, |value, digit| {
            let digit = char::from(*digit).to_digit(8)?;
            value.checked_mul(8)?.checked_add(u64::from(digit))
        })
        .ok_or_else(|| no_number(what, field, at))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let value = |value: u64, digit: &u8| {
        let digit = char::from(*digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, value) }
}

/// Passes each PAX record to `set`, with where it begins: `LENGTH key=value\n`, the length counting itself.
fn pax<'a>(
    data: &'a [u8],
    begin: usize,
    mut set: impl FnMut(&'a [u8], &'a [u8], usize) -> Result<(), TarFault>,
) -> Result<(), TarFault> {
    let mut rest = data;
    while !rest.is_empty() {
        let at = begin.saturating_add(data.len().saturating_sub(rest.len()));
        let parsed = memchr::memchr(b' ', rest).and_then(|space| {
            let length = usize::try_from(decimal(rest.get(..space)?)?).ok()?;
            let (record, after) = rest.split_at_checked(length)?;
            let record = record.get(space.checked_add(1)?..)?.strip_suffix(b"\n")?;
            let equals = memchr::memchr(b'=', record)?;
            Some((record.get(..equals)?, record.get(equals.checked_add(1)?..)?, after))
        });
        let Some((key, value, after)) = parsed else {
            let what = format!(
                "a PAX record is malformed: {} of {} bytes in its header; \"LENGTH key=value\" and a line \
                 feed are expected, the length counting itself",
                shown::quoted(rest.get(..rest.len().min(40)).unwrap_or_default()),
                rest.len()
            );
            return Err(TarFault::damaged(at, what));
        };
        set(key, value, at)?;
        rest = after;
    }
    Ok(())
}

fn is_sparse(key: &[u8]) -> bool {
    key.starts_with(b"GNU.sparse.") || key == b"SCHILY.realsize"
}

/// Checks a global header. What names or measures one member has no meaning for all.
fn global(data: &[u8], at: usize) -> Result<(), TarFault> {
    pax(data, at, |key, _, at| match key {
        b"path" | b"size" => {
            let what = format!("a global header sets {} for all members that follow", shown::bytes(key));
            Err(TarFault::refused(at, what))
        }
        key if is_sparse(key) => Err(TarFault::refused(at, "a global header is about sparse members")),
        _ => Ok(()),
    })
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "nothing hostile is read")]
mod tests {
    use super::*;

    fn split(name: &str) -> Option<(&str, &str)> {
        let whole = TarName::plain(name.as_bytes()).split();
        // The same, whatever part of it is a prefix.
        for (slash, _) in name.match_indices('/') {
            let parts = TarName { prefix: &name.as_bytes()[..slash], name: &name.as_bytes()[slash + 1..] };
            assert!(slash == 0 || parts.split() == whole, "{name} at {slash}");
        }
        whole.map(|(key, field)| (&name[..key], std::str::from_utf8(field).unwrap()))
    }

    #[test]
    fn names_are_split_as_webdataset_does() {
        // What Python's regular expression gives.
        for (name, due) in [
            ("000.jpg", Some(("000", "jpg"))),
            ("dir.x/a.b.c.JPG", Some(("dir.x/a", "b.c.JPG"))),
            ("./a.txt", Some(("./a", "txt"))),
            ("a.", Some(("a", ""))),
            ("a..b", Some(("a", ".b"))),
            ("a/.h.txt", Some(("a/", "h.txt"))),
            ("/.h", Some(("/", "h"))),
            ("d.e/f/.h", Some(("d.e/f/", "h"))),
            ("__meta__.json", Some(("__meta__", "json"))),
            ("__a/b__.c", Some(("__a/b__", "c"))),
            ("x/__y__/z.txt", Some(("x/__y__/z", "txt"))),
            ("___.a", Some(("___", "a"))),
            (".h.txt", None),
            ("./.h.txt", None),
            ("x.y/.h", None),
            ("noext", None),
            ("dir.y/noext", None),
            ("dir.y/", None),
            ("", None),
            ("__x__/z.txt", None),
            ("____/z.txt", None),
            ("__x.y__", None),
        ] {
            assert_eq!(split(name), due, "{name}");
        }
    }

    #[test]
    fn numbers_are_octal_or_base_256() {
        let read = |field: &[u8]| number(field, 0, "it").map_err(|fault| fault.what);
        assert_eq!(read(b"00000001750\0"), Ok(0o1750));
        assert_eq!(read(b"   1750 \0\0\0\0"), Ok(0o1750));
        assert_eq!(read(b"\0\0\0\0"), Ok(0));
        assert_eq!(read(b"77777777777 "), Ok((8 << 30) - 1));
        assert_eq!(read(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Ok(8 << 30));
        assert_eq!(read(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), Ok(u64::MAX));
        assert!(read(b"\x80\0\0\x01\0\0\0\0\0\0\0\0").unwrap_err().contains("more than 64 bits"));
        assert!(read(b"\xff\xff\xff\xff").unwrap_err().contains("negative"));
        for wrong in [&b"zzzzzzz"[..], b"18", b"1 2", b"-1", b"+1", b"0x1"] {
            assert!(read(wrong).unwrap_err().contains("is no number"), "{wrong:?}");
        }
    }

    #[test]
    fn pax_records_are_told_apart_by_their_lengths() {
        let read = |data: &[u8]| {
            let mut found = Vec::new();
            pax(data, 512, |key, value, at| {
                found.push((key.to_vec(), value.to_vec(), at));
                Ok(())
            })
            .map(|()| found)
        };
        let found = read(b"13 path=a\n=b\n11 size=12\n7 a==b\n").unwrap();
        let due: [(&[u8], &[u8], usize); 3] =
            [(b"path", b"a\n=b", 512), (b"size", b"12", 525), (b"a", b"=b", 536)];
        assert!(
            found.iter().zip(due).all(|(found, due)| (&*found.0, &*found.1, found.2) == due),
            "{found:?}"
        );
        for wrong in [
            &b"12 path=ab\n"[..],
            b"10 path=ab\n",
            b"0 a=b\n",
            b"3 a=b\n",
            b"x a=b\n",
            b"6 a=b",
            b"5 ab\n",
            b"\0\0\0",
            b"99999999999999999999 a=b\n",
        ] {
            assert!(read(wrong).unwrap_err().what.contains("malformed"), "{}", wrong.escape_ascii());
        }
    }
}
