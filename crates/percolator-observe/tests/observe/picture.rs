//! The picture at several widths, of numbers that are known.

use std::time::Duration;

use percolator::feed::LaneStats;
use percolator::record::StepId;
use percolator_observe::Numbers;
use percolator_observe::view::{History, draw};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// A feed of this many lanes after this many seconds, at 1000 records a second and lane.
fn at(seconds: u64, lanes: usize) -> Numbers {
    let mut numbers = Numbers::default();
    let stats = &mut numbers.stats;
    stats.elapsed = Duration::from_secs(seconds);
    stats.reader.records = 1000 * seconds * lanes as u64;
    stats.reader.value_bytes = 196_620 * stats.reader.records;
    stats.reader.waits_for_free.time = Duration::from_millis(750 * seconds);
    (stats.workers.threads, stats.workers.active) = (8, 4);
    stats.workers.time = Duration::from_secs(8 * seconds);
    (stats.workers.queued, stats.workers.queue_capacity) = (12, 96);
    stats.workers.runs = 250 * seconds;
    stats.workers.waits_for_records.time = Duration::from_millis(800 * seconds);
    for _ in 0..lanes {
        let mut lane = LaneStats::default();
        lane.device = "cuda:0".to_owned();
        (lane.records, lane.batches) = (1000 * seconds, 10 * seconds);
        (lane.ring, lane.filling, lane.ready, lane.held) = (5, 1, 2, 1);
        (lane.runs.capacity, lane.runs.full, lane.runs.free) = (64, 16, 40);
        lane.waits_for_batch.time = Duration::from_millis(100 * seconds);
        stats.lanes.push(lane);
    }
    numbers.next = vec![StepId { epoch: 3, step: 10 * seconds }; lanes];
    numbers.budget = vec![("batches: pixels".to_owned(), 512_000_000), ("queues: runs".to_owned(), 4096)];
    numbers
}

/// The history of a feed that has run for 13 seconds.
fn history(lanes: usize, is_paused: bool) -> History {
    let mut history = History::new();
    for seconds in 10..14 {
        let mut numbers = at(seconds, lanes);
        numbers.is_paused = is_paused;
        if is_paused {
            let reader = &mut numbers.stats.reader;
            reader.waits_for_resume.time = std::mem::take(&mut reader.waits_for_free.time);
        }
        history.push(numbers);
    }
    history
}

fn picture(width: u16, height: u16, lanes: usize, is_paused: bool, note: Option<&str>) -> Vec<String> {
    drawn(width, height, &history(lanes, is_paused), note)
}

fn drawn(width: u16, height: u16, history: &History, note: Option<&str>) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, "train", history, true, note)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = buffer.content().chunks(usize::from(width));
    cells.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn a_narrow_terminal_has_what_matters() {
    let due = "\
train  00:00:13                RUNNING

reader                 1.00 k rec/s
runs 0    [███░░░░░░░] 16/64
workers   [██░░░░░░░░] 4 of 8
lane 0    [frrh.]      1.00 k rec/s

consumer  [█████████░]  90 % busy
device    [░░░░░░░░░░]   0 % busy
memory                 512 MB

p pause  +/- thread  q quit";
    let seen = picture(40, 24, 1, false, None);
    for line in due.lines().filter(|line| !line.is_empty()) {
        assert!(seen.iter().any(|seen| seen.trim_end() == line), "{line}\nis not in\n{}", seen.join("\n"));
    }
}

#[test]
fn a_usual_terminal_says_who_waits_for_whom() {
    let seen = picture(80, 24, 1, true, Some("a note\x1b[2J"));
    let text = seen.join("\n");
    for due in [
        "train  00:00:13  epoch 3, step 130",
        " PAUSED",
        "reader                           1.00 k rec/s  197 MB/s",
        "runs 0    [█████░░░░░░░░░░░░░░░] 16/64         full, 40 free, 8 in use",
        "workers   [███░░░░░░░░░░░░░░░░░] 4 of 8        threads, 12 queued",
        "lane 0    [frrh.]                1.00 k rec/s  2 ready, 1 held of 5",
        "reader    [█████░░░░░░░░░░░░░░░]  25 % busy    waits for the end of the pause",
        "workers   [██████████████████░░]  90 % busy    waits for records",
        "consumer  [██████████████████░░]  90 % busy    waits for batches",
        "memory                           512 MB        batches: pixels: 512 MB",
        "a note",
        "p pause or resume   + add a thread   - remove one   q quit",
    ] {
        assert!(text.contains(due.trim_end()), "{due}\nis not in\n{text}");
    }
    assert!(!text.contains("holds the others up"), "in a pause, nobody holds up the others: {text}");
    assert!(!text.contains('\x1b'), "{text}");
    let text = picture(80, 24, 1, false, None).join("\n");
    for due in ["RUNNING", "25 % busy    waits for places", "90 % busy    holds the others up"] {
        assert!(text.contains(due), "{due}\nis not in\n{text}");
    }
}

