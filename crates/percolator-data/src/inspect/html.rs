//! A data set's report as one HTML file that needs nothing else: no network, no scripts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percolator_files::shown::count;

use super::pictures::{Pixels, ShownPicture};
use super::report::{LabelCount, Labels, Report};
use super::text::{IN_PAGE, listed};

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
svg { display: block; width: 100%; height: 11rem; } rect { fill: var(--bar); }
.scale { display: flex; justify-content: space-between; color: var(--faint); font-size: .85rem;
  border-top: 1px solid var(--line); }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .3rem;
  font: 14px/1.45 ui-monospace, monospace; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: .75rem; }
figure { margin: 0; } figure img { display: block; max-width: 100%; image-rendering: pixelated; }
figcaption { font-size: .8rem; overflow-wrap: anywhere; }
";

/// Makes the report's page, with these pictures. One that cannot be encoded is named instead.
#[must_use]
pub fn html(report: &Report, pictures: &[ShownPicture]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    let title = escaped(&report.path);
    let _ = writeln!(page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    let _ = writeln!(page, "<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>");
    let _ = writeln!(page, "<pre id=\"report\">{}</pre>", escaped(&listed(report, IN_PAGE)));
    sizes(report, &mut page);
    labels(report, &mut page);
    shown(pictures, &mut page);
    page + "</html>\n"
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

/// The chart of the labels, if there are several.
fn labels(report: &Report, page: &mut String) {
    let Some(Labels { counts, .. }) = &report.labels else { return };
    let [first, .., last] = &counts[..] else { return };
    let _ = writeln!(page, "<h2>Labels</h2>");
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
