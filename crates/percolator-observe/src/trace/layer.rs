//! Listens to the spans and events of feeds, and passes them on. It does as little as it can: the threads
//! that it listens to are those of the feed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use percolator::trace::TARGET;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::{Fields, Record};

/// What waits are for. A name that is not here is one of a later version.
const WAITS: [&str; 6] = ["free", "resume", "records", "device", "workers", "batch"];

/// Numbers the threads of this process, from 1.
static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The number of this thread; 0 until it has one. And the number of the trace that has its name.
    static THREAD: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// The spans and events that a listener needs: the stages' own, and the spans around them, which say whose
/// they are.
pub(crate) fn targets() -> Targets {
    Targets::new().with_target("percolator", LevelFilter::INFO).with_target(TARGET, LevelFilter::TRACE)
}

/// The end of a trace file at which threads leave what they have done.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    /// The number of the trace in this process, from 1.
    pub(super) trace: u64,
    pub(super) start: Instant,
    pub(super) records: Sender<Record>,
    /// Whether the file is complete, and nothing more belongs into it.
    pub(super) is_over: Arc<AtomicBool>,
}

impl Listener {
    /// Waits if the thread that writes is behind: a trace that leaves out what was too fast says nothing.
    fn send(&self, record: Record) {
        // Nobody receives after an error; the file says so when it is finished.
        let _ = self.records.send(record);
    }

    fn is_over(&self) -> bool {
        // It guards no data: what is sent too late is not read.
        self.is_over.load(Ordering::Relaxed)
    }

    /// The number of this thread, whose name is passed on the first time.
    fn thread(&self) -> u64 {
        THREAD.with(|known| {
            let (mut number, trace) = known.get();
            if number == 0 {
                number = THREADS.fetch_add(1, Ordering::Relaxed);
            }
            if trace != self.trace {
                known.set((number, self.trace));
                let name =
                    std::thread::current().name().map_or_else(|| format!("thread {number}"), str::to_owned);
                self.send(Record::Thread { thread: number, name });
            }
            number
        })
    }
}

/// What is known of a span that is open.
#[derive(Debug, Default)]
struct Open {
    fields: Fields,
    device: Option<String>,
    entered: Option<Duration>,
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
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.entered = Some(self.start.elapsed());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let to = self.start.elapsed();
        let Some(span) = context.span(id).filter(|span| span.metadata().target() == TARGET) else { return };
        let (mut of, from) = match span.extensions().get::<Open>() {
            Some(Open { fields, entered: Some(from), .. }) => (*fields, *from),
            _ => return,
        };
        if of.feed.is_none() {
            // It is that of the span around.
            let of_span = |span: tracing_subscriber::registry::SpanRef<'_, S>| {
                span.extensions().get::<Open>().and_then(|open| open.fields.feed)
            };
            of.feed = span.scope().skip(1).find_map(of_span);
        }
        if !self.is_over() {
            self.send(Record::Slice { thread: self.thread(), name: span.name(), from, to, of });
        }
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
