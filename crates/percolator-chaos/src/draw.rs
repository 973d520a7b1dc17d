//! Faults drawn from a seed.

use std::time::Duration;

use crate::fault::{Fault, Faults};
use crate::splitmix::{SplitMix, fold};

/// Separates these draws from all others of the seed.
const FAULTS: u64 = 0x0063_6861_6f73;

/// Where faults may be [drawn](Faults::drawn).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says where faults are drawn"]
pub struct Reach {
    records: u64,
    batches: u64,
}

impl Reach {
    /// At the records of a source that has this many, and at its cursors.
    pub fn records(records: u64) -> Self {
        Reach { records, batches: 0 }
    }

    /// Also at this many batches of devices and consumers.
    pub fn and_batches(self, batches: u64) -> Self {
        Reach { batches, ..self }
    }
}

impl Faults {
    /// Draws one to three faults from a seed. The same seed and reach draw the same faults.
    ///
    /// ```
    /// use percolator_chaos::{Faults, Reach};
    ///
    /// for seed in 0..100 {
    ///     let faults = Faults::drawn(seed, Reach::records(1000));
    ///     println!("{faults}"); // whatever fails next, this can be run again
    /// }
    /// ```
    #[must_use]
    pub fn drawn(seed: u64, reach: Reach) -> Self {
        let mut draws = Draws(SplitMix(fold(seed, &[FAULTS])));
        let list = (0..=draws.below(3)).map(|_| draws.fault(reach)).collect();
        Faults { seed: Some(seed), list }
    }
}

struct Draws(SplitMix);

impl Draws {
    /// A number below `end`, which is at least 1.
    fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.0.next()) * u128::from(end)) >> 64).expect("less than `end`")
    }

    fn fault(&mut self, Reach { records, batches }: Reach) -> Fault {
        if batches == 0 || self.below(2) == 0 { self.at_source(records) } else { self.at_batches(batches) }
    }

    fn at_source(&mut self, records: u64) -> Fault {
        let position = self.below(records.max(1));
        let record = Fault::record(position);
        match self.below(9) {
            0 | 1 => record.fails("a fault that was drawn"),
            2 => record.panics(),
            3 => record.sticks(),
            4 => record.takes(self.time()),
            5 => Fault::every_record().takes(self.time() / 16),
            6 => {
                let bytes = self.below(16);
                record.is_cut_to(usize::try_from(bytes).expect("a small number"))
            }
            7 => record.is_damaged(),
            _ => Fault::cursor(self.below(4)).fails("a fault that was drawn"),
        }
    }

    fn at_batches(&mut self, batches: u64) -> Fault {
        let number = self.below(batches);
        match self.below(4) {
            0 => self.of_consumer(number),
            1 => self.of_event(number),
            _ => self.of_call(number),
        }
    }

    fn of_consumer(&mut self, number: u64) -> Fault {
        let batch = Fault::batch(number);
        match self.below(4) {
            0 => batch.sticks(),
            1 => batch.takes(self.time()),
            2 => Fault::every_batch().takes(self.time() / 4),
            _ => batch.leaves(),
        }
    }

    fn of_event(&mut self, number: u64) -> Fault {
        let event = if self.below(2) == 0 { Fault::arrival(number) } else { Fault::last_use(number) };
        match self.below(3) {
            0 => event.sticks(),
            1 => event.takes(self.time()),
            _ => event.fails("a fault that was drawn"),
        }
    }

    fn of_call(&mut self, number: u64) -> Fault {
        let call = match self.below(6) {
            0 => Fault::memory(self.below(4)),
            1 => Fault::transfer(self.below(4)),
            2 | 3 => Fault::release(number),
            _ => Fault::submit(number),
        };
        match self.below(4) {
            0 => call.takes(self.time()),
            1 => call.panics(),
            _ => call.fails("a fault that was drawn"),
        }
    }

    fn time(&mut self) -> Duration {
        Duration::from_micros(50 + self.below(2000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Effect, Place};

    #[test]
    #[cfg_attr(miri, ignore = "only many seeds draw faults of every kind")]
    fn a_seed_gives_the_same_faults_again_and_every_kind_comes() {
        let reach = Reach::records(100).and_batches(10);
        let mut seen = Vec::new();
        for seed in 0..2000 {
            let faults = Faults::drawn(seed, reach);
            assert_eq!(faults, Faults::drawn(seed, reach));
            assert!(faults.to_string().starts_with(&format!("seed {seed}: ")), "{faults}");
            for Fault { place, effect, number, .. } in &faults {
                let kind = (*place, std::mem::discriminant(effect));
                if !seen.contains(&kind) {
                    seen.push(kind);
                }
                let end = if *place == Place::Record { 100 } else { 10 };
                assert!(number.is_none_or(|number| number < end));
            }
        }
        // Records: 6 effects; cursors: 1; memory, transfer, release and submit: 3 each; the events: 3 each;
        // consumers: 3.
        assert_eq!(seen.len(), 6 + 1 + 4 * 3 + 2 * 3 + 3, "{seen:?}");
        let of_source = Faults::drawn(3, Reach::records(1));
        assert!(of_source.iter().all(|fault| matches!(fault.place, Place::Record | Place::Cursor)));
        let is_leave = |fault: &Fault| fault.effect == Effect::Leave;
        assert!(!of_source.iter().any(is_leave));
    }
}
