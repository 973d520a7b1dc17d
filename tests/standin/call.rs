//! The entry of every symbol: it counts the call, fails it if a test wants that, and refuses it as the driver
//! would.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::abi::{
    Answer, CONTEXT_IS_DESTROYED, Code, DEINITIALIZED, Handle, INVALID_CONTEXT, NOT_INITIALIZED, SUCCESS,
};
use crate::ending::{self, Inside};
use crate::world::{DONE, Guard, World, lock, wait};

thread_local! {
    /// The context that is current on this thread; 0 for none.
    pub(crate) static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

/// What a call requires.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    /// Nothing, not even cuInit.
    Nothing,
    /// cuInit.
    Driver,
    /// A device by its ordinal.
    Device(i32),
    /// A current context.
    Context,
    /// A current context; the call frees its resource even if it returns an error.
    Release,
    /// Like `Release`, for a device's own context, current or not.
    ReleaseOf(i32),
}

/// A call, with the lock held.
pub(crate) struct Call {
    world: Option<Guard>,
    pub(crate) symbol: &'static str,
    /// The device of the current context, or the one that was named; 0 for calls that need neither.
    pub(crate) device: usize,
}

impl Deref for Call {
    type Target = World;

    fn deref(&self) -> &World {
        self.world.as_ref().expect("taken only while it waits")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut World {
        self.world.as_mut().expect("taken only while it waits")
    }
}

impl Call {
    /// Releases the lock until the condition is true.
    pub(crate) fn wait_until(&mut self, so: impl Fn(&World) -> bool) {
        while !so(self) {
            self.world = self.world.take().map(|world| wait(&DONE, world));
        }
    }

    /// Waits for an operation of a stream; if its device is broken by then, returns that error.
    pub(crate) fn wait_for(&mut self, device: usize, stream: Handle, seq: u64) -> Answer {
        self.wait_until(|world| world.has_ended(stream, seq) || world.broken(device).is_some());
        self.broken(device).map_or(Ok(()), Err)
    }
}

/// Runs a call's body, and converts its answer to what C gets.
pub(crate) fn call(symbol: &'static str, needs: Needs, body: impl FnOnce(&mut Call) -> Answer) -> u32 {
    let _inside = Inside::new();
    if ending::is_down() {
        return DEINITIALIZED;
    }
    let mut call = Call { world: Some(lock()), symbol, device: 0 };
    match enter(&mut call, needs, body) {
        Ok(()) => SUCCESS,
        Err(Code(code)) => code,
    }
}

fn enter(call: &mut Call, needs: Needs, body: impl FnOnce(&mut Call) -> Answer) -> Answer {
    let symbol = call.symbol;
    call.ledger.count(symbol);
    let device = match needs {
        Needs::Nothing => None,
        Needs::Device(ordinal) | Needs::ReleaseOf(ordinal) => call.device(ordinal).ok(),
        Needs::Driver | Needs::Context | Needs::Release => call.device_of_context(CURRENT.get()),
    };
    let fault = call.faults.at_call(symbol, device).or_else(|| call.unsafe_call(symbol));
    let is_release = matches!(needs, Needs::Release | Needs::ReleaseOf(_));
    if let (Some(code), false) = (fault, is_release) {
        return Err(code);
    }
    if !call.initialised && !matches!(needs, Needs::Nothing) {
        return Err(NOT_INITIALIZED);
    }
    match needs {
        Needs::Nothing | Needs::Driver => return body(call),
        Needs::Device(ordinal) => {
            call.device = call.device(ordinal)?;
            return call.devices[call.device].lost.map_or(Ok(()), Err).and_then(|()| body(call));
        }
        Needs::ReleaseOf(ordinal) => {
            call.device = call.device(ordinal)?;
            let answer = body(call);
            return fault.or(call.devices[call.device].lost).map_or(answer, Err);
        }
        Needs::Context | Needs::Release => {}
    }
    call.device = device.ok_or(INVALID_CONTEXT)?;
    if call.devices[call.device].retained == 0 {
        call.ledger.violation(format!("use after destroy: {symbol} in a context that was destroyed"));
        return Err(CONTEXT_IS_DESTROYED);
    }
    let refused = fault.or_else(|| call.broken(call.device));
    if let (Some(code), false) = (refused, is_release) {
        return Err(code);
    }
    let answer = body(call);
    refused.map_or(answer, Err)
}
