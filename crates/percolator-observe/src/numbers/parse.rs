//! Reads Prometheus's text format: the numbers of feeds, among everything else that a program publishes.

use std::collections::HashMap;

use super::Numbers;
use super::family::{FAMILIES, Number, Of};

/// What a text may have at the most: far more than any program publishes, and little enough that no text
/// makes its reader's memory grow to many times its own length.
const FEEDS_MAX: usize = 1024;
/// The lanes of all feeds together.
const LANES_MAX: usize = 4096;
/// The holders of memory of one feed.
const HOLDERS_MAX: usize = 256;
/// The bytes of a line.
const LINE_MAX: usize = 16 << 10;
/// The most letters of a line that a message repeats.
const SAID_MAX: usize = 80;

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
/// they come. Other metrics are skipped. Numbers of holders with the same name are added up.
///
/// # Errors
///
/// [`ParseError`] names the first line that is not in that format, or has an impossible number; or with which
/// there are more feeds, lanes or holders of memory than any program has.
pub fn parse(text: &str) -> Result<Vec<(String, Numbers)>, ParseError> {
    let mut found = Found::default();
    for (position, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        found.line(line).map_err(|message| ParseError { line: position + 1, message })?;
    }
    Ok(found.feeds)
}

/// What the lines until now have said.
#[derive(Debug, Default)]
struct Found {
    feeds: Vec<(String, Numbers)>,
    /// The position of each feed, by its name.
    places: HashMap<String, usize>,
    /// The lanes of all feeds.
    lanes: usize,
}

impl Found {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.len() > LINE_MAX {
            return Err(format!("it has {} bytes; a line has {LINE_MAX} at the most", line.len()));
        }
        let sample = sample(line)?;
        let Some(family) = FAMILIES.iter().find(|family| family.name == sample.name) else { return Ok(()) };
        let feed = self.feed(sample.label("feed").unwrap_or_default())?;
        // A label that this version does not know: a later one's.
        let Some(series) = family.series.iter().find(|series| match series.label {
            Some((label, value)) => sample.label(label) == Some(value),
            None => true,
        }) else {
            return Ok(());
        };
        self.take(feed, series.of, &sample)
    }

    /// The position of the feed of this name, which is there then.
    fn feed(&mut self, name: &str) -> Result<usize, String> {
        if let Some(&known) = self.places.get(name) {
            return Ok(known);
        }
        if self.feeds.len() == FEEDS_MAX {
            return Err(format!("there are more than {FEEDS_MAX} feeds"));
        }
        self.places.insert(name.to_owned(), self.feeds.len());
        self.feeds.push((name.to_owned(), Numbers::default()));
        Ok(self.feeds.len() - 1)
    }

    /// Takes one number of a feed.
    fn take(&mut self, feed: usize, of: Of, sample: &Sample<'_>) -> Result<(), String> {
        let is_read = match of {
            Of::Feed(number) => number(&mut self.feeds[feed].1).read(sample.value),
            Of::Lane(number) => {
                let lane = self.lane(feed, sample)?;
                number(&mut self.feeds[feed].1.stats.lanes[lane]).read(sample.value)
            }
            Of::Step(number) => {
                let lane = self.lane(feed, sample)?;
                number(&mut self.feeds[feed].1.next[lane]).read(sample.value)
            }
            Of::Budget => {
                let mut bytes = 0;
                let is_read = Number::Count(&mut bytes).read(sample.value);
                add_holder(&mut self.feeds[feed].1, sample.label("holder").unwrap_or_default(), bytes)?;
                is_read
            }
        };
        match is_read {
            true => Ok(()),
            false => Err(format!("{} is {}, which it cannot be", sample.name, said(sample.value))),
        }
    }

    /// The lane of a number, for which there is room then.
    fn lane(&mut self, feed: usize, sample: &Sample<'_>) -> Result<usize, String> {
        let text = sample.label("lane").unwrap_or_default();
        let numbers = &mut self.feeds[feed].1;
        let known = numbers.stats.lanes.len();
        let room = LANES_MAX - self.lanes + known;
        let lane: usize = text.parse().ok().filter(|lane| *lane < room).ok_or_else(|| {
            format!(
                "{} is of the lane {}, which there cannot be: all feeds together have {LANES_MAX} lanes at \
                 the most",
                sample.name,
                said(text)
            )
        })?;
        if lane >= known {
            self.lanes += lane + 1 - known;
            numbers.stats.lanes.resize_with(lane + 1, Default::default);
            numbers.next.resize_with(lane + 1, Default::default);
        }
        if let Some(device) = sample.label("device") {
            device.clone_into(&mut numbers.stats.lanes[lane].device);
        }
        Ok(lane)
    }
}

