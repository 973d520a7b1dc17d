//! Listens to the spans and events of feeds, and passes them on. It does as little as it can: the threads
//! that it listens to are those of the feed.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use percolator::trace::TARGET;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::{Fields, Record};

/// What waits are for. A name that is not here is one of a later version.
const WAITS: [&str; 7] = ["free", "resume", "records", "device", "workers", "lanes", "batch"];

/// Numbers the threads of this process, from 1.
static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The number of this thread; 0 until it has one.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The spans and events that a listener needs: the stages' own, and the spans around them, which say whose
/// they are.
pub(crate) fn targets() -> Targets {
    Targets::new().with_target("percolator", LevelFilter::INFO).with_target(TARGET, LevelFilter::TRACE)
}

/// The end of a trace file at which threads leave what they have done.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    start: Instant,
    records: Sender<Record>,
    /// Whether the file is complete, and nothing more belongs into it.
    is_over: Arc<AtomicBool>,
    threads: Arc<Mutex<Threads>>,
}

/// The threads that were listened to.
#[derive(Debug, Default)]
struct Threads {
    /// Those whose names have been passed on.
    named: HashSet<u64>,
    /// The spans that they are in, by the numbers of thread and span.
    going_on: HashMap<(u64, u64), GoingOn>,
}

/// A span that a thread is in.
#[derive(Debug)]
struct GoingOn {
    name: &'static str,
    from: Duration,
    /// As far as they are known when it begins.
    of: Fields,
}

impl Listener {
    pub(super) fn new(start: Instant, records: Sender<Record>) -> Self {
        Listener { start, records, is_over: Arc::default(), threads: Arc::default() }
    }

    /// Ends the file: what goes on ends now. A span that a thread is just leaving may be missing.
    pub(super) fn end(&self) {
        let mut threads = self.threads.lock();
        self.is_over.store(true, Ordering::Relaxed);
        let at = self.start.elapsed();
        let mut cut_off: Vec<_> = threads.going_on.drain().collect();
        drop(threads);
        cut_off.sort_by_key(|((thread, _), span)| (*thread, span.from));
        for ((thread, _), GoingOn { name, from, of }) in cut_off {
            self.send(Record::Slice { thread, name, from, to: at.max(from), of, is_unfinished: true });
        }
        self.send(Record::End { at });
    }

    /// Waits if the writing thread is behind: a trace with gaps in fast phases would be misleading.
    fn send(&self, record: Record) {
        // Nothing is received after an error; the file reports it when it is finished.
        let _ = self.records.send(record);
    }

    fn is_over(&self) -> bool {
        // It guards no data: what is sent too late is not read.
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The number of this thread.
fn thread_number() -> u64 {
    THREAD.with(|known| {
        if known.get() == 0 {
            known.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        known.get()
    })
}

fn thread_name(number: u64) -> String {
    std::thread::current().name().map_or_else(|| format!("thread {number}"), str::to_owned)
}

/// What is known of a span that is open.
#[derive(Debug, Default)]
struct Open {
    fields: Fields,
    device: Option<String>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut open = Open::default();
        attributes.record(&mut open);
        if let Fields { feed: Some(feed), lane: Some(lane), .. } = open.fields
            && let Some(device) = open.device.take()
            && !self.is_over()
        {
            self.send(Record::Device { feed, lane, device });
        }
        span.extensions_mut().replace(open);
    }

    fn on_record(&self, id: &Id, values: &Values<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(open);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let from = self.start.elapsed();
        let Some(span) = context.span(id).filter(|span| span.metadata().target() == TARGET) else { return };
        if self.is_over() {
            return;
        }
        let (of, thread) = (fields_of(&span), thread_number());
        let mut threads = self.threads.lock();
        // What begins after the end would stay.
        if !self.is_over() {
            threads.going_on.insert((thread, id.into_u64()), GoingOn { name: span.name(), from, of });
        }
        let is_new = threads.named.insert(thread);
        drop(threads);
        if is_new {
            self.send(Record::Thread { thread, name: thread_name(thread) });
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let to = self.start.elapsed();
        let Some(span) = context.span(id).filter(|span| span.metadata().target() == TARGET) else { return };
        if self.is_over() {
            return;
        }
        let thread = thread_number();
        let left = self.threads.lock().going_on.remove(&(thread, id.into_u64()));
        let Some(GoingOn { name, from, .. }) = left else { return };
        let of = fields_of(&span);
        self.send(Record::Slice { thread, name, from, to, of, is_unfinished: false });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET || self.is_over() {
            return;
        }
        let mut open = Open::default();
        event.record(&mut open);
        let (name, at) = (event.metadata().name(), self.start.elapsed());
        self.send(Record::Moment { name, at, of: open.fields });
    }
}

/// What a span says, and whose it is: the feed is its own, or that of the span around.
fn fields_of<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Fields {
    let of = |span: &SpanRef<'a, S>| span.extensions().get::<Open>().map(|open| open.fields);
    let mut fields = of(span).unwrap_or_default();
    if fields.feed.is_none() {
        fields.feed = span.scope().skip(1).find_map(|around| of(&around)?.feed);
    }
    fields
}

impl Visit for Open {
    fn record_u64(&mut self, field: &Field, value: u64) {
        let fields = &mut self.fields;
        let known = match field.name() {
            "feed" => &mut fields.feed,
            "lane" => &mut fields.lane,
            "batch" => &mut fields.batch,
            "records" => &mut fields.records,
            "bytes" => &mut fields.bytes,
            _ => return,
        };
        *known = Some(value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "on" {
            self.fields.on = WAITS.into_iter().find(|known| *known == value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "device" {
            self.device = Some(format!("{value:?}"));
        }
    }
}
