//! The picture, for a terminal of any width: narrow ones leave out what can be derived.

use std::time::Duration;

use percolator::Stats;
use percolator::feed::{Bottleneck, LaneStats};
use percolator_files::shown;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};

use super::History;
use crate::Numbers;

/// From these widths on there is more in a line, and longer bars.
const MEDIUM: u16 = 72;
const WIDE: u16 = 130;

/// The columns of a line's first word.
const LABEL: usize = 9;

/// How much a line may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Narrow,
    Medium,
    Wide,
}

impl Room {
    fn of(width: u16) -> Self {
        match width {
            ..MEDIUM => Room::Narrow,
            MEDIUM..WIDE => Room::Medium,
            WIDE.. => Room::Wide,
        }
    }

    fn bar(self) -> usize {
        match self {
            Room::Narrow => 10,
            Room::Medium => 20,
            Room::Wide => 40,
        }
    }
}

/// What the feed does, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Ended,
    /// It did something else, perhaps, since its numbers were read last.
    NoAnswer,
}

impl State {
    fn of(history: &History, numbers: &Numbers) -> Self {
        match numbers {
            // What is over stays so.
            Numbers { has_ended: true, .. } => State::Ended,
            _ if history.is_stale() => State::NoAnswer,
            Numbers { is_paused: true, .. } => State::Paused,
            _ => State::Running,
        }
    }

    fn word(self) -> (&'static str, Color) {
        match self {
            State::Running => (" RUNNING ", Color::Green),
            State::Paused => (" PAUSED ", Color::Yellow),
            State::Ended => (" ENDED ", Color::Gray),
            State::NoAnswer => (" NO ANSWER ", Color::Red),
        }
    }
}

/// Draws a feed: its title, the way of its records, who waits for whom, and its memory. `note` is a message
/// for the user; without control, only the key to leave is named.
pub fn draw(frame: &mut Frame<'_>, name: &str, history: &History, can_control: bool, note: Option<&str>) {
    let area = frame.area();
    let room = Room::of(area.width);
    let note_height = if area.height >= 16 { 2 } else { 1 };
    let [title, body, rates, below, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(if area.height >= 24 { 4 } else { 0 }),
        Constraint::Length(note_height),
        Constraint::Length(1),
    ])
    .areas(area);
    let Some(numbers) = history.last() else {
        frame.render_widget(Paragraph::new(note.unwrap_or("waiting for the first numbers")), body);
        return;
    };
    let state = State::of(history, numbers);
    frame.render_widget(Paragraph::new(title_line(name, numbers, state, room, title.width)), title);
    let lines = lines(numbers, &history.recent(), state, room, usize::from(body.height));
    frame.render_widget(Paragraph::new(lines), body);
    draw_rates(frame, history, rates);
    let keys = match (can_control, room) {
        (false, _) => "q quit",
        (true, Room::Narrow) => "p pause  +/- thread  q quit",
        (true, _) => "p pause or resume   + add a thread   - remove one   q quit",
    };
    // What comes from elsewhere is escaped: the terminal would follow it.
    let note = note.map(|note| shown::message(note).to_string()).unwrap_or_default();
    frame.render_widget(Paragraph::new(note).yellow().wrap(Wrap { trim: true }), below);
    frame.render_widget(Paragraph::new(keys).dim(), foot);
}

fn title_line(name: &str, numbers: &Numbers, state: State, room: Room, width: u16) -> Line<'static> {
    let (word, color) = state.word();
    let mut said = format!("{}  {}", shown::message(name), clock(numbers.stats.elapsed));
    if room > Room::Narrow
        && let Some(next) = numbers.next.first()
    {
        said.push_str(&format!("  epoch {}, step {}", next.epoch, next.step));
    }
    let style = Style::new().fg(color).add_modifier(Modifier::REVERSED);
    let room_left = usize::from(width).saturating_sub(word.len() + 1);
    let said: String = said.chars().take(room_left).collect();
    let gap = room_left.saturating_sub(said.chars().count());
    Line::from(vec![Span::from(said).bold(), Span::from(" ".repeat(gap)), Span::styled(word, style)])
}

