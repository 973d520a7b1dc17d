//! One living value per key: the first caller opens it, all share it, and the last to drop it closes it.
//!
//! LMDB forbids opening one environment twice in a process, and two readers of one consumer group would deal
//! the same records twice; this map prevents both. Its guarantee is stronger than that of a map of `Weak`s:
//! **two values of one key are never alive at the same time**, not even while the older one is still closing
//! (joining its thread, unmapping its file). A caller that arrives meanwhile waits, then opens a new value.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::base::sync::{Condvar, Mutex};

/// The map from keys to living values.
pub(crate) struct Keyed<K: Eq + Hash, V> {
    /// A key is present from the moment its value starts to open until the value is completely closed. A
    /// `Weak` that does not upgrade therefore means "opening or closing: wait".
    entries: Mutex<HashMap<K, Weak<Held<K, V>>>>,
    /// Signalled whenever an entry is filled or removed.
    changed: Condvar,
}

/// A value, which removes its key from the map once it is closed.
pub(crate) struct Held<K: Eq + Hash, V> {
    /// `Some` until the drop, which closes the value before it frees the key.
    value: Option<V>,
    key: K,
    map: Arc<Keyed<K, V>>,
}

impl<K: Eq + Hash + Clone, V> Keyed<K, V> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Keyed { entries: Mutex::new(HashMap::new()), changed: Condvar::new() })
    }

    /// Returns the living value of `key`, or opens it with `open`. `open` runs without the lock, so opening
    /// one key, however slow, does not hold up callers with other keys.
    pub(crate) fn get_or_open<E>(
        self: &Arc<Self>,
        key: &K,
        open: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<Held<K, V>>, E> {
        let mut entries = self.entries.lock();
        while let Some(entry) = entries.get(key) {
            if let Some(held) = entry.upgrade() {
                return Ok(held);
            }
            self.changed.wait(&mut entries);
        }
        entries.insert(key.clone(), Weak::new());
        drop(entries);

        // From here on this call must fill or remove the entry, even if `open` fails or panics.
        let mut opening = Opening { key, map: self, filled: false };
        let value = Some(open()?);
        let held = Arc::new(Held { value, key: key.clone(), map: self.clone() });
        self.entries.lock().insert(key.clone(), Arc::downgrade(&held));
        opening.filled = true;
        drop(opening);
        Ok(held)
    }

    /// The number of keys that are present: open, opening or closing.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

impl<K: Eq + Hash, V> Keyed<K, V> {
    fn remove(&self, key: &K) {
        self.entries.lock().remove(key);
        self.changed.notify_all();
    }
}

struct Opening<'a, K: Eq + Hash, V> {
    key: &'a K,
    map: &'a Keyed<K, V>,
    filled: bool,
}

impl<K: Eq + Hash, V> Drop for Opening<'_, K, V> {
    fn drop(&mut self) {
        if self.filled {
            self.map.changed.notify_all();
        } else {
            self.map.remove(self.key);
        }
    }
}

impl<K: Eq + Hash, V> Deref for Held<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value.as_ref().expect("the value is taken only by the drop")
    }
}

impl<K: Eq + Hash, V> Drop for Held<K, V> {
    fn drop(&mut self) {
        self.value = None;
        self.map.remove(&self.key);
    }
}

