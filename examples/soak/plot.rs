//! The three gauges over time, as an SVG.

use std::fmt::Write as _;

use crate::gauges::{GAUGES, Gauge, Sample, Usage};

/// All lengths are in pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 64.0;
const HEIGHT: f64 = 96.0;
const GAP: f64 = 44.0;
/// The most points of a line.
const POINTS: usize = 360;

/// The colours of a light and of a dark page.
const STYLE: &str = "\
svg { font: 13px system-ui, sans-serif } .page { fill: #ffffff } text { fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 } .faint { fill: #59636e }
.rest { stroke: #2f74c0; stroke-width: 2; fill: none } .peak { stroke: #c2541d; stroke-width: 1; fill: none }
.axis { stroke: #d0d7de; stroke-width: 1 } .blue { fill: #2f74c0 } .red { fill: #c2541d }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .axis { stroke: #30363d }
.rest { stroke: #58a6ff } .peak { stroke: #f0883e } .blue { fill: #58a6ff } .red { fill: #f0883e }
}";

/// Draws what was used at rest between the rounds, and the most in each of them.
pub(crate) fn draw(samples: &[Sample], title: &str) -> String {
    let mut body = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(body, "<text class=\"title\" x=\"{LEFT}\" y=\"26\">{title}</text>");
    let _ = writeln!(
        body,
        "<text class=\"blue\" x=\"{}\" y=\"26\" text-anchor=\"end\">between rounds</text>\
         <text class=\"red\" x=\"{RIGHT}\" y=\"26\" text-anchor=\"end\">the most in a round</text>",
        RIGHT - 136.0
    );
    let mut top = TOP;
    for gauge in &GAUGES {
        let _ = panel(&mut body, top, gauge, samples);
        top += HEIGHT + GAP;
    }
    let minutes = samples.last().map_or(0.0, |sample| sample.minutes);
    let y = top - GAP + 18.0;
    let _ = writeln!(body, "<text class=\"faint\" x=\"{LEFT}\" y=\"{y}\">0</text>");
    let _ = writeln!(
        body,
        "<text class=\"faint\" x=\"{RIGHT}\" y=\"{y}\" text-anchor=\"end\">{minutes:.1} minutes</text>"
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" \
         viewBox=\"0 0 {WIDTH} {top}\">\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    )
}

fn panel(out: &mut String, top: f64, gauge: &Gauge, samples: &[Sample]) -> std::fmt::Result {
    let most = samples.iter().map(|sample| (gauge.of)(&sample.peak)).fold(1.0, f64::max) * 1.1;
    let minutes = samples.last().map_or(1.0, |sample| sample.minutes).max(f64::MIN_POSITIVE);
    let x = |at: f64| LEFT + (RIGHT - LEFT) * at / minutes;
    let y = |value: f64| top + HEIGHT * (1.0 - value / most);
    for value in [0.0, most / 1.1] {
        let at = y(value);
        writeln!(out, "<path class=\"axis\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>")?;
        writeln!(
            out,
            "<text class=\"faint\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            LEFT - 8.0,
            at + 4.0
        )?;
    }
    let unit = if gauge.unit.is_empty() { String::new() } else { format!(", {}", gauge.unit) };
    writeln!(out, "<text x=\"{LEFT}\" y=\"{:.1}\">{}{unit}</text>", top - 6.0, gauge.name)?;
    let each = samples.len().div_ceil(POINTS).max(1);
    for (class, of) in [("peak", peak as fn(&[Sample]) -> Usage), ("rest", at_rest)] {
        write!(out, "<path class=\"{class}\" d=\"")?;
        for (number, together) in samples.chunks(each).enumerate() {
            let command = if number == 0 { 'M' } else { 'L' };
            let (at, value) = (together[together.len() - 1].minutes, (gauge.of)(&of(together)));
            write!(out, "{command}{:.1} {:.1}", x(at), y(value))?;
        }
        writeln!(out, "\"/>")?;
    }
    Ok(())
}

fn peak(samples: &[Sample]) -> Usage {
    samples.iter().fold(Usage::default(), |most, sample| most.max(sample.peak))
}

fn at_rest(samples: &[Sample]) -> Usage {
    samples.iter().fold(Usage::default(), |most, sample| most.max(sample.at_rest))
}