/// The lines of the picture, as many as there is height for: lanes that do not fit are only counted.
fn lines(numbers: &Numbers, recent: &Stats, state: State, room: Room, height: usize) -> Vec<Line<'static>> {
    let stats = &numbers.stats;
    let per_second = |count| recent.per_second(count);
    let mut lines = vec![row(
        "reader",
        None,
        &format!("{} rec/s", short(per_second(recent.reader.records))),
        &[
            (Room::Medium, format!("{}/s", bytes(per_second(recent.reader.value_bytes)))),
            (Room::Wide, format!("{} records in {} passes", stats.reader.records, stats.reader.passes)),
        ],
        room,
    )];
    // What follows the lanes: workers, a gap, the waits, a gap, the memory.
    let fits = height.saturating_sub(lines.len() + 9) / 2;
    let shown = stats.lanes.len().min(fits.max(1));
    for (number, lane) in stats.lanes.iter().enumerate().take(shown) {
        lines.push(runs_line(number, lane, room));
    }
    let workers = &stats.workers;
    lines.push(row(
        "workers",
        Some(bar(workers.queued, workers.queue_capacity, room, Color::Cyan)),
        &format!("{} of {}", workers.active, workers.threads),
        &[
            (Room::Medium, format!("threads, {} queued", workers.queued)),
            (Room::Wide, format!("{} runs/s", short(per_second(recent.workers.runs)))),
        ],
        room,
    ));
    for (number, (lane, recent_lane)) in stats.lanes.iter().zip(&recent.lanes).enumerate().take(shown) {
        lines.push(ring_line(number, lane, recent_lane, recent, room));
    }
    let more = stats.lanes.len() - shown;
    if more > 0 {
        lines.push(Line::from(format!("and {}", shown::count(more, "more lane"))).dim());
    }
    lines.push(Line::default());
    lines.extend(waits(recent, state, room));
    lines.push(Line::default());
    lines.push(memory(numbers, room));
    lines
}

/// The runs between the reader and a lane.
fn runs_line(number: usize, lane: &LaneStats, room: Room) -> Line<'static> {
    let runs = lane.runs;
    row(
        &format!("runs {number}"),
        Some(bar(runs.full, runs.capacity, room, Color::Blue)),
        &format!("{}/{}", runs.full, runs.capacity),
        &[(Room::Medium, format!("full, {} free, {} in use", runs.free, runs.in_use()))],
        room,
    )
}

/// A lane's ring: a letter for each batch.
fn ring_line(number: usize, lane: &LaneStats, recent: &LaneStats, all: &Stats, room: Room) -> Line<'static> {
    let letters = [
        ('f', lane.filling, Color::Blue),
        ('r', lane.ready, Color::Green),
        ('h', lane.held, Color::Magenta),
        (
            '.',
            lane.ring.saturating_sub(lane.filling).saturating_sub(lane.ready).saturating_sub(lane.held),
            Color::DarkGray,
        ),
    ];
    let mut left = room.bar();
    let mut ring = vec![Span::from("[")];
    for (letter, count, color) in letters {
        let count = count.min(left);
        left -= count;
        ring.push(Span::styled(letter.to_string().repeat(count), Style::new().fg(color)));
    }
    ring.push(Span::from("]"));
    ring.push(Span::from(" ".repeat(left)));
    let rate = all.per_second(recent.records);
    row(
        &format!("lane {number}"),
        Some(ring),
        &format!("{} rec/s", short(rate)),
        &[
            (Room::Medium, format!("{} ready, {} held of {}", lane.ready, lane.held, lane.ring)),
            (Room::Wide, format!("{}: {} batches", shown::message(&lane.device), lane.batches)),
        ],
        room,
    )
}

/// Who waits for whom: for each stage, the share of its time that it was busy, and what it waited for most.
/// In a pause, all wait for its end: no stage holds up the others.
fn waits(recent: &Stats, state: State, room: Room) -> Vec<Line<'static>> {
    let held_up = Some(recent.bottleneck()).filter(|_| state != State::Paused);
    let (waits_for, holds_up) = match state {
        State::Ended | State::NoAnswer => ("waited for", "held the others up"),
        State::Running | State::Paused => ("waits for", "holds the others up"),
    };
    let lanes = |time: fn(&LaneStats) -> Duration| {
        recent.lanes.iter().map(time).fold(Duration::ZERO, Duration::saturating_add)
    };
    let line = |(stage, busy): (Bottleneck, f64)| {
        let (label, waits): (_, Vec<(&str, Duration)>) = match stage {
            Bottleneck::Reader => (
                "reader",
                vec![
                    ("places", recent.reader.waits_for_free.time),
                    ("the end of the pause", recent.reader.waits_for_resume.time),
                ],
            ),
            Bottleneck::Transform => ("workers", vec![("records", recent.workers.waits_for_records.time)]),
            Bottleneck::Consumer => ("consumer", vec![("batches", lanes(|lane| lane.waits_for_batch.time))]),
            _ => ("device", Vec::new()),
        };
        let most = waits.into_iter().max_by_key(|(_, time)| *time).filter(|(_, time)| !time.is_zero());
        let waited = most.map(|(on, _)| format!("{waits_for} {on}")).unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share in percent")]
        let percent = (busy * 100.0).round() as usize;
        let (color, mark) = match held_up == Some(stage) {
            true => (Color::Red, holds_up.to_owned()),
            false => (Color::Green, waited),
        };
        row(
            label,
            Some(bar(percent, 100, room, color)),
            &format!("{percent:>3} % busy"),
            &[(Room::Medium, mark)],
            room,
        )
    };
    recent.busy().into_iter().map(line).collect()
}

