//! What Python's `str` treats as white space and as digits, by its tables of Unicode 14.

/// Whether `str.strip` and `str.split` treat this character as white space: Unicode's, and four separators of
/// ASCII.
pub(crate) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\x1c'..='\x1f')
}

/// `str.split()`: the words between white space.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// Whether `str.isdigit` is true of this character: a decimal digit, or another one, such as a superscript.
pub(crate) fn is_digit(letter: char) -> bool {
    let code = u32::from(letter);
    letter.is_ascii_digit()
        || (!letter.is_ascii()
            && (decimal(letter).is_some()
                || OTHER_DIGITS.iter().any(|(first, last)| (*first..=*last).contains(&code))))
}

/// The value of a decimal digit of any script, as `int` reads it.
pub(crate) fn decimal(letter: char) -> Option<u32> {
    let code = u32::from(letter);
    let after = DECIMAL_ZEROS.partition_point(|zero| *zero <= code);
    let value = code - after.checked_sub(1).and_then(|zero| DECIMAL_ZEROS.get(zero))?;
    (value < 10).then_some(value)
}

/// `int(text)`, for a word without white space: a sign, then digits, with single underscores between them.
/// `None` if it is not a number, or does not fit an `i64`.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut value = 0_i64;
    let mut was_digit = false;
    for letter in digits.chars() {
        if letter == '_' && was_digit {
            was_digit = false;
            continue;
        }
        let digit = i64::from(decimal(letter)?);
        value = value.checked_mul(10)?;
        value = if is_negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
        was_digit = true;
    }
    was_digit.then_some(value)
}

/// The zero of each script's decimal digits; 1 to 9 follow it.
#[rustfmt::skip]
const DECIMAL_ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50,
    0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066,
    0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950,
    0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// Digits that are not decimal (superscripts, subscripts, circled ones and the like), as ranges: first and
/// last.
#[rustfmt::skip]
const OTHER_DIGITS: [(u32, u32); 20] = [
    (0xb2, 0xb3), (0xb9, 0xb9), (0x1369, 0x1371), (0x19da, 0x19da), (0x2070, 0x2070), (0x2074, 0x2079),
    (0x2080, 0x2089), (0x2460, 0x2468), (0x2474, 0x247c), (0x2488, 0x2490), (0x24ea, 0x24ea),
    (0x24f5, 0x24fd), (0x24ff, 0x24ff), (0x2776, 0x277e), (0x2780, 0x2788), (0x278a, 0x2792),
    (0x10a40, 0x10a43), (0x10e60, 0x10e68), (0x11052, 0x1105a), (0x1f100, 0x1f10a),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn count(is: impl Fn(char) -> bool) -> usize {
        ('\0'..=char::MAX).filter(|letter| is(*letter)).count()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it goes through all characters")]
    fn the_tables_have_as_many_characters_as_pythons() {
        // Counted with Python 3.11: sum(chr(c).isspace() for c in range(0x110000)), and likewise for the
        // other two.
        assert_eq!(count(is_space), 29);
        assert_eq!(count(is_digit), 788);
        assert_eq!(count(|letter| decimal(letter).is_some()), 660);
        assert!(is_space('\u{85}') && is_space('\u{3000}') && !is_space('\u{200b}') && !is_space('\u{feff}'));
        assert!(is_digit('²') && is_digit('٣') && is_digit('７') && !is_digit('½') && !is_digit('Ⅷ'));
    }

    #[test]
    fn integers_are_read_as_by_int() {
        for (text, value) in [("0", 0), ("+12", 12), ("-7", -7), ("1_000", 1000), ("٣７", 37), ("007", 7)] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in ["", "+", "-", "_1", "1_", "1__0", "1.0", "0x1", "²", "9223372036854775808", "--1"] {
            assert_eq!(integer(text), None, "{text}");
        }
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
    }

    #[test]
    fn words_are_between_any_white_space() {
        assert_eq!(words(" a\u{1c}\u{a0}b\t\u{2028}c ").collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
