//! When a run stops: it has delivered enough, its time is over, a signal arrives, or a lane has failed.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use percolator::Lane;
use percolator_observe::view;
use rustix::process::Signal;
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::low_level::{self, pipe};
use signal_hook::{flag, iterator};

/// How often a pausing consumer checks whether to stop.
const LOOK: Duration = Duration::from_millis(10);

/// How often a consumer that waits for its lane looks at signals. Each look is a wait in the statistics.
const LISTEN: Duration = Duration::from_secs(1);

/// How long a run that is to stop waits for its next batch: less than the 30 s that Kubernetes gives it.
pub(crate) const HUNG_AFTER: Duration = Duration::from_secs(10);

/// What ends a process by default, besides the signals that ask a run to stop, and faults of the program.
const FATAL: [i32; 8] = [SIGABRT, SIGALRM, SIGPROF, SIGQUIT, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU];

/// What asks a run to stop, with its name and its exit code.
const ASKING: [(i32, &str, u8); 3] =
    [(SIGHUP, "SIGHUP", 129), (SIGINT, "SIGINT", 130), (SIGTERM, "SIGTERM", 143)];

/// The signals that ask a run to stop at its next batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// The place in [`ASKING`], from 1, of the signal that arrived last; 0 if none has.
    caught: Arc<AtomicUsize>,
    /// A bit for the place of each signal that has arrived beside a view.
    came: Arc<AtomicU64>,
}

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on. The second signal of a kind ends the process as if it
    /// were not caught. A process that was told to ignore SIGHUP (`nohup`) still does.
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let signals = Signals::default();
        for (number, (signal, ..)) in (1..).zip(ASKING) {
            if signal == SIGHUP && is_ignored(SIGHUP) {
                continue;
            }
            let came_before = Arc::new(AtomicBool::new(false));
            // The handlers run in this order. The first one counts: a signal may come before the others are
            // there.
            flag::register_usize(signal, signals.caught.clone(), number)
                .and_then(|_| flag::register_conditional_default(signal, came_before.clone()))
                .and_then(|_| flag::register(signal, came_before))
                .with_context(|| format!("cannot catch the signal {signal}"))?;
        }
        Ok(signals)
    }

    /// Does the same for a run that is drawn in the terminal. The terminal is given back before any signal
    /// ends the process, on a thread: no handler may do that.
    pub(crate) fn catch_beside_view() -> anyhow::Result<Self> {
        let signals = Signals::default();
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let fatal = FATAL.into_iter().filter(|&signal| !is_ignored(signal));
        let all = [SIGINT, SIGTERM].into_iter().chain(hangup).chain(fatal);
        let mut arriving = iterator::Signals::new(all).context("cannot catch signals")?;
        let noting = signals.clone();
        let listen = move || arriving.forever().for_each(|signal| noting.arrive(signal));
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
        thread.context("cannot start the thread that listens to signals")?;
        Ok(signals)
    }

    /// Does as SIGINT does beside a view: the user has pressed Ctrl-C, which is a key there.
    pub(crate) fn interrupt(&self) {
        self.arrive(SIGINT);
    }

    /// Notes the first signal of a kind that asks a run to stop; any other ends the process.
    fn arrive(&self, signal: i32) {
        let place = ASKING.iter().position(|(asking, ..)| *asking == signal);
        if let Some(place) = place
            && self.came.fetch_or(1 << place, Ordering::Relaxed) & 1 << place == 0
        {
            return self.caught.store(place + 1, Ordering::Relaxed);
        }
        view::give_back();
        let _ = low_level::emulate_default_handler(signal);
    }

    /// Waits until a signal asks to stop, and returns it as [`caught`](Self::caught) does. For a process that
    /// caught them with [`catch`](Self::catch).
    pub(crate) fn wait(&self) -> anyhow::Result<(&'static str, u8)> {
        let (mut woken, wake) = UnixStream::pair().context("cannot wait for a signal")?;
        for (signal, ..) in ASKING {
            // The handlers run in the order in which they were set: what wakes comes after what notes.
            let woken_by = wake.try_clone().and_then(|wake| pipe::register(signal, wake));
            woken_by.with_context(|| format!("cannot wait for the signal {signal}"))?;
        }
        loop {
            // Also one that came before, which woke nobody.
            if let Some(caught) = self.caught() {
                return Ok(caught);
            }
            // It fails if a signal interrupts it, which is then noted.
            let _ = woken.read(&mut [0]);
        }
    }

    /// The signal that arrived last, and its exit code.
    pub(crate) fn caught(&self) -> Option<(&'static str, u8)> {
        let place = self.caught.load(Ordering::Relaxed).checked_sub(1)?;
        ASKING.get(place).map(|&(_, name, code)| (name, code))
    }
}

