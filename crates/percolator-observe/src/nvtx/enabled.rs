//! NVTX, by the bindings of `cudarc`.
#![expect(unsafe_code, reason = "looking for a library may run its code")]

use std::fmt::Write as _;
use std::sync::OnceLock;

use cudarc::nvtx::{result, sys};
use percolator::trace::TARGET;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

pub(super) fn is_available() -> bool {
    static IS_AVAILABLE: OnceLock<bool> = OnceLock::new();
    // SAFETY: loading a library runs what it does when it is loaded; NVIDIA's does no harm. A file of this
    // name that is something else is as trusted as any other in the search path of the process.
    *IS_AVAILABLE.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// Only where the library [is available](is_available): the bindings panic without it.
pub(super) fn layer<S>() -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let is_wanted = |metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == TARGET;
    Ranges.with_filter(filter_fn(is_wanted))
}

/// Marks the spans of the stages as ranges of their threads.
#[derive(Debug)]
struct Ranges;

/// The text of a span's range: its name and fields.
#[derive(Debug)]
struct Text(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ranges {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut text = Text(span.name().to_owned());
        attributes.record(&mut text);
        span.extensions_mut().replace(text);
    }

    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        // A range has the text that it began with.
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Text(text)) = span.extensions().get::<Text>() {
            // The text has the names of fields, numbers and words of our own: no NUL.
            let _ = result::range_push(text);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if context.span(id).is_some_and(|span| span.extensions().get::<Text>().is_some()) {
            let _ = result::range_pop();
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // A write to a `String` does not fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
