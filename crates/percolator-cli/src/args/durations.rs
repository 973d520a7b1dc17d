//! Lengths of time, with their unit, or as a bare number in the option's own.

use std::time::Duration;

/// The units, and their seconds. The first one that a text ends with is meant.
const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Parses a length of time; a bare number is of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    length(text, 1.0)
}

/// The same, for a time in which something is measured.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|length| match length.is_zero() {
        true => Err("nothing can be measured in no time: give more than 0 seconds".to_owned()),
        false => Ok(length),
    })
}

/// Parses the length of a training step; a bare number is of milliseconds.
pub(crate) fn step(text: &str) -> Result<Duration, String> {
    /// Longer than any training step.
    const STEP_MAX: Duration = Duration::from_secs(60 * 60);

    let step = length(text, 1e-3)?;
    let is_short = step <= STEP_MAX;
    is_short.then_some(step).ok_or_else(|| "not a valid step time: give one hour at most".to_owned())
}

/// Parses a length of time; a bare number is of units of this many seconds.
fn length(text: &str, bare: f64) -> Result<Duration, String> {
    let with_unit = UNITS.into_iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = with_unit.unwrap_or((text, bare));
    let number: f64 =
        number.trim_end().parse().map_err(|_| "not a length of time: give one such as 500ms, 5s or 2m")?;
    let length = number * seconds;
    Duration::try_from_secs_f64(length).map_err(|_| match length > 0.0 {
        true => "not a valid length of time: it is too long".to_owned(),
        false => "not a valid length of time: give 0 seconds or more".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_unit_or_is_in_the_options_own() {
        for (text, millis) in [
            ("5ms", 5),
            ("0.5ms", 0),
            ("5s", 5000),
            ("1.5 s", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0", 0),
        ] {
            for parse in [seconds, step] {
                assert_eq!(parse(text).unwrap().as_millis(), millis, "{text}");
            }
        }
        assert_eq!(seconds("0.3").unwrap(), Duration::from_millis(300));
        assert_eq!(step("0.5").unwrap(), Duration::from_micros(500));
        assert_eq!(step("3600000").unwrap(), Duration::from_secs(3600));
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for text in ["", "s", "ms", "5d", "5 m s", "-1", "-1s", "inf", "nan", "infs", "1e300m", "x"] {
            for parse in [seconds, some_seconds, step] {
                assert!(parse(text).unwrap_err().starts_with("not a "), "{text}");
            }
        }
        for (text, due) in [("-1", "0 seconds or more"), ("nan", "0 seconds or more"), ("1e300m", "too long")]
        {
            assert!(seconds(text).unwrap_err().ends_with(due), "{text}");
        }
        assert!(some_seconds("0ms").unwrap_err().contains("in no time"));
        assert!(step("61m").is_err() && seconds("61m").is_ok());
    }
}
