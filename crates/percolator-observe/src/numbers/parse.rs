//! Prometheus's text format, read: the numbers of feeds, among whatever else a program publishes.

use super::Numbers;
use super::family::{FAMILIES, Number, Of};

/// A text that is not in Prometheus's format, or has numbers that no feed can have.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// One line with a number.
#[derive(Debug, PartialEq, Eq)]
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

impl Sample<'_> {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }
}

/// Reads the numbers of all feeds in a text of Prometheus's format, each with its name, in the order in which
/// they come. Other metrics are passed over.
///
/// # Errors
///
/// [`ParseError`] names the first line that is not in that format, or has an impossible number.
pub fn parse(text: &str) -> Result<Vec<(String, Numbers)>, ParseError> {
    let mut feeds: Vec<(String, Numbers)> = Vec::new();
    for (position, line) in text.lines().enumerate() {
        let refused = |message| ParseError { line: position + 1, message };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let sample = sample(line).map_err(refused)?;
        let Some(family) = FAMILIES.iter().find(|family| family.name == sample.name) else { continue };
        let name = sample.label("feed").unwrap_or_default();
        let at = feeds.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            feeds.push((name.to_owned(), Numbers::default()));
            feeds.len() - 1
        });
        // A label that this version does not know: a later one's.
        let Some(series) = family.series.iter().find(|series| match series.label {
            Some((label, value)) => sample.label(label) == Some(value),
            None => true,
        }) else {
            continue;
        };
        take(&mut feeds[at].1, series.of, &sample).map_err(refused)?;
    }
    Ok(feeds)
}

/// Takes one number.
fn take(numbers: &mut Numbers, of: Of, sample: &Sample<'_>) -> Result<(), String> {
    let is_read = match of {
        Of::Feed(number) => number(numbers).read(sample.value),
        Of::Lane(number) => {
            let lane = lane(numbers, sample)?;
            number(&mut numbers.stats.lanes[lane]).read(sample.value)
        }
        Of::Step(number) => {
            let lane = lane(numbers, sample)?;
            number(&mut numbers.next[lane]).read(sample.value)
        }
        Of::Budget => {
            let mut bytes = 0;
            let is_read = Number::Count(&mut bytes).read(sample.value);
            numbers.budget.push((sample.label("holder").unwrap_or_default().to_owned(), bytes));
            is_read
        }
    };
    match is_read {
        true => Ok(()),
        false => Err(format!("{} is {:?}, which it cannot be", sample.name, sample.value)),
    }
}

/// The lane of a number, for which there is room then.
fn lane(numbers: &mut Numbers, sample: &Sample<'_>) -> Result<usize, String> {
    let text = sample.label("lane").unwrap_or_default();
    let lane = text.parse().ok().filter(|&lane| numbers.reach_lane(lane));
    let lane =
        lane.ok_or_else(|| format!("{} is of the lane {text:?}, which there cannot be", sample.name))?;
    if let Some(device) = sample.label("device") {
        device.clone_into(&mut numbers.stats.lanes[lane].device);
    }
    Ok(lane)
}

fn is_name(name: &str) -> bool {
    let is_start = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || letter == ':';
    name.starts_with(is_start) && name.chars().all(|letter| is_start(letter) || letter.is_ascii_digit())
}

/// Reads `name{label="value",...} value [time]`.
fn sample(line: &str) -> Result<Sample<'_>, String> {
    let end = line.find(['{', ' ', '\t']).ok_or("a metric has no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return Err(format!("{name:?} is no name of a metric"));
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        (labels, rest) = read_labels(inside)?;
    }
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().ok_or("a metric has no value")?;
    // Its spellings of what is not finite are also Rust's.
    if value.parse::<f64>().is_err() {
        return Err(format!("{value:?} is no number"));
    }
    if let Some(time) = words.next()
        && time.parse::<i64>().is_err()
    {
        return Err(format!("{time:?} is no time in milliseconds"));
    }
    if let Some(more) = words.next() {
        return Err(format!("{more:?} comes after the number and its time"));
    }
    Ok(Sample { name, labels, value })
}

/// Reads labels up to their closing brace; returns what comes after it.
#[expect(clippy::type_complexity, reason = "a pair of two short lists")]
fn read_labels(mut rest: &str) -> Result<(Vec<(&str, String)>, &str), String> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (name, after) = rest.split_once('=').ok_or("the labels do not end")?;
        let name = name.trim();
        if !is_name(name) || name.contains(':') {
            return Err(format!("{name:?} is no name of a label"));
        }
        let quoted = after.trim_start().strip_prefix('"').ok_or("a label's value is not in quotes")?;
        let (value, after) = read_quoted(quoted)?;
        labels.push((name, value));
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else if !rest.starts_with('}') {
            return Err("there is no comma between two labels".to_owned());
        }
    }
}

/// Reads a label's value up to its closing quote; returns what comes after it.
fn read_quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, kept @ ('\\' | '"'))) => value.push(kept),
                _ => return Err("a backslash in a label's value escapes nothing".to_owned()),
            },
            other => value.push(other),
        }
    }
    Err("a label's value does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_not_of_the_format_are_named() {
        for (text, due) in [
            ("percolator_paused", "line 1: a metric has no value"),
            ("\n9x 1", "line 2: \"9x\" is no name of a metric"),
            ("x{a=\"b\" 1", "line 1: there is no comma between two labels"),
            ("x{a=b} 1", "line 1: a label's value is not in quotes"),
            ("x{a=\"b} 1", "line 1: a label's value does not end"),
            ("x{a=\"\\t\"} 1", "line 1: a backslash in a label's value escapes nothing"),
            ("x{:=\"b\"} 1", "line 1: \":\" is no name of a label"),
            ("x{a", "line 1: the labels do not end"),
            ("x one", "line 1: \"one\" is no number"),
            ("x 1 now", "line 1: \"now\" is no time in milliseconds"),
            ("x 1 2 3", "line 1: \"3\" comes after the number and its time"),
            ("percolator_paused -1", "line 1: percolator_paused is \"-1\", which it cannot be"),
            (
                "percolator_records_total{lane=\"4096\"} 1",
                "line 1: percolator_records_total is of the lane \"4096\", which there cannot be",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), due, "{text}");
        }
    }

    #[test]
    fn other_metrics_and_later_labels_are_passed_over() {
        let text = "# TYPE go_threads gauge\ngo_threads 7\nx{a=\"\\\"\\\\\\n\", b=\"\",} +Inf 12\n\
                    percolator_reader_waits_total{feed=\"a\",on=\"the future\"} 3\n\
                    percolator_reader_records_total{feed=\"a\"} 1e3\n";
        let feeds = parse(text).unwrap();
        assert_eq!(feeds.len(), 1);
        assert_eq!((&*feeds[0].0, feeds[0].1.stats.reader.records), ("a", 1000));
    }
}
