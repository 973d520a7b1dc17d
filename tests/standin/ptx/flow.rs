//! Through which parameters an entry may read and write memory.

use super::parse::Parameter;
use super::steps::Step;

/// Records for each parameter whether an address that is loaded from, or stored to, may be computed from it.
///
/// A register may be computed from anything that any instruction, at any place, computes it from. So a
/// parameter may be reported as used though it is not, but never the other way round. Loaded values count as
/// computed from nothing: addresses stored in memory are not followed.
pub(super) fn note_uses(steps: &[Step], slots: usize, parameters: &mut [Parameter]) {
    let made_of = made_of(steps, slots, parameters);
    for step in steps {
        let (base, writes) = match *step {
            Step::Load { base, .. } => (base, false),
            Step::Store { base, .. } => (base, true),
            _ => continue,
        };
        for (index, parameter) in parameters.iter_mut().enumerate() {
            if made_of[usize::from(base)] & (1 << index) != 0 {
                parameter.is_read |= !writes;
                parameter.is_written |= writes;
            }
        }
    }
}

/// A set of parameters for each slot, one bit each, grown until nothing changes.
fn made_of(steps: &[Step], slots: usize, parameters: &[Parameter]) -> Vec<u64> {
    let mut made_of = vec![0_u64; slots];
    loop {
        let mut has_grown = false;
        for step in steps {
            let of = |slots: &[u16]| slots.iter().fold(0, |all, &slot| all | made_of[usize::from(slot)]);
            let (to, found) = match *step {
                Step::One { to, from, .. } => (to, of(&[from])),
                Step::Two { what, to, from } if !what.is_comparison() => (to, of(&from)),
                Step::Three { to, from, .. } => (to, of(&from)),
                Step::Parameter { to, at, bytes: 8 } => {
                    let index =
                        parameters.iter().position(|known| known.bytes == 8 && known.at == at as usize);
                    (to, index.map_or(0, |index| 1 << index))
                }
                _ => continue,
            };
            let all = made_of[usize::from(to)] | found;
            has_grown |= all != made_of[usize::from(to)];
            made_of[usize::from(to)] = all;
        }
        if !has_grown {
            return made_of;
        }
    }
}
