//! Calls and operations that fail because a test wants it.

use crate::abi::Code;

/// One fault that a test ordered.
#[derive(Debug)]
struct Fault {
    /// The symbol; `*` for any but those that name errors; `async` for any operation when it is carried out;
    /// `async:SYMBOL` for the operations that this symbol submitted.
    name: String,
    /// `None`: on any device, and in calls that concern none.
    device: Option<usize>,
    /// How many matching calls are left until it fires, including the one that fires.
    left: u64,
    code: Code,
    /// Whether every later call fails too.
    for_ever: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    pub(crate) fn order(
        &mut self,
        name: String,
        nth: u64,
        device: Option<usize>,
        code: Code,
        for_ever: bool,
    ) {
        self.list.push(Fault { name, device, left: nth.max(1), code, for_ever });
    }

    /// The code that this call must return, if any. Counts the call for every fault that matches.
    pub(crate) fn at_call(&mut self, symbol: &str, device: Option<usize>) -> Option<Code> {
        self.fire(|fault| {
            let named = fault.name == symbol || (fault.name == "*" && !symbol.starts_with("cuGetError"));
            named && (fault.device.is_none() || fault.device == device)
        })
    }

    /// The code with which an operation fails when it is carried out, if any.
    pub(crate) fn at_operation(&mut self, symbol: &str, device: usize) -> Option<Code> {
        self.fire(|fault| {
            let named = fault.name.strip_prefix("async").is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix(':').is_some_and(|named| named == symbol)
            });
            named && fault.device.is_none_or(|wanted| wanted == device)
        })
    }

    fn fire(&mut self, matches: impl Fn(&Fault) -> bool) -> Option<Code> {
        let mut code = None;
        self.list.retain_mut(|fault| {
            if !matches(fault) {
                return true;
            }
            fault.left = fault.left.saturating_sub(1);
            if fault.left == 0 {
                code = code.or(Some(fault.code));
            }
            fault.left > 0 || fault.for_ever
        });
        code
    }
}