/// Makes a write to a file that may not grow an error, where it would end the process without a word: a limit
/// (`ulimit -f`) sends SIGXFSZ.
pub(crate) fn survive_limits_of_files() {
    // If the handler cannot be set, the signal does what it always did.
    let _ = flag::register(Signal::XFSZ.as_raw(), Arc::default());
}

/// Whether the process was started with this signal ignored; `true` if nothing tells.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_none_or(|mask| mask & 1 << (signal - 1) != 0)
}

/// When the consumers of a run stop.
#[derive(Debug)]
pub(crate) struct Enough<'a> {
    pub(crate) batches: Option<u64>,
    pub(crate) until: Option<Instant>,
    pub(crate) signals: &'a Signals,
    /// How long a batch may take once a signal has come.
    hung_after: Duration,
    is_called_off: AtomicBool,
    /// Whether a consumer has given up waiting.
    is_hung: AtomicBool,
    /// How much later `until` is, in nanoseconds.
    postponed: AtomicU64,
}

impl<'a> Enough<'a> {
    pub(crate) fn new(batches: Option<u64>, until: Option<Instant>, signals: &'a Signals) -> Self {
        Enough {
            batches,
            until,
            signals,
            hung_after: HUNG_AFTER,
            is_called_off: AtomicBool::new(false),
            is_hung: AtomicBool::new(false),
            postponed: AtomicU64::new(0),
        }
    }

    /// Whether a consumer that has taken this many batches must stop.
    pub(crate) fn is_reached(&self, batches: u64) -> bool {
        self.is_over() || self.batches.is_some_and(|enough| batches >= enough)
    }

    /// Whether all consumers must stop, wherever they are.
    fn is_over(&self) -> bool {
        self.is_called_off.load(Ordering::Relaxed)
            || self.signals.caught().is_some()
            || self.until.is_some_and(|until| {
                let postponed = Duration::from_nanos(self.postponed.load(Ordering::Relaxed));
                until.checked_add(postponed).is_some_and(|until| Instant::now() >= until)
            })
    }

    /// Waits for a lane's next batch. Once the run is to stop, only for so long: a read may never return.
    ///
    /// # Errors
    ///
    /// If no batch came in that time.
    pub(crate) fn wait_for(&self, lane: &mut Lane) -> anyhow::Result<()> {
        let mut stopped: Option<Instant> = None;
        while !lane.wait_timeout(LISTEN) {
            if self.is_over() && stopped.get_or_insert_with(Instant::now).elapsed() >= self.hung_after {
                self.is_hung.store(true, Ordering::Relaxed);
                bail!(
                    "no batch came in the {} s after the run was to stop: reading or decoding hangs; what \
                     was delivered before counts",
                    self.hung_after.as_secs()
                );
            }
        }
        Ok(())
    }

