//! Captures what is logged on a thread.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, Once};

thread_local! {
    /// The log that this thread writes to.
    static LISTENER: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// What was logged; a test can wait for more.
#[derive(Clone, Default)]
pub struct Log(Arc<(Mutex<String>, Condvar)>);

impl Log {
    /// Runs `run`, and captures what this thread logs meanwhile, from level debug up.
    pub fn listen<T>(&self, run: impl FnOnce() -> T) -> T {
        struct Heard;
        impl Drop for Heard {
            fn drop(&mut self) {
                LISTENER.set(None);
            }
        }
        // One subscriber for the whole process. If each test had its own, the first thread to reach an event
        // would decide whether anybody wants it, and that thread may belong to a test that listens to
        // nothing.
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::DEBUG)
                .with_writer(|| ToListener)
                .with_ansi(false)
                .without_time()
                .init();
        });
        LISTENER.set(Some(self.clone()));
        let _heard = Heard;
        run()
    }

    /// Waits until a line with `text` was logged, and returns the line.
    pub fn wait_for(&self, text: &str) -> String {
        let found = |log: &str| log.lines().find(|line| line.contains(text)).map(str::to_owned);
        let log = self.0.1.wait_while(self.0.0.lock().unwrap(), |log| found(log).is_none()).unwrap();
        found(&log).unwrap()
    }

    pub fn text(&self) -> String {
        self.0.0.lock().unwrap().clone()
    }
}

struct ToListener;

impl Write for ToListener {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LISTENER.with_borrow(|listener| {
            if let Some(Log(log)) = listener {
                log.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
                log.1.notify_all();
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
