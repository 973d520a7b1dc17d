//! Decodes the numbers and the quoted strings of protobuf's text format.

use crate::error::clip_written;

/// Whether these are the digits of one base: decimal, `0x` hexadecimal, or octal after a `0`.
pub(super) fn is_integer(text: &str) -> bool {
    let (digits, radix) = digits(text);
    !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix))
}

/// The value of checked digits, or `None` if it overflows.
pub(super) fn integer(text: &str) -> Option<u64> {
    let (digits, radix) = digits(text);
    u64::from_str_radix(digits, radix).ok()
}

/// Whether an integer is written in decimal. A float field takes no other base.
pub(super) fn is_decimal(text: &str) -> bool {
    digits(text).1 == 10
}

fn digits(text: &str) -> (&str, u32) {
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    }
}

/// The value of digits with a point, an exponent or a trailing `f`. Too large is infinite.
pub(super) fn float(text: &str) -> Option<f64> {
    text.strip_suffix(['f', 'F']).unwrap_or(text).parse().ok()
}

/// The value of a float constant's name, in any letter case.
pub(super) fn constant(word: &str) -> Option<f64> {
    if word.eq_ignore_ascii_case("inf") || word.eq_ignore_ascii_case("infinity") {
        return Some(f64::INFINITY);
    }
    word.eq_ignore_ascii_case("nan").then_some(f64::NAN)
}

/// Passes the decoded bytes of a quoted string to `out`, piece by piece.
///
/// # Errors
///
/// The offset of an invalid escape's backslash, and what is wrong.
pub(super) fn unescape(raw: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), (usize, String)> {
    let mut at = 0;
    while at < raw.len() {
        let plain = raw[at..].iter().position(|&byte| byte == b'\\').unwrap_or(raw.len() - at);
        out(&raw[at..at + plain]);
        at += plain;
        if at == raw.len() {
            break;
        }
        let Some(length) = escape(&raw[at..], out) else {
            let shown = &raw[at..raw.len().min(at + 10)];
            let fault = format!(
                "invalid escape sequence in a string, at {}: allowed are \\a \\b \\f \\n \\r \\t \\v \\\\ \
                 \\? \\' \\\", octal bytes to \\377, \\xFF, \\uFFFF and \\UFFFFFFFF",
                clip_written(shown)
            );
            return Err((at, fault));
        };
        at += length;
    }
    Ok(())
}

/// Decodes the escape that `raw` starts with. Returns its length, or `None` if it is invalid.
fn escape(raw: &[u8], out: &mut dyn FnMut(&[u8])) -> Option<usize> {
    let simple = match *raw.get(1)? {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        same @ (b'\\' | b'?' | b'\'' | b'"') => same,
        b'0'..=b'7' => {
            let (value, length) = number(&raw[1..], 8, 1, 3)?;
            out(&[u8::try_from(value).ok()?]);
            return Some(1 + length);
        }
        b'x' | b'X' => {
            let (value, length) = number(&raw[2..], 16, 1, 2)?;
            out(&[u8::try_from(value).ok()?]);
            return Some(2 + length);
        }
        b'u' | b'U' => return code_point(raw, out),
        _ => return None,
    };
    out(&[simple]);
    Some(2)
}

/// Decodes `\uXXXX`, a surrogate pair of two of these, or `\UXXXXXXXX`.
fn code_point(raw: &[u8], out: &mut dyn FnMut(&[u8])) -> Option<usize> {
    let long = raw.get(1) == Some(&b'U');
    let digits = if long { 8 } else { 4 };
    let (mut value, length) = number(&raw[2..], 16, digits, digits)?;
    let mut taken = 2 + length;
    if !long && (0xd800..0xdc00).contains(&value) {
        let tail = raw[taken..].strip_prefix(b"\\u")?;
        let (low, length) = number(tail, 16, 4, 4)?;
        let low = low.checked_sub(0xdc00).filter(|&low| low < 0x400)?;
        value = 0x1_0000 + ((value - 0xd800) << 10) + low;
        taken += 2 + length;
    }
    let character = char::from_u32(value)?;
    out(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(taken)
}

/// The value of up to `max` leading digits, of which there must be at least `min`, and how many there are.
fn number(raw: &[u8], radix: u32, min: usize, max: usize) -> Option<(u32, usize)> {
    let digits = raw.iter().take(max).map_while(|&byte| char::from(byte).to_digit(radix));
    let (value, length) =
        digits.fold((0_u32, 0), |(value, length), digit| (value.wrapping_mul(radix) | digit, length + 1));
    (length >= min).then_some((value, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(raw: &str) -> Result<Vec<u8>, usize> {
        let mut bytes = Vec::new();
        unescape(raw.as_bytes(), &mut |piece| bytes.extend_from_slice(piece)).map_err(|(at, _)| at)?;
        Ok(bytes)
    }

    #[test]
    fn integers_of_three_bases() {
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("255"), Some(255));
        assert_eq!(integer("0xfF"), Some(255));
        assert_eq!(integer("0377"), Some(255));
        assert_eq!(integer("18446744073709551615"), Some(u64::MAX));
        assert_eq!(integer("18446744073709551616"), None);
        assert!(["09", "0x", "0xg", "", "1a"].iter().all(|bad| !is_integer(bad)));
        assert!(is_decimal("10") && is_decimal("0") && !is_decimal("010") && !is_decimal("0x10"));
    }

    #[test]
    fn floats_in_all_their_forms() {
        let read = |text| float(text).unwrap();
        assert_eq!(
            [read("1."), read(".5"), read("1e-2"), read("1.e1"), read("3f"), read("2.5F")],
            [1.0, 0.5, 0.01, 10.0, 3.0, 2.5]
        );
        assert_eq!(read("1e999"), f64::INFINITY);
        assert!(["1e", "1.2.3", "1ff", "."].iter().all(|bad| float(bad).is_none()));
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescaped(r"plain"), Ok(b"plain".to_vec()));
        assert_eq!(unescaped(r#"\a\b\f\n\r\t\v\\\?\'\""#), Ok(b"\x07\x08\x0c\n\r\t\x0b\\?'\"".to_vec()));
        assert_eq!(unescaped(r"\0\07\377\1012\x4\x41\X4aB"), Ok(b"\0\x07\xffA2\x04A\x4aB".to_vec()));
        assert_eq!(unescaped(r"\u00e9\U0001F600\ud83d\ude00"), Ok("é😀😀".as_bytes().to_vec()));
    }

    #[test]
    fn a_bad_escape_is_refused_where_it_stands() {
        for bad in
            [r"\", r"\q", r"\x", r"\xg", r"\400", r"\8", r"\u12", r"\ud800", r"\ud800\u0041", r"\udc00"]
        {
            assert_eq!(unescaped(&format!("ab{bad}")), Err(2), "{bad}");
        }
        assert_eq!(unescaped(r"\U00110000"), Err(0));
    }
}
