//! Binds a thread to some processors for a while.

use std::marker::PhantomData;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Cpus;

/// A bound thread. Dropping this restores the processors on which it could run before. Threads that it starts
/// in the meantime inherit the binding and keep it.
#[derive(Debug)]
#[must_use = "a thread is bound for as long as this lives"]
pub(crate) struct Bound {
    #[cfg(target_os = "linux")]
    before: CpuSet,
    /// Keeps this value on the bound thread, which is the one to be restored.
    on_this_thread: PhantomData<*const ()>,
}

#[cfg(target_os = "linux")]
impl Cpus {
    /// Binds the calling thread to those of these processors on which it may already run: an administrator's
    /// restriction (`taskset`, a cgroup) is narrowed, never widened. When this returns, the thread runs
    /// there.
    ///
    /// Returns `None` if that changes nothing, if it would leave no processor for the thread, or if the
    /// system refuses.
    pub(crate) fn bind(&self) -> Option<Bound> {
        // An unbound thread is slower, but no less correct.
        let refused = |error| tracing::debug!(%error, "the system refuses to bind this thread");
        let before = sched_getaffinity(None).map_err(refused).ok()?;
        let wanted = self.among(&before);
        if wanted.count() == 0 {
            tracing::debug!(
                "this thread may run on none of the processors near its memory; it stays unbound"
            );
            return None;
        }
        if wanted == before {
            return None;
        }
        sched_setaffinity(None, &wanted).map_err(refused).ok()?;
        tracing::debug!(cpus = wanted.count(), of = before.count(), "this thread is bound near its memory");
        Some(Bound { before, on_this_thread: PhantomData })
    }

    /// On how many of them the calling thread may run.
    pub(crate) fn usable(&self) -> usize {
        sched_getaffinity(None).map_or(0, |allowed| self.0.iter().filter(|&&cpu| allowed.is_set(cpu)).count())
    }

    /// The processors in both sets.
    fn among(&self, allowed: &CpuSet) -> CpuSet {
        const { assert!(super::NUMBERS_MAX <= CpuSet::MAX_CPU, "a set has a place for every number") };
        let mut both = CpuSet::new();
        for &cpu in self.0.iter().filter(|&&cpu| allowed.is_set(cpu)) {
            both.set(cpu);
        }
        both
    }
}

#[cfg(target_os = "linux")]
impl Drop for Bound {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            tracing::debug!(%error, "a thread stays bound: the system refuses to unbind it");
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Cpus {
    /// Binds nothing: this system reports no nodes.
    pub(crate) fn bind(&self) -> Option<Bound> {
        None
    }

    /// Returns 0: the allowed processors are not known.
    pub(crate) fn usable(&self) -> usize {
        0
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::super::tests::cpus;
    use super::*;

    fn allowed() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    /// The processors that this thread may run on.
    fn all() -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|&cpu| allowed().is_set(cpu)).collect()
    }

    fn set(numbers: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        numbers.iter().for_each(|&cpu| set.set(cpu));
        set
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel for processors")]
    fn a_thread_is_bound_and_restored() {
        let (before, cpu) = (allowed(), all()[0]);
        let bound = cpus([cpu]).bind();
        assert_eq!(allowed(), set(&[cpu]));
        assert_eq!(
            bound.is_some(),
            before != set(&[cpu]),
            "where one processor is all there is, nothing changes"
        );
        drop(bound);
        assert_eq!(allowed(), before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel for processors")]
    fn a_thread_that_panics_is_restored() {
        let before = allowed();
        let panicked = std::panic::catch_unwind(|| {
            let _bound = cpus([all()[0]]).bind();
            panic!("while it is bound");
        });
        assert!(panicked.is_err());
        assert_eq!(allowed(), before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel for processors")]
    fn a_thread_is_never_bound_to_what_it_may_not_use() {
        let before = allowed();
        assert!(cpus([]).bind().is_none() && cpus(all()).bind().is_none());
        let (mine, other) = (all()[0], (0..1024).find(|&cpu| !before.is_set(cpu)).unwrap());
        assert!(cpus([other]).bind().is_none());
        assert_eq!(allowed(), before);
        let bound = cpus([mine, other]).bind();
        assert_eq!(allowed(), set(&[mine]));
        drop(bound);
        // Like a mask set by `taskset`: the narrower one stays.
        let narrow = cpus([mine]).bind();
        assert!(cpus(0..1024).bind().is_none());
        assert_eq!(allowed(), set(&[mine]));
        drop(narrow);
        assert_eq!(allowed(), before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel for processors")]
    fn a_set_within_another_is_what_both_have() {
        let both = |numbers: &[usize], allowed: &[usize]| cpus(numbers.iter().copied()).among(&set(allowed));
        assert_eq!(both(&[0, 1, 8], &[1, 2, 8, 1023]), set(&[1, 8]));
        assert_eq!(both(&[0, 1023], &[1023]), set(&[1023]));
        assert_eq!(both(&[0], &[1]), set(&[]));
    }
}
