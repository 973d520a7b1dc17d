//! Floating-point numbers in text, as protobuf prints them: C's `%g` with few digits if they read back as the
//! same number, with enough for any number if not.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// Writes `1`, `0.1`, `1e-05`, `16777216`, `inf`, `nan`.
pub(super) fn float(value: f32) -> String {
    if !value.is_finite() {
        return special(value.into());
    }
    let short = general(value.into(), 6);
    if short.parse() == Ok(value) { short } else { general(value.into(), 9) }
}

/// The same for 8 bytes.
pub(super) fn double(value: f64) -> String {
    if !value.is_finite() {
        return special(value);
    }
    let short = general(value, 15);
    if short.parse() == Ok(value) { short } else { general(value, 17) }
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
