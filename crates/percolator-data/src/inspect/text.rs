//! A report as lines of text. What a list leaves out is counted at its end.

use std::fmt::{Result, Write as _};

use percolator_files::shown::{self, count};

use super::duplicates::Duplicates;
use super::report::{LabelCount, Labels, Report};
use crate::content::Content;

/// The most lines for labels.
const LABELS_MAX: usize = 20;
/// The longest bar.
const BAR: u64 = 20;

/// The most that is listed of shapes, of groups of duplicates, and of the records of such a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    shapes: usize,
    groups: usize,
    members: usize,
}

const IN_TEXT: Most = Most { shapes: 8, groups: 5, members: 8 };
/// A page has more room.
pub(super) const IN_PAGE: Most = Most { shapes: 20, groups: 20, members: 20 };

/// What is said of raw images in another order than a Datum's.
pub const INTERLEAVED: &str = "they look scrambled: as if each pixel's channels lay side by side \
     (HxWxC, what tobytes of an image stores), and a Datum has them channel by channel (CxHxW): write them \
     transposed";

/// Returns the report as lines of text.
#[must_use]
pub fn text(report: &Report) -> String {
    listed(report, IN_TEXT)
}

/// The same, with lists of such lengths.
pub(super) fn listed(report: &Report, most: Most) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(report, most, &mut text);
    text
}

fn write(report: &Report, most: Most, out: &mut String) -> Result {
    writeln!(out, "{}: {} of {}", shown::message(&report.path), report.kind, report.content)?;
    if report.files > 1 {
        writeln!(out, "  files      {}", report.files)?;
    }
    writeln!(out, "  records    {}", report.records)?;
    if report.looked_at != report.records {
        writeln!(out, "  looked at  {}, evenly spread", report.looked_at)?;
    }
    writeln!(out, "  bytes      {} of files", report.file_bytes)?;
    if report.records == 0 {
        return writeln!(out, "\n{}", report.net.trim_end());
    }
    let sizes = &report.sizes;
    writeln!(out, "  values     {} bytes, {} to {} each", sizes.total, sizes.min, sizes.max)?;
    if let Some(keys) = &report.keys {
        let order = match keys.are_positions {
            Some(true) => ", the record's position",
            Some(false) => ", not the record's position",
            None => "",
        };
        writeln!(out, "  keys       {}{order}", keys.pattern)?;
        writeln!(out, "             \"{}\" to", shown::message(&keys.first))?;
        writeln!(out, "             \"{}\"", shown::message(&keys.last))?;
    }
    for count in &report.encodings {
        writeln!(out, "  images     {} {}", count.records, count.encoding)?;
    }
    if !report.image_features.is_empty() {
        let names = report.image_features.join(", ");
        writeln!(out, "             in {}", shown::message(&names))?;
    }
    for count in report.shapes.iter().take(most.shapes) {
        writeln!(out, "  shape      {} of {}", count.records, count.shape)?;
    }
    if report.is_interleaved {
        writeln!(out, "             {INTERLEAVED}")?;
    }
    if report.shapes.len() > most.shapes {
        writeln!(out, "             and {} more shapes", report.shapes.len() - most.shapes)?;
    }
    if report.other_shapes > 0 {
        writeln!(out, "             and {} images of other shapes", report.other_shapes)?;
    }
    if let Some(first) = &report.first_damaged {
        writeln!(out, "  damaged    {}; the first: {}", report.damaged, shown::message(first))?;
    }
    write_features(report, out)?;
    if let Some(labels) = &report.labels {
        write_labels(labels, out)?;
    }
    for (what, found) in [("values", &report.same_values), ("pixels", &report.same_pixels)] {
        if let Some(found) = found {
            write_duplicates(what, found, most, out)?;
        }
    }
    writeln!(out, "\n{}", report.net.trim_end())
}

fn write_features(report: &Report, out: &mut String) -> Result {
    for feature in &report.features {
        let (name, kinds) = (shown::message(&feature.name), feature.kinds.join(", "));
        let values = match feature.values_min == feature.values_max {
            true => feature.values_max.to_string(),
            false => format!("{} to {}", feature.values_min, feature.values_max),
        };
        let what = if report.content == Content::Parts { "part   " } else { "feature" };
        let records = count(feature.records, "record");
        writeln!(out, "  {what}    {name}: {kinds}, {values} each, in {records}")?;
    }
    if report.other_features > 0 {
        let (others, listed) = (report.other_features, report.features.len());
        writeln!(out, "             {others} more occurrences of features beyond the {listed} listed")?;
    }
    Ok(())
}

/// A line for each label if they are few; otherwise the most and the least frequent.
fn write_labels(labels: &Labels, out: &mut String) -> Result {
    let counts = &labels.counts;
    let (Some(first), Some(last)) = (counts.first(), counts.last()) else { return Ok(()) };
    writeln!(out, "  labels     {}, from {} to {}", counts.len(), first.label, last.label)?;
    let most = counts.iter().map(|count| count.records).max().unwrap_or(1).max(1);
    let mut line = |count: &LabelCount| {
        let bar = "#".repeat(usize::try_from((count.records * BAR).div_ceil(most)).unwrap_or(0));
        writeln!(out, "  {:>9}  {bar} {}", count.label, count.records)
    };
    if counts.len() <= LABELS_MAX {
        counts.iter().try_for_each(&mut line)?;
    } else {
        let mut sorted: Vec<&LabelCount> = counts.iter().collect();
        sorted.sort_by_key(|count| (std::cmp::Reverse(count.records), count.label));
        let (most, least) = (LABELS_MAX / 2, LABELS_MAX / 4);
        sorted[..most].iter().copied().try_for_each(&mut line)?;
        writeln!(out, "        ...  {} more labels, and the least frequent:", sorted.len() - most - least)?;
        let mut line = |count: &LabelCount| writeln!(out, "  {:>9}  {}", count.label, count.records);
        sorted[sorted.len() - least..].iter().copied().try_for_each(&mut line)?;
    }
    if labels.others > 0 {
        writeln!(out, "             and {} of yet other labels", count(labels.others, "record"))?;
    }
    if labels.without > 0 {
        let have = if labels.without == 1 { "has" } else { "have" };
        writeln!(out, "             {} {have} no label", count(labels.without, "record"))?;
    }
    Ok(())
}

fn write_duplicates(what: &str, found: &Duplicates, most: Most, out: &mut String) -> Result {
    if found.groups == 0 {
        return writeln!(out, "  duplicates no {what} come twice among {}", count(found.compared, "record"));
    }
    writeln!(
        out,
        "  duplicates {} of {} repeat the {what} of another, in {}, {} with different labels",
        found.superfluous,
        count(found.compared, "record"),
        count(found.groups, "group"),
        found.groups_with_labels_that_differ
    )?;
    let listed = &found.listed[..found.listed.len().min(most.groups)];
    for group in listed {
        let records: Vec<String> = group.records.iter().take(most.members).map(u64::to_string).collect();
        let more = match group.count - records.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let labels = if group.labels_differ { " (their labels differ)" } else { "" };
        writeln!(out, "             records {}{more}{labels}", records.join(", "))?;
    }
    let more = found.groups - listed.len() as u64;
    if more > 0 {
        writeln!(out, "             and {more} more groups")?;
    }
    Ok(())
}
