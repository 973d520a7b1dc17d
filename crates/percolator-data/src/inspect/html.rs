//! A data set's report as one HTML file that needs nothing else: no network, no scripts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percolator_files::shown::count;

use super::duplicates::Duplicates;
use super::pictures::{Pixels, ShownPicture};
use super::report::{LabelCount, Report};

/// The most bars of a chart. With more labels, neighbours share a bar.
const BARS_MAX: usize = 400;

/// Colours that read well by day and by night, and a page that reads well on a telephone.
const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fcfcfb; --ink: #1d2126; --faint: #626a73; --line: #dcdfe3;
  --bar: #3569b0; --bad: #b3372f; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e6e8ea; --faint: #9aa3ad;
  --line: #32383f; --bar: #6ea3ea; --bad: #ef8279; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; border-bottom: 1px solid var(--line); }
p { margin: .4rem 0; } .faint { color: var(--faint); } .bad { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: .75rem 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15rem 1.25rem .15rem 0; text-align: left; font-weight: normal; }
th { color: var(--faint); } td.number, th.number { text-align: right; }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; height: 11rem; } rect { fill: var(--bar); }
.scale { display: flex; justify-content: space-between; color: var(--faint); font-size: .85rem;
  border-top: 1px solid var(--line); }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .3rem;
  font: 14px/1.45 ui-monospace, monospace; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: .75rem; }
figure { margin: 0; } figure img { display: block; max-width: 100%; image-rendering: pixelated; }
figcaption { font-size: .8rem; overflow-wrap: anywhere; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; } }
";

/// Makes the report's page, with these pictures. One that cannot be encoded is named instead.
#[must_use]
pub fn html(report: &Report, pictures: &[ShownPicture]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    let title = escaped(&report.path);
    let _ = writeln!(page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    let _ = writeln!(page, "<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>");
    facts(report, &mut page);
    sizes(report, &mut page);
    images(report, &mut page);
    labels(report, &mut page);
    features(report, &mut page);
    duplicates(report, &mut page);
    let _ = writeln!(page, "<h2>For a net</h2>\n<pre id=\"net\">{}</pre>", escaped(&report.net));
    shown(pictures, &mut page);
    page + "</html>\n"
}

fn facts(report: &Report, page: &mut String) {
    let looked = match report.looked_at == report.records {
        true => "all of them were looked at".to_owned(),
        false => format!("{} of them, evenly spread, were looked at", report.looked_at),
    };
    let _ = writeln!(page, "<dl id=\"facts\">");
    let mut fact = |name: &str, value: &str| {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
    };
    fact("Kind", &format!("{} of {}", report.kind, report.content));
    if report.files > 1 {
        fact("Files", &report.files.to_string());
    }
    fact("Records", &format!("{}; {looked}", report.records));
    fact("Bytes", &format!("{} of files, {} of values looked at", report.file_bytes, report.sizes.total));
    if let Some(keys) = &report.keys {
        fact("Keys", &format!("{}, from {} to {}", keys.pattern, keys.first, keys.last));
    }
    let _ = writeln!(page, "</dl>");
    if let Some(first) = &report.first_damaged {
        let damaged = match report.damaged {
            1 => "1 record is damaged".to_owned(),
            damaged => format!("{damaged} records are damaged"),
        };
        let _ =
            writeln!(page, "<p class=\"bad\" id=\"damaged\">{}. The first: {}</p>", damaged, escaped(first));
    }
}

/// A bar: how high it is, and what it says when it is pointed at.
struct Bar {
    height: u64,
    says: String,
}

/// Bars from left to right, and what is written below their ends.
fn chart(id: &str, bars: &[Bar], [left, right]: [&str; 2], page: &mut String) {
    let highest = bars.iter().map(|bar| bar.height).max().unwrap_or(0).max(1);
    let _ = writeln!(
        page,
        "<svg id=\"{id}\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\">",
        10 * bars.len()
    );
    for (place, bar) in bars.iter().enumerate() {
        // A bar that is not empty is seen.
        let height = match bar.height {
            0 => 0.0,
            #[expect(clippy::cast_precision_loss, reason = "it is a height on a screen")]
            height => (100.0 * height as f64 / highest as f64).max(0.5),
        };
        let (x, width) = if bars.len() > 100 { (10 * place, 10) } else { (10 * place + 1, 8) };
        let _ = writeln!(
            page,
            "<rect x=\"{x}\" y=\"{:.2}\" width=\"{width}\" height=\"{height:.2}\"><title>{}</title></rect>",
            100.0 - height,
            escaped(&bar.says)
        );
    }
    let _ = writeln!(
        page,
        "</svg>\n<div class=\"scale\"><span>{}</span><span>{}</span></div>",
        escaped(left),
        escaped(right)
    );
}

fn sizes(report: &Report, page: &mut String) {
    let sizes = &report.sizes;
    if sizes.histogram.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>Sizes of the values</h2>");
    let bar = |size: &super::SizeCount| Bar {
        height: size.records,
        says: format!("{} to {} bytes: {}", size.below / 2, size.below - 1, count(size.records, "record")),
    };
    let bars: Vec<Bar> = sizes.histogram.iter().map(bar).collect();
    let ends = [format!("{} bytes", sizes.min), format!("{} bytes", sizes.max)];
    chart("sizes", &bars, [&ends[0], &ends[1]], page);
}

fn images(report: &Report, page: &mut String) {
    /// The most shapes that the page lists.
    const ROWS_MAX: usize = 20;

    if report.shapes.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>Images</h2>\n<div class=\"wide\"><table id=\"encodings\">");
    let _ = writeln!(page, "<tr><th>stored as</th><th class=\"number\">records</th></tr>");
    for count in &report.encodings {
        let _ =
            writeln!(page, "<tr><td>{}</td><td class=\"number\">{}</td></tr>", count.encoding, count.records);
    }
    let _ = writeln!(page, "</table>\n<table id=\"shapes\">");
    let _ = writeln!(page, "<tr><th>channels, rows, columns</th><th class=\"number\">records</th></tr>");
    for count in report.shapes.iter().take(ROWS_MAX) {
        let _ =
            writeln!(page, "<tr><td>{}</td><td class=\"number\">{}</td></tr>", count.shape, count.records);
    }
    let _ = writeln!(page, "</table></div>");
    let more = report.shapes.len().saturating_sub(ROWS_MAX);
    if more > 0 {
        let _ = writeln!(page, "<p class=\"faint\">and {more} more shapes</p>");
    }
    if report.other_shapes > 0 {
        let others = report.other_shapes;
        let _ = writeln!(page, "<p class=\"faint\">and {others} images of yet other shapes</p>");
    }
}