fn memory(numbers: &Numbers, room: Room) -> Line<'static> {
    let mut largest = numbers.budget.clone();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let holders = match room {
        Room::Narrow => 0,
        Room::Medium => 1,
        Room::Wide => 3,
    };
    let of = |(holder, size): &(String, u64)| format!("{}: {}", shown::message(holder), bytes(float(*size)));
    let named: Vec<String> = largest.iter().take(holders).map(of).collect();
    row("memory", None, &bytes(float(numbers.budget_bytes())), &[(Room::Medium, named.join("; "))], room)
}

/// The rate over the last moments, as high as the space.
fn draw_rates(frame: &mut Frame<'_>, history: &History, area: Rect) {
    if area.height == 0 {
        return;
    }
    let [label, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let rates: Vec<u64> = history.rates().rev().take(usize::from(bars.width)).collect();
    let rates: Vec<u64> = rates.into_iter().rev().collect();
    let most = rates.iter().copied().max().unwrap_or_default();
    let said = format!("records/s, up to {}", short(float(most)));
    frame.render_widget(Paragraph::new(Line::from(said).dim()), label);
    frame.render_widget(Sparkline::default().data(&rates).style(Style::new().fg(Color::Cyan)), bars);
}

/// A line: a word, a bar, the value, and what there is room for.
fn row(
    label: &str,
    bar: Option<Vec<Span<'static>>>,
    value: &str,
    more: &[(Room, String)],
    room: Room,
) -> Line<'static> {
    let mut spans = vec![Span::from(format!("{label:<LABEL$} ")).bold()];
    spans.extend(bar.unwrap_or_else(|| vec![Span::from(" ".repeat(room.bar() + 2))]));
    spans.push(Span::from(format!(" {value:<12}")));
    for (_, text) in more.iter().filter(|(least, _)| room >= *least) {
        spans.push(Span::from(format!("  {text}")));
    }
    Line::from(spans)
}

/// A bar of `part` in `whole`.
fn bar(part: usize, whole: usize, room: Room, color: Color) -> Vec<Span<'static>> {
    let length = room.bar();
    // Anything shows, however little it is.
    let full = (part.min(whole) as u128 * length as u128).div_ceil(whole.max(1) as u128);
    let full = usize::try_from(full).unwrap_or(length);
    vec![
        Span::from("["),
        Span::styled("█".repeat(full), Style::new().fg(color)),
        Span::styled("░".repeat(length - full), Style::new().fg(Color::DarkGray)),
        Span::from("]"),
    ]
}

/// A number in three digits and a unit's prefix.
fn short(number: f64) -> String {
    let (mut number, mut prefixes) = (number, ["", " k", " M", " G", " T", " P", " E"].into_iter());
    let mut prefix = prefixes.next().unwrap_or_default();
    while number >= 999.5 {
        let Some(next) = prefixes.next() else { break };
        (number, prefix) = (number / 1000.0, next);
    }
    let decimals = match number {
        ..9.995 if !prefix.is_empty() => 2,
        ..99.95 if !prefix.is_empty() => 1,
        _ => 0,
    };
    format!("{number:.decimals$}{prefix}")
}

/// A number of bytes.
fn bytes(number: f64) -> String {
    let number = short(number);
    let gap = if number.contains(' ') { "" } else { " " };
    format!("{number}{gap}B")
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn float(number: u64) -> f64 {
    number as f64
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_prefix() {
        for (number, due) in [
            (0.0, "0"),
            (7.4, "7"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (12_340.0, "12.3 k"),
            (999_600.0, "1.00 M"),
            (512e6, "512 M"),
            (1e21, "1000 E"),
        ] {
            assert_eq!(short(number), due);
        }
        assert_eq!((bytes(12.0), bytes(4096.0)), ("12 B".to_owned(), "4.10 kB".to_owned()));
        assert_eq!(clock(Duration::from_secs(3725)), "01:02:05");
    }
}