    /// Closes a lane: the process may be about to exit, and no thread may be inside a driver then. The lane's
    /// threads end after the read at hand, which is waited for only so long.
    pub(crate) fn close(&self, lane: Lane) {
        if self.is_hung() {
            return std::mem::forget(lane);
        }
        let (done, closed) = std::sync::mpsc::channel();
        let close = move || {
            lane.close();
            let _ = done.send(());
        };
        // Without a thread for it, the lane is closed here, for as long as that takes.
        let started = std::thread::Builder::new().name("close".to_owned()).spawn(close);
        if started.is_ok() && closed.recv_timeout(self.hung_after) == Err(RecvTimeoutError::Timeout) {
            self.is_hung.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a consumer has given up waiting for its lane, whose threads may never end.
    pub(crate) fn is_hung(&self) -> bool {
        self.is_hung.load(Ordering::Relaxed)
    }

    /// Allows for time in which the run was paused.
    pub(crate) fn postpone(&self, by: Duration) {
        self.postponed.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Stops all consumers.
    pub(crate) fn call_off(&self) {
        self.is_called_off.store(true, Ordering::Relaxed);
    }

    /// Waits for this long, or until all consumers must stop.
    pub(crate) fn pause(&self, length: Duration) {
        let start = Instant::now();
        while let Some(left) = length.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            if self.is_over() {
                break;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use percolator::source::FnSource;
    use percolator::{Feed, RawBytes};

    use super::*;
    use crate::run::consumer::{Consumer, consume};

    #[test]
    fn what_is_ignored_is_known() {
        // Rust ignores SIGPIPE before main begins.
        assert!(is_ignored(signal_hook::consts::SIGPIPE) && !is_ignored(SIGTERM));
    }

    /// A feed whose source hangs at the ninth record, in the third batch, until what is returned is dropped.
    fn hanging() -> (Feed, std::sync::mpsc::Sender<()>) {
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = std::sync::Mutex::new(hangs);
        let source = FnSource::new("hangs", 100, move |position, value| {
            if position == 8 {
                // An error: it is over.
                let _ = hangs.lock().unwrap().recv();
            }
            value.extend(position.to_le_bytes());
            Ok(())
        });
        let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).batch_size(4).epochs(1);
        (feed.threads(1).receipts(true).build().unwrap(), release)
    }

    #[test]
    fn a_lane_whose_source_hangs_is_not_waited_for_when_enough_was_taken() {
        let (mut feed, release) = hanging();
        let lane = feed.take_lanes().unwrap().remove(0);
        let signals = Signals::default();
        let enough = Enough { hung_after: Duration::from_millis(50), ..Enough::new(Some(2), None, &signals) };
        let said = consume(vec![Consumer::new(lane, None).unwrap()], &enough);
        assert!(matches!(said[..], [Ok(None)]) && enough.is_hung(), "{said:?}");
        assert_eq!(feed.snapshot().unwrap().next(0).map(|next| next.step), Some(2));
        drop(release);
    }

    #[test]
    fn a_source_that_hangs_is_given_up_after_a_signal_and_what_was_delivered_counts() {
        let (mut feed, release) = hanging();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let signals = Signals::default();
        let enough = Enough { hung_after: Duration::ZERO, ..Enough::new(None, None, &signals) };
        for _ in 0..2 {
            enough.wait_for(&mut lane).unwrap();
            drop(lane.next().unwrap().unwrap());
        }
        signals.arrive(SIGTERM);
        let error = enough.wait_for(&mut lane).unwrap_err().to_string();
        assert!(error.contains("reading or decoding hangs") && enough.is_hung(), "{error}");
        assert_eq!(feed.snapshot().unwrap().next(0).map(|next| next.step), Some(2));
        drop(release);
    }

    #[test]
    fn time_in_which_a_run_is_paused_does_not_count() {
        let signals = Signals::default();
        let enough = Enough::new(None, Some(Instant::now()), &signals);
        assert!(enough.is_reached(1));
        enough.postpone(Duration::from_secs(1000));
        assert!(!enough.is_reached(1));
        enough.call_off();
        assert!(enough.is_reached(1));
    }
}