fn labels(report: &Report, page: &mut String) {
    let Some(labels) = &report.labels else { return };
    let _ = writeln!(page, "<h2>Labels</h2>");
    let without = match labels.without {
        0 => String::new(),
        1 => " 1 record has no label.".to_owned(),
        without => format!(" {without} records have no label."),
    };
    let counts = &labels.counts[..];
    let [first, .., last] = counts else {
        if let [only] = counts {
            let _ = writeln!(page, "<p id=\"labels\">All are {}.{without}</p>", only.label);
        }
        return;
    };
    let (least, most) = counts
        .iter()
        .fold((u64::MAX, 0), |(least, most), count| (count.records.min(least), count.records.max(most)));
    let _ = writeln!(
        page,
        "<p>{} labels from {} to {}, with {least} to {most} records each.{without}</p>",
        counts.len(),
        first.label,
        last.label
    );
    if labels.others > 0 {
        let _ = writeln!(
            page,
            "<p class=\"faint\">and {} of yet other labels</p>",
            count(labels.others, "record")
        );
    }
    let together = counts.len().div_ceil(BARS_MAX);
    let bars: Vec<Bar> = counts.chunks(together).map(bar_of).collect();
    chart("labels", &bars, [&first.label.to_string(), &last.label.to_string()], page);
    if together > 1 {
        let _ = writeln!(page, "<p class=\"faint\">Each bar is the most frequent of {together} labels.</p>");
    }
}

fn bar_of(counts: &[LabelCount]) -> Bar {
    let most = counts.iter().max_by_key(|count| count.records);
    let (label, height) = most.map_or((0, 0), |count| (count.label, count.records));
    Bar { height, says: format!("label {label}: {}", count(height, "record")) }
}

