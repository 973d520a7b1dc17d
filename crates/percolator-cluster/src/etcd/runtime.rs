//! A thread on which connections live, and calls that wait for its work.

use std::io;
use std::process;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::failure::Failure;

/// The thread and its runtime. Dropping it ends both, and what is still under way.
#[derive(Debug)]
pub(super) struct Runtime {
    handle: Handle,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
}

impl Runtime {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("etcd".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            // A name may still be being resolved: that is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Runtime { handle, stop: Some(stop), thread: Some(thread), process: process::id() })
    }

    /// Does `work` on the thread, and blocks this one until it is done. The work must end by itself.
    pub(super) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        if self.is_forked() {
            let (connected, this) = (self.process, process::id());
            let message = format!(
                "the process {connected} connected and then forked this one, {this}, which must connect anew"
            );
            return Err(Failure::Denied { message });
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let _ = sender.send(work.await);
        });
        // It panicked, or the thread ended.
        let dropped = |_| Failure::Foreign { message: "the client's thread dropped the request".to_owned() };
        receiver.recv().map_err(dropped)
    }

    /// A process that is forked has none of the threads of the one before it.
    fn is_forked(&self) -> bool {
        self.process != process::id()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.is_forked() {
            // Whoever is told, or waited for, is not here.
            std::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for() {
        let runtime = Runtime::start().unwrap();
        assert_eq!(runtime.wait_for(async { tokio::spawn(async { 3 }).await.unwrap() }).unwrap(), 3);
    }

    #[test]
    fn work_that_is_lost_is_an_error() {
        let runtime = Runtime::start().unwrap();
        let lost = runtime.wait_for(async { panic!("this panic is part of the test") });
        assert!(matches!(lost, Err::<(), _>(Failure::Foreign { .. })));
        assert_eq!(runtime.wait_for(async { 4 }).unwrap(), 4);
    }

    #[test]
    fn a_process_without_the_thread_is_told_so() {
        let mut runtime = Runtime::start().unwrap();
        let process = runtime.process;
        runtime.process = process.wrapping_add(1);
        let refused = runtime.wait_for(async { 5 });
        let Err(Failure::Denied { message }) = refused else { panic!("{refused:?}") };
        assert!(message.contains("which must connect anew"), "{message}");
        runtime.process = process;
        assert_eq!(runtime.wait_for(async { 6 }).unwrap(), 6);
    }

    #[test]
    fn it_ends_with_work_under_way() {
        let runtime = Runtime::start().unwrap();
        runtime.handle.spawn(std::future::pending::<()>());
        drop(runtime);
    }
}
