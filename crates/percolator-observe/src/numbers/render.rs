//! Writes Prometheus's text format.

use std::fmt::Write as _;

use super::family::{FAMILIES, visit};
use super::{Labels, Numbers};

/// Returns the numbers of several feeds, each with its name, in Prometheus's text format (version 0.0.4). Of
/// feeds with the same name, the last one counts: Prometheus refuses a text that has a number twice.
#[must_use]
pub fn render(feeds: &[(String, Numbers)]) -> String {
    let mut samples = vec![String::new(); FAMILIES.len()];
    for (position, (feed, numbers)) in feeds.iter().enumerate() {
        if feeds[position + 1..].iter().any(|(later, _)| later == feed) {
            continue;
        }
        visit(numbers, |family, labels, number| {
            let Some(place) = FAMILIES.iter().position(|known| known.name == family.name) else { return };
            let text = &mut samples[place];
            text.push_str(family.name);
            push_labels(text, feed, labels);
            // A write to a `String` does not fail.
            let _ = writeln!(text, " {}", number.text());
        });
    }
    let mut text = String::new();
    for (family, samples) in FAMILIES.iter().zip(samples).filter(|(_, samples)| !samples.is_empty()) {
        let help = family.help.replace('\\', r"\\").replace('\n', r"\n");
        let _ = write!(text, "# HELP {0} {help}\n# TYPE {0} {1}\n", family.name, family.kind.name());
        text.push_str(&samples);
    }
    text
}

fn push_labels(text: &mut String, feed: &str, labels: &Labels) {
    let pairs = std::iter::once(("feed", feed.to_owned())).chain(labels.pairs());
    for (position, (name, value)) in pairs.enumerate() {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let before = if position == 0 { '{' } else { ',' };
        let _ = write!(text, "{before}{name}=\"{value}\"");
    }
    text.push('}');
}
