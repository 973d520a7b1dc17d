//! A thread on which connections live, and calls that wait for what is done there.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread and its runtime. Dropping it ends both, and what is still under way.
#[derive(Debug)]
pub(super) struct Runtime {
    handle: Handle,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Work ended without a result.
#[derive(Debug)]
pub(super) struct Lost;

impl Runtime {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("etcd".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            // Somebody may still be asked for the address of a name: nobody waits for that.
            runtime.shutdown_background();
        })?;
        Ok(Runtime { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Does `work` on the thread, and blocks this one until it is done. The work must end by itself.
    pub(super) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Lost> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let _ = sender.send(work.await);
        });
        receiver.recv().map_err(|_| Lost)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
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
        assert!(matches!(lost, Err::<(), _>(Lost)));
        assert_eq!(runtime.wait_for(async { 4 }).unwrap(), 4);
    }

    #[test]
    fn it_ends_with_work_under_way() {
        let runtime = Runtime::start().unwrap();
        runtime.handle.spawn(std::future::pending::<()>());
        drop(runtime);
    }
}
