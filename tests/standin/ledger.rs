//! What was called, what was misused, and what is still alive: the report of a test.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// More violations than this are counted, not kept.
const VIOLATIONS_MAX: usize = 200;

/// The number of handles and buffers alive, or that were alive when their context was destroyed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Living {
    pub(crate) contexts: usize,
    pub(crate) streams: usize,
    pub(crate) events: usize,
    pub(crate) modules: usize,
    pub(crate) graphs: usize,
    pub(crate) device_buffers: usize,
    pub(crate) pinned_buffers: usize,
    pub(crate) registered_buffers: usize,
    pub(crate) device_bytes: usize,
    pub(crate) pinned_bytes: usize,
}

impl Living {
    fn lines(&self) -> [(&'static str, usize); 10] {
        [
            ("contexts", self.contexts),
            ("streams", self.streams),
            ("events", self.events),
            ("modules", self.modules),
            ("graphs", self.graphs),
            ("device_buffers", self.device_buffers),
            ("pinned_buffers", self.pinned_buffers),
            ("registered_buffers", self.registered_buffers),
            ("device_bytes", self.device_bytes),
            ("pinned_bytes", self.pinned_bytes),
        ]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    calls: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
    violations_not_kept: usize,
    /// What was alive when its context was destroyed.
    pub(crate) abandoned: Living,
}

impl Ledger {
    pub(crate) fn count(&mut self, symbol: &'static str) {
        *self.calls.entry(symbol).or_default() += 1;
    }

    pub(crate) fn violation(&mut self, words: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(words);
        } else {
            self.violations_not_kept += 1;
        }
    }

    /// The report, in lines: `violation WORDS`, `live NAME N`, `abandoned NAME N`, `calls SYMBOL N`.
    pub(crate) fn report(&self, living: &Living) -> String {
        let mut text = String::from("stand-in CUDA driver: no GPU was used\n");
        for words in &self.violations {
            let _ = writeln!(text, "violation {words}");
        }
        if self.violations_not_kept > 0 {
            let _ = writeln!(text, "violation and {} more, not kept", self.violations_not_kept);
        }
        for (name, count) in living.lines() {
            let _ = writeln!(text, "live {name} {count}");
        }
        for (name, count) in self.abandoned.lines() {
            let _ = writeln!(text, "abandoned {name} {count}");
        }
        for (symbol, count) in &self.calls {
            let _ = writeln!(text, "calls {symbol} {count}");
        }
        text
    }

    /// Begins a new report.
    pub(crate) fn clear(&mut self) {
        *self = Ledger::default();
    }
}