fn add_holder(numbers: &mut Numbers, holder: &str, bytes: u64) -> Result<(), String> {
    if let Some((_, sum)) = numbers.budget.iter_mut().find(|(known, _)| known == holder) {
        *sum = sum.saturating_add(bytes);
        return Ok(());
    }
    if numbers.budget.len() == HOLDERS_MAX {
        return Err(format!("a feed's memory has more than {HOLDERS_MAX} holders"));
    }
    numbers.budget.push((holder.to_owned(), bytes));
    Ok(())
}

/// A part of the text, quoted, as much of it as a message needs.
fn said(text: &str) -> String {
    match text.char_indices().nth(SAID_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
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
        return Err(format!("{} is not the name of a metric", said(name)));
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        (labels, rest) = read_labels(inside)?;
    }
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().ok_or("a metric has no value")?;
    // Its spellings of what is not finite are also Rust's.
    if value.parse::<f64>().is_err() {
        return Err(format!("{} is not a number", said(value)));
    }
    if let Some(time) = words.next()
        && time.parse::<i64>().is_err()
    {
        return Err(format!("{} is not a time in milliseconds", said(time)));
    }
    if let Some(more) = words.next() {
        return Err(format!("{} comes after the number and its time", said(more)));
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
            return Err(format!("{} is not the name of a label", said(name)));
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
            ("\n9x 1", "line 2: \"9x\" is not the name of a metric"),
            ("x{a=\"b\" 1", "line 1: there is no comma between two labels"),
            ("x{a=b} 1", "line 1: a label's value is not in quotes"),
            ("x{a=\"b} 1", "line 1: a label's value does not end"),
            ("x{a=\"\\t\"} 1", "line 1: a backslash in a label's value escapes nothing"),
            ("x{:=\"b\"} 1", "line 1: \":\" is not the name of a label"),
            ("x{a", "line 1: the labels do not end"),
            ("x one", "line 1: \"one\" is not a number"),
            ("x 1 now", "line 1: \"now\" is not a time in milliseconds"),
            ("x 1 2 3", "line 1: \"3\" comes after the number and its time"),
            ("percolator_paused -1", "line 1: percolator_paused is \"-1\", which it cannot be"),
            (
                "percolator_records_total{lane=\"4096\"} 1",
                "line 1: percolator_records_total is of the lane \"4096\", which there cannot be: all feeds \
                 together have 4096 lanes at the most",
            ),
            (
                "percolator_reader_waits_seconds_total{on=\"free\"} 1e19",
                "line 1: percolator_reader_waits_seconds_total is \"1e19\", which it cannot be",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), due, "{text}");
        }
    }

    #[test]
    fn a_text_of_any_length_is_read_in_little_memory() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        // Each feed has as many lanes as there may be of all.
        let lanes: String = (0..1000)
            .map(|feed| format!("percolator_records_total{{feed=\"{feed}\",lane=\"4095\"}} 1\n"))
            .collect();
        assert!(refused(&lanes).starts_with("line 2: percolator_records_total is of the lane \"4095\""));
        let in_turn = "percolator_records_total{lane=\"4095\"} 1\npercolator_next_step{lane=\"7\"} 1\n";
        assert_eq!(parse(in_turn).unwrap()[0].1.next.len(), 4096, "what is there costs nothing");
        let feeds: String =
            (0..1025).map(|feed| format!("percolator_paused{{feed=\"{feed}\"}} 0\n")).collect();
        assert_eq!(refused(&feeds), "line 1025: there are more than 1024 feeds");
        let holders: String =
            (0..257).map(|of| format!("percolator_memory_budget_bytes{{holder=\"{of}\"}} 1\n")).collect();
        assert_eq!(refused(&holders), "line 257: a feed's memory has more than 256 holders");
        let twice = "percolator_memory_budget_bytes{holder=\"a\"} 1e18\n".repeat(100);
        assert_eq!(parse(&twice).unwrap()[0].1.budget, [("a".to_owned(), u64::MAX)]);
        let long = "x".repeat(1 << 20);
        assert_eq!(refused(&long), "line 1: it has 1048576 bytes; a line has 16384 at the most");
        assert!(refused(&format!("x {}", &long[..9000])).len() < 200, "a message is short");
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