fn features(report: &Report, page: &mut String) {
    if report.features.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>Features</h2>\n<div class=\"wide\"><table id=\"features\">");
    let _ =
        writeln!(page, "<tr><th>name</th><th>kind</th><th>values</th><th class=\"number\">records</th></tr>");
    for feature in &report.features {
        let values = match feature.values_min == feature.values_max {
            true => feature.values_max.to_string(),
            false => format!("{} to {}", feature.values_min, feature.values_max),
        };
        let (name, kinds, records) = (escaped(&feature.name), feature.kinds.join(", "), feature.records);
        let _ = writeln!(
            page,
            "<tr><td>{name}</td><td>{kinds}</td><td>{values}</td><td class=\"number\">{records}</td></tr>"
        );
    }
    let _ = writeln!(page, "</table></div>");
    if report.other_features > 0 {
        let (others, listed) = (report.other_features, report.features.len());
        let said = format!("{others} more occurrences of features beyond the {listed} listed");
        let _ = writeln!(page, "<p class=\"faint\">{said}</p>");
    }
}

fn duplicates(report: &Report, page: &mut String) {
    if report.same_values.is_none() && report.same_pixels.is_none() {
        return;
    }
    let _ = writeln!(page, "<h2>Duplicates</h2>");
    for (what, found) in [("values", &report.same_values), ("pixels", &report.same_pixels)] {
        let Some(found) = found else { continue };
        let _ = writeln!(page, "<p id=\"same-{what}\">{}</p>", escaped(&duplicates_text(what, found)));
        for group in &found.listed {
            let records: Vec<String> = group.records.iter().map(|number| format!("#{number}")).collect();
            let more = group.count - group.records.len() as u64;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let labels = if group.labels_differ { ": their labels differ" } else { "" };
            let _ = writeln!(page, "<p class=\"faint\">{}{more}{labels}</p>", records.join(" "));
        }
        let more = found.groups - found.listed.len() as u64;
        if more > 0 {
            let _ = writeln!(page, "<p class=\"faint\">and {more} more groups</p>");
        }
    }
}

/// What is said of duplicates, in one line.
pub(crate) fn duplicates_text(what: &str, found: &Duplicates) -> String {
    let Duplicates { compared, groups, superfluous, groups_with_labels_that_differ, .. } = found;
    match groups {
        0 => format!("no {what} come twice among {}", count(*compared, "record")),
        _ => format!(
            "{superfluous} of {} have {what} that an earlier record has ({}, \
             {groups_with_labels_that_differ} of them with different labels)",
            count(*compared, "record"),
            count(*groups, "group")
        ),
    }
}

fn shown(pictures: &[ShownPicture], page: &mut String) {
    if pictures.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>Pictures</h2>\n<div class=\"pictures\" id=\"pictures\">");
    for picture in pictures {
        let label = picture.label.map(|label| format!("label {label}")).unwrap_or_default();
        let key = escaped(&super::key_text(&picture.key));
        let number = picture.number;
        let png = |pixels: &Pixels| pixels.to_png().map_err(|error| error.to_string());
        let png = picture
            .pixels
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|pixels| pixels.as_ref().map(png).transpose());
        let _ = writeln!(page, "<figure>");
        let _ = match png {
            Ok(None) => writeln!(page, "<p class=\"faint\">no image</p>"),
            Ok(Some(png)) => writeln!(
                page,
                "<img alt=\"record {number} {label}\" src=\"data:image/png;base64,{}\">",
                BASE64.encode(png)
            ),
            Err(cause) => writeln!(page, "<p class=\"bad\">{}</p>", escaped(&cause)),
        };
        let _ = writeln!(
            page,
            "<figcaption>{label} <span class=\"faint\">#{number} {key}</span></figcaption></figure>"
        );
    }
    let _ = writeln!(page, "</div>");
}

/// Text for HTML, also within quotes. Control characters, which no terminal nor page should get, are dropped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' => escaped.push('\n'),
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_text() {
        assert_eq!(
            escaped("<a href='x'>\"&\"</a>\x1b"),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;&lt;/a&gt;\u{fffd}"
        );
    }

    #[test]
    fn bars_are_as_high_as_their_counts() {
        let bars: Vec<Bar> = [0, 1, 4].map(|height| Bar { height, says: format!("{height}") }).into();
        let mut page = String::new();
        chart("x", &bars, ["a", "b"], &mut page);
        assert!(page.contains("height=\"0.00\"") && page.contains("height=\"25.00\""), "{page}");
        assert!(page.contains("y=\"0.00\" width=\"8\" height=\"100.00\""), "{page}");
    }
}