impl<K: Eq + Hash, V: fmt::Debug> fmt::Debug for Held<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<K: fmt::Debug + Eq + Hash + Clone, V> fmt::Debug for Keyed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.lock().keys()).finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn shares_while_held_and_opens_anew_afterwards() {
        let keyed = Keyed::new();
        let open = |n: u32| move || Ok::<_, ()>(n);
        let first = keyed.get_or_open(&"a", open(1)).unwrap();
        let second = keyed.get_or_open(&"a", open(2)).unwrap();
        assert_eq!((**first, **second), (1, 1));
        drop((first, second));
        assert_eq!(keyed.len(), 0);
        assert_eq!(**keyed.get_or_open(&"a", open(3)).unwrap(), 3);
    }

    #[test]
    fn a_failed_or_panicking_open_leaves_the_key_free() {
        let keyed: Arc<Keyed<&str, u32>> = Keyed::new();
        assert!(keyed.get_or_open(&"a", || Err("no")).is_err());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = keyed.get_or_open(&"a", || -> Result<u32, ()> { panic!("in open") });
        }));
        assert!(panicked.is_err());
        assert_eq!(keyed.len(), 0);
        assert!(keyed.get_or_open(&"a", || Ok::<_, ()>(7)).is_ok());
    }

    /// Two values of one key alive at once would raise the counter above 1.
    #[test]
    fn never_two_alive_over_thousands_of_overlapping_lives() {
        struct Alive(Arc<AtomicUsize>);
        impl Drop for Alive {
            fn drop(&mut self) {
                thread::yield_now();
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let keyed: Arc<Keyed<u8, Alive>> = Keyed::new();
        let alive = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let rounds: usize = if cfg!(miri) { 10 } else { 1000 };
        thread::scope(|scope| {
            for worker in 0..8 {
                let (keyed, alive) = (&keyed, &alive);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let key = (round + worker) % 2;
                        let held = keyed.get_or_open(&(u8::try_from(key).unwrap()), || {
                            assert_eq!(alive[key].fetch_add(1, Ordering::SeqCst), 0);
                            Ok::<_, ()>(Alive(alive[key].clone()))
                        });
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(keyed.len(), 0);
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod model {
    use super::*;
    use crate::base::sync::atomic::{AtomicUsize, Ordering};
    use crate::base::sync::{bounded, thread};
    use crate::explore::explore;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// A value that takes several steps to close, all of them before the next may open.
    struct Alive(Arc<AtomicUsize>);

    impl Alive {
        fn open(alive: &Arc<AtomicUsize>) -> Self {
            assert_eq!(alive.fetch_add(1, Ordering::SeqCst), 0, "two values of one key are alive");
            Alive(alive.clone())
        }
    }

    impl Drop for Alive {
        fn drop(&mut self) {
            thread::yield_now();
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    type Values = Arc<Keyed<&'static str, Alive>>;

    /// Three threads call `ask` with one key at once; all must end, and leave nothing.
    fn three_ask(ask: impl Fn(usize, &Values, &Arc<AtomicUsize>) + Clone + Send + Sync + 'static) {
        explore(move || {
            let keyed: Values = Keyed::new();
            let alive = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..3)
                .map(|asker| {
                    let (ask, keyed, alive) = (ask.clone(), keyed.clone(), alive.clone());
                    thread::spawn(move || ask(asker, &keyed, &alive))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!((keyed.len(), alive.load(Ordering::SeqCst)), (0, 0));
        });
    }

    #[test]
    fn never_two_alive() {
        three_ask(|_, keyed, alive| {
            for _ in 0..2 {
                let held = keyed.get_or_open(&"key", || Ok::<_, ()>(Alive::open(alive))).unwrap();
                assert_eq!(held.0.load(Ordering::SeqCst), 1);
            }
        });
    }

    #[test]
    fn a_failed_open_wakes_those_who_wait_for_it() {
        three_ask(|asker, keyed, alive| {
            let open = || if asker == 0 { Err("no") } else { Ok(Alive::open(alive)) };
            if let Err(error) = keyed.get_or_open(&"key", open) {
                assert_eq!((asker, error), (0, "no"), "one asker got another's error");
            }
        });
    }

    #[test]
    fn a_panicking_open_wakes_those_who_wait_for_it() {
        three_ask(|asker, keyed, alive| {
            let open = || {
                let value = Alive::open(alive);
                // Not `panic!`: the checker's hook would print every schedule that gets here.
                if asker == 0 { resume_unwind(Box::new("in open")) } else { Ok::<_, ()>(value) }
            };
            let opened = catch_unwind(AssertUnwindSafe(|| drop(keyed.get_or_open(&"key", open))));
            assert!(opened.is_ok() || asker == 0);
        });
    }

    #[test]
    fn opening_one_key_holds_up_nobody_who_asks_for_another() {
        explore(|| {
            let keyed = Keyed::new();
            let (opened, other_is_open) = bounded(1);
            let slow = thread::spawn({
                let keyed = keyed.clone();
                move || drop(keyed.get_or_open(&"slow", || other_is_open.recv()).unwrap())
            });
            drop(keyed.get_or_open(&"other", || opened.send(())).unwrap());
            slow.join().unwrap();
            assert_eq!(keyed.len(), 0);
        });
    }
}
