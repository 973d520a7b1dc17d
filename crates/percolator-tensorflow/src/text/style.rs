//! The ways in which TensorFlow's text files are written: they differ in maps, in messages of type `Any`, and
//! in floating-point numbers.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// How text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Style {
    /// As by Python's `str` of a message: maps in the order of the message, entries with key and value, an
    /// `Any` as its bytes, numbers as `1`, `1e-05`, `16777216`. They have six digits, or nine if six do not
    /// read back as the same number (15 and 17 for 8 bytes). SavedModels have this.
    #[default]
    Str,
    /// As by C++'s `TextFormat::Print`. It differs from `Str` in numbers of 4 bytes below the normal range:
    /// they always have nine digits, because C's `strtof` reports those as out of range.
    Cpp,
    /// As by Python's `text_format`: maps in the order of their keys, entries without what is 0 or empty, an
    /// `Any` as the message that it holds, numbers as `1.0`, `1e-05`, `16777216.0`. They have as few digits
    /// as read back as the same number, but six at least before zeros are cut. Graphs and meta graphs that
    /// Python exports have this.
    Python,
}

impl Style {
    pub(super) fn float(self, value: f32) -> String {
        let short = || general(value.into(), 6);
        match self {
            _ if !value.is_finite() => special(value.into()),
            Style::Python => pointed(&format!("{:e}", few_digits(value))),
            Style::Cpp if value.is_subnormal() => general(value.into(), 9),
            Style::Cpp | Style::Str if short().parse().map(rounded) == Ok(value) => short(),
            Style::Cpp | Style::Str => general(value.into(), 9),
        }
    }

    /// The same for 8 bytes.
    pub(super) fn double(self, value: f64) -> String {
        let short = || general(value, 15);
        match self {
            _ if !value.is_finite() => special(value),
            Style::Python => pointed(&format!("{value:e}")),
            Style::Cpp | Style::Str if short().parse() == Ok(value) => short(),
            Style::Cpp | Style::Str => general(value, 17),
        }
    }

    /// Whether C++ wrote this number, and Python's `str` would have written it otherwise.
    pub(super) fn is_cpps(text: &str, value: f32) -> bool {
        value.is_subnormal() && text == Style::Cpp.float(value) && text != Style::Str.float(value)
    }
}

/// Returns the nearest number of 4 bytes. protobuf reads all numbers so, by way of 8 bytes.
#[expect(clippy::cast_possible_truncation, reason = "it is rounded")]
pub(super) fn rounded(value: f64) -> f32 {
    value as f32
}

/// Returns the number with the fewest digits that is read as this one, as Python's protobuf looks for it:
/// from six digits up. Below the normal range, fewer would do.
fn few_digits(value: f32) -> f64 {
    let mut numbers = (6..=9).filter_map(|digits| general(value.into(), digits).parse().ok());
    numbers.find(|number| rounded(*number) == value).unwrap_or(value.into())
}

fn special(value: f64) -> String {
    if value.is_nan() {
        "nan"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    }
    .to_owned()
}

/// Writes up to so many digits, and no zeros at the end.
fn general(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if exponent >= -4 && exponent < i32::try_from(digits).unwrap_or(i32::MAX) {
        let places = i32::try_from(digits).unwrap_or_default().saturating_sub(1).saturating_sub(exponent);
        let fixed = format!("{value:.*}", usize::try_from(places).unwrap_or_default());
        return without_zeros(&fixed).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs())
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Writes a number, given as digits and an exponent, as Python does.
fn pointed(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let places = usize::try_from(exponent.unsigned_abs()).unwrap_or_default();
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(places.saturating_sub(1)));
    }
    let whole = places.saturating_add(1);
    match digits.split_at_checked(whole) {
        Some((whole, "")) => format!("{sign}{whole}.0"),
        Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{digits}{}.0", "0".repeat(whole.saturating_sub(digits.len()))),
    }
}
