//! Draws the jobs as a self-contained SVG: the activity of each stage over time, and the share of each limit.

use std::fmt::Write as _;

use percolator_measure::Timeline;

use super::measure::Measured;
use super::report::{described, grouped};

/// All lengths are in pixels.
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 24.0;
/// Where the bars begin, to the right of their names.
const LEFT: f64 = 260.0;
const RIGHT: f64 = WIDTH - 90.0;
const ROW: f64 = 34.0;
const BAR: f64 = 26.0;
const HEAD: f64 = 64.0;
const GAP: f64 = 46.0;

/// The colours of a light and of a dark page.
const STYLE: &str = "\
svg { font: 13px system-ui, sans-serif } rect { shape-rendering: crispEdges } .page { fill: #ffffff }
text { fill: #1f2328 } .title { font-size: 17px; font-weight: 600 } .faint { fill: #59636e }
.work { fill: #2f74c0 } .bar { fill: #8a94a0 } .binds { fill: #c2541d } .back { fill: #eaeef2 }
.axis { stroke: #59636e; stroke-width: 1 } .goal { stroke: #1a7f37; stroke-width: 2; stroke-dasharray: 5 3 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 }
.work { fill: #58a6ff } .bar { fill: #6e7681 } .binds { fill: #f0883e } .back { fill: #21262d }
.axis { stroke: #9198a1 } .goal { stroke: #3fb950 }
}";

/// Draws the jobs one below the other, each with a line where `goal` of a limit is reached.
pub(super) fn draw(jobs: &[Measured], goal: f64) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    for job in jobs {
        // Writing to a string cannot fail.
        let _ = draw_job(&mut body, &mut top, job, goal);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top:.0}\" \
         viewBox=\"0 0 {WIDTH} {top:.0}\">\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    )
}

fn draw_job(out: &mut String, top: &mut f64, job: &Measured, goal: f64) -> std::fmt::Result {
    let f = &job.figures;
    text(out, MARGIN, *top + 16.0, "title", &f.job)?;
    let rate = grouped(f.records_per_s.median);
    let said = format!(
        "{rate} records/s, {:.2} GB/s; {} on {}; {} worker(s)",
        f.output_gb_s,
        f.batch_shape,
        f.devices.join(", "),
        f.threads
    );
    text(out, MARGIN, *top + 38.0, "faint", &said)?;
    *top += HEAD;
    draw_timeline(out, top, &job.timeline)?;
    draw_shares(out, top, job, goal)
}

/// Draws a row per stage: the share of each time slice in which the stage was at work.
fn draw_timeline(out: &mut String, top: &mut f64, timeline: &Timeline) -> std::fmt::Result {
    let end = timeline.slices.last().map_or(0.0, |slice| slice.end).max(f64::MIN_POSITIVE);
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / end;
    text(out, LEFT, *top - 4.0, "faint", "at work, in the last round, from build() on")?;
    for (number, stage) in timeline.stages.iter().enumerate() {
        let height = ROW - 8.0;
        let name = if number < 2 { stage.clone() } else { format!("consumer {stage}") };
        text(out, MARGIN, *top + 18.0, "", &name)?;
        rect(out, "back", LEFT, *top, RIGHT - LEFT, height, &name)?;
        for slice in &timeline.slices {
            let share = slice.at_work.get(number).copied().unwrap_or(0.0);
            let said = format!("{:.2} s: {:.0} %", slice.start, share * 100.0);
            let (left, tall) = (x(slice.start), height * share);
            rect(out, "work", left, *top + height - tall, x(slice.end) - left, tall, &said)?;
        }
        *top += ROW;
    }
    text(out, LEFT, *top + 8.0, "faint", "0 s")?;
    text(out, RIGHT - 40.0, *top + 8.0, "faint", &format!("{end:.2} s"))?;
    *top += GAP;
    Ok(())
}

/// Draws a bar per limit, and the line of the goal.
fn draw_shares(out: &mut String, top: &mut f64, job: &Measured, goal: f64) -> std::fmt::Result {
    let f = &job.figures;
    let most = f.share_of.values().copied().fold(1.0_f64.max(goal), f64::max) * 1.05;
    let x = |share: f64| LEFT + (RIGHT - LEFT) * share / most;
    text(out, LEFT, *top - 6.0, "faint", &format!("share of each limit; goal {:.0} %", goal * 100.0))?;
    let start = *top;
    for (&limit, &share) in &f.share_of {
        let (name, most) = described(limit, f);
        text(out, MARGIN, *top + 15.0, "", &name)?;
        let class = if limit == f.binds { "binds" } else { "bar" };
        rect(out, class, LEFT, *top, x(share) - LEFT, BAR - 8.0, &format!("{name}: {most}"))?;
        text(out, x(share) + 6.0, *top + 14.0, "", &format!("{:.0} %", share * 100.0))?;
        *top += BAR;
    }
    line(out, "axis", x(1.0), start, *top)?;
    line(out, "goal", x(goal), start, *top)?;
    *top += GAP;
    Ok(())
}

fn text(out: &mut String, x: f64, y: f64, class: &str, said: &str) -> std::fmt::Result {
    writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(said))
}

/// Writes a rectangle with a tooltip.
fn rect(
    out: &mut String,
    class: &str,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    said: &str,
) -> std::fmt::Result {
    let said = escaped(said);
    writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\">\
         <title>{said}</title></rect>"
    )
}

fn line(out: &mut String, class: &str, x: f64, from: f64, to: f64) -> std::fmt::Result {
    writeln!(out, "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{from:.1}\" x2=\"{x:.1}\" y2=\"{to:.1}\"/>")
}

/// Escapes a text for XML: a job may have any name. Control characters are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}
