//! The sums of a file, on separate threads, so that the disk need not wait for them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, bounded};
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::hexadecimal::hexadecimal;

/// Bytes that are handed to the threads at once.
const PIECE_BYTES: usize = 1 << 20;
/// How many pieces wait for a thread at most.
const WAITING_MAX: usize = 4;
/// One more is being summed, and one is being filled.
const PIECES: usize = WAITING_MAX + 2;

/// What is known of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) md5: String,
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

/// Sums bytes while `work` is done with them.
pub(super) fn sums_beside<T>(bytes: &[u8], work: impl FnOnce() -> T) -> io::Result<(Sums, T)> {
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let md5 = named("checkpoint:md5").spawn_scoped(scope, || hexadecimal(Md5::digest(bytes)))?;
        let sha256 = named("checkpoint:sha256").spawn_scoped(scope, || hexadecimal(Sha256::digest(bytes)))?;
        let done = work();
        let sum = |thread: thread::ScopedJoinHandle<'_, String>| thread.join().expect("sums do not panic");
        Ok((Sums { md5: sum(md5), sha256: sum(sha256), bytes: bytes.len() as u64 }, done))
    })
}

/// A thread that sums, and the way to it.
type SumThread = (Sender<Arc<Vec<u8>>>, JoinHandle<String>);

/// Sums bytes that come one after the other.
#[derive(Debug)]
pub(super) struct Summing {
    /// Of MD5 and of SHA-256.
    threads: [SumThread; 2],
    /// Pieces to be used again, the oldest first.
    used: VecDeque<Arc<Vec<u8>>>,
    filling: Vec<u8>,
    /// How many there were.
    pub(super) bytes: u64,
}

impl Summing {
    pub(super) fn start() -> io::Result<Self> {
        fn start<D: Digest>(name: &str) -> io::Result<SumThread> {
            let (sender, pieces) = bounded::<Arc<Vec<u8>>>(WAITING_MAX);
            let sum = move || {
                let mut digest = D::new();
                // It ends when the sender is dropped.
                pieces.iter().for_each(|piece| digest.update(&piece[..]));
                hexadecimal(digest.finalize())
            };
            Ok((sender, thread::Builder::new().name(name.to_owned()).spawn(sum)?))
        }
        let threads = [start::<Md5>("checkpoint:md5")?, start::<Sha256>("checkpoint:sha256")?];
        let filling = Vec::with_capacity(PIECE_BYTES);
        Ok(Summing { threads, used: VecDeque::new(), filling, bytes: 0 })
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == PIECE_BYTES {
                self.hand_over();
            }
        }
    }

    fn hand_over(&mut self) {
        let next = match self.used.len() >= PIECES {
            true => self.used.pop_front().and_then(Arc::into_inner),
            false => None,
        };
        let mut next = next.unwrap_or_else(|| Vec::with_capacity(PIECE_BYTES));
        next.clear();
        let piece = Arc::new(std::mem::replace(&mut self.filling, next));
        for (sender, _) in &self.threads {
            sender.send(piece.clone()).expect("the thread ends after its sender");
        }
        self.used.push_back(piece);
    }

    pub(super) fn finish(mut self) -> Sums {
        self.hand_over();
        let [md5, sha256] = self.threads.map(|(sender, thread)| {
            drop(sender);
            thread.join().expect("sums do not panic")
        });
        Sums { md5, sha256, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_same_in_pieces_and_at_once() {
        let abc = sums_beside(b"abc", || 7).unwrap();
        assert_eq!(abc.0.md5, "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(abc.0.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((abc.0.bytes, abc.1), (3, 7));
        let bytes: Vec<u8> = (0..251).cycle().take(20 * PIECE_BYTES + 5).collect();
        let (due, ()) = sums_beside(&bytes, || ()).unwrap();
        for piece in [1 << 12, 777_777, PIECE_BYTES, usize::MAX] {
            let mut summing = Summing::start().unwrap();
            bytes.chunks(piece.min(bytes.len())).for_each(|piece| summing.update(piece));
            assert_eq!(summing.finish(), due);
        }
        assert_eq!(Summing::start().unwrap().finish().md5, "d41d8cd98f00b204e9800998ecf8427e");
    }
}