#[test]
fn a_wide_terminal_has_everything() {
    let text = picture(160, 40, 2, false, None).join("\n");
    for due in ["cuda:0: 130 batches", "queues: runs: 4.10 kB", "250 runs/s"] {
        assert!(text.contains(due), "{due}\nis not in\n{text}");
    }
    assert!(text.contains("lane 1") && text.contains("26000 records in 0 passes"), "{text}");
}

#[test]
fn any_size_and_any_number_of_lanes_can_be_drawn() {
    for width in [1, 2, 10, 39, 40, 80, 200] {
        for height in [1, 2, 3, 5, 10, 24, 60] {
            for lanes in [0, 1, 8, 500] {
                let seen =
                    picture(width, height, lanes, false, Some("a note that is longer than the terminal"));
                assert_eq!(seen.len(), usize::from(height));
            }
        }
    }
    assert!(picture(80, 24, 3, false, None).join("\n").contains("and 1 more lane\n"));
    let text = picture(80, 24, 100, false, None).join("\n");
    assert!(text.contains("more lanes") && text.contains("memory"), "{text}");
    let mut terminal = Terminal::new(TestBackend::new(40, 10)).unwrap();
    terminal.draw(|frame| draw(frame, "train", &History::new(), false, None)).unwrap();
}

#[test]
fn a_feed_that_has_ended_or_does_not_answer_is_not_running() {
    for width in [40, 80] {
        let mut stale = history(1, false);
        stale.miss();
        let text = drawn(width, 24, &stale, Some("no answer")).join("\n");
        assert!(text.contains("NO ANSWER") && !text.contains("RUNNING"), "{text}");
        let mut last = at(13, 1);
        (last.has_ended, last.is_paused) = (true, true);
        stale.push(last);
        for is_stale in [false, true] {
            // Its program may be gone by now: it has ended all the same.
            if is_stale {
                stale.miss();
            }
            let text = drawn(width, 24, &stale, None).join("\n");
            assert!(text.contains("ENDED") && !text.contains("RUNNING"), "{text}");
            assert_eq!(text.contains("held the others up"), width == 80, "{text}");
        }
    }
}

#[test]
fn in_40_columns_no_line_is_cut() {
    let note = "the number of threads cannot be more than 1024, which is the most that a feed has";
    for is_paused in [false, true] {
        let seen = picture(40, 24, 2, is_paused, Some(note));
        let text = seen.join("\n");
        for due in
            ["13", "runs 1", "lane 1", "2.00 k rec/s", "% busy", "memory", "p pause  +/- thread  q quit"]
        {
            assert!(text.contains(due), "{due}\nis not in\n{text}");
        }
        // The note goes on in a second line.
        assert!(
            text.contains("the number of threads cannot be more") && text.contains("than 1024"),
            "{text}"
        );
    }
}

#[test]
fn numbers_of_any_size_can_be_drawn() {
    let text = "\
percolator_elapsed_seconds 1e-9
percolator_reader_records_total 18446744073709551615
percolator_reader_waits_seconds_total{on=\"free\"} 4e13
percolator_reader_waits_seconds_total{on=\"resume\"} 4e13
percolator_queue_runs{lane=\"0\",queue=\"full\"} 18446744073709551615
percolator_queue_capacity_runs{lane=\"0\"} 18446744073709551615
percolator_worker_threads 18446744073709551615
percolator_worker_thread_seconds_total 4e13
percolator_worker_queue_tasks 18446744073709551615
percolator_worker_queue_capacity_tasks 18446744073709551615
percolator_ring_batches{lane=\"0\",state=\"filling\"} 18446744073709551615
percolator_ring_batches{lane=\"0\",state=\"held\"} 18446744073709551615
percolator_ring_capacity_batches{lane=\"0\"} 18446744073709551615
percolator_records_total{lane=\"0\"} 18446744073709551615
percolator_records_total{lane=\"1\"} 18446744073709551615
percolator_consumer_waits_seconds_total{lane=\"0\",on=\"batch\"} 4e13
percolator_consumer_waits_seconds_total{lane=\"1\",on=\"batch\"} 4e13
percolator_memory_budget_bytes{holder=\"a\"} 18446744073709551615
percolator_memory_budget_bytes{holder=\"b\"} 18446744073709551615
";
    let mut history = History::new();
    history.push(Numbers::default());
    history.push(percolator_observe::parse(text).unwrap().remove(0).1);
    for width in [40, 80, 160] {
        assert_eq!(drawn(width, 40, &history, None).len(), 40);
    }
}
