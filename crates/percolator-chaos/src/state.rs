//! What the wrappers of one [`Chaos`](crate::Chaos) share: which faults have struck, what is stuck, what is
//! alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::fault::{Effect, Faults, Place};

/// What is alive of the things that a [`Chaos`](crate::Chaos) made.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Living {
    /// Sources that it wrapped.
    pub sources: usize,
    /// Cursors of those sources.
    pub cursors: usize,
    /// Host memories of the batches of devices that it wrapped.
    pub memories: usize,
    /// Transfers of those devices.
    pub transfers: usize,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) faults: Faults,
    is_armed: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// For each fault: how often its place was passed, and how often it has struck.
    passes: Vec<u64>,
    strikes: Vec<u64>,
    is_released: bool,
    has_stuck: bool,
    living: Living,
    overwritten: u64,
}

impl State {
    pub(crate) fn new(faults: Faults) -> Self {
        let none = vec![0; faults.list.len()];
        let progress = Progress {
            passes: none.clone(),
            strikes: none,
            is_released: false,
            has_stuck: false,
            living: Living::default(),
            overwritten: 0,
        };
        State {
            faults,
            is_armed: AtomicBool::new(true),
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn set_armed(&self, is_armed: bool) {
        // SeqCst: a fault strikes after `arm` has returned, and none after `disarm`.
        self.is_armed.store(is_armed, Ordering::SeqCst);
    }

    /// What happens at a place that is reached now.
    pub(crate) fn strike(&self, place: Place, number: u64) -> Vec<&Effect> {
        if !self.is_armed.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let here = self.faults.iter().enumerate().filter(|(_, fault)| fault.is_at(place, number));
        let strikes = here.filter(|(position, fault)| {
            let mut progress = self.progress.lock();
            progress.passes[*position] += 1;
            let is_struck = progress.passes[*position] > fault.after
                && fault.times.is_none_or(|times| progress.strikes[*position] < times);
            progress.strikes[*position] += u64::from(is_struck);
            is_struck
        });
        strikes.map(|(_, fault)| &fault.effect).collect()
    }

    /// Applies the effects that are the same for all calls; returns the message if the call should fail.
    ///
    /// # Panics
    ///
    /// If a fault says so.
    pub(crate) fn suffer(&self, effects: &[&Effect], what: &dyn std::fmt::Display) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Delay(time) => pass(*time),
                Effect::Stick => self.stick(),
                Effect::Panic => panic!("{what} panics, as a fault says"),
                Effect::Fail(message) => return Err(message.clone()),
                Effect::Cut(_) | Effect::Damage | Effect::Leave => {}
            }
        }
        Ok(())
    }

    /// Waits until it is released.
    pub(crate) fn stick(&self) {
        let mut progress = self.progress.lock();
        progress.has_stuck = true;
        self.changed.notify_all();
        while !progress.is_released {
            self.changed.wait(&mut progress);
        }
    }

    /// Notes that an event does not happen now.
    pub(crate) fn note_stuck(&self) {
        self.change(|progress| progress.has_stuck = true);
    }

    pub(crate) fn is_released(&self) -> bool {
        self.progress.lock().is_released
    }

    pub(crate) fn release(&self) {
        self.change(|progress| progress.is_released = true);
    }

    pub(crate) fn wait_until_stuck(&self) {
        self.wait_until(|progress| progress.has_stuck || progress.is_released);
    }

    pub(crate) fn wait_until_gone(&self) {
        self.wait_until(|progress| progress.living == Living::default());
    }

    pub(crate) fn strikes(&self) -> Vec<u64> {
        self.progress.lock().strikes.clone()
    }

    pub(crate) fn living(&self) -> Living {
        self.progress.lock().living
    }

    pub(crate) fn note_living(&self, change: impl FnOnce(&mut Living)) {
        self.change(|progress| change(&mut progress.living));
    }

    pub(crate) fn overwritten(&self) -> u64 {
        self.progress.lock().overwritten
    }

    pub(crate) fn note_overwritten(&self) {
        self.change(|progress| progress.overwritten += 1);
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_reached: impl Fn(&Progress) -> bool) {
        let mut progress = self.progress.lock();
        while !is_reached(&progress) {
            self.changed.wait(&mut progress);
        }
    }
}

/// A delay is what was requested here; it orders nothing.
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}
